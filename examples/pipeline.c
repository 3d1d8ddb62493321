/* SPDX-License-Identifier: MIT
 *
 * Trains an MLP on four ranks, which are threads here and processes elsewhere:
 * each makes its end of the same pipeline and steps along. */
#include <sluice/sluice.h>

#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, ROWS = 64, WIDTH = 16, MICROBATCHES = 8, STEPS = 200 };

/* The model for microbatches of `rows`, in as many stages as the schedule. */
static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    const sl_mlp_config config = {8, WIDTH};
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    sl_mlp_build(graph, &config, rows);
    options.by = SL_CUT_BY_COST;
    options.stages = *(const int *)context;
    options.like = like;
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

/* Small weights of either sign, in the stages that this rank has. */
static sl_status start(sl_pipeline *pipeline)
{
    int count;
    const int *stages = sl_pipeline_stages(pipeline, &count);
    for (int s = 0; s < count; s++) {
        const sl_stage *stage;
        sl_memory *memory;
        sl_port port;
        if (sl_pipeline_stage(pipeline, stages[s], &stage, &memory))
            return SL_EINVAL;
        for (int i = 0; !sl_stage_port_at(stage, SL_PORT_PARAMETER, i, &port);
             i++) {
            static _Thread_local float weight[4 * WIDTH * WIDTH];
            for (int64_t k = 0; k < port.bytes / 4; k++)
                weight[k] = ((float)((k * 7919 + i * 31) % 199) - 99) * 1e-3f;
            if (sl_memory_write(memory, &port, 0, weight, (size_t)port.bytes))
                return SL_EINVAL;
        }
    }
    return SL_OK;
}

/* Something to learn: each number is a mix of two others. */
static float x[ROWS * WIDTH], target[ROWS * WIDTH];

static void make_batch(void)
{
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)((i * 37 + i / WIDTH * 11) % 101) / 50 - 1;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        int row = i / WIDTH * WIDTH;
        target[i] = x[i] * x[row + (i + 1) % WIDTH];
    }
}

static sl_status train(sl_comm *comm, void *context)
{
    const sl_array arrays[] = {{SL_F32, 2, {ROWS, WIDTH}, x},
                               {SL_F32, 2, {ROWS, WIDTH}, target}};
    const sl_argument batch[] = {{"x", SL_SPREAD_SPLIT, 0, &arrays[0], 1},
                                 {"target", SL_SPREAD_SPLIT, 0, &arrays[1], 1}};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    const sl_schedule *schedule = context;
    int stages = sl_schedule_extent(schedule).stages;
    double loss = 0;
    options.schedule = schedule;
    options.share_losses = true;
    sl_status status =
        sl_pipeline_create(comm, build, &stages, &options, &pipeline);
    if (!status)
        status = sl_pipeline_prepare(pipeline, ROWS);
    if (!status)
        status = start(pipeline);
    for (int i = 0; i < STEPS && !status; i++) {
        status = sl_pipeline_step(pipeline, batch, 2, (uint64_t)i);
        if (!status)
            status = sl_pipeline_loss(pipeline, &loss);
        if (!status)
            status = sl_pipeline_descend(pipeline, 0.1);
        if (!status && sl_comm_rank(comm) == 0 && i % 50 == 0)
            printf("step %3d  loss %.5f\n", i, loss);
    }
    if (!status && sl_comm_rank(comm) == 0)
        printf("at last   loss %.5f\n", loss);
    if (!status && !(loss < 0.2))
        status = sl_fail(SL_EINVAL, "the loss has not gone down");
    sl_pipeline_destroy(pipeline);
    return status;
}

int main(void)
{
    const sl_sizes sizes = {RANKS, 2, MICROBATCHES};
    sl_schedule *schedule = NULL;
    make_batch();
    sl_status status = sl_generate("Interleaved1F1B", &sizes, &schedule);
    if (!status)
        status = sl_threads_run(RANKS, train, schedule);
    if (status)
        fprintf(stderr, "%s\n", sl_error_text());
    sl_schedule_destroy(schedule);
    return status ? 1 : 0;
}

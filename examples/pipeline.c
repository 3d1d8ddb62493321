/* SPDX-License-Identifier: MIT
 *
 * Trains an MLP on four ranks: threads of this process, or, under `mpirun -n 4`,
 * processes. Each makes its end of the same pipeline and steps along. */
#include <sluice/sluice.h>

#include <stdio.h>

enum { RANKS = 4, STAGES = 8, ROWS = 64, WIDTH = 16, STEPS = 200 };
static float x[ROWS][WIDTH], target[ROWS][WIDTH];

static sl_status train(sl_comm *comm, void *schedule)
{
    const sl_array arrays[] = {{SL_F32, 2, {ROWS, WIDTH}, x},
                               {SL_F32, 2, {ROWS, WIDTH}, target}};
    const sl_argument batch[] = {{"x", SL_SPREAD_SPLIT, 0, &arrays[0], 1},
                                 {"target", SL_SPREAD_SPLIT, 0, &arrays[1], 1}};
    sl_mlp_model_spec model = {{STAGES, WIDTH}, SL_CUT_OPTIONS_INIT, SL_F32};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    double loss = 1;
    model.cut.by = SL_CUT_BY_COST;
    model.cut.stages = STAGES;
    options.schedule = schedule;
    options.share_losses = true;
    sl_status status =
        sl_pipeline_create(comm, sl_mlp_model, &model, &options, &pipeline);
    if (!status)
        status = sl_pipeline_prepare(pipeline, ROWS);
    if (!status)
        status = sl_pipeline_init_parameters(pipeline, sl_mlp_init, NULL, 1);
    for (int i = 0; i < STEPS && !status; i++) {
        status = sl_pipeline_step(pipeline, batch, 2, 0);
        if (!status)
            status = sl_pipeline_loss(pipeline, &loss);
        if (!status && sl_comm_rank(comm) == 0 && i % 50 == 0)
            printf("step %3d  loss %.5f\n", i, loss);
        if (!status)
            status = sl_pipeline_descend(pipeline, 0.03);
    }
    if (!status && sl_comm_rank(comm) == 0)
        printf("at last   loss %.5f\n", loss);
    sl_pipeline_destroy(pipeline);
    return status;
}

int main(void)
{
    const sl_sizes sizes = {RANKS, STAGES / RANKS, 8};
    sl_schedule *schedule = NULL;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = (float)((i * 37 + i / WIDTH) % 101) / 50 - 1;
    for (int i = 0; i < ROWS * WIDTH; i++) /* products of neighbours */
        target[i / WIDTH][i % WIDTH] =
            x[i / WIDTH][i % WIDTH] * x[i / WIDTH][(i + 1) % WIDTH];
    sl_status status = sl_generate("Interleaved1F1B", &sizes, &schedule);
    if (!status)
        status = sl_run(RANKS, train, schedule);
    if (status)
        fprintf(stderr, "%s\n", sl_error_text());
    sl_schedule_destroy(schedule);
    return status ? 1 : 0;
}

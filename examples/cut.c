/* SPDX-License-Identifier: MIT
 *
 * A model in stages, run by hand: cut a graph into three, split a batch of ten
 * rows into four microbatches, carry each through the stages along the edges,
 * and merge what comes out. The sizes are uneven (3, 3, 2, 2), so there are two
 * sets of programs over the same parameters. */
#include <sluice/sluice.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 10, WIDTH = 8, LAYERS = 6, STAGES = 3, MICROBATCHES = 4 };

/* Layers with residuals, and a skip from the first to the last. */
static void build_graph(sl_graph *graph, int64_t rows)
{
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(rows, WIDTH), SL_NO_GRADIENT);
    sl_tensor *h = x, *skip = NULL;
    for (int i = 0; i < LAYERS; i++) {
        sl_scope_enter(graph, "layers.%d", i);
        sl_tensor *w =
            sl_parameter(graph, "weight", SL_F32, SL_SHAPE(WIDTH, WIDTH));
        h = sl_add(h, sl_relu(sl_linear(h, w, NULL, SL_OUT_IN)));
        skip = i == 0 ? h : skip;
        if (i == LAYERS - 1)
            h = sl_add(h, skip);
        sl_scope_leave(graph);
    }
    sl_output(graph, "y", h, SL_GRADIENT);
}

/* Called once for each size of microbatch. */
static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    (void)context;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.by = SL_CUT_BY_COST;
    options.stages = STAGES;
    options.like = like;
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    build_graph(graph, rows);
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

static void show(const sl_model *model)
{
    int count;
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    for (int s = 0; s < sl_model_stage_count(model); s++) {
        const sl_stage_info *info = sl_model_stage(model, s);
        printf("stage %d:", s);
        for (int i = 0; i < info->module_count; i++)
            printf(" %s", info->modules[i]);
        printf("\n");
    }
    for (int i = 0; i < count; i++) {
        printf("%s crosses from stage %d to", crossings[i].name,
               crossings[i].producer);
        for (int k = 0; k < crossings[i].consumer_count; k++)
            printf(" %d", crossings[i].consumers[k]);
        printf(", %lld bytes\n", (long long)crossings[i].bytes);
    }
}

/* Memory for each size; the parameters are those of the first. */
typedef struct sized {
    int64_t rows;
    const sl_model *model;
    const sl_stage *stages[STAGES];
    sl_memory *memories[STAGES];
} sized;

static sl_status make_set(sl_programs *programs, int64_t rows,
                          const sized *owner, sized *out)
{
    out->rows = rows;
    sl_status status = sl_programs_model(programs, rows, &out->model);
    for (int s = 0; s < STAGES && !status; s++) {
        const sl_stage *stage = NULL;
        status = sl_programs_stage(programs, rows, s, &stage);
        if (!status && owner)
            status = sl_memory_create_shared(stage, 1, owner->memories[s],
                                             &out->memories[s]);
        else if (!status)
            status = sl_memory_create(stage, 1, &out->memories[s]);
        out->stages[s] = stage;
    }
    return status;
}

static sl_status fill_parameters(const sized *set)
{
    sl_status status = SL_OK;
    for (int s = 0; s < STAGES; s++) {
        const sl_stage *stage = set->stages[s];
        int count = sl_stage_port_count(stage, SL_PORT_PARAMETER);
        for (int i = 0; i < count && !status; i++) {
            sl_port port;
            float weight[WIDTH * WIDTH];
            for (int k = 0; k < WIDTH * WIDTH; k++)
                weight[k] = (float)rand() / (float)RAND_MAX - 0.5f;
            status = sl_stage_port_at(stage, SL_PORT_PARAMETER, i, &port);
            if (!status)
                status = sl_memory_write(set->memories[s], &port, 0, weight,
                                         sizeof weight);
        }
    }
    return status;
}

/* Carries a tensor along an edge. A pipeline would send it. */
static sl_status carry(const sized *set, const sl_edge *edge)
{
    float data[ROWS * WIDTH];
    sl_port from, to;
    sl_status status = sl_stage_port(set->stages[edge->from], SL_PORT_OUTPUT,
                                     edge->name, &from);
    if (!status)
        status = sl_stage_port(set->stages[edge->to], SL_PORT_INPUT, edge->name,
                               &to);
    if (!status)
        status = sl_memory_read(set->memories[edge->from], &from, 0, data,
                                (size_t)from.bytes);
    if (!status)
        status = sl_memory_write(set->memories[edge->to], &to, 0, data,
                                 (size_t)to.bytes);
    return status;
}

/* One microbatch through all stages, into its place in the merged output. */
static sl_status run(const sized *set, const sl_batch *batch, int microbatch,
                     sl_merge *merge)
{
    int edge_count;
    const sl_edge *edges = sl_model_edges(set->model, &edge_count);
    sl_array part;
    sl_port port;
    sl_status status = sl_batch_part(batch, 0, microbatch, &part);
    if (!status)
        status = sl_stage_port(set->stages[0], SL_PORT_INPUT, "x", &port);
    if (!status)
        status = sl_memory_write(set->memories[0], &port, 0, part.data,
                                 (size_t)port.bytes);
    for (int s = 0; s < STAGES && !status; s++) {
        for (int i = 0; i < edge_count && !status; i++) {
            if (edges[i].to == s)
                status = carry(set, &edges[i]);
        }
        if (!status)
            status = sl_stage_run(set->stages[s], SL_PROGRAM_F,
                                  set->memories[s], 0, NULL);
    }
    if (!status)
        status =
            sl_stage_port(set->stages[STAGES - 1], SL_PORT_OUTPUT, "y", &port);
    void *place = sl_merge_place(merge, microbatch);
    if (!status)
        status = sl_memory_read(set->memories[STAGES - 1], &port, 0, place,
                                (size_t)port.bytes);
    if (!status)
        status = sl_merge_put(merge, microbatch, place, (size_t)port.bytes);
    return status;
}

static sl_status run_batch(sl_programs *programs, sized sets[2])
{
    static float x[ROWS * WIDTH];
    const sl_array array = {SL_F32, 2, {ROWS, WIDTH}, x};
    sl_argument argument = SL_ARGUMENT_INIT; /* Split along dimension 0. */
    sl_array parts[MICROBATCHES], whole;
    sl_batch *batch = NULL;
    sl_merge *merge = NULL;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i % 13) / 13;
    argument.arrays = &array;
    sl_status status =
        sl_batch_create(sets[0].model, &argument, 1, MICROBATCHES, &batch);
    for (int m = 0; m < MICROBATCHES && !status; m++)
        status = sl_batch_part(batch, 0, m, &parts[m]); /* y is shaped like x */
    if (!status)
        status = sl_merge_create(NULL, parts, NULL, MICROBATCHES, &merge);
    for (int m = 0; m < MICROBATCHES && !status; m++) {
        bool larger = sl_batch_rows(batch, m) == sets[0].rows;
        status = run(&sets[larger ? 0 : 1], batch, m, merge);
    }
    if (!status)
        status = sl_merge_finish(merge, &whole);
    if (!status)
        printf("%d microbatches, %d sizes of programs, y is (%lld, %lld), its "
               "last number %.4f\n",
               MICROBATCHES, sl_programs_count(programs),
               (long long)whole.shape[0], (long long)whole.shape[1],
               ((const float *)whole.data)[ROWS * WIDTH - 1]);
    sl_merge_destroy(merge);
    sl_batch_destroy(batch);
    return status;
}

int main(void)
{
    sl_programs *programs = NULL;
    sized sets[2] = {{0}, {0}};
    sl_status status = sl_programs_create(build, NULL, NULL, &programs);
    if (!status)
        status = make_set(programs, sl_microbatch_rows(ROWS, MICROBATCHES, 0),
                          NULL, &sets[0]);
    if (!status)
        status = make_set(
            programs, sl_microbatch_rows(ROWS, MICROBATCHES, MICROBATCHES - 1),
            &sets[0], &sets[1]);
    if (!status) {
        show(sets[0].model);
        status = fill_parameters(&sets[0]);
    }
    if (!status)
        status = run_batch(programs, sets);
    if (status)
        fprintf(stderr, "%s\n", sl_error_text());
    for (int i = 2; i-- > 0;) {
        for (int s = 0; s < STAGES; s++)
            sl_memory_destroy(sets[i].memories[s]);
    }
    sl_programs_destroy(programs);
    return status ? 1 : 0;
}

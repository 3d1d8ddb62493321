/* SPDX-License-Identifier: MIT
 *
 * Each allocation of the model code fails once: the failure is reported, and
 * nothing leaks or is used afterwards. And steps allocate nothing. */
#include "tensors.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Counts down to the allocation that fails; 0: none does. */
static long countdown;

/* Counts all of them, on any thread. */
static atomic_long calls;

static bool is_refused(void)
{
    atomic_fetch_add(&calls, 1);
    return countdown > 0 && --countdown == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size)
{
    return is_refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return is_refused() ? NULL : __real_realloc(old, size);
}

/* Layers with a skip, a tied weight and a buffer. */
static sl_status build(sl_graph **out, int64_t rows)
{
    const float table[] = {1, 2, 3, 4};
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(rows, 4), SL_GRADIENT);
    sl_tensor *tied = sl_parameter(graph, "tied", SL_F32, SL_SHAPE(4, 4));
    sl_alias(tied, "tied.too");
    sl_tensor *h = x, *skip = NULL;
    for (int i = 0; i < 4; i++) {
        sl_scope_enter(graph, "layers.%d", i);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(4, 4));
        h = sl_relu(sl_matmul(h, i % 2 ? tied : w));
        skip = i == 0 ? h : skip;
        h = sl_add(h, sl_slice(skip, 0, 0, 1));
        sl_scope_leave(graph);
    }
    h = sl_mul(h, sl_buffer(graph, "table", SL_F32, SL_SHAPE(4), table));
    sl_output(graph, "y", h, SL_GRADIENT);
    sl_loss(graph, sl_mean(h, SL_ALL));
    status = sl_graph_status(graph);
    if (status)
        sl_graph_destroy(graph);
    else
        *out = graph;
    return status;
}

static sl_status cut(sl_cut_by by, sl_model **out)
{
    const sl_module_cost costs[] = {
        {"layers.0", 1}, {"layers.1", 2}, {"layers.2", 1}, {"layers.3", 2}};
    const sl_cut_point points[] = {{"layers.1", false}, {"layers.2", true}};
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_status status = build(&graph, 2);
    if (status)
        return status;
    options.by = by;
    options.route = by == SL_CUT_BY_COST ? SL_ROUTE_HOP : SL_ROUTE_DIRECT;
    if (by == SL_CUT_AT_NAMES) {
        options.points = points;
        options.point_count = 2;
    } else {
        options.stages = 3;
        options.costs = costs;
        options.cost_count = 4;
    }
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

static sl_status do_cut_at_names(void)
{
    sl_model *model = NULL;
    sl_status status = cut(SL_CUT_AT_NAMES, &model);
    sl_model_destroy(model);
    return status;
}

static sl_status do_cut_by_cost(void)
{
    sl_model *model = NULL;
    sl_status status = cut(SL_CUT_BY_COST, &model);
    sl_model_destroy(model);
    return status;
}

static sl_status do_nothing(void *context, const sl_call *call)
{
    (void)context;
    (void)call;
    return SL_OK;
}

/* Where adding a stage fails, the model goes on without it. */
static sl_status do_by_hand(void)
{
    const sl_value values[] = {{"y", SL_F32, 2, {2, 4}, SL_GRADIENT},
                               {"z", SL_F32, 1, {4}, SL_GRADIENT}};
    const sl_stage_description mine = {
        .inputs = values,
        .input_count = 1,
        .outputs = values + 1,
        .output_count = 1,
        .callbacks = {.forward = do_nothing, .backward = do_nothing}};
    sl_model *model = NULL;
    sl_graph *graph = NULL, *next = NULL;
    sl_stage *stage = NULL;
    sl_status status = sl_model_create(&model);
    if (!status)
        status = build(&graph, 2);
    if (!status) {
        status = sl_model_add_graph(model, graph);
        if (status)
            sl_graph_destroy(graph);
    }
    if (model) {
        /* What is not there is refused, not followed into freed memory. */
        sl_status probe = sl_graph_create(&next);
        if (!probe) {
            sl_model_receive(model, next, "y");
            probe = status ? SL_OK : sl_graph_status(next);
            sl_graph_destroy(next);
        }
        status = status ? status : probe;
    }
    if (!status)
        status = sl_model_add_callbacks(model, &mine);
    if (!status)
        status = sl_model_link(model);
    if (!status)
        status = sl_model_compile(model, 1, NULL, &stage);
    sl_stage_destroy(stage);
    sl_model_destroy(model);
    return status;
}

static sl_status do_batch(void)
{
    static const float x[8 * 4];
    const sl_array array = {SL_F32, 2, {7, 4}, x};
    sl_argument argument = SL_ARGUMENT_INIT;
    sl_array parts[3];
    sl_model *model = NULL;
    sl_batch *batch = NULL;
    sl_merge *merge = NULL;
    argument.arrays = &array;
    sl_status status = cut(SL_CUT_AT_NAMES, &model);
    if (!status)
        status = sl_batch_create(model, &argument, 1, 3, &batch);
    for (int m = 0; m < 3 && !status; m++)
        status = sl_batch_part(batch, 0, m, &parts[m]);
    if (!status)
        status = sl_merge_create(NULL, parts, NULL, 3, &merge);
    sl_merge_destroy(merge);
    sl_batch_destroy(batch);
    sl_model_destroy(model);
    return status;
}

static sl_status build_model(void *context, int64_t rows, const sl_model *like,
                             sl_model **out)
{
    (void)context;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_status status = build(&graph, rows);
    if (status)
        return status;
    options.by = SL_CUT_BY_COST;
    options.stages = 2;
    options.like = like;
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

static sl_status do_programs(void)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_programs *programs = NULL;
    const sl_stage *stage;
    options.backend = "ref";
    sl_status status =
        sl_programs_create(build_model, NULL, &options, &programs);
    for (int rows = 2; rows < 4 && !status; rows++)
        status = sl_programs_stage(programs, rows, 1, &stage);
    sl_programs_destroy(programs);
    return status;
}

static sl_status do_measure(void)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_module_cost *costs = NULL;
    sl_graph *graph;
    int count;
    options.backend = "ref";
    sl_status status = build(&graph, 2);
    if (status)
        return status;
    status = sl_measure_modules(graph, &options, NULL, NULL, &costs, &count);
    free(costs);
    sl_graph_destroy(graph);
    return status;
}

/* --------------------------------------------------------------- steps -- */

static sl_status build_mlp(void *context, int64_t rows, const sl_model *like,
                           sl_model **out)
{
    const sl_mlp_config config = {4, 8};
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    (void)context;
    if (status)
        return status;
    sl_mlp_build(graph, &config, rows);
    options.by = SL_CUT_BY_COST;
    options.stages = 4;
    options.like = like;
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

/* Pages that the process has in memory. */
static long resident(void)
{
    long all = 0, here = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &here) != 2)
        here = 0;
    if (file)
        fclose(file);
    return here;
}

/* A thousand steps and evals, each on another batch; none but the first
 * allocates, and memory stays as it is. */
static sl_status step_often(sl_comm *comm, void *context)
{
    static const int all[] = {0, 1};
    static float x[3][10 * 8];
    const sl_group both = {all, 2};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    long before = 0, pages = 0;
    options.schedule = context;
    options.keep_outputs = true;
    options.share_losses = true;
    sl_status status =
        sl_pipeline_create(comm, build_mlp, NULL, &options, &pipeline);
    for (int i = 0; i < 1000 && !status; i++) {
        const sl_array array = {SL_F32, 2, {10, 8}, x[i % 3]};
        const sl_argument batch[] = {{"x", SL_SPREAD_SPLIT, 0, &array, 1},
                                     {"target", SL_SPREAD_SPLIT, 0, &array, 1}};
        if (i == 2) {
            status = sl_comm_barrier(comm, &both, 0, 60);
            pages = resident();
            before = atomic_load(&calls);
            if (!status)
                status = sl_comm_barrier(comm, &both, 0, 60);
        }
        if (!status)
            status = i % 2 ? sl_pipeline_eval(pipeline, batch, 2)
                           : sl_pipeline_step(pipeline, batch, 2, 1);
        if (!status)
            status = sl_pipeline_descend(pipeline, 0.1);
    }
    if (!status)
        status = sl_comm_barrier(comm, &both, 0, 60);
    long made = atomic_load(&calls) - before;
    if (!status)
        status = sl_comm_barrier(comm, &both, 0, 60);
    if (!status && made)
        status = sl_fail(SL_EINVAL, "%ld allocations in steps", made);
    /* Under AddressSanitizer what others free stays for a while. */
    long grown = SANITIZED ? 0 : resident() - pages;
    if (!status && grown > 256)
        status = sl_fail(SL_EINVAL, "%ld pages more after 1000 steps", grown);
    sl_pipeline_destroy(pipeline);
    return status;
}

static sl_status swallow(void *context, const char *data, size_t length)
{
    (void)context, (void)data, (void)length;
    return SL_OK;
}

/* One rank, all of it. */
static sl_status do_pipeline(void)
{
    static float x[7 * 8];
    const sl_array array = {SL_F32, 2, {7, 8}, x};
    const sl_argument batch[] = {{"x", SL_SPREAD_SPLIT, 0, &array, 1},
                                 {"target", SL_SPREAD_SPLIT, 0, &array, 1}};
    const sl_sizes sizes = {1, 4, 3};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    sl_schedule *schedule = NULL;
    sl_trace *trace = NULL;
    sl_comm *comm = NULL;
    options.keep_outputs = true;
    options.stage.backend = "ref";
    sl_status status = sl_generate("Interleaved1F1B", &sizes, &schedule);
    options.schedule = schedule;
    if (!status)
        status = sl_threads_create(1, &comm);
    if (!status)
        status = sl_pipeline_create(comm, build_mlp, NULL, &options, &pipeline);
    if (!status)
        status = sl_pipeline_step(pipeline, batch, 2, 1);
    if (!status)
        status = sl_pipeline_eval(pipeline, batch, 2);
    if (!status)
        status = sl_pipeline_trace(pipeline, &trace);
    if (!status)
        status = sl_view_write_run(trace, swallow, NULL);
    sl_trace_destroy(trace);
    sl_pipeline_destroy(pipeline);
    sl_comm_destroy(comm);
    sl_schedule_destroy(schedule);
    return status;
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    const sl_sizes sizes = {2, 2, 4};
    sl_schedule *schedule;
    assert_ok(sl_generate("InterleavedZeroBubble", &sizes, &schedule));
    assert_ok(sl_threads_run(2, step_often, schedule));
    sl_schedule_destroy(schedule);
}

static void sweep(sl_status (*work)(void))
{
    for (long n = 1;; n++) {
        countdown = n;
        sl_status status = work();
        bool reached = countdown == 0;
        countdown = 0;
        if (!reached) {
            assert_ok(status);
            assert_true(n > 20);
            return;
        }
        if (status != SL_ENOMEM)
            fail_msg("allocation %ld failed, and the status is %d: %s", n,
                     (int)status, sl_error_text());
    }
}

#define SWEEP(what)                                                            \
    static void what##_survives(void **state)                                  \
    {                                                                          \
        (void)state;                                                           \
        sweep(do_##what);                                                      \
    }
SWEEP(cut_at_names)
SWEEP(cut_by_cost)
SWEEP(by_hand)
SWEEP(batch)
SWEEP(programs)
SWEEP(measure)
SWEEP(pipeline)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_at_names_survives),
        cmocka_unit_test(cut_by_cost_survives),
        cmocka_unit_test(by_hand_survives),
        cmocka_unit_test(batch_survives),
        cmocka_unit_test(programs_survives),
        cmocka_unit_test(measure_survives),
        cmocka_unit_test(pipeline_survives),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

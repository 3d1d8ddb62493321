/* SPDX-License-Identifier: MIT
 *
 * Outputs of a batch come back whole: joined along the dimension in which the
 * batch was split, or as the caller says. */
#include "sluice/pipeline.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

enum { TALL = 3, WIDE = 10, MICROBATCHES = 4 };

static float x[TALL][WIDE];

/* y (3, rows), its transpose t (rows, 3), and a loss, over two stages; rows are
 * the second dimension. */
static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    (void)context;
    if (status)
        return status;
    sl_tensor *h =
        sl_input(graph, "x", SL_F32, SL_SHAPE(TALL, rows), SL_NO_GRADIENT);
    h = sl_relu(h);
    sl_mark_cut(graph);
    sl_tensor *y = sl_scale(h, 2);
    sl_output(graph, "y", y, SL_NO_GRADIENT);
    sl_output(graph, "t", sl_transpose(y, 0, 1), SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(y, SL_ALL));
    options.like = like;
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

typedef struct trial {
    const sl_schedule *schedule;
    const sl_output_merge *merges;
    int merge_count;
    int dim;
    sl_status status;
    char why[200];
    float y[TALL][WIDE], t[WIDE][TALL], part[TALL][WIDE];
    int64_t shape[2], part_shape[2];
} trial;

static sl_status run_rank(sl_comm *comm, void *context)
{
    trial *own = context;
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    const sl_array array = {SL_F32, 2, {TALL, WIDE}, x};
    const sl_argument batch[] = {{"x", SL_SPREAD_SPLIT, own->dim, &array, 1}};
    sl_array found;
    options.schedule = own->schedule;
    options.keep_outputs = true;
    options.merges = own->merges;
    options.merge_count = own->merge_count;
    options.stage.backend = "ref";
    sl_status status =
        sl_pipeline_create(comm, build, NULL, &options, &pipeline);
    /* Made for dimension 0 first, as nothing is known of the batch. */
    if (!status)
        status = sl_pipeline_prepare(pipeline, WIDE);
    if (!status)
        status = sl_pipeline_eval(pipeline, batch, 1);
    if (!status && sl_comm_rank(comm) == 1) {
        status = sl_pipeline_output(pipeline, "y", &found);
        if (!status) {
            memcpy(own->shape, found.shape, sizeof own->shape);
            memcpy(own->y, found.data, sizeof own->y);
        }
        own->status = sl_pipeline_output(pipeline, "t", &found);
        if (own->status)
            snprintf(own->why, sizeof own->why, "%s", sl_error_text());
        else
            memcpy(own->t, found.data, sizeof own->t);
        if (!sl_pipeline_output_part(pipeline, "y", 1, &found))
            memcpy(own->part_shape, found.shape, sizeof own->part_shape);
    }
    sl_pipeline_destroy(pipeline);
    return status;
}

static void fill(void)
{
    for (int i = 0; i < TALL; i++) {
        for (int k = 0; k < WIDE; k++)
            x[i][k] = (float)((i * WIDE + k) * 7 % 11 - 5);
    }
}

static float expected(int i, int k)
{
    return x[i][k] > 0 ? 2 * x[i][k] : 0;
}

static sl_schedule *make_schedule(void)
{
    const sl_sizes sizes = {2, 1, MICROBATCHES};
    sl_schedule *schedule;
    assert_ok(sl_generate("ForwardOnly", &sizes, &schedule));
    fill();
    return schedule;
}

static void the_dimension_of_the_split_is_that_of_the_outputs(void **state)
{
    (void)state;
    trial own = {.schedule = make_schedule(), .dim = 1};
    assert_ok(sl_threads_run(2, run_rank, &own));
    assert_int_equal(own.shape[0], TALL);
    assert_int_equal(own.shape[1], WIDE);
    for (int i = 0; i < TALL; i++) {
        for (int k = 0; k < WIDE; k++)
            assert_true(own.y[i][k] == expected(i, k));
    }
    /* What has its rows elsewhere is not joined wrongly without a word. */
    assert_int_equal(own.status, SL_EINVAL);
    assert_non_null(strstr(own.why, "say in `merges` how to put it together"));
    sl_schedule_destroy((sl_schedule *)own.schedule);
}

static void the_caller_says_how_outputs_are_joined(void **state)
{
    (void)state;
    const sl_output_merge merges[] = {{"t", {SL_MERGE_CONCAT, 0}}};
    trial own = {.schedule = make_schedule(),
                 .dim = -1,
                 .merges = merges,
                 .merge_count = 1};
    assert_ok(sl_threads_run(2, run_rank, &own));
    assert_ok(own.status);
    for (int i = 0; i < TALL; i++) {
        for (int k = 0; k < WIDE; k++)
            assert_true(own.t[k][i] == expected(i, k));
    }
    const sl_output_merge list[] = {{"y", {SL_MERGE_LIST, 0}},
                                    {"t", {SL_MERGE_LIST, 0}}};
    own.merges = list;
    own.merge_count = 2;
    assert_fails(sl_threads_run(2, run_rank, &own), SL_EINVAL, "list");
    const sl_output_merge unknown[] = {{"z", {SL_MERGE_LIST, 0}}};
    own.merges = unknown;
    own.merge_count = 1;
    assert_fails(sl_threads_run(2, run_rank, &own), SL_ENOTFOUND,
                 "there is no output 'z' to be merged");
    sl_schedule_destroy((sl_schedule *)own.schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dimension_of_the_split_is_that_of_the_outputs),
        cmocka_unit_test(the_caller_says_how_outputs_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * Messages and pipelines with NULL; see rows.h. */
#include "rows.h"

#include <stdio.h>

/* ----------------------------------------------------------------- comm -- */

static void messages(void **state)
{
    test_world *w = *state;
    char texts[1][SL_COMM_ANSWER_MAX], byte = 0;
    sl_request request = {0};
    bool done;
    REFUSES(out, sl_threads_create, (1, NULL));
    REFUSES(out, sl_mpi_create, (NULL));
    DOES_NOTHING(sl_mpi_is_launched, ());
    DOES_NOTHING(sl_comm_destroy, (NULL));
    GIVES(0, sl_comm_rank, (NULL));
    GIVES(0, sl_comm_size, (NULL));
    REFUSES(comm, sl_comm_send, (NULL, 0, 1, &byte, 1, &request));
    REFUSES(data, sl_comm_send, (w->comm, 0, 1, NULL, 1, &request));
    REFUSES(request, sl_comm_send, (w->comm, 0, 1, &byte, 1, NULL));
    REFUSES(comm, sl_comm_recv, (NULL, 0, 1, &byte, 1, &request));
    REFUSES(buffer, sl_comm_recv, (w->comm, 0, 1, NULL, 1, &request));
    REFUSES(request, sl_comm_recv, (w->comm, 0, 1, &byte, 1, NULL));
    REFUSES(comm, sl_comm_test, (NULL, &request, &done));
    REFUSES(request, sl_comm_test, (w->comm, NULL, &done));
    REFUSES(out_done, sl_comm_test, (w->comm, &request, NULL));
    REFUSES(comm, sl_comm_wait, (NULL, &request, 1));
    REFUSES(request, sl_comm_wait, (w->comm, NULL, 1));
    DOES_NOTHING(sl_comm_cancel, (NULL, &request));
    DOES_NOTHING(sl_comm_cancel, (w->comm, NULL));
    GIVES(false, sl_comm_holds_memory, (NULL));
    REFUSES(comm, sl_comm_progress, (NULL));
    DOES_NOTHING(sl_comm_abort, (NULL, SL_EINVAL, "why"));
    DOES_NOTHING(sl_comm_set_answer, (NULL, NULL, NULL));
    DOES_NOTHING(sl_comm_clear_answer, (NULL, NULL));
    DOES_NOTHING(sl_comm_ask, (NULL, texts, 0));
    DOES_NOTHING(sl_comm_ask, (w->comm, NULL, 0));
}

static void collectives(void **state)
{
    test_world *w = *state;
    static const int ranks[1] = {0};
    const sl_group group = {ranks, 1}, without = {NULL, 1};
    sl_comm *comm = w->comm;
    const sl_comm_item item = {"a", "b"}, valueless = {"a", NULL};
    double data = 0, sum;
    size_t first = 7, length = 7;
    REFUSES(comm, sl_comm_barrier, (NULL, &group, 1, 1));
    REFUSES(group, sl_comm_barrier, (comm, NULL, 1, 1));
    GIVES(SL_EINVAL, sl_comm_barrier, (comm, &without, 1, 1));
    REFUSES(comm, sl_comm_allreduce, (NULL, &group, 1, SL_F64, &data, 1, 1));
    REFUSES(group, sl_comm_allreduce, (comm, NULL, 1, SL_F64, &data, 1, 1));
    REFUSES(data, sl_comm_allreduce, (comm, &group, 1, SL_F64, NULL, 1, 1));
    REFUSES(comm, sl_comm_reduce_scatter,
            (NULL, &group, 1, SL_F64, &data, 1, &sum, 1));
    REFUSES(group, sl_comm_reduce_scatter,
            (comm, NULL, 1, SL_F64, &data, 1, &sum, 1));
    REFUSES(data, sl_comm_reduce_scatter,
            (comm, &group, 1, SL_F64, NULL, 1, &sum, 1));
    REFUSES(out, sl_comm_reduce_scatter,
            (comm, &group, 1, SL_F64, &data, 1, NULL, 1));
    REFUSES(comm, sl_comm_allgather, (NULL, &group, 1, 8, &data, 1, 1));
    REFUSES(group, sl_comm_allgather, (comm, NULL, 1, 8, &data, 1, 1));
    REFUSES(data, sl_comm_allgather, (comm, &group, 1, 8, NULL, 1, 1));
    REFUSES(comm, sl_comm_broadcast, (NULL, &group, 1, 0, &data, 8, 1));
    REFUSES(group, sl_comm_broadcast, (comm, NULL, 1, 0, &data, 8, 1));
    REFUSES(data, sl_comm_broadcast, (comm, &group, 1, 0, NULL, 8, 1));
    REFUSES(comm, sl_comm_agree, (NULL, &group, 1, &item, 1, 1));
    REFUSES(group, sl_comm_agree, (comm, NULL, 1, &item, 1, 1));
    REFUSES(items, sl_comm_agree, (comm, &group, 1, NULL, 1, 1));
    GIVES(SL_EINVAL, sl_comm_agree, (comm, &group, 1, &valueless, 1, 1));
    DOES_NOTHING(sl_group_part, (NULL, 8, 0, &first, &length));
    assert_true(first == 0 && length == 0);
    DOES_NOTHING(sl_group_part, (&group, 8, 0, NULL, NULL));
}

/* ------------------------------------------------------------- pipeline -- */

static sl_status run_nothing(void *context, const sl_call *call)
{
    (void)context;
    (void)call;
    return SL_OK;
}

static void models(void **state)
{
    test_world *w = *state;
    const sl_value value = {.name = "y", .dtype = SL_F32};
    const sl_stage_description callbacks = {
        .outputs = &value,
        .output_count = 1,
        .callbacks = {.forward = run_nothing}};
    const sl_cut_options pointless = {.by = SL_CUT_AT_NAMES, .point_count = 1};
    const char *name = NULL;
    sl_model *made;
    sl_stage *stage;
    sl_cut_point *points;
    sl_module_cost *costs;
    int count;
    REFUSES(graph, sl_model_cut, (NULL, NULL, &made));
    REFUSES(out, sl_model_cut, (w->graph, NULL, NULL));
    GIVES(SL_EINVAL, sl_model_cut, (w->graph, &pointless, &made));
    DOES_NOTHING(sl_model_destroy, (NULL));
    REFUSES(text, sl_cut_points_read, (NULL, &points, &count));
    REFUSES(out_points, sl_cut_points_read, ("h.1", NULL, &count));
    REFUSES(out_count, sl_cut_points_read, ("h.1", &points, NULL));
    REFUSES(graph, sl_measure_modules,
            (NULL, NULL, NULL, NULL, &costs, &count));
    REFUSES(out_costs, sl_measure_modules,
            (w->graph, NULL, NULL, NULL, NULL, &count));
    REFUSES(out_count, sl_measure_modules,
            (w->graph, NULL, NULL, NULL, &costs, NULL));
    REFUSES(out, sl_model_create, (NULL));
    GIVES(NULL, sl_model_receive, (w->model, NULL, "h"));
    REFUSES_IN_GRAPH("no stage before gives", sl_model_receive,
                     (NULL, graph, "h"));
    REFUSES_IN_GRAPH("no stage before gives", sl_model_receive,
                     (w->model, graph, NULL));
    REFUSES(model, sl_model_add_graph, (NULL, w->graph));
    REFUSES(graph, sl_model_add_graph, (w->model, NULL));
    REFUSES(model, sl_model_add_callbacks, (NULL, &callbacks));
    REFUSES(description, sl_model_add_callbacks, (w->model, NULL));
    REFUSES(model, sl_model_link, (NULL));
    GIVES(0, sl_model_stage_count, (NULL));
    GIVES(NULL, sl_model_stage, (NULL, 0));
    GIVES(0, sl_model_balance, (NULL));
    GIVES(NULL, sl_model_crossings, (NULL, &count));
    GIVES(NULL, sl_model_edges, (NULL, &count));
    GIVES(NULL, sl_model_ties, (NULL, &count));
    GIVES(NULL, sl_model_inputs, (NULL, &count));
    GIVES(NULL, sl_model_outputs, (NULL, &count));
    assert_int_equal(count, 0);
    DOES_NOTHING(sl_model_crossings, (w->model, NULL));
    DOES_NOTHING(sl_model_edges, (w->model, NULL));
    DOES_NOTHING(sl_model_ties, (w->model, NULL));
    DOES_NOTHING(sl_model_inputs, (w->model, NULL));
    DOES_NOTHING(sl_model_outputs, (w->model, NULL));
    REFUSES(model, sl_model_check_parameters, (NULL, &name, 0));
    REFUSES(names, sl_model_check_parameters, (w->model, NULL, 1));
    GIVES(SL_EINVAL, sl_model_check_parameters, (w->model, &name, 1));
    REFUSES(model, sl_model_compile, (NULL, 0, NULL, &stage));
    REFUSES(out, sl_model_compile, (w->model, 0, NULL, NULL));
}

static void batches_and_merges(void **state)
{
    test_world *w = *state;
    const sl_array part = {.dtype = SL_F32};
    sl_batch *batch;
    sl_merge *merge;
    sl_array array;
    char bytes[64];
    GIVES(0, sl_microbatch_rows, (5, 0, 0));
    REFUSES(arguments, sl_batch_create, (NULL, NULL, 1, 2, &batch));
    REFUSES(out, sl_batch_create, (NULL, w->arguments, 2, 2, NULL));
    DOES_NOTHING(sl_batch_destroy, (NULL));
    GIVES(0, sl_batch_microbatches, (NULL));
    GIVES(0, sl_batch_rows, (NULL, 0));
    GIVES(-1, sl_batch_find, (NULL, "x"));
    GIVES(-1, sl_batch_find, (w->batch, NULL));
    REFUSES(batch, sl_batch_part, (NULL, 0, 0, &array));
    REFUSES(out, sl_batch_part, (w->batch, 0, 0, NULL));
    REFUSES(batch, sl_batch_copy, (NULL, 0, 0, bytes, 16));
    REFUSES(out, sl_batch_copy, (w->batch, 0, 0, NULL, 16));
    REFUSES(parts, sl_merge_create, (NULL, NULL, NULL, 1, &merge));
    REFUSES(out, sl_merge_create, (NULL, &part, NULL, 1, NULL));
    DOES_NOTHING(sl_merge_destroy, (NULL));
    GIVES(NULL, sl_merge_place, (NULL, 0));
    REFUSES(merge, sl_merge_put, (NULL, 0, bytes, 16));
    REFUSES(data, sl_merge_put, (w->merge, 0, NULL, 16));
    DOES_NOTHING(sl_merge_restart, (NULL));
    REFUSES(merge, sl_merge_finish, (NULL, &array));
    REFUSES(out, sl_merge_finish, (w->merge, NULL));
    REFUSES(merge, sl_merge_part, (NULL, 0, &array));
    REFUSES(out, sl_merge_part, (w->merge, 0, NULL));
}

static void programs(void **state)
{
    test_world *w = *state;
    sl_programs *made;
    const sl_model *model;
    const sl_stage *stage;
    REFUSES(build, sl_programs_create, (NULL, NULL, NULL, &made));
    REFUSES(out, sl_programs_create, (sl_mlp_model, &w->spec, NULL, NULL));
    DOES_NOTHING(sl_programs_destroy, (NULL));
    REFUSES(programs, sl_programs_model, (NULL, 1, &model));
    REFUSES(out, sl_programs_model, (w->programs, 1, NULL));
    REFUSES(programs, sl_programs_stage, (NULL, 1, 0, &stage));
    REFUSES(out, sl_programs_stage, (w->programs, 1, 0, NULL));
    GIVES(0, sl_programs_count, (NULL));
}

static void pipelines(void **state)
{
    test_world *w = *state;
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    const sl_action_call call = {.action = sl_action_make(SL_FORWARD, 0, 0)};
    sl_pipeline *made, *own = w->pipeline;
    const sl_stage *stage;
    sl_memory *memory;
    sl_array array;
    sl_rank_bytes bytes = {.planned = 7};
    double loss;
    int count = 7;
    GIVES(SL_EINVAL, sl_pipeline_create,
          (w->comm, sl_mlp_model, &w->spec, &options, &made));
    options.schedule = w->schedule;
    REFUSES(call, sl_action_call_run, (NULL));
    GIVES(SL_EINVAL, sl_action_call_run, (&call));
    REFUSES(comm, sl_pipeline_create,
            (NULL, sl_mlp_model, &w->spec, &options, &made));
    REFUSES(build, sl_pipeline_create, (w->comm, NULL, NULL, &options, &made));
    REFUSES(options, sl_pipeline_create,
            (w->comm, sl_mlp_model, &w->spec, NULL, &made));
    REFUSES(out, sl_pipeline_create,
            (w->comm, sl_mlp_model, &w->spec, &options, NULL));
    DOES_NOTHING(sl_pipeline_destroy, (NULL));
    REFUSES(pipeline, sl_pipeline_prepare, (NULL, 2));
    REFUSES(pipeline, sl_pipeline_step, (NULL, w->arguments, 2, 0));
    REFUSES(arguments, sl_pipeline_step, (own, NULL, 2, 0));
    REFUSES(pipeline, sl_pipeline_eval, (NULL, w->arguments, 2));
    REFUSES(arguments, sl_pipeline_eval, (own, NULL, 2));
    GIVES(NULL, sl_pipeline_losses, (NULL, &count));
    assert_int_equal(count, 0);
    DOES_NOTHING(sl_pipeline_losses, (own, NULL));
    REFUSES(pipeline, sl_pipeline_loss, (NULL, &loss));
    REFUSES(out, sl_pipeline_loss, (own, NULL));
    REFUSES(pipeline, sl_pipeline_output, (NULL, "output", &array));
    REFUSES(name, sl_pipeline_output, (own, NULL, &array));
    REFUSES(out, sl_pipeline_output, (own, "output", NULL));
    REFUSES(pipeline, sl_pipeline_output_part, (NULL, "output", 0, &array));
    REFUSES(name, sl_pipeline_output_part, (own, NULL, 0, &array));
    REFUSES(out, sl_pipeline_output_part, (own, "output", 0, NULL));
    GIVES(NULL, sl_pipeline_schedule, (NULL));
    GIVES(NULL, sl_pipeline_stages, (NULL, &count));
    DOES_NOTHING(sl_pipeline_stages, (own, NULL));
    GIVES(NULL, sl_pipeline_model, (NULL));
    REFUSES(pipeline, sl_pipeline_stage, (NULL, 0, &stage, &memory));
    REFUSES(out_stage, sl_pipeline_stage, (own, 0, NULL, &memory));
    REFUSES(out_memory, sl_pipeline_stage, (own, 0, &stage, NULL));
    REFUSES(pipeline, sl_pipeline_descend, (NULL, 0.1));
    GIVES(0, sl_pipeline_busy, (NULL));
    DOES_NOTHING(sl_pipeline_zero_gradients, (NULL));
    REFUSES(pipeline, sl_pipeline_unshard, (NULL));
    REFUSES(pipeline, sl_pipeline_reshard, (NULL));
    REFUSES(pipeline, sl_pipeline_plan, (NULL, 2, &bytes));
    REFUSES(out, sl_pipeline_plan, (own, 2, NULL));
    REFUSES(ranks, sl_rank_bytes_write, (NULL, 1, sl_write_stdio, stderr));
    REFUSES(write, sl_rank_bytes_write, (&bytes, 1, NULL, NULL));
    DOES_NOTHING(sl_pipeline_bytes, (NULL, &bytes));
    assert_int_equal(bytes.planned, 0);
    DOES_NOTHING(sl_pipeline_bytes, (own, NULL));
    REFUSES(rank, sl_run, (1, NULL, NULL));
    REFUSES(rank, sl_threads_run, (1, NULL, NULL));
}

static void traces(void **state)
{
    test_world *w = *state;
    sl_trace *made;
    sl_trace_summary summary;
    sl_simulation *simulation;
    size_t count = 7;
    GIVES_TEXT("", sl_event_kind_text, ((sl_event_kind)-1));
    DOES_NOTHING(sl_pipeline_note_data, (NULL, 1));
    REFUSES(pipeline, sl_pipeline_trace, (NULL, &made));
    REFUSES(out, sl_pipeline_trace, (w->pipeline, NULL));
    DOES_NOTHING(sl_trace_destroy, (NULL));
    GIVES(0, sl_trace_ranks, (NULL));
    GIVES(NULL, sl_trace_events, (NULL, 0, &count));
    assert_int_equal(count, 0);
    DOES_NOTHING(sl_trace_events, (w->trace, 0, NULL));
    GIVES(NULL, sl_trace_plan, (NULL));
    GIVES(0, sl_trace_rank, (NULL, 0).sent);
    REFUSES(trace, sl_trace_summarize, (NULL, &summary));
    REFUSES(out, sl_trace_summarize, (w->trace, NULL));
    REFUSES(trace, sl_trace_simulate, (NULL, NULL, &simulation));
    REFUSES(out, sl_trace_simulate, (w->trace, NULL, NULL));
    REFUSES(trace, sl_trace_write_summary, (NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_trace_write_summary, (w->trace, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages), cmocka_unit_test(collectives),
        cmocka_unit_test(models),   cmocka_unit_test(batches_and_merges),
        cmocka_unit_test(programs), cmocka_unit_test(pipelines),
        cmocka_unit_test(traces),
    };
    return cmocka_run_group_tests(tests, test_world_set_up,
                                  test_world_tear_down);
}

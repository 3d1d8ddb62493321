/* SPDX-License-Identifier: MIT
 *
 * Functions called too early, on objects that do not belong together, and with
 * numbers out of range: each call is refused, or returns nothing. */
#include "world.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sl_status write_nowhere(void *context, const char *data, size_t length)
{
    (void)context;
    (void)data;
    (void)length;
    return SL_OK;
}

/* ------------------------------------------------------------- schedule -- */

static void a_schedule_has_no_other_ranks(void **state)
{
    test_world *w = *state;
    sl_action action = sl_action_make(SL_FORWARD, 0, 0);
    int count;
    for (int rank = -1; rank <= 1; rank += 2) {
        assert_int_equal(sl_schedule_length(w->schedule, rank), 0);
        assert_null(sl_schedule_row(w->schedule, rank));
        assert_fails(sl_schedule_append(w->schedule, rank, action), SL_EINVAL,
                     "no rank");
        assert_null(sl_placement_stages_of(w->placement, rank, &count));
        assert_true(sl_simulation_rank(w->simulation, rank).busy == 0);
        assert_true(sl_simulation_action(w->simulation, rank, 0).end == 0);
        assert_int_equal(sl_simulation_bytes(w->simulation, rank, 0).during, 0);
        assert_int_equal(sl_trace_rank(w->trace, rank).sent, 0);
    }
    assert_true(sl_simulation_action(w->simulation, 0, 8).end == 0);
    assert_true(sl_simulation_action(w->simulation, 0, SIZE_MAX).end == 0);
    assert_int_equal(sl_simulation_bytes(w->simulation, 0, 8).during, 0);
    assert_int_equal(sl_placement_rank_of(w->placement, -1), -1);
    assert_int_equal(sl_placement_rank_of(w->placement, 2), -1);
    assert_null(sl_report_deadlock(w->report, (sl_reading)SL_READINGS));
}

static void a_wait_elsewhere_has_no_text(void **state)
{
    test_world *w = *state;
    char text[SL_WAIT_TEXT_MAX];
    const sl_wait waits[] = {
        {-1, 0, 0, 0}, {1, 0, 0, 0}, {0, 8, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, -1}};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        sl_wait_print(w->schedule, &waits[i], text);
        assert_string_equal(text, "");
    }
}

static void a_simulation_goes_with_its_schedule(void **state)
{
    test_world *w = *state;
    static const char *const others[] = {"0F0,0B0\n", "0F0,0B0\n1F0,1B0\n"};
    for (int i = 0; i < 2; i++) {
        sl_timeline *timeline;
        sl_schedule *other = test_parse(others[i]);
        assert_fails(sl_simulation_write_json(w->simulation, other, 0, true,
                                              write_nowhere, NULL),
                     SL_EINVAL, "of another schedule");
        assert_fails(
            sl_view_write_trace(other, w->simulation, write_nowhere, NULL),
            SL_EINVAL, "of another schedule");
        assert_fails(
            sl_timeline_simulated("a", other, NULL, w->simulation, &timeline),
            SL_EINVAL, "of another schedule");
        sl_schedule_destroy(other);
    }
}

/* What a report says of an action is null where the schedule has none. */
static void a_report_survives_another_schedule(void **state)
{
    (void)state;
    sl_report *report;
    sl_schedule *stuck = test_parse("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n");
    sl_schedule *other = test_parse("0F0\n");
    assert_ok(sl_check(stuck, NULL, &report));
    assert_false(sl_report_is_sound(report));
    assert_ok(sl_report_write_json(report, other, write_nowhere, NULL));
    sl_report_destroy(report);
    sl_schedule_destroy(stuck);
    sl_schedule_destroy(other);
}

/* --------------------------------------------------------------- tensor -- */

static void scopes_are_left_after_they_were_entered(void **state)
{
    (void)state;
    static void (*const calls[])(sl_graph *) = {(sl_scope_leave),
                                                (sl_whole_leave)};
    for (int i = 0; i < 2; i++) {
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        calls[i](graph);
        assert_fails(sl_graph_status(graph), SL_EINVAL,
                     "left without having been entered");
        sl_graph_destroy(graph);
    }
}

static void a_stage_has_no_other_ports_and_programs(void **state)
{
    test_world *w = *state;
    sl_port port;
    sl_memory *memory;
    const sl_port_kind unknown = (sl_port_kind)(SL_PORT_BUFFER + 1);
    assert_fails(sl_stage_port_at(w->stage, SL_PORT_INPUT, -1, &port),
                 SL_EINVAL, "there is no port -1");
    assert_fails(sl_stage_port_at(w->stage, SL_PORT_INPUT, 2, &port), SL_EINVAL,
                 "there is no port 2");
    assert_fails(sl_stage_port(w->stage, unknown, "x", &port), SL_EINVAL,
                 "no kind of port");
    assert_int_equal(sl_stage_port_count(w->stage, unknown), 0);
    assert_true(sl_stage_flops(w->stage, (sl_program)SL_PROGRAM_COUNT) == 0);
    assert_true(sl_stage_flops(w->stage, (sl_program)-1) == 0);
    assert_int_equal(sl_plan_bytes(w->stage, -1), 0);
    for (int slots = -1; slots < 1; slots++)
        assert_fails(sl_memory_create(w->stage, slots, &memory), SL_EINVAL,
                     "slots, expected 1");
    assert_fails(sl_stage_run(w->stage, (sl_program)SL_PROGRAM_COUNT, w->memory,
                              0, NULL),
                 SL_EINVAL, "there is no program");
    assert_fails(sl_stage_run(w->stage, SL_PROGRAM_F, w->memory, 1, NULL),
                 SL_EINVAL, "slot 1");
    assert_fails(sl_stage_run(w->stage, SL_PROGRAM_B, w->memory, 0, NULL),
                 SL_EINVAL, "before its F");
    assert_fails(sl_stage_run(w->stage, SL_PROGRAM_W, w->memory, 0, NULL),
                 SL_EINVAL, "before its I");
}

/* A stage like the world's, whose tensors have other names and sizes. */
static void make_other(const char *input, const char *weight, int64_t width,
                       sl_stage **out)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, input, SL_F32, SL_SHAPE(2, width), SL_GRADIENT);
    sl_tensor *y = sl_linear(
        x, sl_parameter(graph, weight, SL_F32, SL_SHAPE(width, width)), NULL,
        SL_OUT_IN);
    sl_output(graph, "y", y, SL_GRADIENT);
    assert_ok(sl_stage_compile(graph, NULL, out));
    sl_graph_destroy(graph);
}

/* Tries all that takes a port with one that is of another stage. */
static void expect_foreign(sl_memory *memory, const sl_stage *other,
                           sl_port_kind kind, const char *name,
                           const char *sentence)
{
    sl_port port;
    assert_ok(sl_stage_port(other, kind, name, &port));
    size_t bytes = (size_t)port.bytes;
    void *data = calloc(1, bytes);
    assert_fails(sl_memory_read(memory, &port, 0, data, bytes), SL_EINVAL,
                 sentence);
    assert_fails(sl_memory_write(memory, &port, 0, data, bytes), SL_EINVAL,
                 sentence);
    free(data);
}

static void a_port_goes_with_its_stage(void **state)
{
    test_world *w = *state;
    static const char sentence[] = "is a port of another stage";
    const sl_port_kind gradient = SL_PORT_PARAMETER_GRADIENT;
    sl_stage *named, *wider;
    make_other("h", "v", TEST_WORLD_WIDTH, &named);
    make_other("x", "w", 16 * TEST_WORLD_WIDTH, &wider);
    expect_foreign(w->memory, named, SL_PORT_INPUT, "h", sentence);
    expect_foreign(w->memory, named, SL_PORT_PARAMETER, "v", sentence);
    expect_foreign(w->memory, named, gradient, "v", sentence);
    expect_foreign(w->memory, wider, SL_PORT_INPUT, "x", "bytes");
    expect_foreign(w->memory, wider, gradient, "w", "bytes");
    assert_fails(sl_stage_run(named, SL_PROGRAM_F, w->memory, 0, NULL),
                 SL_EINVAL, "of another stage");
    sl_stage_destroy(named);
    sl_stage_destroy(wider);
}

/* ----------------------------------------------------------------- comm -- */

static void a_request_is_posted_first(void **state)
{
    test_world *w = *state;
    sl_request request = {0};
    bool done;
    assert_fails(sl_comm_test(w->comm, &request, &done), SL_EINVAL,
                 "the request is not posted");
    assert_fails(sl_comm_wait(w->comm, &request, 100), SL_EINVAL,
                 "the request is not posted");
    sl_comm_cancel(w->comm, &request);
}

static void ranks_and_groups_are_there(void **state)
{
    test_world *w = *state;
    static const int ranks[2] = {0, 1};
    const sl_group none = {ranks, 0}, both = {ranks, 2}, less = {ranks, -1};
    sl_comm *ends[1];
    sl_request request;
    size_t first, length;
    char byte = 0;
    assert_fails(sl_threads_create(0, ends), SL_EINVAL, "0 ranks");
    assert_fails(sl_threads_create(-1, ends), SL_EINVAL, "-1 ranks");
    for (int peer = -1; peer < 2; peer++)
        assert_fails(sl_comm_send(w->comm, peer, 1, &byte, 1, &request),
                     SL_EINVAL, "rank 0: ");
    assert_fails(sl_comm_barrier(w->comm, &none, 1, 1), SL_EINVAL,
                 "not in the");
    assert_fails(sl_comm_barrier(w->comm, &less, 1, 1), SL_EINVAL,
                 "not in the");
    assert_fails(sl_comm_barrier(w->comm, &both, 1, 1), SL_EINVAL, "rank 1 of");
    for (int index = -1; index < 3; index += 3) {
        sl_group_part(&both, 8, index, &first, &length);
        assert_true(first == 0 && length == 0);
    }
    sl_group_part(&none, 8, 0, &first, &length);
    assert_true(first == 0 && length == 0);
}

/* --------------------------------------------------------------- models -- */

static void a_model_is_linked_first(void **state)
{
    test_world *w = *state;
    sl_model *model, *made;
    sl_stage *stage;
    sl_batch *batch;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    int count;
    assert_ok(sl_model_create(&model));
    assert_fails(sl_model_link(model), SL_EINVAL, "has no stage");
    assert_fails(sl_model_compile(model, 0, NULL, &stage), SL_EINVAL,
                 "not linked yet");
    assert_ok(sl_graph_create(&graph));
    sl_output(graph, "y",
              sl_input(graph, "x", SL_F32, SL_SHAPE(2), SL_NO_GRADIENT),
              SL_NO_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
    assert_null(sl_model_stage(model, 0));
    assert_null(sl_model_inputs(model, &count));
    assert_int_equal(count, 0);
    assert_fails(sl_model_compile(model, 0, NULL, &stage), SL_EINVAL,
                 "not linked yet");
    assert_fails(sl_batch_create(model, w->arguments, 2, 2, &batch), SL_EINVAL,
                 "the model has 0 inputs");
    assert_ok(sl_model_link(model));
    assert_fails(sl_model_add_graph(model, graph), SL_EINVAL, "stage 0");
    assert_fails(sl_model_compile(model, -1, NULL, &stage), SL_EINVAL,
                 "stage -1");
    assert_fails(sl_model_compile(model, 1, NULL, &stage), SL_EINVAL,
                 "stage 1");
    assert_null(sl_model_stage(model, -1));
    assert_null(sl_model_stage(model, 1));
    options.like = model;
    assert_fails(sl_model_cut(w->graph, &options, &made), SL_EINVAL,
                 "was not cut itself");
    sl_model_destroy(model);
}

static void cuts_and_programs_are_in_range(void **state)
{
    test_world *w = *state;
    sl_model *made;
    const sl_stage *stage;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.by = SL_CUT_BY_COST;
    for (int stages = -1; stages < 1; stages++) {
        options.stages = stages;
        assert_fails(sl_model_cut(w->graph, &options, &made), SL_EINVAL,
                     "stages");
    }
    options.cost_count = -1;
    assert_fails(sl_model_cut(w->graph, &options, &made), SL_EINVAL,
                 "-1 costs");
    assert_fails(sl_model_check_parameters(w->model, NULL, -1), SL_EINVAL,
                 "none of the model's");
    assert_fails(sl_programs_stage(w->programs, 1, -1, &stage), SL_EINVAL,
                 "stage -1");
    assert_fails(sl_programs_stage(w->programs, 1, 2, &stage), SL_EINVAL,
                 "stage 2");
    assert_fails(sl_programs_stage(w->programs, -1, 0, &stage), SL_EINVAL, "");
}

/* -------------------------------------------------------------- batches -- */

static void a_batch_has_no_other_parts(void **state)
{
    test_world *w = *state;
    sl_batch *batch;
    sl_array array;
    char bytes[64];
    static const int wrong[][2] = {{-1, 0}, {2, 0}, {0, -1}, {0, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int argument = wrong[i][0], microbatch = wrong[i][1];
        assert_fails(sl_batch_part(w->batch, argument, microbatch, &array),
                     SL_EINVAL, "expected 0 to 1");
        assert_fails(
            sl_batch_copy(w->batch, argument, microbatch, bytes, sizeof bytes),
            SL_EINVAL, "expected 0 to 1");
    }
    assert_int_equal(sl_batch_rows(w->batch, -1), 0);
    assert_int_equal(sl_batch_rows(w->batch, 2), 0);
    assert_fails(sl_batch_create(NULL, w->arguments, -1, 2, &batch), SL_EINVAL,
                 "-1 arguments");
    assert_fails(sl_batch_create(NULL, w->arguments, 2, -1, &batch), SL_EINVAL,
                 "-1 microbatches");
    assert_int_equal(sl_microbatch_rows(5, 2, 0), 3);
    assert_int_equal(sl_microbatch_rows(5, 2, -1), 0);
    assert_int_equal(sl_microbatch_rows(5, 2, 2), 0);
    assert_int_equal(sl_microbatch_rows(-5, 2, 0), 0);
}

static void a_merge_is_whole_when_all_was_put(void **state)
{
    test_world *w = *state;
    sl_array array;
    float row[TEST_WORLD_WIDTH] = {0};
    assert_fails(sl_merge_finish(w->merge, &array), SL_EINVAL, "microbatch");
    assert_fails(sl_merge_part(w->merge, 0, &array), SL_EINVAL,
                 "given nothing yet");
    assert_null(sl_merge_place(w->merge, -1));
    assert_null(sl_merge_place(w->merge, 2));
    assert_fails(sl_merge_put(w->merge, -1, row, sizeof row), SL_EINVAL,
                 "microbatch -1");
    assert_fails(sl_merge_part(w->merge, 2, &array), SL_EINVAL, "microbatch 2");
    assert_ok(sl_merge_put(w->merge, 0, row, sizeof row));
    assert_fails(sl_merge_put(w->merge, 0, row, sizeof row), SL_EINVAL,
                 "there already");
    assert_fails(sl_merge_finish(w->merge, &array), SL_EINVAL, "microbatch");
    sl_merge_restart(w->merge);
}

/* ------------------------------------------------------------- pipeline -- */

static void a_pipeline_is_prepared_first(void **state)
{
    test_world *w = *state;
    static const char unprepared[] =
        "stage 0 is on this rank, but sl_pipeline_prepare has not been called";
    sl_comm *comm;
    const sl_stage *stage;
    sl_memory *memory;
    sl_array array;
    sl_trace *trace;
    sl_optimizer *optimizer;
    sl_rank_bytes bytes;
    double loss;
    int count;
    const sl_optimizer_options options = SL_OPTIMIZER_OPTIONS_INIT;
    assert_ok(sl_threads_create(1, &comm));
    sl_pipeline *new = test_world_pipeline(w, comm, w->schedule);
    assert_null(sl_pipeline_model(new));
    assert_null(sl_pipeline_losses(new, &count));
    assert_int_equal(count, 0);
    assert_true(sl_pipeline_busy(new) == 0);
    sl_pipeline_bytes(new, &bytes);
    assert_int_equal(bytes.planned, 0);
    assert_fails(sl_pipeline_loss(new, &loss), SL_EINVAL, "no losses");
    assert_fails(sl_pipeline_output(new, "output", &array), SL_ENOTFOUND,
                 "has kept no output 'output'");
    assert_fails(sl_pipeline_output_part(new, "output", 0, &array),
                 SL_ENOTFOUND, "has kept no output 'output'");
    assert_fails(sl_pipeline_plan(new, -1, &bytes), SL_EINVAL, "-1 rows");
    assert_ok(sl_pipeline_plan(new, TEST_WORLD_ROWS, &bytes));
    assert_true(bytes.planned > 0);
    assert_null(sl_pipeline_model(new));
    assert_fails(sl_pipeline_trace(new, &trace), SL_EINVAL, "was no step");
    assert_fails(sl_pipeline_stage(new, 0, &stage, &memory), SL_EINVAL,
                 unprepared);
    assert_fails(sl_optimizer_create(new, &options, &optimizer), SL_EINVAL,
                 unprepared);
    assert_fails(sl_pipeline_init_parameters(new, sl_mlp_init, NULL, 1),
                 SL_EINVAL, unprepared);
    assert_fails(sl_weights_load(w->weights, new), SL_EINVAL, unprepared);
    assert_ok(sl_pipeline_descend(new, 0.1));
    assert_ok(sl_pipeline_unshard(new));
    assert_ok(sl_pipeline_reshard(new));
    sl_pipeline_zero_gradients(new);
    assert_ok(sl_pipeline_prepare(new, TEST_WORLD_ROWS));
    assert_ok(sl_pipeline_stage(new, 0, &stage, &memory));
    assert_fails(sl_pipeline_loss(new, &loss), SL_EINVAL, "no losses");
    sl_pipeline_destroy(new);
    sl_comm_destroy(comm);
}

static void a_stage_elsewhere_is_named_with_its_rank(void **state)
{
    test_world *w = *state;
    sl_comm *ends[2];
    const sl_stage *stage;
    sl_memory *memory;
    sl_schedule *schedule = test_parse("0F0,0B0\n1F0,1B0\n");
    assert_ok(sl_threads_create(2, ends));
    sl_pipeline *first = test_world_pipeline(w, ends[0], schedule);
    for (int prepared = 0; prepared < 2; prepared++) {
        assert_fails(sl_pipeline_stage(first, 1, &stage, &memory), SL_ENOTFOUND,
                     "stage 1 is on rank 1, not on rank 0");
        assert_fails(sl_pipeline_stage(first, 2, &stage, &memory), SL_ENOTFOUND,
                     "stage 2, expected 0 to 1");
        assert_fails(sl_pipeline_stage(first, -1, &stage, &memory),
                     SL_ENOTFOUND, "stage -1, expected 0 to 1");
        assert_ok(sl_pipeline_prepare(first, TEST_WORLD_ROWS));
    }
    sl_pipeline_destroy(first);
    sl_schedule_destroy(schedule);
    sl_comm_destroy(ends[0]);
    sl_comm_destroy(ends[1]);
}

/* Each ends its pipeline. */
static void negative_counts_end_a_pipeline(void **state)
{
    test_world *w = *state;
    for (int i = 0; i < 3; i++) {
        sl_comm *comm;
        assert_ok(sl_threads_create(1, &comm));
        sl_pipeline *new = test_world_pipeline(w, comm, w->schedule);
        assert_fails(i == 0   ? sl_pipeline_prepare(new, -1)
                     : i == 1 ? sl_pipeline_step(new, w->arguments, -1, 0)
                              : sl_pipeline_eval(new, NULL, 0),
                     SL_EINVAL,
                     i == 0   ? "-1 rows"
                     : i == 1 ? "-1 arguments"
                              : "");
        sl_pipeline_destroy(new);
        sl_comm_destroy(comm);
    }
}

static void a_trace_has_no_other_ranks(void **state)
{
    test_world *w = *state;
    size_t count;
    for (int rank = -1; rank < 2; rank += 2) {
        assert_null(sl_trace_events(w->trace, rank, &count));
        assert_int_equal(count, 0);
    }
    assert_string_equal(sl_event_kind_text((sl_event_kind)SL_EVENT_KINDS), "");
}

/* ---------------------------------------------------------------- train -- */

static void rates_are_of_steps_from_1(void **state)
{
    const sl_rate rate = {.kind = SL_RATE_LINEAR, .rate = 1, .steps = 10};
    (void)state;
    assert_true(sl_rate_at(&rate, 0) == 0);
    assert_true(sl_rate_at(&rate, -1) == 0);
}

static void tokens_are_read_where_there_are_some(void **state)
{
    test_world *w = *state;
    int64_t ids[4], labels[4], count = sl_tokens_count(w->tokens);
    sl_windows long_ones = w->windows;
    assert_fails(sl_tokens_read(w->tokens, -1, 1, ids), SL_EINVAL,
                 "from place -1");
    assert_fails(sl_tokens_read(w->tokens, 0, -1, ids), SL_EINVAL, "there are");
    assert_fails(sl_tokens_read(w->tokens, count, 1, ids), SL_EINVAL,
                 "there are");
    assert_fails(sl_tokens_read(w->tokens, 1, INT64_MAX, ids), SL_EINVAL,
                 "there are");
    assert_fails(sl_windows_read(&w->windows, -1, 1, ids, labels), SL_EINVAL,
                 "no window -1");
    assert_fails(sl_windows_read(&w->windows, 0, -1, ids, labels), SL_EINVAL,
                 "no window");
    long_ones.length = INT64_MAX;
    assert_int_equal(sl_windows_count(&long_ones), 0);
    long_ones.length = -1;
    assert_int_equal(sl_windows_count(&long_ones), 0);
}

static void hear_token(void *context, int sample, int64_t token)
{
    (void)context;
    (void)sample;
    (void)token;
}

static void hear_layout(void *context, const sl_train_layout *layout)
{
    (void)context;
    (void)layout;
}

static void training_needs_its_parts(void **state)
{
    test_world *w = *state;
    static const int64_t prompt[1] = {0};
    const sl_train_options nothing = {.batch = 2};
    const sl_inference_options unscheduled = {.config = SL_GPT2_CONFIG_INIT,
                                              .timeout_s = 1};
    const sl_sampling negative = {
        .prompt = prompt, .prompt_count = 1, .tokens = -1, .emit = hear_token};
    double loss;
    sl_comm *comm;
    assert_ok(sl_threads_create(1, &comm));
    assert_fails(sl_evaluate(comm, &unscheduled, &w->windows, 0, &loss, NULL),
                 SL_EINVAL, "needs a schedule");
    assert_fails(sl_generate_tokens(comm, &unscheduled, &negative), SL_EINVAL,
                 "a prompt");
    assert_fails(sl_train(comm, &nothing), SL_EINVAL, "needs a schedule");
    sl_comm_destroy(comm);
    assert_ok(sl_threads_create(1, &comm));
    assert_fails(sl_train_dry_run(comm, &nothing, hear_layout), SL_EINVAL,
                 "needs a schedule");
    sl_comm_destroy(comm);
    assert_fails(sl_weights_load(w->weights, w->pipeline), SL_ENOTFOUND,
                 "the weights have no");
}

static void checkpoints_are_there(void **state)
{
    test_world *w = *state;
    sl_progress progress;
    char *found;
    assert_fails(sl_checkpoint_check(w->folder, &progress), SL_EPARSE,
                 "training.json");
    assert_fails(sl_checkpoint_find(w->folder, NULL, NULL, &found),
                 SL_ENOTFOUND, "no sound checkpoint");
    assert_fails(sl_checkpoint_read(w->folder, w->pipeline, NULL), SL_EPARSE,
                 "training.json");
    assert_ok(sl_checkpoint_prune(w->folder, INT_MIN));
}

/* ----------------------------------------------------------------- view -- */

static void timelines_are_what_they_are_taken_for(void **state)
{
    test_world *w = *state;
    const sl_timeline *many[SL_VIEW_MAX_TIMELINES + 1];
    sl_timeline *planned;
    sl_costs costs;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i] = w->timeline;
    for (size_t count = 0; count <= SL_VIEW_MAX_TIMELINES + 1;
         count += SL_VIEW_MAX_TIMELINES + 1) {
        assert_fails(sl_view_write_html(many, count, write_nowhere, NULL),
                     SL_EINVAL, "timelines");
        assert_fails(sl_view_write_svg(many, count, NULL, write_nowhere, NULL),
                     SL_EINVAL, "timelines");
    }
    assert_fails(sl_timeline_costs(w->timeline, -1, &costs), SL_EINVAL,
                 "the schedule -1");
    /* A simulation has the same blocks as a run. */
    assert_ok(sl_timeline_costs(w->timeline, 2, &costs));
    sl_costs_clear(&costs);
    assert_ok(sl_timeline_planned("a plan", w->timeline, &planned));
    sl_timeline_destroy(planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schedule_has_no_other_ranks),
        cmocka_unit_test(a_wait_elsewhere_has_no_text),
        cmocka_unit_test(a_simulation_goes_with_its_schedule),
        cmocka_unit_test(a_report_survives_another_schedule),
        cmocka_unit_test(scopes_are_left_after_they_were_entered),
        cmocka_unit_test(a_stage_has_no_other_ports_and_programs),
        cmocka_unit_test(a_port_goes_with_its_stage),
        cmocka_unit_test(a_request_is_posted_first),
        cmocka_unit_test(ranks_and_groups_are_there),
        cmocka_unit_test(a_model_is_linked_first),
        cmocka_unit_test(cuts_and_programs_are_in_range),
        cmocka_unit_test(a_batch_has_no_other_parts),
        cmocka_unit_test(a_merge_is_whole_when_all_was_put),
        cmocka_unit_test(a_pipeline_is_prepared_first),
        cmocka_unit_test(a_stage_elsewhere_is_named_with_its_rank),
        cmocka_unit_test(negative_counts_end_a_pipeline),
        cmocka_unit_test(a_trace_has_no_other_ranks),
        cmocka_unit_test(rates_are_of_steps_from_1),
        cmocka_unit_test(tokens_are_read_where_there_are_some),
        cmocka_unit_test(training_needs_its_parts),
        cmocka_unit_test(checkpoints_are_there),
        cmocka_unit_test(timelines_are_what_they_are_taken_for),
    };
    return cmocka_run_group_tests(tests, test_world_set_up,
                                  test_world_tear_down);
}

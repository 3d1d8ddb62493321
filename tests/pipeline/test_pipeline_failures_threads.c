/* SPDX-License-Identifier: MIT
 *
 * Pipelines that fail: every rank ends, with the first cause, and nothing is
 * left behind. */
#include "faults.h"
#include "pipeline/run/runtime.h"
#include "tensor/work_stealing.h"

#include "comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void every_rank_hears_of_a_failing_callback(void **state)
{
    (void)state;
    static const char *const names[] = {"GPipe", "InterleavedZeroBubble",
                                        "ZBVZeroBubble"};
    for (size_t k = 0; k < 3; k++) {
        const sl_sizes sizes = {k ? 2 : 4, k ? 2 : 1, MICROBATCHES};
        const char *programs = k ? "FIW" : "FB";
        sl_schedule *schedule;
        assert_ok(sl_generate(names[k], &sizes, &schedule));
        for (int s = 0; s < STAGES; s++) {
            for (const char *program = programs; *program; program++) {
                fault asked = {
                    .stage = s, .program = *program, .microbatch = 1};
                job own = {.asked = &asked,
                           .schedule = schedule,
                           .timeout_s = 20,
                           .wrong_rank = -1,
                           .absent_rank = -1};
                char expected[64], said[64];
                snprintf(expected, sizeof expected, "%c of stage %d,", *program,
                         s);
                snprintf(said, sizeof said, "%c said no", *program);
                double start = seconds_now();
                sl_status status =
                    sl_threads_run(sizes.ranks, run_faulty_rank, &own);
                if (!status || !strstr(sl_error_text(), expected) ||
                    !strstr(sl_error_text(), said))
                    fail_msg("%s: '%s', expected '%s ... %s'", names[k],
                             status ? sl_error_text() : "done", expected, said);
                assert_true(seconds_now() - start < 10);
                for (int r = 0; r < sizes.ranks; r++) {
                    assert_int_equal(own.ranks[r].status, SL_EPARSE);
                    assert_non_null(strstr(own.ranks[r].sentence, expected));
                }
            }
        }
        sl_schedule_destroy(schedule);
    }
}

static void nothing_fails_where_nothing_is_wrong(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    fault asked = {.stage = -1};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    job own = {.asked = &asked,
               .schedule = schedule,
               .timeout_s = 20,
               .wrong_rank = -1,
               .absent_rank = -1};
    assert_ok(sl_threads_run(4, run_faulty_rank, &own));
    sl_schedule_destroy(schedule);
}

/* A rank that hangs, or never comes: the others say who they waited for. */
static void waiting_ends_with_who_was_waited_for(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    for (int way = 0; way < 2; way++) {
        fault asked = {.stage = way ? 2 : -1,
                       .program = 'F',
                       .microbatch = 1,
                       .hangs = true};
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 1,
                   .wrong_rank = -1,
                   .absent_rank = way ? -1 : 1};
        sl_status status = sl_threads_run(4, run_faulty_rank, &own);
        assert_int_equal(status, SL_ETIME);
        /* Somebody says for whom it waited, and what everybody was doing. */
        const char *const expected[] = {
            way ? "waited 1 s for a message between it and stage"
                : "waited 1 s for all ranks to begin the step",
            way ? "\n  rank 0 step 1: waits at "
                : "\n  rank 0 step 1: waits for all ranks to begin",
            way ? "\n  rank 1 step 1: waits at "
                : "\n  rank 1 is not in a step, after 0",
            way ? "\n  rank 2 step 1: runs 2F1 for "
                : "\n  rank 2 step 1: waits for all ranks to begin",
            way ? "\n  rank 3 step 1: waits at 3RECV_F"
                : "\n  rank 3 step 1: waits for all ranks to begin"};
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
            if (!strstr(sl_error_text(), expected[i]))
                fail_msg("'%s' is not in: %s", expected[i], sl_error_text());
        }
    }
    sl_schedule_destroy(schedule);
}

/* Ranks with batches of their own: found before a message is waited for. */
static sl_status step_with_own_rows(sl_comm *comm, void *context)
{
    static float x[16 * 4];
    const sl_array array = {
        SL_F32, 2, {sl_comm_rank(comm) == 2 ? 12 : 16, 4}, x};
    const sl_argument batch[] = {{"x", SL_SPREAD_SPLIT, 0, &array, 1},
                                 {"target", SL_SPREAD_SPLIT, 0, &array, 1}};
    sl_mlp_model_spec spec = {{4, 4}, SL_CUT_OPTIONS_INIT, SL_F32};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    const bool *evals = context;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    sl_schedule *schedule = NULL;
    sl_status status = sl_generate("1F1B", &sizes, &schedule);
    spec.cut.by = SL_CUT_BY_COST;
    spec.cut.stages = 4;
    options.schedule = schedule;
    options.timeout_s = 20;
    if (!status)
        status =
            sl_pipeline_create(comm, sl_mlp_model, &spec, &options, &pipeline);
    if (!status)
        status = *evals && sl_comm_rank(comm) == 2
                     ? sl_pipeline_eval(pipeline, batch, 2)
                     : sl_pipeline_step(pipeline, batch, 2, 1);
    sl_pipeline_destroy(pipeline);
    sl_schedule_destroy(schedule);
    return status;
}

static void batches_that_differ_are_told_before_a_step(void **state)
{
    (void)state;
    bool evals = false;
    assert_fails(sl_threads_run(4, step_with_own_rows, &evals), SL_EINVAL,
                 "the rows of the batch is '4 + 4 + 4 + 4' on rank 0 and "
                 "'3 + 3 + 3 + 3' on rank 2");
    evals = true;
    assert_fails(sl_threads_run(4, step_with_own_rows, &evals), SL_EINVAL,
                 "what the batch is for is 'a step' on rank 0 and 'an eval' on "
                 "rank 2");
}

/* Also where all work is done, and the end of the step does not come. */
static void the_end_of_a_step_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    fault asked = {.stage = 0,
                   .program = 'B',
                   .microbatch = MICROBATCHES - 1,
                   .hangs = true};
    job own = {.asked = &asked,
               .schedule = schedule,
               .timeout_s = 0.5,
               .wrong_rank = -1,
               .absent_rank = -1};
    assert_int_equal(sl_threads_run(4, run_faulty_rank, &own), SL_ETIME);
    static const char *const expected[] = {
        "waited 0.5 s for the end of the step",
        "\n  rank 0 step 1: runs 0B3 for",
        "\n  rank 2 step 1: has done its part, and waits for the others"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (!strstr(sl_error_text(), expected[i]))
            fail_msg("'%s' is not in: %s", expected[i], sl_error_text());
    }
    sl_schedule_destroy(schedule);
}

/* Wrong shapes on one rank end the step on all, before anybody waits long. */
static void a_wrong_shape_ends_the_step_everywhere(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    fault asked = {.stage = -1};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    for (int rank = 0; rank < 4; rank++) {
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 20,
                   .wrong_rank = rank,
                   .absent_rank = -1};
        assert_fails(sl_threads_run(4, run_faulty_rank, &own), SL_EINVAL,
                     "stage 0: input 'x' is f32 (4, 3), expected f32 (4, 2)");
    }
    sl_schedule_destroy(schedule);
}

static void what_cannot_run_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n",
        "0B0,0F0\n1F0,1B0\n2F0,2B0\n3F0,3B0\n", "0F0,0B0\n1F0,1B0\n",
        "0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,4F0,4B0,3B0\n"};
    static const char *const expected[] = {
        "", "the schedule is not sound", "the schedule has 2 ranks",
        "the model has 4 stages, and the schedule 5"};
    for (int i = 0; i < 4; i++) {
        fault asked = {.stage = -1};
        sl_schedule *schedule = test_parse(rows[i]);
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 20,
                   .wrong_rank = -1,
                   .absent_rank = -1};
        sl_status status = sl_threads_run(4, run_faulty_rank, &own);
        if (i == 0 ? status != SL_EINVAL
                   : !strstr(sl_error_text(), expected[i]))
            fail_msg("%d: %s", i, sl_error_text());
        sl_schedule_destroy(schedule);
    }
}

/* A model that cannot be built on one rank ends the pipeline on all. */
static sl_status build_unless(void *context, int64_t rows, const sl_model *like,
                              sl_model **out)
{
    static _Thread_local fault none = {.stage = -1};
    if (*(const bool *)context)
        return sl_fail(SL_EIO, "no model today");
    return build_faulty(&none, rows, like, out);
}

static sl_status prepare_rank(sl_comm *comm, void *context)
{
    const job *own = context;
    static const float data[MICROBATCHES * 2];
    const sl_array array = {SL_F32, 2, {MICROBATCHES, 2}, data};
    const sl_argument argument = {"x", SL_SPREAD_SPLIT, 0, &array, 1};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    bool fails = sl_comm_rank(comm) == own->wrong_rank;
    options.schedule = own->schedule;
    options.timeout_s = own->timeout_s;
    options.work_stealing = SL_STEAL_ALWAYS;
    sl_status status =
        sl_pipeline_create(comm, build_unless, &fails, &options, &pipeline);
    if (!status)
        status = sl_pipeline_prepare(pipeline, MICROBATCHES);
    if (!status)
        status = sl_pipeline_step(pipeline, &argument, 1, 0);
    sl_pipeline_destroy(pipeline);
    return status;
}

static void a_model_that_fails_on_one_rank_fails_on_all(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    job own = {.schedule = schedule, .timeout_s = 20, .wrong_rank = 2};
    double start = seconds_now();
    assert_fails(sl_threads_run(4, prepare_rank, &own), SL_EIO,
                 "rank 2: no model today");
    assert_true(seconds_now() - start < 10);
    sl_schedule_destroy(schedule);
}

/* A sentence that leaves no room for the report of who waits for whom. */
static sl_status build_too_late(void *context, int64_t rows,
                                const sl_model *like, sl_model **out)
{
    char text[9000];
    (void)context;
    (void)rows;
    (void)like;
    (void)out;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    return sl_fail(SL_ETIME, "%s", text);
}

static sl_status prepare_too_late(sl_comm *comm, void *context)
{
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline;
    options.schedule = context;
    sl_status status =
        sl_pipeline_create(comm, build_too_late, NULL, &options, &pipeline);
    if (status)
        return status;
    status = sl_pipeline_prepare(pipeline, MICROBATCHES);
    sl_pipeline_destroy(pipeline);
    return status;
}

static void a_long_sentence_leaves_no_room_for_a_report(void **state)
{
    (void)state;
    const sl_sizes sizes = {1, 1, MICROBATCHES};
    sl_schedule *schedule;
    assert_ok(sl_generate("GPipe", &sizes, &schedule));
    assert_fails(sl_threads_run(1, prepare_too_late, schedule), SL_ETIME,
                 "rank 0: xxxx");
    sl_schedule_destroy(schedule);
}

/* ------------------------------------------------- kinds without a program */

static sl_status refuse_here(void *context, const sl_action_call *calls,
                             int count)
{
    const int *rank = context;
    /* Of stages, not ranks, the function is told; two calls are an overlap,
     * whose stages go there and back. */
    int stage = calls[0].action.stage;
    int own = count == 1 ? stage % 2 : stage < 2 ? stage : 3 - stage;
    if (own != *rank) {
        for (int i = 0; i < count && calls[i].slot >= 0; i++) {
            sl_status status = sl_action_call_run(&calls[i]);
            if (status)
                return status;
        }
        return SL_OK;
    }
    return sl_fail(SL_EPARSE, "not on rank %d", *rank);
}

/* UNSHARD, RESHARD, REDUCE_GRAD and overlaps that fail, on each rank. */
static void every_other_kind_of_action_may_fail(void **state)
{
    (void)state;
    static const sl_action_kind kinds[] = {SL_UNSHARD, SL_RESHARD,
                                           SL_REDUCE_GRAD, SL_OVERLAP_F_B};
    static const char *const names[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD",
                                        "F"};
    for (size_t k = 0; k < 4; k++) {
        const sl_sizes sizes = {2, 2, MICROBATCHES};
        sl_schedule *order, *lowered;
        bool overlaps = kinds[k] == SL_OVERLAP_F_B;
        assert_ok(sl_generate(overlaps ? "DualPipeV" : "Interleaved1F1B",
                              &sizes, &order));
        assert_ok(sl_lower(order, SL_LOWER_DEFAULT_PASSES, NULL, &lowered));
        for (int rank = 0; rank < 2; rank++) {
            const sl_action_function function = {kinds[k], refuse_here, &rank};
            fault asked = {.stage = -1};
            char expected[64];
            job own = {.asked = &asked,
                       .schedule = lowered,
                       .timeout_s = 20,
                       .wrong_rank = -1,
                       .absent_rank = -1,
                       .functions = &function,
                       .function_count = 1};
            assert_int_equal(sl_threads_run(2, run_faulty_rank, &own),
                             SL_EPARSE);
            for (int r = 0; r < 2; r++) {
                snprintf(expected, sizeof expected, "rank %d: %s of stage",
                         rank, names[k]);
                if (strncmp(own.ranks[r].sentence, expected, strlen(expected)))
                    fail_msg("'%s', expected '%s ...'", own.ranks[r].sentence,
                             expected);
                snprintf(expected, sizeof expected, "not on rank %d", rank);
                assert_non_null(strstr(own.ranks[r].sentence, expected));
            }
        }
        sl_schedule_destroy(order);
        sl_schedule_destroy(lowered);
    }
}

static sl__transport broken;
static int broken_rank;
static sl__transport sound;

static sl_status broken_send(sl_comm *comm, sl__stream *stream, int peer,
                             int tag, const void *data, size_t bytes,
                             sl_request *request)
{
    /* It is cut once the ranks have begun. */
    if (tag == SL__TAG_END)
        return sound.send(comm, stream, peer, tag, data, bytes, request);
    return sl_fail(SL_EIO, "the wire is cut");
}

static sl_status broken_recv(sl_comm *comm, sl__stream *stream, int peer,
                             int tag, void *buffer, size_t bytes,
                             sl_request *request)
{
    if (tag == SL__TAG_END)
        return sound.recv(comm, stream, peer, tag, buffer, bytes, request);
    return sl_fail(SL_EIO, "the wire is cut");
}

static void cut_wire(sl_comm *comm)
{
    if (sl_comm_rank(comm) == broken_rank)
        comm->transport = &broken;
}

/* Sends and receives that fail, on each rank. */
static void a_cut_wire_ends_the_step_everywhere(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    sl_schedule *schedule;
    sl_comm *end;
    assert_ok(sl_threads_create(1, &end));
    sound = *end->transport;
    sl_comm_destroy(end);
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    for (int way = 0; way < 8; way++) {
        broken = sound;
        broken_rank = way % 4;
        if (way < 4)
            broken.send = broken_send;
        else
            broken.recv = broken_recv;
        fault asked = {.stage = -1};
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 20,
                   .wrong_rank = -1,
                   .absent_rank = -1,
                   .tamper = cut_wire};
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d: %s ", broken_rank,
                 way < 4 ? "send after" : "receive for");
        assert_int_equal(sl_threads_run(4, run_faulty_rank, &own), SL_EIO);
        for (int r = 0; r < 4; r++) {
            if (strncmp(own.ranks[r].sentence, expected, strlen(expected)) ||
                !strstr(own.ranks[r].sentence, "the wire is cut"))
                fail_msg("'%s', expected '%s ...'", own.ranks[r].sentence,
                         expected);
        }
    }
    sl_schedule_destroy(schedule);
}

/* Functions that make no sense are refused before anything runs. */
static void odd_functions_are_refused(void **state)
{
    (void)state;
    static const int rank = 0;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    const struct {
        sl_action_function functions[2];
        int count;
        const char *expected;
    } cases[] = {
        {{{SL_SEND_F, refuse_here, (void *)&rank}}, 1, "not SEND_F"},
        {{{SL_IDLE, refuse_here, (void *)&rank}}, 1, "a function is for"},
        {{{SL_FORWARD, NULL, NULL}}, 1, "a function is for"},
        {{{SL_FORWARD, refuse_here, (void *)&rank},
          {SL_FORWARD, refuse_here, (void *)&rank}},
         2,
         "two functions for F"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fault asked = {.stage = -1};
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 20,
                   .wrong_rank = -1,
                   .absent_rank = -1,
                   .functions = cases[i].functions,
                   .function_count = cases[i].count};
        assert_int_equal(sl_threads_run(4, run_faulty_rank, &own), SL_EINVAL);
        assert_non_null(strstr(sl_error_text(), cases[i].expected));
    }
    sl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_fails_on_one_rank_fails_on_all),
        cmocka_unit_test(a_long_sentence_leaves_no_room_for_a_report),
        cmocka_unit_test(nothing_fails_where_nothing_is_wrong),
        cmocka_unit_test(every_rank_hears_of_a_failing_callback),
        cmocka_unit_test(waiting_ends_with_who_was_waited_for),
        cmocka_unit_test(batches_that_differ_are_told_before_a_step),
        cmocka_unit_test(the_end_of_a_step_is_not_waited_for_for_ever),
        cmocka_unit_test(a_wrong_shape_ends_the_step_everywhere),
        cmocka_unit_test(what_cannot_run_is_refused),
        cmocka_unit_test(every_other_kind_of_action_may_fail),
        cmocka_unit_test(a_cut_wire_ends_the_step_everywhere),
        cmocka_unit_test(odd_functions_are_refused),
    };
    sl__steal_smallest(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

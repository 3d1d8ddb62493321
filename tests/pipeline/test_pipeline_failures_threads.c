/* SPDX-License-Identifier: MIT
 *
 * Pipelines that fail: every rank ends, with the first cause, and nothing is
 * left behind. */
#include "tensors.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STAGES = 4, MICROBATCHES = 4 };

/* Stages of callbacks that count, and fail or hang where they are told to. */
typedef struct plan {
    int stage;    /* -1: none */
    char program; /* F, B, I, W */
    int microbatch;
    bool hangs;
    bool split; /* the schedule has I and W */
} plan;

typedef struct callback_stage {
    const plan *asked;
    int stage;
    int calls[4];
} callback_stage;

static _Thread_local callback_stage own_stages[STAGES];

static sl_status act(callback_stage *own, char program, int at)
{
    const plan *p = own->asked;
    int call = own->calls[at]++;
    if (p->stage != own->stage || p->program != program ||
        p->microbatch != call)
        return SL_OK;
    if (p->hangs) {
        /* Longer than anybody waits, but not for ever. */
        sleep(3);
        return SL_OK;
    }
    return sl_fail(SL_EPARSE, "%c said no", program);
}

static sl_status forward(void *context, const sl_call *call)
{
    callback_stage *own = context;
    const float *x = call->inputs[0];
    float *y = call->outputs[0];
    y[0] = x[0] + (own->stage == STAGES - 1 ? 0 : x[1]);
    if (own->stage < STAGES - 1)
        y[1] = x[1] * 2;
    return act(own, 'F', 0);
}

static sl_status backward_input(void *context, const sl_call *call)
{
    float *dx = call->input_gradients[0];
    if (dx)
        dx[0] = dx[1] = 1;
    return act(context, 'I', 1);
}

static sl_status backward_weight(void *context, const sl_call *call)
{
    (void)call;
    return act(context, 'W', 2);
}

static sl_status backward(void *context, const sl_call *call)
{
    float *dx = call->input_gradients[0];
    if (dx)
        dx[0] = dx[1] = 1;
    return act(context, 'B', 3);
}

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    sl_model *model;
    sl_status status = sl_model_create(&model);
    (void)like;
    (void)rows;
    for (int s = 0; s < STAGES && !status; s++) {
        const sl_value in = {
            s ? "h" : "x", SL_F32, 2, {1, 2}, s ? SL_GRADIENT : SL_NO_GRADIENT};
        const sl_value hidden = {"h", SL_F32, 2, {1, 2}, SL_GRADIENT};
        const sl_value loss = {"loss", SL_F32, 0, {0}, SL_NO_GRADIENT};
        own_stages[s] = (callback_stage){context, s, {0}};
        const sl_stage_description mine = {
            .inputs = &in,
            .input_count = 1,
            .outputs = s == STAGES - 1 ? &loss : &hidden,
            .output_count = 1,
            .callbacks = {.forward = forward,
                          .backward = backward,
                          .backward_input = backward_input,
                          .backward_weight = backward_weight},
            .context = &own_stages[s]};
        status = sl_model_add_callbacks(model, &mine);
    }
    if (!status)
        status = sl_model_link(model);
    if (status)
        sl_model_destroy(model);
    else
        *out = model;
    return status;
}

/* What each rank found. */
typedef struct found {
    sl_status status;
    char sentence[1024];
} found;

typedef struct job {
    const plan *asked;
    const sl_schedule *schedule;
    double timeout_s;
    int wrong_rank;  /* gives another shape; -1: none */
    int absent_rank; /* never steps */
    found ranks[STAGES];
} job;

static sl_status run_rank(sl_comm *comm, void *context)
{
    job *own = context;
    int rank = sl_comm_rank(comm);
    static const float data[MICROBATCHES * 3];
    int64_t wide = rank == own->wrong_rank ? 3 : 2;
    const sl_array array = {SL_F32, 2, {MICROBATCHES, wide}, data};
    const sl_argument argument = {"x", SL_SPREAD_SPLIT, 0, &array, 1};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    options.schedule = own->schedule;
    options.timeout_s = own->timeout_s;
    sl_status status = sl_pipeline_create(comm, build, (void *)own->asked,
                                          &options, &pipeline);
    if (!status && rank == own->absent_rank)
        usleep(600000);
    else if (!status)
        status = sl_pipeline_step(pipeline, &argument, 1, 0);
    own->ranks[rank].status = status;
    snprintf(own->ranks[rank].sentence, sizeof own->ranks[rank].sentence, "%s",
             status ? sl_error_text() : "");
    sl_pipeline_destroy(pipeline);
    return status;
}

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
                plan asked = {s, *program, 1, false, k > 0};
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
                sl_status status = sl_threads_run(sizes.ranks, run_rank, &own);
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
    plan asked = {-1, 'F', 0, false, false};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    job own = {.asked = &asked,
               .schedule = schedule,
               .timeout_s = 20,
               .wrong_rank = -1,
               .absent_rank = -1};
    assert_ok(sl_threads_run(4, run_rank, &own));
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
        plan asked = {way ? 2 : -1, 'F', 1, true, false};
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 0.3,
                   .wrong_rank = -1,
                   .absent_rank = way ? -1 : 1};
        sl_status status = sl_threads_run(4, run_rank, &own);
        assert_int_equal(status, SL_ETIME);
        if (!strstr(sl_error_text(), "waited 0.3 s for a message between it "
                                     "and stage"))
            fail_msg("%s", sl_error_text());
    }
    sl_schedule_destroy(schedule);
}

/* Wrong shapes on one rank end the step on all, before anybody waits long. */
static void a_wrong_shape_ends_the_step_everywhere(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, MICROBATCHES};
    plan asked = {-1, 'F', 0, false, false};
    sl_schedule *schedule;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    for (int rank = 0; rank < 4; rank++) {
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 20,
                   .wrong_rank = rank,
                   .absent_rank = -1};
        assert_fails(sl_threads_run(4, run_rank, &own), SL_EINVAL,
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
        plan asked = {-1, 'F', 0, false, false};
        sl_schedule *schedule = test_parse(rows[i]);
        job own = {.asked = &asked,
                   .schedule = schedule,
                   .timeout_s = 20,
                   .wrong_rank = -1,
                   .absent_rank = -1};
        sl_status status = sl_threads_run(4, run_rank, &own);
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
    static _Thread_local plan none = {-1, 'F', 0, false, false};
    if (*(const bool *)context)
        return sl_fail(SL_EIO, "no model today");
    return build(&none, rows, like, out);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_fails_on_one_rank_fails_on_all),
        cmocka_unit_test(nothing_fails_where_nothing_is_wrong),
        cmocka_unit_test(every_rank_hears_of_a_failing_callback),
        cmocka_unit_test(waiting_ends_with_who_was_waited_for),
        cmocka_unit_test(a_wrong_shape_ends_the_step_everywhere),
        cmocka_unit_test(what_cannot_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The reported memory of a process, compared with what the system reports. */
#include "pipeline/run/runtime.h"
#include "sluice/train.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes that the process has in memory. */
static int64_t resident(void)
{
    long all = 0, here = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &here) != 2)
        here = 0;
    if (file)
        fclose(file);
    return (int64_t)here * sysconf(_SC_PAGESIZE);
}

/* Whether a process grew by what is reported, to within the allocator's 2% and
 * what does not grow with the model: threads, and libraries that are first
 * used. */
static bool is_near(int64_t reported, int64_t grown)
{
    const int64_t fixed = 5 << 20;
    return grown >= reported - reported / 50 &&
           grown <= reported + reported / 50 + fixed;
}

/* Does something in a process of its own, which ends with what it returns. */
static int in_child(int (*work)(const void *), const void *argument)
{
    int ended = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int result = work(argument);
        fflush(NULL);
        _exit(result);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : 99;
}

/* ------------------------------------------------------------- training -- */

typedef struct layout {
    const char *schedule;
    int ranks;
    sl_update_kind kind;
    bool recompute;
    sl_dtype precision;
} layout;

typedef struct run {
    sl_train_options options;
    int64_t before, reported, grown, planned, measured;
} run;

static sl_status train(sl_comm *comm, void *context)
{
    const run *own = context;
    return sl_train(comm, &own->options);
}

static void report(void *context, const sl_train_metrics *metrics)
{
    run *own = context;
    own->reported = metrics->bytes;
    /* After the last step others may have ended already. */
    if (metrics->step == 1)
        own->grown = resident() - own->before;
}

static void traced(void *context, const sl_trace *trace)
{
    run *own = context;
    sl_trace_summary summary;
    if (sl_trace_summarize(trace, &summary))
        return;
    own->planned = summary.bytes_planned;
    own->measured = summary.bytes_measured;
}

static const char *write_text(void)
{
    static char path[] = "/tmp/sluice-memory-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return NULL;
    FILE *file = fdopen(fd, "w");
    for (int i = 0; i < 20000 && file; i++)
        fputc('a' + i % 23, file);
    if (file)
        fclose(file);
    return path;
}

static int train_child(const void *argument)
{
    const layout *l = argument;
    run own = {.before = 0};
    sl_tokens *tokens = NULL;
    sl_schedule *schedule = NULL;
    const char *path = write_text();
    int per_rank = strstr(l->schedule, "Interleaved") ||
                           strstr(l->schedule, "BFS") ||
                           strstr(l->schedule, "V")
                       ? 2
                       : 1;
    const sl_sizes sizes = {l->ranks, per_rank, 8};
    sl_status status = path ? sl_tokens_open(path, &tokens) : SL_EIO;
    if (path)
        unlink(path);
    if (!status)
        status = sl_generate(l->schedule, &sizes, &schedule);
    if (status) {
        printf("%s, %d ranks: %s\n", l->schedule, l->ranks, sl_error_text());
        return 1;
    }
    own.options = (sl_train_options){.config = SL_GPT2_CONFIG_INIT,
                                     .schedule = schedule,
                                     .cut = SL_CUT_OPTIONS_INIT,
                                     .stage = SL_STAGE_OPTIONS_INIT,
                                     .optimizer = SL_OPTIMIZER_OPTIONS_INIT,
                                     .rate = {SL_RATE_CONSTANT, 1e-3, 1, 0, 2},
                                     .data = {.tokens = tokens,
                                              .count = sl_tokens_count(tokens),
                                              .length = 32,
                                              .vocabulary = 256},
                                     .batch = 8,
                                     .steps = 2,
                                     .timeout_s = 60,
                                     .report = report,
                                     .trace = traced,
                                     .context = &own};
    own.options.config.layers = 6;
    own.options.config.width = 256;
    own.options.config.heads = 4;
    own.options.config.vocabulary = 8000;
    own.options.config.positions = 32;
    own.options.cut.by = SL_CUT_BY_COST;
    own.options.cut.inside = true;
    own.options.optimizer.kind = l->kind;
    own.options.stage.recompute = l->recompute;
    own.options.precision = l->precision;
    own.before = resident();
    status = sl_threads_run(l->ranks, train, &own);
    sl_schedule_destroy(schedule);
    sl_tokens_close(tokens);
    bool right = own.reported == own.planned && own.reported == own.measured &&
                 is_near(own.reported, own.grown);
    if (status || !right)
        printf(
            "%s, %d ranks, %s, %s%s: %lld bytes reported, %lld planned, %lld "
            "measured, the process grew by %lld: %s\n",
            l->schedule, l->ranks, sl_dtype_text(l->precision),
            l->kind ? "sgd" : "adamw", l->recompute ? ", recompute" : "",
            (long long)own.reported, (long long)own.planned,
            (long long)own.measured, (long long)own.grown,
            status ? sl_error_text() : "");
    return status || !right;
}

/* Every schedule on 1, 2 and 4 ranks, and the ways to train in turn; with
 * SLUICE_ALL in the environment all of them with each. */
static void a_run_takes_what_is_planned(void **state)
{
    (void)state;
    only_on_cpu(); /* in processes that are forked */
    static const int ranks[] = {1, 2, 4};
    bool all = getenv("SLUICE_ALL") != NULL;
    int number = 0, wrong = 0;
    if (TEST_IS_SANITIZED)
        skip(); /* Its own memory is the larger part. */
    const sl_generator *generator;
    for (size_t s = 0; (generator = sl_generator_at(s)); s++) {
        if (strcmp(generator->name, "ForwardOnly") == 0)
            continue;
        for (int r = 0; r < 3; r++, number++) {
            for (int way = 0; way < 8; way++) {
                if (!all && way != (5 * number + number / 8) % 8)
                    continue;
                const layout l = {generator->name, ranks[r],
                                  way % 2 ? SL_UPDATE_SGD : SL_UPDATE_ADAMW,
                                  way / 2 % 2, way / 4 ? SL_BF16 : SL_F32};
                wrong += in_child(train_child, &l) != 0;
            }
        }
    }
    assert_true(number > 15);
    assert_int_equal(wrong, 0);
}

/* ------------------------------------------------------------- planning -- */

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    sl_gpt2_model_spec spec = *(const sl_gpt2_model_spec *)context;
    return sl_gpt2_model(&spec, rows, like, out);
}

typedef struct plan_trial {
    sl_gpt2_model_spec spec;
    const sl_schedule *schedule;
    bool keep_outputs;
    int replicas;
    int64_t messages; /* of the rank with the logits */
    int64_t before;
} plan_trial;

static sl_gpt2_model_spec small_spec(const sl_schedule *schedule)
{
    sl_gpt2_model_spec spec = {.config = SL_GPT2_CONFIG_INIT,
                               .options = SL_GPT2_OPTIONS_INIT,
                               .length = 16,
                               .cut = SL_CUT_OPTIONS_INIT};
    spec.config.layers = 4;
    spec.config.width = 32;
    spec.config.heads = 2;
    spec.config.vocabulary = 500;
    spec.config.positions = 16;
    spec.cut.by = SL_CUT_BY_COST;
    spec.cut.inside = true;
    spec.cut.stages = sl_schedule_extent(schedule).stages;
    return spec;
}

static sl_status compare_plan(sl_comm *comm, void *context)
{
    plan_trial *own = context;
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    sl_rank_bytes planned = {0}, there = {0};
    options.schedule = own->schedule;
    options.keep_outputs = own->keep_outputs;
    sl_status status =
        sl_pipeline_create(comm, build, &own->spec, &options, &pipeline);
    /* Uneven microbatches: two sizes. */
    if (!status)
        status = sl_pipeline_plan(pipeline, 11, &planned);
    if (!status && sl_pipeline_model(pipeline))
        status = sl_fail(SL_EINVAL, "planning has made something");
    if (!status)
        status = sl_pipeline_prepare(pipeline, 11);
    if (!status) {
        sl_pipeline_bytes(pipeline, &there);
        if (sl_comm_rank(comm) == sl_comm_size(comm) - 1)
            own->messages = there.messages;
        planned.measured = there.measured;
        planned.held = there.held;
        if (memcmp(&planned, &there, sizeof there) ||
            there.planned != there.measured || there.held != there.measured)
            status = sl_fail(
                SL_EINVAL, "planned %lld, then %lld, measured %lld, held %lld",
                (long long)planned.planned, (long long)there.planned,
                (long long)there.measured, (long long)there.held);
    }
    sl_pipeline_destroy(pipeline);
    return status;
}

static void a_plan_is_what_is_allocated(void **state)
{
    (void)state;
    static const char *const names[] = {
        "GPipe",         "1F1B",     "Interleaved1F1B", "InterleavedZeroBubble",
        "ZBVZeroBubble", "DualPipeV"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        const sl_sizes sizes = {2, n < 2 ? 1 : 2, 4};
        sl_schedule *schedule;
        int64_t messages[2];
        assert_ok(sl_generate(names[n], &sizes, &schedule));
        for (int i = 0; i < 4; i++) {
            int keep = i % 2;
            plan_trial own = {.spec = small_spec(schedule),
                              .schedule = schedule,
                              .keep_outputs = keep};
            own.spec.precision = i / 2 ? SL_BF16 : SL_F32;
            assert_ok(sl_threads_run(2, compare_plan, &own));
            messages[keep] = own.messages;
        }
        /* Logits that nobody asked for are no message. V schedules have them on
         * the first rank. */
        if (n < 4)
            assert_true(messages[1] - messages[0] >=
                        2 * 16 * 500 * (int64_t)sizeof(float));
        sl_schedule_destroy(schedule);
    }
}

/* ------------------------------------------------------------- in parts -- */

static sl_status run_in_parts(sl_comm *comm, void *context)
{
    plan_trial *own = context;
    static int64_t ids[8 * 16];
    const int all[] = {0, 1, 2, 3};
    const sl_group everybody = {all, 4};
    const sl_array array = {SL_I64, 2, {8, 16}, ids};
    const sl_argument batch[] = {{"input_ids", SL_SPREAD_SPLIT, 0, &array, 1},
                                 {"labels", SL_SPREAD_SPLIT, 0, &array, 1}};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    sl_rank_bytes bytes = {0};
    options.schedule = own->schedule;
    options.replicas = 2;
    sl_status status =
        sl_pipeline_create(comm, build, &own->spec, &options, &pipeline);
    if (!status)
        status = sl_pipeline_prepare(pipeline, 8);
    for (int step = 0; step < 3 && !status; step++) {
        status = sl_pipeline_step(pipeline, batch, 2, 1);
        if (!status)
            status = sl_pipeline_descend(pipeline, 0.1);
    }
    if (!status)
        sl_pipeline_bytes(pipeline, &bytes);
    double held = (double)bytes.held;
    if (!status)
        status = sl_comm_allreduce(comm, &everybody, SL_COMM_OWN_TAG, SL_F64,
                                   &held, 1, 60);
    int64_t grown = resident() - own->before;
    if (!status)
        status = sl_comm_barrier(comm, &everybody, SL_COMM_OWN_TAG, 60);
    if (!status && bytes.planned != bytes.measured)
        status = sl_fail(SL_EINVAL, "planned %lld, measured %lld",
                         (long long)bytes.planned, (long long)bytes.measured);
    if (!status && !(bytes.held < bytes.planned))
        status = sl_fail(SL_EINVAL, "nothing was given back");
    if (!status && sl_comm_rank(comm) == 0 && !TEST_IS_SANITIZED &&
        !is_near((int64_t)held, grown))
        status = sl_fail(SL_EINVAL, "%.0f held, the process grew by %lld", held,
                         (long long)grown);
    sl_pipeline_destroy(pipeline);
    return status;
}

static int parts_child(const void *argument)
{
    const sl_schedule *schedule = argument;
    plan_trial own = {.spec = small_spec(schedule), .schedule = schedule};
    own.spec.config.width = 512;
    own.spec.config.vocabulary = 4000;
    own.before = resident();
    sl_status status = sl_threads_run(4, run_in_parts, &own);
    if (status)
        printf("%s\n", sl_error_text());
    return status != SL_OK;
}

static void parameters_in_parts_are_told_as_they_are(void **state)
{
    (void)state;
    only_on_cpu(); /* in processes that are forked */
    static const char *const names[] = {"GPipe", "Interleaved1F1B",
                                        "ZBVZeroBubble"};
    for (int n = 0; n < 3; n++) {
        const sl_sizes sizes = {2, n ? 2 : 1, 4};
        sl_schedule *order, *lowered;
        assert_ok(sl_generate(names[n], &sizes, &order));
        assert_ok(sl_lower(order, SL_LOWER_DEFAULT_PASSES, NULL, &lowered));
        assert_int_equal(in_child(parts_child, lowered), 0);
        sl_schedule_destroy(order);
        sl_schedule_destroy(lowered);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_what_is_allocated),
        cmocka_unit_test(parameters_in_parts_are_told_as_they_are),
        cmocka_unit_test(a_run_takes_what_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

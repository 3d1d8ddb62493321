/* SPDX-License-Identifier: MIT
 *
 * Steps on threads: every schedule computes what the uncut model does. */
#include "comm/comm.h"
#include "tensor/work_stealing.h"
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"
#include "random_schedule.h"
#include "trials.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_trial(trial *own, const char *what)
{
    int ranks = sl_schedule_ranks(own->schedule);
    if (sl_threads_run(ranks * own->options.replicas, run_trial_rank, own))
        fail_msg("%s, %s, %d ranks, %d replicas, %d stages: %s", what,
                 golden_models[own->subject->golden].name, ranks,
                 own->options.replicas, own->stages, sl_error_text());
}

/* Which half of the schedules by name, for time's sake. */
static size_t half;

static void every_schedule_computes_what_the_model_does(void **state)
{
    (void)state;
    unsigned way = 0;
    int runs = 0;
    for (int i = 0; i < 2 * GOLDEN_MODELS; i++) {
        int g = i / 2;
        sl_dtype precision = i % 2 ? SL_BF16 : SL_F32;
        sl_safetensors *file = golden_open(golden_models[g].name);
        /* Uneven in most splits. */
        subject s;
        make_subject(g, precision, 7, file, &s);
        for (size_t k = half; sl_generator_at(k); k += 2) {
            const sl_generator *generator = sl_generator_at(k);
            for (int p = 1; p <= 4; p *= 2) {
                for (int v = 1; v <= 3; v++) {
                    int by = precision == SL_BF16 || p == 4 ? 3 : 2;
                    for (int m = 1; m <= 7; m += by) {
                        const sl_sizes sizes = {p, v, m};
                        sl_schedule *order, *lowered;
                        if (p * v > 9 ||
                            sl_generate(generator->name, &sizes, &order))
                            continue;
                        assert_ok(sl_lower(order,
                                           way % 2 ? "send-recv"
                                                   : SL_LOWER_DEFAULT_PASSES,
                                           NULL, &lowered));
                        trial t =
                            make_trial(&s, way % 3 ? lowered : order, way);
                        if (!sl_schedule_extent(order).has_backward)
                            t.steps = 0;
                        run_trial(&t, generator->name);
                        sl_schedule_destroy(order);
                        sl_schedule_destroy(lowered);
                        way++;
                        runs++;
                    }
                }
            }
        }
        release_subject(&s);
        sl_safetensors_close(file);
    }
    assert_true(runs > 100);
}

static void add_waits(sl_schedule **schedule, bool early)
{
    bool messages = sl_schedule_extent(*schedule).has_communication;
    char passes[80];
    sl_schedule *made;
    snprintf(passes, sizeof passes, "%swait-send%s",
             messages ? "" : "send-recv,", early ? ",send-budget=1" : "");
    sl_status status = sl_lower(*schedule, passes, NULL, &made);
    if (status == SL_EUNSOUND) /* There is no room for so few. */
        return;
    assert_ok(status);
    sl_schedule_destroy(*schedule);
    *schedule = made;
}

static void random_schedules_compute_what_the_model_does(void **state)
{
    (void)state;
    test_dice random = {77};
    for (int round = 0; round < 50; round++) {
        int g = round % GOLDEN_MODELS;
        sl_safetensors *file = golden_open(golden_models[g].name);
        test_shape shape = test_random_shape(&random);
        if (shape.stages > 9)
            shape.stages = 9;
        if (shape.ranks > shape.stages)
            shape.ranks = shape.stages;
        if (shape.microbatches > 8)
            shape.microbatches = 8;
        sl_schedule *schedule = test_random_schedule(&random, &shape);
        if (round % 2) /* Sends where they stand, and waits, early ones too. */
            add_waits(&schedule, round % 4 == 3);
        sl_extent extent = sl_schedule_extent(schedule);
        subject s;
        make_subject(g, round % 4 < 2 ? SL_F32 : SL_BF16,
                     extent.microbatches + round % 3, file, &s);
        trial t = make_trial(&s, schedule, (unsigned)round);
        run_trial(&t, "random");
        sl_schedule_destroy(schedule);
        release_subject(&s);
        sl_safetensors_close(file);
    }
}

/* Those that PyTorch's own runtime tests are written with: a V, an unbalanced
 * one, one with hoisted receives, one with I and W. */
static void hand_written_schedules_compute_what_the_model_does(void **state)
{
    (void)state;
    static const char *const names[] = {"v_shaped", "unbalanced", "with_w",
                                        "reordered_b"};
    unsigned way = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[128];
        size_t length;
        sl_schedule *schedule;
        snprintf(path, sizeof path, "goldens/registry/%s.csv", names[k]);
        char *csv = test_read_file(path, &length);
        assert_ok(sl_schedule_read_csv(csv, length, &schedule));
        free(csv);
        for (int g = 0; g < GOLDEN_MODELS; g++) {
            sl_safetensors *file = golden_open(golden_models[g].name);
            subject s;
            make_subject(g, way % 2 ? SL_BF16 : SL_F32, 9, file, &s);
            trial t = make_trial(&s, schedule, way++);
            t.steps = 4;
            run_trial(&t, names[k]);
            release_subject(&s);
            sl_safetensors_close(file);
        }
        sl_schedule_destroy(schedule);
    }
}

/* The same bits whenever it is run, however late ranks are, and whoever computes
 * them. */
static void compare_bits(sl_dtype precision)
{
    static const char *const names[] = {"GPipe", "Interleaved1F1B",
                                        "InterleavedZeroBubble",
                                        "ZBVZeroBubble", "DualPipeV"};
    sl_safetensors *file = golden_open("gpt2");
    subject s;
    atomic_bool helped[2] = {false, false};
    make_subject(GOLDEN_MODELS - 1, precision, 8, file, &s);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const sl_sizes sizes = {3, k ? 2 : 1, 6};
#ifdef SLUICE_TSAN
        enum { ROUNDS = 4 }; /* OpenMP's runtime is not instrumented. */
#else
        enum { ROUNDS = 6 };
#endif
        uint64_t bits[ROUNDS][3];
        sl_schedule *schedule;
        assert_ok(sl_generate(names[k], &sizes, &schedule));
        for (int round = 0; round < ROUNDS; round++) {
            trial t = make_trial(&s, schedule, 3); /* on cpu */
            t.bits = bits[round];
            t.noise = round % 2;
            t.options.work_stealing =
                round / 2 ? SL_STEAL_ALWAYS : SL_STEAL_NEVER;
            t.helped = &helped[round / 2 ? 1 : 0];
            t.options.stage.threads = round < 4 ? 1 : 2;
            t.steps = 1;
            run_trial(&t, names[k]);
            assert_memory_equal(bits[round], bits[0], sizeof *bits);
        }
        sl_schedule_destroy(schedule);
    }
    assert_false(helped[0]);
    assert_true(helped[1] || test_is_on_gpu());
    release_subject(&s);
    sl_safetensors_close(file);
}

static void bits_do_not_depend_on_time(void **state)
{
    (void)state;
    compare_bits(SL_F32);
    compare_bits(SL_BF16);
}

/* Where receives are posted and sends waited for changes no bits, and a budget
 * is kept. */
static void bits_do_not_depend_on_waits(void **state)
{
    (void)state;
    static const struct {
        const char *passes;
        int most_sends;
    } forms[] = {
        {"", 0},
        {SL_LOWER_DEFAULT_PASSES, 0},
        {SL_LOWER_DEFAULT_PASSES ",send-budget=0", 1},
        {SL_LOWER_DEFAULT_PASSES ",send-budget=1", 1},
        {SL_LOWER_DEFAULT_PASSES ",send-budget=4", 4},
        {"unshard,reduce-grad,send-recv,defer-recv,wait-send", 0},
        {"unshard,reduce-grad,send-recv,defer-recv,wait-send,send-budget=4", 4},
    };
    enum { MULTI_MLP = 1 };
    sl_safetensors *file = golden_open(golden_models[MULTI_MLP].name);
    subject s;
    make_subject(MULTI_MLP, SL_F32, 12, file, &s);
    for (size_t k = 0; sl_generator_at(k); k++) {
        const sl_generator *generator = sl_generator_at(k);
        const sl_sizes two = {2, 2, 6}, one = {2, 1, 6};
        uint64_t bits[2], first[2];
        sl_schedule *order, *lowered;
        if (sl_generate(generator->name, &two, &order))
            assert_ok(sl_generate(generator->name, &one, &order));
        bool steps = sl_schedule_extent(order).has_backward;
        for (size_t f = 0; f < sizeof forms / sizeof *forms && steps; f++) {
            if (sl_lower(order, forms[f].passes, NULL, &lowered)) {
                assert_non_null(strstr(forms[f].passes, "defer-recv,"));
                continue;
            }
            trial t = make_trial(&s, lowered, 3); /* on cpu */
            t.bits = f ? bits : first;
            t.noise = f % 2;
            t.most_sends = forms[f].most_sends;
            t.steps = 1;
            run_trial(&t, generator->name);
            if (f)
                assert_memory_equal(bits, first, sizeof bits);
            sl_schedule_destroy(lowered);
        }
        sl_schedule_destroy(order);
    }
    release_subject(&s);
    sl_safetensors_close(file);
}

/* Replicas with a share of the batch each have the gradients of the whole. */
static void replicas_compute_the_gradients_of_all(void **state)
{
    (void)state;
    unsigned way = 0;
    for (int g = 0; g < GOLDEN_MODELS; g++) {
#ifdef SLUICE_TSAN
        if (g % 2)
            continue; /* Threads meet in two as they do in four. */
#endif
        sl_safetensors *file = golden_open(golden_models[g].name);
        subject s;
        make_subject(g, g % 2 ? SL_F32 : SL_BF16, 12, file, &s);
        for (size_t k = 0; sl_generator_at(k); k++) {
            const sl_sizes sizes = {2, way % 2 + 1, 4};
            const sl_generator *generator = sl_generator_at(k);
            sl_schedule *order, *lowered;
            if (sl_generate(generator->name, &sizes, &order)) {
                const sl_sizes other = {2, 2 - way % 2, 4};
                assert_ok(sl_generate(generator->name, &other, &order));
            }
            /* In parts, whole, and without a word on when to reduce. */
            static const char *const passes[] = {SL_LOWER_DEFAULT_PASSES,
                                                 "reduce-grad", ""};
            for (int how = 0; how < 3; how++) {
                assert_ok(sl_lower(order, passes[how], NULL, &lowered));
                trial t = make_trial(&s, lowered, way++);
                t.options.replicas = way % 3 == 2 ? 3 : 2;
                if (!sl_schedule_extent(order).has_backward)
                    t.steps = 0;
                run_trial(&t, generator->name);
                sl_schedule_destroy(lowered);
            }
            sl_schedule_destroy(order);
        }
        release_subject(&s);
        sl_safetensors_close(file);
    }
}

/* --------------------------------------------------------- own functions -- */

static atomic_int called[SL_ACTION_KINDS];

static sl_status run_own(void *context, const sl_action_call *calls, int count)
{
    atomic_fetch_add(&called[*(const int *)context], 1);
    for (int i = 0; i < count; i++) {
        /* A state has nothing to run: there is one replica. */
        sl_status status =
            calls[i].slot < 0 ? SL_OK : sl_action_call_run(&calls[i]);
        if (status)
            return status;
    }
    return SL_OK;
}

/* Functions are called for their kind, for every cell, and nothing else runs
 * then. */
static void own_functions_run_instead(void **state)
{
    (void)state;
    static const char *const names[] = {"1F1B", "InterleavedZeroBubble",
                                        "DualPipeV"};
    sl_safetensors *file = golden_open("gpt2");
    subject s;
    int kinds[SL_ACTION_KINDS];
    make_subject(GOLDEN_MODELS - 1, SL_F32, 8, file, &s);
    for (size_t k = 0; k < 3; k++) {
        const sl_sizes sizes = {2, k ? 2 : 1, 8};
        sl_schedule *order, *lowered;
        sl_action_function own[SL_ACTION_KINDS];
        int count = 0, cells[SL_ACTION_KINDS] = {0};
        assert_ok(sl_generate(names[k], &sizes, &order));
        assert_ok(sl_lower(order, SL_LOWER_DEFAULT_PASSES, NULL, &lowered));
        for (int kind = 1; kind < SL_ACTION_KINDS; kind++) {
            kinds[kind] = kind;
            atomic_store(&called[kind], 0);
            sl_action_family family = sl_action_kind_family(kind);
            if (family != SL_FAMILY_COMM && family != SL_FAMILY_WAIT)
                own[count++] =
                    (sl_action_function){kind, run_own, &kinds[kind]};
        }
        for (int r = 0; r < 2; r++) {
            for (size_t i = 0; i < sl_schedule_length(lowered, r); i++)
                cells[sl_schedule_row(lowered, r)[i].kind]++;
        }
        trial t = make_trial(&s, lowered, 1);
        t.options.functions = own;
        t.options.function_count = count;
        t.steps = 2;
        run_trial(&t, names[k]);
        for (int i = 0; i < count; i++) {
            int kind = own[i].kind;
            /* Two steps, and three evals that run what there is of forward:
             * F of an overlap by itself. */
            int expected = 2 * cells[kind];
            if (kind == SL_FORWARD)
                expected += 3 * (cells[kind] + cells[SL_OVERLAP_F_B]);
            if (kind == SL_UNSHARD || kind == SL_RESHARD)
                /* And once for each stage when a trial looks at them. */
                expected += 3 * cells[kind] + t.stages;
            assert_int_equal(atomic_load(&called[kind]), expected);
        }
        sl_schedule_destroy(order);
        sl_schedule_destroy(lowered);
    }
    release_subject(&s);
    sl_safetensors_close(file);
}

/* --------------------------------------------------------------- groups -- */

enum { WIDTH = 32, PARTS = 6 };

/* A pipeline of two stages on one rank, its microbatches, and what comes out. */
typedef struct grouped {
    const int64_t *rows; /* by microbatch */
    const char *order;
    bool one_by_one; /* by a function */
    float gradients[2][WIDTH * WIDTH];
} grouped;

static sl_status build_two_layers(void *context, int64_t rows,
                                  const sl_model *like, sl_model **out)
{
    const int *stages = context; /* NULL: one */
    sl_graph *graph;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(WIDTH, WIDTH));
    sl_tensor *v = sl_parameter(graph, "v", SL_F32, SL_SHAPE(WIDTH, WIDTH));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(rows, WIDTH), SL_NO_GRADIENT);
    sl_tensor *h = sl_relu(sl_linear(x, w, NULL, SL_IN_OUT));
    h = sl_linear(h, v, NULL, SL_IN_OUT);
    sl_output(graph, "y", h, SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(sl_mul(h, h), SL_ALL));
    options.stages = stages ? *stages : 1;
    options.like = like;
    options.by = SL_CUT_BY_COST;
    options.inside = true;
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

static sl_status run_as_given(void *context, const sl_action_call *calls,
                              int count)
{
    (void)context;
    return count == 1 ? sl_action_call_run(calls) : SL_EINVAL;
}

static sl_status read_gradient(const sl_stage *stage, sl_memory *memory,
                               const char *name, float *out)
{
    sl_port port;
    sl_status status =
        sl_stage_port(stage, SL_PORT_PARAMETER_GRADIENT, name, &port);
    return status ? status
                  : sl_memory_read(memory, &port, 0, out, (size_t)port.bytes);
}

static sl_status step_in_groups(sl_comm *comm, void *context)
{
    grouped *job = context;
    const sl_action_function own = {SL_BACKWARD_WEIGHT, run_as_given, NULL};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    sl_schedule *schedule;
    const sl_stage *stage;
    sl_memory *memory;
    float data[PARTS][8 * WIDTH];
    sl_array arrays[PARTS];
    uint64_t random = 5;
    static int two = 2;
    for (int m = 0; m < PARTS; m++) {
        for (int i = 0; i < 8 * WIDTH; i++)
            data[m][i] = (float)test_random(&random);
        arrays[m] = (sl_array){SL_F32, 2, {job->rows[m], WIDTH}, data[m]};
    }
    const sl_argument x = {"x", SL_SPREAD_GIVEN, 0, arrays, PARTS};
    sl_status status =
        sl_schedule_read_csv(job->order, strlen(job->order), &schedule);
    if (status)
        return status;
    options.schedule = schedule;
    options.functions = &own;
    options.function_count = job->one_by_one;
    status =
        sl_pipeline_create(comm, build_two_layers, &two, &options, &pipeline);
    /* Memory is there after a step; then parameters are something. */
    if (!status)
        status = sl_pipeline_step(pipeline, &x, 1, 1);
    for (int s = 1; s >= 0 && !status; s--) {
        status = sl_pipeline_stage(pipeline, s, &stage, &memory);
        if (!status)
            test_fill_all(&(test_stage){(sl_stage *)stage, memory}, 3, 0, 7);
    }
    sl_pipeline_zero_gradients(pipeline);
    for (int step = 0; step < 2 && !status; step++)
        status = sl_pipeline_step(pipeline, &x, 1, 1);
    for (int i = 0; i < 2 && !status; i++) {
        status = sl_pipeline_stage(pipeline, i, &stage, &memory);
        if (!status)
            status =
                read_gradient(stage, memory, i ? "v" : "w", job->gradients[i]);
    }
    sl_pipeline_destroy(pipeline);
    sl_schedule_destroy(schedule);
    return status;
}

/* W's that stand next to each other run in one call; where a function of the
 * caller's runs them, one by one. Sums are in their order, whatever the sizes of
 * microbatches. */
static void groups_are_the_same_bits(void **state)
{
    (void)state;
    static const int64_t rows[][PARTS] = {{5, 5, 5, 5, 5, 5},
                                          {5, 4, 5, 4, 5, 4},
                                          {5, 5, 5, 4, 4, 4},
                                          {8, 3, 3, 8, 8, 8}};
#define BEFORE                                                                 \
    "0F0,1F0,0F1,1F1,0F2,1F2,0F3,1F3,0F4,1F4,0F5,1F5,"                         \
    "1I0,0I0,1I1,0I1,1I2,0I2,1I3,0I3,1I4,0I4,1I5,0I5,"
    static const char *const orders[] = {
        BEFORE "1W5,1W3,1W4,1W0,1W2,1W1,0W5,0W3,0W4,0W0,0W2,0W1\n",
        BEFORE "1W0,1W1,1W2,0W0,0W1,0W2,0W3,1W3,1W4,0W4,1W5,0W5\n"};
#undef BEFORE
    sl__gemm_streamed_from(1);
    for (int r = 0; r < 4; r++) {
        grouped jobs[2][2];
        for (int i = 0; i < 4; i++) {
            jobs[i / 2][i % 2] = (grouped){
                .rows = rows[r], .order = orders[i / 2], .one_by_one = i % 2};
            assert_ok(sl_threads_run(1, step_in_groups, &jobs[i / 2][i % 2]));
        }
        for (int i = 0; i < 2; i++)
            assert_memory_equal(jobs[i][0].gradients, jobs[i][1].gradients,
                                sizeof jobs[i][0].gradients);
        /* It is not all the same: else nothing was shown. */
        assert_memory_not_equal(jobs[0][0].gradients, jobs[1][0].gradients,
                                sizeof jobs[0][0].gradients);
    }
    sl__gemm_streamed_from(0);
}

/* Two pipelines take turns on one transport: each steals as it was told to. */
static sl_status take_turns(sl_comm *comm, void *context)
{
    (void)context;
    static const sl_work_stealing ways[] = {SL_STEAL_ALWAYS, SL_STEAL_NEVER};
    const sl_sizes sizes = {2, 1, 4};
    sl_pipeline *pipelines[2] = {NULL, NULL};
    sl_schedule *schedule;
    static int stages = 2;
    static const float data[8 * WIDTH];
    const sl_array array = {SL_F32, 2, {8, WIDTH}, data};
    const sl_argument x = {"x", SL_SPREAD_SPLIT, 0, &array, 1};
    sl_status status = sl_generate("GPipe", &sizes, &schedule);
    for (int i = 0; i < 2 && !status; i++) {
        sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
        options.schedule = schedule;
        options.work_stealing = ways[i];
        status = sl_pipeline_create(comm, build_two_layers, &stages, &options,
                                    &pipelines[i]);
    }
    for (int i = 0; i < 4 && !status; i++) {
        status = sl_pipeline_step(pipelines[i % 2], &x, 1, 1);
        if (!status && (comm->idle != NULL) != (ways[i % 2] == SL_STEAL_ALWAYS))
            status = sl_fail(SL_EINVAL, "turn %d steals or not", i);
    }
    sl_pipeline_destroy(pipelines[1]);
    sl_pipeline_destroy(pipelines[0]);
    if (!status && comm->idle)
        status = sl_fail(SL_EINVAL, "steals when all pipelines are gone");
    sl_schedule_destroy(schedule);
    return status;
}

static void pipelines_take_turns(void **state)
{
    (void)state;
    assert_ok(sl_threads_run(2, take_turns, NULL));
}

/* -------------------------------------------------------- what is shared -- */

enum { SHARERS = 4 };

typedef struct sharing {
    const sl_schedule *schedule;
    const sl_schedule *runs[SHARERS]; /* by rank */
    size_t cells[SHARERS];
} sharing;

static sl_status note_what_runs(sl_comm *comm, void *context)
{
    sharing *own = context;
    sl_mlp_model_spec spec = {{SHARERS, 4}, SL_CUT_OPTIONS_INIT, SL_F32};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    int ranks[SHARERS] = {0, 1, 2, 3}, rank = sl_comm_rank(comm);
    const sl_group all = {ranks, SHARERS};
    spec.cut.stages = SHARERS;
    options.schedule = own->schedule;
    sl_status status =
        sl_pipeline_create(comm, sl_mlp_model, &spec, &options, &pipeline);
    if (!status) {
        own->runs[rank] = sl_pipeline_schedule(pipeline);
        own->cells[rank] = sl_schedule_extent(own->runs[rank]).cells;
        status = sl_comm_barrier(comm, &all, SL_COMM_OWN_TAG, 20);
    }
    sl_pipeline_destroy(pipeline);
    return status;
}

/* Ranks of a process lower a schedule once; the same object with other cells is
 * another schedule, and one that fails fails on all ranks alike. */
static void ranks_share_what_runs(void **state)
{
    (void)state;
    const sl_sizes sizes = {SHARERS, 1, 8};
    sl_schedule *schedule;
    sharing first = {0}, second;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    first.schedule = schedule;
    assert_ok(sl_threads_run(SHARERS, note_what_runs, &first));
    for (int r = 1; r < SHARERS; r++)
        assert_ptr_equal(first.runs[r], first.runs[0]);
    for (int r = 0; r < SHARERS; r++) {
        sl_action cell = {.kind = SL_FORWARD, .stage = r, .microbatch = 8};
        assert_ok(sl_schedule_append(schedule, r, cell));
        cell.kind = SL_BACKWARD;
        if (r == SHARERS - 1)
            assert_ok(sl_schedule_append(schedule, r, cell));
    }
    second = (sharing){.schedule = schedule};
    assert_fails(sl_threads_run(SHARERS, note_what_runs, &second), SL_EUNSOUND,
                 "the schedule is not sound");
    for (int r = SHARERS - 2; r >= 0; r--) {
        const sl_action cell = {
            .kind = SL_BACKWARD, .stage = r, .microbatch = 8};
        assert_ok(sl_schedule_append(schedule, r, cell));
    }
    assert_ok(sl_threads_run(SHARERS, note_what_runs, &second));
    assert_ptr_equal(second.runs[3], second.runs[0]);
    assert_true(second.cells[0] > first.cells[0]);
    sl_schedule_destroy(schedule);
}

/* With 0 or 1 a half of all schedules by name, each as long as all else. */
int main(int count, char **arguments)
{
    const struct CMUnitTest named[] = {
        cmocka_unit_test(every_schedule_computes_what_the_model_does),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_compute_the_gradients_of_all),
        cmocka_unit_test(own_functions_run_instead),
        cmocka_unit_test(groups_are_the_same_bits),
        cmocka_unit_test(pipelines_take_turns),
        cmocka_unit_test(ranks_share_what_runs),
        cmocka_unit_test(bits_do_not_depend_on_time),
        cmocka_unit_test(bits_do_not_depend_on_waits),
        cmocka_unit_test(hand_written_schedules_compute_what_the_model_does),
        cmocka_unit_test(random_schedules_compute_what_the_model_does),
    };
    /* As large ones do. */
    sl__gemm_streamed_from(1);
    sl__steal_smallest(true);
    if (count > 1) {
        half = (size_t)atoi(arguments[1]);
        return cmocka_run_group_tests(named, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

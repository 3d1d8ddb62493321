/* SPDX-License-Identifier: MIT
 *
 * Steps on threads: every schedule computes what the uncut model does. */
#include "tensor/onednn/onednn.h"
#include "random_schedule.h"
#include "trials.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static void run_trial(trial *own, const char *what)
{
    int ranks = sl_schedule_ranks(own->schedule);
    if (sl_threads_run(ranks * own->options.replicas, run_trial_rank, own))
        fail_msg("%s, %s, %d ranks, %d replicas, %d stages: %s", what,
                 golden_models[own->subject->golden].name, ranks,
                 own->options.replicas, own->stages, sl_error_text());
}

static void every_schedule_computes_what_the_model_does(void **state)
{
    (void)state;
    unsigned way = 0;
    int runs = 0;
    for (int g = 0; g < GOLDEN_MODELS; g++) {
        sl_safetensors *file = golden_open(golden_models[g].name);
        /* Uneven in most splits. */
        subject s;
        make_subject(g, 7, file, &s);
        for (size_t k = 0; sl_generator_at(k); k++) {
            const sl_generator *generator = sl_generator_at(k);
            for (int p = 1; p <= 4; p *= 2) {
                for (int v = 1; v <= 3; v++) {
                    for (int m = 1; m <= 7; m += p == 4 ? 3 : 2) {
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
    assert_true(runs > 200);
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
        sl_extent extent = sl_schedule_extent(schedule);
        subject s;
        make_subject(g, extent.microbatches + round % 3, file, &s);
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
            make_subject(g, 9, file, &s);
            trial t = make_trial(&s, schedule, way++);
            t.steps = 4;
            run_trial(&t, names[k]);
            release_subject(&s);
            sl_safetensors_close(file);
        }
        sl_schedule_destroy(schedule);
    }
}

/* The same bits whenever it is run, and however late ranks are. */
static void bits_do_not_depend_on_time(void **state)
{
    (void)state;
    static const char *const names[] = {"GPipe", "Interleaved1F1B",
                                        "InterleavedZeroBubble",
                                        "ZBVZeroBubble", "DualPipeV"};
    sl_safetensors *file = golden_open("gpt2");
    subject s;
    make_subject(GOLDEN_MODELS - 1, 8, file, &s);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const sl_sizes sizes = {3, k ? 2 : 1, 6};
        uint64_t bits[4][3];
        sl_schedule *schedule;
        assert_ok(sl_generate(names[k], &sizes, &schedule));
        for (int round = 0; round < 4; round++) {
            trial t = make_trial(&s, schedule, 1);
            t.bits = bits[round];
            t.noise = round > 1;
            t.steps = 1;
            run_trial(&t, names[k]);
            assert_memory_equal(bits[round], bits[0], sizeof *bits);
        }
        sl_schedule_destroy(schedule);
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
        make_subject(g, 12, file, &s);
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
    make_subject(GOLDEN_MODELS - 1, 8, file, &s);
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
            if (sl_action_kind_family(kind) != SL_FAMILY_COMM)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_compute_the_gradients_of_all),
        cmocka_unit_test(own_functions_run_instead),
        cmocka_unit_test(bits_do_not_depend_on_time),
        cmocka_unit_test(hand_written_schedules_compute_what_the_model_does),
        cmocka_unit_test(every_schedule_computes_what_the_model_does),
        cmocka_unit_test(random_schedules_compute_what_the_model_does),
    };
    sl__hold_from(1); /* As large ones do. */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

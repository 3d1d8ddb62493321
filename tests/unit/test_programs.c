/* SPDX-License-Identifier: MIT
 *
 * What the four programs promise, on random graphs and on small ones made for
 * one claim. */
#include "random_graph.h"
#include "tensor/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 500 };

static const char *const backends[] = {"ref", "cpu"};
static const sl_dtype precisions[] = {SL_F32, SL_BF16};

static test_stage compile(const sl_graph *graph, const char *backend,
                          bool recompute, int slots)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = backend;
    options.recompute = recompute;
    return test_compile(graph, &options, slots);
}

/* Fills memory of the stage's device with NaNs. */
static void fill_pool(const test_stage *stage, void *memory, int64_t bytes)
{
    char *nans = malloc((size_t)bytes + 1);
    memset(nans, 0xff, (size_t)bytes);
    if (bytes)
        assert_ok(sl__device_write(sl__memory_stream(stage->memory), memory,
                                   nans, (size_t)bytes));
    free(nans);
}

/* A copy of such memory, which the caller frees. */
static char *read_pool(const test_stage *stage, const void *memory,
                       int64_t bytes)
{
    char *copy = malloc((size_t)bytes + 1);
    if (bytes)
        assert_ok(sl__device_read(sl__memory_stream(stage->memory), copy,
                                  memory, (size_t)bytes));
    return copy;
}

/* Overwrites what no program may rely on: the workspace, and a slab that is
 * about to be filled. */
static void poison(const test_stage *stage, int pool, int slot)
{
    int64_t bytes;
    void *memory = sl__memory_pool(stage->memory, pool, slot, &bytes);
    fill_pool(stage, memory, bytes);
}

static void poison_messages(const test_stage *stage, sl_port_kind kind,
                            int slot)
{
    for (int m = 0; m < stage->stage->message_count; m++) {
        if (stage->stage->messages[m].kind == kind)
            poison(stage, SL__POOL_MESSAGES + m, slot);
    }
}

/* The kind of slot that a pool is in. */
static sl__slot_kind kind_of(const sl_stage *stage, int pool)
{
    if (pool == SL__POOL_SLAB)
        return SL__SLOT_SLAB;
    if (pool == SL__POOL_HANDED)
        return SL__SLOT_HANDED;
    return sl__slot_kind_of(stage->messages[pool - SL__POOL_MESSAGES].kind);
}

/* Runs a program while other data lies in all slots that it does not use, as if
 * another microbatch had them: it neither reads nor writes these. */
static void run_beside_others(const test_stage *stage, sl_program program,
                              int slot)
{
    enum { POOLS = 64 };
    const char one[2] = {"FIWB"[program], 0};
    int end = SL__POOL_MESSAGES + stage->stage->message_count;
    void *kept[POOLS] = {NULL};
    assert_in_range(end, 0, POOLS - 1);
    for (int pool = SL__POOL_SLAB; pool < end; pool++) {
        int64_t bytes;
        void *memory = sl__memory_pool(stage->memory, pool, slot, &bytes);
        unsigned kind = kind_of(stage->stage, pool);
        if (bytes == 0 || stage->stage->uses[program] >> kind & 1)
            continue;
        kept[pool] = read_pool(stage, memory, bytes);
        fill_pool(stage, memory, bytes);
    }
    test_run(stage, one, slot);
    for (int pool = SL__POOL_SLAB; pool < end; pool++) {
        int64_t bytes;
        char *memory = sl__memory_pool(stage->memory, pool, slot, &bytes);
        if (!kept[pool])
            continue;
        char *now = read_pool(stage, memory, bytes);
        for (int64_t i = 0; i < bytes; i++)
            assert_int_equal(now[i], (char)0xff);
        assert_ok(sl__device_write(sl__memory_stream(stage->memory), memory,
                                   kept[pool], (size_t)bytes));
        free(now);
        free(kept[pool]);
    }
}

static void run_poisoned(const test_stage *stage, const char *programs,
                         int slot)
{
    for (; *programs; programs++) {
        if (*programs == 'F') {
            poison(stage, SL__POOL_SLAB, slot);
            poison_messages(stage, SL_PORT_OUTPUT, slot);
        }
        if (*programs == 'I' || *programs == 'F')
            poison(stage, SL__POOL_HANDED, slot);
        if (*programs == 'I' || *programs == 'B')
            poison_messages(stage, SL_PORT_INPUT_GRADIENT, slot);
        poison(stage, SL__POOL_WORKSPACE, slot);
        run_beside_others(
            stage, (sl_program)(strchr("FIWB", *programs) - "FIWB"), slot);
    }
}

static void assert_no_parameter_gradient(const test_stage *stage)
{
    int64_t bytes;
    const void *memory =
        sl__memory_pool(stage->memory, SL__POOL_GRADIENTS, 0, &bytes);
    char *now = read_pool(stage, memory, bytes);
    for (int64_t i = 0; i < bytes; i++)
        assert_int_equal(now[i], 0);
    free(now);
}

/* ---------------------------------------------------------- random graphs -- */

static void i_then_w_is_b_bit_for_bit(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        for (int b = 0; b < 8; b++) {
            sl_graph *graph = test_seeded_graph(seed, precisions[b / 4]);
            test_stage whole = compile(graph, backends[b % 2], b / 2 % 2, 1);
            test_stage split = compile(graph, backends[b % 2], b / 2 % 2, 1);
            test_context("seed %d, %s, recompute %d, %s", (int)seed,
                         backends[b % 2], b / 2 % 2,
                         sl_dtype_text(precisions[b / 4]));
            test_fill_all(&whole, seed, 0, TEST_IDS);
            test_fill_all(&split, seed, 0, TEST_IDS);
            run_poisoned(&whole, "FB", 0);
            run_poisoned(&split, "FI", 0);
            assert_no_parameter_gradient(&split);
            test_assert_same(&split, &whole, SL_PORT_INPUT_GRADIENT, 0, 0);
            run_poisoned(&split, "W", 0);
            test_assert_same(&split, &whole, SL_PORT_PARAMETER_GRADIENT, 0, 0);
            test_assert_same(&split, &whole, SL_PORT_OUTPUT, 0, 0);
            test_release(&whole);
            test_release(&split);
            sl_graph_destroy(graph);
        }
    }
}

static void compare_backends(sl_dtype precision, double tolerance)
{
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        sl_graph *graph = test_seeded_graph(seed, precision);
        test_stage ref = compile(graph, "ref", false, 1);
        test_fill_all(&ref, seed, 0, TEST_IDS);
        run_poisoned(&ref, "FB", 0);
        for (int way = 0; way < 3; way++) {
            test_stage other = compile(graph, backends[way != 0], way != 1, 1);
            test_context("seed %d, way %d, %s", (int)seed, way,
                         sl_dtype_text(precision));
            test_fill_all(&other, seed, 0, TEST_IDS);
            run_poisoned(&other, way == 2 ? "FIW" : "FB", 0);
            test_assert_same(&other, &ref, SL_PORT_OUTPUT, 0, tolerance);
            test_assert_same(&other, &ref, SL_PORT_INPUT_GRADIENT, 0,
                             tolerance);
            test_assert_same(&other, &ref, SL_PORT_PARAMETER_GRADIENT, 0,
                             tolerance);
            test_release(&other);
        }
        test_release(&ref);
        sl_graph_destroy(graph);
    }
}

static void backends_and_recompute_agree(void **state)
{
    (void)state;
    compare_backends(SL_F32, 1e-4);
    compare_backends(SL_BF16, test_is_on_gpu() ? 5e-2 : 2e-2);
}

/* Runs microbatches in their slots in some legal order: each F, then B, or I
 * and later W. */
static void run_interleaved(const test_stage *stage, int slots, uint64_t seed)
{
    static const char *const ways[] = {"FB", "FIW"};
    const char *left[8];
    int open = slots;
    for (int i = 0; i < slots; i++)
        left[i] = ways[test_random_int(&seed, 0, 1)];
    while (open) {
        int slot = test_random_int(&seed, 0, slots - 1);
        if (!*left[slot])
            continue;
        char one[2] = {*left[slot]++, 0};
        open -= !*left[slot];
        poison(stage, SL__POOL_WORKSPACE, slot);
        test_run(stage, one, slot);
    }
}

static void interleaved_microbatches_add_up_to_the_same(void **state)
{
    (void)state;
    enum { SLOTS = 5 };
    for (uint64_t seed = 1; seed <= GRAPHS / 2; seed++) {
        for (int b = 0; b < 2; b++) {
            sl_graph *graph = test_seeded_graph(seed, precisions[seed % 2]);
            test_stage mixed = compile(graph, backends[b], seed % 2, SLOTS);
            test_stage plain = compile(graph, backends[b], false, SLOTS);
            test_context("seed %d, %s", (int)seed, backends[b]);
            for (uint64_t i = 0; i < SLOTS; i++) {
                test_fill_all(&mixed, seed + (i << 32), (int)i, TEST_IDS);
                test_fill_all(&plain, seed + (i << 32), (int)i, TEST_IDS);
                test_run(&plain, "FB", (int)i);
            }
            run_interleaved(&mixed, SLOTS, seed);
            test_assert_same(&mixed, &plain, SL_PORT_PARAMETER_GRADIENT, 0,
                             1e-5);
            for (int i = 0; i < SLOTS; i++)
                test_assert_same(&mixed, &plain, SL_PORT_INPUT_GRADIENT, i,
                                 seed % 2 ? 1e-5 : 0);
            test_release(&mixed);
            test_release(&plain);
            sl_graph_destroy(graph);
        }
    }
}

/* The gradients of a random graph as a whole, by central differences along a
 * random direction of all leaves at once. */
static double weighted_outputs(const test_stage *stage)
{
    double sum = 0;
    int count = sl_stage_port_count(stage->stage, SL_PORT_OUTPUT);
    test_run(stage, "F", 0);
    for (int i = 0; i < count; i++) {
        sl_port port, gradient;
        assert_ok(sl_stage_port_at(stage->stage, SL_PORT_OUTPUT, i, &port));
        if (port.dtype != SL_F64)
            continue;
        size_t size;
        double *y = test_get(stage, SL_PORT_OUTPUT, port.name, 0, &size);
        bool flows = !sl_stage_port(stage->stage, SL_PORT_OUTPUT_GRADIENT,
                                    port.name, &gradient);
        double *dy =
            flows ? test_get(stage, SL_PORT_OUTPUT_GRADIENT, port.name, 0, NULL)
                  : NULL;
        for (size_t k = 0; k < size; k++)
            sum += y[k] * (dy ? dy[k] : strcmp(port.name, "loss") == 0);
        free(y);
        free(dy);
    }
    return sum;
}

/* Moves all leaves of a kind by `step` times their direction; returns the
 * gradient along it. */
static double move_leaves(const test_stage *stage, sl_port_kind kind,
                          sl_port_kind gradient_kind, double step,
                          uint64_t *seed)
{
    double slope = 0;
    int count = sl_stage_port_count(stage->stage, gradient_kind);
    for (int i = 0; i < count; i++) {
        sl_port port;
        size_t size;
        assert_ok(sl_stage_port_at(stage->stage, gradient_kind, i, &port));
        double *value = test_get(stage, kind, port.name, 0, &size);
        double *gradient = test_get(stage, gradient_kind, port.name, 0, NULL);
        for (size_t k = 0; k < size; k++) {
            double direction = test_random(seed);
            slope += gradient[k] * direction;
            value[k] += step * direction;
        }
        test_put(stage, kind, port.name, 0, value);
        free(value);
        free(gradient);
    }
    return slope;
}

static double move_all(const test_stage *stage, double step, uint64_t seed)
{
    return move_leaves(stage, SL_PORT_PARAMETER, SL_PORT_PARAMETER_GRADIENT,
                       step, &seed) +
           move_leaves(stage, SL_PORT_INPUT, SL_PORT_INPUT_GRADIENT, step,
                       &seed);
}

static void whole_graphs_match_central_differences(void **state)
{
    (void)state;
    int checked = 0;
    for (uint64_t seed = 1; seed <= 2 * GRAPHS; seed++) {
        const double step = 1e-6;
        sl_graph *graph = test_seeded_graph(seed, SL_F64);
        test_stage stage = compile(graph, "ref", seed % 2, 1);
        test_fill_all(&stage, seed, 0, TEST_IDS);
        run_poisoned(&stage, "FIW", 0);
        double slope = move_all(&stage, step, seed);
        double up = weighted_outputs(&stage);
        move_all(&stage, -2 * step, seed);
        double down = weighted_outputs(&stage);
        double found = (up - down) / (2 * step);
        move_all(&stage, step, seed);
        double here = weighted_outputs(&stage);
        /* A kink of ReLU between the two shows as a bend: leave it out. */
        double bend = fabs(up + down - 2 * here) / step;
        if (bend < 1e-5 * (1 + fabs(slope))) {
            checked++;
            if (fabs(found - slope) > 1e-6 * (1 + fabs(slope)))
                fail_msg("seed %d: slope %.10g, differences %.10g", (int)seed,
                         slope, found);
        }
        test_release(&stage);
        sl_graph_destroy(graph);
    }
    assert_true(checked > GRAPHS);
}

/* The same graph with every tensor an output: then nothing is fused and hardly
 * any memory shared. */
static void sharing_and_fusing_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F64);
        sl_graph *shown = test_shown_graph(seed, SL_F64);
        test_stage plain = compile(graph, "ref", seed % 2, 1);
        test_stage open = compile(shown, "ref", false, 1);
        test_fill_all(&plain, seed, 0, TEST_IDS);
        test_fill_all(&open, seed, 0, TEST_IDS);
        run_poisoned(&plain, seed % 3 ? "FB" : "FIW", 0);
        run_poisoned(&open, "FB", 0);
        test_context("seed %d", (int)seed);
        test_assert_same(&plain, &open, SL_PORT_OUTPUT, 0, 1e-12);
        test_assert_same(&plain, &open, SL_PORT_INPUT_GRADIENT, 0, 1e-12);
        test_assert_same(&plain, &open, SL_PORT_PARAMETER_GRADIENT, 0, 1e-12);
        test_release(&plain);
        test_release(&open);
        sl_graph_destroy(graph);
        sl_graph_destroy(shown);
    }
}

void omp_set_dynamic(int dynamic);
int omp_get_dynamic(void);

/* A runtime that is free to grant fewer threads is not, for our runs, and is
 * again afterwards. */
static void a_team_is_as_large_as_was_asked(void **state)
{
    (void)state;
    only_on_cpu();
    sl_graph *graph;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.threads = 3; /* More than there may be cores. */
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(64, 256), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(256, 192));
    sl_output(graph, "y", sl_matmul(x, w), SL_GRADIENT);
    test_stage many = test_compile(graph, &options, 1);
    test_stage one = compile(graph, "cpu", false, 1);
    test_fill_all(&many, 1, 0, 1);
    test_fill_all(&one, 1, 0, 1);
    omp_set_dynamic(1);
    run_poisoned(&many, "FB", 0);
    assert_int_equal(omp_get_dynamic(), 1);
    omp_set_dynamic(0);
    run_poisoned(&one, "FB", 0);
    test_context("a dynamic team");
    test_assert_same(&many, &one, SL_PORT_OUTPUT, 0, 1e-5);
    test_assert_same(&many, &one, SL_PORT_INPUT_GRADIENT, 0, 1e-5);
    test_assert_same(&many, &one, SL_PORT_PARAMETER_GRADIENT, 0, 1e-5);
    test_release(&many);
    test_release(&one);
    sl_graph_destroy(graph);
}

static void two_threads_agree_with_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F32);
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        options.threads = 2;
        test_stage two = test_compile(graph, &options, 1);
        test_stage one = compile(graph, "cpu", false, 1);
        test_context("seed %d", (int)seed);
        test_fill_all(&one, seed, 0, TEST_IDS);
        test_fill_all(&two, seed, 0, TEST_IDS);
        run_poisoned(&one, "FB", 0);
        run_poisoned(&two, "FB", 0);
        test_assert_same(&two, &one, SL_PORT_OUTPUT, 0, 1e-6);
        test_assert_same(&two, &one, SL_PORT_PARAMETER_GRADIENT, 0, 1e-5);
        test_release(&one);
        test_release(&two);
        sl_graph_destroy(graph);
    }
}

/* ------------------------------------------------------------ small ones -- */

/* y = relu(x W1) W1 with W1 used twice, x with or without gradient. */
static sl_graph *build_twice(sl_gradient gradient)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(3, 4), gradient);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(4, 4));
    sl_output(graph, "y", sl_matmul(sl_relu(sl_matmul(x, w)), w), SL_GRADIENT);
    return graph;
}

static void ten_rounds_accumulate_ten_times(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        sl_graph *graph = build_twice(SL_GRADIENT);
        test_stage stage = compile(graph, backends[b], false, 1);
        test_fill_all(&stage, 5, 0, 1);
        test_run(&stage, "FB", 0);
        size_t count;
        float *once =
            test_get(&stage, SL_PORT_PARAMETER_GRADIENT, "w", 0, &count);
        for (int i = 1; i < 10; i++)
            test_run(&stage, i % 2 ? "FIW" : "FB", 0);
        float *ten = test_get(&stage, SL_PORT_PARAMETER_GRADIENT, "w", 0, NULL);
        for (size_t i = 0; i < count; i++)
            assert_true(fabsf(ten[i] - 10 * once[i]) <=
                        1e-5f * fabsf(ten[i]) + 1e-6f);
        sl_memory_zero_gradients(stage.memory);
        assert_no_parameter_gradient(&stage);
        free(once);
        free(ten);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

static void wrong_order_is_refused(void **state)
{
    (void)state;
    sl_graph *graph = build_twice(SL_GRADIENT);
    test_stage s = compile(graph, "ref", false, 2);
    test_fill_all(&s, 5, 0, 1);
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_B, s.memory, 0, NULL),
                 SL_EINVAL, "B on slot 0 comes before its F");
    test_run(&s, "F", 0);
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_W, s.memory, 0, NULL),
                 SL_EINVAL, "W on slot 0 comes before its I");
    test_run(&s, "I", 0);
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_I, s.memory, 0, NULL),
                 SL_EINVAL, "I on slot 0 comes after its I");
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_B, s.memory, 0, NULL),
                 SL_EINVAL, "B on slot 0 comes after its I");
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_F, s.memory, 0, NULL),
                 SL_EINVAL, "F on slot 0 comes before its W");
    test_run(&s, "W", 0);
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_W, s.memory, 0, NULL),
                 SL_EINVAL, "comes before its I");
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_I, s.memory, 1, NULL),
                 SL_EINVAL, "I on slot 1 comes before its F");
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_F, s.memory, 2, NULL),
                 SL_EINVAL, "slot 2, expected 0 to 1");
    test_stage other = compile(graph, "ref", false, 1);
    assert_fails(sl_stage_run(s.stage, SL_PROGRAM_F, other.memory, 0, NULL),
                 SL_EINVAL, "the memory is of another stage");
    test_release(&other);
    test_release(&s);
    sl_graph_destroy(graph);
}

static int kernels(const test_stage *stage, sl_program program)
{
    return sl_stage_plan(stage->stage)->kernels[program];
}

static void a_first_stage_has_an_empty_i(void **state)
{
    (void)state;
    sl_graph *graph = build_twice(SL_NO_GRADIENT);
    for (int recompute = 0; recompute < 2; recompute++) {
        test_stage stage = compile(graph, "ref", recompute, 1);
        assert_int_equal(kernels(&stage, SL_PROGRAM_I), 0);
        assert_int_equal(kernels(&stage, SL_PROGRAM_W),
                         kernels(&stage, SL_PROGRAM_B));
        assert_int_equal(
            sl_stage_port_count(stage.stage, SL_PORT_INPUT_GRADIENT), 0);
        test_fill_all(&stage, 5, 0, 1);
        test_run(&stage, "FIW", 0);
        test_release(&stage);
    }
    sl_graph_destroy(graph);
}

/* x -> (x W) -> relu -> (V): I needs dy V', the slope of relu and W'; W needs
 * two products; nothing is in both. */
static void i_and_w_share_no_kernel(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(3, 4), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(4, 5));
    sl_tensor *v = sl_parameter(graph, "v", SL_F32, SL_SHAPE(5, 2));
    sl_output(graph, "y", sl_matmul(sl_relu(sl_matmul(x, w)), v), SL_GRADIENT);
    test_stage stage = compile(graph, "ref", false, 1);
    assert_int_equal(kernels(&stage, SL_PROGRAM_F), 2); /* relu is fused */
    assert_int_equal(kernels(&stage, SL_PROGRAM_I), 3);
    assert_int_equal(kernels(&stage, SL_PROGRAM_W), 2);
    assert_int_equal(kernels(&stage, SL_PROGRAM_B), 5);
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* Integers and bools pass through; an input nobody reads has gradient 0; an
 * output without gradient adds none; one output twice is two outputs. */
static void odd_inputs_and_outputs_work(void **state)
{
    (void)state;
    for (int b = 0; b < 4; b++) {
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2), SL_GRADIENT);
        sl_input(graph, "unread", SL_F32, SL_SHAPE(3), SL_GRADIENT);
        sl_tensor *ids =
            sl_input(graph, "ids", SL_I32, SL_SHAPE(2, 2), SL_NO_GRADIENT);
        sl_tensor *mask =
            sl_input(graph, "mask", SL_BOOL, SL_SHAPE(3), SL_NO_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2));
        sl_tensor *y = sl_mul(x, w);
        sl_output(graph, "ids", sl_transpose(ids, 0, 1), SL_NO_GRADIENT);
        sl_output(graph, "mask", mask, SL_NO_GRADIENT);
        sl_output(graph, "x", x, SL_GRADIENT);
        sl_output(graph, "y", y, SL_GRADIENT);
        sl_output(graph, "again", y, SL_GRADIENT);
        sl_output(graph, "silent", sl_scale(y, 100), SL_NO_GRADIENT);
        test_stage s = compile(graph, backends[b % 2], b / 2 % 2, 1);
        test_put(&s, SL_PORT_PARAMETER, "w", 0, (float[]){10, 20});
        test_put(&s, SL_PORT_INPUT, "x", 0, (float[]){1, 2});
        test_put(&s, SL_PORT_INPUT, "ids", 0, (int32_t[]){1, 2, 3, 4});
        test_put(&s, SL_PORT_INPUT, "mask", 0, (uint8_t[]){1, 0, 1});
        test_put(&s, SL_PORT_OUTPUT_GRADIENT, "x", 0, (float[]){1, 1});
        test_put(&s, SL_PORT_OUTPUT_GRADIENT, "y", 0, (float[]){1, 2});
        test_put(&s, SL_PORT_OUTPUT_GRADIENT, "again", 0, (float[]){4, 8});
        run_poisoned(&s, "FIW", 0);
        int32_t *out = test_get(&s, SL_PORT_OUTPUT, "ids", 0, NULL);
        assert_memory_equal(out, ((int32_t[]){1, 3, 2, 4}), 16);
        uint8_t *bits = test_get(&s, SL_PORT_OUTPUT, "mask", 0, NULL);
        assert_memory_equal(bits, ((uint8_t[]){1, 0, 1}), 3);
        float *dx = test_get(&s, SL_PORT_INPUT_GRADIENT, "x", 0, NULL);
        assert_true(dx[0] == 51 && dx[1] == 201);
        float *none = test_get(&s, SL_PORT_INPUT_GRADIENT, "unread", 0, NULL);
        assert_true(none[0] == 0 && none[1] == 0 && none[2] == 0);
        float *dw = test_get(&s, SL_PORT_PARAMETER_GRADIENT, "w", 0, NULL);
        assert_true(dw[0] == 5 && dw[1] == 20);
        free(out);
        free(bits);
        free(dx);
        free(none);
        free(dw);
        test_release(&s);
        sl_graph_destroy(graph);
    }
}

static void the_loss_scale_scales_gradients(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2), SL_GRADIENT);
    sl_loss(graph, sl_sum(x, SL_ALL));
    for (int b = 0; b < 2; b++) {
        test_stage s = compile(graph, backends[b], false, 1);
        sl_run_options options = SL_RUN_OPTIONS_INIT;
        options.loss_scale = 0.125;
        test_put(&s, SL_PORT_INPUT, "x", 0, (float[]){1, 2});
        test_run(&s, "F", 0);
        assert_ok(sl_stage_run(s.stage, SL_PROGRAM_B, s.memory, 0, &options));
        assert_true(test_get_float(&s, SL_PORT_OUTPUT, "loss", 0) == 3);
        assert_true(test_get_float(&s, SL_PORT_INPUT_GRADIENT, "x", 0) ==
                    0.125f);
        test_release(&s);
    }
    sl_graph_destroy(graph);
}

static void forward_alone_saves_nothing_and_fuses_gelu(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(8, 16), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(16, 16));
    sl_output(graph, "y", sl_gelu_tanh(sl_matmul(x, w)), SL_GRADIENT);
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    test_stage whole = test_compile(graph, &options, 1);
    options.backward = SL_BACKWARD_NONE;
    test_stage alone = test_compile(graph, &options, 1);
    const sl_plan *plan = sl_stage_plan(alone.stage);
    assert_int_equal(plan->kernels[SL_PROGRAM_F], 1);
    assert_int_equal(sl_stage_plan(whole.stage)->kernels[SL_PROGRAM_F], 2);
    assert_int_equal(plan->saved_bytes, 0);
    assert_int_equal(plan->slab_bytes, 0);
    assert_int_equal(plan->gradient_bytes, 0);
    assert_int_equal(plan->message_bytes, 2 * 8 * 16 * 4);
    test_fill_all(&whole, 3, 0, 1);
    test_fill_all(&alone, 3, 0, 1);
    test_run(&whole, "F", 0);
    test_run(&alone, "F", 0);
    test_assert_same(&alone, &whole, SL_PORT_OUTPUT, 0, 1e-6);
    assert_fails(sl_stage_run(alone.stage, SL_PROGRAM_B, alone.memory, 0, NULL),
                 SL_EINVAL, "B was not asked for");
    sl_port port;
    assert_fails(
        sl_stage_port(alone.stage, SL_PORT_PARAMETER_GRADIENT, "w", &port),
        SL_ENOTFOUND, "no parameter with gradient named 'w'");
    test_release(&whole);
    test_release(&alone);
    sl_graph_destroy(graph);
}

/* What F is told of the seed, backward remembers. */
static void backward_drops_what_forward_dropped(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(64), SL_GRADIENT);
    sl_output(graph, "y", sl_dropout(x, 0.5), SL_GRADIENT);
    float ones[64];
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    for (int b = 0; b < 4; b++) {
        test_stage s = compile(graph, backends[b % 2], b / 2 % 2, 1);
        sl_run_options options = SL_RUN_OPTIONS_INIT;
        options.seed = 77;
        test_put(&s, SL_PORT_INPUT, "x", 0, ones);
        test_put(&s, SL_PORT_OUTPUT_GRADIENT, "y", 0, ones);
        assert_ok(sl_stage_run(s.stage, SL_PROGRAM_F, s.memory, 0, &options));
        options.seed = 78;
        assert_ok(sl_stage_run(s.stage, SL_PROGRAM_I, s.memory, 0, &options));
        test_run(&s, "W", 0);
        float *y = test_get(&s, SL_PORT_OUTPUT, "y", 0, NULL);
        float *dx = test_get(&s, SL_PORT_INPUT_GRADIENT, "x", 0, NULL);
        assert_memory_equal(y, dx, sizeof ones);
        free(y);
        free(dx);
        test_release(&s);
    }
    sl_graph_destroy(graph);
}

/* A product that two activations read is fused with neither. */
static void a_product_read_twice_is_not_fused(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(3, 4), SL_NO_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(4, 5));
    sl_tensor *h = sl_matmul(x, w);
    sl_output(graph, "y", sl_sub(sl_gelu_erf(h), sl_relu(h)), SL_NO_GRADIENT);
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backward = SL_BACKWARD_NONE;
    test_stage alone = test_compile(graph, &options, 1);
    assert_int_equal(kernels(&alone, SL_PROGRAM_F), 4);
    test_stage ref = compile(graph, "ref", false, 1);
    test_fill_all(&alone, 9, 0, 1);
    test_fill_all(&ref, 9, 0, 1);
    run_poisoned(&alone, "F", 0);
    run_poisoned(&ref, "F", 0);
    test_context("gelu - relu");
    test_assert_same(&alone, &ref, SL_PORT_OUTPUT, 0, 1e-5);
    test_release(&alone);
    test_release(&ref);
    sl_graph_destroy(graph);
}

/* With recompute, outputs may be gone when backward runs, and stay as they
 * were. */
static void recompute_leaves_outputs_alone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F32);
        test_stage gone = compile(graph, "ref", true, 1);
        test_stage kept = compile(graph, "ref", true, 1);
        test_fill_all(&gone, seed, 0, TEST_IDS);
        test_fill_all(&kept, seed, 0, TEST_IDS);
        test_run(&gone, "F", 0);
        test_run(&kept, "FB", 0);
        poison_messages(&gone, SL_PORT_OUTPUT, 0);
        test_run(&gone, "B", 0);
        test_context("seed %d", (int)seed);
        test_assert_same(&gone, &kept, SL_PORT_PARAMETER_GRADIENT, 0, 0);
        for (int m = 0; m < gone.stage->message_count; m++) {
            int64_t bytes;
            const unsigned char *memory =
                sl__memory_pool(gone.memory, SL__POOL_MESSAGES + m, 0, &bytes);
            for (int64_t i = 0;
                 i < bytes && gone.stage->messages[m].kind == SL_PORT_OUTPUT;
                 i++)
                assert_int_equal(memory[i], 0xff);
        }
        test_release(&gone);
        test_release(&kept);
        sl_graph_destroy(graph);
    }
}

/* A product that is an output and part of a concat is both. */
static void a_part_may_be_an_output_too(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 2), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2, 2));
    sl_tensor *part = sl_matmul(x, w);
    sl_tensor *parts[] = {part, sl_matmul(part, w)};
    sl_output(graph, "part", part, SL_GRADIENT);
    sl_output(graph, "whole", sl_concat(parts, 2, 1), SL_GRADIENT);
    for (int b = 0; b < 2; b++) {
        test_stage s = compile(graph, backends[b], false, 1);
        test_fill_all(&s, 4, 0, 1);
        test_put(&s, SL_PORT_INPUT, "x", 0, (float[]){1, 2, 3, 4});
        test_put(&s, SL_PORT_PARAMETER, "w", 0, (float[]){1, 1, 0, 1});
        run_poisoned(&s, "FB", 0);
        float *y = test_get(&s, SL_PORT_OUTPUT, "part", 0, NULL);
        float *both = test_get(&s, SL_PORT_OUTPUT, "whole", 0, NULL);
        assert_memory_equal(y, ((float[]){1, 3, 3, 7}), 16);
        assert_memory_equal(both, ((float[]){1, 3, 1, 4, 3, 7, 3, 10}), 32);
        free(y);
        free(both);
        test_release(&s);
    }
    sl_graph_destroy(graph);
}

static void weights_are_packed_again_after_a_write(void **state)
{
    (void)state;
    only_on_cpu(); /* in f32 */
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(1, 2), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2, 1));
    sl_output(graph, "y", sl_matmul(x, w), SL_GRADIENT);
    test_stage s = compile(graph, "cpu", false, 1);
    assert_true(sl_stage_plan(s.stage)->packed_bytes > 0);
    test_put(&s, SL_PORT_INPUT, "x", 0, (float[]){1, 2});
    test_put(&s, SL_PORT_OUTPUT_GRADIENT, "y", 0, (float[]){1});
    for (int i = 0; i < 3; i++) {
        test_put(&s, SL_PORT_PARAMETER, "w", 0, (float[]){(float)i, 10});
        test_run(&s, "FB", 0);
        assert_true(test_get_float(&s, SL_PORT_OUTPUT, "y", 0) ==
                    20 + (float)i);
        assert_true(test_get_float(&s, SL_PORT_INPUT_GRADIENT, "x", 0) ==
                    (float)i);
    }
    test_release(&s);
    sl_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i_then_w_is_b_bit_for_bit),
        cmocka_unit_test(backends_and_recompute_agree),
        cmocka_unit_test(interleaved_microbatches_add_up_to_the_same),
        cmocka_unit_test(whole_graphs_match_central_differences),
        cmocka_unit_test(sharing_and_fusing_change_nothing),
        cmocka_unit_test(a_team_is_as_large_as_was_asked),
        cmocka_unit_test(two_threads_agree_with_one),
        cmocka_unit_test(ten_rounds_accumulate_ten_times),
        cmocka_unit_test(wrong_order_is_refused),
        cmocka_unit_test(a_first_stage_has_an_empty_i),
        cmocka_unit_test(i_and_w_share_no_kernel),
        cmocka_unit_test(odd_inputs_and_outputs_work),
        cmocka_unit_test(the_loss_scale_scales_gradients),
        cmocka_unit_test(forward_alone_saves_nothing_and_fuses_gelu),
        cmocka_unit_test(backward_drops_what_forward_dropped),
        cmocka_unit_test(a_product_read_twice_is_not_fused),
        cmocka_unit_test(recompute_leaves_outputs_alone),
        cmocka_unit_test(a_part_may_be_an_output_too),
        cmocka_unit_test(weights_are_packed_again_after_a_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

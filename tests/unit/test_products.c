/* SPDX-License-Identifier: MIT
 *
 * Linear layers of the cpu backend: every edge of rows, columns and depth, on
 * every instruction set, against ref; and deferred weight gradients have the
 * same bits. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"
#include "tensor/program.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

typedef sl_tensor *(*activation_fn)(sl_tensor *x);

/* Of all graphs from now on, and how far results may be off. */
static sl_dtype precision = SL_F32;
static double tolerance = 1e-5;

/* Calls a test that compares, in bf16. */
static void in_bf16(void (*test)(void))
{
    precision = SL_BF16;
    /* As in test_ops.c. */
    tolerance = test_is_on_gpu() ? 5e-2 : 1e-2;
    test_with_each_way(test);
    precision = SL_F32;
    tolerance = 1e-5;
}

static sl_tensor *plain(sl_tensor *x)
{
    return x;
}

static sl_tensor *with_relu(sl_tensor *x)
{
    return sl_relu(x);
}

static sl_tensor *with_gelu(sl_tensor *x)
{
    return sl_gelu_tanh(x);
}

static sl_tensor *with_erf(sl_tensor *x)
{
    return sl_gelu_erf(x);
}

/* Layers with gradients for weights and inputs; a weight is used twice. */
static sl_graph *build(int64_t m, int64_t k, int64_t n, sl_layout layout,
                       bool biased, activation_fn activation)
{
    sl_graph *graph;
    bool out_in = layout == SL_OUT_IN;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(m, k), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32,
                                SL_SHAPE(out_in ? n : k, out_in ? k : n));
    sl_tensor *back = sl_parameter(graph, "back", SL_F32,
                                   SL_SHAPE(out_in ? k : n, out_in ? n : k));
    sl_tensor *bias =
        biased ? sl_parameter(graph, "bias", SL_F32, SL_SHAPE(n)) : NULL;
    sl_tensor *h = activation(sl_linear(x, w, bias, layout));
    h = sl_linear(h, back, NULL, layout);
    h = sl_linear(sl_add(h, x), w, bias, layout);
    sl_output(graph, "y", h, SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(sl_mul(h, h), SL_ALL));
    assert_ok(sl_graph_set_precision(graph, precision));
    return graph;
}

/* Runs a graph on both backends for some rounds, whose gradients add up; `way`
 * chooses the data. Destroys the graph. */
static void compare_rounds(sl_graph *graph, int threads, unsigned way,
                           int rounds)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    test_stage ref = test_compile(graph, &options, 1);
    options.backend = "cpu";
    options.threads = threads;
    test_stage fast = test_compile(graph, &options, 1);
    test_fill_all(&ref, way + 1, 0, 7);
    test_fill_all(&fast, way + 1, 0, 7);
    for (int i = 0; i < rounds; i++) {
        test_run(&ref, "FB", 0);
        test_run(&fast, "FIW", 0);
    }
    test_assert_same(&fast, &ref, SL_PORT_OUTPUT, 0, tolerance);
    test_assert_same(&fast, &ref, SL_PORT_INPUT_GRADIENT, 0, tolerance);
    test_assert_same(&fast, &ref, SL_PORT_PARAMETER_GRADIENT, 0, tolerance);
    test_release(&ref);
    test_release(&fast);
    sl_graph_destroy(graph);
}

static void compare_with_ref(sl_graph *graph, int threads, unsigned way)
{
    compare_rounds(graph, threads, way, 1);
}

static void compare(int64_t m, int64_t k, int64_t n, unsigned way)
{
    static const activation_fn activations[] = {plain, with_relu, with_gelu,
                                                with_erf};
    const sl__split_kernels *splits = sl__split_choose(1);
    test_context("%lld x %lld x %lld, way %u, %s, %s, %s by %s", (long long)m,
                 (long long)k, (long long)n, way, sl__vector_choose()->name,
                 splits ? splits->name : "no splits", sl_dtype_text(precision),
                 sl__bf16_choose(m)->name);
    compare_with_ref(build(m, k, n, way % 2 ? SL_OUT_IN : SL_IN_OUT,
                           way / 2 % 2, activations[way / 4 % 4]),
                     way % 5 == 0 ? 3 : 1, way);
}

static void compare_thin(void)
{
    static const int rows[] = {1, 2, 3, 5, 7, 8, 9, 16, 23, 64, 65};
    static const int wide[] = {1,  15, 16,  33,  47,  48,  49,
                               95, 97, 130, 192, 511, 513, 1025};
    unsigned way = 0;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t a = 0; a < sizeof wide / sizeof *wide; a++) {
            size_t b = (a * 7 + r * 3) % (sizeof wide / sizeof *wide);
            bool long_for_ref = wide[a] * wide[b] > 1 << 16;
            compare(rows[r], wide[a], wide[long_for_ref ? a % 7 : b], way++);
        }
    }
}

static void thin_products_match_ref(void **state)
{
    (void)state;
    test_with_each_set(compare_thin);
}

/* Bytes of packed weights for this many rows. */
static int64_t packed_of(int64_t rows, int64_t size)
{
    sl_graph *graph = build(rows, size, size, SL_OUT_IN, true, plain);
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    test_stage stage = test_compile(graph, &options, 1);
    int64_t bytes = sl_stage_plan(stage.stage)->packed_bytes;
    test_release(&stage);
    sl_graph_destroy(graph);
    return bytes;
}

static int64_t packed_for(int64_t rows)
{
    return packed_of(rows, 96);
}

/* Weights (out, in) that stay in cache are read in place for a few rows. */
static void compare_few(void)
{
    static const int sizes[][2] = {{16, 16}, {64, 256}, {256, 64},
                                   {48, 80}, {112, 32}, {8, 24}};
    unsigned way = 0;
    for (int rows = 1; rows <= 9; rows++) {
        for (int s = 0; s < 6; s++, way++)
            compare(rows, sizes[s][0], sizes[s][1], 2 * way + 1);
    }
    if (test_is_on_gpu())
        return;
    assert_int_equal(packed_for(8), 0);
    assert_true(packed_for(9) > 0);
    sl__gemm_streamed_from(1);
    assert_int_equal(packed_for(7), packed_for(17));
    sl__gemm_streamed_from(0);
}

/* A few rows with gaps between them, by a weight whose columns have gaps, into
 * parts of rows. */
static void compare_few_apart(void)
{
    sl_graph *graph;
    sl_tensor *rows[2], *columns[3], *parts[2];
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(7, 2, 32), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(48, 96));
    sl_split(x, 1, 2, rows);
    sl_split(w, 1, 3, columns);
    for (int i = 0; i < 2; i++)
        parts[i] = sl_linear(sl_reshape(rows[i], SL_SHAPE(7, 32)),
                             columns[2 * i], NULL, SL_OUT_IN);
    sl_tensor *y = sl_concat(parts, 2, 1);
    sl_output(graph, "y", y, SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(sl_mul(y, y), SL_ALL));
    test_context("rows apart, %s", sl__vector_choose()->name);
    compare_with_ref(graph, 1, 1);
}

/* A few rows that are a parameter, whose gradient is added to; and that are
 * column-major. */
static void compare_few_others(void)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(64, 4), SL_GRADIENT);
    sl_tensor *rows = sl_parameter(graph, "rows", SL_F32, SL_SHAPE(4, 64));
    sl_tensor *in_out = sl_parameter(graph, "a", SL_F32, SL_SHAPE(64, 96));
    sl_tensor *out_in = sl_parameter(graph, "b", SL_F32, SL_SHAPE(96, 64));
    sl_tensor *y =
        sl_add(sl_linear(rows, in_out, NULL, SL_IN_OUT),
               sl_linear(sl_transpose(x, 0, 1), out_in, NULL, SL_OUT_IN));
    sl_output(graph, "y", y, SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(sl_mul(y, y), SL_ALL));
    test_context("other rows, %s", sl__vector_choose()->name);
    compare_rounds(graph, 1, 1, 2);
}

static void few_rows_match_ref(void **state)
{
    (void)state;
    test_with_each_set(compare_few);
    test_with_each_set(compare_few_apart);
    test_with_each_set(compare_few_others);
}

/* So many rows that a weight is used for a band at a time; operands that are
 * not weights are packed for the product. */
static const int many[][3] = {
    {65, 32, 33},   {96, 64, 64},   {97, 33, 47},   {130, 100, 65},
    {128, 96, 160}, {546, 40, 36},  {70, 545, 34},  {66, 35, 550},
    {81, 63, 95},   {111, 79, 113}, {160, 128, 32}, {65, 31, 200},
    {129, 513, 49}, {300, 97, 130}, {257, 48, 31},  {515, 33, 96},
};

static void compare_many(void)
{
    unsigned way = 0;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        compare(many[i][0], many[i][1], many[i][2], way += 7);
}

static void products_of_many_rows_match_ref(void **state)
{
    (void)state;
    test_with_each_way(compare_many);
}

/* Batches of products, of rows and columns that lie apart. */
static void compare_batches(void)
{
    static const int sizes[][4] = {
        {3, 5, 7, 9},    {2, 40, 33, 65},  {6, 1, 16, 1}, {41, 5, 9, 33},
        {7, 33, 40, 20}, {64, 32, 32, 32}, {2, 17, 1, 48}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int b = sizes[i][0], m = sizes[i][1], k = sizes[i][2],
                  n = sizes[i][3];
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x =
            sl_input(graph, "x", SL_F32, SL_SHAPE(b, k, m), SL_GRADIENT);
        sl_tensor *y =
            sl_input(graph, "y", SL_F32, SL_SHAPE(b, k, n), SL_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(b, n, k));
        sl_tensor *z = sl_matmul(sl_transpose(x, 1, 2), y);
        z = sl_add(z, sl_matmul(sl_transpose(x, 1, 2), sl_transpose(w, 1, 2)));
        sl_output(graph, "z", z, SL_NO_GRADIENT);
        sl_loss(graph, sl_mean(sl_mul(z, z), SL_ALL));
        assert_ok(sl_graph_set_precision(graph, precision));
        test_context("%d of %d x %d x %d, %s", b, m, k, n,
                     sl__vector_choose()->name);
        compare_rounds(graph, 1 + (int)i % 3, (unsigned)i, 2);
    }
}

static void batches_match_ref(void **state)
{
    (void)state;
    test_with_each_set(compare_batches);
}

/* Every edge of the blocks, of all three sizes. */
static void compare_blocks(void)
{
    static const int sizes[] = {1, 2, 15, 17, 31, 32, 33, 64, 97, 130};
    unsigned way = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            compare(sizes[i], sizes[k], sizes[(3 * i + k) % 10], way++);
    }
    compare_batches();
}

/* Operands and results are rounded to the nearest, ties to even. */
static void compare_roundings(void)
{
    enum { N = 40 };
    const float a[2][2] = {{1, 0x1p-8f}, {1, 3 * 0x1p-8f}};
    float w[2][N];
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 2), SL_NO_GRADIENT);
    sl_tensor *weight = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2, N));
    sl_output(graph, "y", sl_matmul(x, weight), SL_GRADIENT);
    assert_ok(sl_graph_set_precision(graph, SL_BF16));
    test_stage stage = test_compile(graph, NULL, 1);
    for (int i = 0; i < N; i++) {
        /* Each rounds to 1 if ties do to even. */
        w[0][i] = i % 2 ? 1 : 1 + 0x1p-8f;
        w[1][i] = i % 3 ? 1 : 1 - 0x1p-9f;
    }
    test_put(&stage, SL_PORT_PARAMETER, "w", 0, w);
    test_put(&stage, SL_PORT_INPUT, "x", 0, a);
    test_run(&stage, "F", 0);
    uint16_t *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == 0x3f80 && y[N + i] == 0x3f82);
    free(y);
    test_release(&stage);
    sl_graph_destroy(graph);
}

static void products_of_bf16_round_to_the_nearest(void **state)
{
    (void)state;
    test_with_each_way(compare_roundings);
}

static void products_of_bf16_match_ref(void **state)
{
    (void)state;
    in_bf16(compare_blocks);
}

/* Left out one by one, and all of them. */
static void specialities_can_be_left_out(void **state)
{
    (void)state;
    only_on_cpu();
    static const char *const lists[] = {
        "packed", "rank-updates", "grouped",  "wide",
        "dots",   "in-place",     "prefetch", "packed,rank-updates,wide,dots"};
    static const int sizes[][3] = {
        {4, 64, 64}, {16, 256, 272}, {70, 96, 130}, {9, 33, 600}};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        setenv("SLUICE_CPU_WITHOUT", lists[l], 1);
        for (unsigned i = 0; i < 4; i++)
            compare(sizes[i][0], sizes[i][1], sizes[i][2], i + 7 * (unsigned)l);
    }
    setenv("SLUICE_CPU_WITHOUT", "packed", 1);
    int64_t without = packed_of(16, 300);
    unsetenv("SLUICE_CPU_WITHOUT");
    assert_int_equal(without, 0);
    assert_true(packed_of(16, 300) > 0);
}

static void only_specialities_can_be_left_out(void **state)
{
    (void)state;
    only_on_cpu();
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph = build(4, 8, 8, SL_OUT_IN, false, plain);
    sl_stage *stage;
    setenv("SLUICE_CPU_WITHOUT", "dots,gemm", 1);
    sl_status status = sl_stage_compile(graph, &options, &stage);
    unsetenv("SLUICE_CPU_WITHOUT");
    assert_fails(status, SL_EINVAL, "SLUICE_CPU_WITHOUT has 'gemm', expected");
    sl_graph_destroy(graph);
}

/* -------------------------------------------------------------- groups -- */

/* Backward of microbatches 0 to count - 1, each in its own slot: I, and W's in
 * groups of `group`; 0: B instead. */
static float *add_up(const test_stage *stage, int count, int group,
                     const char *name)
{
    int slots[16];
    sl_memory_zero_gradients(stage->memory);
    for (int i = 0; i < count; i++) {
        slots[i] = count - 1 - i;
        test_fill_all(stage, (uint64_t)i + 1, slots[i], 7);
        test_run(stage, group ? "FI" : "FB", slots[i]);
    }
    for (int i = 0; group && i < count; i += group)
        assert_ok(sl_stage_run_group(stage->stage, stage->memory, slots + i,
                                     NULL,
                                     count - i < group ? count - i : group));
    return test_get(stage, SL_PORT_PARAMETER_GRADIENT, name, 0, NULL);
}

/* Groups larger and smaller than those that the stage was compiled for. */
static void compare_groups(void)
{
    static const int sizes[][4] = {{4, 33, 47, 1},  {16, 130, 65, 11},
                                   {32, 70, 96, 5}, {16, 256, 257, 8},
                                   {3, 48, 513, 9}, {27, 31, 17, 6}};
    enum { COUNT = 11 };
    for (int i = 0; i < 6; i++) {
        int m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        sl_graph *graph =
            build(m, k, n, i % 2 ? SL_OUT_IN : SL_IN_OUT, i / 2, with_relu);
        options.threads = 1 + i % 3;
        options.group = sizes[i][3];
        test_stage stage = test_compile(graph, &options, COUNT);
        size_t bytes = sizeof(float) * (size_t)k * (size_t)n;
        for (int way = 0; way < 2; way++) {
            const char *name = way ? "w" : "back";
            float *one = add_up(&stage, COUNT, 0, name);
            for (int group = 1; group <= COUNT; group += 1 + group / 3) {
                float *all = add_up(&stage, COUNT, group, name);
                assert_memory_equal(all, one, bytes);
                free(all);
            }
            free(one);
        }
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

static void groups_are_the_same_bits(void **state)
{
    (void)state;
    sl__gemm_streamed_from(1);
    test_with_each_set(compare_groups);
    sl__gemm_streamed_from(0);
}

/* So many rows that one pass does not suffice, in pieces that do not divide
 * them. */
static void groups_of_many_rows_are_the_same_bits(void **state)
{
    (void)state;
    enum { M = 60, K = 1100, N = 1200, COUNT = 11 };
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.threads = 2;
    options.group = COUNT;
    sl_graph *graph = build(M, K, N, SL_OUT_IN, false, with_relu);
    test_stage stage = test_compile(graph, &options, COUNT);
    float *one = add_up(&stage, COUNT, 0, "back");
    float *all = add_up(&stage, COUNT, COUNT, "back");
    assert_memory_equal(all, one, sizeof(float) * K * N);
    free(one);
    free(all);
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* A group that is refused has not begun. */
static void groups_are_whole(void **state)
{
    (void)state;
    static const int twice[] = {0, 0}, early[] = {0, 1}, outside[] = {0, 2};
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.group = 2;
    sl_graph *graph = build(4, 96, 96, SL_OUT_IN, false, plain);
    test_stage stage = test_compile(graph, &options, 2);
    test_fill_all(&stage, 1, 0, 7);
    sl_memory_zero_gradients(stage.memory);
    test_run(&stage, "FI", 0);
    assert_fails(sl_stage_run_group(stage.stage, stage.memory, twice, NULL, 2),
                 SL_EINVAL, "slot 0 is twice");
    assert_fails(sl_stage_run_group(stage.stage, stage.memory, early, NULL, 2),
                 SL_EINVAL, "W on slot 1 comes before its I");
    assert_fails(
        sl_stage_run_group(stage.stage, stage.memory, outside, NULL, 2),
        SL_EINVAL, "slot 2, expected 0 to 1");
    float *none = test_get(&stage, SL_PORT_PARAMETER_GRADIENT, "w", 0, NULL);
    for (int k = 0; k < 96 * 96; k++)
        assert_true(none[k] == 0);
    free(none);
    test_run(&stage, "W", 0);
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* The gradients of a backward of many rows, whole and in two. */
static void compare_whole(void)
{
    enum { M = 70, K = 66, N = 97 };
    static const char *const names[] = {"w", "back", "bias"};
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    for (int i = 0; i < 2; i++) {
        float *found[2][3];
        options.threads = 1 + i;
        sl_graph *graph = build(M, K, N, i ? SL_OUT_IN : SL_IN_OUT, true,
                                i ? with_gelu : with_relu);
        test_stage stage = test_compile(graph, &options, 2);
        for (int way = 0; way < 2; way++) {
            found[way][0] = add_up(&stage, 2, way, "w");
            for (int k = 1; k < 3; k++)
                found[way][k] = test_get(&stage, SL_PORT_PARAMETER_GRADIENT,
                                         names[k], 0, NULL);
        }
        for (int k = 0; k < 3; k++) {
            assert_memory_equal(found[0][k], found[1][k],
                                sizeof(float) * (k < 2 ? K * N : N));
            free(found[0][k]);
            free(found[1][k]);
        }
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

static void groups_in_bf16_are_the_same_bits(void **state)
{
    (void)state;
    in_bf16(compare_groups);
    in_bf16(compare_whole);
}

static void in_two_is_the_same_bits(void **state)
{
    (void)state;
    test_with_each_way(compare_whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thin_products_match_ref),
        cmocka_unit_test(few_rows_match_ref),
        cmocka_unit_test(products_of_many_rows_match_ref),
        cmocka_unit_test(batches_match_ref),
        cmocka_unit_test(products_of_bf16_match_ref),
        cmocka_unit_test(products_of_bf16_round_to_the_nearest),
        cmocka_unit_test(specialities_can_be_left_out),
        cmocka_unit_test(only_specialities_can_be_left_out),
        cmocka_unit_test(groups_are_the_same_bits),
        cmocka_unit_test(groups_in_bf16_are_the_same_bits),
        cmocka_unit_test(groups_of_many_rows_are_the_same_bits),
        cmocka_unit_test(groups_are_whole),
        cmocka_unit_test(in_two_is_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

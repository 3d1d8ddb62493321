/* SPDX-License-Identifier: MIT
 *
 * Products of the cpu backend: what they keep of every number. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"
#include "tensors.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* x (rows, size) w (size, size) or w', on the backend at hand. */
static float *multiply_by(sl_layout layout, int64_t rows, int64_t size,
                          const float *x, const float *w, int threads)
{
    sl_graph *graph;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *in =
        sl_input(graph, "x", SL_F32, SL_SHAPE(rows, size), SL_NO_GRADIENT);
    sl_tensor *weight = sl_parameter(graph, "w", SL_F32, SL_SHAPE(size, size));
    sl_output(graph, "y", sl_linear(in, weight, NULL, layout), SL_NO_GRADIENT);
    options.threads = threads;
    options.backward = SL_BACKWARD_NONE;
    test_stage stage = test_compile(graph, &options, 1);
    test_put(&stage, SL_PORT_PARAMETER, "w", 0, w);
    test_put(&stage, SL_PORT_INPUT, "x", 0, x);
    test_run(&stage, "F", 0);
    float *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
    test_release(&stage);
    sl_graph_destroy(graph);
    return y;
}

static float *multiply(int64_t rows, int64_t size, const float *x,
                       const float *w, int threads)
{
    return multiply_by(SL_IN_OUT, rows, size, x, w, threads);
}

enum { ROWS = 96, SIZE = 64 };

/* All bits of a number, with exponents of -60 to 60. */
static float any_number(uint64_t *state)
{
    float x = (float)test_random(state);
    x += ldexpf((float)test_random(state), -12); /* Fills the last bits. */
    return ldexpf(x, test_random_int(state, -60, 60));
}

static void identity_keeps_every_bit(void)
{
    static float one[SIZE * SIZE], x[ROWS * SIZE], w[SIZE * SIZE];
    static float rows[ROWS * SIZE];
    uint64_t random = 7;
    for (int i = 0; i < SIZE * SIZE; i++) {
        one[i] = i % SIZE == i / SIZE;
        w[i] = any_number(&random);
    }
    for (int i = 0; i < ROWS * SIZE; i++) {
        x[i] = any_number(&random);
        rows[i] = i % SIZE == i / SIZE % SIZE;
    }
    x[1] = FLT_MAX;
    w[2] = -FLT_MAX;
    float *left = multiply(ROWS, SIZE, x, one, 1);
    float *right = multiply(ROWS, SIZE, rows, w, 2);
    assert_memory_equal(left, x, sizeof x);
    for (int i = 0; i < ROWS; i++)
        assert_memory_equal(right + (size_t)i * SIZE,
                            w + (size_t)(i % SIZE) * SIZE, sizeof *w * SIZE);
    free(left);
    free(right);
}

static void one_times_a_number_is_the_number(void **state)
{
    (void)state;
    test_with_each_way(identity_keeps_every_bit);
}

/* Numbers so small that their last pieces are nothing, beside others: no other
 * number changes. */
static void tiny_harms_nobody(void)
{
    static float x[ROWS * SIZE], w[SIZE * SIZE];
    for (int i = 0; i < ROWS; i++)
        x[i * SIZE] = 1;
    for (int j = 0; j < SIZE; j++) {
        w[j] = 1;
        for (int i = 1; i < SIZE; i++)
            w[i * SIZE + j] = ldexpf(1 + (float)j * 0x1p-23f, -80 - i);
    }
    float *right = multiply(ROWS, SIZE, x, w, 1);
    for (int i = 0; i < ROWS * SIZE; i++)
        assert_true(right[i] == 1);
    free(right);
    for (int i = 0; i < ROWS * SIZE; i++)
        x[i] =
            i % SIZE == 0 ? 1 : ldexpf(1 + (float)i * 0x1p-23f, -80 - i % 64);
    for (int i = 0; i < SIZE * SIZE; i++)
        w[i] = i % SIZE == i / SIZE;
    float *left = multiply(ROWS, SIZE, x, w, 1);
    for (int i = 0; i < ROWS * SIZE; i++)
        assert_true(fabsf(left[i] - x[i]) <= ldexpf(fabsf(x[i]), -6) + FLT_MIN);
    free(left);
}

static void tiny_numbers_harm_nobody(void **state)
{
    (void)state;
    test_with_each_way(tiny_harms_nobody);
}

/* A weight that is read where it lies is read to its end, and no further: it is
 * all that the pool of parameters has. */
static void read_to_the_end(void)
{
    enum { FEW = 5, MOST = 160 };
    static float x[FEW * MOST], w[MOST * MOST];
    uint64_t random = 5;
    for (int size = 4; size <= MOST; size += size < 32 ? 4 : 16) {
        test_fill(&random, SL_F32, w, size * size);
        for (int i = 0; i < FEW * size; i++)
            x[i] = i % size == i / size;
        int rows = size < FEW ? size : FEW;
        float *y = multiply(FEW, size, x, w, 1);
        assert_memory_equal(y, w, sizeof *w * (size_t)(rows * size));
        free(y);
        y = multiply_by(SL_OUT_IN, FEW, size, x, w, 1);
        for (int i = 0; i < rows * size; i++)
            assert_true(y[i] == w[i % size * size + i / size]);
        free(y);
    }
}

static void weights_are_read_to_their_end(void **state)
{
    (void)state;
    test_with_each_set(read_to_the_end);
}

/* What a row becomes does not depend on how many others there are. */
static void shorten(void)
{
    enum { MOST = 8 };
    static float x[MOST * SIZE], w[SIZE * SIZE];
    uint64_t random = 11;
    test_fill(&random, SL_F32, x, MOST * SIZE);
    test_fill(&random, SL_F32, w, SIZE * SIZE);
    float *all = multiply_by(SL_OUT_IN, MOST, SIZE, x, w, 1);
    for (int rows = 1; rows < MOST; rows++) {
        float *y = multiply_by(SL_OUT_IN, rows, SIZE, x, w, 1);
        assert_memory_equal(y, all, sizeof *y * (size_t)(rows * SIZE));
        free(y);
    }
    free(all);
}

static void rows_do_not_depend_on_others(void **state)
{
    (void)state;
    test_with_each_set(shorten);
}

/* No further from the truth than adding up in f32, one after the other. */
static void sum_well(void)
{
    enum { DEPTH = 256 };
    static float x[ROWS * DEPTH], w[DEPTH * DEPTH];
    uint64_t random = 3;
    test_fill(&random, SL_F32, x, ROWS * DEPTH);
    test_fill(&random, SL_F32, w, DEPTH * DEPTH);
    float *y = multiply(ROWS, DEPTH, x, w, 1);
    double ours = 0, plain_error = 0;
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < DEPTH; j++) {
            double exact = 0;
            float sum = 0;
            for (int k = 0; k < DEPTH; k++) {
                float a = x[i * DEPTH + k], b = w[k * DEPTH + j];
                exact += (double)a * b;
                sum += a * b;
            }
            ours += pow(y[i * DEPTH + j] - exact, 2);
            plain_error += pow(sum - exact, 2);
        }
    }
    assert_true(ours <= plain_error);
    free(y);
}

static void sums_are_as_exact_as_f32(void **state)
{
    (void)state;
    test_with_each_way(sum_well);
}

/* The gradient of a bias, over so many rows that a sum in f32 would show it. */
static void sum_many(void)
{
    enum { MANY = 1 << 16, COLUMNS = 19 };
    sl_graph *graph;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(MANY, COLUMNS), SL_NO_GRADIENT);
    sl_tensor *bias = sl_parameter(graph, "bias", SL_F32, SL_SHAPE(COLUMNS));
    sl_loss(graph, sl_mean(sl_mul(sl_add(x, bias), x), SL_ALL));
    test_stage stage = test_compile(graph, &options, 1);
    float *ones = malloc(sizeof *ones * MANY * COLUMNS);
    assert_non_null(ones);
    for (int i = 0; i < MANY * COLUMNS; i++)
        ones[i] = 0.1f;
    test_put(&stage, SL_PORT_INPUT, "x", 0, ones);
    for (int round = 1; round <= 2; round++) {
        test_run(&stage, "FB", 0);
        float *sums =
            test_get(&stage, SL_PORT_PARAMETER_GRADIENT, "bias", 0, NULL);
        for (int c = 0; c < COLUMNS; c++)
            assert_true(fabs(sums[c] * COLUMNS / round - 0.1f) < 1e-7);
        free(sums);
    }
    free(ones);
    test_release(&stage);
    sl_graph_destroy(graph);
}

static void sums_of_many_rows_are_exact(void **state)
{
    (void)state;
    test_with_each_set(sum_many);
}

/* Means of the columns of a few rows: one vector, some, and a part of one. */
static void average(void)
{
    enum { FEW = 7, MOST = 50 };
    static float x[FEW * MOST];
    for (int columns = 1; columns <= MOST; columns++) {
        sl_graph *graph;
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        options.backward = SL_BACKWARD_NONE;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *in = sl_input(graph, "x", SL_F32, SL_SHAPE(FEW, columns),
                                 SL_NO_GRADIENT);
        sl_output(graph, "y", sl_mean(in, 0), SL_NO_GRADIENT);
        test_stage stage = test_compile(graph, &options, 1);
        for (int i = 0; i < FEW * columns; i++)
            x[i] = (float)(i / columns * 8 + i % columns);
        test_put(&stage, SL_PORT_INPUT, "x", 0, x);
        test_run(&stage, "F", 0);
        float *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
        for (int c = 0; c < columns; c++)
            assert_true(y[c] == (float)(24 + c));
        free(y);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

static void means_of_a_few_rows_are_exact(void **state)
{
    (void)state;
    test_with_each_set(average);
}

/* Whatever a NaN's bits are, its row has it, and no other row has; the same of
 * an infinity, which is NaN once it is split. */
static void keep_nan(void)
{
    static const uint32_t bits[] = {0x7fc00000, 0x7fffffff, 0xffffffff,
                                    0x7f800001, 0x7fff8000, 0x7f800000};
    static float x[ROWS * SIZE], w[SIZE * SIZE];
    uint64_t random = 5;
    test_fill(&random, SL_F32, x, ROWS * SIZE);
    test_fill(&random, SL_F32, w, SIZE * SIZE);
    for (int i = 0; i < 6; i++)
        memcpy(&x[(i * 11 + 3) * SIZE + i * 7], &bits[i], sizeof *x);
    float *y = multiply(ROWS, SIZE, x, w, 1);
    for (int i = 0; i < ROWS; i++) {
        bool wrong = i % 11 == 3 && i < 66;
        bool endless = i == 5 * 11 + 3 && !sl__split_choose(1);
        for (int j = 0; j < SIZE; j++) {
            assert_true(!isnan(y[i * SIZE + j]) == (!wrong || endless));
            assert_true(!isinf(y[i * SIZE + j]) == !endless);
        }
    }
    free(y);
}

static void rows_keep_their_nan(void **state)
{
    (void)state;
    test_with_each_way(keep_nan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_times_a_number_is_the_number),
        cmocka_unit_test(tiny_numbers_harm_nobody),
        cmocka_unit_test(weights_are_read_to_their_end),
        cmocka_unit_test(rows_do_not_depend_on_others),
        cmocka_unit_test(sums_are_as_exact_as_f32),
        cmocka_unit_test(sums_of_many_rows_are_exact),
        cmocka_unit_test(means_of_a_few_rows_are_exact),
        cmocka_unit_test(rows_keep_their_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

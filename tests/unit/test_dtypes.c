/* SPDX-License-Identifier: MIT
 *
 * Element types: their properties, casts, and gradients summed in another type
 * than their parameter's. */
#include "tensors.h"

#include "base/device.h"
#include "base/dtype.h"
#include "tensor/program.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static void every_dtype_has_traits(void **state)
{
    (void)state;
    const sl_dtype none = (sl_dtype)99;
    assert_true(sl__is_float(SL_F32) && sl__is_float(SL_F64));
    assert_false(sl__is_float(SL_I64) || sl__is_float(SL_BOOL));
    assert_false(sl__is_float(none));
    assert_int_equal(sl_dtype_bytes(none), 0);
    assert_string_equal(sl_dtype_text(none), "unknown");
    assert_int_equal(sl__accumulator(SL_F32), SL_F32);
    assert_int_equal(sl__accumulator(SL_BOOL), SL_I64);
}

static void memory_refuses_dtypes_it_cannot_add(void **state)
{
    (void)state;
    const sl__buffer_ops *ops = sl__host.buffers;
    int64_t a[2] = {1, 2}, b[2] = {3, 4};
    double sum;
    assert_fails(ops->add(&sl__host, SL_I64, a, b, 2), SL_EINVAL,
                 "a sum: not for i64");
    assert_fails(ops->add(&sl__host, (sl_dtype)99, a, b, 2), SL_EINVAL,
                 "there is no dtype 99");
    assert_fails(ops->square_sum(&sl__host, SL_BOOL, a, 2, &sum), SL_EINVAL,
                 "not for bool");
    assert_fails(ops->convert(&sl__host, SL_F32, a, SL_I64, b, 2), SL_EINVAL,
                 "not for i64");
    assert_true(a[0] == 1 && a[1] == 2);
}

static void casts_round_forward_and_back(void **state)
{
    (void)state;
    static const char *const backends[] = {NULL, "ref"};
    static const double in[3] = {1.0 / 3, -1e-50, 1e300};
    for (int b = 0; b < 2; b++) {
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        sl_graph *graph;
        if (backends[b])
            options.backend = backends[b];
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(3), SL_GRADIENT);
        sl_output(graph, "y", sl_cast(x, SL_F32), SL_GRADIENT);
        test_stage stage = test_compile(graph, &options, 1);
        test_put(&stage, SL_PORT_INPUT, "x", 0, in);
        test_put(&stage, SL_PORT_OUTPUT_GRADIENT, "y", 0,
                 (float[]){0.1f, 2, -3});
        test_run(&stage, "FB", 0);
        float *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
        double *dx = test_get(&stage, SL_PORT_INPUT_GRADIENT, "x", 0, NULL);
        for (int i = 0; i < 3; i++)
            assert_true(y[i] == (float)in[i]);
        assert_true(dx[0] == (double)0.1f && dx[1] == 2 && dx[2] == -3);
        free(y);
        free(dx);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

static void casts_are_between_floats(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(3), SL_NO_GRADIENT);
    assert_ptr_equal((sl_cast)(x, SL_F32), x);
    assert_null((sl_cast)(x, SL_I32));
    assert_fails(sl_graph_status(graph), SL_EINVAL,
                 "to i32, expected f32, f64 or bf16");
    sl_graph_destroy(graph);
}

/* y = w x summed over many microbatches, where f32 loses what f64 keeps. */
static void gradients_may_be_wider_than_parameters(void **state)
{
    (void)state;
    enum { ROUNDS = 1000 };
    static const char *const backends[] = {NULL, "ref"};
    for (int b = 0; b < 2; b++) {
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        sl_graph *graph;
        sl_port port;
        double found[4];
        if (backends[b])
            options.backend = backends[b];
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x =
            sl_input(graph, "x", SL_F32, SL_SHAPE(1, 2), SL_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2, 2));
        w->gradient_dtype = SL_F64;
        sl_output(graph, "y", sl_matmul(x, w), SL_GRADIENT);
        test_stage stage = test_compile(graph, &options, 1);
        assert_ok(
            sl_stage_port(stage.stage, SL_PORT_PARAMETER_GRADIENT, "w", &port));
        assert_int_equal(port.dtype, SL_F64);
        assert_int_equal(port.bytes, 4 * sizeof(double));
        assert_int_equal(sl_stage_plan(stage.stage)->gradient_bytes, 64);
        test_put(&stage, SL_PORT_PARAMETER, "w", 0, (float[]){1, 1, 1, 1});
        test_put(&stage, SL_PORT_INPUT, "x", 0, (float[]){1, 0x1p20f});
        for (int i = 0; i < ROUNDS; i++) {
            /* Once a large one, which leaves f32 no room for the others. */
            float dy = i ? 1 : 0x1p24f;
            test_put(&stage, SL_PORT_OUTPUT_GRADIENT, "y", 0, (float[]){dy, 0});
            test_run(&stage, i % 2 ? "FIW" : "FB", 0);
        }
        assert_ok(sl_memory_read(stage.memory, &port, 0, found, sizeof found));
        assert_true(found[0] == 0x1p24 + ROUNDS - 1 && found[1] == 0);
        assert_true(found[2] == 0x1p20 * (0x1p24 + ROUNDS - 1));
        /* 1 - (2^24 + 999) / 2^24, rounded once. */
        assert_ok(sl_memory_descend(stage.memory, 0x1p-24));
        float *after = test_get(&stage, SL_PORT_PARAMETER, "w", 0, NULL);
        assert_true(after[0] == (float)(1 - (1 + (ROUNDS - 1) * 0x1p-24)));
        free(after);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

/* ---------------------------------------------------------- conversions -- */

/* The value of a half, from the definition of its fields. */
static double value_of(uint16_t half, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = half >> mantissa_bits & ((1 << exponent_bits) - 1);
    double mantissa = half & ((1 << mantissa_bits) - 1);
    double size;
    if (exponent == (1 << exponent_bits) - 1)
        size = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        size = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        size = ldexp(1 + ldexp(mantissa, -mantissa_bits), exponent - bias);
    return half & 0x8000 ? -size : size;
}

static const struct {
    sl_dtype dtype;
    int exponent_bits;
} halves[] = {{SL_BF16, 8}, {SL_F16, 5}};

/* Every half has its value as f32 and f64, and comes back as it was. */
static void halves_keep_their_values(void **state)
{
    (void)state;
    for (int h = 0; h < 2; h++) {
        sl_dtype dtype = halves[h].dtype;
        for (uint32_t i = 0; i < 1 << 16; i++) {
            uint16_t half = (uint16_t)i, back;
            float x;
            double y, expected = value_of(half, halves[h].exponent_bits);
            assert_ok(sl__convert_floats(SL_F32, &x, dtype, &half, 1));
            assert_ok(sl__convert_floats(SL_F64, &y, dtype, &half, 1));
            assert_ok(sl__convert_floats(dtype, &back, SL_F32, &x, 1));
            if (isnan(expected)) {
                assert_true(isnan(x) && isnan(y));
                assert_true(isnan(value_of(back, halves[h].exponent_bits)));
                continue;
            }
            assert_true(x == expected && y == expected);
            assert_int_equal(signbit(x) != 0, half >> 15);
            assert_int_equal(back, half);
        }
    }
}

/* Between neighbouring halves an f32 goes to the nearer one, and from the middle
 * to the even one. */
static void halves_are_the_nearest(void **state)
{
    (void)state;
    for (int h = 0; h < 2; h++) {
        sl_dtype dtype = halves[h].dtype;
        uint16_t largest = dtype == SL_BF16 ? 0x7f7f : 0x7bff;
        for (uint16_t low = 0; low < largest; low++) {
            double a = value_of(low, halves[h].exponent_bits);
            double b = value_of(low + 1, halves[h].exponent_bits);
            float middle = (float)((a + b) / 2);
            float x[] = {nextafterf(middle, 0), middle,
                         nextafterf(middle, INFINITY), -middle};
            uint16_t found[4], even = low % 2 ? low + 1 : low;
            if ((double)middle != (a + b) / 2)
                continue; /* f32 has no middle of bf16's subnormals. */
            assert_ok(sl__convert_floats(dtype, found, SL_F32, x, 4));
            assert_int_equal(found[0], low);
            assert_int_equal(found[1], even);
            assert_int_equal(found[2], low + 1);
            assert_int_equal(found[3], even | 0x8000);
        }
        float huge[] = {FLT_MAX, INFINITY, -INFINITY};
        uint16_t found[3], infinity = largest + 1;
        assert_ok(sl__convert_floats(dtype, found, SL_F32, huge, 3));
        assert_int_equal(found[0], infinity);
        assert_int_equal(found[1], infinity);
        assert_int_equal(found[2], infinity | 0x8000);
    }
}

/* Between any two of them a number that both have stays, and one in the middle
 * of two is rounded once. */
static void any_float_becomes_any(void **state)
{
    (void)state;
    static const sl_dtype floats[] = {SL_F32, SL_F64, SL_BF16, SL_F16};
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            double from[3], to[3];
            for (int i = 0; i < 3; i++)
                sl__set_float(floats[a], from, i, i - 1.5);
            assert_ok(sl__convert_floats(floats[b], to, floats[a], from, 3));
            for (int i = 0; i < 3; i++)
                assert_true(sl__float_at(floats[b], to, i) == i - 1.5);
        }
    }
    const double above = 1 + 0x1p-8 + 0x1p-40,
                 below = 1 + 0x1p-7 + 0x1p-8 - 0x1p-40;
    const double huge[] = {above, below, -above, 1e300,
                           0x1p-8 + 0x1p-19 + 0x1p-50};
    uint16_t found[5];
    assert_ok(sl__convert_floats(SL_BF16, found, SL_F64, huge, 5));
    assert_int_equal(found[0], 0x3f81);
    assert_int_equal(found[1], 0x3f81);
    assert_int_equal(found[2], 0xbf81);
    assert_int_equal(found[3], 0x7f80);
    assert_ok(sl__convert_floats(SL_F16, found, SL_F64, huge, 5));
    assert_int_equal(found[3], 0x7c00);
    assert_int_equal(found[4], 0x1c01);
}

static void graphs_have_no_f16(void **state)
{
    (void)state;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_input(graph, "x", SL_F16, SL_SHAPE(2, 2), SL_GRADIENT);
    assert_fails(sl_graph_status(graph), SL_EINVAL,
                 "f16 is a dtype of files, and not of graphs");
    sl_graph_destroy(graph);
    assert_ok(sl_graph_create(&graph));
    sl_parameter(graph, "w", SL_BF16, SL_SHAPE(2, 2));
    assert_fails(sl_graph_status(graph), SL_EINVAL,
                 "'w' is bf16, expected f32 or f64, in which optimizers work");
    sl_graph_destroy(graph);
    assert_false(sl__is_computed(SL_F16) || sl__is_computed((sl_dtype)99));
    assert_true(sl__is_computed(SL_F32) && sl__is_computed(SL_BOOL));
    uint16_t half = 0;
    int32_t number = 0;
    assert_fails(sl__convert_floats(SL_BF16, &half, SL_I32, &number, 1),
                 SL_EINVAL, "a conversion between floats: not for i32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_keep_their_values),
        cmocka_unit_test(halves_are_the_nearest),
        cmocka_unit_test(any_float_becomes_any),
        cmocka_unit_test(graphs_have_no_f16),
        cmocka_unit_test(every_dtype_has_traits),
        cmocka_unit_test(memory_refuses_dtypes_it_cannot_add),
        cmocka_unit_test(casts_round_forward_and_back),
        cmocka_unit_test(casts_are_between_floats),
        cmocka_unit_test(gradients_may_be_wider_than_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

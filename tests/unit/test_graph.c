/* SPDX-License-Identifier: MIT
 *
 * Building graphs: names, shapes, and refusals that name the line, the op, the
 * operands, what was expected and what was found. */
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sl_graph *graph;
static sl_tensor *x, *w, *v, *ids, *mask, *wide;

static int set_up(void **state)
{
    (void)state;
    assert_ok(sl_graph_create(&graph));
    x = sl_input(graph, "x", SL_F32, SL_SHAPE(8, 16), SL_GRADIENT);
    ids = sl_input(graph, "ids", SL_I64, SL_SHAPE(8), SL_NO_GRADIENT);
    mask = sl_input(graph, "mask", SL_BOOL, SL_SHAPE(8, 16), SL_NO_GRADIENT);
    wide = sl_input(graph, "wide", SL_F64, SL_SHAPE(8, 16), SL_NO_GRADIENT);
    w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(24, 32));
    v = sl_parameter(graph, "v", SL_F32, SL_SHAPE(16));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sl_graph_destroy(graph);
    return 0;
}

/* Asserts that a call returned NULL and why, then makes a new graph. */
#define assert_refused(made, text)                                             \
    do {                                                                       \
        assert_null(made);                                                     \
        assert_fails(sl_graph_status(graph), SL_EINVAL, "test_graph.c:");      \
        assert_fails(sl_graph_status(graph), SL_EINVAL, text);                 \
        tear_down(NULL);                                                       \
        set_up(NULL);                                                          \
    } while (0)

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    assert_refused(sl_linear(x, w, NULL, SL_OUT_IN),
                   "linear: 'w' is (24, 32), expected (24, 16) to fit 'x' of "
                   "(8, 16)");
    assert_refused(sl_linear(x, w, NULL, SL_IN_OUT),
                   "linear: 'w' is (24, 32), expected (16, 32) to fit 'x' of "
                   "(8, 16)");
    assert_refused(sl_linear(x, sl_reshape(w, SL_SHAPE(48, 16)), v, SL_OUT_IN),
                   "linear: 'v' is (16), expected (48) to fit");
    assert_refused(sl_linear(x, v, NULL, SL_OUT_IN),
                   "linear: 'v' is (16), expected (out, in)");
    assert_refused(sl_matmul(x, w), "matmul: 'w' is (24, 32), expected (K, N)");
    assert_refused(sl_matmul(v, w), "'v' is (16), expected (.., M, K)");
    assert_refused(sl_add(x, w), "add: 'w' is (24, 32), expected sizes that "
                                 "are equal or 1 to fit 'x' of (8, 16)");
    assert_refused(sl_layer_norm(x, v, sl_slice(v, 0, 0, 3), 1e-5),
                   "is (3), expected (16) to fit 'x' of (8, 16)");
    assert_refused(sl_layer_norm(x, v, v, -1),
                   "epsilon is -1, expected 0 or more");
    assert_refused(sl_embedding(v, ids), "'v' is (16), expected (rows, width)");
    assert_refused(sl_add_positions(x, w), "expected (at least T, C)");
    assert_refused(sl_causal_attention(x, x, x, 2),
                   "'x' is (8, 16), expected (B, T, C)");
    sl_tensor *q = sl_reshape(x, SL_SHAPE(2, 4, 16));
    assert_refused(sl_causal_attention(q, q, q, 3),
                   "3 heads do not divide the width of 'reshape.");
    assert_refused(sl_mse(x, w), "expected the same shape to fit 'x'");
    assert_refused(sl_cross_entropy(w, ids, -100),
                   "'ids' is (8), expected the sizes of the logits but the "
                   "last to fit 'w' of (24, 32)");
    assert_refused(sl_reshape(x, SL_SHAPE(3, -1)),
                   "'x' is (8, 16), expected as many elements as in (3, -1)");
    assert_refused(sl_reshape(x, SL_SHAPE(-1, -1)), "as many elements");
    assert_refused(sl_reshape(x, 2, NULL), "2 dimensions, expected 0 to 6");
    assert_refused(sl_transpose(x, 0, 2), "has no dimension 2");
    assert_refused(sl_slice(x, 1, 10, 7),
                   "7 from 10 of dimension 1, expected a part of 'x'");
    assert_refused(sl_slice(x, 1, 0, 0), "0 from 0 of dimension 1");
    assert_refused(sl_slice(x, 1, INT64_MAX, INT64_MAX), "expected a part");
    assert_refused(sl_concat((sl_tensor *[]){x, w}, 2, 0),
                   "concat: 'w' is (24, 32), expected (24, 16) to fit 'x'");
    assert_refused(sl_sum(x, 5), "has no dimension 5");
    assert_refused(sl_dropout(x, 1.0), "expected from 0 up to below 1");
    assert_refused(sl_scale(x, 1.0 / 0.0), "the factor is inf");
}

static void split_leaves_no_parts_when_refused(void **state)
{
    (void)state;
    sl_tensor *parts[3] = {x, x, x};
    assert_refused((sl_split(x, 1, 3, parts), parts[2]),
                   "3 parts do not divide dimension 1 of 'x' of (8, 16)");
    assert_null(parts[0]);
}

static void dtypes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    assert_refused(sl_relu(ids), "relu: 'ids' is i64, expected a float");
    assert_refused(sl_add(x, wide), "'wide' is f64, expected f32 as 'x' is");
    assert_refused(sl_add(x, mask), "'mask' is bool, expected a float");
    assert_refused(sl_embedding(w, x), "'x' is f32, expected i32 or i64");
    assert_refused(sl_cross_entropy(x, mask, 0), "expected i32 or i64");
    assert_refused(sl_input(graph, "n", SL_I32, SL_SHAPE(2), SL_GRADIENT),
                   "'n' is i32, expected a float to carry a gradient");
    assert_refused(sl_parameter(graph, "n", SL_I32, SL_SHAPE(2)),
                   "'n' is i32, expected f32 or f64");
    assert_refused(
        sl_input(graph, "n", (sl_dtype)99, SL_SHAPE(2), SL_NO_GRADIENT),
        "dtype 99 does not exist");
}

static void absurd_sizes_are_refused(void **state)
{
    (void)state;
    assert_refused(sl_input(graph, "n", SL_F32, SL_SHAPE(0, 4), SL_GRADIENT),
                   "'n' is (0, 4), expected sizes from 1 up");
    assert_refused(sl_input(graph, "n", SL_F32, SL_SHAPE(-3), SL_GRADIENT),
                   "expected sizes from 1 up");
    assert_refused(
        sl_input(graph, "n", SL_F32, SL_SHAPE(INT64_MAX), SL_GRADIENT),
        "expected at most");
    assert_refused(sl_input(graph, "n", SL_F32,
                            SL_SHAPE((int64_t)1 << 32, (int64_t)1 << 31),
                            SL_GRADIENT),
                   "expected at most");
    assert_refused(sl_input(graph, "n", SL_F32, 7, NULL, SL_GRADIENT),
                   "7 dimensions, expected 0 to 6");
    sl_tensor *tall = sl_parameter(graph, "tall", SL_F32, SL_SHAPE(1 << 30, 1));
    sl_tensor *flat = sl_parameter(graph, "flat", SL_F32, SL_SHAPE(1, 1 << 30));
    assert_refused(sl_add(tall, flat), "expected at most");
    tall = sl_parameter(graph, "tall", SL_F32, SL_SHAPE(1 << 30, 1));
    flat = sl_parameter(graph, "flat", SL_F32, SL_SHAPE(1, 1 << 30));
    assert_refused(sl_matmul(tall, flat), "expected at most");
}

static void a_null_operand_is_told_where_it_stands(void **state)
{
    (void)state;
    assert_refused(sl_add(x, NULL), "add: operand 1 is NULL");
    assert_refused(sl_layer_norm(x, v, NULL, 1e-5),
                   "layer_norm: operand 2 is NULL");
    assert_refused(sl_embedding(w, NULL), "embedding: operand 1 is NULL");
    assert_refused(sl_embedding(NULL, ids), "embedding: operand 0 is NULL");
    assert_null(sl_relu(NULL));
}

static void names_and_scopes(void **state)
{
    (void)state;
    sl_scope_enter(graph, "transformer");
    sl_scope_enter(graph, "h.%d", 3);
    sl_tensor *p = sl_parameter(graph, "weight", SL_F32, SL_SHAPE(2));
    assert_string_equal(sl_tensor_name(p), "transformer.h.3.weight");
    sl_scope_leave(graph);
    sl_tensor *q = sl_parameter(graph, "weight", SL_F32, SL_SHAPE(2));
    assert_string_equal(sl_tensor_name(q), "transformer.weight");
    sl_scope_leave(graph);
    assert_ptr_equal(sl_alias(p, "tied.weight"), p);
    sl_output(graph, "y", sl_add(p, q), SL_GRADIENT);
    sl_stage *stage;
    sl_port port;
    assert_ok(sl_stage_compile(graph, NULL, &stage));
    assert_ok(sl_stage_port(stage, SL_PORT_PARAMETER, "tied.weight", &port));
    assert_string_equal(port.name, "transformer.h.3.weight");
    assert_fails(sl_stage_port(stage, SL_PORT_PARAMETER, "weight", &port),
                 SL_ENOTFOUND, "the stage has no parameter named 'weight'");
    assert_int_equal(sl_stage_port_count(stage, SL_PORT_PARAMETER), 4);
    sl_stage_destroy(stage);
}

static void names_that_cannot_be_are_refused(void **state)
{
    (void)state;
    assert_refused(sl_parameter(graph, "w", SL_F32, SL_SHAPE(2)),
                   "there is already one named 'w'");
    assert_refused(sl_input(graph, "", SL_F32, SL_SHAPE(2), SL_GRADIENT),
                   "a name of 1 to 255 bytes is needed");
    assert_refused(sl_alias(x, "y"), "'x' is no parameter");
    assert_refused(sl_alias(w, "v"), "there is already one named 'v'");
    sl_output(graph, "y", x, SL_GRADIENT);
    sl_output(graph, "y", x, SL_GRADIENT);
    assert_fails(sl_graph_status(graph), SL_EINVAL,
                 "output: there is already one named 'y'");
    tear_down(NULL);
    set_up(NULL);
    sl_scope_leave(graph);
    assert_fails(sl_graph_status(graph), SL_EINVAL, "without having been");
    tear_down(NULL);
    set_up(NULL);
    sl_scope_enter(graph, "%s", "");
    assert_fails(sl_graph_status(graph), SL_EINVAL, "scope:");
}

static void the_first_refusal_stays(void **state)
{
    (void)state;
    sl_tensor *bad = sl_matmul(x, w);
    int line = __LINE__ - 1;
    sl_tensor *more = sl_relu(sl_add(bad, x));
    assert_null(more);
    assert_null(sl_relu(x));
    sl_output(graph, "y", more, SL_GRADIENT);
    sl_stage *stage = NULL;
    char expected[64];
    snprintf(expected, sizeof expected, "test_graph.c:%d: matmul: 'w'", line);
    assert_fails(sl_stage_compile(graph, NULL, &stage), SL_EINVAL, expected);
    assert_null(stage);
}

/* A line that calls a helper names its own line, not the helper's. */
static sl_tensor *helper(sl_tensor *a)
{
    return sl_scale(a, 2);
}

static void a_line_is_its_own(void **state)
{
    (void)state;
    char expected[64];
    snprintf(expected, sizeof expected, "test_graph.c:%d: add: 'scale.",
             __LINE__ + 1);
    sl_add(helper(x), helper(w));
    assert_fails(sl_graph_status(graph), SL_EINVAL, expected);
}

static void graphs_that_cannot_run_are_refused(void **state)
{
    (void)state;
    sl_stage *stage;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    assert_fails(sl_stage_compile(graph, NULL, &stage), SL_EINVAL,
                 "no output and no loss");
    sl_loss(graph, x);
    assert_fails(sl_graph_status(graph), SL_EINVAL,
                 "loss: 'x' is (8, 16) of f32, expected one float");
    tear_down(NULL);
    set_up(NULL);
    sl_output(graph, "y", NULL, SL_GRADIENT);
    assert_fails(sl_graph_status(graph), SL_EINVAL,
                 "output: 'y' is no tensor of this graph");
    tear_down(NULL);
    set_up(NULL);
    sl_output(graph, "y", ids, SL_GRADIENT);
    assert_fails(sl_graph_status(graph), SL_EINVAL, "'y' is i64");
    tear_down(NULL);
    set_up(NULL);
    sl_output(graph, "y", x, SL_GRADIENT);
    options.backend = "rocm";
    assert_fails(sl_stage_compile(graph, &options, &stage), SL_ENOTFOUND,
                 "unknown backend 'rocm'; known ones: cpu, cuda, ref");
    options.backend = "ref";
    options.threads = 2;
    assert_fails(sl_stage_compile(graph, &options, &stage), SL_EINVAL,
                 "2 threads, expected 1 to 1 on ref");
    options.threads = 1;
    options.recompute = true;
    options.backward = SL_BACKWARD_NONE;
    assert_fails(sl_stage_compile(graph, &options, &stage), SL_EINVAL,
                 "recompute asks for a backward");
    options.backward = (sl_backward)9;
    assert_fails(sl_stage_compile(graph, &options, &stage), SL_EINVAL,
                 "unknown kind of backward 9");
    sl_scope_enter(graph, "left.open");
    assert_fails(sl_stage_compile(graph, NULL, &stage), SL_EINVAL,
                 "was not left");
}

static void tensors_of_another_graph_are_refused(void **state)
{
    (void)state;
    sl_graph *other;
    assert_ok(sl_graph_create(&other));
    sl_tensor *z = sl_input(other, "z", SL_F32, SL_SHAPE(8, 16), SL_GRADIENT);
    assert_refused(sl_add(x, z), "'z' is of another graph");
    sl_tensor *m = sl_input(other, "m", SL_BOOL, SL_SHAPE(1), SL_NO_GRADIENT);
    assert_refused(sl_mul(x, m), "'m' is of another graph");
    sl_graph_destroy(other);
}

/* A scalar has no dimensions, and no shape to give. */
static void scalars_are_reshaped_both_ways(void **state)
{
    (void)state;
    sl_tensor *one = sl_reshape(sl_slice(v, 0, 3, 1), 0, NULL);
    assert_int_equal(sl_tensor_dims(one), 0);
    sl_output(graph, "y", sl_reshape(one, SL_SHAPE(1, 1)), SL_GRADIENT);
    test_stage s = test_compile(graph, NULL, 1);
    test_fill_all(&s, 1, 0, 1);
    test_run(&s, "FB", 0);
    test_release(&s);
}

static void ports_are_checked(void **state)
{
    (void)state;
    sl_output(graph, "y", sl_mul(sl_scale(x, 2), mask), SL_GRADIENT);
    test_stage s = test_compile(graph, NULL, 2);
    sl_port port;
    float data[128] = {0};
    assert_ok(sl_stage_port(s.stage, SL_PORT_INPUT, "x", &port));
    assert_int_equal(port.dims, 2);
    assert_int_equal(port.shape[0], 8);
    assert_int_equal(port.shape[1], 16);
    assert_fails(sl_memory_write(s.memory, &port, 0, data, 4), SL_EINVAL,
                 "'x' has 512 bytes, found 4");
    assert_fails(sl_memory_write(s.memory, &port, 2, data, sizeof data),
                 SL_EINVAL, "'x' is not in slot 2 of 2");
    assert_fails(sl_memory_read(s.memory, &port, -1, data, sizeof data),
                 SL_EINVAL, "slot -1");
    assert_fails(sl_stage_port_at(s.stage, SL_PORT_INPUT, 9, &port), SL_EINVAL,
                 "there is no port 9; this kind has 4");
    assert_fails(sl_stage_port(s.stage, (sl_port_kind)77, "x", &port),
                 SL_EINVAL, "no kind of port 77");
    /* A port of another stage, or one that was tampered with. */
    assert_ok(sl_stage_port(s.stage, SL_PORT_INPUT, "x", &port));
    port.bytes = 4096;
    assert_fails(sl_memory_write(s.memory, &port, 0, data, 4096), SL_EINVAL,
                 "'x' has 512 bytes, found 4096");
    sl_memory *memory;
    assert_fails(sl_memory_create(s.stage, 0, &memory), SL_EINVAL, "0 slots");
    test_release(&s);
}

/* Compiling a large model does not fail for lack of memory; allocating it does,
 * with a sentence. */
static void a_plan_larger_than_the_machine_is_only_a_plan(void **state)
{
    (void)state;
    sl_tensor *huge =
        sl_parameter(graph, "huge", SL_F32, SL_SHAPE(1 << 20, 1 << 19));
    sl_output(graph, "y", sl_sum(huge, SL_ALL), SL_NO_GRADIENT);
    sl_stage *stage;
    assert_ok(sl_stage_compile(graph, NULL, &stage));
    assert_true(sl_stage_plan(stage)->parameter_bytes > (int64_t)1 << 40);
    sl_stage_destroy(stage);
    /* More rows than an int can count. */
    sl_tensor *tall = sl_input(graph, "tall", SL_F32,
                               SL_SHAPE((int64_t)1 << 33, 1), SL_GRADIENT);
    sl_tensor *flat = sl_parameter(graph, "flat", SL_F32, SL_SHAPE(1, 1));
    sl_output(graph, "z", sl_matmul(tall, flat), SL_GRADIENT);
    assert_ok(sl_stage_compile(graph, NULL, &stage));
    sl_stage_destroy(stage);
}

#define graph_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        graph_test(shapes_that_do_not_fit_are_refused),
        graph_test(split_leaves_no_parts_when_refused),
        graph_test(dtypes_that_do_not_fit_are_refused),
        graph_test(absurd_sizes_are_refused),
        graph_test(a_null_operand_is_told_where_it_stands),
        graph_test(names_and_scopes),
        graph_test(names_that_cannot_be_are_refused),
        graph_test(the_first_refusal_stays),
        graph_test(a_line_is_its_own),
        graph_test(graphs_that_cannot_run_are_refused),
        graph_test(tensors_of_another_graph_are_refused),
        graph_test(scalars_are_reshaped_both_ways),
        graph_test(ports_are_checked),
        graph_test(a_plan_larger_than_the_machine_is_only_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

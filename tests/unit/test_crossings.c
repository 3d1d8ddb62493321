/* SPDX-License-Identifier: MIT
 *
 * What crosses between stages, and what does not. */
#include "pipeline/cut/model.h"
#include "staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sl_graph *new_graph(void)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    return graph;
}

static sl_tensor *weight(sl_graph *graph, const char *name, int64_t rows,
                         int64_t columns)
{
    return sl_parameter(graph, name, SL_F64, SL_SHAPE(rows, columns));
}

/* Cuts at the marks, compares with the whole, and gives the model. */
static sl_model *cut_and_compare(const sl_graph *graph)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_model *model;
    options.backend = "ref";
    assert_ok(sl_model_cut(graph, NULL, &model));
    test_model_is_sound(model, graph);
    test_stage whole = test_compile(graph, &options, 1);
    test_staged staged = test_stages(model, &options, 1);
    test_fill_all(&whole, 7, 0, 3);
    test_staged_copy(&staged, &whole, 0);
    test_run(&whole, "FB", 0);
    test_staged_forward(&staged, 0);
    test_staged_backward(&staged, "B", 0);
    test_staged_assert(&staged, &whole, 0, 0, 1e-9);
    test_staged_release(&staged);
    test_release(&whole);
    return model;
}

static const sl_crossing *only_crossing(const sl_model *model)
{
    int count;
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    assert_int_equal(count, 1);
    return crossings;
}

/* Views that later stages take of h (4, 6), one way after the other. */
static sl_tensor *view(sl_tensor *h, int way)
{
    switch (way) {
    case 0: return sl_slice(h, 1, 2, 2);
    case 1: return sl_transpose(h, 0, 1);
    case 2: return sl_slice(sl_transpose(h, 0, 1), 0, 1, 2);
    case 3: return sl_reshape(sl_transpose(h, 0, 1), SL_SHAPE(3, 8));
    case 4: return sl_transpose(sl_slice(sl_transpose(h, 0, 1), 0, 1, 2), 0, 1);
    default: return sl_reshape(sl_slice(h, 0, 1, 2), SL_SHAPE(12));
    }
}

static void only_the_part_that_is_read_crosses(void **state)
{
    (void)state;
    const int64_t numbers[] = {8, 24, 8, 24, 8, 12};
    for (int way = 0; way < 6; way++) {
        for (int late = 0; late < 2; late++) {
            sl_graph *graph = new_graph();
            sl_tensor *x =
                sl_input(graph, "x", SL_F64, SL_SHAPE(4, 5), SL_GRADIENT);
            sl_tensor *h = sl_relu(sl_matmul(x, weight(graph, "w", 5, 6)));
            sl_tensor *part = late ? NULL : view(h, way);
            sl_mark_cut(graph);
            part = late ? view(h, way) : part;
            sl_output(graph, "y", sl_scale(part, 2), SL_GRADIENT);
            sl_output(graph, "z", sl_relu(part), SL_GRADIENT);
            sl_model *model = cut_and_compare(graph);
            const sl_crossing *crossing = only_crossing(model);
            assert_int_equal(crossing->bytes, numbers[way] * 8);
            assert_true(crossing->gradient);
            sl_model_destroy(model);
            sl_graph_destroy(graph);
        }
    }
}

/* A part whose layout changes by crossing: attention needs whole rows, and gets
 * them. */
static void parts_get_the_copies_that_kernels_need(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(2, 3, 8), SL_GRADIENT);
    sl_tensor *turned = sl_transpose(sl_relu(x), 1, 2);
    sl_tensor *q = sl_transpose(sl_slice(turned, 1, 2, 4), 1, 2);
    sl_mark_cut(graph);
    sl_output(graph, "y", sl_causal_attention(q, q, q, 2), SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    assert_int_equal(only_crossing(model)->bytes, 2 * 3 * 4 * 8);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* Two parts of one tensor: it crosses whole, once. */
static void two_parts_cross_as_one(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *parts[3];
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(4, 6), SL_GRADIENT);
    sl_tensor *h = sl_relu(x);
    sl_split(h, 1, 3, parts);
    sl_mark_cut(graph);
    sl_output(graph, "y", sl_relu(parts[0]), SL_GRADIENT);
    sl_mark_cut(graph);
    sl_output(graph, "z", sl_relu(parts[2]), SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    const sl_crossing *crossing = only_crossing(model);
    assert_int_equal(crossing->bytes, 24 * 8);
    assert_int_equal(crossing->consumer_count, 2);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* A tensor crosses before it is broadcast, while it is small. */
static void what_is_expanded_crosses_small(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(1, 6), SL_GRADIENT);
    sl_tensor *big = sl_input(graph, "b", SL_F64, SL_SHAPE(9, 6), SL_GRADIENT);
    sl_tensor *h = sl_relu(x);
    sl_mark_cut(graph);
    sl_output(graph, "y", sl_mul(big, h), SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    assert_int_equal(only_crossing(model)->bytes, 6 * 8);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* Views of parameters stay with those who use them. */
static void parameters_do_not_cross(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(4, 6), SL_GRADIENT);
    sl_tensor *w = weight(graph, "w", 6, 6);
    sl_tensor *turned = sl_reshape(sl_transpose(w, 0, 1), SL_SHAPE(36));
    sl_tensor *h = sl_relu(x);
    sl_mark_cut(graph);
    h = sl_matmul(h, sl_reshape(turned, SL_SHAPE(6, 6)));
    sl_output(graph, "y", h, SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    assert_int_equal(only_crossing(model)->bytes, 24 * 8);
    assert_int_equal(sl_model_stage(model, 0)->parameters, 0);
    assert_int_equal(sl_model_stage(model, 1)->parameters, 36);
    int ties;
    sl_model_ties(model, &ties);
    assert_int_equal(ties, 0);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* Names of inputs and outputs that crossings would have taken. */
static void names_do_not_collide(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x =
        sl_input(graph, "relu.0", SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    sl_tensor *more =
        sl_input(graph, "relu.0~", SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    sl_tensor *h = sl_relu(x);
    sl_output(graph, "relu.0~~", h, SL_GRADIENT);
    sl_mark_cut(graph);
    sl_tensor *k = sl_mul(h, more);
    sl_output(graph, "relu.0@2", k, SL_GRADIENT);
    sl_mark_cut(graph);
    sl_output(graph, "x", sl_add(sl_add(k, h), x), SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    int count;
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    assert_int_equal(count, 2);
    assert_string_equal(crossings[0].name, "relu.0~~~");
    const sl_model_port *inputs = sl_model_inputs(model, &count);
    assert_int_equal(count, 2);
    assert_int_equal(inputs[0].stage_count, 2);
    sl_model_outputs(model, &count);
    assert_int_equal(count, 3);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* Names of modules and ops together may be longer than an input's may be. */
static void long_names_cross_too(void **state)
{
    (void)state;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    char name[256];
    memset(name, 'a', 255);
    name[255] = '\0';
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, name, SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    sl_scope_enter(graph, "%.240s", name);
    sl_scope_enter(graph, "%.240s", name);
    sl_tensor *h = sl_relu(x);
    sl_mark_cut(graph);
    h = sl_mul(sl_relu(h), x);
    sl_scope_leave(graph);
    sl_scope_leave(graph);
    sl_output(graph, "y", h, SL_GRADIENT);
    sl_model_destroy(cut_and_compare(graph));
    options.feed = SL_FEED_FIRST;
    sl_model *model;
    assert_ok(sl_model_cut(graph, &options, &model));
    test_model_is_sound(model, graph);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* Inputs stay in the order they were declared in, whoever uses them first. */
static void inputs_keep_their_order(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *late = sl_input(graph, "late", SL_F64, SL_SHAPE(2), SL_GRADIENT);
    sl_tensor *soon = sl_input(graph, "soon", SL_F64, SL_SHAPE(2), SL_GRADIENT);
    sl_tensor *h = sl_relu(soon);
    sl_mark_cut(graph);
    sl_output(graph, "y", sl_mul(h, late), SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    int count;
    const sl_model_port *inputs = sl_model_inputs(model, &count);
    assert_string_equal(inputs[0].name, "late");
    assert_string_equal(inputs[1].name, "soon");
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* An input and an output of one name are two things. */
static void an_output_may_be_named_like_an_input(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "h", SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    sl_tensor *h = sl_relu(x);
    sl_output(graph, "h", h, SL_GRADIENT);
    sl_mark_cut(graph);
    sl_output(graph, "y", sl_mul(h, x), SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    only_crossing(model);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* An unused parameter, with a second name, stays where it was made. */
static void unused_parameters_are_somewhere(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    sl_input(graph, "unused", SL_I32, SL_SHAPE(3), SL_NO_GRADIENT);
    sl_tensor *h = sl_relu(x);
    sl_mark_cut(graph);
    h = sl_scale(h, 2);
    sl_alias(weight(graph, "idle", 3, 3), "idle.too");
    sl_buffer(graph, "idle.buffer", SL_I32, SL_SHAPE(2), NULL);
    sl_matmul(h, weight(graph, "dead", 2, 2)); /* Its result is not used. */
    sl_output(graph, "y", h, SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    assert_int_equal(sl_model_stage(model, 0)->parameters, 0);
    assert_int_equal(sl_model_stage(model, 1)->parameters, 13);
    const char *const names[] = {"idle", "idle.too", "dead"};
    assert_ok(sl_model_check_parameters(model, names, 3));
    int count;
    const sl_model_port *inputs = sl_model_inputs(model, &count);
    assert_int_equal(count, 2);
    assert_string_equal(inputs[1].name, "unused");
    assert_int_equal(inputs[1].stage_count, 0);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* Inputs, parameters and views may be outputs; so may one tensor twice. */
static void anything_may_be_an_output(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    sl_tensor *ids =
        sl_input(graph, "ids", SL_I64, SL_SHAPE(2), SL_NO_GRADIENT);
    sl_tensor *w = weight(graph, "w", 2, 2);
    sl_tensor *h = sl_relu(x);
    sl_mark_cut(graph);
    sl_tensor *k = sl_matmul(h, w);
    sl_output(graph, "x out", x, SL_GRADIENT);
    sl_output(graph, "ids out", ids, SL_NO_GRADIENT);
    sl_output(graph, "w out", sl_transpose(w, 0, 1), SL_GRADIENT);
    sl_output(graph, "h out", sl_slice(h, 0, 1, 1), SL_GRADIENT);
    sl_output(graph, "k out", k, SL_GRADIENT);
    sl_output(graph, "k again", k, SL_NO_GRADIENT);
    sl_tensor *loss = sl_mean(k, SL_ALL);
    sl_loss(graph, loss);
    sl_output(graph, "the loss too", loss, SL_GRADIENT);
    sl_mark_cut(graph);
    sl_output(graph, "z", sl_mul(k, loss), SL_GRADIENT);
    sl_model *model = cut_and_compare(graph);
    int count;
    const sl_model_port *outputs = sl_model_outputs(model, &count);
    assert_int_equal(count, 9);
    int losses = 0;
    for (int i = 0; i < count; i++)
        losses += outputs[i].is_loss;
    assert_int_equal(losses, 1);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* Integers and bools cross as they are, without a gradient. */
static void integers_cross_without_gradients(void **state)
{
    (void)state;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.feed = SL_FEED_FIRST;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(2, 3), SL_GRADIENT);
    sl_tensor *ids =
        sl_input(graph, "ids", SL_I64, SL_SHAPE(2), SL_NO_GRADIENT);
    sl_tensor *mask =
        sl_input(graph, "mask", SL_BOOL, SL_SHAPE(2, 3), SL_NO_GRADIENT);
    sl_tensor *h = sl_mul(x, mask);
    sl_mark_cut(graph);
    h = sl_relu(h);
    sl_mark_cut(graph);
    h = sl_mul(h, mask);
    h = sl_add(h, sl_embedding(weight(graph, "w", 5, 3), ids));
    sl_output(graph, "y", h, SL_GRADIENT);
    sl_model_destroy(cut_and_compare(graph));
    sl_model *model;
    assert_ok(sl_model_cut(graph, &options, &model));
    int count, whole = 0;
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    assert_int_equal(count, 4);
    for (int i = 0; i < count; i++) {
        bool is_float = crossings[i].dtype == SL_F64;
        assert_int_equal(crossings[i].gradient, is_float);
        whole += !is_float;
    }
    assert_int_equal(whole, 2);
    /* All inputs enter at the first stage. */
    const sl_model_port *inputs = sl_model_inputs(model, &count);
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++) {
        assert_int_equal(inputs[i].stage_count, 1);
        assert_int_equal(inputs[i].stages[0], 0);
    }
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* A consumer that does not differentiate sends no gradient back. */
static void gradients_flow_only_where_there_are_some(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(2, 3), SL_NO_GRADIENT);
    sl_tensor *frozen = sl_relu(x);
    sl_tensor *h = sl_matmul(x, weight(graph, "w", 3, 3));
    sl_mark_cut(graph);
    sl_output(graph, "seen", sl_relu(h), SL_NO_GRADIENT);
    sl_mark_cut(graph);
    sl_loss(graph, sl_mean(sl_mul(h, frozen), SL_ALL));
    sl_model *model = cut_and_compare(graph);
    int count, flowing = 0;
    const sl_edge *edges = sl_model_edges(model, &count);
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++) {
        flowing += edges[i].gradient_name != NULL;
        if (edges[i].gradient_name)
            assert_int_equal(edges[i].to, 2);
    }
    assert_int_equal(flowing, 1);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* If any stage has a gradient for an input, the model has one. */
static void an_inputs_gradient_is_anyones(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    for (int s = 0; s < 2; s++) {
        sl_graph *graph = new_graph();
        sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(2),
                                s ? SL_GRADIENT : SL_NO_GRADIENT);
        sl_output(graph, s ? "b" : "a", sl_relu(x), SL_GRADIENT);
        assert_ok(sl_model_add_graph(model, graph));
    }
    assert_ok(sl_model_link(model));
    int count;
    const sl_model_port *inputs = sl_model_inputs(model, &count);
    assert_int_equal(count, 1);
    assert_int_equal(inputs[0].gradient, SL_GRADIENT);
    sl_model_destroy(model);
}

/* Dropouts zero the same elements wherever the model is cut. */
static void dropout_draws_as_uncut(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *h = sl_input(graph, "x", SL_F64, SL_SHAPE(8, 8), SL_GRADIENT);
    for (int i = 0; i < 4; i++) {
        h = sl_dropout(sl_scale(h, 1.5), 0.4);
        if (i < 3)
            sl_mark_cut(graph);
    }
    sl_output(graph, "y", h, SL_GRADIENT);
    sl_model_destroy(cut_and_compare(graph));
    sl_graph_destroy(graph);
}

/* ---------------------------------------------------------------- items -- */

static void assert_items(const sl_graph *graph, const char *expected)
{
    char list[SL__LIST_TEXT];
    sl__items items;
    assert_ok(sl__find_items(graph, false, &items));
    assert_string_equal(sl__list_items(&items, list), expected);
    sl__items_clear(&items);
}

static sl_tensor *product(sl_graph *graph, const char *scope, sl_tensor *x)
{
    sl_scope_enter(graph, "%s", scope);
    x = sl_matmul(x, weight(graph, "w", 2, 2));
    sl_scope_leave(graph);
    return x;
}

/* A list inside of a list stays one item; a module that holds a list is opened;
 * products outside of modules are items, other such ops are not. */
static void items_are_what_people_cut_between(void **state)
{
    (void)state;
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    x = sl_matmul(sl_relu(x), weight(graph, "first", 2, 2));
    sl_scope_enter(graph, "body");
    x = product(graph, "stem", x);
    for (int i = 0; i < 2; i++) {
        sl_scope_enter(graph, "layers.%d", i);
        x = product(graph, "experts.0", x);
        x = sl_relu(product(graph, "experts.1", x));
        sl_scope_leave(graph);
    }
    x = sl_relu(x);
    sl_scope_leave(graph);
    sl_scope_enter(graph, "body"); /* Once more. */
    x = product(graph, "norm", x);
    sl_scope_leave(graph);
    x = sl_matmul(x, weight(graph, "last", 2, 2));
    sl_output(graph, "y", x, SL_GRADIENT);
    assert_items(graph, "relu.0, matmul.1, body.stem, body.layers.0, "
                        "body.layers.1, body.norm, matmul.11");
    sl_graph_destroy(graph);
    /* A module that is called as an op would be. */
    graph = new_graph();
    x = sl_input(graph, "x", SL_F64, SL_SHAPE(2, 2), SL_GRADIENT);
    x = sl_matmul(x, weight(graph, "first", 2, 2));
    x = product(graph, "matmul.0", x);
    sl_output(graph, "y", x, SL_GRADIENT);
    assert_items(graph, "matmul.0, matmul.0");
    sl_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_part_that_is_read_crosses),
        cmocka_unit_test(parts_get_the_copies_that_kernels_need),
        cmocka_unit_test(two_parts_cross_as_one),
        cmocka_unit_test(what_is_expanded_crosses_small),
        cmocka_unit_test(parameters_do_not_cross),
        cmocka_unit_test(names_do_not_collide),
        cmocka_unit_test(long_names_cross_too),
        cmocka_unit_test(inputs_keep_their_order),
        cmocka_unit_test(an_output_may_be_named_like_an_input),
        cmocka_unit_test(unused_parameters_are_somewhere),
        cmocka_unit_test(anything_may_be_an_output),
        cmocka_unit_test(integers_cross_without_gradients),
        cmocka_unit_test(gradients_flow_only_where_there_are_some),
        cmocka_unit_test(an_inputs_gradient_is_anyones),
        cmocka_unit_test(dropout_draws_as_uncut),
        cmocka_unit_test(items_are_what_people_cut_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

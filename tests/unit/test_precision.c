/* SPDX-License-Identifier: MIT
 *
 * What sl_graph_set_precision makes of a graph, and what that costs. */
#include "tensors.h"
#include "tensor/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, WIDTH = 64, BLOCKS = 4 };

static sl_tensor *square(sl_graph *graph, sl_tensor *x)
{
    sl_tensor *weight =
        sl_parameter(graph, "weight", SL_F32, SL_SHAPE(WIDTH, WIDTH));
    sl_tensor *bias = sl_parameter(graph, "bias", SL_F32, SL_SHAPE(WIDTH));
    return sl_linear(x, weight, bias, SL_OUT_IN);
}

/* Blocks of a norm, two products and a residual; the input of the first one
 * carries a gradient or not. */
static sl_graph *make_blocks(sl_dtype precision, sl_gradient gradient,
                             bool shows_output)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(ROWS, WIDTH), gradient);
    for (int i = 0; i < BLOCKS; i++) {
        sl_scope_enter(graph, "h.%d", i);
        sl_tensor *norm = sl_parameter(graph, "norm", SL_F32, SL_SHAPE(WIDTH));
        sl_tensor *h = sl_rms_norm(x, norm, 1e-5);
        sl_scope_enter(graph, "up");
        h = sl_gelu_tanh(square(graph, h));
        sl_scope_leave(graph);
        sl_scope_enter(graph, "down");
        x = sl_add(x, square(graph, h));
        sl_scope_leave(graph);
        sl_scope_leave(graph);
        if (i == 1)
            sl_mark_cut(graph);
    }
    sl_tensor *target = sl_input(graph, "target", SL_F32, SL_SHAPE(ROWS, WIDTH),
                                 SL_NO_GRADIENT);
    if (shows_output)
        sl_output(graph, "y", x, SL_NO_GRADIENT);
    sl_loss(graph, sl_mse(x, target));
    assert_ok(sl_graph_set_precision(graph, precision));
    return graph;
}

static void dtypes_are_assigned(void **state)
{
    (void)state;
    sl_graph *graph = make_blocks(SL_BF16, SL_NO_GRADIENT, true);
    int products = 0, casts = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        const sl__node *node = graph->nodes[i];
        const sl_tensor *result = node->results[0];
        assert_int_equal(node->index, i);
        products += node->op == SL__MATMUL;
        casts += node->op == SL__CAST;
        bool is_loss =
            node->op == SL__MSE || result == graph->outputs.data[0].tensor;
        bool is_weight = result->base->leaf == SL__PARAMETER;
        assert_int_equal(result->dtype,
                         is_loss || is_weight ? SL_F32 : SL_BF16);
        if (node->op == SL__RMS_NORM)
            assert_int_equal(node->results[1]->dtype, SL_F32);
        for (int k = 0; k < node->operand_count; k++)
            assert_true(!node->operands[k]->node ||
                        node->operands[k]->node->index < (int)i);
    }
    assert_int_equal(products, 2 * BLOCKS);
    assert_int_equal(casts, 2); /* of the input, once, and of the output */
    assert_int_equal(graph->loss->dtype, SL_F32);
    for (size_t i = 0; i < graph->module_count; i++) {
        const sl__module *module = &graph->modules[i];
        assert_true(module->first < module->end);
        for (int k = module->first; k < module->end; k++) {
            int at = graph->nodes[k]->module;
            while (at && at != (int)i + 1)
                at = graph->modules[at - 1].parent;
            assert_int_equal(at, i + 1);
        }
    }
    assert_string_equal(
        graph->modules[graph->nodes[graph->marks[0]]->module - 1].name, "h.2");
    /* Once more, nothing is left to do. */
    size_t nodes = graph->node_count;
    assert_ok(sl_graph_set_precision(graph, SL_BF16));
    assert_int_equal(graph->node_count, nodes);
    sl_graph_destroy(graph);
}

static void only_two_precisions_exist(void **state)
{
    (void)state;
    sl_graph *graph = make_blocks(SL_F32, SL_NO_GRADIENT, true);
    assert_fails(sl_graph_set_precision(graph, SL_F16), SL_EINVAL,
                 "precision f16, expected f32 or bf16");
    sl_scope_enter(graph, "open");
    assert_fails(sl_graph_set_precision(graph, SL_BF16), SL_EINVAL, "open");
    char text[80];
    assert_ok(sl_backend_describe("ref", 0, SL_BF16, text, sizeof text));
    assert_string_equal(text, "plain C");
    assert_fails(sl_backend_describe(NULL, 0, SL_I32, text, sizeof text),
                 SL_EINVAL, "precision i32, expected f32 or bf16");
    sl_graph_destroy(graph);
}

/* Gradients have the dtypes of their tensors, whatever they come from. */
static void gradients_have_the_dtypes_of_tensors(void **state)
{
    (void)state;
    sl_graph *graph;
    int found = 0;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(ROWS, WIDTH), SL_NO_GRADIENT);
    sl_tensor *h = sl_gelu_tanh(square(graph, x));
    sl_loss(graph, sl_mean(h, SL_ALL));
    assert_ok(sl_graph_set_precision(graph, SL_BF16));
    test_stage stage = test_compile(graph, NULL, 1);
    const sl_graph *own = stage.stage->graph;
    for (size_t i = 0; i < own->node_count; i++) {
        const sl_tensor *result = own->nodes[i]->results[0];
        if (own->nodes[i]->op == SL__GELU_TANH_GRAD) {
            assert_int_equal(result->dtype, SL_BF16);
            found++;
        }
        if (result && result->base->leaf == SL__PARAMETER_GRADIENT) {
            assert_int_equal(result->dtype, SL_F32);
            found++;
        }
    }
    assert_int_equal(found, 3);
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* The loss is f32 also where it is sent to another stage, as bf16. */
static void a_loss_that_is_sent_is_f32(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        sl_graph *graph;
        float weights[2] = {1, 2}, x[2] = {3, 5};
        assert_ok(sl_graph_create(&graph));
        sl_tensor *in =
            sl_input(graph, "x", SL_F32, SL_SHAPE(1, 2), SL_NO_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2, 1));
        sl_tensor *y = sl_mean(sl_matmul(in, w), SL_ALL);
        if (first)
            sl_loss(graph, y);
        sl_output(graph, "y", y, SL_GRADIENT);
        if (!first)
            sl_loss(graph, y);
        assert_ok(sl_graph_set_precision(graph, SL_BF16));
        assert_int_equal(graph->loss->dtype, SL_F32);
        test_stage stage = test_compile(graph, NULL, 1);
        const sl_run_options options = {0, 2.0 / 3};
        const uint16_t none = 0;
        test_put(&stage, SL_PORT_PARAMETER, "w", 0, weights);
        test_put(&stage, SL_PORT_INPUT, "x", 0, x);
        test_run(&stage, "F", 0);
        test_put(&stage, SL_PORT_OUTPUT_GRADIENT, "y", 0, &none);
        assert_ok(
            sl_stage_run(stage.stage, SL_PROGRAM_B, stage.memory, 0, &options));
        float *dw = test_get(&stage, SL_PORT_PARAMETER_GRADIENT, "w", 0, NULL);
        assert_true(fabs((double)dw[0] - 2) < 0.01);
        assert_true(test_get_float(&stage, SL_PORT_OUTPUT, "loss", 0) == 13);
        free(dw);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

/* What crosses is bf16 also before the first product, and an input that two
 * stages read reaches both as it is. */
static void messages_are_half_also_before_a_product(void **state)
{
    (void)state;
    sl_graph *graph;
    sl_model *model;
    int count;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(4, 8), SL_NO_GRADIENT);
    sl_tensor *bias = sl_parameter(graph, "bias", SL_F32, SL_SHAPE(8));
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(8, 8));
    sl_tensor *h = sl_relu(sl_add(x, bias));
    sl_mark_cut(graph);
    h = sl_matmul(h, w);
    sl_mark_cut(graph);
    h = sl_add(h, sl_concat((sl_tensor *[]){sl_slice(x, 0, 0, 2),
                                            sl_slice(w, 0, 0, 2)},
                            2, 0));
    h = sl_sum(h, 0);
    sl_mark_cut(graph);
    h = sl_matmul(sl_reshape(h, SL_SHAPE(1, 8)), w);
    sl_loss(graph, sl_mean(sl_mul(h, h), SL_ALL));
    assert_ok(sl_graph_set_precision(graph, SL_BF16));
    assert_ok(sl_model_cut(graph, NULL, &model));
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++)
        assert_int_equal(crossings[i].bytes, 2 * (i < 2 ? 4 : 1) * 8);
    sl_model_ties(model, &count);
    assert_int_equal(count, 1);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* ----------------------------------------------------------------- bytes -- */

static int64_t ports_bytes(const sl_stage *stage, sl_port_kind kind)
{
    int64_t bytes = 0;
    for (int i = 0; i < sl_stage_port_count(stage, kind); i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(stage, kind, i, &port));
        bytes += port.bytes;
    }
    return bytes;
}

/* Two stages: what crosses, and what the second one saves, is half of f32's. */
static void bytes_are_half(void **state)
{
    (void)state;
    int64_t messages[2], saved[2], parameters[2], gradients[2];
    for (int half = 0; half < 2; half++) {
        sl_graph *graph =
            make_blocks(half ? SL_BF16 : SL_F32, SL_NO_GRADIENT, false);
        sl_model *model;
        sl_stage *stage;
        int count;
        assert_ok(sl_model_cut(graph, NULL, &model));
        assert_int_equal(sl_model_stage_count(model), 2);
        const sl_crossing *crossings = sl_model_crossings(model, &count);
        assert_int_equal(count, 1);
        messages[half] = crossings[0].bytes;
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        options.backend = "ref";
        assert_ok(sl_model_compile(model, 1, &options, &stage));
        saved[half] = sl_stage_plan(stage)->slab_bytes;
        parameters[half] = ports_bytes(stage, SL_PORT_PARAMETER);
        gradients[half] = ports_bytes(stage, SL_PORT_PARAMETER_GRADIENT);
        sl_stage_destroy(stage);
        sl_model_destroy(model);
        sl_graph_destroy(graph);
    }
    int64_t statistics = 2 * 2 * ROWS * (int64_t)sizeof(float);
    assert_int_equal(messages[0], 2 * messages[1]);
    assert_int_equal(saved[0] - statistics, 2 * (saved[1] - statistics));
    assert_int_equal(parameters[0], parameters[1]);
    assert_int_equal(gradients[0], gradients[1]);
}

/* ----------------------------------------------------------------- casts -- */

/* Every rounding of the kernels is the nearest bf16, ties to even. */
static void compare_casts(void)
{
    enum { COUNT = 1003 };
    static float in[COUNT];
    static uint16_t half[COUNT];
    static const float some[] = {
        1,         1.00390625f, 1.01171875f, -1.01171875f, INFINITY,
        -INFINITY, 3.4e38f,     0,           -0.0f};
    sl_graph *graph;
    uint64_t seed = 5;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(COUNT), SL_NO_GRADIENT);
    sl_output(graph, "y", sl_cast(x, SL_BF16), SL_NO_GRADIENT);
    sl_output(graph, "z", sl_cast(sl_cast(x, SL_BF16), SL_F32), SL_NO_GRADIENT);
    test_stage stage = test_compile(graph, NULL, 1);
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(test_random(&seed) * pow(10, i % 60 - 30));
    memcpy(in, some, sizeof some);
    in[20] = NAN;
    test_put(&stage, SL_PORT_INPUT, "x", 0, in);
    test_run(&stage, "F", 0);
    uint16_t *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
    float *z = test_get(&stage, SL_PORT_OUTPUT, "z", 0, NULL);
    for (int i = 0; i < COUNT; i++) {
        half[i] = sl__to_bf16(in[i]);
        if (i == 20)
            assert_true(isnan(sl__from_bf16(y[i])) && isnan(z[i]));
        else
            assert_true(y[i] == half[i] && z[i] == sl__from_bf16(half[i]));
    }
    free(y);
    free(z);
    test_release(&stage);
    sl_graph_destroy(graph);
}

static void casts_are_to_the_nearest(void **state)
{
    (void)state;
    test_with_each_set(compare_casts);
}

/* ----------------------------------------------------------------- ports -- */

static void ports_convert(void **state)
{
    (void)state;
    enum { COUNT = ROWS * WIDTH };
    sl_graph *graph = make_blocks(SL_BF16, SL_GRADIENT, false);
    test_stage stage = test_compile(graph, NULL, 1);
    sl_port port;
    static float floats[COUNT], back[COUNT];
    static uint16_t halves[COUNT];
    static double doubles[COUNT];
    uint64_t seed = 3;
    test_fill(&seed, SL_F32, floats, COUNT);
    assert_ok(sl_stage_port(stage.stage, SL_PORT_INPUT, "x", &port));
    assert_int_equal(port.dtype, SL_BF16);
    sl_port as = port;
    as.dtype = SL_F32;
    assert_fails(sl_memory_write(stage.memory, &as, 0, floats, sizeof floats),
                 SL_EINVAL, "another stage");
    as.bytes = sizeof floats;
    assert_fails(sl_memory_write(stage.memory, &as, 0, floats, 4), SL_EINVAL,
                 "'x' has 4096 bytes, found 4");
    assert_ok(sl_memory_write(stage.memory, &as, 0, floats, sizeof floats));
    assert_ok(sl_memory_read(stage.memory, &as, 0, back, sizeof back));
    assert_ok(sl_memory_read(stage.memory, &port, 0, halves, sizeof halves));
    as.dtype = SL_F64;
    as.bytes = sizeof doubles;
    assert_ok(sl_memory_read(stage.memory, &as, 0, doubles, sizeof doubles));
    assert_ok(sl_memory_write(stage.memory, &as, 0, doubles, sizeof doubles));
    assert_ok(sl_memory_read(stage.memory, &port, 0, halves, sizeof halves));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(halves[i], sl__to_bf16(floats[i]));
        assert_true(back[i] == sl__from_bf16(halves[i]));
        assert_true(doubles[i] == (double)back[i]);
    }
    as.dtype = SL_I32;
    as.bytes = sizeof floats;
    assert_fails(sl_memory_write(stage.memory, &as, 0, floats, sizeof floats),
                 SL_EINVAL, "another stage");
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* An update keeps packed weights only where all of them are casts, which it has
 * written, and were up to date before it. */
static void updates_keep_casts_packed(void **state)
{
    (void)state;
    sl_graph *graph = make_blocks(SL_BF16, SL_NO_GRADIENT, false);
    test_stage s = test_compile(graph, NULL, 1);
    const sl__packs *packs = &s.stage->packs;
    test_fill_all(&s, 1, 0, 1);
    for (int casts = 0; casts <= (int)packs->count; casts++) {
        bool all = casts == (int)packs->count;
        for (size_t i = 0; i < packs->count; i++)
            packs->data[i]->is_cast = (int)i < casts;
        test_run(&s, "F", 0);
        assert_false(sl__memory_needs_packing(s.memory));
        sl__memory_mark_updated(s.memory);
        assert_int_equal(sl__memory_needs_packing(s.memory), !all);
        sl__memory_mark_written(s.memory);
        sl__memory_mark_updated(s.memory);
        assert_true(sl__memory_needs_packing(s.memory));
    }
    assert_true(packs->count > 1);
    for (size_t i = 0; i < packs->count; i++)
        packs->data[i]->is_cast = false;
    test_release(&s);
    sl_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_are_assigned),
        cmocka_unit_test(only_two_precisions_exist),
        cmocka_unit_test(gradients_have_the_dtypes_of_tensors),
        cmocka_unit_test(a_loss_that_is_sent_is_f32),
        cmocka_unit_test(messages_are_half_also_before_a_product),
        cmocka_unit_test(bytes_are_half),
        cmocka_unit_test(casts_are_to_the_nearest),
        cmocka_unit_test(ports_convert),
        cmocka_unit_test(updates_keep_casts_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * Linear layers of few rows, whose weights are packed into panels: every edge
 * of rows, columns and depth, on every instruction set, against ref. */
#include "tensor/onednn/onednn.h"
#include "tensors.h"

typedef sl_tensor *(*activation_fn)(sl_tensor *x);

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

/* Layers with gradients for weights and inputs alike; a weight is used twice. */
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
    return graph;
}

static void compare(int64_t m, int64_t k, int64_t n, unsigned way)
{
    static const activation_fn activations[] = {plain, with_relu, with_gelu,
                                                with_erf};
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph = build(m, k, n, way % 2 ? SL_OUT_IN : SL_IN_OUT,
                            way / 2 % 2, activations[way / 4 % 4]);
    options.backend = "ref";
    test_stage ref = test_compile(graph, &options, 1);
    options.backend = "onednn";
    options.threads = way % 5 == 0 ? 3 : 1;
    test_stage fast = test_compile(graph, &options, 1);
    test_fill_all(&ref, way + 1, 0, 7);
    test_fill_all(&fast, way + 1, 0, 7);
    test_run(&ref, "FB", 0);
    test_run(&fast, "FIW", 0);
    test_context("%lld x %lld x %lld, way %u, %s", (long long)m, (long long)k,
                 (long long)n, way, sl__vector_choose()->name);
    test_assert_same(&fast, &ref, SL_PORT_OUTPUT, 0, 1e-5);
    test_assert_same(&fast, &ref, SL_PORT_INPUT_GRADIENT, 0, 1e-5);
    test_assert_same(&fast, &ref, SL_PORT_PARAMETER_GRADIENT, 0, 1e-5);
    test_release(&ref);
    test_release(&fast);
    sl_graph_destroy(graph);
}

static void thin_products_match_ref(void **state)
{
    (void)state;
    static const char *const sets[] = {"avx512", "avx2", "portable"};
    static const int rows[] = {1, 2, 3, 5, 7, 8, 9, 16, 23, 64, 65};
    static const int wide[] = {1,  15, 16,  33,  47,  48,  49,
                               95, 97, 130, 192, 511, 513, 1025};
    unsigned way = 0;
    for (int s = 0; s < 3; s++) {
        if (!sl__vector_force(sets[s])) {
            print_message("this CPU has no %s\n", sets[s]);
            continue;
        }
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            for (size_t a = 0; a < sizeof wide / sizeof *wide; a++) {
                size_t b = (a * 7 + r * 3) % (sizeof wide / sizeof *wide);
                compare(rows[r], wide[a], wide[b], way++);
            }
        }
    }
    sl__vector_force(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thin_products_match_ref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

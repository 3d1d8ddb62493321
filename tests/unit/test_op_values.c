/* SPDX-License-Identifier: MIT
 *
 * Ops on values that random tests do not draw: extremes, NaN, long sums, ids
 * and labels out of range, the rate of dropout. */
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Runs one op on four numbers, forward and backward. */
static void run_four(const char *backend, sl_tensor *(*op)(sl_tensor *),
                     const float in[4], float out[4], float slope[4])
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph;
    options.backend = backend;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(4), SL_GRADIENT);
    sl_output(graph, "y", op(x), SL_GRADIENT);
    test_stage stage = test_compile(graph, &options, 1);
    test_put(&stage, SL_PORT_INPUT, "x", 0, in);
    test_put(&stage, SL_PORT_OUTPUT_GRADIENT, "y", 0, (float[]){1, 1, 1, 1});
    test_run(&stage, "FB", 0);
    float *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
    float *dx = test_get(&stage, SL_PORT_INPUT_GRADIENT, "x", 0, NULL);
    memcpy(out, y, 4 * sizeof *out);
    memcpy(slope, dx, 4 * sizeof *slope);
    free(y);
    free(dx);
    test_release(&stage);
    sl_graph_destroy(graph);
}

static void large_values_saturate_and_nan_stays(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    static const float sizes[] = {100, 200, 1e20f, 1e38f};
    sl_tensor *(*const ops[])(sl_tensor *) = {(sl_relu), (sl_gelu_tanh),
                                              (sl_gelu_erf), (sl_silu)};
    for (int b = 0; b < 2; b++) {
        float out[4], slope[4];
        for (size_t k = 0; k < 16; k++) {
            float size = sizes[k / 4];
            const float in[4] = {-size, size, NAN, 0};
            run_four(backends[b], ops[k % 4], in, out, slope);
            assert_true(fabsf(out[0]) < 1e-30f && fabsf(slope[0]) < 1e-30f);
            assert_true(out[1] == size && slope[1] == 1);
            assert_true(isnan(out[2]));
            assert_true(out[3] == 0);
        }
        const float large[4] = {1000, 999, -1000, 0};
        run_four(backends[b], (sl_softmax), large, out, slope);
        assert_true(fabsf(out[0] - 0.731058578f) < 1e-6f);
        assert_true(fabsf(out[1] - 0.268941421f) < 1e-6f);
        assert_true(out[2] < 1e-30f);
    }
}

/* A million rows of 0.1, whose sum one f32 would get wrong. */
static void sums_of_many_rows_are_exact(void **state)
{
    (void)state;
    enum { ROWS = 1000000 };
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph;
    options.backward = SL_BACKWARD_NONE;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(ROWS, 2), SL_NO_GRADIENT);
    sl_output(graph, "rows", sl_mean(x, 0), SL_NO_GRADIENT);
    sl_output(graph, "all", sl_mean(x, SL_ALL), SL_NO_GRADIENT);
    sl_output(graph, "last", sl_mean(sl_reshape(x, SL_SHAPE(2, ROWS)), 1),
              SL_NO_GRADIENT);
    test_stage stage = test_compile(graph, &options, 1);
    float *data = malloc(2 * ROWS * sizeof *data);
    for (size_t i = 0; i < 2 * ROWS; i++)
        data[i] = 0.1f;
    test_put(&stage, SL_PORT_INPUT, "x", 0, data);
    free(data);
    test_run(&stage, "F", 0);
    static const char *const names[] = {"rows", "all", "last"};
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(test_get_float(&stage, SL_PORT_OUTPUT, names[i], 0) -
                          0.1f) < 1e-7f);
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* Through a product, too, where the activation is part of its kernel. */
static void nan_survives_a_fused_activation(void **state)
{
    (void)state;
    sl_tensor *(*const ops[])(sl_tensor *) = {(sl_relu), (sl_gelu_tanh),
                                              (sl_gelu_erf)};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        sl_graph *graph;
        options.backward = SL_BACKWARD_NONE;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x =
            sl_input(graph, "x", SL_F32, SL_SHAPE(2, 2), SL_NO_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2, 2));
        sl_output(graph, "y", ops[i](sl_matmul(x, w)), SL_NO_GRADIENT);
        test_stage stage = test_compile(graph, &options, 1);
        assert_int_equal(sl_stage_plan(stage.stage)->kernels[SL_PROGRAM_F], 1);
        test_put(&stage, SL_PORT_INPUT, "x", 0, (float[]){1, NAN, 1, -3});
        test_put(&stage, SL_PORT_PARAMETER, "w", 0, (float[]){1, 0, 0, 1});
        test_run(&stage, "F", 0);
        float *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
        assert_true(isnan(y[0]) && isnan(y[1]));
        assert_true(y[2] > 0.8f && fabsf(y[3]) < 0.01f);
        free(y);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

/* P Q' and x P' read P in two layouts; both are packed. */
static void one_weight_is_packed_once_per_reading(void **state)
{
    (void)state;
    enum { N = 128 };
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(N, N), SL_GRADIENT);
    sl_tensor *p = sl_parameter(graph, "p", SL_F32, SL_SHAPE(N, N));
    sl_tensor *q = sl_parameter(graph, "q", SL_F32, SL_SHAPE(N, N));
    sl_output(graph, "a", sl_linear(p, q, NULL, SL_OUT_IN), SL_GRADIENT);
    sl_output(graph, "b", sl_linear(x, p, NULL, SL_OUT_IN), SL_GRADIENT);
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    test_stage fast = test_compile(graph, &options, 1);
    options.backend = "ref";
    test_stage ref = test_compile(graph, &options, 1);
    test_fill_all(&fast, 3, 0, 1);
    test_fill_all(&ref, 3, 0, 1);
    test_run(&fast, "FB", 0);
    test_run(&ref, "FB", 0);
    test_context("one weight, two readings");
    test_assert_same(&fast, &ref, SL_PORT_OUTPUT, 0, 1e-5);
    test_assert_same(&fast, &ref, SL_PORT_INPUT_GRADIENT, 0, 1e-5);
    test_assert_same(&fast, &ref, SL_PORT_PARAMETER_GRADIENT, 0, 1e-5);
    test_release(&fast);
    test_release(&ref);
    sl_graph_destroy(graph);
}

static void run_cross_entropy(const char *backend, int32_t labels[2],
                              sl_status expected, float *loss,
                              float gradient[6])
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph;
    options.backend = backend;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 3), SL_GRADIENT);
    sl_tensor *y =
        sl_input(graph, "labels", SL_I32, SL_SHAPE(2), SL_NO_GRADIENT);
    sl_loss(graph, sl_cross_entropy(x, y, -100));
    test_stage stage = test_compile(graph, &options, 1);
    test_put(&stage, SL_PORT_INPUT, "x", 0, (const float[]){1, 2, 3, 4, 5, 6});
    test_put(&stage, SL_PORT_INPUT, "labels", 0, labels);
    assert_int_equal(
        sl_stage_run(stage.stage, SL_PROGRAM_F, stage.memory, 0, NULL),
        expected);
    if (!expected) {
        test_run(&stage, "B", 0);
        /* Labels are checked again if they change after F. */
        test_run(&stage, "F", 0);
        test_put(&stage, SL_PORT_INPUT, "labels", 0, (int32_t[]){1 << 30, 0});
        assert_fails(
            sl_stage_run(stage.stage, SL_PROGRAM_B, stage.memory, 0, NULL),
            SL_EINVAL, "'labels' has 1073741824 at place 0, expected 0 to 2");
        test_put(&stage, SL_PORT_INPUT, "labels", 0, labels);
        test_run(&stage, "FB", 0);
        *loss = test_get_float(&stage, SL_PORT_OUTPUT, "loss", 0);
        float *dx = test_get(&stage, SL_PORT_INPUT_GRADIENT, "x", 0, NULL);
        memcpy(gradient, dx, 6 * sizeof *dx);
        free(dx);
    } else {
        assert_non_null(strstr(sl_error_text(),
                               "'labels' has 3 at place 1, expected 0 to 2"));
    }
    test_release(&stage);
    sl_graph_destroy(graph);
}

static void cross_entropy_ignores_and_refuses_labels(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++) {
        float loss, gradient[6];
        run_cross_entropy(backends[b], (int32_t[]){-100, 2}, SL_OK, &loss,
                          gradient);
        assert_true(fabsf(loss - 0.407605964f) < 1e-6f);
        assert_true(gradient[0] == 0 && gradient[1] == 0 && gradient[2] == 0);
        assert_true(fabsf(gradient[5] + 0.334759023f) < 1e-6f);
        run_cross_entropy(backends[b], (int32_t[]){-100, -100}, SL_OK, &loss,
                          gradient);
        assert_true(isnan(loss));
        for (int i = 0; i < 6; i++)
            assert_true(gradient[i] == 0);
        run_cross_entropy(backends[b], (int32_t[]){0, 3}, SL_EINVAL, &loss,
                          gradient);
    }
}

/* A common offset of all logits does not cost accuracy. */
static void cross_entropy_bears_a_common_offset(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++) {
        float *gradients[2];
        for (int i = 0; i < 2; i++) {
            sl_stage_options options = SL_STAGE_OPTIONS_INIT;
            sl_graph *graph;
            float logits[40];
            int64_t labels[4] = {3, 1, 9, 0};
            options.backend = backends[b];
            for (int k = 0; k < 40; k++) /* eighths, exact beside 8192 */
                logits[k] = (float)(k * 7 % 29) / 8 + (i ? 8192.0f : 0.0f);
            assert_ok(sl_graph_create(&graph));
            sl_tensor *x =
                sl_input(graph, "x", SL_F32, SL_SHAPE(4, 10), SL_GRADIENT);
            sl_tensor *y =
                sl_input(graph, "y", SL_I64, SL_SHAPE(4), SL_NO_GRADIENT);
            sl_loss(graph, sl_cross_entropy(x, y, -100));
            test_stage stage = test_compile(graph, &options, 1);
            test_put(&stage, SL_PORT_INPUT, "x", 0, logits);
            test_put(&stage, SL_PORT_INPUT, "y", 0, labels);
            test_run(&stage, "FB", 0);
            gradients[i] =
                test_get(&stage, SL_PORT_INPUT_GRADIENT, "x", 0, NULL);
            test_release(&stage);
            sl_graph_destroy(graph);
        }
        assert_true(test_distance(gradients[1], gradients[0], 40) < 1e-6);
        free(gradients[0]);
        free(gradients[1]);
    }
}

/* Scores above 512 that differ little: weights in f32 are those in f64, as
 * exactly as the scores are. */
static void attention_bears_large_scores(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "ref", "cpu"};
    enum { COUNT = 2 * 12 * 8 };
    double in[3][COUNT], dy[COUNT];
    float *gradients[3][3];
    uint64_t seed = 5;
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 3; k++) /* exact in f32 */
            in[k][i] =
                test_random_int(&seed, -64, 64) / 64.0 + (k < 2 ? 16 : 0);
        dy[i] = test_random_int(&seed, -64, 64) / 64.0;
    }
    for (int way = 0; way < 3; way++) {
        static const char *const names[] = {"q", "k", "v"};
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        sl_dtype dtype = way == 0 ? SL_F64 : SL_F32;
        sl_tensor *parts[3];
        sl_graph *graph;
        options.backend = backends[way];
        assert_ok(sl_graph_create(&graph));
        for (int k = 0; k < 3; k++)
            parts[k] = sl_input(graph, names[k], dtype, SL_SHAPE(2, 12, 8),
                                SL_GRADIENT);
        sl_output(graph, "y",
                  sl_causal_attention(parts[0], parts[1], parts[2], 2),
                  SL_GRADIENT);
        test_stage stage = test_compile(graph, &options, 1);
        for (int k = 0; k < 4; k++) {
            const double *wide = k < 3 ? in[k] : dy;
            float narrow[COUNT];
            for (int i = 0; i < COUNT; i++)
                narrow[i] = (float)wide[i];
            test_put(&stage, k < 3 ? SL_PORT_INPUT : SL_PORT_OUTPUT_GRADIENT,
                     k < 3 ? names[k] : "y", 0,
                     way == 0 ? (const void *)wide : narrow);
        }
        test_run(&stage, "FB", 0);
        for (int k = 0; k < 3; k++) {
            void *found =
                test_get(&stage, SL_PORT_INPUT_GRADIENT, names[k], 0, NULL);
            gradients[way][k] = malloc(COUNT * sizeof(float));
            for (int i = 0; i < COUNT; i++)
                gradients[way][k][i] = way == 0 ? (float)((double *)found)[i]
                                                : ((float *)found)[i];
            free(found);
        }
        test_release(&stage);
        sl_graph_destroy(graph);
    }
    for (int way = 1; way < 3; way++) {
        /* ref has its scores in double. */
        double bound = way == 1 ? 1e-6 : 1e-4;
        double off = test_distance(gradients[way][2], gradients[0][2], COUNT);
        if (!(off < bound))
            fail_msg("%s: the gradient of v is off by %g", backends[way], off);
    }
    for (int i = 0; i < 9; i++)
        free(gradients[i / 3][i % 3]);
}

static void embedding_refuses_ids_outside_the_table(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++) {
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        sl_graph *graph;
        options.backend = backends[b];
        assert_ok(sl_graph_create(&graph));
        sl_tensor *ids =
            sl_input(graph, "ids", SL_I64, SL_SHAPE(2), SL_NO_GRADIENT);
        sl_tensor *table = sl_parameter(graph, "wte", SL_F32, SL_SHAPE(5, 3));
        sl_output(graph, "y", sl_embedding(table, ids), SL_GRADIENT);
        test_stage stage = test_compile(graph, &options, 1);
        const int64_t wrong[][2] = {{0, 5}, {-1, 0}, {0, INT64_MAX}};
        for (int i = 0; i < 3; i++) {
            test_put(&stage, SL_PORT_INPUT, "ids", 0, wrong[i]);
            assert_fails(
                sl_stage_run(stage.stage, SL_PROGRAM_F, stage.memory, 0, NULL),
                SL_EINVAL, "expected 0 to 4");
        }
        /* After a failed F there is no backward. */
        assert_fails(
            sl_stage_run(stage.stage, SL_PROGRAM_B, stage.memory, 0, NULL),
            SL_EINVAL, "comes before its F");
        test_put(&stage, SL_PORT_INPUT, "ids", 0, (const int64_t[]){4, 0});
        test_run(&stage, "FB", 0);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

/* --------------------------------------------------------------- dropout -- */

static float *drop(const char *backend, uint64_t seed, size_t count)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_run_options run = SL_RUN_OPTIONS_INIT;
    sl_graph *graph;
    options.backend = backend;
    options.backward = SL_BACKWARD_NONE;
    run.seed = seed;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE((int64_t)count), SL_NO_GRADIENT);
    sl_output(graph, "y", sl_dropout(x, 0.25), SL_NO_GRADIENT);
    test_stage stage = test_compile(graph, &options, 1);
    float *ones = malloc(count * sizeof *ones);
    for (size_t i = 0; i < count; i++)
        ones[i] = 1;
    test_put(&stage, SL_PORT_INPUT, "x", 0, ones);
    free(ones);
    assert_ok(sl_stage_run(stage.stage, SL_PROGRAM_F, stage.memory, 0, &run));
    float *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
    test_release(&stage);
    sl_graph_destroy(graph);
    return y;
}

static void dropout_keeps_its_rate_and_follows_the_seed(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    float *a = drop("ref", 7, COUNT), *b = drop("cpu", 7, COUNT);
    float *c = drop("ref", 8, COUNT);
    size_t kept = 0, same = 0;
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(a[i] == 0 || fabsf(a[i] - 4.0f / 3) < 1e-6f);
        assert_true((a[i] == 0) == (b[i] == 0));
        kept += a[i] != 0;
        same += (a[i] == 0) == (c[i] == 0);
    }
    /* Within five standard deviations of 75%, and of 62.5% for two that are
     * independent. */
    assert_true(fabs((double)kept / COUNT - 0.75) < 5 * 0.00137);
    assert_true(fabs((double)same / COUNT - 0.625) < 5 * 0.00154);
    free(a);
    free(b);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_values_saturate_and_nan_stays),
        cmocka_unit_test(sums_of_many_rows_are_exact),
        cmocka_unit_test(nan_survives_a_fused_activation),
        cmocka_unit_test(one_weight_is_packed_once_per_reading),
        cmocka_unit_test(cross_entropy_ignores_and_refuses_labels),
        cmocka_unit_test(cross_entropy_bears_a_common_offset),
        cmocka_unit_test(attention_bears_large_scores),
        cmocka_unit_test(embedding_refuses_ids_outside_the_table),
        cmocka_unit_test(dropout_keeps_its_rate_and_follows_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

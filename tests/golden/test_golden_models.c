/* SPDX-License-Identifier: MIT
 *
 * The models of PyTorch's pipelining tests and a GPT-2, against outputs, losses,
 * gradients and training curves read off PyTorch. Every size comes from the
 * files; SLUICE_GOLDENS names another folder of the same files. */
#include "golden_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE       1e-5
#define CURVE_TOLERANCE 1e-4
/* Of bf16; that of curves is relative. */
#define HALF_TOLERANCE       2e-2
#define HALF_CURVE_TOLERANCE 5e-3

/* ------------------------------------------------------------- comparing -- */

static float *missing_biases; /* of GPT-2's golden, found once */

static int load_whole(const test_stage *stage, const sl_safetensors *file)
{
    return golden_load_whole(stage, file, missing_biases);
}

static void compare(const test_stage *stage, sl_port_kind kind,
                    const char *name, const sl_safetensor *golden,
                    const char *what, double tolerance)
{
    size_t count;
    float *ours = test_get(stage, kind, name, 0, &count);
    float *theirs = golden_floats(golden);
    assert_int_equal(count * sizeof *ours, golden->bytes);
    double distance = test_distance(ours, theirs, count);
    if (!(distance <= tolerance))
        fail_msg("%s: %s is off by %g", what, golden->name, distance);
    free(ours);
    free(theirs);
}

static int compare_all(const test_stage *stage, const sl_safetensors *file,
                       const char *what, double tolerance)
{
    int gradients = 0;
    for (size_t i = 0; i < sl_safetensors_count(file); i++) {
        const sl_safetensor *tensor = sl_safetensors_at(file, i);
        if (strncmp(tensor->name, "grad.", 5) == 0) {
            compare(stage, SL_PORT_PARAMETER_GRADIENT, tensor->name + 5, tensor,
                    what, tolerance);
            gradients++;
        } else if (strcmp(tensor->name, "output") == 0 ||
                   strcmp(tensor->name, "logits") == 0 ||
                   strcmp(tensor->name, "loss") == 0) {
            compare(stage, SL_PORT_OUTPUT, tensor->name, tensor, what,
                    tolerance);
        }
    }
    return gradients;
}

static const struct {
    const char *name;
    const char *programs;
    sl_stage_options options;
} ways[] = {
    {"ref, F B", "FB", {"ref", 1, SL_BACKWARD_ANY, false, 0, -1, false}},
    {"ref, F I W", "FIW", {"ref", 1, SL_BACKWARD_SPLIT, false, 0, -1, false}},
    {"ref, recompute, F B", "FB", {"ref", 1, SL_BACKWARD_WHOLE, true, 0, -1, false}},
    {"cpu, F B", "FB", {"cpu", 1, SL_BACKWARD_WHOLE, false, 0, -1, false}},
    {"cpu, F I W", "FIW", {"cpu", 1, SL_BACKWARD_ANY, false, 0, -1, false}},
    {"cpu, recompute, F I W", "FIW", {"cpu", 1, SL_BACKWARD_ANY, true, 0, -1, false}},
    {"cpu, 2 threads, F B", "FB", {"cpu", 2, SL_BACKWARD_ANY, false, 0, -1, false}},
};
enum { WAY_COUNT = sizeof ways / sizeof *ways };

static void compare_models(sl_dtype dtype, double tolerance)
{
    for (int m = 0; m < GOLDEN_MODELS; m++) {
        sl_safetensors *file = golden_open(golden_models[m].name);
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        golden_models[m].build(graph, file, dtype);
        assert_ok(sl_graph_status(graph));
        for (int w = 0; w < WAY_COUNT; w++) {
            char what[128];
            snprintf(what, sizeof what, "%s, %s, %s", golden_models[m].name,
                     sl_dtype_text(dtype), ways[w].name);
            test_stage stage = test_compile(graph, &ways[w].options, 1);
            assert_true(load_whole(&stage, file) >= 4);
            test_run(&stage, ways[w].programs, 0);
            assert_true(compare_all(&stage, file, what, tolerance) >= 4);
            test_release(&stage);
        }
        sl_graph_destroy(graph);
        sl_safetensors_close(file);
    }
}

static void models_match_pytorch_in_every_way(void **state)
{
    (void)state;
    compare_models(SL_F32, TOLERANCE);
    compare_models(SL_BF16, HALF_TOLERANCE);
}

/* -------------------------------------------------------------- training -- */

/* A parameter in the hands of an optimizer. */
typedef struct trained {
    sl_port port, gradient_port;
    size_t count;
    float *value, *gradient, *first, *second;
} trained;

static trained *take_parameters(const test_stage *stage, int *count)
{
    *count = sl_stage_port_count(stage->stage, SL_PORT_PARAMETER);
    trained *list = calloc((size_t)*count, sizeof *list);
    for (int i = 0; i < *count; i++) {
        trained *t = &list[i];
        assert_ok(
            sl_stage_port_at(stage->stage, SL_PORT_PARAMETER, i, &t->port));
        assert_ok(sl_stage_port_at(stage->stage, SL_PORT_PARAMETER_GRADIENT, i,
                                   &t->gradient_port));
        t->count = (size_t)t->port.bytes / sizeof(float);
        t->value = test_get(stage, SL_PORT_PARAMETER, t->port.name, 0, NULL);
        t->gradient = calloc(t->count, sizeof(float));
        t->first = calloc(t->count, sizeof(float));
        t->second = calloc(t->count, sizeof(float));
    }
    return list;
}

static void free_parameters(trained *list, int count)
{
    for (int i = 0; i < count; i++) {
        free(list[i].value);
        free(list[i].gradient);
        free(list[i].first);
        free(list[i].second);
    }
    free(list);
}

static void sgd(trained *t)
{
    for (size_t i = 0; i < t->count; i++) {
        t->first[i] = 0.9f * t->first[i] + t->gradient[i];
        t->value[i] -= 0.05f * t->first[i];
    }
}

static void adamw(trained *t, int step, double clip)
{
    double bias1 = 1 - pow(0.9, step), bias2 = 1 - pow(0.95, step);
    for (size_t i = 0; i < t->count; i++) {
        double g = t->gradient[i] * clip;
        t->first[i] = (float)(0.9 * t->first[i] + 0.1 * g);
        t->second[i] = (float)(0.95 * t->second[i] + 0.05 * g * g);
        double update =
            t->first[i] / bias1 / (sqrt(t->second[i] / bias2) + 1e-8);
        t->value[i] = (float)(t->value[i] * (1 - 1e-3 * 0.1) - 1e-3 * update);
    }
}

static void update(const test_stage *stage, trained *list, int count, int step,
                   bool is_adamw)
{
    double norm = 0;
    for (int i = 0; i < count; i++) {
        trained *t = &list[i];
        assert_ok(sl_memory_read(stage->memory, &t->gradient_port, 0,
                                 t->gradient, (size_t)t->port.bytes));
        for (size_t k = 0; k < t->count; k++)
            norm += (double)t->gradient[k] * t->gradient[k];
    }
    double clip = fmin(1, 1 / (sqrt(norm) + 1e-6));
    for (int i = 0; i < count; i++) {
        if (is_adamw)
            adamw(&list[i], step, clip);
        else
            sgd(&list[i]);
        assert_ok(sl_memory_write(stage->memory, &list[i].port, 0,
                                  list[i].value, (size_t)list[i].port.bytes));
    }
    sl_memory_zero_gradients(stage->memory);
}

static void train(const sl_graph *graph, const sl_safetensors *file,
                  const sl_safetensors *curves, const char *curve,
                  const char *backend, bool split, bool half)
{
    const sl_safetensor *golden = golden_find(curves, curve);
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = backend;
    test_stage stage = test_compile(graph, &options, 1);
    float *losses = golden_floats(golden);
    load_whole(&stage, file);
    int count;
    trained *list = take_parameters(&stage, &count);
    for (int step = 0; step < golden->shape[0]; step++) {
        test_run(&stage, split ? "FIW" : "FB", 0);
        float loss = test_get_float(&stage, SL_PORT_OUTPUT, "loss", 0);
        double off = fabs((double)loss - losses[step]);
        if (half && !(off <= HALF_CURVE_TOLERANCE * losses[step]))
            fail_msg("%s in bf16 on %s: step %d has loss %.7g, expected %.7g",
                     curve, backend, step, loss, losses[step]);
        if (!half && !(off <= CURVE_TOLERANCE))
            fail_msg("%s on %s: step %d has loss %.7g, expected %.7g", curve,
                     backend, step, loss, losses[step]);
        update(&stage, list, count, step + 1, curve[0] == 'a');
    }
    free_parameters(list, count);
    free(losses);
    test_release(&stage);
}

static void train_model(const golden_model *model, sl_dtype dtype, int *curves)
{
    static const char *const names[] = {"sgd_losses", "adamw_losses",
                                        "adamw_losses_bf16"};
    bool half = dtype == SL_BF16;
    sl_safetensors *file = golden_open(model->name);
    sl_safetensors *autocast = golden_open("gpt2_bf16");
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    model->build(graph, file, dtype);
    for (int c = 0; c < 3; c++) {
        bool is_gpt2 = model == &golden_models[GOLDEN_MODELS - 1];
        const sl_safetensors *from = c < 2 ? file : autocast;
        if ((c == 2 && !(half && is_gpt2)) ||
            !sl_safetensors_find(from, names[c]))
            continue;
        train(graph, file, from, names[c], "ref", true, half);
        train(graph, file, from, names[c], "cpu", false, half);
        ++*curves;
    }
    sl_graph_destroy(graph);
    sl_safetensors_close(file);
    sl_safetensors_close(autocast);
}

static void training_follows_pytorch(void **state)
{
    (void)state;
    int curves = 0;
    for (int m = 0; m < GOLDEN_MODELS; m++) {
        train_model(&golden_models[m], SL_F32, &curves);
        train_model(&golden_models[m], SL_BF16, &curves);
    }
    assert_true(curves > 2 * GOLDEN_MODELS);
}

static int set_up(void **state)
{
    (void)state;
    sl_safetensors *file = golden_open("gpt2");
    missing_biases = golden_missing_biases(file);
    sl_safetensors_close(file);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(missing_biases);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_match_pytorch_in_every_way),
        cmocka_unit_test(training_follows_pytorch),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

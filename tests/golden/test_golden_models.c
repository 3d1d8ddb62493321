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

/* ------------------------------------------------------------- comparing -- */

static float *missing_biases; /* of GPT-2's golden, found once */

static int load_whole(const test_stage *stage, const sl_safetensors *file)
{
    return golden_load_whole(stage, file, missing_biases);
}

static void compare(const test_stage *stage, sl_port_kind kind,
                    const char *name, const sl_safetensor *golden,
                    const char *what)
{
    size_t count;
    float *ours = test_get(stage, kind, name, 0, &count);
    float *theirs = golden_floats(golden);
    assert_int_equal(count * sizeof *ours, golden->bytes);
    double distance = test_distance(ours, theirs, count);
    if (!(distance <= TOLERANCE))
        fail_msg("%s: %s is off by %g", what, golden->name, distance);
    free(ours);
    free(theirs);
}

static int compare_all(const test_stage *stage, const sl_safetensors *file,
                       const char *what)
{
    int gradients = 0;
    for (size_t i = 0; i < sl_safetensors_count(file); i++) {
        const sl_safetensor *tensor = sl_safetensors_at(file, i);
        if (strncmp(tensor->name, "grad.", 5) == 0) {
            compare(stage, SL_PORT_PARAMETER_GRADIENT, tensor->name + 5, tensor,
                    what);
            gradients++;
        } else if (strcmp(tensor->name, "output") == 0 ||
                   strcmp(tensor->name, "logits") == 0 ||
                   strcmp(tensor->name, "loss") == 0) {
            compare(stage, SL_PORT_OUTPUT, tensor->name, tensor, what);
        }
    }
    return gradients;
}

static const struct {
    const char *name;
    const char *programs;
    sl_stage_options options;
} ways[] = {
    {"ref, F B", "FB", {"ref", 1, SL_BACKWARD_ANY, false, 0}},
    {"ref, F I W", "FIW", {"ref", 1, SL_BACKWARD_SPLIT, false, 0}},
    {"ref, recompute, F B", "FB", {"ref", 1, SL_BACKWARD_WHOLE, true, 0}},
    {"cpu, F B", "FB", {"cpu", 1, SL_BACKWARD_WHOLE, false, 0}},
    {"cpu, F I W", "FIW", {"cpu", 1, SL_BACKWARD_ANY, false, 0}},
    {"cpu, recompute, F I W", "FIW", {"cpu", 1, SL_BACKWARD_ANY, true, 0}},
    {"cpu, 2 threads, F B", "FB", {"cpu", 2, SL_BACKWARD_ANY, false, 0}},
};
enum { WAY_COUNT = sizeof ways / sizeof *ways };

static void models_match_pytorch_in_every_way(void **state)
{
    (void)state;
    for (int m = 0; m < GOLDEN_MODELS; m++) {
        sl_safetensors *file = golden_open(golden_models[m].name);
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        golden_models[m].build(graph, file, SL_F32);
        assert_ok(sl_graph_status(graph));
        for (int w = 0; w < WAY_COUNT; w++) {
            char what[128];
            snprintf(what, sizeof what, "%s, %s", golden_models[m].name,
                     ways[w].name);
            test_stage stage = test_compile(graph, &ways[w].options, 1);
            assert_true(load_whole(&stage, file) >= 4);
            test_run(&stage, ways[w].programs, 0);
            assert_true(compare_all(&stage, file, what) >= 4);
            test_release(&stage);
        }
        sl_graph_destroy(graph);
        sl_safetensors_close(file);
    }
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
                  const char *curve, const char *backend, bool split)
{
    const sl_safetensor *golden = sl_safetensors_find(file, curve);
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
        if (!(off <= CURVE_TOLERANCE))
            fail_msg("%s on %s: step %d has loss %.7g, expected %.7g", curve,
                     backend, step, loss, losses[step]);
        update(&stage, list, count, step + 1, curve[0] == 'a');
    }
    free_parameters(list, count);
    free(losses);
    test_release(&stage);
}

static void training_follows_pytorch(void **state)
{
    (void)state;
    int curves = 0;
    for (int m = 0; m < GOLDEN_MODELS; m++) {
        sl_safetensors *file = golden_open(golden_models[m].name);
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        golden_models[m].build(graph, file, SL_F32);
        static const char *const names[] = {"sgd_losses", "adamw_losses"};
        for (int c = 0; c < 2; c++) {
            if (!sl_safetensors_find(file, names[c]))
                continue;
            train(graph, file, names[c], "ref", true);
            train(graph, file, names[c], "cpu", false);
            curves++;
        }
        sl_graph_destroy(graph);
        sl_safetensors_close(file);
    }
    assert_true(curves >= GOLDEN_MODELS);
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

/* SPDX-License-Identifier: MIT
 *
 * The goldens of GPT-2 may lack the values of `attn.c_attn.bias`, which are not
 * zero. They can be recovered. The third of a bias that belongs to the keys
 * shifts all scores of a row equally and changes nothing; the rest is the one
 * vector that gives the golden logits. We solve for it with Gauss-Newton:
 * residuals by `ref` in double precision, slopes by central differences on
 * `cpu`. A direction that adds the same to a whole row of the residual stream
 * is lost in the next norm, and so are more directions with one head or few
 * tokens; so some gradients of the attention, which depend on them, count as
 * residuals too. Only a sample of the numbers is used: the others, and all
 * other gradients, remain as the test. */
#include "golden_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bias_fit {
    test_stage exact, fast;
    const sl_safetensors *file;
    int layers;
    int width; /* C: a bias is (3 C) */
    size_t unknowns, residuals, stride;
    double *values; /* the unknowns */
    double *slopes; /* (residuals, unknowns) */
    double *factor; /* (unknowns, unknowns) */
} bias_fit;

void golden_bias_name(int layer, char out[64])
{
    snprintf(out, 64, "transformer.h.%d.attn.c_attn.bias", layer);
}

static double read_one(const void *data, sl_dtype dtype, size_t i)
{
    return dtype == SL_F64 ? ((const double *)data)[i]
                           : (double)((const float *)data)[i];
}

/* Adds the difference of a port to its golden, over the golden's norm. */
static size_t add_residuals(const bias_fit *fit, const test_stage *stage,
                            sl_port_kind kind, const char *name,
                            const char *golden_name, size_t stride, double *out)
{
    const sl_safetensor *tensor = golden_find(fit->file, golden_name);
    float *golden = golden_floats(tensor);
    sl_port port;
    size_t count, used = 0;
    assert_ok(sl_stage_port(stage->stage, kind, name, &port));
    void *ours = test_get(stage, kind, name, 0, &count);
    double norm = 0;
    for (size_t i = 0; i < count; i++)
        norm += (double)golden[i] * golden[i];
    for (size_t i = 0; i < count; i += stride, used++) {
        if (out)
            out[used] =
                (read_one(ours, port.dtype, i) - golden[i]) / sqrt(norm);
    }
    free(ours);
    free(golden);
    return used;
}

/* Writes the biases that the unknowns stand for. */
static void put_biases(const bias_fit *fit, const test_stage *stage,
                       const double *values)
{
    size_t width = (size_t)fit->width;
    double *wide = calloc(3 * width, sizeof *wide);
    float *narrow = calloc(3 * width, sizeof *narrow);
    for (int layer = 0; layer < fit->layers; layer++) {
        char name[64];
        golden_bias_name(layer, name);
        for (size_t i = 0; i < 2 * width; i++) {
            size_t place = i < width ? i : i + width;
            wide[place] = values[(size_t)layer * 2 * width + i];
            narrow[place] = (float)wide[place];
        }
        test_put(stage, SL_PORT_PARAMETER, name, 0,
                 stage == &fit->exact ? (void *)wide : (void *)narrow);
    }
    free(wide);
    free(narrow);
}

static size_t compute_residuals(const bias_fit *fit, const test_stage *stage,
                                const double *values, double *out)
{
    /* Gradients of each layer that count, and every how many-th of them. */
    static const struct {
        const char *name;
        size_t stride;
    } gradients[] = {
        {"c_proj.weight", 5}, {"c_attn.weight", 7}, {"c_attn.bias", 1}};
    put_biases(fit, stage, values);
    sl_memory_zero_gradients(stage->memory);
    test_run(stage, "FB", 0);
    size_t at = add_residuals(fit, stage, SL_PORT_OUTPUT, "logits", "logits",
                              fit->stride, out);
    for (int i = 0; i < 3 * fit->layers; i++) {
        char name[80];
        snprintf(name, sizeof name, "grad.transformer.h.%d.attn.%s", i / 3,
                 gradients[i % 3].name);
        at +=
            add_residuals(fit, stage, SL_PORT_PARAMETER_GRADIENT, name + 5,
                          name, gradients[i % 3].stride, out ? out + at : NULL);
    }
    return at;
}

static void compute_slopes(bias_fit *fit)
{
    const double step = 0.01;
    double *up = malloc(fit->residuals * sizeof *up);
    double *down = malloc(fit->residuals * sizeof *down);
    for (size_t u = 0; u < fit->unknowns; u++) {
        double value = fit->values[u];
        fit->values[u] = value + step;
        compute_residuals(fit, &fit->fast, fit->values, up);
        fit->values[u] = value - step;
        compute_residuals(fit, &fit->fast, fit->values, down);
        fit->values[u] = value;
        for (size_t r = 0; r < fit->residuals; r++)
            fit->slopes[r * fit->unknowns + u] = (up[r] - down[r]) / (2 * step);
    }
    free(up);
    free(down);
}

/* The Cholesky factor of J'J with something added to its diagonal. */
static void factorise(bias_fit *fit, double damping)
{
    size_t n = fit->unknowns;
    double *square = fit->factor, largest = 0;
    memset(square, 0, n * n * sizeof *square);
    for (size_t r = 0; r < fit->residuals; r++) {
        const double *row = fit->slopes + r * n;
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k <= i; k++)
                square[i * n + k] += row[i] * row[k];
        }
    }
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, square[i * n + i]);
    for (size_t j = 0; j < n; j++) {
        double *row = square + j * n;
        row[j] += damping * largest;
        for (size_t i = 0; i < j; i++) {
            double sum = row[i];
            for (size_t k = 0; k < i; k++)
                sum -= row[k] * square[i * n + k];
            row[i] = sum / square[i * n + i];
            row[j] -= row[i] * row[i];
        }
        assert_true(row[j] > 0);
        row[j] = sqrt(row[j]);
    }
}

/* One step of Gauss-Newton; returns its length. */
static double improve(bias_fit *fit, const double *residuals)
{
    size_t n = fit->unknowns;
    const double *factor = fit->factor;
    double *g = calloc(n, sizeof *g), length = 0;
    for (size_t r = 0; r < fit->residuals; r++) {
        for (size_t i = 0; i < n; i++)
            g[i] += fit->slopes[r * n + i] * residuals[r];
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            g[i] -= factor[i * n + k] * g[k];
        g[i] /= factor[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++)
            g[i] -= factor[k * n + i] * g[k];
        g[i] /= factor[i * n + i];
    }
    for (size_t i = 0; i < n; i++) {
        fit->values[i] -= g[i];
        length += g[i] * g[i];
    }
    free(g);
    return sqrt(length);
}

static test_stage compile_as(const sl_safetensors *file, sl_dtype dtype,
                             const char *backend)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    golden_models[GOLDEN_MODELS - 1].build(graph, file, dtype);
    options.backend = backend;
    options.backward = SL_BACKWARD_WHOLE;
    test_stage stage = test_compile(graph, &options, 1);
    sl_graph_destroy(graph);
    golden_load(&stage, file);
    return stage;
}

static void run_fit(bias_fit *fit)
{
    fit->residuals = compute_residuals(fit, &fit->exact, fit->values, NULL);
    double *residuals = malloc(fit->residuals * sizeof *residuals);
    fit->slopes = malloc(fit->residuals * fit->unknowns * sizeof *fit->slopes);
    fit->factor = malloc(fit->unknowns * fit->unknowns * sizeof *fit->factor);
    double length = 1;
    for (int i = 0; i < 24 && length > 1e-9; i++) {
        compute_residuals(fit, &fit->exact, fit->values, residuals);
        if (i < 4) {
            compute_slopes(fit);
            factorise(fit, i < 2 ? 1e-6 : 1e-11);
        }
        length = improve(fit, residuals);
    }
    free(residuals);
    free(fit->slopes);
    free(fit->factor);
}

float *golden_missing_biases(const sl_safetensors *file)
{
    char name[64], golden[80];
    golden_bias_name(0, name);
    snprintf(golden, sizeof golden, "param.%s", name);
    if (sl_safetensors_find(file, golden))
        return NULL;
    snprintf(golden, sizeof golden, "grad.%s", name);
    const sl_safetensor *gradient = golden_find(file, golden);
    bias_fit fit = {.file = file, .width = (int)gradient->shape[0] / 3};
    for (;; fit.layers++) {
        golden_bias_name(fit.layers, name);
        snprintf(golden, sizeof golden, "grad.%s", name);
        if (!sl_safetensors_find(file, golden))
            break;
    }
    fit.unknowns = (size_t)fit.layers * 2 * (size_t)fit.width;
    const sl_safetensor *logits = golden_find(file, "logits");
    fit.stride = logits->bytes / sizeof(float) / (4 * fit.unknowns) | 1;
    fit.exact = compile_as(file, SL_F64, "ref");
    fit.fast = compile_as(file, SL_F32, "cpu");
    fit.values = calloc(fit.unknowns, sizeof *fit.values);
    run_fit(&fit);
    size_t width = (size_t)fit.width;
    float *biases = calloc((size_t)fit.layers * 3 * width, sizeof *biases);
    for (size_t i = 0; i < fit.unknowns; i++) {
        size_t layer = i / (2 * width), at = i % (2 * width);
        biases[layer * 3 * width + (at < width ? at : at + width)] =
            (float)fit.values[i];
    }
    free(fit.values);
    test_release(&fit.exact);
    test_release(&fit.fast);
    return biases;
}

int golden_load_whole(const test_stage *stage, const sl_safetensors *file,
                      const float *missing_biases)
{
    int loaded = golden_load(stage, file);
    sl_port port;
    char name[64];
    for (int layer = 0; missing_biases; layer++) {
        golden_bias_name(layer, name);
        if (sl_stage_port(stage->stage, SL_PORT_PARAMETER, name, &port))
            break;
        test_put(stage, SL_PORT_PARAMETER, name, 0,
                 missing_biases + layer * port.shape[0]);
    }
    return loaded;
}

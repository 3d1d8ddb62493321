/* SPDX-License-Identifier: MIT
 *
 * The models of PyTorch's pipelining tests and a GPT-2, against outputs, losses,
 * gradients and training curves read off PyTorch. Every size comes from the
 * files; SLUICE_GOLDENS names another folder of the same files. */
#include "tensors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE       1e-5
#define CURVE_TOLERANCE 1e-4

/* ---------------------------------------------------------------- files -- */

static sl_safetensors *open_golden(const char *model)
{
    const char *folder = getenv("SLUICE_GOLDENS");
    char path[1024];
    sl_safetensors *file;
    snprintf(path, sizeof path, "%s/models/%s.safetensors",
             folder ? folder : "goldens", model);
    assert_ok(sl_safetensors_open(path, &file));
    return file;
}

static const sl_safetensor *find(const sl_safetensors *file, const char *name)
{
    const sl_safetensor *tensor = sl_safetensors_find(file, name);
    if (!tensor)
        fail_msg("the golden has no '%s'", name);
    return tensor;
}

/* ---------------------------------------------------------------- models -- */

/* The float type that models are built in. */
static sl_dtype real = SL_F32;

/* A parameter under the open scopes, shaped like its golden, or like the golden
 * of its gradient where its value was left out. */
static sl_tensor *parameter(sl_graph *graph, const sl_safetensors *file,
                            const char *scope, const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "param.%s%s", scope, name);
    const sl_safetensor *tensor = sl_safetensors_find(file, full);
    if (!tensor) {
        snprintf(full, sizeof full, "grad.%s%s", scope, name);
        tensor = find(file, full);
    }
    return sl_parameter(graph, name, real, tensor->rank, tensor->shape);
}

static sl_tensor *input(sl_graph *graph, const sl_safetensors *file,
                        const char *golden, const char *name,
                        sl_gradient gradient)
{
    const sl_safetensor *tensor = find(file, golden);
    return sl_input(graph, name, tensor->dtype == SL_F32 ? real : tensor->dtype,
                    tensor->rank, tensor->shape, gradient);
}

static sl_tensor *linear(sl_graph *graph, const sl_safetensors *file,
                         const char *scope, const char *name, sl_tensor *x,
                         sl_layout layout)
{
    char inner[200];
    snprintf(inner, sizeof inner, "%s%s.", scope, name);
    sl_scope_enter(graph, "%s", name);
    sl_tensor *weight = parameter(graph, file, inner, "weight");
    sl_tensor *bias = parameter(graph, file, inner, "bias");
    sl_scope_leave(graph);
    return sl_linear(x, weight, bias, layout);
}

static void finish(sl_graph *graph, const sl_safetensors *file,
                   sl_tensor *output)
{
    sl_tensor *target = input(graph, file, "target", "target", SL_NO_GRADIENT);
    sl_output(graph, "output", output, SL_NO_GRADIENT);
    sl_loss(graph, sl_mse(output, target));
}

static void build_example_code(sl_graph *graph, const sl_safetensors *file)
{
    sl_tensor *x = input(graph, file, "input.x", "input.x", SL_GRADIENT);
    sl_tensor *y = input(graph, file, "input.y", "input.y", SL_GRADIENT);
    sl_tensor *mm1 = parameter(graph, file, "", "mm_param1");
    sl_tensor *mm2 = parameter(graph, file, "", "mm_param2");
    sl_tensor *skip = sl_matmul(x, mm1);
    sl_tensor *h = sl_relu(sl_add(skip, y));
    h = linear(graph, file, "", "lin1", sl_matmul(h, mm1), SL_OUT_IN);
    h = sl_matmul(sl_add(sl_relu(h), skip), mm2);
    finish(graph, file, sl_relu(linear(graph, file, "", "lin2", h, SL_OUT_IN)));
}

static void build_multi_mlp(sl_graph *graph, const sl_safetensors *file)
{
    sl_tensor *h = input(graph, file, "input.x", "input.x", SL_GRADIENT);
    sl_tensor *y = input(graph, file, "input.y", "input.y", SL_NO_GRADIENT);
    for (int i = 0;; i++) {
        char scope[32], probe[64];
        snprintf(scope, sizeof scope, "mlp%d.", i);
        snprintf(probe, sizeof probe, "param.%snet1.weight", scope);
        if (!sl_safetensors_find(file, probe))
            break;
        sl_scope_enter(graph, "mlp%d", i);
        h = sl_relu(linear(graph, file, scope, "net1", h, SL_OUT_IN));
        h = linear(graph, file, scope, "net2", h, SL_OUT_IN);
        sl_scope_leave(graph);
    }
    finish(graph, file, sl_sub(h, y));
}

static void build_alias(sl_graph *graph, const sl_safetensors *file)
{
    sl_tensor *x = input(graph, file, "input.x", "input.x", SL_GRADIENT);
    sl_tensor *y = input(graph, file, "input.y", "input.y", SL_NO_GRADIENT);
    sl_tensor *mm = parameter(graph, file, "", "mm_param1");
    sl_alias(mm, "mm_param2");
    sl_tensor *h = sl_relu(sl_add(sl_matmul(x, mm), y));
    h = sl_relu(linear(graph, file, "", "lin1", h, SL_OUT_IN));
    h = sl_matmul(h, mm);
    finish(graph, file, sl_relu(linear(graph, file, "", "lin2", h, SL_OUT_IN)));
}

static sl_tensor *norm(sl_graph *graph, const sl_safetensors *file,
                       const char *scope, const char *name, sl_tensor *x,
                       double epsilon)
{
    char inner[200];
    snprintf(inner, sizeof inner, "%s%s.", scope, name);
    sl_scope_enter(graph, "%s", name);
    sl_tensor *weight = parameter(graph, file, inner, "weight");
    sl_tensor *bias = parameter(graph, file, inner, "bias");
    sl_scope_leave(graph);
    return sl_layer_norm(x, weight, bias, epsilon);
}

static sl_tensor *block(sl_graph *graph, const sl_safetensors *file, int index,
                        sl_tensor *x, int heads, double epsilon)
{
    char scope[64], inner[96];
    sl_tensor *parts[3];
    snprintf(scope, sizeof scope, "transformer.h.%d.", index);
    sl_scope_enter(graph, "h.%d", index);
    sl_tensor *h = norm(graph, file, scope, "ln_1", x, epsilon);
    snprintf(inner, sizeof inner, "%sattn.", scope);
    sl_scope_enter(graph, "attn");
    h = linear(graph, file, inner, "c_attn", h, SL_IN_OUT);
    sl_split(h, -1, 3, parts);
    h = sl_causal_attention(parts[0], parts[1], parts[2], heads);
    x = sl_add(x, linear(graph, file, inner, "c_proj", h, SL_IN_OUT));
    sl_scope_leave(graph);
    h = norm(graph, file, scope, "ln_2", x, epsilon);
    snprintf(inner, sizeof inner, "%smlp.", scope);
    sl_scope_enter(graph, "mlp");
    h = sl_gelu_tanh(linear(graph, file, inner, "c_fc", h, SL_IN_OUT));
    x = sl_add(x, linear(graph, file, inner, "c_proj", h, SL_IN_OUT));
    sl_scope_leave(graph);
    sl_scope_leave(graph);
    return x;
}

static void build_gpt2(sl_graph *graph, const sl_safetensors *file)
{
    json_t *config =
        json_loads(sl_safetensors_metadata(file, "config"), 0, NULL);
    assert_non_null(config);
    int layers = (int)json_integer_value(json_object_get(config, "n_layer"));
    int heads = (int)json_integer_value(json_object_get(config, "n_head"));
    double epsilon =
        json_number_value(json_object_get(config, "layer_norm_epsilon"));
    json_decref(config);
    sl_tensor *ids =
        input(graph, file, "input_ids", "input_ids", SL_NO_GRADIENT);
    sl_tensor *labels = input(graph, file, "labels", "labels", SL_NO_GRADIENT);
    sl_scope_enter(graph, "transformer");
    sl_scope_enter(graph, "wte");
    sl_tensor *wte = parameter(graph, file, "transformer.wte.", "weight");
    sl_scope_leave(graph);
    sl_scope_enter(graph, "wpe");
    sl_tensor *wpe = parameter(graph, file, "transformer.wpe.", "weight");
    sl_scope_leave(graph);
    sl_tensor *h = sl_add_positions(sl_embedding(wte, ids), wpe);
    for (int i = 0; i < layers; i++)
        h = block(graph, file, i, h, heads, epsilon);
    h = norm(graph, file, "transformer.", "ln_f", h, epsilon);
    sl_scope_leave(graph);
    sl_alias(wte, "lm_head.weight");
    sl_tensor *logits = sl_linear(h, wte, NULL, SL_OUT_IN);
    sl_output(graph, "logits", logits, SL_NO_GRADIENT);
    sl_loss(graph, sl_cross_entropy(logits, labels, -100));
}

static const struct {
    const char *name;
    void (*build)(sl_graph *graph, const sl_safetensors *file);
} models[] = {{"ExampleCode", build_example_code},
              {"MultiMLP", build_multi_mlp},
              {"ModelWithParamAlias", build_alias},
              {"gpt2", build_gpt2}};
enum { MODEL_COUNT = sizeof models / sizeof *models };

/* ------------------------------------------------------------- comparing -- */

/* An aligned copy; the caller frees. */
static float *floats(const sl_safetensor *tensor)
{
    float *copy = malloc(tensor->bytes);
    memcpy(copy, tensor->data, tensor->bytes);
    return copy;
}

/* Writes floats to a port of either float type. */
static void put_floats(const test_stage *stage, sl_port_kind kind,
                       const char *name, const void *data)
{
    sl_port port;
    assert_ok(sl_stage_port(stage->stage, kind, name, &port));
    if (port.dtype != SL_F64) {
        test_put(stage, kind, name, 0, data);
        return;
    }
    size_t count = (size_t)port.bytes / sizeof(double);
    double *wide = malloc((size_t)port.bytes);
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)data + i * sizeof value, sizeof value);
        wide[i] = value;
    }
    test_put(stage, kind, name, 0, wide);
    free(wide);
}

/* Loads parameters and inputs; returns how many parameters. */
static int load(const test_stage *stage, const sl_safetensors *file)
{
    int loaded = 0;
    for (size_t i = 0; i < sl_safetensors_count(file); i++) {
        const sl_safetensor *tensor = sl_safetensors_at(file, i);
        sl_port port;
        if (strncmp(tensor->name, "param.", 6) == 0) {
            put_floats(stage, SL_PORT_PARAMETER, tensor->name + 6,
                       tensor->data);
            loaded++;
        } else if (!sl_stage_port(stage->stage, SL_PORT_INPUT, tensor->name,
                                  &port)) {
            put_floats(stage, SL_PORT_INPUT, tensor->name, tensor->data);
        }
    }
    return loaded;
}

/* ------------------------------------------------------- missing biases -- */

/* The goldens of GPT-2 may lack the values of `attn.c_attn.bias`, which are not
 * zero. They can be had back: the third of them that belongs to the keys moves
 * all scores of a row alike and changes nothing, and the rest is the one vector
 * that makes the golden logits. We solve for it with Gauss-Newton: residuals by
 * `ref` in double precision, slopes by central differences on `onednn`. A
 * direction that adds the same to a whole row of the residual stream is lost in
 * the next norm, so the gradients of `attn.c_proj.weight`, which see it, count
 * too. Only every so many-th logit is used; all others, and all other
 * gradients, stay to be compared with. */
typedef struct bias_fit {
    test_stage exact, fast;
    const sl_safetensors *file;
    int layers;
    int width; /* C: a bias is (3 C) */
    size_t unknowns, residuals, stride;
    double *values; /* the unknowns */
    double *slopes; /* (residuals, unknowns) */
} bias_fit;

static void bias_name(int layer, char out[64])
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
    const sl_safetensor *tensor = find(fit->file, golden_name);
    float *golden = floats(tensor);
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

static size_t compute_residuals(const bias_fit *fit, const test_stage *stage,
                                const double *values, double *out)
{
    size_t at = 0;
    sl_dtype dtype = stage == &fit->exact ? SL_F64 : SL_F32;
    for (int layer = 0; layer < fit->layers; layer++) {
        char name[64];
        double wide[4096] = {0};
        float narrow[4096] = {0};
        bias_name(layer, name);
        for (int i = 0; i < 2 * fit->width; i++) {
            int place = i < fit->width ? i : i + fit->width;
            wide[place] = values[layer * 2 * fit->width + i];
            narrow[place] = (float)wide[place];
        }
        test_put(stage, SL_PORT_PARAMETER, name, 0,
                 dtype == SL_F64 ? (void *)wide : (void *)narrow);
    }
    sl_memory_zero_gradients(stage->memory);
    test_run(stage, "FB", 0);
    at += add_residuals(fit, stage, SL_PORT_OUTPUT, "logits", "logits",
                        fit->stride, out);
    for (int layer = 0; layer < fit->layers; layer++) {
        char name[80];
        snprintf(name, sizeof name, "grad.transformer.h.%d.attn.c_proj.weight",
                 layer);
        at += add_residuals(fit, stage, SL_PORT_PARAMETER_GRADIENT, name + 5,
                            name, 5, out ? out + at : NULL);
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

/* Solves (J'J) x = J'r by Cholesky, in place of `square`; x replaces g. */
static void solve(double *square, double *g, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double *row = square + j * n;
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
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            g[i] -= square[i * n + k] * g[k];
        g[i] /= square[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++)
            g[i] -= square[k * n + i] * g[k];
        g[i] /= square[i * n + i];
    }
}

/* One step of Gauss-Newton; returns its length. */
static double improve(bias_fit *fit, const double *residuals, double damping)
{
    size_t n = fit->unknowns;
    double *square = calloc(n * n, sizeof *square);
    double *g = calloc(n, sizeof *g);
    double largest = 0, length = 0;
    for (size_t r = 0; r < fit->residuals; r++) {
        const double *row = fit->slopes + r * n;
        for (size_t i = 0; i < n; i++) {
            g[i] += row[i] * residuals[r];
            for (size_t k = 0; k <= i; k++)
                square[i * n + k] += row[i] * row[k];
        }
    }
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, square[i * n + i]);
    for (size_t i = 0; i < n; i++)
        square[i * n + i] += damping * largest;
    solve(square, g, n);
    for (size_t i = 0; i < n; i++) {
        fit->values[i] -= g[i];
        length += g[i] * g[i];
    }
    free(square);
    free(g);
    return sqrt(length);
}

static test_stage compile_as(const sl_safetensors *file, sl_dtype dtype,
                             const char *backend,
                             void (*build)(sl_graph *, const sl_safetensors *))
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    real = dtype;
    build(graph, file);
    real = SL_F32;
    options.backend = backend;
    options.backward = SL_BACKWARD_WHOLE;
    test_stage stage = test_compile(graph, &options, 1);
    sl_graph_destroy(graph);
    load(&stage, file);
    return stage;
}

static void run_fit(bias_fit *fit)
{
    fit->residuals = compute_residuals(fit, &fit->exact, fit->values, NULL);
    double *residuals = malloc(fit->residuals * sizeof *residuals);
    fit->slopes = malloc(fit->residuals * fit->unknowns * sizeof *fit->slopes);
    double length = 1;
    for (int i = 0; i < 24 && length > 1e-9; i++) {
        compute_residuals(fit, &fit->exact, fit->values, residuals);
        if (i < 4)
            compute_slopes(fit);
        length = improve(fit, residuals, i < 2 ? 1e-6 : 1e-11);
    }
    free(residuals);
    free(fit->slopes);
}

/* What the golden lacks, by layer (3 C floats each); NULL where it lacks
 * nothing. The caller frees. */
static float *find_missing_biases(const sl_safetensors *file)
{
    char name[64], golden[80];
    bias_name(0, name);
    snprintf(golden, sizeof golden, "param.%s", name);
    if (sl_safetensors_find(file, golden))
        return NULL;
    snprintf(golden, sizeof golden, "grad.%s", name);
    const sl_safetensor *gradient = find(file, golden);
    bias_fit fit = {.file = file, .width = (int)gradient->shape[0] / 3};
    assert_true(3 * fit.width <= 4096);
    for (;; fit.layers++) {
        bias_name(fit.layers, name);
        snprintf(golden, sizeof golden, "grad.%s", name);
        if (!sl_safetensors_find(file, golden))
            break;
    }
    fit.unknowns = (size_t)fit.layers * 2 * (size_t)fit.width;
    const sl_safetensor *logits = find(file, "logits");
    fit.stride = logits->bytes / sizeof(float) / (8 * fit.unknowns) | 1;
    fit.exact = compile_as(file, SL_F64, "ref", build_gpt2);
    fit.fast = compile_as(file, SL_F32, "onednn", build_gpt2);
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

static float *missing_biases; /* of GPT-2's golden, found once */

/* Loads a model, with what its golden lacks. */
static int load_whole(const test_stage *stage, const sl_safetensors *file)
{
    int loaded = load(stage, file);
    sl_port port;
    char name[64];
    for (int layer = 0; missing_biases; layer++) {
        bias_name(layer, name);
        if (sl_stage_port(stage->stage, SL_PORT_PARAMETER, name, &port))
            break;
        test_put(stage, SL_PORT_PARAMETER, name, 0,
                 missing_biases + layer * port.shape[0]);
    }
    return loaded;
}

static void compare(const test_stage *stage, sl_port_kind kind,
                    const char *name, const sl_safetensor *golden,
                    const char *what)
{
    size_t count;
    float *ours = test_get(stage, kind, name, 0, &count);
    float *theirs = floats(golden);
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
    {"ref, F B", "FB", {"ref", 1, SL_BACKWARD_ANY, false}},
    {"ref, F I W", "FIW", {"ref", 1, SL_BACKWARD_SPLIT, false}},
    {"ref, recompute, F B", "FB", {"ref", 1, SL_BACKWARD_WHOLE, true}},
    {"onednn, F B", "FB", {"onednn", 1, SL_BACKWARD_WHOLE, false}},
    {"onednn, F I W", "FIW", {"onednn", 1, SL_BACKWARD_ANY, false}},
    {"onednn, recompute, F I W", "FIW", {"onednn", 1, SL_BACKWARD_ANY, true}},
    {"onednn, 2 threads, F B", "FB", {"onednn", 2, SL_BACKWARD_ANY, false}},
};
enum { WAY_COUNT = sizeof ways / sizeof *ways };

static void models_match_pytorch_in_every_way(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        sl_safetensors *file = open_golden(models[m].name);
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        models[m].build(graph, file);
        assert_ok(sl_graph_status(graph));
        for (int w = 0; w < WAY_COUNT; w++) {
            char what[128];
            snprintf(what, sizeof what, "%s, %s", models[m].name, ways[w].name);
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
    float *losses = floats(golden);
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
    for (int m = 0; m < MODEL_COUNT; m++) {
        sl_safetensors *file = open_golden(models[m].name);
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        models[m].build(graph, file);
        static const char *const names[] = {"sgd_losses", "adamw_losses"};
        for (int c = 0; c < 2; c++) {
            if (!sl_safetensors_find(file, names[c]))
                continue;
            train(graph, file, names[c], "ref", true);
            train(graph, file, names[c], "onednn", false);
            curves++;
        }
        sl_graph_destroy(graph);
        sl_safetensors_close(file);
    }
    assert_true(curves >= MODEL_COUNT);
}

static int set_up(void **state)
{
    (void)state;
    sl_safetensors *file = open_golden("gpt2");
    missing_biases = find_missing_biases(file);
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

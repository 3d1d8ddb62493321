/* SPDX-License-Identifier: MIT
 *
 * See golden_models.h. */
#include "golden_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- files -- */

sl_safetensors *golden_open(const char *model)
{
    const char *folder = getenv("SLUICE_GOLDENS");
    char path[1024];
    sl_safetensors *file;
    snprintf(path, sizeof path, "%s/models/%s.safetensors",
             folder ? folder : "goldens", model);
    assert_ok(sl_safetensors_open(path, &file));
    return file;
}

const sl_safetensor *golden_find(const sl_safetensors *file, const char *name)
{
    const sl_safetensor *tensor = sl_safetensors_find(file, name);
    if (!tensor)
        fail_msg("the golden has no '%s'", name);
    return tensor;
}

/* ---------------------------------------------------------------- models -- */

/* The float type that a model is being built in, and its rows; 0: as many as
 * the file has. Ranks build in threads of their own. */
static _Thread_local sl_dtype real;
static _Thread_local int64_t batch_rows;

void golden_set_rows(int64_t rows)
{
    batch_rows = rows;
}

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
        tensor = golden_find(file, full);
    }
    return sl_parameter(graph, name, real, tensor->dims, tensor->shape);
}

static sl_tensor *input(sl_graph *graph, const sl_safetensors *file,
                        const char *golden, const char *name,
                        sl_gradient gradient)
{
    const sl_safetensor *tensor = golden_find(file, golden);
    int64_t shape[SL_DIMS_MAX];
    memcpy(shape, tensor->shape, sizeof shape);
    if (batch_rows)
        shape[0] = batch_rows;
    return sl_input(graph, name, tensor->dtype == SL_F32 ? real : tensor->dtype,
                    tensor->dims, shape, gradient);
}

static sl_tensor *linear(sl_graph *graph, const sl_safetensors *file,
                         const char *scope, const char *name, sl_tensor *x)
{
    char inner[200];
    snprintf(inner, sizeof inner, "%s%s.", scope, name);
    sl_scope_enter(graph, "%s", name);
    sl_tensor *weight = parameter(graph, file, inner, "weight");
    sl_tensor *bias = parameter(graph, file, inner, "bias");
    x = sl_linear(x, weight, bias, SL_OUT_IN);
    sl_scope_leave(graph);
    return x;
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
    sl_mark_cut(graph);
    h = linear(graph, file, "", "lin1", sl_matmul(h, mm1));
    sl_mark_cut(graph);
    h = sl_matmul(sl_add(sl_relu(h), skip), mm2);
    sl_mark_cut(graph);
    finish(graph, file, sl_relu(linear(graph, file, "", "lin2", h)));
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
        if (i > 0)
            sl_mark_cut(graph);
        sl_scope_enter(graph, "mlp%d", i);
        h = sl_relu(linear(graph, file, scope, "net1", h));
        h = linear(graph, file, scope, "net2", h);
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
    sl_mark_cut(graph);
    h = sl_relu(linear(graph, file, "", "lin1", h));
    h = sl_matmul(h, mm);
    finish(graph, file, sl_relu(linear(graph, file, "", "lin2", h)));
}

static void build_gpt2(sl_graph *graph, const sl_safetensors *file)
{
    const char *json = sl_safetensors_metadata(file, "config");
    const sl_safetensor *ids = golden_find(file, "input_ids");
    sl_gpt2_config config;
    sl_gpt2_options options = SL_GPT2_OPTIONS_INIT;
    assert_non_null(json);
    assert_ok(sl_gpt2_read_config(json, strlen(json), &config));
    options.dtype = real;
    sl_gpt2_build(graph, &config, &options,
                  batch_rows ? batch_rows : ids->shape[0], ids->shape[1]);
}

#define MODEL(name)                                                            \
    static void name##_as(sl_graph *graph, const sl_safetensors *file,         \
                          sl_dtype dtype)                                      \
    {                                                                          \
        real = dtype == SL_BF16 ? SL_F32 : dtype;                              \
        name(graph, file);                                                     \
        if (dtype == SL_BF16)                                                  \
            sl_graph_set_precision(graph, dtype);                              \
    }
MODEL(build_example_code)
MODEL(build_multi_mlp)
MODEL(build_alias)
MODEL(build_gpt2)

const golden_model golden_models[GOLDEN_MODELS] = {
    {"ExampleCode", build_example_code_as},
    {"MultiMLP", build_multi_mlp_as},
    {"ModelWithParamAlias", build_alias_as},
    {"gpt2", build_gpt2_as},
};

/* -------------------------------------------------------------- loading -- */

float *golden_floats(const sl_safetensor *tensor)
{
    float *copy = malloc(tensor->bytes);
    assert_ok(sl_safetensor_read(tensor, copy));
    return copy;
}

/* Writes floats to a port of any float type. */
static void put_floats(const test_stage *stage, sl_port_kind kind,
                       const char *name, const void *data)
{
    sl_port port;
    assert_ok(sl_stage_port(stage->stage, kind, name, &port));
    int64_t count = port.bytes / (int64_t)sl_dtype_bytes(port.dtype);
    if (port.dtype == SL_F64 || port.dtype == SL_BF16) {
        port.dtype = SL_F32;
        port.bytes = count * (int64_t)sizeof(float);
    }
    assert_ok(
        sl_memory_write(stage->memory, &port, 0, data, (size_t)port.bytes));
}

static void put_tensor(const test_stage *stage, sl_port_kind kind,
                       const char *name, const sl_safetensor *tensor)
{
    float *data = golden_floats(tensor);
    put_floats(stage, kind, name, data);
    free(data);
}

int golden_load(const test_stage *stage, const sl_safetensors *file)
{
    int loaded = 0;
    for (size_t i = 0; i < sl_safetensors_count(file); i++) {
        const sl_safetensor *tensor = sl_safetensors_at(file, i);
        sl_port port;
        if (strncmp(tensor->name, "param.", 6) == 0) {
            put_tensor(stage, SL_PORT_PARAMETER, tensor->name + 6, tensor);
            loaded++;
        } else if (!sl_stage_port(stage->stage, SL_PORT_INPUT, tensor->name,
                                  &port)) {
            put_tensor(stage, SL_PORT_INPUT, tensor->name, tensor);
        }
    }
    return loaded;
}

sl_status golden_cut(int golden, const sl_safetensors *file, sl_dtype dtype,
                     int64_t rows, sl_cut_options *options, sl_model **out)
{
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    golden_set_rows(rows);
    golden_models[golden].build(graph, file, dtype);
    options->by = SL_CUT_BY_COST;
    options->inside = true;
    status = sl_model_cut(graph, options, out);
    sl_graph_destroy(graph);
    return status;
}

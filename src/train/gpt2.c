/* SPDX-License-Identifier: MIT
 *
 * GPT-2. Modules, and the names of parameters in them, are those of the Hugging
 * Face model; so is the layout of its weights, (in, out) but for lm_head. */
#include "sluice/train.h"

#include "base/text.h"
#include "tensor/graph.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const sl_gpt2_options default_options = SL_GPT2_OPTIONS_INIT;

static const char *refusal_of(const sl_gpt2_config *config)
{
    enum { MOST = 1 << 24 };
    const int sizes[] = {config->layers, config->heads, config->width,
                         config->vocabulary, config->positions};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] < 1 || sizes[i] > MOST)
            return "layers, heads, width, vocabulary and positions are from 1 "
                   "to 16777216";
    }
    if (config->inner < 0 || config->inner > 4 * MOST)
        return "the inner width is from 1 to 67108864, or 0 for four widths";
    if (config->width % config->heads)
        return "the heads do not divide the width";
    const double rates[] = {config->embedding_dropout, config->residual_dropout,
                            config->attention_dropout};
    for (int i = 0; i < 3; i++) {
        if (!(rates[i] >= 0 && rates[i] < 1))
            return "rates of dropout are from 0 up to below 1";
    }
    if (config->activation < SL_ACTIVATION_GELU_TANH ||
        config->activation > SL_ACTIVATION_SILU)
        return "there is no such activation";
    if (!(config->epsilon >= 0) || !isfinite(config->epsilon))
        return "epsilon is 0 or more";
    return NULL;
}

/* Whether a piece can be built; refuses through the graph where not. */
static bool usable(sl_graph *graph, const sl_gpt2_config *config,
                   const sl_gpt2_options *options)
{
    if (graph->status)
        return false;
    const char *why = refusal_of(config);
    if (!why && options->dropout && config->attention_dropout > 0)
        why = "dropout in attention is not built: its rate must be 0";
    if (why)
        sl__refuse(graph, "gpt2", "%s", why);
    return !why;
}

/* -------------------------------------------------------------- modules -- */

static sl_tensor *drop(sl_tensor *x, double rate,
                       const sl_gpt2_options *options)
{
    return options->dropout ? sl_dropout(x, rate) : x;
}

static sl_tensor *weight(sl_graph *graph, sl_dtype dtype, int64_t rows,
                         int64_t columns)
{
    return sl_parameter(graph, "weight", dtype, SL_SHAPE(rows, columns));
}

static sl_tensor *bias(sl_graph *graph, sl_dtype dtype, int64_t size)
{
    return sl_parameter(graph, "bias", dtype, SL_SHAPE(size));
}

static sl_tensor *norm(sl_graph *graph, const sl_gpt2_config *config,
                       sl_dtype dtype, const char *name, sl_tensor *x)
{
    sl_scope_enter(graph, "%s", name);
    sl_tensor *w =
        sl_parameter(graph, "weight", dtype, SL_SHAPE(config->width));
    x = sl_layer_norm(x, w, bias(graph, dtype, config->width), config->epsilon);
    sl_scope_leave(graph);
    return x;
}

static sl_tensor *linear(sl_graph *graph, sl_dtype dtype, const char *name,
                         sl_tensor *x, int in, int out)
{
    sl_scope_enter(graph, "%s", name);
    sl_tensor *w = weight(graph, dtype, in, out);
    x = sl_linear(x, w, bias(graph, dtype, out), SL_IN_OUT);
    sl_scope_leave(graph);
    return x;
}

static sl_tensor *activate(sl_activation activation, sl_tensor *x)
{
    switch (activation) {
    case SL_ACTIVATION_GELU_ERF: return sl_gelu_erf(x);
    case SL_ACTIVATION_RELU: return sl_relu(x);
    case SL_ACTIVATION_SILU: return sl_silu(x);
    default: return sl_gelu_tanh(x);
    }
}

static sl_tensor *attention(sl_graph *graph, const sl_gpt2_config *config,
                            const sl_gpt2_options *options, sl_tensor *h)
{
    sl_tensor *parts[3];
    int d = config->width;
    sl_scope_enter(graph, "attn");
    h = linear(graph, options->dtype, "c_attn", h, d, 3 * d);
    sl_split(h, -1, 3, parts);
    h = sl_causal_attention(parts[0], parts[1], parts[2], config->heads);
    h = linear(graph, options->dtype, "c_proj", h, d, d);
    h = drop(h, config->residual_dropout, options);
    sl_scope_leave(graph);
    return h;
}

static sl_tensor *mlp(sl_graph *graph, const sl_gpt2_config *config,
                      const sl_gpt2_options *options, sl_tensor *h)
{
    int inner = config->inner ? config->inner : 4 * config->width;
    sl_scope_enter(graph, "mlp");
    h = linear(graph, options->dtype, "c_fc", h, config->width, inner);
    h = activate(config->activation, h);
    h = linear(graph, options->dtype, "c_proj", h, inner, config->width);
    h = drop(h, config->residual_dropout, options);
    sl_scope_leave(graph);
    return h;
}

/* --------------------------------------------------------------- pieces -- */

sl_tensor *sl_gpt2_embed(sl_graph *graph, const sl_gpt2_config *config,
                         const sl_gpt2_options *options, sl_tensor *ids,
                         sl_tensor **out_wte)
{
    options = options ? options : &default_options;
    if (out_wte)
        *out_wte = NULL;
    if (!ids || !usable(graph, config, options))
        return NULL;
    sl_scope_enter(graph, "transformer");
    sl_scope_enter(graph, "wte");
    sl_tensor *wte =
        weight(graph, options->dtype, config->vocabulary, config->width);
    sl_tensor *h = sl_embedding(wte, ids);
    sl_scope_leave(graph);
    sl_scope_enter(graph, "wpe");
    h = sl_add_positions(
        h, weight(graph, options->dtype, config->positions, config->width));
    sl_scope_leave(graph);
    h = drop(h, config->embedding_dropout, options);
    sl_scope_leave(graph);
    if (out_wte)
        *out_wte = wte;
    return h;
}

sl_tensor *sl_gpt2_layer(sl_graph *graph, const sl_gpt2_config *config,
                         const sl_gpt2_options *options, int index,
                         sl_tensor *h)
{
    options = options ? options : &default_options;
    if (!h || !usable(graph, config, options))
        return NULL;
    sl_scope_enter(graph, "transformer");
    sl_scope_enter(graph, "h.%d", index);
    sl_tensor *x = norm(graph, config, options->dtype, "ln_1", h);
    h = sl_add(h, attention(graph, config, options, x));
    x = norm(graph, config, options->dtype, "ln_2", h);
    h = sl_add(h, mlp(graph, config, options, x));
    sl_scope_leave(graph);
    sl_scope_leave(graph);
    return h;
}

sl_tensor *sl_gpt2_head(sl_graph *graph, const sl_gpt2_config *config,
                        const sl_gpt2_options *options, sl_tensor *h,
                        sl_tensor *wte)
{
    options = options ? options : &default_options;
    if (!h || !usable(graph, config, options))
        return NULL;
    sl_scope_enter(graph, "transformer");
    h = norm(graph, config, options->dtype, "ln_f", h);
    if (config->tied && !wte) {
        sl_scope_enter(graph, "wte");
        wte = weight(graph, options->dtype, config->vocabulary, config->width);
        sl_scope_leave(graph);
    }
    sl_scope_leave(graph);
    sl_scope_enter(graph, "lm_head");
    if (config->tied)
        sl_alias(wte, "weight");
    else
        wte = weight(graph, options->dtype, config->vocabulary, config->width);
    h = sl_linear(h, wte, NULL, SL_OUT_IN);
    sl_scope_leave(graph);
    return h;
}

void sl_gpt2_build(sl_graph *graph, const sl_gpt2_config *config,
                   const sl_gpt2_options *options, int64_t batch,
                   int64_t length)
{
    sl_tensor *wte;
    sl_tensor *ids = sl_input(graph, "input_ids", SL_I64,
                              SL_SHAPE(batch, length), SL_NO_GRADIENT);
    sl_tensor *labels = sl_input(graph, "labels", SL_I64,
                                 SL_SHAPE(batch, length), SL_NO_GRADIENT);
    sl_tensor *h = sl_gpt2_embed(graph, config, options, ids, &wte);
    for (int i = 0; i < config->layers && h; i++)
        h = sl_gpt2_layer(graph, config, options, i, h);
    h = sl_gpt2_head(graph, config, options, h, wte);
    if (!h)
        return;
    sl_output(graph, "logits", h, SL_NO_GRADIENT);
    sl_loss(graph, sl_cross_entropy(h, labels, -100));
}

/* --------------------------------------------------------------- config -- */

static sl_status read_size(const json_t *config, const char *key, int *out)
{
    const json_t *value = json_object_get(config, key);
    if (!value)
        return sl_fail(SL_EINVAL, "the config has no '%s'", key);
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > INT32_MAX)
        return sl_fail(SL_EINVAL,
                       "'%s' of the config is not a number from 1 on", key);
    *out = (int)json_integer_value(value);
    return SL_OK;
}

static sl_status read_number(const json_t *config, const char *key, double *out)
{
    const json_t *value = json_object_get(config, key);
    if (!value)
        return SL_OK;
    if (!json_is_number(value))
        return sl_fail(SL_EINVAL, "'%s' of the config is not a number", key);
    *out = json_number_value(value);
    return SL_OK;
}

/* A switch; absent, it is as it was. */
static sl_status read_switch(const json_t *config, const char *key, bool *out)
{
    const json_t *value = json_object_get(config, key);
    if (!value)
        return SL_OK;
    if (!json_is_boolean(value))
        return sl_fail(SL_EINVAL,
                       "'%s' of the config is neither true nor "
                       "false",
                       key);
    *out = json_is_true(value);
    return SL_OK;
}

/* A switch that changes the model in a way that is not built. */
static sl_status refuse_switch(const json_t *config, const char *key,
                               bool expected)
{
    bool value = expected;
    sl_status status = read_switch(config, key, &value);
    if (!status && value != expected)
        status = sl_fail(SL_EINVAL,
                         "'%s' of the config is %s, which is not "
                         "built",
                         key, value ? "true" : "false");
    return status;
}

static sl_status read_activation(const json_t *config, sl_activation *out)
{
    static const struct {
        const char *name;
        sl_activation activation;
    } known[] = {
        {"gelu_new", SL_ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", SL_ACTIVATION_GELU_TANH},
        {"gelu", SL_ACTIVATION_GELU_ERF},
        {"relu", SL_ACTIVATION_RELU},
        {"silu", SL_ACTIVATION_SILU},
        {"swish", SL_ACTIVATION_SILU},
    };
    char quoted[SL__QUOTED_MAX];
    const json_t *value = json_object_get(config, "activation_function");
    if (!value)
        return SL_OK;
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].activation;
            return SL_OK;
        }
    }
    return sl_fail(SL_EINVAL,
                   "'activation_function' of the config is '%s', expected "
                   "gelu_new, gelu_pytorch_tanh, gelu, relu, silu or swish",
                   sl__quoted(name, strlen(name), quoted));
}

static sl_status check_type(const json_t *config)
{
    char quoted[SL__QUOTED_MAX];
    const json_t *value = json_object_get(config, "model_type");
    if (!value)
        return SL_OK;
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    if (strcmp(name, "gpt2") == 0)
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "'model_type' of the config is '%s', expected "
                   "gpt2",
                   sl__quoted(name, strlen(name), quoted));
}

static sl_status read_config(const json_t *config, sl_gpt2_config *out)
{
    sl_status status = check_type(config);
    if (!status)
        status = read_size(config, "n_layer", &out->layers);
    if (!status)
        status = read_size(config, "n_head", &out->heads);
    if (!status)
        status = read_size(config, "n_embd", &out->width);
    if (!status)
        status = read_size(config, "vocab_size", &out->vocabulary);
    if (!status)
        status = read_size(config, "n_positions", &out->positions);
    const json_t *inner = json_object_get(config, "n_inner");
    if (!status && inner && !json_is_null(inner))
        status = read_size(config, "n_inner", &out->inner);
    if (!status)
        status = read_number(config, "layer_norm_epsilon", &out->epsilon);
    if (!status)
        status = read_number(config, "embd_pdrop", &out->embedding_dropout);
    if (!status)
        status = read_number(config, "resid_pdrop", &out->residual_dropout);
    if (!status)
        status = read_number(config, "attn_pdrop", &out->attention_dropout);
    if (!status)
        status = read_switch(config, "tie_word_embeddings", &out->tied);
    if (!status)
        status = read_activation(config, &out->activation);
    if (!status)
        status = refuse_switch(config, "scale_attn_weights", true);
    if (!status)
        status =
            refuse_switch(config, "scale_attn_by_inverse_layer_idx", false);
    if (!status)
        status = refuse_switch(config, "add_cross_attention", false);
    return status;
}

sl_status sl_gpt2_read_config(const char *json, size_t length,
                              sl_gpt2_config *out)
{
    json_error_t error;
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    json_t *root = json_loadb(json, length, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return sl_fail(SL_EPARSE, "the config is not JSON: line %d: %.80s",
                       error.line, error.text);
    sl_status status =
        json_is_object(root)
            ? read_config(root, &config)
            : sl_fail(SL_EPARSE, "the config is not a JSON object");
    json_decref(root);
    const char *why = status ? NULL : refusal_of(&config);
    if (why)
        status =
            sl_fail(SL_EINVAL, "the config asks for what cannot be: %s", why);
    if (!status)
        *out = config;
    return status;
}

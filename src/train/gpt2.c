/* SPDX-License-Identifier: MIT
 *
 * GPT-2. Modules, names of parameters and the layout of weights are those of
 * the Hugging Face model: weights are (in, out), except for lm_head. */
#include "train/train.h"

#include "tensor/graph.h"

#include <math.h>
#include <stdio.h>

static const sl_gpt2_options default_options = SL_GPT2_OPTIONS_INIT;

const char *sl__gpt2_refusal(const sl_gpt2_config *config,
                             char room[SL__REFUSAL_MAX])
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
    if (config->width % config->heads) {
        snprintf(room, SL__REFUSAL_MAX, "%d heads do not divide a width of %d",
                 config->heads, config->width);
        return room;
    }
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

/* Whether a piece can be built; if not, the graph keeps the refusal. */
static bool usable(sl_graph *graph, const sl_gpt2_config *config,
                   const sl_gpt2_options *options, const sl_tensor *operand)
{
    if (!graph || graph->status)
        return false;
    char room[SL__REFUSAL_MAX];
    const char *why =
        config ? sl__gpt2_refusal(config, room) : "config is NULL";
    if (!why && options->dropout && config->attention_dropout > 0)
        why = "dropout in attention is not built: its rate must be 0";
    if (!why && !operand)
        why = "an operand is NULL, expected a tensor";
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
    if (!usable(graph, config, options, ids))
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
    if (!usable(graph, config, options, h))
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
    if (!usable(graph, config, options, h))
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
    for (int i = 0; h && i < config->layers; i++)
        h = sl_gpt2_layer(graph, config, options, i, h);
    h = sl_gpt2_head(graph, config, options, h, wte);
    if (!h)
        return;
    sl_output(graph, "logits", h, SL_NO_GRADIENT);
    sl_loss(graph, sl_cross_entropy(h, labels, -100));
}

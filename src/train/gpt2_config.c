/* SPDX-License-Identifier: MIT
 *
 * Reads and writes the config.json of Hugging Face's GPT-2. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

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

/* Reads the id of a token. */
static sl_status read_token(const json_t *config, const char *key, int *out)
{
    const json_t *value = json_object_get(config, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > INT32_MAX)
        return sl_fail(SL_EINVAL, "'%s' of the config is not a token's id",
                       key);
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

/* Reads a boolean; one that is absent keeps its value. */
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

/* Refuses a boolean that asks for a variant of the model that is not
 * supported. */
static sl_status refuse_switch(const json_t *config, const char *key,
                               bool expected)
{
    bool value = expected;
    SL__TRY(read_switch(config, key, &value));
    if (value == expected)
        return SL_OK;
    return sl_fail(SL_EINVAL, "'%s' of the config is %s, which is not built",
                   key, value ? "true" : "false");
}

/* The first name of each activation is the one that is written. */
static const struct {
    const char *name;
    sl_activation activation;
} activations[] = {
    {"gelu_new", SL_ACTIVATION_GELU_TANH},
    {"gelu_pytorch_tanh", SL_ACTIVATION_GELU_TANH},
    {"gelu", SL_ACTIVATION_GELU_ERF},
    {"relu", SL_ACTIVATION_RELU},
    {"silu", SL_ACTIVATION_SILU},
    {"swish", SL_ACTIVATION_SILU},
};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static sl_status read_activation(const json_t *config, sl_activation *out)
{
    char quoted[SL__QUOTED_MAX];
    const json_t *value = json_object_get(config, "activation_function");
    if (!value)
        return SL_OK;
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    for (int i = 0; i < ACTIVATIONS; i++) {
        if (strcmp(activations[i].name, name) == 0) {
            *out = activations[i].activation;
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

static const char first[] = "bos_token_id", last[] = "eos_token_id";

static sl_status read_config(const json_t *config, sl_gpt2_config *out)
{
    const struct {
        const char *key;
        int *out;
    } sizes[] = {{"n_layer", &out->layers},
                 {"n_head", &out->heads},
                 {"n_embd", &out->width},
                 {"vocab_size", &out->vocabulary},
                 {"n_positions", &out->positions}};
    const json_t *inner = json_object_get(config, "n_inner");
    SL__TRY(check_type(config));
    for (int i = 0; i < 5; i++)
        SL__TRY(read_size(config, sizes[i].key, sizes[i].out));
    if (inner && !json_is_null(inner))
        SL__TRY(read_size(config, "n_inner", &out->inner));
    SL__TRY(read_number(config, "layer_norm_epsilon", &out->epsilon));
    SL__TRY(read_number(config, "embd_pdrop", &out->embedding_dropout));
    SL__TRY(read_number(config, "resid_pdrop", &out->residual_dropout));
    SL__TRY(read_number(config, "attn_pdrop", &out->attention_dropout));
    SL__TRY(read_switch(config, "tie_word_embeddings", &out->tied));
    out->has_tokens = json_is_integer(json_object_get(config, first)) &&
                      json_is_integer(json_object_get(config, last));
    if (out->has_tokens) {
        SL__TRY(read_token(config, first, &out->first_token));
        SL__TRY(read_token(config, last, &out->last_token));
    }
    SL__TRY(read_activation(config, &out->activation));
    SL__TRY(refuse_switch(config, "scale_attn_weights", true));
    SL__TRY(refuse_switch(config, "scale_attn_by_inverse_layer_idx", false));
    return refuse_switch(config, "add_cross_attention", false);
}

sl_status sl_gpt2_read_config(const char *json, size_t length,
                              sl_gpt2_config *out)
{
    SL__NEED(out);
    if (length)
        SL__NEED(json);
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
    SL__TRY(status);
    char room[SL__REFUSAL_MAX];
    const char *why = sl__gpt2_refusal(&config, room);
    if (why)
        return sl_fail(SL_EINVAL, "the config is not possible: %s", why);
    *out = config;
    return SL_OK;
}

/* The token that GPT-2's own vocabulary ends in. */
enum { END_OF_TEXT = 50256 };

/* Readers assume GPT-2's own token where the key is missing. A smaller
 * vocabulary does not have it, so null is written. */
static void add_token(json_t *root, const char *key,
                      const sl_gpt2_config *config, int token)
{
    if (config->has_tokens)
        json_object_set_new(root, key, json_integer(token));
    else if (config->vocabulary <= END_OF_TEXT)
        json_object_set_new(root, key, json_null());
}

/* Writes numbers in the fewest digits that parse as the same number: 0.1, not
 * 0.10000000000000001. */
static char *dump(const json_t *root)
{
    char *text = NULL;
    for (size_t digits = 15; digits <= 17; digits++) {
        free(text);
        text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *again = text ? json_loads(text, 0, NULL) : NULL;
        bool same = again && json_equal(root, again);
        json_decref(again);
        if (same)
            break;
    }
    return text;
}

sl_status sl_gpt2_write_config(const sl_gpt2_config *config, sl_write_fn write,
                               void *context)
{
    SL__NEED(config, write);
    const char *activation = activations[0].name;
    for (int i = ACTIVATIONS - 1; i >= 0; i--) {
        if (activations[i].activation == config->activation)
            activation = activations[i].name;
    }
    json_t *root = json_pack(
        "{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:o, s:s, s:f, s:f, s:f, s:f, "
        "s:b, s:s}",
        "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "vocab_size",
        config->vocabulary, "n_positions", config->positions, "n_embd",
        config->width, "n_layer", config->layers, "n_head", config->heads,
        "n_inner", config->inner ? json_integer(config->inner) : json_null(),
        "activation_function", activation, "layer_norm_epsilon",
        config->epsilon, "embd_pdrop", config->embedding_dropout, "resid_pdrop",
        config->residual_dropout, "attn_pdrop", config->attention_dropout,
        "tie_word_embeddings", config->tied, "torch_dtype", "float32");
    if (root) {
        add_token(root, first, config, config->first_token);
        add_token(root, last, config, config->last_token);
    }
    char *text = root ? dump(root) : NULL;
    json_decref(root);
    if (!text)
        return sl_fail(SL_ENOMEM, "out of memory");
    sl_status status = write(context, text, strlen(text));
    if (!status)
        status = write(context, "\n", 1);
    free(text);
    return status;
}

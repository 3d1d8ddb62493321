/* SPDX-License-Identifier: MIT
 *
 * `sluice eval`: evaluates a model on text or tokens. */
#include "infer.h"

#include <math.h>
#include <stdio.h>

#define VERB "eval"

typedef struct request {
    infer_request layout;
    const char *data;
    int length, stride, most;
    bool json;
    /* What came out. */
    sl_tokens *tokens;
    double loss;
    int64_t windows;
    int64_t used; /* tokens of a window */
} request;

enum { KEY_LENGTH = 256, KEY_STRIDE, KEY_MOST, KEY_JSON };

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Data:", 1},
    {"seq", KEY_LENGTH, "N", 0, "Tokens of a sequence (the model's longest)",
     1},
    {"stride", KEY_STRIDE, "N", 0,
     "Tokens from the start of one sequence to the start of the next (--seq)",
     1},
    {"max", KEY_MOST, "N", 0, "Sequences at most (all)", 1},
    {"json", KEY_JSON, NULL, 0, "JSON", 1},
    INFER_OPTIONS(2, "Microbatches, of one sequence each (8)"),
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_LENGTH: return cli_parse_size("--seq", arg, &r->length);
    case KEY_STRIDE: return cli_parse_size("--stride", arg, &r->stride);
    case KEY_MOST: return cli_parse_size("--max", arg, &r->most);
    case KEY_JSON: r->json = true; return 0;
    case ARGP_KEY_ARG:
        if (r->data)
            return cli_refuse("a model and its data, and no more: '%.60s'",
                              arg);
        *(r->layout.model ? &r->data : &r->layout.model) = arg;
        return 0;
    default: return infer_parse(key, arg, &r->layout);
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "MODEL DATA",
    "Evaluate a model on text: its mean loss and perplexity over the sequences "
    "of DATA, one after the other. MODEL is a folder with config.json and "
    "safetensors, or a run, whose latest checkpoint is taken. DATA is text or "
    "a .bin file of token ids, as for `sluice train`.\v"
    "  sluice eval run book.txt\n"
    "  sluice eval run/best book.txt\n"
    "  sluice eval gpt2 val.bin --seq 1024 -p 4 -m 16",
    NULL,
    NULL,
    NULL};

static sl_status act(sl_comm *comm, const sl_inference_options *how,
                     void *context)
{
    request *r = context;
    int64_t length = r->length ? r->length : how->config.positions;
    const sl_windows windows = {.tokens = r->tokens,
                                .count = sl_tokens_count(r->tokens),
                                .length = length,
                                .stride = r->stride,
                                .vocabulary = how->config.vocabulary};
    double loss;
    int64_t count;
    if (length > how->config.positions)
        return sl_fail(SL_EINVAL,
                       "sequences of %lld tokens, and the model has %d "
                       "positions",
                       (long long)length, how->config.positions);
    sl_status status = sl_evaluate(comm, how, &windows, r->most, &loss, &count);
    if (!status && sl_comm_rank(comm) == 0) {
        r->loss = loss;
        r->windows = count;
        r->used = length;
    }
    return status;
}

int verb_eval(int argc, char **argv)
{
    request asked = {.layout = INFER_REQUEST_INIT};
    bool first;
    asked.layout.samples = 8;
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (exit_status)
        return exit_status;
    if (!asked.data)
        return cli_say(VERB, CLI_WRONG, "say which model, and on what data");
    sl_gpt2_config config;
    infer_find_model(&asked.layout);
    exit_status = infer_config(VERB, asked.layout.model, &config);
    if (exit_status)
        return exit_status;
    sl_status status = sl_tokens_open(asked.data, &asked.tokens);
    if (status)
        return cli_failed(VERB, status);
    exit_status =
        cli_check_vocabulary(VERB, asked.tokens, asked.data, config.vocabulary);
    if (exit_status) {
        sl_tokens_close(asked.tokens);
        return exit_status;
    }
    exit_status = infer_run(VERB, &asked.layout, act, &asked, &first);
    sl_tokens_close(asked.tokens);
    if (exit_status || !first)
        return exit_status;
    char perplexity[32] = "null"; /* JSON has no word for more */
    if (isfinite(exp(asked.loss)))
        snprintf(perplexity, sizeof perplexity, "%.9g", exp(asked.loss));
    if (asked.json)
        printf("{\"loss\": %.9g, \"perplexity\": %s, \"sequences\": %lld, "
               "\"tokens\": %lld}\n",
               asked.loss, perplexity, (long long)asked.windows,
               (long long)(asked.windows * asked.used));
    else
        printf("loss %.4f, perplexity %.3f, over %lld sequences of %lld "
               "tokens\n",
               asked.loss, exp(asked.loss), (long long)asked.windows,
               (long long)asked.used);
    return cli_flush(VERB, SL_OK);
}

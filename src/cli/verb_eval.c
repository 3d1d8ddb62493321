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

#define AT(field)          offsetof(request, field)
#define INFER_MICROBATCHES "Microbatches, of one sequence each (8)"
static const cli_option options[] = {
    CLI_HEADED("Data:"),
    CLI_OPTION("seq", SIZE, length,
               "Sequence length, in tokens (the model's longest)"),
    CLI_OPTION("stride", SIZE, stride,
               "Tokens from the start of one sequence to the start of the next "
               "(--seq)"),
    CLI_OPTION("max", SIZE, most, "Evaluate at most N sequences (all)"),
    CLI_SWITCH("json", json, "Print JSON"),
#include "infer.def"
    {0},
};

static error_t take_argument(const char *argument, void *out)
{
    request *r = out;
    if (r->data)
        return cli_refuse("a model and its data, and no more: '%.60s'",
                          argument);
    *(r->layout.model ? &r->data : &r->layout.model) = argument;
    return 0;
}

static const cli_command command = {
    .options = options,
    .take = take_argument,
    .arguments = "MODEL DATA",
    .help =
        "Evaluate a model on text: print its mean loss and perplexity over the "
        "sequences of DATA, in their order. MODEL is a folder with config.json "
        "and safetensors, or the --out folder of a run, whose latest "
        "checkpoint is used. DATA is text or a .bin file of token ids, as for "
        "`sluice train`.\v"
        "  sluice eval run book.txt\n"
        "  sluice eval run/best book.txt\n"
        "  sluice eval gpt2 val.bin --seq 1024 -p 4 -m 16",
};

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
    CLI_TRY(sl_evaluate(comm, how, &windows, r->most, &loss, &count));
    if (sl_comm_rank(comm) == 0) {
        r->loss = loss;
        r->windows = count;
        r->used = length;
    }
    return SL_OK;
}

static int print(const request *r)
{
    char perplexity[32] = "null"; /* JSON has no word for more */
    if (isfinite(exp(r->loss)))
        snprintf(perplexity, sizeof perplexity, "%.9g", exp(r->loss));
    if (r->json)
        printf("{\"loss\": %.9g, \"perplexity\": %s, \"sequences\": %lld, "
               "\"tokens\": %lld}\n",
               r->loss, perplexity, (long long)r->windows,
               (long long)(r->windows * r->used));
    else
        printf("loss %.4f, perplexity %.3f, over %lld sequences of %lld "
               "tokens\n",
               r->loss, exp(r->loss), (long long)r->windows,
               (long long)r->used);
    return cli_flush(VERB, SL_OK);
}

static int evaluate(request *r)
{
    bool first;
    CLI_TRY(cli_check_vocabulary(VERB, r->tokens, r->data,
                                 r->layout.config.vocabulary));
    CLI_TRY(infer_run(VERB, &r->layout, act, r, &first));
    return first ? print(r) : CLI_DONE;
}

int verb_eval(int argc, char **argv)
{
    request asked = {.layout = INFER_REQUEST_INIT};
    asked.layout.samples = 8;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    if (!asked.data)
        return cli_say(VERB, CLI_WRONG, "say which model, and on what data");
    CLI_TRY(infer_find_model(VERB, &asked.layout));
    CLI_TRY(cli_result(VERB, sl_tokens_open(asked.data, &asked.tokens)));
    int exit_status = evaluate(&asked);
    sl_tokens_close(asked.tokens);
    return exit_status;
}

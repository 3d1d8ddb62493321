/* SPDX-License-Identifier: MIT
 *
 * `sluice generate`: generates text, or token ids, with a model. */
#include "infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "generate"

typedef struct request {
    infer_request layout;
    const char *prompt, *ids;
    int tokens, top, seed;
    double temperature;
    bool bytes; /* tokens are bytes of text */
    bool begun; /* the prompt was shown */
    int samples;
    int64_t *start;
    int64_t start_count;
    int64_t *made; /* by sample */
    int64_t *made_counts;
} request;

#define AT(field)          offsetof(request, field)
#define INFER_MICROBATCHES "Samples to generate, one to a microbatch (1)"
static const cli_option options[] = {
    CLI_HEADED("Text:"),
    CLI_VALUED("prompt", "TEXT", TEXT, prompt,
               "Text to continue, for a model whose tokens are bytes"),
    CLI_VALUED("ids", "N,N,...", TEXT, ids,
               "Token ids to continue, for any model"),
    CLI_OPTION("tokens", SIZE, tokens, "Tokens to generate (200)"),
    CLI_OPTION("temperature", NUMBER, temperature,
               "Sampling temperature; 0: always the most likely token (0.8)"),
    CLI_OPTION("top-k", SIZE, top,
               "Sample from the N most likely tokens (all)"),
    CLI_OPTION("seed", INT, seed, "Seed for sampling (1)"),
#include "infer.def"
    {0},
};

static const cli_command command = {
    .options = options,
    .noun = "MODEL",
    .offset = AT(layout.model),
    .arguments = "MODEL",
    .help =
        "Generate text with a model. MODEL is a folder with config.json and "
        "safetensors, or the --out folder of a run, whose latest checkpoint is "
        "used. There is no key-value cache: every token computes the whole "
        "sequence.\v"
        "  sluice generate run --prompt 'The schedule '\n"
        "  sluice generate run/best --prompt 'A' -p 2 -m 4 --temperature 0.5",
};

/* --------------------------------------------------------------- prompts -- */

static int read_ids(request *r)
{
    const char *at = r->ids;
    while (*at) {
        char *end;
        long long id = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ','))
            return cli_say(VERB, CLI_WRONG,
                           "--ids takes numbers with commas, not '%.40s'",
                           r->ids);
        r->start[r->start_count++] = id;
        at = *end ? end + 1 : end;
    }
    return CLI_DONE;
}

static int read_prompt(request *r)
{
    const char *text = r->ids ? r->ids : r->prompt;
    size_t length = strlen(text);
    r->start = calloc(length + 1, sizeof *r->start);
    if (!r->start)
        return cli_say(VERB, CLI_FAILED, "out of memory");
    if (r->ids)
        return read_ids(r);
    for (size_t i = 0; i < length; i++)
        r->start[r->start_count++] = (unsigned char)text[i];
    return CLI_DONE;
}

/* ---------------------------------------------------------------- tokens -- */

static void put(const request *r, int64_t token)
{
    if (r->bytes)
        putchar((int)token);
    else
        printf("%lld ", (long long)token);
}

/* A single sample is printed token by token; several, when all are done. */
static void take_token(void *context, int sample, int64_t token)
{
    request *r = context;
    if (r->samples == 1) {
        for (int64_t i = 0; i < r->start_count && !r->begun; i++)
            put(r, r->start[i]);
        r->begun = true;
        put(r, token);
        fflush(stdout);
        return;
    }
    r->made[(int64_t)sample * r->tokens + r->made_counts[sample]++] = token;
}

static sl_status act(sl_comm *comm, const sl_inference_options *how,
                     void *context)
{
    request *r = context;
    if (sl_comm_rank(comm) == 0) {
        int samples = sl_schedule_extent(how->schedule).microbatches;
        r->made = calloc((size_t)samples * (size_t)r->tokens, sizeof *r->made);
        r->made_counts = calloc((size_t)samples, sizeof *r->made_counts);
        if (!r->made || !r->made_counts)
            return sl_fail(SL_ENOMEM, "out of memory");
        r->samples = samples;
    }
    const sl_sampling sampling = {.prompt = r->start,
                                  .prompt_count = r->start_count,
                                  .tokens = r->tokens,
                                  .temperature = r->temperature,
                                  .top_k = r->top,
                                  .seed = (uint64_t)r->seed,
                                  .emit = take_token,
                                  .context = r};
    return sl_generate_tokens(comm, how, &sampling);
}

static void print_samples(const request *r)
{
    int samples = r->samples;
    for (int s = 0; s < samples && samples > 1; s++) {
        if (s)
            puts("---");
        for (int64_t i = 0; i < r->start_count; i++)
            put(r, r->start[i]);
        for (int64_t i = 0; i < r->made_counts[s]; i++)
            put(r, r->made[(int64_t)s * r->tokens + i]);
        putchar('\n');
    }
    if (samples == 1)
        putchar('\n');
}

static int generate(request *r)
{
    bool first;
    CLI_TRY(read_prompt(r));
    CLI_TRY(infer_run(VERB, &r->layout, act, r, &first));
    if (first)
        print_samples(r);
    return cli_flush(VERB, SL_OK);
}

int verb_generate(int argc, char **argv)
{
    request asked = {.layout = INFER_REQUEST_INIT,
                     .tokens = 200,
                     .seed = 1,
                     .temperature = 0.8};
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    if (!asked.layout.model || (!asked.prompt && !asked.ids))
        return cli_say(VERB, CLI_WRONG,
                       "say which model, and a --prompt or --ids");
    CLI_TRY(infer_find_model(VERB, &asked.layout));
    asked.bytes = asked.layout.config.vocabulary <= 256;
    if (asked.prompt && asked.ids)
        return cli_say(VERB, CLI_WRONG, "--prompt or --ids, not both");
    if (asked.prompt && !asked.bytes)
        return cli_say(VERB, CLI_WRONG,
                       "the model has a vocabulary of %d, so its tokens are "
                       "not bytes of text: give --ids",
                       asked.layout.config.vocabulary);
    int exit_status = generate(&asked);
    free(asked.start);
    free(asked.made);
    free(asked.made_counts);
    return exit_status;
}

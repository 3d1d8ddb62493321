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

enum {
    KEY_PROMPT = 256,
    KEY_IDS,
    KEY_TOKENS,
    KEY_TEMPERATURE,
    KEY_TOP,
    KEY_SEED
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Text:", 1},
    {"prompt", KEY_PROMPT, "TEXT", 0,
     "Text to continue, for a model whose tokens are bytes", 1},
    {"ids", KEY_IDS, "N,N,...", 0, "Token ids to continue, for any model", 1},
    {"tokens", KEY_TOKENS, "N", 0, "Tokens to generate (200)", 1},
    {"temperature", KEY_TEMPERATURE, "X", 0,
     "Sampling temperature; 0: always the likeliest token (0.8)", 1},
    {"top-k", KEY_TOP, "N", 0, "Sample from the N likeliest tokens (all)", 1},
    {"seed", KEY_SEED, "N", 0, "Seed for sampling (1)", 1},
    INFER_OPTIONS(2,
                  "Samples to generate, as microbatches beside each other (1)"),
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_PROMPT: r->prompt = arg; return 0;
    case KEY_IDS: r->ids = arg; return 0;
    case KEY_TOKENS: return cli_parse_size("--tokens", arg, &r->tokens);
    case KEY_TEMPERATURE:
        return cli_parse_number("--temperature", arg, &r->temperature);
    case KEY_TOP: return cli_parse_size("--top-k", arg, &r->top);
    case KEY_SEED: return cli_parse_int("--seed", arg, &r->seed);
    case ARGP_KEY_ARG:
        if (r->layout.model)
            return cli_refuse("one model at a time: '%.60s'", arg);
        r->layout.model = arg;
        return 0;
    default: return infer_parse(key, arg, &r->layout);
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "MODEL",
    "Generate text with a model. MODEL is a folder with config.json and "
    "safetensors, or a run, whose latest checkpoint is taken. There is no "
    "key-value cache: every token computes the whole sequence.\v"
    "  sluice generate run --prompt 'The schedule '\n"
    "  sluice generate run/best --prompt 'A' -p 2 -m 4 --temperature 0.5",
    NULL,
    NULL,
    NULL};

/* ---------------------------------------------------------------- prompts -- */

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

/* ----------------------------------------------------------------- tokens -- */

static void put(const request *r, int64_t token)
{
    if (r->bytes)
        putchar((int)token);
    else
        printf("%lld ", (long long)token);
}

/* One sample is shown as it comes; several wait for their turn. */
static void tell(void *context, int sample, int64_t token)
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
                                  .top = r->top,
                                  .seed = (uint64_t)r->seed,
                                  .tell = tell,
                                  .context = r};
    return sl_continue(comm, how, &sampling);
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
    int exit_status = infer_run(VERB, &r->layout, act, r, &first);
    if (!exit_status && first)
        print_samples(r);
    return exit_status ? exit_status : cli_flush(VERB, SL_OK);
}

int verb_generate(int argc, char **argv)
{
    request asked = {.layout = INFER_REQUEST_INIT,
                     .tokens = 200,
                     .seed = 1,
                     .temperature = 0.8};
    sl_gpt2_config config;
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (exit_status)
        return exit_status;
    if (!asked.layout.model || (!asked.prompt && !asked.ids))
        return cli_say(VERB, CLI_WRONG,
                       "say which model, and a --prompt or --ids");
    infer_find_model(&asked.layout);
    exit_status = infer_config(VERB, asked.layout.model, &config);
    if (exit_status)
        return exit_status;
    asked.bytes = config.vocabulary <= 256;
    if (asked.prompt && asked.ids)
        return cli_say(VERB, CLI_WRONG, "--prompt or --ids, not both");
    if (!(asked.temperature >= 0))
        return cli_say(VERB, CLI_WRONG, "--temperature is 0 or more");
    if (asked.prompt && !asked.bytes)
        return cli_say(VERB, CLI_WRONG,
                       "the model has a vocabulary of %d, so its tokens are "
                       "not bytes of text: give --ids",
                       config.vocabulary);
    exit_status = read_prompt(&asked);
    if (!exit_status)
        exit_status = generate(&asked);
    free(asked.start);
    free(asked.made);
    free(asked.made_counts);
    return exit_status;
}

/* SPDX-License-Identifier: MIT
 *
 * `sluice bench`: how fast compute is here, each figure beside the packed
 * product of oneDNN measured in the same run. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define VERB "bench"

typedef struct request {
    bench_request bench;
    const char *what;
} request;

enum {
    KEY_SECONDS = 256,
    KEY_SIZE,
    KEY_MODEL,
    KEY_WIDTH,
    KEY_ROWS,
    KEY_HEADS,
    KEY_LENGTH,
    KEY_SEQUENCES,
    KEY_RECOMPUTE,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {"threads", 't', "N", 0, "Threads of each program (1)", 0},
    {"seconds", KEY_SECONDS, "S", 0, "Seconds of trying per figure (0.5)", 0},
    {"json", KEY_JSON, NULL, 0, "Print JSON", 0},
    {NULL, 0, NULL, 0, "kernels:", 1},
    {"size", KEY_SIZE, "RxOxI", 0,
     "Rows, outputs and inputs of a linear layer, up to 8 times (16x2048x512 "
     "and 512x2048x512)",
     1},
    {NULL, 0, NULL, 0, "stage:", 2},
    {"model", KEY_MODEL, "mlp|gpt2", 0, "One block of this model (both)", 2},
    {"d", KEY_WIDTH, "N", 0, "Width (512)", 2},
    {"rows", KEY_ROWS, "N", 0, "Rows of the mlp's microbatch (16)", 2},
    {"heads", KEY_HEADS, "N", 0, "Heads of the gpt2 block (8)", 2},
    {"seq", KEY_LENGTH, "N", 0, "Length of the gpt2's sequences (256)", 2},
    {"sequences", KEY_SEQUENCES, "N", 0, "How many of them (2)", 2},
    {"recompute", KEY_RECOMPUTE, NULL, 0,
     "Save inputs alone, run forward again in backward", 2},
    {0},
};

static error_t parse_triple(const char *text, int out[3])
{
    int used = 0;
    if (sscanf(text, "%7dx%7dx%7d%n", &out[0], &out[1], &out[2], &used) != 3 ||
        text[used] || out[0] < 1 || out[1] < 1 || out[2] < 1)
        return cli_refuse("--size takes three sizes like 16x2048x512, not "
                          "'%.40s'",
                          text);
    return 0;
}

static error_t parse_model(const char *text, const char **out)
{
    if (strcmp(text, "mlp") != 0 && strcmp(text, "gpt2") != 0)
        return cli_refuse("--model is mlp or gpt2, not '%.40s'", text);
    *out = text;
    return 0;
}

static error_t parse_what(char *text, const char **out)
{
    if (*out)
        return cli_refuse("one benchmark at a time: '%.40s' and '%.40s'", *out,
                          text);
    if (strcmp(text, "kernels") != 0 && strcmp(text, "stage") != 0)
        return cli_refuse("unknown benchmark '%.40s'; expected kernels, "
                          "stage, or first of all step",
                          text);
    *out = text;
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *asked = state->input;
    bench_request *bench = &asked->bench;
    switch (key) {
    case 't': return cli_parse_size("--threads", arg, &bench->threads);
    case KEY_SECONDS:
        return cli_parse_number("--seconds", arg, &bench->seconds);
    case KEY_JSON: bench->json = true; return 0;
    case KEY_SIZE:
        if (bench->size_count == 8)
            return cli_refuse("--size is taken up to 8 times");
        return parse_triple(arg, bench->sizes[bench->size_count++]);
    case KEY_MODEL: return parse_model(arg, &bench->model);
    case KEY_WIDTH: return cli_parse_size("--d", arg, &bench->width);
    case KEY_ROWS: return cli_parse_size("--rows", arg, &bench->rows);
    case KEY_HEADS: return cli_parse_size("--heads", arg, &bench->heads);
    case KEY_LENGTH: return cli_parse_size("--seq", arg, &bench->length);
    case KEY_SEQUENCES:
        return cli_parse_size("--sequences", arg, &bench->sequences);
    case KEY_RECOMPUTE: bench->recompute = true; return 0;
    case ARGP_KEY_ARG: return parse_what(arg, &asked->what);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "kernels|stage\nstep [OPTIONS OF ITS OWN]",
    "Time compute on this machine: kernels, one stage, or whole training "
    "steps. Figures of kernels and stage stand beside the rate of oneDNN's "
    "product with packed weights, measured in the same run on the same "
    "threads.\v"
    "kernels: a linear layer forward, for its input (dI) and its weight (dW), "
    "and what a kernel call costs beyond its work. stage: one block forward "
    "and backward; `F+B` is its rate over the packed one, `I+W/B` what "
    "splitting backward costs. step: forward, backward and gradient descent "
    "under a schedule, on ranks that are threads or processes; its options "
    "are shown by `sluice bench step --help`.\n\n"
    "  sluice bench kernels\n"
    "  sluice bench step --model gpt2 -p 4 -t 3\n"
    "  sluice bench stage --model gpt2 --d 768 --heads 12 --seq 1024 -t 4",
    NULL,
    NULL,
    NULL};

static int refuse_idle_options(const request *asked)
{
    bool stage = strcmp(asked->what, "stage") == 0;
    const bench_request *bench = &asked->bench;
    if (stage && bench->size_count)
        return cli_say(VERB, CLI_WRONG, "--size goes with kernels");
    if (!stage &&
        (bench->model || bench->width || bench->rows || bench->heads ||
         bench->length || bench->sequences || bench->recompute))
        return cli_say(VERB, CLI_WRONG,
                       "--model, --d, --rows, --heads, --seq, --sequences and "
                       "--recompute go with stage");
    bool mlp = bench->model && strcmp(bench->model, "mlp") == 0;
    bool gpt2 = bench->model && strcmp(bench->model, "gpt2") == 0;
    if (mlp && (bench->heads || bench->length || bench->sequences))
        return cli_say(VERB, CLI_WRONG,
                       "--heads, --seq and --sequences go with gpt2");
    if (gpt2 && bench->rows)
        return cli_say(VERB, CLI_WRONG, "--rows goes with mlp");
    return 0;
}

static int refuse_too_large(const bench_request *bench)
{
    enum { MOST = 1 << 17 };
    if (bench->width > MOST || bench->rows > MOST || bench->length > MOST ||
        bench->sequences > MOST ||
        (int64_t)bench->sequences * bench->length > (int64_t)MOST * 64)
        return cli_say(VERB, CLI_WRONG,
                       "no size above %d, and %d rows in all, please", MOST,
                       MOST * 64);
    return 0;
}

static void fill_in(int *value, int otherwise)
{
    if (!*value)
        *value = otherwise;
}

static void fill_defaults(bench_request *bench)
{
    static const int sizes[2][3] = {{16, 2048, 512}, {512, 2048, 512}};
    fill_in(&bench->width, 512);
    fill_in(&bench->rows, 16);
    fill_in(&bench->heads, 8);
    fill_in(&bench->length, 256);
    fill_in(&bench->sequences, 2);
    if (bench->size_count == 0) {
        memcpy(bench->sizes, sizes, sizeof sizes);
        bench->size_count = 2;
    }
}

int verb_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "step") == 0)
        return bench_step(argc, argv);
    request asked = {.bench = {.threads = 1, .seconds = 0.5}};
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (exit_status)
        return exit_status;
    if (!asked.what)
        return cli_say(VERB, CLI_WRONG,
                       "say what to time: sluice bench kernels, sluice bench "
                       "stage, or sluice bench step");
    exit_status = refuse_idle_options(&asked);
    if (exit_status)
        return exit_status;
    fill_defaults(&asked.bench);
    exit_status = refuse_too_large(&asked.bench);
    if (exit_status)
        return exit_status;
    return strcmp(asked.what, "stage") == 0 ? bench_stage(&asked.bench)
                                            : bench_kernels(&asked.bench);
}

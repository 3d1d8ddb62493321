/* SPDX-License-Identifier: MIT
 *
 * `sluice bench`: times kernels, stages and whole steps on this machine. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define VERB "bench"

typedef struct request {
    bench_request bench;
    const char *what;
} request;

static error_t parse_layer(const char *text, void *out)
{
    bench_request *asked = out;
    int used = 0;
    if (asked->size_count == 8)
        return cli_refuse("--size is taken up to 8 times");
    int *size = asked->sizes[asked->size_count++];
    if (sscanf(text, "%7dx%7dx%7d%n", &size[0], &size[1], &size[2], &used) !=
            3 ||
        text[used] || size[0] < 1 || size[1] < 1 || size[2] < 1)
        return cli_refuse("--size takes three sizes like 16x2048x512, not "
                          "'%.40s'",
                          text);
    return 0;
}

#define AT(field) offsetof(request, bench.field)
static const cli_option options[] = {
    CLI_LETTERED('t', "threads", "N", SIZE, threads,
                 "Threads of each program (1)"),
    CLI_PRECISION(precision),
    CLI_VALUED("seconds", "S", NUMBER, seconds,
               "Seconds to spend on each measurement (0.5)"),
    CLI_SWITCH("json", json, "Print JSON"),
    CLI_HEADED("kernels:"),
    {"size", 0, "RxOxI", CLI_CUSTOM, offsetof(request, bench),
     "Rows, outputs and inputs of a linear layer; may be given up to 8 times "
     "(16x2048x512 and 512x2048x512)",
     parse_layer},
    CLI_HEADED("stage:"),
    CLI_VALUED("model", "mlp|gpt2", CHOICE, model,
               "One block of this model (both)"),
    CLI_OPTION("d", SIZE, width, "Width (512)"),
    CLI_OPTION("rows", SIZE, rows, "Rows of the mlp's microbatch (16)"),
    CLI_OPTION("heads", SIZE, heads, "Heads of the gpt2 block (8)"),
    CLI_OPTION("seq", SIZE, length, "Sequence length of gpt2 (256)"),
    CLI_OPTION("sequences", SIZE, sequences,
               "Sequences of gpt2's microbatch (2)"),
    CLI_SWITCH("recompute", recompute,
               "Save only inputs, and run forward again in backward"),
    {0},
};

static error_t take_benchmark(const char *text, void *out)
{
    const char **what = out;
    if (*what)
        return cli_refuse("one benchmark at a time: '%.40s' and '%.40s'", *what,
                          text);
    if (strcmp(text, "kernels") != 0 && strcmp(text, "stage") != 0)
        return cli_refuse("unknown benchmark '%.40s'; expected kernels, "
                          "stage, or step as the first argument",
                          text);
    *what = text;
    return 0;
}

static const cli_command command = {
    .options = options,
    .offset = offsetof(request, what),
    .take = take_benchmark,
    .arguments = "kernels|stage\nstep [OPTIONS OF ITS OWN]",
    .help =
        "Time compute on this machine: kernels, one stage, or whole training "
        "steps.\v"
        "kernels: GFLOP/s of a linear layer, forward and for the gradients of "
        "its input (dI) and weight (dW), and the overhead of a kernel call. "
        "stage: one block, forward and backward; `I+W/B` is the time of a "
        "split backward over that of a whole one. step: forward, backward and "
        "SGD under a schedule, on ranks that are threads or processes; `sluice "
        "bench step --help` shows its options.\n\n"
        "  sluice bench kernels\n"
        "  sluice bench step --model gpt2 -p 4 -t 3\n"
        "  sluice bench stage --model gpt2 --d 768 --heads 12 --seq 1024 -t 4",
};

static int refuse_idle_options(const request *asked)
{
    bool stage = strcmp(asked->what, "stage") == 0;
    if (stage && CLI_GIVEN("size"))
        return cli_say(VERB, CLI_WRONG, "--size goes with kernels");
    if (!stage && CLI_GIVEN("model", "d", "rows", "heads", "seq", "sequences",
                            "recompute"))
        return cli_say(VERB, CLI_WRONG,
                       "--model, --d, --rows, --heads, --seq, --sequences and "
                       "--recompute go with stage");
    if (asked->bench.model == BENCH_MLP &&
        CLI_GIVEN("heads", "seq", "sequences"))
        return cli_say(VERB, CLI_WRONG,
                       "--heads, --seq and --sequences go with gpt2");
    if (asked->bench.model == BENCH_GPT2 && CLI_GIVEN("rows"))
        return cli_say(VERB, CLI_WRONG, "--rows goes with mlp");
    return CLI_DONE;
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

int verb_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "step") == 0)
        return bench_step(argc, argv);
    request asked = {.bench = {.threads = 1,
                               .seconds = 0.5,
                               .sizes = {{16, 2048, 512}, {512, 2048, 512}},
                               .model = BENCH_BOTH,
                               .width = 512,
                               .rows = 16,
                               .heads = 8,
                               .length = 256,
                               .sequences = 2}};
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    if (!asked.what)
        return cli_say(VERB, CLI_WRONG,
                       "say what to time: sluice bench kernels, sluice bench "
                       "stage, or sluice bench step");
    CLI_TRY(refuse_idle_options(&asked));
    CLI_TRY(refuse_too_large(&asked.bench));
    if (!asked.bench.size_count)
        asked.bench.size_count = 2;
    return strcmp(asked.what, "stage") == 0 ? bench_stage(&asked.bench)
                                            : bench_kernels(&asked.bench);
}

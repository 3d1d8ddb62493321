/* SPDX-License-Identifier: MIT
 *
 * `sluice VERB`: finds the verb and lets it act. */
#include "cli.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} verbs[] = {
    {"schedule", verb_schedule, "generate a schedule by name"},
    {"lower", verb_lower, "add communication, sharding, gradient reduction"},
    {"check", verb_check, "is a schedule sound, and can it deadlock?"},
    {"simulate", verb_simulate, "how long it takes, and where time is lost"},
    {"view", verb_view, "draw a schedule or a run: page, SVG, PNG, trace"},
    {"cut", verb_cut, "cut a model into stages, and show what crosses"},
    {"devices", verb_devices, "list what can compute here"},
    {"bench", verb_bench, "time kernels, stages and whole steps here"},
    {"train", verb_train, "train a GPT-2 on text or tokens"},
    {"eval", verb_eval, "evaluate a model on text"},
    {"generate", verb_generate, "generate text with a model"},
};
#define VERB_COUNT (sizeof verbs / sizeof *verbs)

static void print_help(FILE *out)
{
    fputs("Usage: sluice VERB [OPTION...]\n"
          "Pipeline-parallel training, and a workbench for schedules.\n"
          "\n",
          out);
    for (size_t i = 0; i < VERB_COUNT; i++)
        fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    fputs(
        "\n"
        "Schedules are CSV, one line per rank, so verbs compose:\n"
        "\n"
        "  sluice schedule zbv -p 4 -m 8 | sluice lower | sluice check\n"
        "  sluice schedule 1f1b -p 4 -m 8 --as grid\n"
        "  sluice schedule interleaved -p 4 -v 2 -m 8 | sluice simulate\n"
        "  sluice view 1f1b zbv -p 4 -m 8 --open\n"
        "  sluice cut --model gpt2 -p 4\n"
        "  sluice train book.txt -p 4 --out run\n"
        "\n"
        "`sluice VERB --help` explains a verb; `sluice --version` prints the\n"
        "version. Exit status: 0 done, 1 the work failed or the check found\n"
        "faults, 2 the request or the input was wrong.\n",
        out);
}

static int run_verb(int argc, char **argv)
{
    const char *names[VERB_COUNT];
    char known[160];
    for (size_t i = 0; i < VERB_COUNT; i++) {
        names[i] = verbs[i].name;
        if (strcmp(argv[0], verbs[i].name) == 0)
            return verbs[i].run(argc, argv);
    }
    return cli_say("", CLI_WRONG, "unknown verb '%.40s'; expected %s", argv[0],
                   cli_join(names, VERB_COUNT, known, sizeof known));
}

static bool is_one_of(const char *word, const char *a, const char *b,
                      const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

int main(int argc, char **argv)
{
    /* A reader that goes away is an error to report, not a death. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* nor is a file that may not grow */
    atexit(cli_flush_at_exit);

    if (argc < 2) {
        print_help(stderr);
        return CLI_WRONG;
    }
    bool help = is_one_of(argv[1], "help", "--help", "-h");
    bool version = is_one_of(argv[1], "version", "--version", "-V");
    if (help && argc == 3) {
        char *asked[] = {argv[2], "--help", NULL};
        return run_verb(2, asked);
    }
    if ((help || version) && argc > 2)
        return cli_say("", CLI_WRONG, "nothing goes after '%s'", argv[1]);
    if (help) {
        print_help(stdout);
        return cli_flush("", SL_OK);
    }
    if (version) {
        printf("sluice %s\n", sl_version());
        return cli_flush("", SL_OK);
    }
    return run_verb(argc - 1, argv + 1);
}

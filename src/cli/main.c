/* SPDX-License-Identifier: MIT
 *
 * `sluice VERB`: finds the verb and lets it act. */
#include "cli.h"

#include <signal.h>
#include <stdio.h>
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
};
#define VERB_COUNT (sizeof verbs / sizeof *verbs)

static void print_help(FILE *out)
{
    fputs("Usage: sluice VERB [OPTION...]\n"
          "Generate, lower, check and simulate pipeline-parallel schedules.\n"
          "\n",
          out);
    for (size_t i = 0; i < VERB_COUNT; i++)
        fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    fputs("\n"
          "Verbs read and write CSV, one line per rank, so they compose:\n"
          "\n"
          "  sluice schedule zbv -p 4 -m 8 | sluice lower | sluice check\n"
          "  sluice schedule 1f1b -p 4 -m 8 --as grid\n"
          "  sluice schedule interleaved -p 4 -v 2 -m 8 | sluice simulate\n"
          "\n"
          "`sluice VERB --help` explains a verb; `sluice --version` tells the\n"
          "version. Exit status: 0 done, 1 the work failed or the check found\n"
          "faults, 2 the request or the input was wrong.\n",
          out);
}

int main(int argc, char **argv)
{
    /* A reader that goes away is an error to report, not a death. */
    signal(SIGPIPE, SIG_IGN);
    argp_err_exit_status = CLI_WRONG;

    const char *verb = argc > 1 ? argv[1] : NULL;
    if (!verb) {
        print_help(stderr);
        return CLI_WRONG;
    }
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0 ||
        strcmp(verb, "help") == 0) {
        print_help(stdout);
        return cli_flush("help", SL_OK);
    }
    if (strcmp(verb, "--version") == 0 || strcmp(verb, "-V") == 0) {
        puts("sluice " SL_VERSION);
        return cli_flush("version", SL_OK);
    }
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(verb, verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr,
            "sluice: unknown verb '%.40s'; known ones: schedule, lower, check, "
            "simulate\n",
            verb);
    return CLI_WRONG;
}

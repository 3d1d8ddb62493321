/* SPDX-License-Identifier: MIT
 *
 * `sluice lower`: run passes over a schedule and print the result. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#define VERB "lower"

typedef struct request {
    const char *file;
    const char *passes;
    sl_lower_options options;
    bool window_given;
    bool recv_given;
} request;

enum { KEY_PASSES = 256, KEY_WINDOW, KEY_RECV };

static const struct argp_option options[] = {
    {"passes", KEY_PASSES, "LIST", 0,
     "Passes in order, between commas: drop-idle, merge-bw, unshard, "
     "reduce-grad, send-recv (default: unshard,reduce-grad,send-recv)",
     0},
    {"recv", KEY_RECV, "asap|late", 0, CLI_RECV_HELP, 0},
    {"unshard-window", KEY_WINDOW, "N", 0, CLI_WINDOW_HELP, 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *asked = state->input;
    switch (key) {
    case KEY_PASSES: asked->passes = arg; return 0;
    case KEY_RECV:
        asked->recv_given = true;
        return cli_parse_recv(arg, &asked->options.recv);
    case KEY_WINDOW:
        asked->window_given = true;
        return cli_parse_size("--unshard-window", arg,
                              &asked->options.unshard_window);
    case ARGP_KEY_ARG: return cli_take_file(arg, &asked->file);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "[FILE]",
    "Lower a compute-only schedule: add what running it takes. FILE is CSV; "
    "`-` or nothing is standard input.\v"
    "  sluice schedule zbv -p 4 -m 8 | sluice lower\n"
    "  sluice lower mine.csv --passes merge-bw,send-recv --recv late",
    NULL,
    NULL,
    NULL};

static int refuse_idle_options(const request *asked)
{
    if (!*asked->passes)
        return cli_say(VERB, CLI_WRONG, "--passes names no pass");
    if (asked->recv_given && !strstr(asked->passes, "send-recv"))
        return cli_say(VERB, CLI_WRONG,
                       "--recv goes with the pass send-recv, which is not in "
                       "'%.100s'",
                       asked->passes);
    if (asked->window_given && !strstr(asked->passes, "unshard"))
        return cli_say(VERB, CLI_WRONG,
                       "--unshard-window goes with the pass unshard, which is "
                       "not in '%.100s'",
                       asked->passes);
    return 0;
}

int verb_lower(int argc, char **argv)
{
    request asked = {.passes = SL_LOWER_DEFAULT_PASSES,
                     .options = SL_LOWER_OPTIONS_INIT};
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (!exit_status)
        exit_status = refuse_idle_options(&asked);
    sl_schedule *schedule, *lowered;
    if (!exit_status)
        exit_status = cli_read_schedule(VERB, asked.file, &schedule);
    if (exit_status)
        return exit_status;
    sl_status status =
        sl_lower(schedule, asked.passes, &asked.options, &lowered);
    sl_schedule_destroy(schedule);
    if (status)
        return cli_failed(VERB, status);
    status = sl_schedule_write_csv(lowered, sl_write_stdio, stdout);
    sl_schedule_destroy(lowered);
    return cli_flush(VERB, status);
}

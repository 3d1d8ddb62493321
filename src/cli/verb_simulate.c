/* SPDX-License-Identifier: MIT
 *
 * `sluice simulate`: run a schedule on paper and tell how long it takes. */
#include "costs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "simulate"

typedef struct request {
    const char *file;
    const char *trace;
    costs_request costs;
    sl_reading reading;
    bool json;
    bool actions;
} request;

enum { KEY_COMM = 256, KEY_JSON, KEY_ACTIONS, KEY_TRACE };

static const struct argp_option options[] = {
#include "costs.def"
    {"comm", KEY_COMM, "READING", 0, CLI_COMM_HELP, 0},
    {"json", KEY_JSON, 0, 0, "Results as JSON", 1},
    {"actions", KEY_ACTIONS, 0, 0,
     "With --json: also the start and end of every action", 1},
    {"trace", KEY_TRACE, "OUT.json", 0,
     "Write a Chrome/Perfetto trace; `-` is standard output", 1},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *asked = state->input;
    switch (key) {
    case KEY_COMM: return cli_parse_reading(arg, &asked->reading);
    case KEY_JSON: asked->json = true; return 0;
    case KEY_ACTIONS: asked->actions = true; return 0;
    case KEY_TRACE: asked->trace = arg; return 0;
    case ARGP_KEY_ARG: return cli_take_file(arg, &asked->file);
    default: return costs_parse(key, arg, &asked->costs);
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "[FILE]",
    "Simulate a schedule: how long it takes, where ranks are idle, and how "
    "many activations they hold. FILE is CSV, compute-only or lowered; `-` or "
    "nothing is standard input.\v"
    "Makespan and idle time are in the unit of the costs; bubble is 1 - busy / "
    "(ranks x makespan).\n\n"
    "  sluice schedule 1f1b -p 4 -m 8 | sluice simulate\n"
    "  sluice schedule zbv -p 4 -m 8 --as lowered |\n"
    "      sluice simulate --latency 0.1 --comm ordered --trace zbv.json",
    NULL,
    NULL,
    NULL};

static int refuse_contradictions(const request *asked)
{
    if (asked->actions && !asked->json)
        return cli_say(VERB, CLI_WRONG, "--actions goes with --json");
    if (asked->trace && strcmp(asked->trace, "-") == 0 && asked->json)
        return cli_say(VERB, CLI_WRONG,
                       "--json and --trace - cannot both have standard output");
    if (asked->costs.file && strcmp(asked->costs.file, "-") == 0 &&
        (!asked->file || strcmp(asked->file, "-") == 0))
        return cli_say(VERB, CLI_WRONG,
                       "the schedule and --costs cannot both come from "
                       "standard input");
    return 0;
}

/* ------------------------------------------------------------- results -- */

static void print_path(const sl_schedule *schedule, const sl_simulation *result)
{
    enum { SHOWN = 10 };
    size_t count;
    const sl_place *path = sl_simulation_critical_path(result, &count);
    printf("critical path:");
    for (size_t i = 0; i < count; i++) {
        if (i == SHOWN && count > SHOWN + 1) {
            printf(" ... (%zu more)", count - SHOWN);
            break;
        }
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(&sl_schedule_row(schedule, path[i].rank)[path[i].step],
                        text);
        printf(" %s", text);
    }
    printf("\n");
}

static void print_result(const sl_schedule *schedule,
                         const sl_simulation *result, size_t steps)
{
    printf("makespan %.10g, bubble %.4f", sl_simulation_makespan(result),
           sl_simulation_bubble(result));
    if (steps)
        printf(", %zu unit steps", steps);
    printf("\n\n%6s %12s %12s %14s\n", "rank", "busy", "idle", "peak bytes");
    for (int rank = 0; rank < sl_schedule_ranks(schedule); rank++) {
        sl_rank_usage usage = sl_simulation_rank(result, rank);
        printf("%6d %12.10g %12.10g %14lld\n", rank, usage.busy, usage.idle,
               (long long)usage.peak_bytes);
    }
    printf("\n");
    print_path(schedule, result);
}

/* A schedule with what a simulation made of it. */
typedef struct simulated {
    const sl_schedule *schedule;
    const sl_simulation *result;
} simulated;

static sl_status write_document(const void *what, sl_write_fn write, void *sink)
{
    const simulated *own = what;
    return sl_view_write_trace(own->schedule, own->result, write, sink);
}

static int write_trace(const char *path, const sl_schedule *schedule,
                       const sl_simulation *result)
{
    const simulated own = {schedule, result};
    return cli_write_to(VERB, path, write_document, &own);
}

static int show(const request *asked, const sl_schedule *schedule,
                const sl_simulation *result)
{
    size_t steps = 0;
    sl_status status = SL_OK;
    if (asked->costs.unit && sl_dry_run(schedule, &steps))
        cli_say(VERB, 0, "no step count: %s", sl_error_text());
    if (asked->trace) {
        int exit_status = write_trace(asked->trace, schedule, result);
        if (exit_status || strcmp(asked->trace, "-") == 0)
            return exit_status;
    }
    if (asked->json)
        status = sl_simulation_write_json(
            result, schedule, steps, asked->actions, sl_write_stdio, stdout);
    else
        print_result(schedule, result, steps);
    return cli_flush(VERB, status);
}

int verb_simulate(int argc, char **argv)
{
    request asked = {.reading = SL_ASYNC};
    sl_costs costs = SL_COSTS_INIT;
    sl_schedule *schedule = NULL;
    sl_simulation *result = NULL;
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (!exit_status)
        exit_status = refuse_contradictions(&asked);
    if (!exit_status)
        exit_status = costs_make(VERB, &asked.costs, &costs);
    if (!exit_status)
        exit_status = cli_read_schedule(VERB, asked.file, &schedule);
    if (!exit_status) {
        sl_status status = cli_add_messages(asked.reading, &schedule);
        if (!status)
            status = sl_simulate(schedule, &costs, asked.reading, &result);
        exit_status =
            status ? cli_failed(VERB, status) : show(&asked, schedule, result);
    }
    sl_simulation_destroy(result);
    sl_schedule_destroy(schedule);
    sl_costs_clear(&costs);
    return exit_status;
}

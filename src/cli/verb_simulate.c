/* SPDX-License-Identifier: MIT
 *
 * `sluice simulate`: simulate a schedule, and show how long it takes. */
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

#define AT(field) offsetof(request, field)
static const cli_option options[] = {
#include "costs.def"
    CLI_VALUED("comm", CLI_COMM_WORDS, CHOICE, reading, CLI_COMM_HELP),
    CLI_HEADED("Output:"),
    CLI_SWITCH("json", json, "Print results as JSON"),
    CLI_SWITCH("actions", actions,
               "With --json: also the start and end of every action"),
    CLI_VALUED("trace", "OUT.json", TEXT, trace,
               "Write a Chrome/Perfetto trace; `-` is standard output"),
    {0},
};

static const cli_command command = {
    .options = options,
    .noun = "FILE",
    .offset = AT(file),
    .arguments = "[FILE]",
    .help =
        "Simulate a schedule: how long it takes, where ranks are idle, and how "
        "many activations they hold. FILE is CSV, compute-only or lowered; `-` "
        "or nothing is standard input.\v"
        "Makespan and idle time are in the unit of the costs; bubble is 1 - "
        "busy / (ranks x makespan).\n\n"
        "  sluice schedule 1f1b -p 4 -m 8 | sluice simulate\n"
        "  sluice schedule zbv -p 4 -m 8 --as lowered |\n"
        "      sluice simulate --latency 0.1 --comm ordered --trace zbv.json",
};

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
    if (asked->trace)
        CLI_TRY(write_trace(asked->trace, schedule, result));
    if (asked->trace && strcmp(asked->trace, "-") == 0)
        return CLI_DONE;
    if (asked->json)
        status = sl_simulation_write_json(
            result, schedule, steps, asked->actions, sl_write_stdio, stdout);
    else
        print_result(schedule, result, steps);
    return cli_flush(VERB, status);
}

static int simulate(const request *asked, const sl_costs *costs,
                    sl_schedule **schedule)
{
    sl_simulation *result;
    CLI_TRY(cli_read_schedule(VERB, asked->file, schedule));
    CLI_TRY(cli_result(VERB, cli_add_messages(asked->reading, schedule)));
    CLI_TRY(cli_result(VERB,
                       sl_simulate(*schedule, costs, asked->reading, &result)));
    int exit_status = show(asked, *schedule, result);
    sl_simulation_destroy(result);
    return exit_status;
}

int verb_simulate(int argc, char **argv)
{
    request asked = {.reading = SL_ASYNC};
    sl_costs costs = SL_COSTS_INIT;
    sl_schedule *schedule = NULL;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    CLI_TRY(refuse_contradictions(&asked));
    int exit_status = costs_make(VERB, &asked.costs, &costs);
    if (!exit_status)
        exit_status = simulate(&asked, &costs, &schedule);
    sl_schedule_destroy(schedule);
    sl_costs_clear(&costs);
    return exit_status;
}

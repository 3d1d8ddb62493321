/* SPDX-License-Identifier: MIT
 *
 * `sluice simulate`: run a schedule on paper and tell how long it takes. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "simulate"

typedef struct request {
    const char *file;
    const char *cost;       /* --cost, not yet parsed */
    const char *costs_file; /* --costs */
    const char *trace;
    double latency;
    double bandwidth;
    double overlap;
    int64_t message_bytes;
    int64_t activation_bytes;
    sl_reading reading;
    bool unit;
    bool json;
    bool actions;
    bool latency_given;
    bool bandwidth_given;
    bool overlap_given;
    bool message_bytes_given;
    bool activation_bytes_given;
} request;

enum {
    KEY_UNIT = 256,
    KEY_COST,
    KEY_COSTS,
    KEY_LATENCY,
    KEY_BANDWIDTH,
    KEY_MESSAGE_BYTES,
    KEY_ACTIVATION_BYTES,
    KEY_OVERLAP,
    KEY_COMM,
    KEY_JSON,
    KEY_ACTIONS,
    KEY_TRACE
};

static const struct argp_option options[] = {
    {"cost", KEY_COST, "F=1,I=1,W=1,B=2", 0,
     "What each kind costs, on every stage; also UNSHARD, RESHARD, "
     "REDUCE_GRAD (0). Defaults as shown",
     0},
    {"costs", KEY_COSTS, "FILE.json", 0,
     "Costs per stage and per edge; options on the command line win", 0},
    {"unit", KEY_UNIT, 0, 0,
     "Every compute costs 1, and also count the steps of a dry run in which "
     "each action takes one, as PyTorch does",
     0},
    {"latency", KEY_LATENCY, "X", 0, "Time of every message (0)", 0},
    {"bandwidth", KEY_BANDWIDTH, "Y", 0,
     "Bytes per unit of time over every edge (unlimited)", 0},
    {"message-bytes", KEY_MESSAGE_BYTES, "N", 0, "Bytes of every message (1)",
     0},
    {"activation-bytes", KEY_ACTIVATION_BYTES, "N", 0,
     "Bytes a stage holds per microbatch in flight (1, so that peak bytes "
     "count microbatches)",
     0},
    {"overlap", KEY_OVERLAP, "X", 0,
     "What OVERLAP_F_B costs, as a part of F + B (1)", 0},
    {"comm", KEY_COMM, "READING", 0,
     "async (the default): messages do not hold the rank; ordered: a rank's "
     "messages go one after another; blocking: each holds both its ranks. A "
     "schedule without communication gets it first, as `sluice lower --passes "
     "send-recv` does",
     0},
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
    case KEY_UNIT: asked->unit = true; return 0;
    case KEY_COST: asked->cost = arg; return 0;
    case KEY_COSTS: asked->costs_file = arg; return 0;
    case KEY_LATENCY:
        asked->latency_given = true;
        return cli_parse_number("--latency", arg, &asked->latency);
    case KEY_BANDWIDTH:
        asked->bandwidth_given = true;
        if (cli_parse_number("--bandwidth", arg, &asked->bandwidth))
            return EINVAL;
        if (asked->bandwidth == 0)
            return cli_refuse("--bandwidth must be above 0");
        return 0;
    case KEY_MESSAGE_BYTES:
        asked->message_bytes_given = true;
        return cli_parse_bytes("--message-bytes", arg, &asked->message_bytes);
    case KEY_ACTIVATION_BYTES:
        asked->activation_bytes_given = true;
        return cli_parse_bytes("--activation-bytes", arg,
                               &asked->activation_bytes);
    case KEY_OVERLAP:
        asked->overlap_given = true;
        return cli_parse_number("--overlap", arg, &asked->overlap);
    case KEY_COMM: return cli_parse_reading(arg, &asked->reading);
    case KEY_JSON: asked->json = true; return 0;
    case KEY_ACTIONS: asked->actions = true; return 0;
    case KEY_TRACE: asked->trace = arg; return 0;
    case ARGP_KEY_ARG: return cli_take_file(arg, &asked->file);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "[FILE]",
    "Run a schedule on paper. FILE is CSV, compute-only or lowered; `-` or "
    "nothing is standard input.\v"
    "Makespan and idle time are in the unit of the costs; bubble is 1 - busy / "
    "(ranks x makespan).\n\n"
    "  sluice schedule 1f1b -p 4 -m 8 | sluice simulate\n"
    "  sluice schedule zbv -p 4 -m 8 --as lowered |\n"
    "      sluice simulate --latency 0.1 --comm ordered --trace zbv.json",
    NULL,
    NULL,
    NULL};

/* -------------------------------------------------------------- costs -- */

/* Sets a kind's cost for every stage. */
static bool set_kind(sl_costs *costs, const char *kind, double value)
{
    for (size_t i = 0; i <= costs->stage_count; i++) {
        sl_stage_cost *stage =
            i < costs->stage_count ? &costs->stages[i] : &costs->stage;
        if (strcmp(kind, "F") == 0)
            stage->forward = value;
        else if (strcmp(kind, "I") == 0)
            stage->backward_input = value;
        else if (strcmp(kind, "W") == 0)
            stage->backward_weight = value;
        else if (strcmp(kind, "B") == 0)
            stage->backward = value;
        else
            break;
        if (i == costs->stage_count)
            return true;
    }
    if (strcmp(kind, "UNSHARD") == 0)
        costs->unshard = value;
    else if (strcmp(kind, "RESHARD") == 0)
        costs->reshard = value;
    else if (strcmp(kind, "REDUCE_GRAD") == 0)
        costs->reduce_grad = value;
    else
        return false;
    return true;
}

/* Parses F=1,I=1,... one pair after the other. */
static int apply_cost(const char *list, sl_costs *costs)
{
    for (bool more = true; more;) {
        char kind[16] = "";
        double value;
        int used = 0;
        if (sscanf(list, "%15[A-Z_]=%lf%n", kind, &value, &used) != 2 ||
            (list[used] && list[used] != ','))
            return cli_say(VERB, CLI_WRONG,
                           "--cost takes KIND=NUMBER pairs like F=1,B=2, not "
                           "'%.60s'",
                           list);
        if (!(value >= 0))
            return cli_say(VERB, CLI_WRONG,
                           "--cost: %s must cost a number from 0 up", kind);
        if (!set_kind(costs, kind, value))
            return cli_say(VERB, CLI_WRONG,
                           "--cost: unknown kind '%s'; known ones: F, I, W, B, "
                           "UNSHARD, RESHARD, REDUCE_GRAD",
                           kind);
        more = list[used] == ',';
        list += used + more;
    }
    return 0;
}

static void apply_edge(const request *asked, sl_edge_cost *edge)
{
    if (asked->latency_given)
        edge->latency = asked->latency;
    if (asked->bandwidth_given)
        edge->bandwidth = asked->bandwidth;
    if (asked->message_bytes_given)
        edge->bytes = asked->message_bytes;
}

static void apply_activation(const request *asked, sl_stage_cost *stage)
{
    if (!asked->activation_bytes_given)
        return;
    stage->activation_bytes = asked->activation_bytes;
    if (stage->input_freed_bytes > stage->activation_bytes)
        stage->input_freed_bytes = stage->activation_bytes;
}

static int apply_file(const char *path, sl_costs *costs)
{
    char *text;
    size_t length;
    int exit_status = cli_read(VERB, path, &text, &length);
    if (exit_status)
        return exit_status;
    sl_status status = sl_costs_read_json(text, length, costs);
    free(text);
    if (status)
        return cli_say(VERB, CLI_WRONG, "%.200s: %s", path, sl_error_text());
    return 0;
}

static int make_costs(const request *asked, sl_costs *costs)
{
    int exit_status = 0;
    if (asked->costs_file)
        exit_status = apply_file(asked->costs_file, costs);
    if (!exit_status && asked->cost)
        exit_status = apply_cost(asked->cost, costs);
    if (exit_status)
        return exit_status;
    apply_edge(asked, &costs->edge);
    for (size_t i = 0; i < costs->edge_count; i++)
        apply_edge(asked, &costs->edges[i]);
    apply_activation(asked, &costs->stage);
    for (size_t i = 0; i < costs->stage_count; i++)
        apply_activation(asked, &costs->stages[i]);
    if (asked->overlap_given)
        costs->overlap = asked->overlap;
    if (asked->unit) {
        costs->stage.backward = 1;
        costs->overlap = 0.5; /* One for the pair. */
    }
    return 0;
}

static int refuse_contradictions(const request *asked)
{
    if (asked->unit &&
        (asked->cost || asked->costs_file || asked->overlap_given))
        return cli_say(VERB, CLI_WRONG,
                       "--unit fixes what compute costs; leave out --cost, "
                       "--costs and --overlap");
    if (asked->actions && !asked->json)
        return cli_say(VERB, CLI_WRONG, "--actions goes with --json");
    if (asked->trace && strcmp(asked->trace, "-") == 0 && asked->json)
        return cli_say(VERB, CLI_WRONG,
                       "--json and --trace - cannot both have standard output");
    if (asked->costs_file && strcmp(asked->costs_file, "-") == 0 &&
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
    if (asked->unit && sl_dry_run(schedule, &steps))
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

/* Where messages are to be ordered or to block, there must be some. */
static sl_status add_messages(const request *asked, sl_schedule **schedule)
{
    sl_schedule *lowered;
    sl_extent extent = sl_schedule_extent(*schedule);
    if (asked->reading == SL_ASYNC || extent.has_communication)
        return SL_OK;
    sl_status status = sl_lower_send_recv(*schedule, SL_RECV_ASAP, &lowered);
    if (status)
        return status;
    sl_schedule_destroy(*schedule);
    *schedule = lowered;
    return SL_OK;
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
        exit_status = make_costs(&asked, &costs);
    if (!exit_status)
        exit_status = cli_read_schedule(VERB, asked.file, &schedule);
    if (!exit_status) {
        sl_status status = add_messages(&asked, &schedule);
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

/* SPDX-License-Identifier: MIT
 *
 * What simulations cost, from the command line: a file, then options over it. */
#include "costs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

error_t costs_parse(int key, char *arg, costs_request *asked)
{
    switch (key) {
    case COSTS_UNIT: asked->unit = true; return 0;
    case COSTS_COST: asked->cost = arg; return 0;
    case COSTS_COSTS: asked->file = arg; return 0;
    case COSTS_LATENCY:
        asked->latency_given = true;
        return cli_parse_number("--latency", arg, &asked->latency);
    case COSTS_BANDWIDTH:
        asked->bandwidth_given = true;
        if (cli_parse_number("--bandwidth", arg, &asked->bandwidth))
            return EINVAL;
        if (asked->bandwidth == 0)
            return cli_refuse("--bandwidth must be above 0");
        return 0;
    case COSTS_MESSAGE_BYTES:
        asked->message_bytes_given = true;
        return cli_parse_bytes("--message-bytes", arg, &asked->message_bytes);
    case COSTS_ACTIVATION_BYTES:
        asked->activation_bytes_given = true;
        return cli_parse_bytes("--activation-bytes", arg,
                               &asked->activation_bytes);
    case COSTS_OVERLAP:
        asked->overlap_given = true;
        return cli_parse_number("--overlap", arg, &asked->overlap);
    default: return ARGP_ERR_UNKNOWN;
    }
}

bool costs_given(const costs_request *asked)
{
    return asked->cost || asked->file || asked->unit || asked->latency_given ||
           asked->bandwidth_given || asked->overlap_given ||
           asked->message_bytes_given || asked->activation_bytes_given;
}

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
        else if (strcmp(kind, "REDUCE_GRAD") == 0)
            stage->reduce_grad = value;
        else
            break;
        if (i == costs->stage_count)
            return true;
    }
    if (strcmp(kind, "UNSHARD") == 0)
        costs->unshard = value;
    else if (strcmp(kind, "RESHARD") == 0)
        costs->reshard = value;
    else
        return false;
    return true;
}

/* Parses F=1,I=1,... one pair after the other. */
static int apply_cost(const char *verb, const char *list, sl_costs *costs)
{
    for (bool more = true; more;) {
        char kind[16] = "";
        double value;
        int used = 0;
        if (sscanf(list, "%15[A-Z_]=%lf%n", kind, &value, &used) != 2 ||
            (list[used] && list[used] != ','))
            return cli_say(verb, CLI_WRONG,
                           "--cost takes KIND=NUMBER pairs like F=1,B=2, not "
                           "'%.60s'",
                           list);
        if (!(value >= 0))
            return cli_say(verb, CLI_WRONG,
                           "--cost: %s must cost a number from 0 up", kind);
        if (!set_kind(costs, kind, value))
            return cli_say(verb, CLI_WRONG,
                           "--cost: unknown kind '%s'; known ones: F, I, W, B, "
                           "UNSHARD, RESHARD, REDUCE_GRAD",
                           kind);
        more = list[used] == ',';
        list += used + more;
    }
    return 0;
}

static void apply_edge(const costs_request *asked, sl_edge_cost *edge)
{
    if (asked->latency_given)
        edge->latency = asked->latency;
    if (asked->bandwidth_given)
        edge->bandwidth = asked->bandwidth;
    if (asked->message_bytes_given)
        edge->bytes = asked->message_bytes;
}

static void apply_activation(const costs_request *asked, sl_stage_cost *stage)
{
    if (!asked->activation_bytes_given)
        return;
    stage->activation_bytes = asked->activation_bytes;
    if (stage->input_freed_bytes > stage->activation_bytes)
        stage->input_freed_bytes = stage->activation_bytes;
}

static int apply_file(const char *verb, const char *path, sl_costs *costs)
{
    char *text;
    size_t length;
    int exit_status = cli_read(verb, path, &text, &length);
    if (exit_status)
        return exit_status;
    sl_status status = sl_costs_read_json(text, length, costs);
    free(text);
    if (status)
        return cli_say(verb, CLI_WRONG, "%.200s: %s", path, sl_error_text());
    return 0;
}

static int refuse_contradictions(const char *verb, const costs_request *asked)
{
    if (asked->unit && (asked->cost || asked->file || asked->overlap_given))
        return cli_say(verb, CLI_WRONG,
                       "--unit fixes what compute costs; leave out --cost, "
                       "--costs and --overlap");
    return 0;
}

int costs_make(const char *verb, const costs_request *asked, sl_costs *costs)
{
    int exit_status = refuse_contradictions(verb, asked);
    if (!exit_status && asked->file)
        exit_status = apply_file(verb, asked->file, costs);
    if (!exit_status && asked->cost)
        exit_status = apply_cost(verb, asked->cost, costs);
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

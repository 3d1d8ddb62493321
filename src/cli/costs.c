/* SPDX-License-Identifier: MIT
 *
 * What simulations cost, from the command line: a file, then
 * options over it. */
#include "costs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

error_t costs_parse_bandwidth(const char *text, void *out)
{
    double *bandwidth = out;
    error_t error = cli_parse_number("--bandwidth", text, bandwidth);
    if (!error && *bandwidth == 0)
        error = cli_refuse("--bandwidth must be above 0");
    return error;
}

bool costs_given(void)
{
    return CLI_GIVEN("cost", "costs", "unit", "latency", "bandwidth", "overlap",
                     "message-bytes", "activation-bytes");
}

/* Sets a kind's cost for every stage. */
static bool set_kind(sl_costs *costs, const char *kind, double value)
{
    static const struct {
        const char *kind;
        size_t offset;
    } kinds[] = {{"F", offsetof(sl_stage_cost, forward)},
                 {"I", offsetof(sl_stage_cost, backward_input)},
                 {"W", offsetof(sl_stage_cost, backward_weight)},
                 {"B", offsetof(sl_stage_cost, backward)},
                 {"REDUCE_GRAD", offsetof(sl_stage_cost, reduce_grad)}};
    if (strcmp(kind, "UNSHARD") == 0) {
        costs->unshard = value;
        return true;
    }
    if (strcmp(kind, "RESHARD") == 0) {
        costs->reshard = value;
        return true;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(kind, kinds[k].kind) != 0)
            continue;
        size_t offset = kinds[k].offset;
        *(double *)((char *)&costs->stage + offset) = value;
        for (size_t i = 0; i < costs->stage_count; i++)
            *(double *)((char *)&costs->stages[i] + offset) = value;
        return true;
    }
    return false;
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
    if (CLI_GIVEN("latency"))
        edge->latency = asked->latency;
    if (CLI_GIVEN("bandwidth"))
        edge->bandwidth = asked->bandwidth;
    if (CLI_GIVEN("message-bytes"))
        edge->bytes = asked->message_bytes;
}

static void apply_activation(const costs_request *asked, sl_stage_cost *stage)
{
    if (!CLI_GIVEN("activation-bytes"))
        return;
    stage->activation_bytes = asked->activation_bytes;
    if (stage->input_freed_bytes > stage->activation_bytes)
        stage->input_freed_bytes = stage->activation_bytes;
}

static int apply_file(const char *verb, const char *path, sl_costs *costs)
{
    char *text;
    size_t length;
    CLI_TRY(cli_read(verb, path, &text, &length));
    sl_status status = sl_costs_read_json(text, length, costs);
    free(text);
    if (status)
        return cli_say(verb, CLI_WRONG, "%.200s: %s", path, sl_error_text());
    return CLI_DONE;
}

int costs_make(const char *verb, const costs_request *asked, sl_costs *costs)
{
    if (asked->unit && CLI_GIVEN("cost", "costs", "overlap"))
        return cli_say(verb, CLI_WRONG,
                       "--unit fixes what compute costs; leave out --cost, "
                       "--costs and --overlap");
    if (asked->file)
        CLI_TRY(apply_file(verb, asked->file, costs));
    if (asked->cost)
        CLI_TRY(apply_cost(verb, asked->cost, costs));
    apply_edge(asked, &costs->edge);
    for (size_t i = 0; i < costs->edge_count; i++)
        apply_edge(asked, &costs->edges[i]);
    apply_activation(asked, &costs->stage);
    for (size_t i = 0; i < costs->stage_count; i++)
        apply_activation(asked, &costs->stages[i]);
    if (CLI_GIVEN("overlap"))
        costs->overlap = asked->overlap;
    if (asked->unit) {
        costs->stage.backward = 1;
        costs->overlap = 0.5; /* One for the pair. */
    }
    return 0;
}

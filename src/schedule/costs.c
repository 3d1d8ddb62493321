/* SPDX-License-Identifier: MIT
 *
 * What actions and messages cost: looking it up, checking it, and reading it
 * from JSON (docs/simulating.md). Unknown keys are refused, so that a misspelt
 * one is not silently ignored. */
#include "schedule/simulation.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------- looking it up -- */

const sl_stage_cost *sl__stage_cost(const sl_costs *costs, int stage)
{
    return costs->stages ? &costs->stages[stage] : &costs->stage;
}

const sl_edge_cost *sl__edge_cost(const sl_costs *costs, int edge)
{
    return costs->edges ? &costs->edges[edge] : &costs->edge;
}

static double edge_time(const sl_edge_cost *edge)
{
    double transfer = 0;
    if (edge->bandwidth > 0)
        transfer = (double)edge->bytes / edge->bandwidth;
    return edge->latency + transfer;
}

double sl__message_cost(const sl_costs *costs, int edge)
{
    return edge_time(sl__edge_cost(costs, edge));
}

static double plain_cost(const sl_costs *costs, uint8_t kind, int stage)
{
    const sl_stage_cost *cost = sl__stage_cost(costs, stage);
    switch (kind) {
    case SL_FORWARD: return cost->forward;
    case SL_BACKWARD_INPUT: return cost->backward_input;
    case SL_BACKWARD_WEIGHT: return cost->backward_weight;
    case SL_BACKWARD: return cost->backward;
    case SL_UNSHARD: return costs->unshard;
    case SL_RESHARD: return costs->reshard;
    case SL_REDUCE_GRAD: return cost->reduce_grad;
    default: return 0; /* A wait takes what it waits for. */
    }
}

double sl__action_cost(const sl_costs *costs, const sl_action *action)
{
    if (action->kind != SL_OVERLAP_F_B)
        return plain_cost(costs, action->kind, action->stage);
    return costs->overlap *
           (plain_cost(costs, SL_FORWARD, action->stage) +
            plain_cost(costs, action->b_kind, action->b_stage));
}

/* ----------------------------------------------------------- checking it -- */

/* Times up to here add up without overflow, however many there are. */
#define MOST_TIME 1e100

static sl_status check_time(const char *what, double value)
{
    if (value >= 0 && value <= MOST_TIME)
        return SL_OK;
    return sl_fail(SL_EINVAL, "%s must be from 0 to %g, not %g", what,
                   MOST_TIME, value);
}

static sl_status check_bytes(const sl_stage_cost *cost, size_t actions)
{
    int64_t most = INT64_MAX / (int64_t)(actions + 1);
    if (cost->activation_bytes < 0 || cost->activation_bytes > most)
        return sl_fail(SL_EINVAL,
                       "activation bytes must be from 0 to %lld for a schedule "
                       "of this size, not %lld",
                       (long long)most, (long long)cost->activation_bytes);
    if (cost->handed_bytes < 0 || cost->handed_bytes > most)
        return sl_fail(SL_EINVAL,
                       "bytes handed from I to W must be from 0 to %lld for a "
                       "schedule of this size, not %lld",
                       (long long)most, (long long)cost->handed_bytes);
    if (cost->input_freed_bytes < 0 ||
        cost->input_freed_bytes > cost->activation_bytes)
        return sl_fail(SL_EINVAL,
                       "bytes freed by I must be from 0 to the activation "
                       "bytes (%lld), not %lld",
                       (long long)cost->activation_bytes,
                       (long long)cost->input_freed_bytes);
    return SL_OK;
}

static sl_status check_stage(const sl_stage_cost *cost, size_t actions)
{
    sl_status status = check_time("the cost of F", cost->forward);
    if (!status)
        status = check_time("the cost of I", cost->backward_input);
    if (!status)
        status = check_time("the cost of W", cost->backward_weight);
    if (!status)
        status = check_time("the cost of B", cost->backward);
    if (!status)
        status = check_time("the cost of REDUCE_GRAD", cost->reduce_grad);
    if (!status)
        status = check_bytes(cost, actions);
    return status;
}

static sl_status check_edge(const sl_edge_cost *edge)
{
    if (!(edge->bandwidth >= 0) || edge->bytes < 0)
        return sl_fail(SL_EINVAL,
                       "bandwidth and bytes of a message must not be negative: "
                       "%g and %lld",
                       edge->bandwidth, (long long)edge->bytes);
    sl_status status = check_time("latency", edge->latency);
    if (!status)
        status = check_time("the time of a message", edge_time(edge));
    return status;
}

static sl_status check_counts(const sl_costs *costs, int stages)
{
    if (costs->stages && costs->stage_count != (size_t)stages)
        return sl_fail(SL_EINVAL,
                       "the costs are of %zu stages, the schedule has %d",
                       costs->stage_count, stages);
    if (costs->edges && costs->edge_count != (size_t)stages - 1)
        return sl_fail(SL_EINVAL,
                       "the costs are of %zu edges, the schedule's %d stages "
                       "have %d",
                       costs->edge_count, stages, stages - 1);
    return SL_OK;
}

sl_status sl__costs_check(const sl_costs *costs, const sl_extent *extent)
{
    sl_status status = check_counts(costs, extent->stages);
    for (int i = 0; i < extent->stages && !status; i++)
        status = check_stage(sl__stage_cost(costs, i), extent->actions);
    for (int i = 0; i + 1 < extent->stages && !status; i++)
        status = check_edge(sl__edge_cost(costs, i));
    if (!status)
        status = check_time("the cost of UNSHARD", costs->unshard);
    if (!status)
        status = check_time("the cost of RESHARD", costs->reshard);
    if (!status)
        status = check_time("overlap", costs->overlap);
    return status;
}

void sl_costs_clear(sl_costs *costs)
{
    if (!costs)
        return;
    free(costs->stages);
    free(costs->edges);
    *costs = (sl_costs)SL_COSTS_INIT;
}

/* ------------------------------------------------------------ reading it -- */

/* Where a key's number goes: one of the two. */
typedef struct field {
    const char *key;
    double *number;
    int64_t *bytes;
} field;

/* Tables end in a field without key; these write where the next goes. */
static field *stage_fields(sl_stage_cost *cost, field *out)
{
    *out++ = (field){"F", &cost->forward, NULL};
    *out++ = (field){"I", &cost->backward_input, NULL};
    *out++ = (field){"W", &cost->backward_weight, NULL};
    *out++ = (field){"B", &cost->backward, NULL};
    *out++ = (field){"REDUCE_GRAD", &cost->reduce_grad, NULL};
    *out++ = (field){"activation_bytes", NULL, &cost->activation_bytes};
    *out++ = (field){"handed_bytes", NULL, &cost->handed_bytes};
    *out++ = (field){"input_freed_bytes", NULL, &cost->input_freed_bytes};
    return out;
}

static field *edge_fields(sl_edge_cost *edge, field *out)
{
    *out++ = (field){"latency", &edge->latency, NULL};
    *out++ = (field){"bandwidth", &edge->bandwidth, NULL};
    *out++ = (field){"bytes", NULL, &edge->bytes};
    return out;
}

static field *global_fields(sl_costs *costs, field *out)
{
    out = stage_fields(&costs->stage, out);
    out = edge_fields(&costs->edge, out);
    *out++ = (field){"UNSHARD", &costs->unshard, NULL};
    *out++ = (field){"RESHARD", &costs->reshard, NULL};
    *out++ = (field){"overlap", &costs->overlap, NULL};
    return out;
}
#define MAX_FIELDS 16

static sl_status read_field(const char *where, const field *into,
                            const json_t *value)
{
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0))
        return sl_fail(SL_EPARSE, "%s: \"%s\" must be a number from 0 up",
                       where, into->key);
    if (into->number) {
        /* In memory 0 stands for unlimited; written, it can only be wrong. */
        if (number == 0 && strcmp(into->key, "bandwidth") == 0)
            return sl_fail(SL_EPARSE,
                           "%s: \"bandwidth\" must be above 0; leave it out "
                           "where it is unlimited",
                           where);
        *into->number = number;
        return SL_OK;
    }
    /* Beyond 2^53 only integers are exact. */
    bool exact = json_is_integer(value) ||
                 (number <= 9007199254740992.0 && number == floor(number));
    if (!exact)
        return sl_fail(SL_EPARSE,
                       "%s: \"%s\" must be a whole number from 0 to 2^63 - 1",
                       where, into->key);
    *into->bytes =
        json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
    return SL_OK;
}

/* Reads an object's members into the fields they name; `skipped` are the keys
 * that are somebody else's, NULL if none. */
static sl_status read_fields(const char *where, const field *fields,
                             const char *const *skipped, const json_t *object)
{
    const char *key;
    const json_t *value;
    if (!json_is_object(object))
        return sl_fail(SL_EPARSE, "%s: expected an object", where);
    json_object_foreach((json_t *)object, key, value)
    {
        const field *into = fields;
        const char *const *skip = skipped;
        while (into->key && strcmp(into->key, key) != 0)
            into++;
        while (skip && *skip && strcmp(*skip, key) != 0)
            skip++;
        char quoted[SL__QUOTED_MAX];
        if (!into->key && !(skip && *skip))
            return sl_fail(SL_EPARSE, "%s: unknown key \"%s\"", where,
                           sl__quoted(key, strlen(key), quoted));
        sl_status status = into->key ? read_field(where, into, value) : SL_OK;
        if (status)
            return status;
    }
    return SL_OK;
}

static sl_status read_stages(const json_t *array, sl_costs *costs)
{
    sl_stage_cost *stages;
    size_t count = json_array_size(array);
    if (count == 0)
        return sl_fail(SL_EPARSE, "\"stages\" must be an array of objects, one "
                                  "per stage");
    sl_status status = sl__alloc(count, sizeof *stages, &stages);
    if (status)
        return status;
    free(costs->stages);
    costs->stages = stages;
    costs->stage_count = count;
    for (size_t i = 0; i < count && !status; i++) {
        char where[32];
        stages[i] = costs->stage;
        field fields[MAX_FIELDS] = {{NULL, NULL, NULL}};
        stage_fields(&stages[i], fields);
        snprintf(where, sizeof where, "stages[%zu]", i);
        status = read_fields(where, fields, NULL, json_array_get(array, i));
    }
    return status;
}

/* No edges are right where there is one stage. */
static sl_status read_edges(const json_t *array, sl_costs *costs)
{
    sl_edge_cost *edges;
    size_t count = json_array_size(array);
    if (!json_is_array(array))
        return sl_fail(SL_EPARSE, "\"edges\" must be an array of objects, one "
                                  "per boundary between stages");
    sl_status status = sl__alloc(count, sizeof *edges, &edges);
    if (status)
        return status;
    free(costs->edges);
    costs->edges = edges;
    costs->edge_count = count;
    for (size_t i = 0; i < count && !status; i++) {
        char where[32];
        edges[i] = costs->edge;
        field fields[MAX_FIELDS] = {{NULL, NULL, NULL}};
        edge_fields(&edges[i], fields);
        snprintf(where, sizeof where, "edges[%zu]", i);
        status = read_fields(where, fields, NULL, json_array_get(array, i));
    }
    return status;
}

/* Numbers for all stages and edges come first: the arrays start from them. */
static sl_status read_root(const json_t *root, sl_costs *costs)
{
    static const char *const arrays[] = {"stages", "edges", NULL};
    field fields[MAX_FIELDS] = {{NULL, NULL, NULL}};
    global_fields(costs, fields);
    const json_t *stages = json_object_get(root, "stages");
    const json_t *edges = json_object_get(root, "edges");
    sl_status status = read_fields("costs", fields, arrays, root);
    if (!status && stages)
        status = read_stages(stages, costs);
    if (!status && edges)
        status = read_edges(edges, costs);
    return status;
}

static sl_status copy_array(void *pointer, size_t count, size_t size)
{
    void *from, *to;
    memcpy(&from, pointer, sizeof from);
    if (!from)
        return SL_OK;
    sl_status status = sl__alloc(count, size, &to);
    if (status)
        return status;
    memcpy(to, from, count * size);
    memcpy(pointer, &to, sizeof to);
    return SL_OK;
}

sl_status sl_costs_read_json(const char *text, size_t length, sl_costs *costs)
{
    SL__NEED(costs);
    if (length)
        SL__NEED(text);
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        char quoted[SL__QUOTED_MAX];
        return sl_fail(SL_EPARSE, "costs: line %d, column %d: %s", error.line,
                       error.column,
                       sl__quoted(error.text, strlen(error.text), quoted));
    }
    /* Read into a copy: a failure leaves the caller's costs as they were. */
    sl_costs read = *costs;
    sl_status status =
        copy_array(&read.stages, read.stage_count, sizeof *read.stages);
    if (status) {
        json_decref(root);
        return status;
    }
    status = copy_array(&read.edges, read.edge_count, sizeof *read.edges);
    if (status)
        read.edges = NULL;
    else
        status = read_root(root, &read);
    json_decref(root);
    if (status) {
        sl_costs_clear(&read);
        return status;
    }
    sl_costs_clear(costs);
    *costs = read;
    return SL_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * What actions and messages cost: looking it up, checking it, and reading it
 * from JSON (docs/simulating.md). Unknown keys are refused, so that a misspelt
 * one is not silently ignored. */
#include "schedule/simulation.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* --------------------------------------------------------- looking it up -- */

const sl_stage_cost *sl__stage_cost(const sl_costs *costs, int stage)
{
    return costs->stage_count ? &costs->stages[stage] : &costs->stage;
}

double sl__message_cost(const sl_costs *costs, int boundary)
{
    const sl_edge_cost *edge =
        costs->edge_count ? &costs->edges[boundary] : &costs->edge;
    double transfer = 0;
    if (edge->bandwidth > 0)
        transfer = (double)edge->bytes / edge->bandwidth;
    return edge->latency + transfer;
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
    case SL_REDUCE_GRAD: return costs->reduce_grad;
    default: return 0;
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

static sl_status check_time(const char *what, double value)
{
    if (isfinite(value) && value >= 0)
        return SL_OK;
    return sl_fail(SL_EINVAL, "%s must be a number from 0 up, not %g", what,
                   value);
}

static sl_status check_stage(const sl_stage_cost *cost)
{
    sl_status status = check_time("the cost of F", cost->forward);
    if (!status)
        status = check_time("the cost of I", cost->backward_input);
    if (!status)
        status = check_time("the cost of W", cost->backward_weight);
    if (!status)
        status = check_time("the cost of B", cost->backward);
    if (status)
        return status;
    if (cost->activation_bytes < 0 || cost->activation_bytes > INT64_MAX >> 32)
        return sl_fail(SL_EINVAL,
                       "activation_bytes must be from 0 to 2^31 - 1 "
                       "gigabytes or so, not %lld",
                       (long long)cost->activation_bytes);
    if (cost->input_freed_bytes < 0 ||
        cost->input_freed_bytes > cost->activation_bytes)
        return sl_fail(SL_EINVAL,
                       "input_freed_bytes must be from 0 to activation_bytes "
                       "(%lld), not %lld",
                       (long long)cost->activation_bytes,
                       (long long)cost->input_freed_bytes);
    return SL_OK;
}

static sl_status check_edge(const sl_edge_cost *edge)
{
    sl_status status = check_time("latency", edge->latency);
    if (!status)
        status = check_time("bandwidth", edge->bandwidth);
    if (!status && edge->bytes < 0)
        status = sl_fail(SL_EINVAL, "message bytes must not be negative: %lld",
                         (long long)edge->bytes);
    return status;
}

static sl_status check_globals(const sl_costs *costs)
{
    sl_status status = check_stage(&costs->stage);
    if (!status)
        status = check_edge(&costs->edge);
    if (!status)
        status = check_time("the cost of UNSHARD", costs->unshard);
    if (!status)
        status = check_time("the cost of RESHARD", costs->reshard);
    if (!status)
        status = check_time("the cost of REDUCE_GRAD", costs->reduce_grad);
    if (!status)
        status = check_time("overlap", costs->overlap);
    return status;
}

sl_status sl__costs_check(const sl_costs *costs, int stages)
{
    sl_status status = check_globals(costs);
    if (status)
        return status;
    if (costs->stage_count && costs->stage_count != (size_t)stages)
        return sl_fail(SL_EINVAL,
                       "the costs are of %zu stages, the schedule has %d",
                       costs->stage_count, stages);
    if (costs->edge_count && costs->edge_count != (size_t)stages - 1)
        return sl_fail(SL_EINVAL,
                       "the costs are of %zu edges, the schedule's %d stages "
                       "have %d",
                       costs->edge_count, stages, stages - 1);
    for (size_t i = 0; i < costs->stage_count && !status; i++)
        status = check_stage(&costs->stages[i]);
    for (size_t i = 0; i < costs->edge_count && !status; i++)
        status = check_edge(&costs->edges[i]);
    return status;
}

void sl_costs_clear(sl_costs *costs)
{
    free(costs->stages);
    free(costs->edges);
    *costs = (sl_costs)SL_COSTS_INIT;
}

/* ------------------------------------------------------------ reading it -- */

/* Where a key's number goes. */
typedef struct field {
    const char *key;
    double *number;
    int64_t *bytes;
} field;

static sl_status read_field(const char *where, const field *into,
                            const json_t *value)
{
    if (!json_is_number(value))
        return sl_fail(SL_EPARSE, "%s: \"%s\" must be a number", where,
                       into->key);
    if (into->number) {
        *into->number = json_number_value(value);
        return SL_OK;
    }
    double bytes = json_number_value(value);
    if (!(bytes >= 0 && bytes < 4e18) || bytes != floor(bytes))
        return sl_fail(SL_EPARSE, "%s: \"%s\" must be a whole number from 0 up",
                       where, into->key);
    *into->bytes = (int64_t)bytes;
    return SL_OK;
}

/* Reads one member into the field it names; `*out_known` tells whether there
 * was one. */
static sl_status read_member(const char *where, const field *fields,
                             const char *key, const json_t *value,
                             bool *out_known)
{
    for (; fields->key; fields++) {
        if (strcmp(fields->key, key) == 0) {
            *out_known = true;
            return read_field(where, fields, value);
        }
    }
    *out_known = false;
    return SL_OK;
}

static sl_status read_fields(const char *where, const field *fields,
                             const json_t *object)
{
    const char *key;
    const json_t *value;
    if (!json_is_object(object))
        return sl_fail(SL_EPARSE, "%s must hold objects", where);
    json_object_foreach((json_t *)object, key, value)
    {
        bool known;
        sl_status status = read_member(where, fields, key, value, &known);
        if (status)
            return status;
        if (!known)
            return sl_fail(SL_EPARSE, "%s: unknown key \"%.40s\"", where, key);
    }
    return SL_OK;
}

static sl_status read_stages(const json_t *array, sl_costs *costs)
{
    sl_stage_cost *stages;
    size_t count = json_array_size(array);
    if (count == 0)
        return sl_fail(SL_EPARSE, "stages: expected an array of objects, one "
                                  "per stage");
    sl_status status = sl__alloc(count, sizeof *stages, &stages);
    for (size_t i = 0; i < count && !status; i++) {
        sl_stage_cost *cost = &stages[i];
        *cost = costs->stage;
        const field fields[] = {
            {"F", &cost->forward, NULL},
            {"I", &cost->backward_input, NULL},
            {"W", &cost->backward_weight, NULL},
            {"B", &cost->backward, NULL},
            {"activation_bytes", NULL, &cost->activation_bytes},
            {"input_freed_bytes", NULL, &cost->input_freed_bytes},
            {NULL, NULL, NULL},
        };
        status = read_fields("stages", fields, json_array_get(array, i));
        if (status)
            free(stages);
    }
    if (status)
        return status;
    free(costs->stages);
    costs->stages = stages;
    costs->stage_count = count;
    return SL_OK;
}

static sl_status read_edges(const json_t *array, sl_costs *costs)
{
    sl_edge_cost *edges;
    size_t count = json_array_size(array);
    if (count == 0)
        return sl_fail(SL_EPARSE, "edges: expected an array of objects, one "
                                  "per boundary between stages");
    sl_status status = sl__alloc(count, sizeof *edges, &edges);
    for (size_t i = 0; i < count && !status; i++) {
        sl_edge_cost *edge = &edges[i];
        *edge = costs->edge;
        const field fields[] = {
            {"latency", &edge->latency, NULL},
            {"bandwidth", &edge->bandwidth, NULL},
            {"bytes", NULL, &edge->bytes},
            {NULL, NULL, NULL},
        };
        status = read_fields("edges", fields, json_array_get(array, i));
        if (status)
            free(edges);
    }
    if (status)
        return status;
    free(costs->edges);
    costs->edges = edges;
    costs->edge_count = count;
    return SL_OK;
}

/* Numbers for all stages and edges first: the arrays start from them. */
static sl_status read_globals(const json_t *root, sl_costs *costs)
{
    const field fields[] = {
        {"F", &costs->stage.forward, NULL},
        {"I", &costs->stage.backward_input, NULL},
        {"W", &costs->stage.backward_weight, NULL},
        {"B", &costs->stage.backward, NULL},
        {"activation_bytes", NULL, &costs->stage.activation_bytes},
        {"input_freed_bytes", NULL, &costs->stage.input_freed_bytes},
        {"latency", &costs->edge.latency, NULL},
        {"bandwidth", &costs->edge.bandwidth, NULL},
        {"bytes", NULL, &costs->edge.bytes},
        {"UNSHARD", &costs->unshard, NULL},
        {"RESHARD", &costs->reshard, NULL},
        {"REDUCE_GRAD", &costs->reduce_grad, NULL},
        {"overlap", &costs->overlap, NULL},
        {NULL, NULL, NULL},
    };
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        bool known;
        sl_status status = read_member("costs", fields, key, value, &known);
        if (status)
            return status;
        if (!known && strcmp(key, "stages") != 0 && strcmp(key, "edges") != 0)
            return sl_fail(SL_EPARSE, "costs: unknown key \"%.40s\"", key);
    }
    return SL_OK;
}

static sl_status read_root(const json_t *root, sl_costs *costs)
{
    if (!json_is_object(root))
        return sl_fail(SL_EPARSE, "costs: expected a JSON object");
    const json_t *stages = json_object_get(root, "stages");
    const json_t *edges = json_object_get(root, "edges");
    sl_status status = read_globals(root, costs);
    if (!status && stages)
        status = read_stages(stages, costs);
    if (!status && edges)
        status = read_edges(edges, costs);
    if (!status)
        status = check_globals(costs);
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
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return sl_fail(SL_EPARSE, "costs: line %d, column %d: %s", error.line,
                       error.column, error.text);
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

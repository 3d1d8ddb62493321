/* SPDX-License-Identifier: MIT
 *
 * The costs of actions and messages: looks them up, checks them, and reads them
 * from JSON (docs/simulating.md). Unknown keys are refused, so that a misspelt
 * one is not silently ignored. */
#include "schedule/simulation.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

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

static const sl_edge_cost *edge_cost(const sl_costs *costs, int edge)
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
    return edge_time(edge_cost(costs, edge));
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
    default: return 0; /* A wait has no cost of its own. */
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

/* ---------------------------------------------------- the keys of JSON -- */

/* What a key describes: a stage, an edge, or all of them. */
enum { STAGE, EDGE, GLOBAL, PARTS };

typedef struct field {
    const char *key;
    uint8_t part;
    bool is_bytes; /* an int64_t; else a double */
    size_t offset; /* in the struct of its part */
} field;

static const field fields[] = {
    {"F", STAGE, false, offsetof(sl_stage_cost, forward)},
    {"I", STAGE, false, offsetof(sl_stage_cost, backward_input)},
    {"W", STAGE, false, offsetof(sl_stage_cost, backward_weight)},
    {"B", STAGE, false, offsetof(sl_stage_cost, backward)},
    {"REDUCE_GRAD", STAGE, false, offsetof(sl_stage_cost, reduce_grad)},
    {"activation_bytes", STAGE, true,
     offsetof(sl_stage_cost, activation_bytes)},
    {"handed_bytes", STAGE, true, offsetof(sl_stage_cost, handed_bytes)},
    {"input_freed_bytes", STAGE, true,
     offsetof(sl_stage_cost, input_freed_bytes)},
    {"latency", EDGE, false, offsetof(sl_edge_cost, latency)},
    {"bandwidth", EDGE, false, offsetof(sl_edge_cost, bandwidth)},
    {"bytes", EDGE, true, offsetof(sl_edge_cost, bytes)},
    {"UNSHARD", GLOBAL, false, offsetof(sl_costs, unshard)},
    {"RESHARD", GLOBAL, false, offsetof(sl_costs, reshard)},
    {"overlap", GLOBAL, false, offsetof(sl_costs, overlap)},
};
#define FIELDS (sizeof fields / sizeof *fields)

/* ----------------------------------------------------------- checking it -- */

/* Times up to this limit add up without overflow, however many there are. */
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
    for (size_t i = 0; i < FIELDS; i++) {
        char what[40];
        if (fields[i].part != STAGE || fields[i].is_bytes)
            continue;
        snprintf(what, sizeof what, "the cost of %s", fields[i].key);
        SL__TRY(check_time(
            what, *(const double *)((const char *)cost + fields[i].offset)));
    }
    return check_bytes(cost, actions);
}

static sl_status check_edge(const sl_edge_cost *edge)
{
    if (!(edge->bandwidth >= 0) || edge->bytes < 0)
        return sl_fail(SL_EINVAL,
                       "bandwidth and bytes of a message must not be negative: "
                       "%g and %lld",
                       edge->bandwidth, (long long)edge->bytes);
    SL__TRY(check_time("latency", edge->latency));
    return check_time("the time of a message", edge_time(edge));
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
    SL__TRY(check_counts(costs, extent->stages));
    for (int i = 0; i < extent->stages; i++)
        SL__TRY(check_stage(sl__stage_cost(costs, i), extent->actions));
    for (int i = 0; i + 1 < extent->stages; i++)
        SL__TRY(check_edge(edge_cost(costs, i)));
    SL__TRY(check_time("the cost of UNSHARD", costs->unshard));
    SL__TRY(check_time("the cost of RESHARD", costs->reshard));
    return check_time("overlap", costs->overlap);
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

static sl_status read_bytes(const char *where, const char *key,
                            const json_t *value, int64_t *out)
{
    double number = json_number_value(value);
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return SL_OK;
    }
    /* Beyond 2^53 only integers are exact. */
    if (number > 9007199254740992.0 || number != floor(number))
        return sl_fail(SL_EPARSE,
                       "%s: \"%s\" must be a whole number from 0 to 2^63 - 1",
                       where, key);
    *out = (int64_t)number;
    return SL_OK;
}

static sl_status read_field(const char *where, const field *into, void *part,
                            const json_t *value)
{
    void *out = (char *)part + into->offset;
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0))
        return sl_fail(SL_EPARSE, "%s: \"%s\" must be a number from 0 up",
                       where, into->key);
    if (into->is_bytes)
        return read_bytes(where, into->key, value, out);
    /* In memory 0 means unlimited; in a file it can only be a mistake. */
    if (number == 0 && strcmp(into->key, "bandwidth") == 0)
        return sl_fail(SL_EPARSE,
                       "%s: \"bandwidth\" must be above 0; leave it out "
                       "where it is unlimited",
                       where);
    *(double *)out = number;
    return SL_OK;
}

/* Reads the members of an object into the parts that they describe; a part is
 * NULL where the object has no members for it. The root object has members for
 * all parts; its arrays are skipped here. */
static sl_status read_object(const char *where, const json_t *object,
                             void *const parts[PARTS])
{
    const char *key;
    const json_t *value;
    if (!json_is_object(object))
        return sl_fail(SL_EPARSE, "%s: expected an object", where);
    json_object_foreach((json_t *)object, key, value)
    {
        char quoted[SL__QUOTED_MAX];
        size_t i = 0;
        while (i < FIELDS &&
               !(parts[fields[i].part] && strcmp(fields[i].key, key) == 0))
            i++;
        bool is_array = parts[GLOBAL] && (strcmp(key, "stages") == 0 ||
                                          strcmp(key, "edges") == 0);
        if (i < FIELDS)
            SL__TRY(
                read_field(where, &fields[i], parts[fields[i].part], value));
        else if (!is_array)
            return sl_fail(SL_EPARSE, "%s: unknown key \"%s\"", where,
                           sl__quoted(key, strlen(key), quoted));
    }
    return SL_OK;
}

static sl_status read_item(const char *name, const json_t *array, size_t i,
                           sl_stage_cost *stage, sl_edge_cost *edge)
{
    char where[32];
    snprintf(where, sizeof where, "%s[%zu]", name, i);
    return read_object(where, json_array_get(array, i),
                       (void *[PARTS]){stage, edge, NULL});
}

static sl_status read_stages(const json_t *array, sl_costs *costs)
{
    size_t count = json_array_size(array);
    if (count == 0)
        return sl_fail(SL_EPARSE, "\"stages\" must be an array of objects, one "
                                  "per stage");
    free(costs->stages);
    costs->stages = NULL;
    SL__TRY(sl__alloc(count, sizeof *costs->stages, &costs->stages));
    costs->stage_count = count;
    for (size_t i = 0; i < count; i++) {
        costs->stages[i] = costs->stage;
        SL__TRY(read_item("stages", array, i, &costs->stages[i], NULL));
    }
    return SL_OK;
}

/* An empty array is right for a model of one stage. */
static sl_status read_edges(const json_t *array, sl_costs *costs)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array))
        return sl_fail(SL_EPARSE, "\"edges\" must be an array of objects, one "
                                  "per boundary between stages");
    free(costs->edges);
    costs->edges = NULL;
    SL__TRY(sl__alloc(count, sizeof *costs->edges, &costs->edges));
    costs->edge_count = count;
    for (size_t i = 0; i < count; i++) {
        costs->edges[i] = costs->edge;
        SL__TRY(read_item("edges", array, i, NULL, &costs->edges[i]));
    }
    return SL_OK;
}

/* Reads the numbers for all stages and edges first: they are the defaults of
 * the arrays. */
static sl_status read_root(const json_t *root, sl_costs *costs)
{
    const json_t *stages = json_object_get(root, "stages");
    const json_t *edges = json_object_get(root, "edges");
    SL__TRY(read_object("costs", root,
                        (void *[PARTS]){&costs->stage, &costs->edge, costs}));
    if (stages)
        SL__TRY(read_stages(stages, costs));
    return edges ? read_edges(edges, costs) : SL_OK;
}

/* Reads into a copy of `costs`. `out` has no arrays of its own yet. */
static sl_status read_over(const sl_costs *costs, const json_t *root,
                           sl_costs *out)
{
    size_t stage_bytes = costs->stage_count * sizeof *costs->stages;
    size_t edge_bytes = costs->edge_count * sizeof *costs->edges;
    if (costs->stages) {
        SL__TRY(sl__alloc(1, stage_bytes, &out->stages));
        memcpy(out->stages, costs->stages, stage_bytes);
    }
    if (costs->edges) {
        SL__TRY(sl__alloc(1, edge_bytes, &out->edges));
        memcpy(out->edges, costs->edges, edge_bytes);
    }
    return read_root(root, out);
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
    read.stages = NULL;
    read.edges = NULL;
    sl_status status = read_over(costs, root, &read);
    json_decref(root);
    sl_costs_clear(status ? &read : costs);
    if (!status)
        *costs = read;
    return status;
}

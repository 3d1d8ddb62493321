/* SPDX-License-Identifier: MIT
 *
 * Reads a Chrome trace that run_trace.c wrote: `cat` and `args` of its slices
 * say which events of a run they are. A member that is missing, of the wrong
 * type or out of range is refused, with the number of its event. */
#include "view/measured.h"

#include "base/arguments.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* About thirty years in microseconds: more is a mistake, and would lose
 * precision. */
#define MOST_US 1e15

typedef struct list {
    sl_event *data;
    size_t count;
    size_t capacity;
} list;

typedef struct reader {
    size_t number; /* of the event being read */
    list *ranks;
    sl__rank_events *views;
    int count;
} reader;

/* -------------------------------------------------------------- members -- */

static sl_status refuse(const reader *own, const char *what)
{
    return sl_fail(SL_EPARSE, "event %zu: %s", own->number, what);
}

static sl_status read_time(const reader *own, const json_t *event,
                           const char *key, double *out)
{
    const json_t *value = json_object_get(event, key);
    double number = json_number_value(value);
    if (!json_is_number(value) || !(fabs(number) <= MOST_US))
        return sl_fail(SL_EPARSE,
                       "event %zu: \"%s\" must be a number of microseconds, "
                       "below 1e15",
                       own->number, key);
    *out = number * 1e-6;
    return SL_OK;
}

/* Reads a whole number from 0 to `most`; -1 if it is absent and optional. */
static sl_status read_whole(const reader *own, const json_t *object,
                            const char *key, bool needed, int64_t most,
                            int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = -1;
    if (!value && !needed)
        return SL_OK;
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number > most)
        return sl_fail(SL_EPARSE,
                       "event %zu: \"%s\" must be a whole number from 0 to "
                       "%lld",
                       own->number, key, (long long)most);
    *out = number;
    return SL_OK;
}

static sl_status read_kind(const reader *own, const json_t *event,
                           sl_event_kind *out)
{
    const char *text = json_string_value(json_object_get(event, "cat"));
    for (int kind = 0; text && kind < SL_EVENT_KINDS; kind++) {
        if (strcmp(text, sl_event_kind_text((sl_event_kind)kind)) == 0) {
            *out = (sl_event_kind)kind;
            return SL_OK;
        }
    }
    return refuse(own, "\"cat\" must be a kind of event, like compute or wait");
}

static sl_status read_action(const reader *own, const json_t *args,
                             sl_action *out)
{
    const json_t *value = json_object_get(args, "action");
    if (!json_is_string(value))
        return refuse(own, "its args have no \"action\"");
    if (sl_action_parse(json_string_value(value), json_string_length(value),
                        out))
        return refuse(own, "its \"action\" is none");
    return SL_OK;
}

/* ---------------------------------------------------------------- slices -- */

static sl_status read_slice(reader *own, const json_t *json)
{
    enum { MANY = 1 << 24 };
    sl_event event = {0};
    int64_t rank, peer, peer_stage, edge, bytes;
    double length;
    const json_t *args = json_object_get(json, "args");
    SL__TRY(read_whole(own, json, "pid", true, own->count - 1, &rank));
    SL__TRY(read_kind(own, json, &event.kind));
    SL__TRY(read_action(own, args, &event.action));
    SL__TRY(read_time(own, json, "ts", &event.start_s));
    SL__TRY(read_time(own, json, "dur", &length));
    SL__TRY(read_whole(own, args, "peer", false, own->count - 1, &peer));
    SL__TRY(read_whole(own, args, "peer_stage", false, SL_MAX_STAGES - 1,
                       &peer_stage));
    SL__TRY(read_whole(own, args, "edge", false, MANY, &edge));
    SL__TRY(read_whole(own, args, "bytes", false, INT64_C(1) << 40, &bytes));
    list *to = &own->ranks[rank];
    SL__TRY(sl__grow(&to->data, &to->capacity, to->count + 1, sizeof event));
    event.end_s = event.start_s + length;
    event.peer = (int)peer;
    event.peer_stage = (int)peer_stage;
    event.edge = (int)edge;
    event.bytes = bytes < 0 ? 0 : bytes;
    to->data[to->count++] = event;
    return SL_OK;
}

/* Makes the first compute time 0, as in the run. */
static void start_at_zero(reader *own)
{
    double first = INFINITY;
    for (int r = 0; r < own->count; r++) {
        for (size_t i = 0; i < own->ranks[r].count; i++) {
            const sl_event *event = &own->ranks[r].data[i];
            if (event->kind == SL_EVENT_COMPUTE)
                first = fmin(first, event->start_s);
        }
    }
    for (int r = 0; r < own->count && isfinite(first); r++) {
        for (size_t i = 0; i < own->ranks[r].count; i++) {
            own->ranks[r].data[i].start_s -= first;
            own->ranks[r].data[i].end_s -= first;
        }
    }
}

/* ------------------------------------------------------------------ all -- */

static sl_status read_head(const json_t *root, reader *own)
{
    const json_t *head = json_object_get(root, "sluice");
    const json_t *ranks = json_object_get(head, "ranks");
    if (!json_is_object(head) ||
        json_integer_value(json_object_get(head, "version")) != 1)
        return sl_fail(SL_EPARSE,
                       "no trace of a run: \"sluice\" with version 1 is not "
                       "in it (`sluice train --trace` writes one)");
    if (!json_is_integer(ranks) || json_integer_value(ranks) < 1 ||
        json_integer_value(ranks) > SL_MAX_RANKS)
        return sl_fail(SL_EPARSE, "\"ranks\" must be from 1 to %d",
                       SL_MAX_RANKS);
    own->count = (int)json_integer_value(ranks);
    SL__TRY(sl__alloc((size_t)own->count, sizeof *own->ranks, &own->ranks));
    SL__TRY(sl__alloc((size_t)own->count, sizeof *own->views, &own->views));
    for (int r = 0; r < own->count; r++) {
        const json_t *bytes =
            json_array_get(json_object_get(head, "bytes"), (size_t)r);
        const json_t *slabs = json_object_get(bytes, "slabs");
        own->views[r].slabs =
            json_is_integer(slabs) && json_integer_value(slabs) >= 0
                ? json_integer_value(slabs)
                : -1;
    }
    return SL_OK;
}

static sl_status read_root(const char *title, const json_t *root, reader *own,
                           sl_timeline **out)
{
    const json_t *events = json_object_get(root, "traceEvents");
    SL__TRY(read_head(root, own));
    if (!json_is_array(events))
        return sl_fail(SL_EPARSE, "\"traceEvents\" is no array");
    for (; own->number < json_array_size(events); own->number++) {
        const json_t *event = json_array_get(events, own->number);
        const char *phase = json_string_value(json_object_get(event, "ph"));
        if (!phase)
            return refuse(own, "it has no \"ph\"");
        if (strcmp(phase, "X") == 0)
            SL__TRY(read_slice(own, event));
    }
    start_at_zero(own);
    for (int r = 0; r < own->count; r++) {
        own->views[r].events = own->ranks[r].data;
        own->views[r].count = own->ranks[r].count;
    }
    return sl__timeline_from_events(title, own->views, own->count, out);
}

sl_status sl_timeline_read(const char *title, const char *text, size_t length,
                           sl_timeline **out)
{
    SL__NEED(title, out);
    if (length)
        SL__NEED(text);
    json_error_t error;
    reader own = {0};
    json_t *root = json_loadb(text, length, 0, &error);
    if (!root)
        return sl_fail(SL_EPARSE, "not JSON: line %d: %s", error.line,
                       error.text);
    sl_status status = read_root(title, root, &own, out);
    for (int r = 0; own.ranks && r < own.count; r++)
        free(own.ranks[r].data);
    free(own.ranks);
    free(own.views);
    json_decref(root);
    return status;
}

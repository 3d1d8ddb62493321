/* SPDX-License-Identifier: MIT
 *
 * Writes a timeline in the compact form of encode.h. A walk visits every number
 * in the order of that form. It runs twice: first to collect the values of the
 * tables, then to write. */
#include "view/encode.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct table {
    int64_t *values;
    size_t count;
    size_t capacity;
    int64_t latest; /* added or found; most values repeat it */
    size_t latest_at;
} table;

typedef struct encoder {
    const sl_timeline *timeline;
    double tick;
    int64_t offset; /* time of the timeline's beginning, in ticks */
    bool writes;    /* the second walk; else the first */
    table times;
    table bytes;
    uint8_t *data;
    size_t length;
    size_t capacity;
    sl_status status; /* the first failure */
} encoder;

/* ---------------------------------------------------------------- tables -- */

static int compare_values(const void *a, const void *b)
{
    int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
    return (first > second) - (first < second);
}

static void collect(encoder *own, table *into, int64_t value)
{
    if (own->status || (into->count && into->latest == value))
        return;
    own->status = sl__grow(&into->values, &into->capacity, into->count + 1,
                           sizeof *into->values);
    if (own->status)
        return;
    into->values[into->count++] = into->latest = value;
}

/* Sorts the values, and removes duplicates. */
static void close_table(table *t)
{
    size_t kept = 0;
    if (t->count)
        qsort(t->values, t->count, sizeof *t->values, compare_values);
    for (size_t i = 0; i < t->count; i++) {
        if (!kept || t->values[kept - 1] != t->values[i])
            t->values[kept++] = t->values[i];
    }
    t->count = kept;
    t->latest_at = 0;
    t->latest = kept ? t->values[0] : 0;
}

static size_t find(table *t, int64_t value)
{
    size_t low = 0, high = t->count;
    if (t->latest == value)
        return t->latest_at;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->values[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    assert(low < t->count && t->values[low] == value);
    t->latest = value;
    t->latest_at = low;
    return low;
}

/* --------------------------------------------------------------- numbers -- */

static void put_number(encoder *own, uint64_t number)
{
    enum { LONGEST = 10 };
    if (!own->writes || own->status)
        return;
    own->status = sl__grow(&own->data, &own->capacity, own->length + LONGEST,
                           sizeof *own->data);
    if (own->status)
        return;
    for (; number >= 128; number >>= 7)
        own->data[own->length++] = (uint8_t)(number | 128);
    own->data[own->length++] = (uint8_t)number;
}

static void put_in(encoder *own, table *t, int64_t value)
{
    if (own->writes)
        put_number(own, find(t, value));
    else
        collect(own, t, value);
}

static uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static void put_table(encoder *own, const table *t, bool is_signed)
{
    int64_t before = 0;
    put_number(own, t->count);
    for (size_t i = 0; i < t->count; i++) {
        int64_t step = t->values[i] - before;
        put_number(own, is_signed ? zigzag(step) : (uint64_t)step);
        before = t->values[i];
    }
}

static int64_t ticks_of(const encoder *own, double time)
{
    return llround(time / own->tick) - own->offset;
}

/* ---------------------------------------------------------------- blocks -- */

/* Values of the previous block or message, to which the next is relative. */
typedef struct cursor {
    int64_t ticks;
    int64_t bytes;
} cursor;

enum { CRITICAL = 32, GAP = 64, OTHER_BYTES = 128 };
_Static_assert((int)SL__BLOCK_KINDS <= (int)CRITICAL,
               "a kind fits below the flags");

static void put_block(encoder *own, const sl__block *block, cursor *at)
{
    int64_t start = ticks_of(own, block->start);
    int64_t end = ticks_of(own, block->end);
    start = start < at->ticks ? at->ticks : start;
    end = end < start ? start : end;
    bool gap = start > at->ticks;
    assert(block->kind < SL__BLOCK_KINDS && block->action.microbatch >= 0);
    bool same =
        block->held.during == at->bytes && block->held.after == at->bytes;
    put_number(own, (uint64_t)(block->kind | (block->critical ? CRITICAL : 0) |
                               (gap ? GAP : 0) | (same ? 0 : OTHER_BYTES)));
    put_number(own, block->action.stage);
    put_number(own, (uint64_t)block->action.microbatch);
    if (block->kind == SL_OVERLAP_F_B) {
        put_number(own, block->action.b_kind);
        put_number(own, block->action.b_stage);
        put_number(own, (uint64_t)block->action.b_microbatch);
    }
    if (gap) {
        int64_t ready = ticks_of(own, block->ready) - at->ticks;
        ready = ready < 0 ? 0 : ready;
        put_in(own, &own->times, start - at->ticks);
        put_number(own, block->why);
        put_in(own, &own->times,
               ready > start - at->ticks ? start - at->ticks : ready);
    }
    put_in(own, &own->times, end - start);
    if (!same) {
        put_in(own, &own->bytes, block->held.during - at->bytes);
        put_in(own, &own->bytes, block->held.after - block->held.during);
    }
    *at = (cursor){end, block->held.after};
}

static void put_comm(encoder *own, const sl__block *block, cursor *at)
{
    int64_t start = ticks_of(own, block->start);
    int64_t end = ticks_of(own, block->end);
    put_number(own, (uint64_t)(block->kind | (block->critical ? CRITICAL : 0)));
    put_number(own, block->action.stage);
    put_number(own, (uint64_t)block->action.microbatch);
    put_number(own, (uint64_t)(block->peer + 1));
    put_number(own, (uint64_t)(block->peer_stage + 1));
    put_number(own, (uint64_t)(block->edge + 1));
    put_in(own, &own->bytes, block->bytes);
    put_in(own, &own->times, start - at->ticks);
    put_in(own, &own->times, end - start);
    at->ticks = start;
}

static void put_message(encoder *own, const sl__transfer *message, cursor *at)
{
    int64_t sent = ticks_of(own, message->sent);
    int64_t arrived = ticks_of(own, message->arrived);
    put_number(own, message->forward);
    put_number(own, (uint64_t)message->from_rank);
    put_number(own, (uint64_t)message->to_rank);
    put_number(own, (uint64_t)message->from_stage);
    put_number(own, (uint64_t)message->to_stage);
    put_number(own, (uint64_t)message->microbatch);
    put_number(own, (uint64_t)(message->edge + 1));
    put_in(own, &own->bytes, message->bytes);
    put_in(own, &own->times, sent - at->ticks);
    put_in(own, &own->times, arrived < sent ? 0 : arrived - sent);
    at->ticks = sent;
}

static void walk(encoder *own)
{
    const sl_timeline *timeline = own->timeline;
    for (int r = 0; r < timeline->ranks; r++) {
        const sl__track *track = &timeline->tracks[r];
        cursor at = {0, 0};
        put_number(own, track->blocks.count);
        for (size_t i = 0; i < track->blocks.count; i++)
            put_block(own, &track->blocks.data[i], &at);
        at = (cursor){0, 0};
        put_number(own, track->comms.count);
        for (size_t i = 0; i < track->comms.count; i++)
            put_comm(own, &track->comms.data[i], &at);
    }
    cursor at = {0, 0};
    put_number(own, timeline->message_count);
    for (size_t i = 0; i < timeline->message_count; i++)
        put_message(own, &timeline->messages[i], &at);
}

/* A power of two, about 2^-44 of the whole time: simple costs stay exact, and
 * every sum of ticks is exact in a double. */
static double choose_tick(const sl_timeline *timeline)
{
    enum { LEAST = -1074 }; /* of the smallest double */
    int exponent;
    double length = timeline->end - timeline->begin;
    if (!(length > 0))
        return 1;
    frexp(length, &exponent);
    return ldexp(1, exponent > LEAST + 44 ? exponent - 44 : LEAST);
}

sl_status sl__timeline_encode(const sl_timeline *timeline, sl__packed *out)
{
    encoder own = {.timeline = timeline, .tick = choose_tick(timeline)};
    own.offset = llround(floor(timeline->begin / own.tick));
    walk(&own);
    close_table(&own.times);
    close_table(&own.bytes);
    own.writes = true;
    put_table(&own, &own.times, false);
    put_table(&own, &own.bytes, true);
    walk(&own);
    free(own.times.values);
    free(own.bytes.values);
    if (own.status) {
        free(own.data);
        return own.status;
    }
    *out = (sl__packed){own.data, own.length, own.tick, own.offset};
    return SL_OK;
}

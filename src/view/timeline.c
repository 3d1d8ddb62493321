/* SPDX-License-Identifier: MIT
 *
 * A timeline: blocks and messages in order, their extents and sums. */
#include "view/timeline.h"

#include "base/memory.h"
#include "schedule/action.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

sl_status sl__timeline_create(const char *title, int ranks, sl_timeline **out)
{
    sl_timeline *made;
    sl_status status;
    SL__TRY(sl__alloc(1, sizeof *made, &made));
    made->ranks = ranks;
    SL__TRY_OR(destroy,
               sl__alloc((size_t)ranks, sizeof *made->tracks, &made->tracks));
    SL__TRY_OR(destroy, sl__alloc(strlen(title) + 1, 1, &made->title));
    memcpy(made->title, title, strlen(title));
    for (int r = 0; r < ranks; r++)
        made->tracks[r].planned_bytes = -1;
    *out = made;
    return SL_OK;
destroy:
    sl_timeline_destroy(made);
    return status;
}

void sl_timeline_destroy(sl_timeline *timeline)
{
    if (!timeline)
        return;
    for (int r = 0; timeline->tracks && r < timeline->ranks; r++) {
        free(timeline->tracks[r].blocks.data);
        free(timeline->tracks[r].comms.data);
        free(timeline->tracks[r].waits.data);
    }
    free(timeline->tracks);
    sl_schedule_destroy(timeline->ran);
    free(timeline->messages);
    free(timeline->title);
    free(timeline);
}

sl_status sl__blocks_add(sl__blocks *blocks, sl__block **out)
{
    SL__TRY(sl__grow(&blocks->data, &blocks->capacity, blocks->count + 1,
                     sizeof *blocks->data));
    *out = &blocks->data[blocks->count];
    **out = (sl__block){.order = (uint32_t)blocks->count,
                        .by = {-1, -1},
                        .peer = -1,
                        .peer_stage = -1,
                        .edge = -1};
    blocks->count++;
    return SL_OK;
}

sl_status sl__messages_add(sl_timeline *timeline, const sl__transfer *message)
{
    assert(message->from_rank >= 0 && message->from_rank < timeline->ranks);
    assert(message->to_rank >= 0 && message->to_rank < timeline->ranks);
    SL__TRY(sl__grow(&timeline->messages, &timeline->message_capacity,
                     timeline->message_count + 1, sizeof *timeline->messages));
    timeline->messages[timeline->message_count++] = *message;
    return SL_OK;
}

const char *sl__block_kind_text(int kind)
{
    static const char *const words[] = {"copy", "pack", "ties", "data"};
    assert(kind >= 0 && kind < SL__BLOCK_KINDS);
    return kind < SL_ACTION_KINDS ? sl_action_kind_text((sl_action_kind)kind)
                                  : words[kind - SL_ACTION_KINDS];
}

void sl__block_print(const sl__block *block, char *text)
{
    size_t used = 0;
    if (block->kind >= SL_ACTION_KINDS)
        used = (size_t)snprintf(text, SL_ACTION_TEXT_MAX, "%s",
                                sl__block_kind_text(block->kind));
    if (used && block->action.kind != SL_IDLE)
        text[used++] = ' ';
    if (!used || block->action.kind != SL_IDLE) {
        char action[SL_ACTION_TEXT_MAX];
        sl_action_print(&block->action, action);
        snprintf(text + used, SL_ACTION_TEXT_MAX - used, "%s", action);
    }
}

/* --------------------------------------------------------------- finish -- */

static int compare_blocks(const void *a, const void *b)
{
    const sl__block *first = a, *second = b;
    if (first->start != second->start)
        return first->start < second->start ? -1 : 1;
    if (first->end != second->end)
        return first->end < second->end ? -1 : 1;
    return first->order < second->order ? -1 : 1;
}

static int compare_messages(const void *a, const void *b)
{
    const sl__transfer *first = a, *second = b;
    return (first->sent > second->sent) - (first->sent < second->sent);
}

/* Sorts blocks by time, unless they are in order; equal ones stay in the order
 * in which they were added. */
static void sort_blocks(sl__blocks *blocks)
{
    for (size_t i = 1; i < blocks->count; i++) {
        if (blocks->data[i].start < blocks->data[i - 1].start) {
            qsort(blocks->data, blocks->count, sizeof *blocks->data,
                  compare_blocks);
            return;
        }
    }
}

static void span_action(sl_timeline *timeline, const sl_action *action)
{
    sl_action parts[2];
    int count = sl_action_parts(action, parts);
    for (int i = 0; i < count; i++) {
        if (parts[i].stage >= timeline->stages)
            timeline->stages = parts[i].stage + 1;
        if (parts[i].microbatch >= timeline->microbatches)
            timeline->microbatches = parts[i].microbatch + 1;
    }
}

static void span_blocks(sl_timeline *timeline, const sl__blocks *blocks)
{
    for (size_t i = 0; i < blocks->count; i++) {
        const sl__block *block = &blocks->data[i];
        span_action(timeline, &block->action);
        timeline->begin = fmin(timeline->begin, block->start);
        timeline->end = fmax(timeline->end, block->end);
    }
}

/* Asserts the invariant of timeline.h. */
static void check_order(const sl_timeline *timeline)
{
    for (int r = 0; r < timeline->ranks; r++) {
        const sl__blocks *blocks = &timeline->tracks[r].blocks;
        for (size_t i = 0; i < blocks->count; i++) {
            const sl__block *block = &blocks->data[i];
            assert(block->start <= block->end);
            assert(block->start >= timeline->begin);
            assert(block->end <= timeline->end);
            assert(i == 0 || block[-1].end <= block->start);
        }
    }
}

static void sum_track(sl__track *track, double makespan)
{
    track->busy = track->overhead = 0;
    for (size_t i = 0; i < track->blocks.count; i++) {
        const sl__block *block = &track->blocks.data[i];
        double took = fmin(block->end, makespan) - fmax(block->start, 0);
        if (took > 0)
            *(sl__block_computes(block) ? &track->busy : &track->overhead) +=
                took;
        if (block->held.during > track->peak_bytes)
            track->peak_bytes = block->held.during;
    }
}

static void sum_all(sl_timeline *timeline)
{
    double busy = 0;
    for (int r = 0; r < timeline->ranks; r++) {
        sum_track(&timeline->tracks[r], timeline->makespan);
        busy += timeline->tracks[r].busy;
    }
    if (timeline->measured && timeline->makespan > 0)
        timeline->bubble = 1 - busy / (timeline->ranks * timeline->makespan);
    for (size_t i = 0; i < timeline->message_count; i++) {
        const sl__transfer *message = &timeline->messages[i];
        sl__track *from = &timeline->tracks[message->from_rank];
        from->sent++;
        from->sent_bytes = sl__add_bytes(from->sent_bytes, message->bytes);
    }
}

void sl__timeline_sort(sl_timeline *timeline)
{
    for (int r = 0; r < timeline->ranks; r++) {
        sort_blocks(&timeline->tracks[r].blocks);
        sort_blocks(&timeline->tracks[r].comms);
        sort_blocks(&timeline->tracks[r].waits);
    }
}

sl_status sl__timeline_finish(sl_timeline *timeline)
{
    timeline->end = timeline->makespan;
    sl__timeline_sort(timeline);
    for (int r = 0; r < timeline->ranks; r++) {
        sl__track *track = &timeline->tracks[r];
        span_blocks(timeline, &track->blocks);
        span_blocks(timeline, &track->comms);
    }
    for (size_t i = 0; i < timeline->message_count; i++) {
        const sl__transfer *message = &timeline->messages[i];
        timeline->begin = fmin(timeline->begin, message->sent);
        timeline->end = fmax(timeline->end, message->arrived);
    }
    if (timeline->message_count)
        qsort(timeline->messages, timeline->message_count,
              sizeof *timeline->messages, compare_messages);
    check_order(timeline);
    sum_all(timeline);
    return sl__explain_idle(timeline);
}

/* --------------------------------------------------------------- lookup -- */

struct sl__entry {
    uint64_t key;
    int rank;
    int block;
};

static uint64_t key_of(sl__class class, int stage, int microbatch)
{
    return ((uint64_t)stage << 32 | (uint32_t)microbatch) << 2 |
           (unsigned)class;
}

static int compare_entries(const void *a, const void *b)
{
    const struct sl__entry *first = a, *second = b;
    if (first->key != second->key)
        return first->key < second->key ? -1 : 1;
    return (first->rank > second->rank) - (first->rank < second->rank);
}

/* Enters each compute of a rank; returns how many there are. */
static size_t note_track(const sl_timeline *timeline, int rank,
                         struct sl__entry *entries)
{
    const sl__blocks *blocks = &timeline->tracks[rank].blocks;
    size_t found = 0;
    for (size_t i = 0; i < blocks->count; i++) {
        sl_action parts[2];
        if (blocks->data[i].kind >= SL_ACTION_KINDS)
            continue;
        int count = sl_action_parts(&blocks->data[i].action, parts);
        for (int k = 0; k < count; k++) {
            if (sl_action_kind_family(parts[k].kind) != SL_FAMILY_COMPUTE)
                continue;
            if (entries)
                entries[found] = (struct sl__entry){
                    key_of(sl__class_of(parts[k].kind), parts[k].stage,
                           parts[k].microbatch),
                    rank, (int)i};
            found++;
        }
    }
    return found;
}

sl_status sl__lookup_create(const sl_timeline *timeline, sl__lookup *out)
{
    size_t count = 0;
    sl__lookup made = {0};
    for (int r = 0; r < timeline->ranks; r++)
        count += note_track(timeline, r, NULL);
    SL__TRY(sl__alloc(count, sizeof *made.entries, &made.entries));
    for (int r = 0; r < timeline->ranks; r++)
        made.count += note_track(timeline, r, made.entries + made.count);
    assert(made.count == count);
    if (made.count)
        qsort(made.entries, made.count, sizeof *made.entries, compare_entries);
    *out = made;
    return SL_OK;
}

void sl__lookup_clear(sl__lookup *lookup)
{
    free(lookup->entries);
    *lookup = (sl__lookup){0};
}

const sl__block *sl__lookup_find(const sl__lookup *lookup,
                                 const sl_timeline *timeline, sl__class class,
                                 int stage, int microbatch, int rank,
                                 sl_place *out)
{
    if (stage < 0 || microbatch < 0)
        return NULL;
    const struct sl__entry wanted = {key_of(class, stage, microbatch), rank, 0};
    size_t low = 0, high = lookup->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_entries(&lookup->entries[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == lookup->count || lookup->entries[low].key != wanted.key ||
        (rank >= 0 && lookup->entries[low].rank != rank))
        return NULL;
    const struct sl__entry *found = &lookup->entries[low];
    *out = (sl_place){found->rank, found->block};
    return &timeline->tracks[found->rank].blocks.data[found->block];
}

/* -------------------------------------------------------------- reading -- */

void sl__find_plan(const sl_timeline *const *timelines, size_t count,
                   const sl_timeline **out_run, const sl_timeline **out_plan)
{
    const sl_timeline *run = NULL, *plan = NULL;
    for (size_t i = 0; i < count && !run; i++)
        run = timelines[i]->measured ? timelines[i] : NULL;
    for (size_t i = 0; i < count && run; i++) {
        const sl_timeline *one = timelines[i];
        bool alike = !one->measured && one->seconds &&
                     one->stages == run->stages &&
                     one->microbatches == run->microbatches;
        if (alike && (!plan || (one->plan && !plan->plan)))
            plan = one;
    }
    *out_run = run;
    *out_plan = plan;
}

sl_status sl__check_given(const sl_timeline *const *timelines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!timelines[i])
            return sl_fail(SL_EINVAL, "timeline %zu of %zu is NULL", i, count);
    }
    return SL_OK;
}

sl_timeline_summary sl_timeline_summarize(const sl_timeline *timeline)
{
    if (!timeline)
        return (sl_timeline_summary){0};
    sl_timeline_summary out = {.ranks = timeline->ranks,
                               .stages = timeline->stages,
                               .microbatches = timeline->microbatches,
                               .makespan = timeline->makespan,
                               .bubble = timeline->bubble,
                               .messages = timeline->message_count};
    for (int r = 0; r < timeline->ranks; r++)
        out.blocks +=
            timeline->tracks[r].blocks.count + timeline->tracks[r].comms.count;
    return out;
}

/* SPDX-License-Identifier: MIT
 *
 * Finds why a rank was idle. Before its first compute a rank warms up, after
 * its last it drains. In between it waits for a forward or backward on another
 * rank, and once that is done, for the message. For a run the waits are
 * measured; in a simulation a compute waits for the latest of its inputs from
 * other ranks. */
#include "view/timeline.h"

#include "base/memory.h"
#include "schedule/action.h"

#include <assert.h>
#include <math.h>

typedef struct reasons {
    sl_timeline *timeline;
    sl__lookup lookup;
    int rank;
    size_t next_wait; /* of this rank: the first that may still matter */
    size_t first;     /* its first compute and its last; */
    size_t last;      /* the number of its blocks if there is none */
} reasons;

/* Sets a compute as what `block` waited for, if it ended later than the one
 * that is set. */
static void take_reason(sl__block *block, const sl__block *needed,
                        sl_place place, bool forward, double since)
{
    if (needed->end > block->start)
        return; /* The block did not wait for it. */
    if (block->by.rank >= 0 && needed->end <= block->ready)
        return;
    block->by = place;
    block->ready = fmax(needed->end, since);
    block->why = needed->end <= since ? SL__IDLE_MESSAGE
                 : forward            ? SL__IDLE_FORWARD
                                      : SL__IDLE_BACKWARD;
}

/* Whether another message of the rank blocked it in the gap, before the one
 * that the block waits for. */
static bool is_held(const reasons *own, const sl__block *block, double since)
{
    const sl__blocks *comms = &own->timeline->tracks[own->rank].comms;
    if (own->timeline->given.reading != SL_BLOCKING)
        return false;
    for (size_t i = 0; i < comms->count; i++) {
        const sl__block *comm = &comms->data[i];
        if (comm->start >= block->start)
            return false;
        if (comm->end > since && comm->end < block->start)
            return true;
    }
    return false;
}

/* In a simulation, the reason is the compute on other ranks that the action
 * needs. */
static void reason_from_needs(const reasons *own, sl__block *block,
                              double since)
{
    sl_action parts[2];
    int count = sl_action_parts(&block->action, parts);
    block->why = SL__IDLE_MESSAGE; /* Nothing else blocks a simulation. */
    if (is_held(own, block, since))
        return;
    for (int i = 0; i < count; i++) {
        bool forward = parts[i].kind == SL_FORWARD;
        sl_place place;
        if (!forward && !sl__is_backward(parts[i].kind))
            continue;
        const sl__block *needed =
            sl__lookup_find(&own->lookup, own->timeline,
                            forward ? SL__FORWARD_CLASS : SL__BACKWARD_CLASS,
                            parts[i].stage + (forward ? -1 : 1),
                            parts[i].microbatch, -1, &place);
        if (needed && place.rank != own->rank)
            take_reason(block, needed, place, forward, since);
    }
}

/* In a run, the reason is the longest wait, if waits make up most of the
 * gap. */
static void reason_from_waits(reasons *own, sl__block *block, double since)
{
    const sl__blocks *waits = &own->timeline->tracks[own->rank].waits;
    const sl__block *longest = NULL;
    double most = 0, all = 0;
    block->why = SL__IDLE_OTHER;
    for (; own->next_wait < waits->count; own->next_wait++) {
        const sl__block *wait = &waits->data[own->next_wait];
        double common =
            fmin(wait->end, block->start) - fmax(wait->start, since);
        if (wait->start >= block->start)
            break;
        all += fmax(common, 0);
        if (common > most) {
            most = common;
            longest = wait;
        }
    }
    if (!longest || all < 0.5 * (block->start - since))
        return;
    bool forward = longest->action.kind == SL_RECV_F;
    sl_place place;
    block->why = SL__IDLE_MESSAGE;
    if (!forward && longest->action.kind != SL_RECV_B)
        return;
    const sl__block *needed = sl__lookup_find(
        &own->lookup, own->timeline,
        forward ? SL__FORWARD_CLASS : SL__BACKWARD_CLASS, longest->peer_stage,
        longest->action.microbatch, longest->peer, &place);
    if (needed)
        take_reason(block, needed, place, forward, since);
}

static void explain_gap(reasons *own, size_t at, double since)
{
    sl__track *track = &own->timeline->tracks[own->rank];
    sl__block *block = &track->blocks.data[at];
    /* Time after the makespan does not count as idle. */
    double length = fmin(block->start, own->timeline->makespan) - since;
    block->ready = since;
    /* For warm-up too, because the critical path needs what was waited for. */
    if (own->timeline->measured)
        reason_from_waits(own, block, since);
    else
        reason_from_needs(own, block, since);
    if (at <= own->first)
        block->why = SL__IDLE_WARM_UP;
    else if (at > own->last)
        block->why = SL__IDLE_DRAIN;
    if (block->why == SL__IDLE_FORWARD || block->why == SL__IDLE_BACKWARD) {
        track->idle[block->why] += block->ready - since;
        track->idle[SL__IDLE_MESSAGE] += block->start - block->ready;
    } else {
        track->idle[block->why] += length;
    }
}

static void explain_track(reasons *own)
{
    sl__track *track = &own->timeline->tracks[own->rank];
    double since = 0;
    own->next_wait = 0;
    own->first = own->last = track->blocks.count;
    for (size_t i = track->blocks.count; i-- > 0;) {
        if (!sl__block_computes(&track->blocks.data[i]))
            continue;
        if (own->last == track->blocks.count)
            own->last = i;
        own->first = i;
    }
    for (size_t i = 0; i < track->blocks.count; i++) {
        sl__block *block = &track->blocks.data[i];
        if (block->start > since && since < own->timeline->makespan)
            explain_gap(own, i, since);
        since = fmax(since, block->end);
    }
    if (own->timeline->makespan > since)
        track->idle[SL__IDLE_DRAIN] += own->timeline->makespan - since;
}

sl_status sl__explain_idle(sl_timeline *timeline)
{
    reasons own = {.timeline = timeline};
    SL__TRY(sl__lookup_create(timeline, &own.lookup));
    for (own.rank = 0; own.rank < timeline->ranks; own.rank++)
        explain_track(&own);
    sl__lookup_clear(&own.lookup);
    return SL_OK;
}

/* -------------------------------------------------------- critical path -- */

void sl__mark_critical(sl_timeline *timeline)
{
    sl_place at = {-1, -1};
    double latest = 0;
    for (int r = 0; r < timeline->ranks; r++) {
        const sl__blocks *blocks = &timeline->tracks[r].blocks;
        for (size_t i = 0; i < blocks->count; i++) {
            if (sl__block_computes(&blocks->data[i]) &&
                blocks->data[i].end > latest) {
                latest = blocks->data[i].end;
                at = (sl_place){r, (int)i};
            }
        }
    }
    while (at.rank >= 0 && at.step >= 0) {
        sl__track *track = &timeline->tracks[at.rank];
        assert(at.rank < timeline->ranks);
        assert((size_t)at.step < track->blocks.count);
        sl__block *block = &track->blocks.data[at.step];
        if (block->critical)
            break;
        block->critical = true;
        if (block->by.rank >= 0)
            at = block->by;
        else
            at.step--;
    }
}

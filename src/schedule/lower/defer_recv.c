/* SPDX-License-Identifier: MIT
 *
 * defer-recv: moves each receive next to its user, so that it does not block
 * what runs before, and avoids the deadlocks of recv=late where messages
 * complete in posted order. Of two ranks that send to each other, the lower one
 * receives first: before it sends to its peer it posts all receives from that
 * peer that have been deferred. The higher one sends first.
 *
 * Requires: every RECV has its user after it on its rank; no WAIT_SEND that
 * needs a RECV where it was.  Ensures: no idle cell; the same actions, and all
 * but the RECVs in the same order; each RECV no earlier than it was and before
 * its user.  Invalidates: step numbers. */
#include "schedule/lower/lower.h"
#include "schedule/action.h"
#include "schedule/deadlock.h"
#include "base/arguments.h"
#include "base/try.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* Receives that are deferred in the current row, in a queue per peer. A receive
 * is given by its step. */
typedef struct deferral {
    sl_placement *placement;
    size_t microbatches;
    uint32_t *step_of; /* by direction, stage and microbatch: the receive's */
    uint8_t *waits;    /* by step: deferred and not yet posted */
    uint32_t *next;    /* by step: the next of the same peer, or NONE */
    uint32_t *first;   /* by peer: or NONE */
    uint32_t *last;
    size_t deferred; /* how many receives are deferred */
    sl__arena memory;
} deferral;

static int peer_of(const deferral *own, const sl_action *action)
{
    return sl_placement_rank_of(own->placement, sl__peer_stage(action));
}

static uint32_t *step_of(const deferral *own, sl_action_kind receive, int stage,
                         int microbatch)
{
    size_t cell = (size_t)stage * own->microbatches + (size_t)microbatch;
    return &own->step_of[2 * cell + (receive == SL_RECV_B)];
}

static sl_status refuse(const sl_action *receive, int rank, const char *why)
{
    char text[SL_ACTION_TEXT_MAX];
    sl_action_print(receive, text);
    return sl_fail(SL_EUNSOUND, "defer-recv: rank %d: %s %s", rank, text, why);
}

static sl_status defer(deferral *own, const sl_action *receive, uint32_t step,
                       int rank)
{
    assert(!own->waits[step]);
    int peer = peer_of(own, receive);
    if (peer < 0)
        return refuse(receive, rank, "has no stage at its other end");
    *step_of(own, receive->kind, receive->stage, receive->microbatch) = step;
    own->waits[step] = 1;
    own->next[step] = NONE;
    if (own->first[peer] == NONE)
        own->first[peer] = step;
    else
        own->next[own->last[peer]] = step;
    own->last[peer] = step;
    own->deferred++;
    return SL_OK;
}

static sl_status post(deferral *own, const sl__row *from, uint32_t step,
                      sl__row *to)
{
    own->waits[step] = 0;
    own->deferred--;
    return sl__row_append(to, from->actions[step]);
}

/* Posts all deferred receives from a peer. */
static sl_status post_all(deferral *own, const sl__row *from, int peer,
                          sl__row *to)
{
    for (uint32_t at = own->first[peer]; at != NONE; at = own->next[at]) {
        if (own->waits[at])
            SL__TRY(post(own, from, at, to));
    }
    own->first[peer] = NONE;
    return SL_OK;
}

/* Posts the receive that one part of an action uses, if it is deferred. */
static sl_status post_used(deferral *own, const sl__row *from,
                           const sl_action *part, sl__row *to)
{
    bool forward = part->kind == SL_FORWARD;
    if (!forward && !sl__is_backward(part->kind))
        return SL_OK;
    sl_action_kind receive = forward ? SL_RECV_F : SL_RECV_B;
    uint32_t step = *step_of(own, receive, part->stage, part->microbatch);
    if (step >= from->length || !own->waits[step])
        return SL_OK;
    /* One table serves all ranks: the step may be one of another row. */
    const sl_action *found = &from->actions[step];
    if (found->kind != receive || found->stage != part->stage ||
        found->microbatch != part->microbatch)
        return SL_OK;
    return post(own, from, step, to);
}

static sl_status defer_row(const sl__row *from, sl__row *to, int rank,
                           void *context)
{
    deferral *own = context;
    own->deferred = 0;
    for (int peer = 0; peer < sl_placement_ranks(own->placement); peer++)
        own->first[peer] = NONE;
    for (size_t step = 0; step < from->length; step++) {
        const sl_action *action = &from->actions[step];
        bool is_send = sl__is_send(action->kind);
        if (sl__is_communication(action->kind) && !is_send) {
            SL__TRY(defer(own, action, (uint32_t)step, rank));
            continue;
        }
        int peer = is_send ? peer_of(own, action) : -1;
        if (rank < peer)
            SL__TRY(post_all(own, from, peer, to));
        sl_action parts[2];
        int count = sl_action_parts(action, parts);
        for (int i = 0; i < count; i++)
            SL__TRY(post_used(own, from, &parts[i], to));
        SL__TRY(sl__row_append(to, *action));
    }
    for (size_t step = 0; own->deferred && step < from->length; step++) {
        if (own->waits[step])
            return refuse(&from->actions[step], rank,
                          "is used by no action behind it");
    }
    return SL_OK;
}

static sl_status defer_rows(const sl_schedule *in, deferral *own,
                            sl_schedule **out)
{
    sl_extent extent = sl_schedule_extent(in);
    size_t cells = (size_t)extent.stages * (size_t)extent.microbatches;
    size_t ranks = (size_t)in->ranks;
    own->microbatches = (size_t)extent.microbatches;
    SL__TRY(sl__check_density(&extent));
    SL__TRY(SL__TAKE(&own->memory, 2 * cells, &own->step_of));
    SL__TRY(SL__TAKE(&own->memory, extent.longest, &own->waits));
    SL__TRY(SL__TAKE(&own->memory, extent.longest, &own->next));
    SL__TRY(SL__TAKE(&own->memory, ranks, &own->first));
    SL__TRY(SL__TAKE(&own->memory, ranks, &own->last));
    return sl__lower_rows(in, defer_row, own, out);
}

/* Fails where a WAIT_SEND needs a receive that was posted before it. */
static sl_status check_waits(const sl_schedule *in, const sl_schedule *made)
{
    sl__events events;
    sl_wait *waits;
    size_t count;
    if (!sl_schedule_extent(in).has_send_waits)
        return SL_OK;
    SL__TRY(sl__events_open(made, &events));
    sl_status status = sl__find_deadlock(&events, SL_ASYNC, &waits, &count);
    sl__events_close(&events);
    if (status || count == 0)
        return status;
    char text[SL_WAIT_TEXT_MAX];
    sl_wait_print(made, &waits[0], text);
    free(waits);
    return sl_fail(SL_EUNSOUND,
                   "defer-recv: with its receives deferred the schedule "
                   "deadlocks: %s; defer them before waits are moved",
                   text);
}

sl_status sl_lower_defer_recv(const sl_schedule *in, sl_schedule **out)
{
    SL__NEED(in, out);
    deferral own = {0};
    sl_schedule *made = NULL;
    SL__TRY(sl_placement_derive(in, &own.placement));
    sl_status status = defer_rows(in, &own, &made);
    if (!status)
        status = check_waits(in, made);
    if (status)
        sl_schedule_destroy(made);
    else
        *out = made;
    sl__arena_clear(&own.memory);
    sl_placement_destroy(own.placement);
    return status;
}

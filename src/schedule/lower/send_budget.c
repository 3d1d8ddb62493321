/* SPDX-License-Identifier: MIT
 *
 * send-budget=N: moves WAIT_SENDs earlier, so that no rank has more than N
 * sends pending. Before a send that would exceed N, the wait of a pending send
 * is moved there: of the oldest whose receive must already have been posted,
 * else of the oldest that can be waited for without closing a cycle. With N = 0
 * every wait comes right after its send.
 *
 * Requires: each SEND has its RECV, and one WAIT_SEND after it on its rank; no
 * cycle.  Ensures: no idle cell; all but waits in the same order; each wait
 * after its send and no later than it was; no cycle; at most N sends pending.
 * Invalidates: step numbers.
 *
 * A receive inside the front (front.h) of a place in the row is posted before
 * the place. For a receive outside, the front is extended to it: if that
 * reaches the place, the receive can only be posted after the place, and a wait
 * for it at the place would never end. A wait whose receive is in the front
 * adds nothing to the graph; any other adds an input. */
#include "schedule/lower/front.h"
#include "schedule/lower/list.h"
#include "schedule/lower/lower.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/try.h"

#include <assert.h>

typedef struct budget {
    const sl__events *events;
    int most;
    sl__front front;
    /* Of the current row, by step of a send: */
    sl__list pending; /* in order */
    int pending_count;
    uint8_t *moved; /* its wait was moved */
    sl__arena memory;
} budget;

static sl_status refuse(const budget *b, uint32_t node, const char *why)
{
    char text[SL_ACTION_TEXT_MAX];
    sl_action_print(sl__action_at(b->events, node), text);
    return sl_fail(SL_EUNSOUND, "send-budget: rank %d, step %u: %s %s",
                   b->events->rank_of[node], sl__step_of(b->events, node), text,
                   why);
}

static uint32_t wait_of(const budget *b, const sl_action *send)
{
    return sl__event_of(
        b->events, send->kind == SL_SEND_F ? SL_WAIT_SEND_F : SL_WAIT_SEND_B,
        send->stage, send->microbatch);
}

static uint32_t send_of(const budget *b, const sl_action *wait)
{
    return sl__event_of(b->events, sl__awaited_send(wait->kind), wait->stage,
                        wait->microbatch);
}

/* Adds to the graph what an action waits for on other ranks. Refuses a send or
 * receive without its other end, and a wait without its send. */
static sl_status give_inputs(budget *b, uint32_t node)
{
    const sl_action *action = sl__action_at(b->events, node);
    if (sl__is_send(action->kind)) {
        if (sl__peer(b->events, node) == SL__NOWHERE)
            return refuse(b, node, "has no receive of its own");
        if (wait_of(b, action) == SL__NOWHERE)
            return refuse(b, node, "has no wait");
        return SL_OK;
    }
    if (sl__is_communication(action->kind)) {
        uint32_t send = sl__peer(b->events, node);
        if (send == SL__NOWHERE)
            return refuse(b, node, "has no send of its own");
        return sl__front_give(&b->front, node, send);
    }
    if (!sl__is_send_wait(action->kind))
        return SL_OK;
    uint32_t send = send_of(b, action);
    if (send == SL__NOWHERE || send > node ||
        b->events->rank_of[send] != b->events->rank_of[node])
        return refuse(b, node, "has no send before it");
    if (wait_of(b, sl__action_at(b->events, send)) != node)
        return refuse(b, node, "waits for what was waited for before");
    return sl__front_give(&b->front, node, sl__peer(b->events, send));
}

static sl_status build_graph(budget *b)
{
    uint32_t stuck;
    for (int rank = 0; rank < b->events->extent.ranks; rank++) {
        sl__front_start(&b->front, rank);
        for (uint32_t node = b->events->first[rank];
             node < b->events->first[rank + 1]; node++)
            SL__TRY(give_inputs(b, node));
    }
    SL__TRY(sl__front_find_cycle(&b->front, &stuck));
    if (stuck == SL__NOWHERE)
        return SL_OK;
    return refuse(b, stuck,
                  "can never be reached: sends, receives and waits form a "
                  "cycle");
}

/* ------------------------------------------------------------- the walk -- */

static void drop_pending(budget *b, uint32_t step)
{
    sl__list_remove(&b->pending, step);
    b->pending_count--;
    assert(b->pending_count >= 0);
}

static uint32_t receive_of(const budget *b, uint32_t send_step)
{
    return sl__peer(b->events, b->events->first[b->front.rank] + send_step);
}

/* Finds the pending send to wait for at the place; the end of the list for
 * none. */
static sl_status choose(budget *b, uint32_t *out)
{
    const sl__list *pending = &b->pending;
    uint32_t oldest = pending->after[pending->end], at;
    *out = oldest;
    if (sl__front_implies(&b->front, receive_of(b, oldest)))
        return SL_OK;
    sl__front_catch_up(&b->front);
    for (at = oldest; at != pending->end; at = pending->after[at]) {
        *out = at;
        if (sl__front_has(&b->front, receive_of(b, at)))
            return SL_OK;
    }
    for (at = oldest; at != pending->end; at = pending->after[at]) {
        bool may;
        *out = at;
        SL__TRY(sl__front_add(&b->front, receive_of(b, at), &may));
        if (may)
            return SL_OK;
    }
    *out = pending->end;
    return SL_OK;
}

static sl_status refuse_budget(const budget *b, const sl__row *from,
                               uint32_t step)
{
    char next[SL_ACTION_TEXT_MAX], oldest[SL_ACTION_TEXT_MAX];
    sl_action_print(&from->actions[step], next);
    sl_action_print(&from->actions[b->pending.after[b->pending.end]], oldest);
    return sl_fail(SL_EUNSOUND,
                   "send-budget=%d: rank %d, step %u: %s would be one pending "
                   "send too many, and none of the %d pending ones, the oldest "
                   "%s, can be waited for there without a deadlock; give it a "
                   "larger number",
                   b->most, b->front.rank, step, next, b->pending_count,
                   oldest);
}

/* Moves waits to the place until fewer than `fewer` sends are pending. */
static sl_status make_room(budget *b, const sl__row *from, uint32_t step,
                           int fewer, sl__row *to)
{
    while (b->pending_count >= fewer) {
        uint32_t chosen;
        SL__TRY(choose(b, &chosen));
        if (chosen == b->pending.end)
            return refuse_budget(b, from, step);
        b->moved[chosen] = 1;
        drop_pending(b, chosen);
        uint32_t wait = wait_of(b, &from->actions[chosen]);
        SL__TRY(sl__row_append(to, *sl__action_at(b->events, wait)));
    }
    return SL_OK;
}

static sl_status walk_step(budget *b, const sl__row *from, uint32_t step,
                           sl__row *to)
{
    const sl_action *action = &from->actions[step];
    b->front.step = step;
    if (sl__is_send_wait(action->kind)) {
        uint32_t send = sl__step_of(b->events, send_of(b, action));
        if (b->moved[send])
            return SL_OK;
        drop_pending(b, send);
    }
    if (!sl__is_send(action->kind))
        return sl__row_append(to, *action);
    if (b->most > 0)
        SL__TRY(make_room(b, from, step, b->most, to));
    SL__TRY(sl__row_append(to, *action));
    sl__list_insert(&b->pending, step, b->pending.before[b->pending.end]);
    b->pending_count++;
    b->moved[step] = 0;
    if (b->most > 0)
        return SL_OK;
    b->front.step = step + 1;
    return make_room(b, from, step, 1, to);
}

static sl_status walk_row(const sl__row *from, sl__row *to, int rank,
                          void *context)
{
    budget *b = context;
    sl__front_start(&b->front, rank);
    sl__list_clear(&b->pending);
    b->pending_count = 0;
    for (uint32_t step = 0; step < from->length; step++)
        SL__TRY(walk_step(b, from, step, to));
    assert(b->pending_count == 0);
    return SL_OK;
}

static sl_status walk_rows(budget *b, const sl_schedule *in, sl_schedule **out)
{
    size_t longest = b->events->extent.longest;
    SL__TRY(sl__front_open(&b->front, b->events));
    SL__TRY(build_graph(b));
    SL__TRY(sl__list_open(&b->pending, longest, &b->memory));
    SL__TRY(SL__TAKE(&b->memory, longest, &b->moved));
    return sl__lower_rows(in, walk_row, b, out);
}

sl_status sl_lower_send_budget(const sl_schedule *in, int most,
                               sl_schedule **out)
{
    SL__NEED(in, out);
    if (most < 0)
        return sl_fail(SL_EINVAL, "a send budget is 0 or more, not %d", most);
    /* Steps are those of rows without idle cells, here and in the events. */
    sl_schedule *busy;
    sl__events events;
    SL__TRY(sl_lower_drop_idle(in, &busy));
    sl_status status = sl__events_open(busy, &events);
    if (!status) {
        budget own = {.events = &events, .most = most};
        status = walk_rows(&own, busy, out);
        sl__front_close(&own.front);
        sl__arena_clear(&own.memory);
        sl__events_close(&events);
    }
    sl_schedule_destroy(busy);
    return status;
}

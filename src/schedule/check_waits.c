/* SPDX-License-Identifier: MIT
 *
 * Checks waits. A schedule may have none: then the runtime decides where to
 * wait for sends and reductions. If it has any WAIT_SEND, every send needs one;
 * if it has any WAIT_REDUCE_GRAD, every REDUCE_GRAD needs one. */
#include "schedule/check.h"
#include "schedule/action.h"
#include "base/memory.h"
#include "base/try.h"

#include <string.h>

/* Reports a wait that comes before what it waits for, or that waits for an
 * action on no rank. */
static void check_awaited(sl__check *check, uint32_t wait, uint32_t awaited,
                          const char *what)
{
    const sl__events *events = &check->events;
    if (awaited == SL__NOWHERE)
        sl__check_add(check, SL_FINDING_NEEDLESS_WAIT, wait,
                      "waits for a %s that does not exist", what);
    else if (events->rank_of[awaited] == events->rank_of[wait] &&
             awaited > wait)
        sl__check_add(check, SL_FINDING_WAIT_TOO_EARLY, wait,
                      "comes before the %s it waits for, at step %u", what,
                      sl__step_of(events, awaited));
}

static void check_missing(sl__check *check, uint32_t node, const char *wait)
{
    sl__check_add(
        check, SL_FINDING_MISSING_WAIT, node,
        "is not waited for: there is no %s, and other actions have one", wait);
}

/* ---------------------------------------------------------------- sends -- */

static void check_send(sl__check *check, uint32_t node, const sl_action *send)
{
    const sl__events *events = &check->events;
    bool forward = send->kind == SL_SEND_F;
    sl_action_kind wait = forward ? SL_WAIT_SEND_F : SL_WAIT_SEND_B;
    int stage = send->stage, microbatch = send->microbatch;
    /* A repeated action has a finding of its own. */
    if (sl__event_of(events, send->kind, stage, microbatch) == node &&
        sl__event_of(events, wait, stage, microbatch) == SL__NOWHERE)
        check_missing(check, node, sl_action_kind_text(wait));
}

static void check_send_wait(sl__check *check, uint32_t node,
                            const sl_action *wait)
{
    check_awaited(check, node,
                  sl__event_of(&check->events, sl__awaited_send(wait->kind),
                               wait->stage, wait->microbatch),
                  "send");
}

/* ----------------------------------------------------------- reductions -- */

/* State of the walk over the rows: the pending reduction, and by stage the
 * first wait. */
typedef struct reductions {
    uint32_t pending;
    uint32_t *waits;
} reductions;

static void check_reduction(sl__check *check, reductions *state, uint32_t node,
                            const sl_action *action)
{
    const sl__events *events = &check->events;
    if (state->pending != SL__NOWHERE) {
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(sl__action_at(events, state->pending), text);
        sl__check_add(check, SL_FINDING_TWO_REDUCTIONS, node,
                      "starts while %s, from step %u, is pending", text,
                      sl__step_of(events, state->pending));
    }
    state->pending = node;
    if (events->reduction[action->stage] == node &&
        state->waits[action->stage] == SL__NOWHERE)
        check_missing(check, node, "WAIT_REDUCE_GRAD");
}

static void check_reduction_wait(sl__check *check, reductions *state,
                                 uint32_t node, const sl_action *wait)
{
    const sl__events *events = &check->events;
    uint32_t first = state->waits[wait->stage];
    check_awaited(check, node, events->reduction[wait->stage], "REDUCE_GRAD");
    if (first != node)
        sl__check_repeated(check, node, first);
    if (state->pending != SL__NOWHERE &&
        sl__action_at(events, state->pending)->stage == wait->stage)
        state->pending = SL__NOWHERE;
}

static void check_rank(sl__check *check, reductions *state, int rank)
{
    const sl__events *events = &check->events;
    bool sends = events->extent.has_send_waits;
    bool reduces = events->extent.has_reduce_waits;
    state->pending = SL__NOWHERE;
    for (uint32_t node = events->first[rank]; node < events->first[rank + 1];
         node++) {
        const sl_action *action = sl__action_at(events, node);
        if (sends && sl__is_send(action->kind))
            check_send(check, node, action);
        else if (sl__is_send_wait(action->kind))
            check_send_wait(check, node, action);
        else if (reduces && action->kind == SL_REDUCE_GRAD)
            check_reduction(check, state, node, action);
        else if (action->kind == SL_WAIT_REDUCE_GRAD)
            check_reduction_wait(check, state, node, action);
    }
}

/* ------------------------------------------------------------------- all -- */

sl_status sl__check_waits(sl__check *check)
{
    const sl__events *events = &check->events;
    size_t stages = (size_t)events->extent.stages;
    reductions state;
    if (!events->extent.has_send_waits && !events->extent.has_reduce_waits)
        return SL_OK;
    SL__TRY(sl__alloc(stages, sizeof *state.waits, &state.waits));
    memset(state.waits, 0xff, stages * sizeof *state.waits);
    for (uint32_t node = events->nodes; node-- > 0;) {
        const sl_action *action = sl__action_at(events, node);
        if (action->kind == SL_WAIT_REDUCE_GRAD)
            state.waits[action->stage] = node;
    }
    for (int rank = 0; rank < events->extent.ranks; rank++)
        check_rank(check, &state, rank);
    free(state.waits);
    return SL_OK;
}

void sl__check_blocked_receives(sl__check *check, const sl_wait *waits,
                                size_t count)
{
    const sl__events *events = &check->events;
    for (size_t i = 0; i < count; i++) {
        const sl_wait *wait = &waits[i];
        uint32_t node = events->first[wait->rank] + (uint32_t)wait->step;
        if (!sl__is_send_wait(sl__action_at(events, node)->kind) ||
            wait->on_rank < 0)
            continue;
        uint32_t on = events->first[wait->on_rank] + (uint32_t)wait->on_step;
        const sl_action *receive = sl__action_at(events, on);
        if (!sl__is_communication(receive->kind) || sl__is_send(receive->kind))
            continue;
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(receive, text);
        sl__check_add(
            check, SL_FINDING_WAIT_BLOCKS_RECEIVE, node,
            "waits for its send, which rank %d can only receive later: its %s, "
            "at step %d, comes after an action that waits for this one",
            wait->on_rank, text, wait->on_step);
    }
}

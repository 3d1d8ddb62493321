/* SPDX-License-Identifier: MIT
 *
 * Checks messages, for schedules that have any: each send has one receive and
 * each receive one send, none is superfluous, a send comes after its compute,
 * and a compute after its receive. */
#include "schedule/check.h"
#include "base/numbers.h"
#include "schedule/action.h"

#include <stdarg.h>

void sl__check_add(sl__check *check, sl_finding_code code, uint32_t node,
                   const char *format, ...)
{
    char what[320], action[SL_ACTION_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    sl__vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    int rank = check->events.rank_of[node];
    int step = (int)sl__step_of(&check->events, node);
    sl_action_print(sl__action_at(&check->events, node), action);
    sl__report_add(check->report, code, rank, step, "rank %d, step %d: %s %s",
                   rank, step, action, what);
}

void sl__check_repeated(sl__check *check, uint32_t node, uint32_t first)
{
    sl__check_add(check, SL_FINDING_DUPLICATE, node,
                  "was done before, on rank %d at step %u",
                  check->events.rank_of[first],
                  sl__step_of(&check->events, first));
}

/* Whether the message is needed; adds a finding if not. */
static bool check_needed(sl__check *check, uint32_t node,
                         const sl_action *action)
{
    const sl__events *events = &check->events;
    int other = sl__peer_stage(action);
    if (other < 0 || other >= events->extent.stages) {
        sl__check_add(check, SL_FINDING_NEEDLESS_MESSAGE, node,
                      "has no stage at its other end");
        return false;
    }
    if (events->home[other] >= 0 &&
        events->home[other] == events->home[action->stage]) {
        sl__check_add(check, SL_FINDING_NEEDLESS_MESSAGE, node,
                      "joins stages %d and %d, which share rank %d",
                      action->stage, other, events->home[other]);
        return false;
    }
    return true;
}

static void check_paired(sl__check *check, uint32_t node,
                         const sl_action *action)
{
    if (sl__peer(&check->events, node) != SL__NOWHERE)
        return;
    /* A repeated action has a finding of its own. */
    if (sl__event_of(&check->events, action->kind, action->stage,
                     action->microbatch) != node)
        return;
    if (sl__is_send(action->kind))
        sl__check_add(check, SL_FINDING_MISSING_RECEIVE, node,
                      "is received by nobody: stage %d has no %s%d",
                      sl__peer_stage(action),
                      action->kind == SL_SEND_F ? "RECV_F" : "RECV_B",
                      action->microbatch);
    else
        sl__check_add(check, SL_FINDING_MISSING_SEND, node,
                      "is sent by nobody: stage %d has no %s%d",
                      sl__peer_stage(action),
                      action->kind == SL_RECV_F ? "SEND_F" : "SEND_B",
                      action->microbatch);
}

/* The compute that makes what is sent, or uses what is received. */
static uint32_t compute_of(const sl__events *events, const sl_action *action)
{
    bool forward = action->kind == SL_SEND_F || action->kind == SL_RECV_F;
    if (forward)
        return sl__event_of(events, SL_FORWARD, action->stage,
                            action->microbatch);
    return sl__backward_event(events, action->stage, action->microbatch);
}

static void check_placed(sl__check *check, uint32_t node,
                         const sl_action *action)
{
    const sl__events *events = &check->events;
    uint32_t compute = compute_of(events, action);
    if (compute == SL__NOWHERE ||
        events->rank_of[compute] != events->rank_of[node])
        return;
    uint32_t step = sl__step_of(events, compute);
    char text[SL_ACTION_TEXT_MAX];
    sl_action_print(sl__action_at(events, compute), text);
    if (sl__is_send(action->kind) && node < compute)
        sl__check_add(check, SL_FINDING_SEND_TOO_EARLY, node,
                      "comes before %s at step %u, which makes what it sends",
                      text, step);
    if (!sl__is_send(action->kind) && node > compute)
        sl__check_add(check, SL_FINDING_RECEIVE_TOO_LATE, node,
                      "comes after %s at step %u, which uses what it brings",
                      text, step);
}

/* Reports a compute whose input comes from another rank without send and
 * receive. Where only one of the two is missing, the other is reported. */
static void check_fed(sl__check *check, uint32_t node, const sl_action *part)
{
    const sl__events *events = &check->events;
    bool forward = part->kind == SL_FORWARD;
    if (!forward && !sl__is_backward(part->kind))
        return;
    int stage = part->stage, microbatch = part->microbatch;
    int source = forward ? stage - 1 : stage + 1;
    if (source < 0 || source >= events->extent.stages ||
        events->home[source] < 0 || events->home[source] == events->home[stage])
        return;
    uint32_t receive = sl__event_of(events, forward ? SL_RECV_F : SL_RECV_B,
                                    stage, microbatch);
    uint32_t send = sl__event_of(events, forward ? SL_SEND_F : SL_SEND_B,
                                 source, microbatch);
    if (receive == SL__NOWHERE && send == SL__NOWHERE)
        sl__check_add(check, SL_FINDING_MISSING_RECEIVE, node,
                      "needs stage %d's result from rank %d, and nothing "
                      "brings it",
                      source, events->home[source]);
}

void sl__check_messages(sl__check *check)
{
    for (uint32_t node = 0; node < check->events.nodes; node++) {
        const sl_action *action = sl__action_at(&check->events, node);
        if (sl__is_communication(action->kind)) {
            if (check_needed(check, node, action))
                check_paired(check, node, action);
            check_placed(check, node, action);
            continue;
        }
        sl_action parts[2];
        int count = sl_action_parts(action, parts);
        for (int i = 0; i < count; i++)
            check_fed(check, node, &parts[i]);
    }
}

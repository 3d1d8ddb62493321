/* SPDX-License-Identifier: MIT
 *
 * send-recv: adds a SEND right after each compute whose result another rank
 * needs, and the matching RECV on that rank. Stages on one rank need none.
 *
 * Requires: no SEND or RECV yet; an order that can run.  Ensures: no idle
 * cell; one RECV per SEND.  Invalidates: step numbers.
 *
 * Ranks are visited round after round in ascending order, and each visit
 * schedules the rank's next action if its input has been scheduled. With
 * recv=asap, the RECV is appended to its rank when the SEND is appended to its
 * own. So there is one global order of messages that every row follows, which
 * is why asap cannot deadlock under any reading of communication. With
 * recv=late the RECV comes just before its user.
 *
 * A rank that cannot move is parked until what it waits for is scheduled, so
 * the walk costs the length of the schedule, not rounds times ranks. */
#include "schedule/lower/lower.h"
#include "schedule/action.h"
#include "schedule/visits.h"
#include "base/arguments.h"
#include "base/try.h"

#include <assert.h>

enum { FORWARD_DONE = 1, BACKWARD_DONE = 2 };

typedef struct lowering {
    const sl_schedule *in;
    sl_schedule *out;
    sl_placement *placement;
    sl_recv recv;
    int stages;
    size_t microbatches;
    uint8_t *done; /* by stage and microbatch: FORWARD_DONE, BACKWARD_DONE */
    size_t *next;  /* by rank: its next action in `in` */
    sl__visits visits;
    sl__arena memory;
    uint64_t round; /* of the current visit, */
    int rank;       /* and its rank */
} lowering;

/* Schedules another visit of a parked rank: in this round if the rank comes
 * later in it, else in the next. */
static void wake(lowering *low, int rank)
{
    if (low->visits.queued[rank] ||
        low->next[rank] == low->in->rows[rank].length)
        return;
    sl__visits_push(&low->visits, low->round + (rank <= low->rank), rank);
}

/* -------------------------------------------------------- dependencies -- */

/* The neighbour whose result `part` needs, or -1. */
static int source_stage(const lowering *low, const sl_action *part)
{
    if (part->kind == SL_FORWARD)
        return part->stage - 1;
    if (sl__is_backward(part->kind) && part->stage + 1 < low->stages)
        return part->stage + 1;
    return -1;
}

/* The neighbour that needs the result of `part`, or -1. */
static int target_stage(const lowering *low, const sl_action *part)
{
    if (part->kind == SL_FORWARD && part->stage + 1 < low->stages)
        return part->stage + 1;
    if (sl__is_backward(part->kind))
        return part->stage - 1;
    return -1;
}

static uint8_t done_bit(const sl_action *part)
{
    return part->kind == SL_FORWARD ? FORWARD_DONE : BACKWARD_DONE;
}

static uint8_t *done_entry(const lowering *low, int stage, int microbatch)
{
    return &low->done[(size_t)stage * low->microbatches + (size_t)microbatch];
}

/* What must be done before `part`, on its own stage and on the neighbouring
 * one. A W may follow an I or a B. Returns how many. */
typedef struct need {
    int stage;
    uint8_t done;
} need;

static int needs_of(const lowering *low, const sl_action *part, need needs[2])
{
    int count = 0;
    int source = source_stage(low, part);
    if (sl__is_backward(part->kind))
        needs[count++] = (need){part->stage, FORWARD_DONE};
    if (part->kind == SL_BACKWARD_WEIGHT)
        needs[count++] = (need){part->stage, BACKWARD_DONE};
    if (source >= 0)
        needs[count++] = (need){source, done_bit(part)};
    return count;
}

/* Whether all that `part` needs is done; if not, `*out` is the first
 * missing. */
static bool is_ready(const lowering *low, const sl_action *part, need *out)
{
    need needs[2];
    int count = needs_of(low, part, needs);
    for (int i = 0; i < count; i++) {
        *out = needs[i];
        if (!(*done_entry(low, out->stage, part->microbatch) & out->done))
            return false;
    }
    return true;
}

static bool crosses_ranks(const lowering *low, int stage, int other)
{
    return sl_placement_rank_of(low->placement, stage) !=
           sl_placement_rank_of(low->placement, other);
}

/* ------------------------------------------------------------ emission -- */

static sl_status emit(lowering *low, int rank, sl_action action)
{
    return sl__row_append(&low->out->rows[rank], action);
}

static sl_action receive_of(const sl_action *part, int stage)
{
    return sl_action_make(part->kind == SL_FORWARD ? SL_RECV_F : SL_RECV_B,
                          stage, part->microbatch);
}

/* With recv=late: emits the receive that `part` needs, before it. */
static sl_status emit_receive(lowering *low, int rank, const sl_action *part)
{
    int source = source_stage(low, part);
    if (source < 0 || !crosses_ranks(low, part->stage, source))
        return SL_OK;
    return emit(low, rank, receive_of(part, part->stage));
}

static sl_status emit_send(lowering *low, int rank, const sl_action *part)
{
    int target = target_stage(low, part);
    if (target < 0 || !crosses_ranks(low, part->stage, target))
        return SL_OK;
    sl_action_kind kind = part->kind == SL_FORWARD ? SL_SEND_F : SL_SEND_B;
    SL__TRY(
        emit(low, rank, sl_action_make(kind, part->stage, part->microbatch)));
    if (low->recv == SL_RECV_LATE)
        return SL_OK;
    return emit(low, sl_placement_rank_of(low->placement, target),
                receive_of(part, target));
}

static void mark_done(lowering *low, const sl_action *part)
{
    if (part->kind != SL_FORWARD && !sl__is_backward(part->kind))
        return;
    *done_entry(low, part->stage, part->microbatch) |= done_bit(part);
    int target = target_stage(low, part);
    if (target >= 0)
        wake(low, sl_placement_rank_of(low->placement, target));
}

static sl_status schedule_action(lowering *low, int rank,
                                 const sl_action *action,
                                 const sl_action *parts, int count)
{
    for (int i = 0; low->recv == SL_RECV_LATE && i < count; i++)
        SL__TRY(emit_receive(low, rank, &parts[i]));
    SL__TRY(emit(low, rank, *action));
    for (int i = 0; i < count; i++)
        SL__TRY(emit_send(low, rank, &parts[i]));
    for (int i = 0; i < count; i++)
        mark_done(low, &parts[i]);
    return SL_OK;
}

static void skip_idle(lowering *low, int rank)
{
    const sl__row *row = &low->in->rows[rank];
    while (low->next[rank] < row->length &&
           row->actions[low->next[rank]].kind == SL_IDLE)
        low->next[rank]++;
}

/* Schedules the rank's next action, or parks the rank. */
static sl_status visit(lowering *low, int rank)
{
    const sl__row *row = &low->in->rows[rank];
    assert(low->next[rank] < row->length);
    const sl_action *action = &row->actions[low->next[rank]];
    sl_action parts[2];
    int count = sl_action_parts(action, parts);
    for (int i = 0; i < count; i++) {
        need missing;
        if (!is_ready(low, &parts[i], &missing))
            return SL_OK;
    }
    low->next[rank]++;
    skip_idle(low, rank);
    SL__TRY(schedule_action(low, rank, action, parts, count));
    if (low->next[rank] < row->length && !low->visits.queued[rank])
        sl__visits_push(&low->visits, low->round + 1, rank);
    return SL_OK;
}

/* Names the first action that could not be scheduled. */
static sl_status report_stuck(const lowering *low)
{
    for (int rank = 0; rank < low->in->ranks; rank++) {
        const sl__row *row = &low->in->rows[rank];
        if (low->next[rank] == row->length)
            continue;
        const sl_action *action = &row->actions[low->next[rank]];
        sl_action parts[2];
        int count = sl_action_parts(action, parts);
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(action, text);
        for (int i = 0; i < count; i++) {
            need missing;
            if (is_ready(low, &parts[i], &missing))
                continue;
            return sl_fail(
                SL_EUNSOUND,
                "send-recv: rank %d stops before its step %zu, %s: %s of "
                "stage %d, microbatch %d, can never come before it",
                rank, low->next[rank], text,
                missing.done == FORWARD_DONE ? "F" : "the backward",
                missing.stage, parts[i].microbatch);
        }
    }
    return SL_OK;
}

static sl_status walk(lowering *low)
{
    for (int rank = 0; rank < low->in->ranks; rank++) {
        skip_idle(low, rank);
        if (low->next[rank] < low->in->rows[rank].length)
            sl__visits_push(&low->visits, 0, rank);
    }
    while (sl__visits_pop(&low->visits, &low->round, &low->rank))
        SL__TRY(visit(low, low->rank));
    return report_stuck(low);
}

static sl_status lower(lowering *low)
{
    const sl_schedule *in = low->in;
    sl_extent extent = sl_schedule_extent(in);
    low->stages = extent.stages;
    low->microbatches = (size_t)extent.microbatches;
    SL__TRY(sl__check_density(&extent));
    SL__TRY(sl_schedule_create(in->ranks, &low->out));
    SL__TRY(SL__TAKE(&low->memory, (size_t)extent.stages * low->microbatches,
                     &low->done));
    SL__TRY(SL__TAKE(&low->memory, (size_t)in->ranks, &low->next));
    SL__TRY(sl__visits_open(&low->visits, in->ranks, &low->memory));
    for (int rank = 0; rank < in->ranks; rank++)
        SL__TRY(sl__row_reserve(&low->out->rows[rank], in->rows[rank].length));
    return walk(low);
}

sl_status sl_lower_send_recv(const sl_schedule *in, sl_recv recv,
                             sl_schedule **out)
{
    SL__NEED(in, out);
    if (recv != SL_RECV_ASAP && recv != SL_RECV_LATE)
        return sl_fail(SL_EINVAL, "unknown placement of receives: %d",
                       (int)recv);
    lowering low = {.in = in, .recv = recv};
    SL__TRY(sl__refuse_kinds(in, "send-recv", sl__is_communication));
    SL__TRY(sl_placement_derive(in, &low.placement));
    sl_status status = lower(&low);
    sl__arena_clear(&low.memory);
    sl_placement_destroy(low.placement);
    if (status)
        sl_schedule_destroy(low.out);
    else
        *out = low.out;
    return status;
}

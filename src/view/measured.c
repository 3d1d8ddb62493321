/* SPDX-License-Identifier: MIT
 *
 * Makes the timeline of a run from its events: what a rank did becomes blocks,
 * a message lasts from its post to its arrival, and waits explain why the rank
 * was idle. */
#include "view/measured.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "schedule/action.h"

#include <math.h>
#include <string.h>

/* Events have a resolution of nanoseconds, in memory and in files. */
#define ROUNDING_S 2e-9

typedef struct maker {
    sl_timeline *timeline;
    int rank;
} maker;

static const char *place_text(const sl_event *event, char *text)
{
    sl_action_print(&event->action, text);
    return *text ? text : sl_event_kind_text(event->kind);
}

/* Whether an event of this kind can have this action. */
static bool fits(sl_event_kind kind, const sl_action *action)
{
    sl_action_family family = sl_action_kind_family(action->kind);
    switch (kind) {
    case SL_EVENT_COMPUTE: return family == SL_FAMILY_COMPUTE;
    case SL_EVENT_STATE:
        return family == SL_FAMILY_STATE || action->kind == SL_WAIT_REDUCE_GRAD;
    case SL_EVENT_SEND: return sl__is_send(action->kind);
    case SL_EVENT_RECV:
        return sl__is_communication(action->kind) && !sl__is_send(action->kind);
    case SL_EVENT_WAIT:
        return sl__is_communication(action->kind) ||
               sl__is_send_wait(action->kind);
    default: return true;
    }
}

static sl_status check_event(const maker *own, const sl_event *event)
{
    char text[SL_ACTION_TEXT_MAX];
    if (!(event->end_s >= event->start_s))
        return sl_fail(SL_EINVAL, "rank %d: %s ends before it begins",
                       own->rank, place_text(event, text));
    if (!fits(event->kind, &event->action))
        return sl_fail(SL_EINVAL, "rank %d: a %s cannot be about '%s'",
                       own->rank, sl_event_kind_text(event->kind),
                       place_text(event, text));
    if ((sl__is_communication(event->action.kind) ||
         sl__is_send_wait(event->action.kind)) &&
        (event->peer < 0 || event->peer >= own->timeline->ranks ||
         event->peer_stage < 0 || event->peer_stage >= SL_MAX_STAGES))
        return sl_fail(SL_EINVAL, "rank %d: %s has no peer among the ranks",
                       own->rank, place_text(event, text));
    if (event->bytes < 0)
        return sl_fail(SL_EINVAL, "rank %d: %s has %lld bytes", own->rank,
                       place_text(event, text), (long long)event->bytes);
    return SL_OK;
}

/* Adds the message of a receive event. The time of its post comes from the send
 * event (note_posts). */
static sl_status add_message(maker *own, const sl_event *event)
{
    const sl__transfer message = {.forward = event->action.kind == SL_RECV_F,
                                  .from_rank = event->peer,
                                  .to_rank = own->rank,
                                  .from_stage = event->peer_stage,
                                  .to_stage = event->action.stage,
                                  .microbatch = event->action.microbatch,
                                  .edge = event->edge,
                                  .sent = event->start_s,
                                  .arrived = event->end_s,
                                  .bytes = event->bytes};
    return sl__messages_add(own->timeline, &message);
}

static sl_status add_event(maker *own, const sl_event *event)
{
    static const uint8_t kinds[SL_EVENT_KINDS] = {
        [SL_EVENT_COPY] = SL__BLOCK_COPY,
        [SL_EVENT_PACK] = SL__BLOCK_PACK,
        [SL_EVENT_TIES] = SL__BLOCK_TIES,
        [SL_EVENT_DATA] = SL__BLOCK_DATA,
    };
    sl__track *track = &own->timeline->tracks[own->rank];
    bool comm = event->kind == SL_EVENT_SEND || event->kind == SL_EVENT_RECV;
    bool waits = event->kind == SL_EVENT_WAIT;
    sl__block *block;
    SL__TRY(check_event(own, event));
    if (event->kind == SL_EVENT_END)
        return SL_OK;
    if (event->kind == SL_EVENT_TIES && event->end_s == event->start_s)
        return SL_OK; /* The rank computed for no other rank. */
    SL__TRY(sl__blocks_add(waits  ? &track->waits
                           : comm ? &track->comms
                                  : &track->blocks,
                           &block));
    block->action = event->action;
    block->kind = kinds[event->kind] ? kinds[event->kind] : event->action.kind;
    block->start = event->start_s;
    block->end = event->end_s;
    block->bytes = event->bytes;
    block->peer = event->peer;
    block->peer_stage = event->peer_stage;
    block->edge = event->edge;
    bool arrives = event->kind == SL_EVENT_RECV && event->edge >= 0;
    return arrives ? add_message(own, event) : SL_OK;
}

/* --------------------------------------------------------------- memory -- */

/* Bytes that an action allocates as it starts, or frees as it ends: F and I
 * allocate, B frees what F allocated, and W what F and I did. */
static int64_t bytes_of(const sl__block *block, bool taken, bool keeps)
{
    sl_action parts[2];
    int count = sl_action_parts(&block->action, parts);
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bool takes =
            parts[i].kind == SL_FORWARD || parts[i].kind == SL_BACKWARD_INPUT;
        bool gives = sl__ends_microbatch(parts[i].kind) ||
                     (!keeps && parts[i].kind == SL_FORWARD);
        if (taken ? takes : gives)
            bytes = sl__add_bytes(bytes, block->bytes);
    }
    return bytes;
}

static void hold_bytes(sl__track *track, bool keeps)
{
    int64_t held = 0;
    for (size_t i = 0; i < track->blocks.count; i++) {
        sl__block *block = &track->blocks.data[i];
        bool compute = block->kind < SL_ACTION_KINDS;
        if (compute)
            held = sl__add_bytes(held, bytes_of(block, true, keeps));
        block->held.during = held;
        if (compute)
            held -= bytes_of(block, false, keeps);
        block->held.after = held;
    }
}

static bool has_backward(const sl_timeline *timeline)
{
    for (int r = 0; r < timeline->ranks; r++) {
        const sl__blocks *blocks = &timeline->tracks[r].blocks;
        for (size_t i = 0; i < blocks->count; i++) {
            sl_action parts[2];
            int count = sl_action_parts(&blocks->data[i].action, parts);
            for (int k = 0; k < count; k++) {
                if (sl__ends_microbatch(parts[k].kind))
                    return true;
            }
        }
    }
    return false;
}

/* -------------------------------------------------------------- messages -- */

static int compare_sends(const void *a, const void *b)
{
    const sl__transfer *first = a, *second = b;
#define COMPARE(field)                                                         \
    if (first->field != second->field)                                         \
        return first->field < second->field ? -1 : 1;
    COMPARE(from_rank)
    COMPARE(to_rank)
    COMPARE(from_stage)
    COMPARE(to_stage)
    COMPARE(microbatch)
    COMPARE(edge)
    COMPARE(forward)
#undef COMPARE
    return 0;
}

/* Sets when each message was sent to the time of its post, if that is known. */
static void note_posts(sl_timeline *timeline)
{
    size_t count = timeline->message_count, size = sizeof(sl__transfer);
    if (count == 0)
        return;
    qsort(timeline->messages, count, size, compare_sends);
    for (int r = 0; r < timeline->ranks; r++) {
        const sl__blocks *comms = &timeline->tracks[r].comms;
        for (size_t i = 0; i < comms->count; i++) {
            const sl__block *send = &comms->data[i];
            if (!sl__is_send(send->action.kind))
                continue;
            const sl__transfer wanted = {.forward =
                                             send->action.kind == SL_SEND_F,
                                         .from_rank = r,
                                         .to_rank = send->peer,
                                         .from_stage = send->action.stage,
                                         .to_stage = send->peer_stage,
                                         .microbatch = send->action.microbatch,
                                         .edge = send->edge};
            sl__transfer *found = bsearch(&wanted, timeline->messages, count,
                                          size, compare_sends);
            if (found && send->start <= found->arrived)
                found->sent = send->start;
        }
    }
}

/* ----------------------------------------------------------------- ranks -- */

/* Fails where a rank does two things at once. Overlaps within the rounding of
 * the clock are removed. */
static sl_status check_track(sl_timeline *timeline, int rank)
{
    sl__blocks *blocks = &timeline->tracks[rank].blocks;
    for (size_t i = 1; i < blocks->count; i++) {
        sl__block *before = &blocks->data[i - 1], *block = &blocks->data[i];
        if (block->start >= before->end)
            continue;
        if (block->start < before->end - ROUNDING_S) {
            char a[SL_ACTION_TEXT_MAX], b[SL_ACTION_TEXT_MAX];
            sl__block_print(before, a);
            sl__block_print(block, b);
            return sl_fail(SL_EINVAL, "rank %d: %s begins before %s ends", rank,
                           b, a);
        }
        before->end = block->start; /* not before its own start */
    }
    return SL_OK;
}

static sl_status finish(sl_timeline *timeline)
{
    timeline->measured = timeline->seconds = true;
    for (int r = 0; r < timeline->ranks; r++) {
        const sl__blocks *blocks = &timeline->tracks[r].blocks;
        for (size_t i = 0; i < blocks->count; i++) {
            if (sl__block_computes(&blocks->data[i]))
                timeline->makespan =
                    fmax(timeline->makespan, blocks->data[i].end);
        }
    }
    note_posts(timeline);
    bool keeps = has_backward(timeline);
    sl__timeline_sort(timeline);
    for (int r = 0; r < timeline->ranks; r++) {
        SL__TRY(check_track(timeline, r));
        hold_bytes(&timeline->tracks[r], keeps);
    }
    SL__TRY(sl__timeline_finish(timeline));
    sl__mark_critical(timeline);
    return SL_OK;
}

/* Whether an event belongs to a cell of the schedule that ran. A message that
 * skips stages has no cell. */
static bool is_cell(const sl_event *event)
{
    switch (event->kind) {
    case SL_EVENT_COMPUTE:
    case SL_EVENT_STATE: return true;
    case SL_EVENT_WAIT:
        if (!sl__is_send_wait(event->action.kind))
            return false;
        break;
    case SL_EVENT_SEND:
    case SL_EVENT_RECV: break;
    default: return false;
    }
    return event->peer_stage == sl__peer_stage(&event->action);
}

static sl_status read_cells(const sl__rank_events *rank, int row,
                            sl_schedule *to)
{
    const sl_action *last = NULL;
    for (size_t i = 0; i < rank->count; i++) {
        const sl_event *event = &rank->events[i];
        if (!is_cell(event) || (last && sl_action_equal(last, &event->action)))
            continue;
        last = &event->action;
        SL__TRY(sl_schedule_append(to, row, event->action));
    }
    return SL_OK;
}

static sl_status read_events(maker *own, const sl__rank_events *ranks)
{
    sl_timeline *timeline = own->timeline;
    SL__TRY(sl_schedule_create(timeline->ranks, &timeline->ran));
    for (; own->rank < timeline->ranks; own->rank++) {
        const sl__rank_events *rank = &ranks[own->rank];
        timeline->tracks[own->rank].planned_bytes = rank->slabs;
        for (size_t i = 0; i < rank->count; i++)
            SL__TRY(add_event(own, &rank->events[i]));
        SL__TRY(read_cells(rank, own->rank, timeline->ran));
    }
    return finish(timeline);
}

sl_status sl__timeline_from_events(const char *title,
                                   const sl__rank_events *ranks, int count,
                                   sl_timeline **out)
{
    maker own = {0};
    SL__TRY(sl__timeline_create(title, count, &own.timeline));
    sl_status status = read_events(&own, ranks);
    if (status)
        sl_timeline_destroy(own.timeline);
    else
        *out = own.timeline;
    return status;
}

sl_status sl_timeline_measured(const char *title, const sl_trace *run,
                               sl_timeline **out)
{
    SL__NEED(title, run, out);
    sl__rank_events *ranks = NULL;
    int count = sl_trace_ranks(run);
    SL__TRY(sl__alloc((size_t)count, sizeof *ranks, &ranks));
    for (int r = 0; r < count; r++) {
        ranks[r].events = sl_trace_events(run, r, &ranks[r].count);
        ranks[r].slabs = sl_trace_rank(run, r).bytes.activations;
    }
    sl_status status = sl__timeline_from_events(title, ranks, count, out);
    free(ranks);
    return status;
}

/* SPDX-License-Identifier: MIT */
#include "trials.h"

static bool is_backward_of(sl_action_kind kind)
{
    return kind == SL_BACKWARD || kind == SL_BACKWARD_INPUT;
}

/* The event of a kind and action on a rank; NULL. */
static const sl_event *find(const sl_trace *trace, int rank, sl_event_kind kind,
                            sl_action_kind action, int stage, int microbatch,
                            int edge)
{
    size_t count;
    const sl_event *events = sl_trace_events(trace, rank, &count);
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == kind && events[i].action.kind == action &&
            events[i].action.stage == stage &&
            events[i].action.microbatch == microbatch && events[i].edge == edge)
            return &events[i];
    }
    return NULL;
}

/* Compute is what was planned, in its order; nothing the rank itself does
 * overlaps. */
static sl_status check_row(const sl_trace *trace, int rank)
{
    const sl_schedule *plan = sl_trace_plan(trace);
    int row_of = rank % sl_schedule_ranks(plan);
    const sl_action *row = sl_schedule_row(plan, row_of);
    size_t length = sl_schedule_length(plan, row_of), count, at = 0;
    const sl_event *events = sl_trace_events(trace, rank, &count);
    double end = -1e30;
    for (size_t i = 0; i < count; i++) {
        if (events[i].end_s < events[i].start_s)
            return sl_fail(SL_EINVAL,
                           "rank %d: event %zu ends before it "
                           "starts",
                           rank, i);
        if (events[i].kind == SL_EVENT_SEND || events[i].kind == SL_EVENT_RECV)
            continue;
        if (events[i].start_s < end)
            return sl_fail(SL_EINVAL, "rank %d: event %zu overlaps", rank, i);
        end = events[i].end_s;
        if (events[i].kind != SL_EVENT_COMPUTE)
            continue;
        if (at == length || !sl_action_equal(&row[at], &events[i].action))
            return sl_fail(SL_EINVAL,
                           "rank %d: compute %zu is another than "
                           "was planned",
                           rank, at);
        at++;
    }
    if (at != length)
        return sl_fail(SL_EINVAL, "rank %d: %zu computes, expected %zu", rank,
                       at, length);
    return SL_OK;
}

/* A message is received once, after it was sent, and before its user runs. */
static sl_status check_message(const sl_trace *trace, int rank,
                               const sl_event *sent)
{
    bool forward = sent->action.kind == SL_SEND_F;
    int m = sent->action.microbatch;
    const sl_event *received =
        find(trace, sent->peer, SL_EVENT_RECV, forward ? SL_RECV_F : SL_RECV_B,
             sent->peer_stage, m, sent->edge);
    if (!received || received->peer != rank ||
        received->peer_stage != sent->action.stage ||
        received->bytes != sent->bytes)
        return sl_fail(SL_EINVAL, "rank %d: a message that nobody received",
                       rank);
    if (received->end_s < sent->start_s)
        return sl_fail(SL_EINVAL, "rank %d: received before it was sent", rank);
    size_t count;
    const sl_event *events = sl_trace_events(trace, sent->peer, &count);
    for (size_t i = 0; i < count; i++) {
        const sl_action *action = &events[i].action;
        bool uses = events[i].kind == SL_EVENT_COMPUTE &&
                    action->stage == sent->peer_stage &&
                    action->microbatch == m &&
                    (forward ? action->kind == SL_FORWARD
                             : is_backward_of(action->kind));
        if (uses && events[i].start_s < received->end_s)
            return sl_fail(SL_EINVAL, "rank %d: used before it was received",
                           sent->peer);
    }
    return SL_OK;
}

static sl_status check_trace(const sl_trace *trace)
{
    size_t sends = 0, recvs = 0;
    sl_status status = SL_OK;
    for (int r = 0; r < sl_trace_ranks(trace) && !status; r++) {
        size_t count;
        const sl_event *events = sl_trace_events(trace, r, &count);
        status = check_row(trace, r);
        for (size_t i = 0; i < count && !status; i++) {
            recvs += events[i].kind == SL_EVENT_RECV;
            if (events[i].kind != SL_EVENT_SEND)
                continue;
            sends++;
            status = check_message(trace, r, &events[i]);
        }
        sl_rank_summary summary = sl_trace_rank(trace, r);
        if (!status && summary.bytes.planned != summary.bytes.measured)
            status = sl_fail(SL_EINVAL,
                             "rank %d: %lld bytes planned, %lld "
                             "measured",
                             r, (long long)summary.bytes.planned,
                             (long long)summary.bytes.measured);
    }
    if (!status && sends != recvs)
        status =
            sl_fail(SL_EINVAL, "%zu messages sent, %zu received", sends, recvs);
    sl_trace_summary all;
    if (!status)
        status = sl_trace_summarize(trace, &all);
    /* Nothing is faster than with messages that cost nothing, but that costs
     * are means: their spread may be on the path or beside it. */
    if (!status && !(all.bubble_measured >= 0 && all.bubble_measured < 1 &&
                     all.bubble_planned >= 0 && all.planned_s > 0))
        status = sl_fail(SL_EINVAL, "a bubble of %g, planned %g",
                         all.bubble_measured, all.bubble_planned);
    return status;
}

sl_status trace_and_check(sl_comm *comm, sl_pipeline *pipeline)
{
    sl_trace *trace = NULL;
    sl_status status = sl_pipeline_trace(pipeline, &trace);
    if (!status && (trace != NULL) != (sl_comm_rank(comm) == 0))
        status = sl_fail(SL_EINVAL, "the trace is not rank 0's alone");
    if (!status && trace)
        status = check_trace(trace);
    sl_trace_destroy(trace);
    return status;
}

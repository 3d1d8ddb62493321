/* SPDX-License-Identifier: MIT
 *
 * Checks the trace of a step against what was planned: trace_and_check of
 * trials.h. */
#include "trials.h"

#include "base/try.h"
#include "pipeline/run/runtime.h"
#include "tensor/program.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether an event is a cell: what jumps over stages has none. */
static bool is_cell(const sl_event *event)
{
    bool waits = event->kind == SL_EVENT_WAIT;
    if (event->kind == SL_EVENT_COMPUTE || event->kind == SL_EVENT_STATE)
        return true;
    if (event->kind != SL_EVENT_SEND && event->kind != SL_EVENT_RECV && !waits)
        return false;
    if (waits && event->action.kind != SL_WAIT_SEND_F &&
        event->action.kind != SL_WAIT_SEND_B)
        return false;
    int distance = event->peer_stage - event->action.stage;
    return distance == 1 || distance == -1;
}

/* Cells of a row, overlaps in two, as the events should have them. */
static size_t list_cells(const sl_action *row, size_t length, sl_action *out)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += (size_t)sl_action_parts(&row[i], out + count);
    return count;
}

/* The cells of the lowered schedule, in their order, each once; nothing that
 * the rank itself does overlaps. A cell of several messages has as many events,
 * one after the other. */
static sl_status check_row(const sl_trace *trace, int rank)
{
    const sl_schedule *plan = sl_trace_plan(trace);
    int row_of = rank % sl_schedule_ranks(plan);
    size_t length = sl_schedule_length(plan, row_of), count, at = 0;
    const sl_event *events = sl_trace_events(trace, rank, &count);
    sl_action *cells = malloc((2 * length + 1) * sizeof *cells);
    length = list_cells(sl_schedule_row(plan, row_of), length, cells);
    double end = -1e30;
    sl_status status = SL_OK;
    for (size_t i = 0; i < count && !status; i++) {
        const sl_event *event = &events[i];
        bool message =
            event->kind == SL_EVENT_SEND || event->kind == SL_EVENT_RECV;
        if (event->end_s < event->start_s)
            status = sl_fail(SL_EINVAL,
                             "rank %d: event %zu ends before it "
                             "starts",
                             rank, i);
        else if (event->start_s < end)
            status = sl_fail(SL_EINVAL, "rank %d: event %zu overlaps", rank, i);
        end = message ? event->start_s : event->end_s;
        if (status || !is_cell(event))
            continue;
        if (at > 0 && sl_action_equal(&cells[at - 1], &event->action) &&
            event->edge >= 0)
            continue;
        if (at == length || !sl_action_equal(&cells[at], &event->action))
            status = sl_fail(SL_EINVAL,
                             "rank %d: cell %zu is another than was "
                             "lowered",
                             rank, at);
        at++;
    }
    if (!status && at != length)
        status = sl_fail(SL_EINVAL, "rank %d: %zu cells, expected %zu", rank,
                         at, length);
    free(cells);
    return status;
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

/* How many messages the latest run sends: one for each edge between ranks and
 * microbatch, and as many back in a step, where a gradient flows. */
static size_t count_messages(const sl_pipeline *pipeline)
{
    int count;
    const sl_model *model = sl_pipeline_model(pipeline);
    const sl_edge *edges = sl_model_edges(model, &count);
    bool step = pipeline->latest == &pipeline->last->train;
    size_t messages = 0;
    for (int e = 0; e < count; e++) {
        if (pipeline->rank_of[edges[e].from] == pipeline->rank_of[edges[e].to])
            continue;
        messages += 1 + (step && edges[e].gradient_name);
    }
    return messages * (size_t)pipeline->microbatches *
           (size_t)pipeline->options.replicas;
}

/* Overlaps are run, and planned, as their halves. */
static bool is_same(const sl_schedule *a, const sl_schedule *lowered)
{
    sl_schedule *b;
    if (sl_schedule_create(sl_schedule_ranks(lowered), &b))
        return false;
    for (int r = 0; r < sl_schedule_ranks(lowered); r++) {
        for (size_t i = 0; i < sl_schedule_length(lowered, r); i++) {
            sl_action parts[2];
            int count = sl_action_parts(&sl_schedule_row(lowered, r)[i], parts);
            for (int k = 0; k < count; k++)
                (void)sl_schedule_append(b, r, parts[k]);
        }
    }
    sl_string left = SL_STRING_INIT, right = SL_STRING_INIT;
    bool same = !sl_schedule_write_csv(a, sl_write_string, &left) &&
                !sl_schedule_write_csv(b, sl_write_string, &right) &&
                strcmp(left.data, right.data) == 0;
    sl_string_clear(&left);
    sl_string_clear(&right);
    sl_schedule_destroy(b);
    return same;
}

static sl_status check_plan(const sl_pipeline *pipeline,
                            const sl_schedule *plan)
{
    sl_report *report;
    bool step = pipeline->latest == &pipeline->last->train;
    SL__TRY(sl_check(plan, NULL, &report));
    bool sound = sl_report_is_sound(report);
    sl_report_destroy(report);
    if (!sound)
        return sl_fail(SL_EINVAL, "the plan of the trace is not sound");
    if (step && !is_same(plan, sl_pipeline_schedule(pipeline)))
        return sl_fail(SL_EINVAL, "the plan is not what runs");
    return SL_OK;
}

/* The stage that this rank's microbatch runs on; NULL where it is another's. */
static const sl_stage *stage_of(const sl_pipeline *pipeline,
                                const sl_action *action)
{
    for (int v = 0; v < pipeline->last->variant_count; v++) {
        const sl__variant *variant = &pipeline->last->variants[v];
        if (variant->stage == action->stage &&
            variant->rows == pipeline->last->rows[action->microbatch])
            return variant->program_stage;
    }
    return NULL;
}

/* W takes time where its stage has gradients to compute: I has not done it. */
static sl_status check_weights(const sl_pipeline *pipeline,
                               const sl_trace *trace)
{
    size_t count;
    const sl_event *events = sl_trace_events(trace, 0, &count);
    for (size_t i = 0; i < count; i++) {
        const sl_action *action = &events[i].action;
        if (events[i].kind != SL_EVENT_COMPUTE ||
            action->kind != SL_BACKWARD_WEIGHT)
            continue;
        const sl_stage *stage = stage_of(pipeline, action);
        if (sl_stage_port_count(stage, SL_PORT_PARAMETER_GRADIENT) == 0)
            continue;
        if (stage->programs[SL_PROGRAM_W].count == 0 ||
            events[i].end_s <= events[i].start_s)
            return sl_fail(SL_EINVAL, "W of stage %d, microbatch %d: no work",
                           action->stage, action->microbatch);
    }
    return SL_OK;
}

static sl_status check_trace(const sl_pipeline *pipeline, const sl_trace *trace)
{
    size_t sends = 0, recvs = 0;
    for (int r = 0; r < sl_trace_ranks(trace); r++) {
        size_t count;
        const sl_event *events = sl_trace_events(trace, r, &count);
        SL__TRY(check_row(trace, r));
        for (size_t i = 0; i < count; i++) {
            if (events[i].edge < 0)
                continue;
            recvs += events[i].kind == SL_EVENT_RECV;
            if (events[i].kind != SL_EVENT_SEND)
                continue;
            sends++;
            SL__TRY(check_message(trace, r, &events[i]));
        }
        const sl_rank_bytes bytes = sl_trace_rank(trace, r).bytes;
        /* With shards the plan is of later steps, not of the first. */
        if (!pipeline->shards && bytes.planned != bytes.measured)
            return sl_fail(SL_EINVAL,
                           "rank %d: %lld bytes planned, %lld measured", r,
                           (long long)bytes.planned, (long long)bytes.measured);
    }
    size_t expected = count_messages(pipeline);
    if (sends != expected || recvs != expected)
        return sl_fail(SL_EINVAL,
                       "%zu messages sent, %zu received, expected %zu", sends,
                       recvs, expected);
    sl_trace_summary all;
    SL__TRY(check_plan(pipeline, sl_trace_plan(trace)));
    SL__TRY(check_weights(pipeline, trace));
    SL__TRY(sl_trace_summarize(trace, &all));
    /* Nothing is faster than with messages that cost nothing, except that costs
     * are means: their spread may be on the path or beside it. */
    if (!(all.bubble_measured >= 0 && all.bubble_measured < 1 &&
          all.bubble_planned >= 0 && all.planned_s > 0))
        return sl_fail(SL_EINVAL, "a bubble of %g, planned %g",
                       all.bubble_measured, all.bubble_planned);
    return SL_OK;
}

/* Arrows by their names, and where each begins. */
static size_t note_arrows(json_t *events, json_t *starts, sl_status *status)
{
    size_t i, arrows = 0;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        json_t *ts = json_object_get(event, "ts");
        if (*phase != 'M' && !(json_number_value(ts) >= 0))
            *status = sl_fail(SL_EINVAL, "an event below 0");
        if (*phase != 's')
            continue;
        arrows++;
        json_object_set(starts, json_string_value(json_object_get(event, "id")),
                        ts);
    }
    return arrows;
}

/* What viewers make of it: no time below 0, and of each arrow a start, then an
 * end. */
static sl_status check_document(const sl_trace *trace)
{
    sl_string text = SL_STRING_INIT;
    sl_status status = sl_view_write_run(trace, sl_write_string, &text);
    json_t *root = status ? NULL : json_loads(text.data, 0, NULL);
    json_t *events = json_object_get(root, "traceEvents"), *event;
    json_t *starts = json_object();
    size_t i, ends = 0, messages = 0;
    if (!status && !events)
        status = sl_fail(SL_EINVAL, "the trace is not JSON");
    size_t arrows = note_arrows(events, starts, &status);
    json_array_foreach(events, i, event)
    {
        const char *id = json_string_value(json_object_get(event, "id"));
        if (*json_string_value(json_object_get(event, "ph")) != 'f')
            continue;
        ends++;
        const json_t *start = json_object_get(starts, id);
        double at = json_number_value(json_object_get(event, "ts"));
        if (!start || at < json_number_value(start) - 2e-3)
            status = sl_fail(SL_EINVAL, "arrow %s goes back in time", id);
    }
    for (int r = 0; r < sl_trace_ranks(trace); r++)
        messages += sl_trace_rank(trace, r).sent;
    if (!status && (arrows != messages || ends != messages ||
                    json_object_size(starts) != messages))
        status =
            sl_fail(SL_EINVAL, "%zu arrows for %zu messages", arrows, messages);
    json_decref(starts);
    json_decref(root);
    sl_string_clear(&text);
    return status;
}

/* The timeline of the run, and what a file of it reads back as, are of one
 * mind; its plan can be made. */
static sl_status check_timeline(const sl_trace *trace)
{
    sl_string text = SL_STRING_INIT;
    sl_timeline *own = NULL, *read = NULL, *planned = NULL;
    sl_trace_summary all;
    sl_status status = sl_trace_summarize(trace, &all);
    if (!status)
        status = sl_timeline_measured("run", trace, &own);
    if (!status)
        status = sl_view_write_run(trace, sl_write_string, &text);
    if (!status)
        status = sl_timeline_read("file", text.data, text.length, &read);
    if (!status)
        status = sl_timeline_planned("plan", read, &planned);
    if (!status) {
        sl_timeline_summary a = sl_timeline_summarize(own);
        sl_timeline_summary b = sl_timeline_summarize(read);
        sl_timeline_summary plan = sl_timeline_summarize(planned);
        if (a.blocks != b.blocks || a.messages != b.messages ||
            a.ranks != b.ranks || a.stages != b.stages ||
            fabs(a.makespan - b.makespan) > 1e-8 ||
            fabs(a.bubble - all.bubble_measured) > 1e-9)
            status = sl_fail(SL_EINVAL, "a run is not its file");
        else if (fabs(plan.makespan - all.planned_s) > 1e-3 * all.planned_s)
            status = sl_fail(SL_EINVAL, "planned %g, the file's %g",
                             all.planned_s, plan.makespan);
    }
    sl_timeline_destroy(planned);
    sl_timeline_destroy(read);
    sl_timeline_destroy(own);
    sl_string_clear(&text);
    return status;
}

/* Whether the message of an event is on its way at a moment. */
static bool is_pending(const sl_event *event, double at_s)
{
    return event->kind == SL_EVENT_SEND && event->start_s <= at_s &&
           event->end_s > at_s;
}

/* SENDs of a rank that are pending at once, when each of them begins. One of
 * them may be several messages, and is pending while any of these is. */
static sl_status check_pending(const sl_trace *trace, int rank, int most)
{
    size_t count;
    const sl_event *events = sl_trace_events(trace, rank, &count);
    for (size_t i = 0; i < count; i++) {
        int pending = 1;
        if (events[i].kind != SL_EVENT_SEND)
            continue;
        for (size_t k = 0; k < count; k++) {
            bool counted =
                sl_action_equal(&events[k].action, &events[i].action);
            for (size_t n = 0; n < k && !counted; n++)
                counted = is_pending(&events[n], events[i].start_s) &&
                          sl_action_equal(&events[n].action, &events[k].action);
            pending += !counted && is_pending(&events[k], events[i].start_s);
        }
        if (pending > most)
            return sl_fail(SL_EINVAL, "rank %d: %d sends pending, not %d", rank,
                           pending, most);
    }
    return SL_OK;
}

static sl_status check_all(const sl_pipeline *pipeline, const sl_trace *trace,
                           int most_sends)
{
    SL__TRY(check_trace(pipeline, trace));
    SL__TRY(check_document(trace));
    for (int r = 0; most_sends && r < sl_trace_ranks(trace); r++)
        SL__TRY(check_pending(trace, r, most_sends));
    return check_timeline(trace);
}

sl_status trace_and_check(sl_comm *comm, sl_pipeline *pipeline, int most_sends)
{
    sl_trace *trace;
    SL__TRY(sl_pipeline_trace(pipeline, &trace));
    if ((trace != NULL) != (sl_comm_rank(comm) == 0))
        return sl_fail(SL_EINVAL, "the trace is not rank 0's alone");
    if (!trace)
        return SL_OK;
    sl_status status = check_all(pipeline, trace, most_sends);
    sl_trace_destroy(trace);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * The trace of the latest step: the executor records when each instruction
 * started; this file makes events of that, and rank 0 gathers them from all
 * ranks. */
#include "pipeline/run/trace.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/try.h"
#include "schedule/action.h"

#include <assert.h>

/* ------------------------------------------------------- of this rank -- */

/* Reads the stamps of a list. A message becomes an event when its post is read;
 * its end is set when its wait is read. */
typedef struct reader {
    const sl_pipeline *pipeline;
    const sl__binding *binding;
    const sl__instructions *list;
    size_t *posts; /* by request: its event */
    sl_event *events;
    size_t count;
} reader;

static void add_event(reader *r, sl_event_kind kind, const sl_action *action,
                      double start, double end)
{
    r->events[r->count++] = (sl_event){.kind = kind,
                                       .action = *action,
                                       .peer = -1,
                                       .peer_stage = -1,
                                       .edge = -1,
                                       .start_s = start,
                                       .end_s = end};
}

/* Describes the message of an instruction in the latest event. */
static void describe_message(reader *r, const sl__instruction *i)
{
    sl_event *event = &r->events[r->count - 1];
    event->peer = i->u.message.peer;
    event->peer_stage = i->u.message.peer_stage;
    event->edge = i->u.message.tag / (2 * r->pipeline->microbatches);
    event->bytes = (int64_t)i->u.message.bytes;
}

static void read_post(reader *r, size_t k)
{
    const sl__instruction *i = &r->list->data[k];
    double start = r->binding->stamps[k].start.seconds;
    r->posts[i->u.message.request - r->binding->requests] = r->count;
    add_event(r, i->kind == SL__DO_SEND ? SL_EVENT_SEND : SL_EVENT_RECV,
              &i->action, start, start);
    describe_message(r, i);
}

static void read_wait(reader *r, size_t k)
{
    const sl__instruction *i = &r->list->data[k];
    const sl__stamp *stamps = r->binding->stamps;
    double end = stamps[k + 1].start.seconds, done = stamps[k].done_s;
    sl_event *message =
        &r->events[r->posts[i->u.message.request - r->binding->requests]];
    done = done < end ? done : end;
    message->end_s = done > message->start_s ? done : message->start_s;
    add_event(r, SL_EVENT_WAIT, &i->action, stamps[k].start.seconds, end);
    describe_message(r, i);
}

/* Bytes that F or I allocates as it starts, or B or W frees as it ends. */
static int64_t compute_bytes(const sl__instruction *i)
{
    const sl_plan *plan = sl_stage_plan(i->u.run.program_stage);
    switch (i->action.kind) {
    case SL_BACKWARD_INPUT: return plan->handed_bytes;
    case SL_BACKWARD_WEIGHT: return plan->slab_bytes + plan->handed_bytes;
    default: return plan->slab_bytes;
    }
}

/* The kind of event of a cell for which there was nothing to do. */
static sl_event_kind kind_of_cell(const sl_action *cell)
{
    switch (sl_action_kind_family(cell->kind)) {
    case SL_FAMILY_COMM:
        return sl__is_send(cell->kind) ? SL_EVENT_SEND : SL_EVENT_RECV;
    case SL_FAMILY_WAIT:
        return sl__is_send_wait(cell->kind) ? SL_EVENT_WAIT : SL_EVENT_STATE;
    default: return SL_EVENT_STATE;
    }
}

static void read_nothing(reader *r, size_t k)
{
    const sl_action *cell = &r->list->data[k].action;
    double at = r->binding->stamps[k].start.seconds;
    add_event(r, kind_of_cell(cell), cell, at, at);
    if (cell->kind == SL_WAIT_REDUCE_GRAD ||
        sl_action_kind_family(cell->kind) == SL_FAMILY_STATE)
        return;
    sl_event *event = &r->events[r->count - 1];
    event->peer_stage = sl__peer_stage(cell);
    event->peer =
        sl__comm_rank(r->pipeline, r->pipeline->rank_of[event->peer_stage]);
}

static void read_instruction(reader *r, size_t k)
{
    static const sl_event_kind kinds[] = {
        [SL__DO_PACK] = SL_EVENT_PACK,    [SL__DO_RUN] = SL_EVENT_COMPUTE,
        [SL__DO_FEED] = SL_EVENT_COPY,    [SL__DO_COPY] = SL_EVENT_COPY,
        [SL__DO_COLLECT] = SL_EVENT_COPY, [SL__DO_STATE] = SL_EVENT_STATE,
    };
    const sl__instruction *i = &r->list->data[k];
    const sl__stamp *stamps = r->binding->stamps;
    switch (i->kind) {
    case SL__DO_SEND:
    case SL__DO_RECV: read_post(r, k); break;
    case SL__DO_WAIT: read_wait(r, k); break;
    case SL__DO_NOTHING: read_nothing(r, k); break;
    default:
        add_event(r, kinds[i->kind], &i->action, stamps[k].start.seconds,
                  stamps[k + 1].start.seconds);
        if (i->kind == SL__DO_RUN)
            r->events[r->count - 1].bytes = compute_bytes(i);
    }
}

/* Divides the time of instructions that ran as one evenly between them. */
static void split_joined(reader *r)
{
    size_t e = 0;
    for (size_t k = 0; k < r->list->count; k++) {
        const sl__instruction *i = &r->list->data[k];
        size_t count = 1;
        if (!i->joined)
            continue;
        while (r->events[e].kind != SL_EVENT_COMPUTE ||
               !sl_action_equal(&r->events[e].action, &i->action))
            e++;
        for (; r->list->data[k].joined; k++)
            count++;
        sl_event *first = &r->events[e];
        double start = first->start_s, whole = first[count - 1].end_s - start;
        for (size_t n = 0; n < count; n++) {
            first[n].start_s = start + whole * (double)n / (double)count;
            if (n > 0)
                first[n - 1].end_s = first[n].start_s;
        }
    }
}

static sl_status read_events(const sl_pipeline *pipeline, reader *r)
{
    static const sl_action none = {0};
    const sl__binding *binding = pipeline->last;
    const sl__instructions *list = pipeline->latest;
    *r = (reader){.pipeline = pipeline, .binding = binding, .list = list};
    SL__TRY(sl__alloc(binding->request_count, sizeof *r->posts, &r->posts));
    SL__TRY(sl__alloc(list->count + 3, sizeof *r->events, &r->events));
    if (pipeline->data_s[1] > 0)
        add_event(r, SL_EVENT_DATA, &none, pipeline->data_s[0],
                  pipeline->data_s[1]);
    for (size_t k = 0; k < list->count; k++)
        read_instruction(r, k);
    split_joined(r);
    const double *ends = pipeline->end_s;
    add_event(r, SL_EVENT_TIES, &none, ends[0], ends[1]);
    add_event(r, SL_EVENT_END, &none, ends[1], ends[2]);
    assert(r->count <= list->count + 3);
    return SL_OK;
}

void sl_pipeline_note_data(sl_pipeline *pipeline, double seconds)
{
    if (!pipeline)
        return;
    double now = sl__seconds();
    pipeline->next_data_s[0] = now - seconds;
    pipeline->next_data_s[1] = now;
}

double sl_pipeline_busy(const sl_pipeline *pipeline)
{
    const sl__instructions *list = pipeline ? pipeline->latest : NULL;
    double busy = 0;
    for (size_t k = 0; list && k < list->count; k++) {
        const sl__stamp *stamp = &pipeline->last->stamps[k];
        if (list->data[k].kind == SL__DO_RUN)
            busy += stamp[1].start.seconds - stamp->start.seconds;
    }
    return busy;
}

/* ---------------------------------------------------------- gathering -- */

/* The header that a rank sends before its events. */
typedef struct header {
    uint64_t count;
    double helped_s;
    sl_rank_bytes bytes;
} header;

/* Sends data from one rank to another; both call it. */
static sl_status transfer(sl_pipeline *pipeline, int from, int to, void *data,
                          size_t bytes)
{
    const int ranks[] = {from, to};
    const sl_group pair = {ranks, 2};
    return sl_comm_broadcast(pipeline->comm, &pair, SL__TAG_END, 0, data, bytes,
                             pipeline->options.timeout_s);
}

enum { CLOCK_TRIES = 8 };

/* Measures how far a rank's clock is ahead of rank 0's, by the quickest of
 * several exchanges. That rank calls show_clock. */
static sl_status compare_clocks(sl_pipeline *pipeline, int rank, double *out)
{
    double best = 1e30;
    *out = 0;
    for (int i = 0; i < CLOCK_TRIES; i++) {
        double start = sl__seconds(), there;
        SL__TRY(transfer(pipeline, 0, rank, &start, sizeof start));
        SL__TRY(transfer(pipeline, rank, 0, &there, sizeof there));
        double took = sl__seconds() - start;
        if (took < best) {
            best = took;
            *out = there - (start + took / 2);
        }
    }
    /* A difference below the error of the measurement counts as none: both are
     * on one machine. */
    if (*out <= best / 2 && *out >= -best / 2)
        *out = 0;
    return SL_OK;
}

static sl_status show_clock(sl_pipeline *pipeline)
{
    int rank = sl_comm_rank(pipeline->comm);
    for (int i = 0; i < CLOCK_TRIES; i++) {
        double now;
        SL__TRY(transfer(pipeline, 0, rank, &now, sizeof now));
        now = sl__seconds();
        SL__TRY(transfer(pipeline, rank, 0, &now, sizeof now));
    }
    return SL_OK;
}

/* Receives what send_events sends. */
static sl_status receive_events(sl_pipeline *pipeline, int rank,
                                sl__rank_trace *out)
{
    double ahead = 0;
    header top = {0};
    /* Ranks of one process have one clock. */
    if (!sl__comm_is_one_process(pipeline->comm))
        SL__TRY(compare_clocks(pipeline, rank, &ahead));
    SL__TRY(transfer(pipeline, rank, 0, &top, sizeof top));
    SL__TRY(sl__alloc(top.count, sizeof *out->events, &out->events));
    SL__TRY(transfer(pipeline, rank, 0, out->events,
                     top.count * sizeof *out->events));
    out->count = top.count;
    out->helped_s = top.helped_s;
    out->bytes = top.bytes;
    for (size_t i = 0; i < out->count; i++) {
        out->events[i].start_s -= ahead;
        out->events[i].end_s -= ahead;
    }
    return SL_OK;
}

/* Makes the first compute of any rank time 0. */
static void start_at_zero(sl_trace *trace)
{
    double first = 0;
    bool found = false;
    for (int r = 0; r < trace->rank_count; r++) {
        const sl__rank_trace *own = &trace->ranks[r];
        for (size_t i = 0; i < own->count; i++) {
            const sl_event *event = &own->events[i];
            if (event->kind == SL_EVENT_COMPUTE &&
                (!found || event->start_s < first)) {
                first = event->start_s;
                found = true;
            }
        }
    }
    for (int r = 0; r < trace->rank_count; r++) {
        for (size_t i = 0; i < trace->ranks[r].count; i++) {
            trace->ranks[r].events[i].start_s -= first;
            trace->ranks[r].events[i].end_s -= first;
        }
    }
}

/* Makes the trace of rank 0, of its own events and those of all others. */
static sl_status gather(sl_pipeline *pipeline, reader *own, sl_trace *trace)
{
    bool eval = pipeline->latest == &pipeline->last->eval;
    int ranks = sl_comm_size(pipeline->comm);
    SL__TRY(sl__alloc((size_t)ranks, sizeof *trace->ranks, &trace->ranks));
    trace->rank_count = ranks;
    trace->ranks[0] = (sl__rank_trace){.events = own->events,
                                       .count = own->count,
                                       .helped_s = pipeline->helped_s};
    own->events = NULL;
    sl_pipeline_bytes(pipeline, &trace->ranks[0].bytes);
    for (int r = 1; r < ranks; r++)
        SL__TRY(receive_events(pipeline, r, &trace->ranks[r]));
    SL__TRY(sl__copy_cells(eval ? pipeline->forward : pipeline->lowered, false,
                           &trace->plan));
    start_at_zero(trace);
    return SL_OK;
}

static sl_status send_events(sl_pipeline *pipeline, const reader *own)
{
    int rank = sl_comm_rank(pipeline->comm);
    header top = {.count = own->count, .helped_s = pipeline->helped_s};
    sl_pipeline_bytes(pipeline, &top.bytes);
    if (!sl__comm_is_one_process(pipeline->comm))
        SL__TRY(show_clock(pipeline));
    SL__TRY(transfer(pipeline, rank, 0, &top, sizeof top));
    return transfer(pipeline, rank, 0, own->events,
                    own->count * sizeof *own->events);
}

sl_status sl_pipeline_trace(sl_pipeline *pipeline, sl_trace **out)
{
    SL__NEED(pipeline, out);
    reader own = {0};
    sl_trace *trace = NULL;
    bool first = sl_comm_rank(pipeline->comm) == 0;
    if (!pipeline->latest)
        return sl_fail(SL_EINVAL, "there was no step, or it has failed: there "
                                  "is nothing to trace");
    sl_status status = read_events(pipeline, &own);
    if (!status && first)
        status = sl__alloc(1, sizeof *trace, &trace);
    if (!status)
        status =
            first ? gather(pipeline, &own, trace) : send_events(pipeline, &own);
    free(own.posts);
    free(own.events);
    if (status) {
        sl_trace_destroy(trace);
        return sl__abort_pipeline(pipeline, status);
    }
    *out = trace;
    return SL_OK;
}

void sl_trace_destroy(sl_trace *trace)
{
    if (!trace)
        return;
    for (int r = 0; r < trace->rank_count; r++)
        free(trace->ranks[r].events);
    free(trace->ranks);
    sl_schedule_destroy(trace->plan);
    free(trace);
}

/* -------------------------------------------------------------- reading -- */

const char *sl_event_kind_text(sl_event_kind kind)
{
    static const char *const texts[SL_EVENT_KINDS] = {
        "compute", "state", "send", "receive", "wait",
        "copy",    "pack",  "ties", "end",     "data"};
    return kind >= 0 && kind < SL_EVENT_KINDS ? texts[kind] : "";
}

int sl_trace_ranks(const sl_trace *trace)
{
    return trace ? trace->rank_count : 0;
}

const sl_event *sl_trace_events(const sl_trace *trace, int rank, size_t *count)
{
    bool there = trace && rank >= 0 && rank < trace->rank_count;
    if (count)
        *count = there ? trace->ranks[rank].count : 0;
    return there ? trace->ranks[rank].events : NULL;
}

const sl_schedule *sl_trace_plan(const sl_trace *trace)
{
    return trace ? trace->plan : NULL;
}

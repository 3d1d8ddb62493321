/* SPDX-License-Identifier: MIT
 *
 * A measured run as a Chrome/Perfetto trace: a process per rank, with a track
 * of what the rank did, as many tracks of messages as were in transit at once,
 * and an arrow per message. */
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "sluice/view.h"
#include "view/chrome.h"

/* Microseconds of the trace per second. */
#define UNIT 1e6

typedef struct tracer {
    sl__chrome chrome;
    double zero_s; /* the earliest time: viewers drop negative times */
} tracer;

static void put_time(tracer *trace, double seconds)
{
    sl__printf(&trace->chrome.writer, ", \"ts\": %.3f",
               (seconds - trace->zero_s) * UNIT);
}

static bool is_message(sl_event_kind kind)
{
    return kind == SL_EVENT_SEND || kind == SL_EVENT_RECV;
}

static void put_slice(tracer *trace, const sl_event *event, int rank, int track)
{
    char action[SL_ACTION_TEXT_MAX];
    const char *kind = sl_event_kind_text(event->kind);
    sl_action_print(&event->action, action);
    bool own = event->kind == SL_EVENT_COMPUTE || is_message(event->kind) ||
               event->kind == SL_EVENT_STATE ||
               sl_action_kind_family(event->action.kind) == SL_FAMILY_WAIT;
    sl__chrome_open(&trace->chrome, "X", rank, track);
    sl__printf(&trace->chrome.writer, ", \"name\": \"%s%s%s\", \"cat\": \"%s\"",
               own ? "" : kind, own || !*action ? "" : " ", action, kind);
    put_time(trace, event->start_s);
    sl__printf(&trace->chrome.writer, ", \"dur\": %.3f",
               (event->end_s - event->start_s) * UNIT);
    sl__printf(&trace->chrome.writer, ", \"args\": {\"action\": \"%s\"",
               action);
    if (event->peer >= 0)
        sl__printf(&trace->chrome.writer, ", \"peer\": %d, \"peer_stage\": %d",
                   event->peer, event->peer_stage);
    if (event->edge >= 0)
        sl__printf(&trace->chrome.writer, ", \"edge\": %d", event->edge);
    if (event->bytes)
        sl__printf(&trace->chrome.writer, ", \"bytes\": %lld",
                   (long long)event->bytes);
    sl__puts(&trace->chrome.writer, "}}");
}

/* Writes one end of a message's arrow, which goes from its post to its arrival,
 * just before the end of the receive. Both ends have the same id, made of
 * ranks, edge, direction and microbatch. */
static void put_arrow(tracer *trace, const sl_event *event, int rank, int track)
{
    bool sends = event->kind == SL_EVENT_SEND;
    bool forward =
        event->action.kind == SL_SEND_F || event->action.kind == SL_RECV_F;
    int from = sends ? rank : event->peer, to = sends ? event->peer : rank;
    sl__chrome_open(&trace->chrome, sends ? "s" : "f", rank, track);
    sl__printf(&trace->chrome.writer,
               ", \"name\": \"message\", \"cat\": \"message\", \"id\": "
               "\"%d-%d.%d%c%d\"%s",
               from, to, event->edge, forward ? 'F' : 'B',
               event->action.microbatch, sends ? "" : ", \"bp\": \"e\"");
    put_time(trace, sends ? event->start_s : event->end_s - 1e-9);
    sl__putc(&trace->chrome.writer, '}');
}

static void put_rank(tracer *trace, const sl_trace *run, int rank)
{
    size_t count;
    const sl_event *events = sl_trace_events(run, rank, &count);
    sl__chrome_begin_rank(&trace->chrome, rank, "rank");
    for (size_t i = 0; i < count && !trace->chrome.writer.status; i++) {
        if (!is_message(events[i].kind)) {
            put_slice(trace, &events[i], rank, 0);
            continue;
        }
        int track =
            sl__chrome_lane(&trace->chrome, events[i].start_s, events[i].end_s);
        put_slice(trace, &events[i], rank, track);
        if (events[i].edge >= 0)
            put_arrow(trace, &events[i], rank, track);
    }
    sl__chrome_end_rank(&trace->chrome, rank, "messages");
}

static void put_summary(tracer *trace, const sl_trace *run,
                        const sl_trace_summary *all)
{
    sl__writer *writer = &trace->chrome.writer;
    sl__printf(writer,
               "\"sluice\": {\"version\": 1, \"ranks\": %d, \"planned_s\": "
               "%.9f, \"measured_s\": %.9f, \"bubble_planned\": %.6f, "
               "\"bubble_measured\": %.6f, \"bytes\": [",
               sl_trace_ranks(run), all->planned_s, all->measured_s,
               all->bubble_planned, all->bubble_measured);
    for (int r = 0; r < sl_trace_ranks(run); r++) {
        sl_rank_summary rank = sl_trace_rank(run, r);
        sl__printf(writer,
                   "%s{\"planned\": %lld, \"measured\": %lld, \"slabs\": "
                   "%lld}",
                   r ? ", " : "", (long long)rank.bytes.planned,
                   (long long)rank.bytes.measured,
                   (long long)rank.bytes.activations);
    }
    sl__puts(writer, "]}");
}

sl_status sl_view_write_run(const sl_trace *run, sl_write_fn write,
                            void *context)
{
    SL__NEED(run, write);
    sl_trace_summary all;
    tracer *trace;
    SL__TRY(sl_trace_summarize(run, &all));
    SL__TRY(sl__alloc(1, sizeof *trace, &trace));
    for (int r = 0; r < sl_trace_ranks(run); r++) {
        size_t count;
        const sl_event *events = sl_trace_events(run, r, &count);
        for (size_t i = 0; i < count; i++) {
            if (events[i].start_s < trace->zero_s)
                trace->zero_s = events[i].start_s;
        }
    }
    sl__writer_start(&trace->chrome.writer, write, context);
    sl__puts(&trace->chrome.writer, "{\"displayTimeUnit\": \"ms\", ");
    put_summary(trace, run, &all);
    sl__puts(&trace->chrome.writer, ",\n\"traceEvents\": [");
    for (int r = 0; r < sl_trace_ranks(run) && !trace->chrome.writer.status;
         r++)
        put_rank(trace, run, r);
    sl__puts(&trace->chrome.writer, "\n]}\n");
    sl_status status = sl__writer_finish(&trace->chrome.writer);
    free(trace->chrome.lanes);
    free(trace);
    return status;
}

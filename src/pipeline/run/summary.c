/* SPDX-License-Identifier: MIT
 *
 * Time and memory of a run, planned and measured. The planned time is that of a
 * simulation of the schedule with the mean measured cost of each stage's
 * programs, and messages that cost nothing: the rest of the measured time went
 * into messages, waking up and uneven costs. */
#include "pipeline/run/trace.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "base/writer.h"
#include "schedule/mean_costs.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- ranks -- */

sl_rank_summary sl_trace_rank(const sl_trace *trace, int rank)
{
    sl_rank_summary out = {0};
    if (!trace || rank < 0 || rank >= trace->rank_count)
        return out;
    const sl__rank_trace *own = &trace->ranks[rank];
    out.bytes = own->bytes;
    out.helped_s = own->helped_s;
    for (size_t i = 0; i < own->count; i++) {
        const sl_event *event = &own->events[i];
        double took = event->end_s - event->start_s;
        switch (event->kind) {
        case SL_EVENT_COMPUTE: out.busy_s += took; break;
        case SL_EVENT_WAIT:
            /* Waits before the first compute of any rank do not count. */
            if (event->end_s > 0)
                out.waited_s += event->end_s - fmax(event->start_s, 0);
            break;
        case SL_EVENT_SEND:
            out.sent_bytes += event->bytes;
            out.sent += event->edge >= 0;
            break;
        default: break;
        }
    }
    return out;
}

/* ------------------------------------------------------------- planning -- */

static sl_status measure_costs(const sl_trace *trace, sl_costs *out)
{
    sl__means *means = NULL;
    SL__TRY(sl__means_create(sl_schedule_extent(trace->plan).stages, &means));
    for (int r = 0; r < trace->rank_count; r++) {
        for (size_t i = 0; i < trace->ranks[r].count; i++) {
            const sl_event *event = &trace->ranks[r].events[i];
            if (event->kind == SL_EVENT_COMPUTE)
                sl__means_add(means, &event->action,
                              event->end_s - event->start_s, event->bytes);
        }
    }
    sl_status status = sl__means_costs(means, out);
    sl__means_destroy(means);
    return status;
}

static void measure_bubble(const sl_trace *trace, sl_trace_summary *out)
{
    double busy = 0, end = 0, helped = 0;
    for (int r = 0; r < trace->rank_count; r++) {
        for (size_t i = 0; i < trace->ranks[r].count; i++) {
            const sl_event *event = &trace->ranks[r].events[i];
            if (event->kind != SL_EVENT_COMPUTE)
                continue;
            busy += event->end_s - event->start_s;
            end = event->end_s > end ? event->end_s : end;
        }
    }
    for (int r = 0; r < trace->rank_count; r++)
        helped += trace->ranks[r].helped_s;
    out->measured_s = end;
    out->bubble_measured = end > 0 ? 1 - busy / (trace->rank_count * end) : 0;
    out->helped = end > 0 ? helped / (trace->rank_count * end) : 0;
}

sl_status sl_trace_simulate(const sl_trace *trace, sl_costs *out_costs,
                            sl_simulation **out)
{
    SL__NEED(trace, out);
    sl_costs costs;
    sl_simulation *simulation = NULL;
    SL__TRY(measure_costs(trace, &costs));
    sl_status status = sl_simulate(trace->plan, &costs, SL_ASYNC, &simulation);
    if (status) {
        sl_costs_clear(&costs);
        return status;
    }
    if (out_costs)
        *out_costs = costs;
    else
        sl_costs_clear(&costs);
    *out = simulation;
    return SL_OK;
}

sl_status sl_trace_summarize(const sl_trace *trace, sl_trace_summary *out)
{
    SL__NEED(trace, out);
    sl_simulation *simulation;
    sl_trace_summary all = {0};
    SL__TRY(sl_trace_simulate(trace, NULL, &simulation));
    measure_bubble(trace, &all);
    for (int r = 0; r < trace->rank_count; r++) {
        all.bytes_planned += trace->ranks[r].bytes.planned;
        all.bytes_measured += trace->ranks[r].bytes.measured;
    }
    all.planned_s = sl_simulation_makespan(simulation);
    all.bubble_planned = sl_simulation_bubble(simulation);
    sl_simulation_destroy(simulation);
    *out = all;
    return SL_OK;
}

/* ----------------------------------------------------------------- text -- */

sl_status sl_trace_write_summary(const sl_trace *trace, sl_write_fn write,
                                 void *context)
{
    SL__NEED(trace, write);
    sl__writer writer;
    sl_trace_summary all;
    sl_rank_bytes *bytes;
    SL__TRY(sl_trace_summarize(trace, &all));
    sl__writer_start(&writer, write, context);
    sl__printf(&writer,
               "             planned   measured\n"
               "time      %8.3f ms %8.3f ms\n"
               "bubble    %11.3f %11.3f\n"
               "memory    %8.1f MB %8.1f MB\n",
               all.planned_s * 1e3, all.measured_s * 1e3, all.bubble_planned,
               all.bubble_measured, (double)all.bytes_planned * 1e-6,
               (double)all.bytes_measured * 1e-6);
    sl__puts(&writer,
             "rank      busy    waited    helped  messages      sent\n");
    for (int r = 0; r < trace->rank_count; r++) {
        sl_rank_summary rank = sl_trace_rank(trace, r);
        sl__printf(&writer, "%4d %6.2f ms %6.2f ms %6.2f ms %9zu %6.2f MB\n", r,
                   rank.busy_s * 1e3, rank.waited_s * 1e3, rank.helped_s * 1e3,
                   rank.sent, (double)rank.sent_bytes * 1e-6);
    }
    SL__TRY(sl__writer_finish(&writer));
    SL__TRY(sl__alloc((size_t)trace->rank_count, sizeof *bytes, &bytes));
    for (int r = 0; r < trace->rank_count; r++)
        bytes[r] = trace->ranks[r].bytes;
    sl_status status =
        sl_rank_bytes_write(bytes, trace->rank_count, write, context);
    free(bytes);
    return status;
}

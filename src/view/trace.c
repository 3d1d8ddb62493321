/* SPDX-License-Identifier: MIT
 *
 * Writes a simulation as a Chrome/Perfetto trace: a process per rank, with a
 * track of compute, as many tracks of messages as were in transit at once, a
 * counter of activation bytes, and an arrow per message. Where messages are
 * implied, arrows join computes. */
#include "sluice/view.h"
#include "schedule/action.h"
#include "schedule/simulation.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "view/chrome.h"

#include <math.h>

/* Microseconds of the trace per unit of simulated time. */
#define UNIT 1000.0
/* The length of messages that cost nothing, so that they are visible and arrows
 * have something to start and end at. */
#define SHORTEST 1.0

/* Flags: which ends a message has, and which ends of its arrow are written. */
enum {
    HAS_SEND = 1,
    HAS_RECEIVE = 2,
    HAS_BOTH = 3,
    DREW_SEND = 4,
    DREW_RECEIVE = 8
};

typedef struct tracer {
    sl__chrome chrome;
    const sl_schedule *schedule;
    const sl_simulation *simulation;
    sl_extent extent;
    uint8_t *ends; /* by message: flags for its ends */
} tracer;

static const char *category(uint8_t kind)
{
    switch (kind) {
    case SL_FORWARD: return "forward";
    case SL_BACKWARD_INPUT: return "backward input";
    case SL_BACKWARD_WEIGHT: return "backward weight";
    case SL_BACKWARD: return "backward";
    case SL_OVERLAP_F_B: return "overlap";
    case SL_SEND_F:
    case SL_SEND_B: return "send";
    case SL_RECV_F:
    case SL_RECV_B: return "receive";
    case SL_WAIT_SEND_F:
    case SL_WAIT_SEND_B:
    case SL_WAIT_REDUCE_GRAD: return "wait";
    default: return "state";
    }
}

/* The number of a message, the same at both ends: by direction, sending stage
 * and microbatch. */
static size_t message_number(const tracer *trace, bool forward, int sender,
                             int microbatch)
{
    size_t at = (size_t)sender * (size_t)trace->extent.microbatches +
                (size_t)microbatch;
    return 2 * at + (forward ? 0 : 1);
}

static size_t comm_number(const tracer *trace, const sl_action *action)
{
    bool forward = action->kind == SL_SEND_F || action->kind == SL_RECV_F;
    int sender = action->stage;
    if (!sl__is_send(action->kind))
        sender += forward ? -1 : 1;
    if (sender < 0)
        sender = trace->extent.stages; /* No stage sends this. */
    return message_number(trace, forward, sender, action->microbatch);
}

/* ---------------------------------------------------------------- events -- */

static void put_time(tracer *trace, const char *key, double time)
{
    sl__printf(&trace->chrome.writer, ", \"%s\": ", key);
    sl__put_number(&trace->chrome.writer, time);
}

static void put_slice(tracer *trace, const sl_action *action, int rank,
                      size_t step, int track, double start, double length)
{
    char text[SL_ACTION_TEXT_MAX];
    sl_action_print(action, text);
    sl__chrome_open(&trace->chrome, "X", rank, track);
    sl__printf(&trace->chrome.writer, ", \"name\": \"%s\", \"cat\": \"%s\"",
               text, category(action->kind));
    put_time(trace, "ts", start);
    put_time(trace, "dur", length);
    sl__printf(&trace->chrome.writer, ", \"args\": {\"step\": %zu}}", step);
}

/* Writes one end of an arrow, once, and only for a message that has both
 * ends. */
static void put_arrow(tracer *trace, bool start, size_t number, int rank,
                      int track, double time)
{
    uint8_t drew = start ? DREW_SEND : DREW_RECEIVE;
    if ((trace->ends[number] & HAS_BOTH) != HAS_BOTH ||
        (trace->ends[number] & drew))
        return;
    trace->ends[number] |= drew;
    sl__chrome_open(&trace->chrome, start ? "s" : "f", rank, track);
    sl__printf(&trace->chrome.writer,
               ", \"name\": \"message\", \"cat\": \"message\", \"id\": %zu%s",
               number, start ? "" : ", \"bp\": \"e\"");
    put_time(trace, "ts", time);
    sl__putc(&trace->chrome.writer, '}');
}

static void put_bytes(tracer *trace, int rank, double time, int64_t bytes)
{
    sl__chrome_open(&trace->chrome, "C", rank, -1);
    sl__puts(&trace->chrome.writer, ", \"name\": \"activation bytes\"");
    put_time(trace, "ts", time);
    sl__puts(&trace->chrome.writer, ", \"args\": {\"bytes\": ");
    sl__put_integer(&trace->chrome.writer, bytes);
    sl__puts(&trace->chrome.writer, "}}");
}

/* --------------------------------------------------------------- compute -- */

/* Called for each implied message that a compute sends or receives. */
typedef void (*implied_fn)(tracer *trace, bool send, size_t number, int rank,
                           double start);

static void each_implied(tracer *trace, const sl_placement *placement,
                         const sl_action *action, int rank, double start,
                         implied_fn act)
{
    sl_action parts[2];
    int count = sl_action_parts(action, parts);
    for (int i = 0; i < count; i++) {
        bool forward = parts[i].kind == SL_FORWARD;
        int stage = parts[i].stage, microbatch = parts[i].microbatch;
        if (!forward && !sl__is_backward(parts[i].kind))
            continue;
        int target = stage + (forward ? 1 : -1);
        int source = stage + (forward ? -1 : 1);
        int target_rank = sl_placement_rank_of(placement, target);
        int source_rank = sl_placement_rank_of(placement, source);
        if (target_rank >= 0 && target_rank != rank)
            act(trace, true, message_number(trace, forward, stage, microbatch),
                rank, start);
        if (source_rank >= 0 && source_rank != rank)
            act(trace, false,
                message_number(trace, forward, source, microbatch), rank,
                start);
    }
}

static void draw_implied(tracer *trace, bool send, size_t number, int rank,
                         double start)
{
    put_arrow(trace, send, number, rank, 0, start);
}

static void note_implied(tracer *trace, bool send, size_t number, int rank,
                         double start)
{
    (void)rank;
    (void)start;
    trace->ends[number] |= send ? HAS_SEND : HAS_RECEIVE;
}

static void put_compute(tracer *trace, const sl_placement *placement, int rank,
                        size_t step)
{
    const sl_action *action = &sl_schedule_row(trace->schedule, rank)[step];
    sl_interval when = sl_simulation_action(trace->simulation, rank, step);
    double start = when.start * UNIT;
    double length = (when.end - when.start) * UNIT;
    /* An action that is not compute and takes no time would be hidden. */
    if (sl_action_kind_family(action->kind) != SL_FAMILY_COMPUTE && length == 0)
        return;
    put_slice(trace, action, rank, step, 0, start, length);
    if (!trace->extent.has_communication && placement)
        each_implied(trace, placement, action, rank, start, draw_implied);
    sl_held_bytes held = sl_simulation_bytes(trace->simulation, rank, step);
    put_bytes(trace, rank, start, held.during);
    if (held.after != held.during)
        put_bytes(trace, rank, when.end * UNIT, held.after);
}

/* --------------------------------------------------------- communication -- */

static void put_comm(tracer *trace, int rank, size_t step)
{
    const sl_action *action = &sl_schedule_row(trace->schedule, rank)[step];
    sl_interval when = sl_simulation_action(trace->simulation, rank, step);
    size_t number = comm_number(trace, action);
    double start = when.start * UNIT;
    double length = fmax((when.end - when.start) * UNIT, SHORTEST);
    int track = sl__chrome_lane(&trace->chrome, start, start + length);
    put_slice(trace, action, rank, step, track, start, length);
    put_arrow(trace, sl__is_send(action->kind), number, rank, track, start);
}

/* Writes a reduction with its wait elsewhere, which runs concurrently with
 * compute. */
static void put_reduction(tracer *trace, int rank, size_t step)
{
    const sl_action *action = &sl_schedule_row(trace->schedule, rank)[step];
    sl_interval when = sl_simulation_action(trace->simulation, rank, step);
    double start = when.start * UNIT, end = when.end * UNIT;
    if (end > start)
        put_slice(trace, action, rank, step,
                  sl__chrome_lane(&trace->chrome, start, end), start,
                  end - start);
}

/* ----------------------------------------------------------------- ranks -- */

static void put_rank(tracer *trace, const sl_placement *placement, int rank)
{
    sl__chrome_begin_rank(&trace->chrome, rank, "compute");
    for (size_t step = 0; step < sl_schedule_length(trace->schedule, rank);
         step++) {
        uint8_t kind = sl_schedule_row(trace->schedule, rank)[step].kind;
        sl_action_family family = sl_action_kind_family(kind);
        if (family == SL_FAMILY_COMM)
            put_comm(trace, rank, step);
        else if (kind == SL_REDUCE_GRAD && trace->extent.has_reduce_waits)
            put_reduction(trace, rank, step);
        else if (family != SL_FAMILY_NOTHING)
            put_compute(trace, placement, rank, step);
    }
    sl__chrome_end_rank(&trace->chrome, rank, "communication");
}

/* Finds which messages have both ends. */
static void note_ends(tracer *trace, const sl_placement *placement)
{
    for (int rank = 0; rank < trace->extent.ranks; rank++) {
        const sl_action *row = sl_schedule_row(trace->schedule, rank);
        for (size_t step = 0; step < sl_schedule_length(trace->schedule, rank);
             step++) {
            if (sl__is_communication(row[step].kind))
                trace->ends[comm_number(trace, &row[step])] |=
                    sl__is_send(row[step].kind) ? HAS_SEND : HAS_RECEIVE;
            else if (!trace->extent.has_communication && placement)
                each_implied(trace, placement, &row[step], rank, 0,
                             note_implied);
        }
    }
}

static void put_all(tracer *trace, const sl_placement *placement)
{
    note_ends(trace, placement);
    sl__puts(&trace->chrome.writer, "{\"displayTimeUnit\": \"ms\", "
                                    "\"traceEvents\": [");
    for (int rank = 0;
         rank < trace->extent.ranks && !trace->chrome.writer.status; rank++)
        put_rank(trace, placement, rank);
    sl__puts(&trace->chrome.writer, "\n]}\n");
}

static sl_status write_all(tracer *trace, sl_placement **placement,
                           sl_write_fn write, void *context)
{
    /* Two directions; one more stage, for ends that point outside the
     * pipeline. */
    size_t messages = 2 * ((size_t)trace->extent.stages + 1) *
                      (size_t)trace->extent.microbatches;
    SL__TRY(sl__alloc(messages, 1, &trace->ends));
    sl_status status = sl_placement_derive(trace->schedule, placement);
    if (status != SL_EUNSOUND) /* Without a placement there are no arrows. */
        SL__TRY(status);
    sl__writer_start(&trace->chrome.writer, write, context);
    put_all(trace, *placement);
    return sl__writer_finish(&trace->chrome.writer);
}

sl_status sl_view_write_trace(const sl_schedule *schedule,
                              const sl_simulation *simulation,
                              sl_write_fn write, void *context)
{
    SL__NEED(schedule, simulation, write);
    SL__TRY(sl__check_simulated(simulation, schedule));
    tracer trace = {.schedule = schedule,
                    .simulation = simulation,
                    .extent = sl_schedule_extent(schedule)};
    sl_placement *placement = NULL;
    sl_status status = write_all(&trace, &placement, write, context);
    free(trace.ends);
    free(trace.chrome.lanes);
    sl_placement_destroy(placement);
    return status;
}

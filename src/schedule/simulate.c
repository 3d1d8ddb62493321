/* SPDX-License-Identifier: MIT
 *
 * The simulator: a machine in which every rank runs its row in order. An action
 * starts when its rank is free and its inputs are complete; a rank that is
 * blocked is parked at the input that it waits for, and runs again once that is
 * complete. Costs change only when actions run, not which can run: so each rank
 * runs until it is blocked, and the start of an action is the maximum over all
 * that it waited for.
 *
 * simulate_messages.c runs sends and receives. */
#include "schedule/machine.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void sl__enqueue_rank(sl__machine *m, int rank)
{
    if (m->queued[rank])
        return;
    size_t ranks = (size_t)m->events->extent.ranks;
    assert(m->queue_count < ranks);
    m->queued[rank] = 1;
    m->queue[(m->queue_head + m->queue_count++) % ranks] = (uint16_t)rank;
}

/* Parks a rank until `node` is complete. It may be parked already, from an
 * earlier attempt to run the same action. */
static void park(sl__machine *m, uint32_t node, int rank)
{
    if (m->parked[rank])
        return;
    m->parked[rank] = 1;
    sl__waiters_park(&m->waiters, node, rank);
}

/* -------------------------------------------------------------- inputs -- */

/* When an input is available, and which node made it so. */
static sl__moment input_at(const sl__machine *m, const sl__input *input)
{
    const sl_simulation *result = m->result;
    sl__moment at = {result->end[input->node], input->node};
    /* The cause of a message is its send. */
    if (sl__is_communication(sl__action_at(m->events, input->node)->kind) &&
        m->cause[input->node] == sl__peer(m->events, input->node))
        at.cause = m->cause[input->node];
    if (input->edge >= 0)
        at.time += sl__message_cost(m->costs, input->edge);
    return at;
}

bool sl__inputs_ready(sl__machine *m, uint32_t node, sl__moment *ready)
{
    sl__input inputs[SL__MAX_INPUTS];
    int count = sl__inputs(m->events, node, inputs);
    for (int i = 0; i < count; i++) {
        uint32_t input = inputs[i].node;
        if (input == SL__NOWHERE)
            return false;
        if (m->state[input] != SL__COMPLETE) {
            park(m, input, m->events->rank_of[node]);
            return false;
        }
        sl__moment at = input_at(m, &inputs[i]);
        sl__later(ready, at.time, at.cause);
    }
    return true;
}

/* ------------------------------------------------------------- compute -- */

static void hold_bytes(sl__machine *m, int rank, uint32_t node)
{
    sl_action parts[2];
    int count = sl_action_parts(sl__action_at(m->events, node), parts);
    for (int i = 0; i < count; i++) {
        const sl_stage_cost *cost = sl__stage_cost(m->costs, parts[i].stage);
        bool forward = parts[i].kind == SL_FORWARD;
        if (forward)
            m->held[rank] += cost->activation_bytes;
        else if (parts[i].kind == SL_BACKWARD_INPUT)
            m->held[rank] += cost->handed_bytes;
        m->in_flight[rank] += forward;
    }
    m->result->bytes[node].during = m->held[rank];
    if (m->held[rank] > m->result->peak[rank])
        m->result->peak[rank] = m->held[rank];
    if (m->in_flight[rank] > m->result->slots[rank])
        m->result->slots[rank] = m->in_flight[rank];
}

/* Whether this is the last action that needs what F of the microbatch saved. A
 * W after a B is tolerated, and is not. */
static bool ends_microbatch(const sl__machine *m, const sl_action *part)
{
    if (part->kind == SL_FORWARD)
        return !m->events->extent.has_backward;
    if (part->kind == SL_BACKWARD_WEIGHT)
        return sl__event_of(m->events, SL_BACKWARD, part->stage,
                            part->microbatch) == SL__NOWHERE;
    return part->kind == SL_BACKWARD;
}

static void give_back_bytes(sl__machine *m, int rank, uint32_t node)
{
    sl_action parts[2];
    int count = sl_action_parts(sl__action_at(m->events, node), parts);
    for (int i = 0; i < count; i++) {
        const sl_stage_cost *cost = sl__stage_cost(m->costs, parts[i].stage);
        int64_t all = cost->activation_bytes, early = cost->input_freed_bytes;
        int64_t handed = cost->handed_bytes;
        bool ends = ends_microbatch(m, &parts[i]);
        switch (parts[i].kind) {
        case SL_FORWARD:
        case SL_BACKWARD: m->held[rank] -= ends ? all : 0; break;
        case SL_BACKWARD_INPUT: m->held[rank] -= early; break;
        case SL_BACKWARD_WEIGHT:
            m->held[rank] -= ends ? all - early + handed : 0;
            break;
        default: break;
        }
        m->in_flight[rank] -= ends;
    }
    /* A repeated action would free its bytes twice. */
    if (m->held[rank] < 0)
        m->held[rank] = 0;
    if (m->in_flight[rank] < 0)
        m->in_flight[rank] = 0;
    m->result->bytes[node].after = m->held[rank];
}

void sl__finish_node(sl__machine *m, uint32_t node, sl__moment start,
                     double end)
{
    assert(m->state[node] != SL__COMPLETE && end >= start.time);
    m->result->start[node] = start.time;
    m->result->end[node] = end;
    m->cause[node] = start.cause;
    m->state[node] = SL__COMPLETE;
    if (end > m->result->makespan)
        m->result->makespan = end;
    for (int rank; (rank = sl__waiters_take(&m->waiters, node)) >= 0;) {
        m->parked[rank] = 0;
        sl__enqueue_rank(m, rank);
    }
}

/* Whether an action does not occupy its rank: a reduction that has its wait
 * elsewhere. */
static bool runs_beside(const sl__machine *m, uint32_t node)
{
    return m->events->extent.has_reduce_waits &&
           sl__action_at(m->events, node)->kind == SL_REDUCE_GRAD;
}

static bool run_compute(sl__machine *m, int rank, uint32_t node)
{
    sl__moment start = m->free_at[rank];
    if (!sl__inputs_ready(m, node, &start))
        return false;
    double cost = sl__action_cost(m->costs, sl__action_at(m->events, node));
    hold_bytes(m, rank, node);
    sl__finish_node(m, node, start, start.time + cost);
    give_back_bytes(m, rank, node);
    if (runs_beside(m, node))
        return true;
    m->result->busy[rank] += cost;
    /* An action that takes no time does not become the cause of its
     * successors. */
    sl__later(&m->free_at[rank], start.time + cost, node);
    return true;
}

/* ----------------------------------------------------------- the machine -- */

void sl__keep_bytes(sl__machine *m, int rank, uint32_t node)
{
    m->result->bytes[node] = (sl_held_bytes){m->held[rank], m->held[rank]};
}

static bool run_node(sl__machine *m, int rank, uint32_t node)
{
    const sl_action *action = sl__action_at(m->events, node);
    if (action->kind == SL_IDLE) {
        double now = m->free_at[rank].time;
        m->result->start[node] = m->result->end[node] = now;
        sl__keep_bytes(m, rank, node);
        return true;
    }
    if (!sl__is_communication(action->kind))
        return run_compute(m, rank, node);
    return sl__run_message(m, rank, node);
}

static void run_rank(sl__machine *m, int rank)
{
    uint32_t end = m->events->first[rank + 1];
    while (m->at[rank] < end && run_node(m, rank, m->at[rank]))
        m->at[rank]++;
}

static void run(sl__machine *m)
{
    int ranks = m->events->extent.ranks;
    for (int rank = 0; rank < ranks; rank++) {
        m->at[rank] = m->events->first[rank];
        m->free_at[rank] = (sl__moment){0, SL__NOWHERE};
    }
    for (int rank = 0; rank < ranks; rank++)
        sl__enqueue_rank(m, rank);
    while (m->queue_count) {
        int rank = m->queue[m->queue_head];
        m->queue_head = (m->queue_head + 1) % (size_t)ranks;
        m->queue_count--;
        m->queued[rank] = 0;
        run_rank(m, rank);
    }
}

/* The first message of a rank that never completed, or the end of its row. */
static uint32_t first_posted(const sl__machine *m, int rank)
{
    uint32_t node = m->events->first[rank];
    while (node < m->events->first[rank + 1] && m->state[node] != SL__POSTED)
        node++;
    return node;
}

/* Fails with a sentence that names a few of the ranks that are stuck, and
 * where. */
static sl_status report_stuck(const sl__machine *m)
{
    char text[700];
    size_t used = 0;
    int stuck = 0;
    for (int rank = 0; rank < m->events->extent.ranks; rank++) {
        uint32_t end = m->events->first[rank + 1];
        uint32_t node = m->at[rank];
        if (node == end && sl__completes_in_order(m->result->reading))
            node = first_posted(m, rank);
        if (node == end)
            continue;
        if (++stuck > 6)
            continue;
        char action[SL_ACTION_TEXT_MAX];
        sl_action_print(sl__action_at(m->events, node), action);
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%srank %d at step %u (%s)",
            stuck > 1 ? ", " : "", rank, sl__step_of(m->events, node), action);
    }
    if (stuck == 0)
        return SL_OK;
    if (stuck > 6)
        snprintf(text + used, sizeof text - used, " and %d more ranks",
                 stuck - 6);
    return sl_fail(SL_EUNSOUND,
                   "the schedule deadlocks under %s communication: stuck are "
                   "%s; `sluice check` shows who waits for whom",
                   sl_reading_text(m->result->reading), text);
}

/* Follows the causes back from the action that ended last. */
static sl_status trace_path(sl__machine *m)
{
    sl_simulation *result = m->result;
    uint32_t last = SL__NOWHERE;
    for (uint32_t node = 0; node < m->events->nodes; node++) {
        if (m->state[node] == SL__COMPLETE && result->end[node] > 0 &&
            (last == SL__NOWHERE || result->end[node] > result->end[last]))
            last = node;
    }
    /* Where a receive ends last, the path goes through its send. */
    if (last != SL__NOWHERE &&
        sl__is_communication(sl__action_at(m->events, last)->kind) &&
        m->cause[last] == sl__peer(m->events, last) &&
        m->cause[last] != SL__NOWHERE)
        last = m->cause[last];
    size_t count = 0;
    for (uint32_t node = last; node != SL__NOWHERE; node = m->cause[node])
        count++;
    SL__TRY(SL__TAKE(&result->memory, count, &result->path));
    result->path_count = count;
    for (uint32_t node = last; node != SL__NOWHERE; node = m->cause[node])
        result->path[--count] = (sl_place){m->events->rank_of[node],
                                           (int)sl__step_of(m->events, node)};
    return SL_OK;
}

static sl_status result_open(const sl__events *events, sl_simulation *result)
{
    size_t ranks = (size_t)events->extent.ranks, nodes = events->nodes;
    sl__arena *memory = &result->memory;
    SL__TRY(SL__TAKE(memory, ranks + 1, &result->first));
    SL__TRY(SL__TAKE(memory, nodes, &result->start));
    SL__TRY(SL__TAKE(memory, nodes, &result->end));
    SL__TRY(SL__TAKE(memory, nodes, &result->bytes));
    SL__TRY(SL__TAKE(memory, ranks, &result->busy));
    SL__TRY(SL__TAKE(memory, ranks, &result->peak));
    SL__TRY(SL__TAKE(memory, ranks, &result->slots));
    memcpy(result->first, events->first, (ranks + 1) * sizeof *result->first);
    result->ranks = events->extent.ranks;
    return SL_OK;
}

static sl_status machine_open(sl__machine *m)
{
    size_t ranks = (size_t)m->events->extent.ranks, nodes = m->events->nodes;
    SL__TRY(SL__TAKE(&m->memory, nodes, &m->state));
    SL__TRY(SL__TAKE(&m->memory, nodes, &m->cause));
    SL__TRY(SL__TAKE(&m->memory, ranks, &m->at));
    SL__TRY(SL__TAKE(&m->memory, ranks, &m->free_at));
    SL__TRY(SL__TAKE(&m->memory, ranks, &m->held));
    SL__TRY(SL__TAKE(&m->memory, ranks, &m->in_flight));
    SL__TRY(SL__TAKE(&m->memory, ranks, &m->queue));
    SL__TRY(SL__TAKE(&m->memory, ranks, &m->queued));
    SL__TRY(SL__TAKE(&m->memory, ranks, &m->parked));
    SL__TRY(sl__waiters_open(&m->waiters, nodes, m->events->extent.ranks,
                             &m->memory));
    return sl__order_messages(m);
}

static sl_status simulate_into(sl__machine *m)
{
    SL__TRY(sl__costs_check(m->costs, &m->events->extent));
    SL__TRY(result_open(m->events, m->result));
    SL__TRY(machine_open(m));
    run(m);
    SL__TRY(report_stuck(m));
    return trace_path(m);
}

static sl_status simulate(const sl__events *events, const sl_costs *costs,
                          sl_reading reading, sl_simulation **out)
{
    sl_simulation *result;
    SL__TRY(sl__alloc(1, sizeof *result, &result));
    result->reading = reading;
    sl__machine m = {.events = events, .costs = costs, .result = result};
    sl_status status = simulate_into(&m);
    sl__arena_clear(&m.memory);
    if (status)
        sl_simulation_destroy(result);
    else
        *out = result;
    return status;
}

sl_status sl_simulate(const sl_schedule *schedule, const sl_costs *costs,
                      sl_reading reading, sl_simulation **out)
{
    SL__NEED(schedule, out);
    static const sl_costs defaults = SL_COSTS_INIT;
    sl__events events;
    if ((unsigned)reading >= SL_READINGS)
        return sl_fail(SL_EINVAL, "unknown reading of communication: %d",
                       (int)reading);
    SL__TRY(sl__events_open(schedule, &events));
    sl_status status =
        simulate(&events, costs ? costs : &defaults, reading, out);
    sl__events_close(&events);
    return status;
}

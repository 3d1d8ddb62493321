/* SPDX-License-Identifier: MIT
 *
 * Makes the timeline of a simulation: every action of the schedule is a block,
 * and every message, explicit or implied, is a message of the timeline. */
#include "view/timeline.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "schedule/action.h"
#include "schedule/simulation.h"

#include <assert.h>
#include <math.h>

typedef struct maker {
    const sl_schedule *schedule;
    const sl_costs *costs;
    const sl_simulation *simulation;
    sl_placement *placement; /* NULL: a stage is on no rank or on two */
    sl_extent extent;
    sl_timeline *timeline;
    int **blocks; /* by rank and step: its index among blocks; of a message,
                     ~ its index */
} maker;

static sl_edge_cost edge_between(const sl_costs *costs, int a, int b)
{
    int edge = a < b ? a : b;
    if (costs->edges && edge >= 0 && (size_t)edge < costs->edge_count)
        return costs->edges[edge];
    return costs->edge;
}

static double message_time(const sl_edge_cost *edge)
{
    return edge->latency +
           (edge->bandwidth > 0 ? (double)edge->bytes / edge->bandwidth : 0);
}

/* ------------------------------------------------------------- messages -- */

static sl_status add_message(maker *own, bool forward, int stage, int rank,
                             int microbatch, double sent, double arrived)
{
    int target = stage + (forward ? 1 : -1);
    int to = own->placement && target >= 0
                 ? sl_placement_rank_of(own->placement, target)
                 : -1;
    if (to < 0 || to == rank)
        return SL_OK;
    const sl__transfer message = {
        .forward = forward,
        .from_rank = rank,
        .to_rank = to,
        .from_stage = stage,
        .to_stage = target,
        .microbatch = microbatch,
        .edge = -1,
        .sent = sent,
        .arrived = arrived,
        .bytes = edge_between(own->costs, stage, target).bytes};
    return sl__messages_add(own->timeline, &message);
}

/* Adds the messages that a compute sends, where messages are implied. */
static sl_status add_implied(maker *own, const sl_action *action, int rank,
                             double end)
{
    sl_action parts[2];
    int count = sl_action_parts(action, parts);
    for (int i = 0; i < count; i++) {
        bool forward = parts[i].kind == SL_FORWARD;
        if (!forward && !sl__is_backward(parts[i].kind))
            continue;
        sl_edge_cost edge = edge_between(own->costs, parts[i].stage,
                                         parts[i].stage + (forward ? 1 : -1));
        SL__TRY(add_message(own, forward, parts[i].stage, rank,
                            parts[i].microbatch, end,
                            end + message_time(&edge)));
    }
    return SL_OK;
}

/* --------------------------------------------------------------- blocks -- */

static void set_peer(const maker *own, sl__block *block)
{
    const sl_action *action = &block->action;
    bool forward = action->kind == SL_SEND_F || action->kind == SL_RECV_F;
    bool up = forward == sl__is_send(action->kind);
    block->peer_stage = action->stage + (up ? 1 : -1);
    if (block->peer_stage < 0 || !own->placement)
        return;
    block->peer = sl_placement_rank_of(own->placement, block->peer_stage);
    block->bytes =
        edge_between(own->costs, action->stage, block->peer_stage).bytes;
}

/* Whether an action runs while the rank does something else: messages, and
 * reductions that have their wait elsewhere. */
static bool runs_beside(const maker *own, const sl_action *action)
{
    return sl__is_communication(action->kind) ||
           (action->kind == SL_REDUCE_GRAD && own->extent.has_reduce_waits);
}

static sl_status add_action(maker *own, int rank, size_t step)
{
    const sl_action *action = &sl_schedule_row(own->schedule, rank)[step];
    sl__track *track = &own->timeline->tracks[rank];
    bool comm = runs_beside(own, action);
    sl__blocks *blocks = comm ? &track->comms : &track->blocks;
    sl_interval when = sl_simulation_action(own->simulation, rank, step);
    sl__block *block;
    SL__TRY(sl__blocks_add(blocks, &block));
    own->blocks[rank][step] =
        comm ? ~(int)(blocks->count - 1) : (int)blocks->count - 1;
    block->action = *action;
    block->kind = action->kind;
    block->start = when.start;
    block->end = when.end;
    if (!comm) {
        block->held = sl_simulation_bytes(own->simulation, rank, step);
        return own->extent.has_communication
                   ? SL_OK
                   : add_implied(own, action, rank, when.end);
    }
    if (sl__is_communication(action->kind))
        set_peer(own, block);
    if (!sl__is_send(action->kind))
        return SL_OK;
    return add_message(own, action->kind == SL_SEND_F, action->stage, rank,
                       action->microbatch, when.start, when.end);
}

static sl_status add_rank(maker *own, int rank)
{
    size_t length = sl_schedule_length(own->schedule, rank);
    SL__TRY(sl__alloc(length, sizeof *own->blocks[rank], &own->blocks[rank]));
    for (size_t step = 0; step < length; step++) {
        if (sl_schedule_row(own->schedule, rank)[step].kind != SL_IDLE)
            SL__TRY(add_action(own, rank, step));
    }
    return SL_OK;
}

static void mark_path(maker *own)
{
    size_t count;
    const sl_place *path = sl_simulation_critical_path(own->simulation, &count);
    for (size_t i = 0; i < count; i++) {
        sl__track *track = &own->timeline->tracks[path[i].rank];
        int at = own->blocks[path[i].rank][path[i].step];
        assert((size_t)(at < 0 ? ~at : at) <
               (at < 0 ? track->comms.count : track->blocks.count));
        if (at < 0)
            track->comms.data[~at].critical = true;
        else
            track->blocks.data[at].critical = true;
    }
}

/* ---------------------------------------------------------------- given -- */

static void widen(sl__range *range, double value, bool first)
{
    range->least = first ? value : fmin(range->least, value);
    range->most = first ? value : fmax(range->most, value);
}

static void note_stage(sl__given *given, const sl_stage_cost *cost, bool first)
{
    widen(&given->cost[SL_FORWARD], cost->forward, first);
    widen(&given->cost[SL_BACKWARD], cost->backward, first);
    widen(&given->cost[SL_BACKWARD_INPUT], cost->backward_input, first);
    widen(&given->cost[SL_BACKWARD_WEIGHT], cost->backward_weight, first);
    widen(&given->cost[SL_REDUCE_GRAD], cost->reduce_grad, first);
    widen(&given->activation_bytes, (double)cost->activation_bytes, first);
}

static void note_edge(sl__given *given, const sl_edge_cost *cost, bool first)
{
    widen(&given->message, message_time(cost), first);
    widen(&given->message_bytes, (double)cost->bytes, first);
}

/* Records the costs that were given, and whether their bytes are bytes: the
 * default of 1 per stage counts microbatches, and the default of 1 per message
 * means nothing. */
static void note_given(const maker *own)
{
    const sl_costs *costs = own->costs;
    sl_timeline *timeline = own->timeline;
    sl__given *given = &timeline->given;
    given->reading = sl_simulation_reading(own->simulation);
    given->overlap = costs->overlap;
    widen(&given->cost[SL_UNSHARD], costs->unshard, true);
    widen(&given->cost[SL_RESHARD], costs->reshard, true);
    note_stage(given, costs->stage_count ? &costs->stages[0] : &costs->stage,
               true);
    for (size_t i = 1; i < costs->stage_count; i++)
        note_stage(given, &costs->stages[i], false);
    note_edge(given, costs->edge_count ? &costs->edges[0] : &costs->edge, true);
    for (size_t i = 1; i < costs->edge_count; i++)
        note_edge(given, &costs->edges[i], false);
    timeline->microbatch_bytes =
        given->activation_bytes.least == 1 && given->activation_bytes.most == 1;
    timeline->sized =
        given->message_bytes.least != 1 || given->message_bytes.most != 1;
}

void sl_timeline_set_microbatch_bytes(sl_timeline *timeline, int64_t bytes)
{
    if (timeline)
        timeline->microbatch_bytes = bytes;
}

static sl_status make(maker *own)
{
    sl_status status = sl_placement_derive(own->schedule, &own->placement);
    if (status != SL_EUNSOUND) /* Without a placement there are no peers. */
        SL__TRY(status);
    SL__TRY(sl__alloc((size_t)own->extent.ranks, sizeof *own->blocks,
                      &own->blocks));
    for (int rank = 0; rank < own->extent.ranks; rank++)
        SL__TRY(add_rank(own, rank));
    mark_path(own);
    for (int rank = 0; rank < own->extent.ranks; rank++) {
        sl_rank_usage usage = sl_simulation_rank(own->simulation, rank);
        own->timeline->tracks[rank].planned_bytes = usage.peak_bytes;
    }
    note_given(own);
    own->timeline->makespan = sl_simulation_makespan(own->simulation);
    own->timeline->bubble = sl_simulation_bubble(own->simulation);
    return sl__timeline_finish(own->timeline);
}

sl_status sl_timeline_simulated(const char *title, const sl_schedule *schedule,
                                const sl_costs *costs,
                                const sl_simulation *simulation,
                                sl_timeline **out)
{
    SL__NEED(title, schedule, simulation, out);
    static const sl_costs usual = SL_COSTS_INIT;
    maker own = {.schedule = schedule,
                 .costs = costs ? costs : &usual,
                 .simulation = simulation,
                 .extent = sl_schedule_extent(schedule)};
    SL__TRY(sl__check_simulated(simulation, schedule));
    SL__TRY(sl__timeline_create(title, own.extent.ranks, &own.timeline));
    sl_status status = make(&own);
    for (int rank = 0; own.blocks && rank < own.extent.ranks; rank++)
        free(own.blocks[rank]);
    free(own.blocks);
    sl_placement_destroy(own.placement);
    if (status)
        sl_timeline_destroy(own.timeline);
    else
        *out = own.timeline;
    return status;
}

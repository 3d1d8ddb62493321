/* SPDX-License-Identifier: MIT
 *
 * Tables from (kind, stage, microbatch) to the node that does it, and what
 * every node waits for, which is looked up in them. */
#include "schedule/events.h"
#include "schedule/action.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

static const sl_action_kind tabled[] = {
    SL_FORWARD,     SL_BACKWARD_INPUT, SL_BACKWARD_WEIGHT, SL_BACKWARD,
    SL_SEND_F,      SL_RECV_F,         SL_SEND_B,          SL_RECV_B,
    SL_WAIT_SEND_F, SL_WAIT_SEND_B,
};
#define TABLED (sizeof tabled / sizeof *tabled)

static sl_status number_nodes(sl__events *events)
{
    const sl_schedule *schedule = events->schedule;
    if (events->extent.cells >= INT32_MAX)
        return sl_fail(SL_EINVAL, "the schedule has too many cells: %zu",
                       events->extent.cells);
    events->nodes = (uint32_t)events->extent.cells;
    SL__TRY(
        SL__TAKE(&events->memory, (size_t)schedule->ranks + 1, &events->first));
    SL__TRY(SL__TAKE(&events->memory, events->nodes, &events->rank_of));
    uint32_t node = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        events->first[rank] = node;
        for (size_t i = schedule->rows[rank].length; i > 0; i--)
            events->rank_of[node++] = (uint16_t)rank;
    }
    assert(node == events->nodes);
    events->first[schedule->ranks] = node;
    return SL_OK;
}

static sl_status cut_tables(sl__events *events)
{
    size_t size =
        (size_t)events->extent.stages * (size_t)events->extent.microbatches;
    size_t all = TABLED * size + (size_t)events->extent.stages;
    uint32_t *tables;
    SL__TRY(SL__TAKE(&events->memory, all, &tables));
    memset(tables, 0xff, all * sizeof *tables);
    for (size_t i = 0; i < TABLED; i++)
        events->table[tabled[i]] = tables + i * size;
    events->reduction = tables + TABLED * size;
    return SL_OK;
}

static size_t cell_of(const sl__events *events, int stage, int microbatch)
{
    return (size_t)stage * (size_t)events->extent.microbatches +
           (size_t)microbatch;
}

/* Keeps the first node of several. */
static void enter(uint32_t *entry, uint32_t node)
{
    if (*entry == SL__NOWHERE)
        *entry = node;
}

static void fill_tables(sl__events *events)
{
    for (uint32_t node = 0; node < events->nodes; node++) {
        sl_action parts[2];
        int count = sl_action_parts(sl__action_at(events, node), parts);
        for (int i = 0; i < count; i++) {
            uint32_t *table = events->table[parts[i].kind];
            if (parts[i].kind == SL_REDUCE_GRAD)
                enter(&events->reduction[parts[i].stage], node);
            else if (table)
                enter(&table[cell_of(events, parts[i].stage,
                                     parts[i].microbatch)],
                      node);
        }
    }
}

/* Counts a rank's actions by stage: all of them in the high bits, and in the
 * low bits, to break ties, those that compute. Marks the stages that the rank
 * computes. */
#define ONE_ACTION (UINT64_C(1) << 32)

static void count_rank(const sl__events *events, int rank, uint64_t *counts,
                       uint8_t *computed)
{
    const sl__row *row = &events->schedule->rows[rank];
    for (size_t step = 0; step < row->length; step++) {
        sl_action parts[2];
        int count = sl_action_parts(&row->actions[step], parts);
        for (int i = 0; i < count; i++) {
            bool computes =
                sl_action_kind_family(parts[i].kind) == SL_FAMILY_COMPUTE;
            counts[parts[i].stage] += ONE_ACTION + computes;
            computed[parts[i].stage] |= computes;
        }
    }
}

/* Makes the rank the home of stages of which it has more actions than any rank
 * before it, and sets the counts back to 0. */
static void claim_stages(sl__events *events, int rank, uint64_t *counts,
                         uint64_t *most)
{
    const sl__row *row = &events->schedule->rows[rank];
    for (size_t step = 0; step < row->length; step++) {
        sl_action parts[2];
        int count = sl_action_parts(&row->actions[step], parts);
        for (int i = 0; i < count; i++) {
            int stage = parts[i].stage;
            if (counts[stage] > most[stage]) {
                most[stage] = counts[stage];
                events->home[stage] = rank;
            }
            counts[stage] = 0;
        }
    }
}

/* The home of a stage is where most of its actions are, so that one stray
 * action does not move it. */
static sl_status place_stages(sl__events *events)
{
    size_t stages = (size_t)events->extent.stages;
    uint64_t *counts, *most;
    uint8_t *computed;
    SL__TRY(SL__TAKE(&events->memory, stages, &events->home));
    SL__TRY(SL__TAKE(&events->memory, stages, &counts));
    SL__TRY(SL__TAKE(&events->memory, stages, &most));
    SL__TRY(SL__TAKE(&events->memory, stages, &computed));
    for (int rank = 0; rank < events->extent.ranks; rank++) {
        count_rank(events, rank, counts, computed);
        claim_stages(events, rank, counts, most);
    }
    for (size_t stage = 0; stage < stages; stage++) {
        if (!computed[stage])
            events->home[stage] = -1;
    }
    return SL_OK;
}

static sl_status build(sl__events *events)
{
    SL__TRY(sl__check_density(&events->extent));
    SL__TRY(number_nodes(events));
    SL__TRY(cut_tables(events));
    fill_tables(events);
    return place_stages(events);
}

sl_status sl__events_open(const sl_schedule *schedule, sl__events *out)
{
    sl__events events = {.schedule = schedule,
                         .extent = sl_schedule_extent(schedule)};
    sl_status status = build(&events);
    if (status)
        sl__events_close(&events);
    else
        *out = events;
    return status;
}

void sl__events_close(sl__events *events)
{
    sl__arena_clear(&events->memory);
}

uint32_t sl__event_of(const sl__events *events, sl_action_kind kind, int stage,
                      int microbatch)
{
    if (stage < 0 || stage >= events->extent.stages)
        return SL__NOWHERE;
    assert(events->table[kind]);
    return events->table[kind][cell_of(events, stage, microbatch)];
}

uint32_t sl__backward_event(const sl__events *events, int stage, int microbatch)
{
    uint32_t node = sl__event_of(events, SL_BACKWARD, stage, microbatch);
    if (node != SL__NOWHERE)
        return node;
    return sl__event_of(events, SL_BACKWARD_INPUT, stage, microbatch);
}

/* The input through which `rank` gets a neighbouring stage's result over an
 * edge: the neighbour's compute where that is on the same rank or messages are
 * implied, else the receive. */
static sl__input arrival(const sl__events *events, int rank, int edge,
                         uint32_t producer, uint32_t receive)
{
    bool local = producer != SL__NOWHERE && events->rank_of[producer] == rank;
    if (local)
        return (sl__input){producer, -1};
    if (!events->extent.has_communication)
        return (sl__input){producer, edge};
    return (sl__input){receive, -1};
}

static sl__input forward_input(const sl__events *events, int rank,
                               const sl_action *part)
{
    int stage = part->stage, microbatch = part->microbatch;
    return arrival(events, rank, stage - 1,
                   sl__event_of(events, SL_FORWARD, stage - 1, microbatch),
                   sl__event_of(events, SL_RECV_F, stage, microbatch));
}

static sl__input backward_input(const sl__events *events, int rank,
                                const sl_action *part)
{
    int stage = part->stage, microbatch = part->microbatch;
    return arrival(events, rank, stage,
                   sl__backward_event(events, stage + 1, microbatch),
                   sl__event_of(events, SL_RECV_B, stage, microbatch));
}

/* The I, or where there is none the B, that a W follows: a W after a B is
 * tolerated. */
static uint32_t weight_input(const sl__events *events, const sl_action *part)
{
    uint32_t node =
        sl__event_of(events, SL_BACKWARD_INPUT, part->stage, part->microbatch);
    if (node != SL__NOWHERE)
        return node;
    return sl__event_of(events, SL_BACKWARD, part->stage, part->microbatch);
}

/* A send that is waited for is complete when its receive is. */
static int send_wait_inputs(const sl__events *events, const sl_action *part,
                            sl__input *inputs)
{
    uint32_t send = sl__event_of(events, sl__awaited_send(part->kind),
                                 part->stage, part->microbatch);
    inputs[0] = (sl__input){send, -1};
    if (send == SL__NOWHERE)
        return 1;
    inputs[1] = (sl__input){sl__peer(events, send), -1};
    return 2;
}

static int part_inputs(const sl__events *events, int rank,
                       const sl_action *part, sl__input *inputs)
{
    int stage = part->stage, microbatch = part->microbatch, count = 0;
    switch (part->kind) {
    case SL_FORWARD:
        if (stage > 0)
            inputs[count++] = forward_input(events, rank, part);
        break;
    case SL_BACKWARD:
    case SL_BACKWARD_INPUT:
        inputs[count++] = (sl__input){
            sl__event_of(events, SL_FORWARD, stage, microbatch), -1};
        if (stage + 1 < events->extent.stages)
            inputs[count++] = backward_input(events, rank, part);
        break;
    case SL_BACKWARD_WEIGHT:
        inputs[count++] = (sl__input){weight_input(events, part), -1};
        break;
    case SL_SEND_F:
        inputs[count++] = (sl__input){
            sl__event_of(events, SL_FORWARD, stage, microbatch), -1};
        break;
    case SL_SEND_B:
        inputs[count++] =
            (sl__input){sl__backward_event(events, stage, microbatch), -1};
        break;
    case SL_WAIT_SEND_F:
    case SL_WAIT_SEND_B: return send_wait_inputs(events, part, inputs);
    case SL_WAIT_REDUCE_GRAD:
        inputs[count++] = (sl__input){events->reduction[stage], -1};
        break;
    default: break;
    }
    return count;
}

int sl__inputs(const sl__events *events, uint32_t node,
               sl__input inputs[SL__MAX_INPUTS])
{
    sl_action parts[2];
    int count = sl_action_parts(sl__action_at(events, node), parts);
    int found = 0;
    for (int i = 0; i < count; i++)
        found += part_inputs(events, events->rank_of[node], &parts[i],
                             inputs + found);
    return found;
}

uint32_t sl__peer(const sl__events *events, uint32_t node)
{
    static const sl_action_kind other[SL_ACTION_KINDS] = {
        [SL_SEND_F] = SL_RECV_F,
        [SL_RECV_F] = SL_SEND_F,
        [SL_SEND_B] = SL_RECV_B,
        [SL_RECV_B] = SL_SEND_B,
    };
    const sl_action *action = sl__action_at(events, node);
    /* Of a repeated send or receive only the first has a peer. */
    if (sl__event_of(events, action->kind, action->stage, action->microbatch) !=
        node)
        return SL__NOWHERE;
    return sl__event_of(events, other[action->kind], sl__peer_stage(action),
                        action->microbatch);
}

/* A number for the direction and the peer of a message, as seen from its
 * rank. */
static size_t way_of(const sl__events *events, uint32_t node)
{
    uint32_t peer = sl__peer(events, node);
    bool is_send = sl__is_send(sl__action_at(events, node)->kind);
    size_t ranks = (size_t)events->extent.ranks;
    size_t other = peer == SL__NOWHERE ? ranks : events->rank_of[peer];
    return 2 * other + is_send;
}

sl_status sl__link_messages(const sl__events *events, sl_reading reading,
                            sl__arena *memory, uint32_t **out_before)
{
    size_t ways = 2 * ((size_t)events->extent.ranks + 1);
    uint32_t *before;
    uint32_t *latest; /* by way, on this rank; ordered: one for all */
    assert(sl__completes_in_order(reading));
    SL__TRY(SL__TAKE(memory, events->nodes, &before));
    SL__TRY(SL__TAKE(memory, ways, &latest));
    for (int rank = 0; rank < events->extent.ranks; rank++) {
        memset(latest, 0xff, ways * sizeof *latest);
        for (uint32_t node = events->first[rank];
             node < events->first[rank + 1]; node++) {
            before[node] = SL__NOWHERE;
            if (!sl__is_communication(sl__action_at(events, node)->kind))
                continue;
            size_t way = reading == SL_ORDERED ? 0 : way_of(events, node);
            before[node] = latest[way];
            latest[way] = node;
        }
    }
    *out_before = before;
    return SL_OK;
}

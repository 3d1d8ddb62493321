/* SPDX-License-Identifier: MIT
 *
 * What sends and receives do in the simulator's machine, by reading:
 *
 *   async     a send is on its way at once; a compute waits for the receive it
 *             uses; neither occupies the rank
 *   ordered   a rank's sends and receives form a lane; a message starts when
 *             both its ends are posted and at the front of their lanes
 *   blocking  a message starts when both ranks have come to it, and holds both
 *             until its end
 *
 * Written apart from deadlock.c on purpose: the two must agree, and tests hold
 * them to it. */
#include "schedule/machine.h"
#include "schedule/action.h"

static double comm_cost(const sl__machine *m, uint32_t node)
{
    const sl_action *action = sl__action_at(m->events, node);
    int other = sl__peer_stage(action);
    int edge = other < action->stage ? other : action->stage;
    if (edge < 0 || edge + 1 >= m->events->extent.stages)
        return 0;
    return sl__message_cost(m->costs, edge);
}

/* Completes a posted receive whose message was sent. It is shown while its
 * message is on the way; who waits for it waited for the sender, unless it was
 * posted later than the message came. */
static void settle_receive(sl__machine *m, uint32_t receive, uint32_t send)
{
    const sl_simulation *result = m->result;
    sl__moment start = {result->start[receive], m->cause[receive]};
    double end = start.time;
    if (result->end[send] > end) {
        end = result->end[send];
        sl__later(&start, result->start[send], start.cause);
        start.cause = send;
    }
    sl__finish_node(m, receive, start, end);
}

static bool run_async(sl__machine *m, int rank, uint32_t node)
{
    sl__moment now = m->free_at[rank];
    uint32_t peer = sl__peer(m->events, node);
    if (sl__is_send(sl__action_at(m->events, node)->kind)) {
        if (!sl__inputs_ready(m, node, &now))
            return false;
        sl__finish_node(m, node, now, now.time + comm_cost(m, node));
        if (peer != SL__NOWHERE && m->state[peer] == SL__POSTED)
            settle_receive(m, peer, node);
        return true;
    }
    m->result->start[node] = m->result->end[node] = now.time;
    m->cause[node] = now.cause;
    m->state[node] = SL__POSTED;
    if (peer != SL__NOWHERE && m->state[peer] == SL__COMPLETE)
        settle_receive(m, node, peer);
    return true;
}

uint32_t sl__next_message(const sl__machine *m, int rank, uint32_t node)
{
    while (node < m->events->first[rank + 1] &&
           !sl__is_communication(sl__action_at(m->events, node)->kind))
        node++;
    return node;
}

/* Completes the message at the front of a rank's lane if both its ends are
 * posted and in front; tells whether it did, and the other rank. */
static bool move_lane(sl__machine *m, int rank, int *out_other)
{
    uint32_t node = m->lane[rank];
    if (node == m->events->first[rank + 1] || m->state[node] != SL__POSTED)
        return false;
    uint32_t peer = sl__peer(m->events, node);
    if (peer == SL__NOWHERE || m->state[peer] != SL__POSTED)
        return false;
    int other = m->events->rank_of[peer];
    if (m->lane[other] != peer || other == rank)
        return false;
    uint32_t ends[2] = {node, peer};
    int ranks[2] = {rank, other};
    sl__moment start = {0, SL__NOWHERE};
    for (int i = 0; i < 2; i++) {
        sl__later(&start, m->result->start[ends[i]], m->cause[ends[i]]);
        sl__later(&start, m->lane_at[ranks[i]].time,
                  m->lane_at[ranks[i]].cause);
    }
    double end = start.time + comm_cost(m, node);
    for (int i = 0; i < 2; i++) {
        sl__finish_node(m, ends[i], start, end);
        m->lane_at[ranks[i]] = (sl__moment){end, ends[i]};
        m->lane[ranks[i]] = sl__next_message(m, ranks[i], ends[i] + 1);
    }
    *out_other = other;
    return true;
}

/* Moves lanes for as long as one completion lets another follow. Each of the
 * two ranks of a message may have a next one ready, so both are tried; the
 * second rank waits on the queue of ranks to look at. */
void sl__move_lanes(sl__machine *m, int rank)
{
    int other;
    while (move_lane(m, rank, &other))
        sl__look_at(m, other);
}

static bool run_ordered(sl__machine *m, int rank, uint32_t node)
{
    sl__moment now = m->free_at[rank];
    if (!sl__inputs_ready(m, node, &now))
        return false;
    m->result->start[node] = now.time;
    m->cause[node] = now.cause;
    m->state[node] = SL__POSTED;
    return true;
}

static bool run_blocking(sl__machine *m, int rank, uint32_t node)
{
    uint32_t peer = sl__peer(m->events, node);
    if (peer == SL__NOWHERE)
        return false;
    int other = m->events->rank_of[peer];
    if (other == rank || m->at[other] != peer)
        return false;
    sl__moment start = {0, SL__NOWHERE};
    sl__later(&start, m->free_at[rank].time, m->free_at[rank].cause);
    sl__later(&start, m->free_at[other].time, m->free_at[other].cause);
    if (!sl__inputs_ready(m, node, &start) ||
        !sl__inputs_ready(m, peer, &start))
        return false;
    double end = start.time + comm_cost(m, node);
    sl__finish_node(m, node, start, end);
    sl__finish_node(m, peer, start, end);
    sl__keep_bytes(m, other, peer);
    m->free_at[rank] = (sl__moment){end, node};
    m->free_at[other] = (sl__moment){end, peer};
    m->at[other]++;
    sl__look_at(m, other);
    return true;
}

bool sl__run_message(sl__machine *m, int rank, uint32_t node)
{
    sl__keep_bytes(m, rank, node);
    switch (m->result->reading) {
    case SL_ASYNC: return run_async(m, rank, node);
    case SL_ORDERED: return run_ordered(m, rank, node);
    default: return run_blocking(m, rank, node);
    }
}

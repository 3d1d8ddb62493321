/* SPDX-License-Identifier: MIT
 *
 * Sends and receives in the simulator's machine, by reading:
 *
 *   async     a send is on its way at once; a compute waits for the receive it
 *             uses; neither occupies the rank
 *   per-edge  what a rank sends to another forms a sequence, and what it
 *             receives from it; a message starts when both its ends are posted
 *             and those before them in their sequences are complete
 *   ordered   the same, with all that a rank sends and receives in one sequence
 *   blocking  a message starts when both ranks have come to it, and holds both
 *             until its end
 *
 * This shares no code with deadlock.c on purpose: tests require that the two
 * agree. */
#include "schedule/machine.h"
#include "schedule/action.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

static double comm_cost(const sl__machine *m, uint32_t node)
{
    const sl_action *action = sl__action_at(m->events, node);
    int other = sl__peer_stage(action);
    int edge = other < action->stage ? other : action->stage;
    if (edge < 0 || edge + 1 >= m->events->extent.stages)
        return 0;
    return sl__message_cost(m->costs, edge);
}

/* Completes a posted receive whose message was sent. Its interval is the
 * transit of the message. The cause of whatever waits for it is the send,
 * unless the receive was posted after the message arrived. */
static void finish_receive(sl__machine *m, uint32_t receive, uint32_t send)
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
            finish_receive(m, peer, node);
        return true;
    }
    m->result->start[node] = m->result->end[node] = now.time;
    m->cause[node] = now.cause;
    m->state[node] = SL__POSTED;
    if (peer != SL__NOWHERE && m->state[peer] == SL__COMPLETE)
        finish_receive(m, node, peer);
    return true;
}

/* --------------------------------------- messages that complete in order -- */

sl_status sl__order_messages(sl__machine *m)
{
    size_t nodes = m->events->nodes;
    if (!sl__completes_in_order(m->result->reading))
        return SL_OK;
    SL__TRY(SL__TAKE(&m->memory, nodes, &m->behind));
    SL__TRY(SL__TAKE(&m->memory, nodes, &m->next));
    SL__TRY(sl__link_messages(m->events, m->result->reading, &m->memory,
                              &m->before));
    memset(m->behind, 0xff, nodes * sizeof *m->behind);
    for (uint32_t node = 0; node < nodes; node++) {
        if (m->before[node] != SL__NOWHERE)
            m->behind[m->before[node]] = node;
    }
    return SL_OK;
}

static bool may_start(const sl__machine *m, uint32_t node)
{
    return m->state[node] == SL__POSTED &&
           (m->before[node] == SL__NOWHERE ||
            m->state[m->before[node]] == SL__COMPLETE);
}

/* Completes a message if both its ends may start. The next messages of both
 * sequences may then be able to start. */
static void move_message(sl__machine *m, uint32_t node)
{
    uint32_t peer = sl__peer(m->events, node);
    if (peer == SL__NOWHERE || !may_start(m, node) || !may_start(m, peer))
        return;
    const uint32_t ends[2] = {node, peer};
    sl__moment start = {0, SL__NOWHERE};
    for (int i = 0; i < 2; i++) {
        uint32_t before = m->before[ends[i]];
        sl__later(&start, m->result->start[ends[i]], m->cause[ends[i]]);
        if (before != SL__NOWHERE)
            sl__later(&start, m->result->end[before], before);
    }
    double end = start.time + comm_cost(m, node);
    for (int i = 0; i < 2; i++) {
        sl__finish_node(m, ends[i], start, end);
        if (m->behind[ends[i]] != SL__NOWHERE)
            m->next[m->next_count++] = m->behind[ends[i]];
    }
    assert(m->next_count <= m->events->nodes);
}

static bool run_in_order(sl__machine *m, int rank, uint32_t node)
{
    sl__moment now = m->free_at[rank];
    if (!sl__inputs_ready(m, node, &now))
        return false;
    m->result->start[node] = now.time;
    m->cause[node] = now.cause;
    m->state[node] = SL__POSTED;
    move_message(m, node);
    while (m->next_count)
        move_message(m, m->next[--m->next_count]);
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
    sl__enqueue_rank(m, other);
    return true;
}

bool sl__run_message(sl__machine *m, int rank, uint32_t node)
{
    sl__keep_bytes(m, rank, node);
    switch (m->result->reading) {
    case SL_ASYNC: return run_async(m, rank, node);
    case SL_PER_EDGE:
    case SL_ORDERED: return run_in_order(m, rank, node);
    default: return run_blocking(m, rank, node);
    }
}

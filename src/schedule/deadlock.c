/* SPDX-License-Identifier: MIT
 *
 * Deadlock as a cycle. A schedule fixes the order of actions on each rank and
 * of messages between them, so what waits for what is a fixed graph. The
 * schedule runs to its end exactly when that graph has no cycle, and no action
 * waits for one that no rank has.
 *
 * Each action has an event `passed` (its rank has moved beyond it) and each
 * message an event `complete`, numbered by its send, or by itself where it has
 * no peer. What they wait for:
 *
 *   passed     the action before it on the rank; its inputs (a receive among
 *              them, or the send of a WAIT_SEND: the message's `complete`);
 *              when blocking, a send's or receive's own `complete`
 *   complete   async     both ends posted
 *              per-edge  both ends posted, and for each of them the message
 *                        before it complete: on its rank, in its direction, to
 *                        or from the same rank
 *              ordered   the same with all messages of a rank in one sequence
 *              blocking  both ranks arrived, and the send's input
 *
 * A depth-first search along these edges finds a cycle when it reaches an event
 * that is on its stack: the cycle is the stack from that event up. */
#include "schedule/deadlock.h"
#include "schedule/action.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>

enum { UNSEEN, ON_STACK, DONE };

/* An edge out of an event. For an edge out of `complete`, `end` is the send or
 * receive through which it leaves. */
typedef struct edge {
    uint32_t to; /* an event, or SL__NOWHERE */
    uint32_t end;
} edge;
#define MAX_EDGES 12

typedef struct frame {
    uint32_t event;
    uint8_t edge; /* the one being followed */
} frame;

typedef struct search {
    const sl__events *events;
    sl_reading reading;
    sl__arena memory;
    uint8_t *color;        /* by event */
    uint32_t *before_comm; /* by node: the message to complete before it; NULL
                              where messages complete in any order */
    frame *stack;
    size_t depth;
    size_t capacity;
    sl_wait *waits; /* the deadlock that was found, if `wait_count` is not 0 */
    size_t wait_count;
} search;

static uint32_t passed(uint32_t node)
{
    return 2 * node;
}

static bool is_comm(const sl__events *events, uint32_t node)
{
    return sl__is_communication(sl__action_at(events, node)->kind);
}

static uint32_t complete(const sl__events *events, uint32_t comm)
{
    uint32_t peer = sl__peer(events, comm);
    bool names_it =
        sl__is_send(sl__action_at(events, comm)->kind) || peer == SL__NOWHERE;
    uint32_t name = names_it ? comm : peer;
    return 2 * name + 1;
}

/* The event that must have happened before `node` has this input. */
static uint32_t input_event(const search *find, uint32_t input)
{
    if (input == SL__NOWHERE)
        return SL__NOWHERE;
    return is_comm(find->events, input) ? complete(find->events, input)
                                        : passed(input);
}

static int edges_to_inputs(const search *find, uint32_t node, edge *edges)
{
    sl__input inputs[SL__MAX_INPUTS];
    int count = sl__inputs(find->events, node, inputs);
    for (int i = 0; i < count; i++)
        edges[i] = (edge){input_event(find, inputs[i].node), node};
    return count;
}

static int edges_to_before(const search *find, uint32_t node, edge *edges)
{
    if (sl__step_of(find->events, node) == 0)
        return 0;
    edges[0] = (edge){passed(node - 1), node};
    return 1;
}

static int edges_of_passed(const search *find, uint32_t node, edge *edges)
{
    int count = edges_to_before(find, node, edges);
    if (find->reading == SL_BLOCKING && is_comm(find->events, node)) {
        edges[count++] = (edge){complete(find->events, node), node};
        return count;
    }
    return count + edges_to_inputs(find, node, edges + count);
}

/* The edges of a message through one of its ends. */
static int edges_of_end(const search *find, uint32_t end, edge *edges)
{
    int count = 0;
    if (find->reading == SL_BLOCKING) {
        count += edges_to_before(find, end, edges);
        return count + edges_to_inputs(find, end, edges + count);
    }
    edges[count++] = (edge){passed(end), end};
    if (find->before_comm && find->before_comm[end] != SL__NOWHERE)
        edges[count++] =
            (edge){complete(find->events, find->before_comm[end]), end};
    return count;
}

static int edges_of_complete(const search *find, uint32_t node, edge *edges)
{
    uint32_t peer = sl__peer(find->events, node);
    int count = edges_of_end(find, node, edges);
    if (peer == SL__NOWHERE)
        edges[count++] = (edge){SL__NOWHERE, node};
    else
        count += edges_of_end(find, peer, edges + count);
    return count;
}

static int edges_of(const search *find, uint32_t event, edge *edges)
{
    return event % 2 == 0 ? edges_of_passed(find, event / 2, edges)
                          : edges_of_complete(find, event / 2, edges);
}

/* ------------------------------------------------ the deadlock as waits -- */

static void add_wait(search *find, uint32_t waiter, uint32_t on)
{
    const sl__events *events = find->events;
    sl_wait wait = {events->rank_of[waiter], (int)sl__step_of(events, waiter),
                    -1, -1};
    if (on != SL__NOWHERE) {
        wait.on_rank = events->rank_of[on];
        wait.on_step = (int)sl__step_of(events, on);
    }
    find->waits[find->wait_count++] = wait;
}

/* The same, but omits a wait for an earlier action of the same row: a rank
 * always runs its row in order. */
static void add_notable_wait(search *find, uint32_t waiter, uint32_t on)
{
    const uint16_t *rank_of = find->events->rank_of;
    if (rank_of[on] != rank_of[waiter] || on > waiter)
        add_wait(find, waiter, on);
}

/* Adds the wait of an edge out of `passed`. Where the edge leads to a message,
 * the next edge adds the wait. An action that waits for itself is an overlap
 * whose halves depend on each other. */
static void add_waits_of_passed(search *find, uint32_t node, uint32_t to)
{
    if (to == SL__NOWHERE || to == passed(node))
        add_wait(find, node, to == SL__NOWHERE ? to : node);
    else if (to % 2 == 0)
        add_notable_wait(find, node, to / 2);
}

/* Which action waits for a message that the edge `before` led to: where the
 * edge comes from a compute, that compute; where it comes from a later message,
 * the end of this message on the same rank. */
static uint32_t waiter_of(const sl__events *events, const edge *before,
                          uint32_t end)
{
    uint32_t peer = sl__peer(events, end);
    int rank = events->rank_of[before->end];
    if (!is_comm(events, before->end))
        return before->end;
    if (peer != SL__NOWHERE && events->rank_of[peer] == rank)
        return peer;
    return events->rank_of[end] == rank ? end : before->end;
}

/* Adds the waits of an edge out of `complete` through one of the message's
 * ends: the waiter waits for that end, and a send may wait for the result that
 * it sends. */
static void add_waits_of_complete(search *find, const edge *before,
                                  const edge *taken)
{
    uint32_t end = taken->end;
    if (taken->to == SL__NOWHERE) {
        add_wait(find, end, SL__NOWHERE);
        return;
    }
    add_notable_wait(find, waiter_of(find->events, before, end), end);
    if (taken->to % 2 == 0)
        add_notable_wait(find, end, taken->to / 2);
}

static edge taken_edge(const search *find, const frame *at)
{
    edge edges[MAX_EDGES];
    edges_of(find, at->event, edges);
    return edges[at->edge];
}

/* Writes the stack from `bottom` up as a list of waits: a cycle, or one wait
 * for an action that no rank has. Each is for an action on the rank that the
 * next one blocks. */
static sl_status write_waits(search *find, size_t bottom)
{
    assert(bottom < find->depth && !find->waits);
    SL__TRY(sl__alloc(2 * (find->depth - bottom), sizeof *find->waits,
                      &find->waits));
    edge before = taken_edge(find, &find->stack[find->depth - 1]);
    for (size_t i = bottom; i < find->depth; i++) {
        const frame *at = &find->stack[i];
        edge taken = taken_edge(find, at);
        if (at->event % 2 == 0)
            add_waits_of_passed(find, at->event / 2, taken.to);
        else
            add_waits_of_complete(find, &before, &taken);
        before = taken;
    }
    if (find->wait_count == 0) {
        /* No edge gave a wait: a rank sends to itself. */
        uint32_t node = find->stack[bottom].event / 2;
        add_wait(find, node,
                 is_comm(find->events, node) ? sl__peer(find->events, node)
                                             : node);
    }
    return SL_OK;
}

/* ----------------------------------------------------------- the search -- */

static sl_status push(search *find, uint32_t event)
{
    SL__TRY(sl__grow(&find->stack, &find->capacity, find->depth + 1,
                     sizeof *find->stack));
    find->stack[find->depth++] = (frame){event, 0};
    find->color[event] = ON_STACK;
    return SL_OK;
}

/* The lowest frame of the cycle, which is that of `event`. */
static size_t frame_of(const search *find, uint32_t event)
{
    size_t at = find->depth;
    while (find->stack[--at].event != event)
        continue;
    return at;
}

/* Explores from one event, until all that it waits for is explored or a
 * deadlock is found. */
static sl_status explore(search *find, uint32_t root)
{
    if (find->color[root] != UNSEEN)
        return SL_OK;
    assert(find->depth == 0);
    SL__TRY(push(find, root));
    while (find->depth) {
        frame *top = &find->stack[find->depth - 1];
        edge edges[MAX_EDGES];
        int count = edges_of(find, top->event, edges);
        while (top->edge < count && edges[top->edge].to != SL__NOWHERE &&
               find->color[edges[top->edge].to] == DONE)
            top->edge++;
        if (top->edge == count) {
            find->color[top->event] = DONE;
            find->depth--;
            continue;
        }
        uint32_t next = edges[top->edge].to;
        if (next == SL__NOWHERE)
            return write_waits(find, find->depth - 1);
        if (find->color[next] == ON_STACK)
            return write_waits(find, frame_of(find, next));
        SL__TRY(push(find, next));
    }
    return SL_OK;
}

static sl_status explore_node(search *find, uint32_t node)
{
    SL__TRY(explore(find, passed(node)));
    if (find->wait_count || !find->before_comm || !is_comm(find->events, node))
        return SL_OK;
    return explore(find, complete(find->events, node));
}

/* Starts from every action, step by step across ranks, so that most of what an
 * action waits for is explored before it and the stack stays small. `going`
 * lists the ranks whose rows have not ended. */
static sl_status explore_all(search *find)
{
    const sl__events *events = find->events;
    int ranks = events->extent.ranks;
    int *going;
    SL__TRY(SL__TAKE(&find->memory, (size_t)ranks, &going));
    for (int rank = 0; rank < ranks; rank++)
        going[rank] = rank;
    for (uint32_t step = 0; ranks > 0; step++) {
        int kept = 0;
        for (int i = 0; i < ranks; i++) {
            uint32_t node = events->first[going[i]] + step;
            if (node >= events->first[going[i] + 1])
                continue;
            going[kept++] = going[i];
            SL__TRY(explore_node(find, node));
            if (find->wait_count)
                return SL_OK;
        }
        ranks = kept;
    }
    return SL_OK;
}

static sl_status run(search *find)
{
    SL__TRY(
        SL__TAKE(&find->memory, 2 * (size_t)find->events->nodes, &find->color));
    if (sl__completes_in_order(find->reading))
        SL__TRY(sl__link_messages(find->events, find->reading, &find->memory,
                                  &find->before_comm));
    return explore_all(find);
}

sl_status sl__find_deadlock(const sl__events *events, sl_reading reading,
                            sl_wait **out_waits, size_t *out_count)
{
    search find = {.events = events, .reading = reading};
    sl_status status = run(&find);
    *out_waits = find.waits;
    *out_count = find.wait_count;
    sl__arena_clear(&find.memory);
    free(find.stack);
    return status;
}

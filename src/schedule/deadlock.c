/* SPDX-License-Identifier: MIT
 *
 * Deadlock as a cycle. A schedule fixes the order of actions on each rank and
 * of messages between them, so what waits for what is a fixed graph, and the
 * schedule runs to its end exactly when that graph has no cycle and nothing
 * waits for what is nowhere.
 *
 * Each action has an event `passed` (its rank has moved beyond it) and each
 * message an event `complete`, numbered by its send, or by itself where it has
 * no peer. What they wait for:
 *
 *   passed     the action before it on the rank; its inputs (a receive among
 *              them, or the send of a WAIT_SEND: the message's `complete`);
 *              when blocking, a send's or receive's own `complete`
 *   complete   async     both ends posted
 *              per-edge  both ends posted, and the message before each of them
 *                        in its lane complete: on its rank, to or from the
 *                        same rank
 *              ordered   the same with one lane for each rank
 *              blocking  both ranks arrived, and the send's input
 *
 * A depth-first search along these edges finds a cycle as the part of its
 * stack above the event it meets again. */
#include "schedule/deadlock.h"
#include "schedule/action.h"
#include "base/memory.h"

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
    uint8_t *color;        /* by event */
    uint32_t *before_comm; /* by node, with lanes: the message before it */
    frame *stack;
    size_t depth;
    size_t capacity;
} search;

/* Whether messages complete in the order in which they were posted. */
static bool has_lanes(sl_reading reading)
{
    return reading == SL_ORDERED || reading == SL_PER_EDGE;
}

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

/* What must have happened for `node` to see this input. */
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
    if (has_lanes(find->reading) && find->before_comm[end] != SL__NOWHERE)
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

/* ----------------------------------------------------------- the report -- */

static sl_place place_of(const sl__events *events, uint32_t node)
{
    return (sl_place){events->rank_of[node], (int)sl__step_of(events, node)};
}

static void add_wait(const sl__events *events, uint32_t waiter, uint32_t on,
                     sl_wait *waits, size_t *count)
{
    sl_place from = place_of(events, waiter);
    sl_place to = {-1, -1};
    if (on != SL__NOWHERE)
        to = place_of(events, on);
    waits[(*count)++] = (sl_wait){from.rank, from.step, to.rank, to.step};
}

/* Whether a wait of `node` for `on` says more than that a rank runs its row in
 * order. */
static bool is_worth_telling(const sl__events *events, uint32_t node,
                             uint32_t on)
{
    return events->rank_of[on] != events->rank_of[node] || on > node;
}

/* Tells an edge out of `passed`; where it leads to a message, the next edge
 * tells. An action that needs itself is an overlap of dependent halves. */
static void tell_passed(const sl__events *events, uint32_t node, uint32_t to,
                        sl_wait *waits, size_t *count)
{
    if (to == SL__NOWHERE)
        add_wait(events, node, SL__NOWHERE, waits, count);
    else if (to % 2 == 0 &&
             (to / 2 == node || is_worth_telling(events, node, to / 2)))
        add_wait(events, node, to / 2, waits, count);
}

/* Who waits for a message that was come to through `before`: a compute itself;
 * of a message behind another, the end on the same rank. */
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

/* Tells an edge out of `complete`, left through one of the message's ends: the
 * waiter waits for that end, and the end perhaps for what it sends. */
static void tell_complete(const sl__events *events, const edge *before,
                          const edge *taken, sl_wait *waits, size_t *count)
{
    uint32_t end = taken->end;
    if (taken->to == SL__NOWHERE) {
        add_wait(events, end, SL__NOWHERE, waits, count);
        return;
    }
    uint32_t waiter = waiter_of(events, before, end);
    if (is_worth_telling(events, waiter, end))
        add_wait(events, waiter, end, waits, count);
    if (taken->to % 2 == 0 && is_worth_telling(events, end, taken->to / 2))
        add_wait(events, end, taken->to / 2, waits, count);
}

static edge taken_edge(const search *find, const frame *at)
{
    edge edges[MAX_EDGES];
    edges_of(find, at->event, edges);
    return edges[at->edge];
}

/* Where no edge says anything, a rank sends to itself. */
static void tell_self(const sl__events *events, uint32_t node, sl_wait *waits,
                      size_t *count)
{
    uint32_t peer = is_comm(events, node) ? sl__peer(events, node) : node;
    add_wait(events, node, peer, waits, count);
}

/* Tells the stack from `bottom` up, a cycle or one wait for nothing, as waits:
 * each for an action at or behind which its rank is held by the next. */
static sl_status tell(const search *find, size_t bottom, sl_wait **out_waits,
                      size_t *out_count)
{
    sl_wait *waits;
    size_t count = 0;
    sl_status status =
        sl__alloc(2 * (find->depth - bottom), sizeof *waits, &waits);
    if (status)
        return status;
    edge before = taken_edge(find, &find->stack[find->depth - 1]);
    for (size_t i = bottom; i < find->depth; i++) {
        const frame *at = &find->stack[i];
        edge taken = taken_edge(find, at);
        if (at->event % 2 == 0)
            tell_passed(find->events, at->event / 2, taken.to, waits, &count);
        else
            tell_complete(find->events, &before, &taken, waits, &count);
        before = taken;
    }
    if (count == 0)
        tell_self(find->events, find->stack[bottom].event / 2, waits, &count);
    *out_waits = waits;
    *out_count = count;
    return SL_OK;
}

/* ----------------------------------------------------------- the search -- */

static sl_status push(search *find, uint32_t event)
{
    sl_status status = sl__grow(&find->stack, &find->capacity, find->depth + 1,
                                sizeof *find->stack);
    if (status)
        return status;
    find->stack[find->depth++] = (frame){event, 0};
    find->color[event] = ON_STACK;
    return SL_OK;
}

/* The lowest frame of the cycle that meeting `event` again closes. */
static size_t frame_of(const search *find, uint32_t event)
{
    size_t at = find->depth;
    while (find->stack[--at].event != event)
        continue;
    return at;
}

/* Explores from one event; with waits written when a deadlock was met. */
static sl_status explore(search *find, uint32_t root, sl_wait **out_waits,
                         size_t *out_count)
{
    if (find->color[root] != UNSEEN)
        return SL_OK;
    sl_status status = push(find, root);
    while (!status && find->depth) {
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
            return tell(find, find->depth - 1, out_waits, out_count);
        if (find->color[next] == ON_STACK)
            return tell(find, frame_of(find, next), out_waits, out_count);
        status = push(find, next);
    }
    return status;
}

static sl_status explore_node(search *find, uint32_t node, sl_wait **out_waits,
                              size_t *out_count)
{
    sl_status status = explore(find, passed(node), out_waits, out_count);
    if (!status && !*out_count && has_lanes(find->reading) &&
        is_comm(find->events, node))
        status =
            explore(find, complete(find->events, node), out_waits, out_count);
    return status;
}

/* Starts from every action, step by step across ranks, so that what an action
 * waits for is mostly explored before it and the stack stays low. `going` has
 * the ranks whose rows are not over yet. */
static sl_status explore_steps(search *find, int *going, sl_wait **out_waits,
                               size_t *out_count)
{
    const sl__events *events = find->events;
    int ranks = events->extent.ranks;
    for (int rank = 0; rank < ranks; rank++)
        going[rank] = rank;
    for (uint32_t step = 0; ranks > 0; step++) {
        int kept = 0;
        for (int i = 0; i < ranks; i++) {
            uint32_t node = events->first[going[i]] + step;
            if (node >= events->first[going[i] + 1])
                continue;
            going[kept++] = going[i];
            sl_status status = explore_node(find, node, out_waits, out_count);
            if (status || *out_count)
                return status;
        }
        ranks = kept;
    }
    return SL_OK;
}

static sl_status explore_all(search *find, sl_wait **out_waits,
                             size_t *out_count)
{
    int *going;
    sl_status status =
        sl__alloc((size_t)find->events->extent.ranks, sizeof *going, &going);
    if (status)
        return status;
    status = explore_steps(find, going, out_waits, out_count);
    free(going);
    return status;
}

sl_status sl__find_deadlock(const sl__events *events, sl_reading reading,
                            sl_wait **out_waits, size_t *out_count)
{
    search find = {.events = events, .reading = reading};
    *out_waits = NULL;
    *out_count = 0;
    sl_status status = sl__alloc(2 * (size_t)events->nodes, 1, &find.color);
    if (!status && has_lanes(reading))
        status = sl__alloc(events->nodes, sizeof *find.before_comm,
                           &find.before_comm);
    if (!status && has_lanes(reading))
        status = sl__link_messages(events, reading, find.before_comm);
    if (!status)
        status = explore_all(&find, out_waits, out_count);
    free(find.color);
    free(find.before_comm);
    free(find.stack);
    return status;
}

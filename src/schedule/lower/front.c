/* SPDX-License-Identifier: MIT
 *
 * The front of front.h, and the graph that it follows. An attempt to extend the
 * front is undone where it reaches the rank of the place, at the place or after
 * it. */
#include "schedule/lower/front.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

/* The action at `step` comes after the one at (rank, on_step). */
typedef struct input {
    uint32_t step;
    uint16_t rank;
    uint32_t on_step;
} input;

struct sl__front_inputs {
    input *data; /* by step, ascending; and by on_step, of each rank */
    size_t count;
    size_t capacity;
    size_t sources; /* how many ranks they come from */
};

/* How far the front extends on a rank: up to, not including, `step`; and how
 * many of the rank's inputs have been followed. */
struct sl__front_reach {
    uint32_t step;
    size_t given;
    size_t added;
};

/* A rank that an attempt changed, and its reach before. */
struct sl__front_change {
    uint16_t rank;
    sl__front_reach before;
};

sl_status sl__front_open(sl__front *front, const sl__events *events)
{
    size_t ranks = (size_t)events->extent.ranks;
    *front = (sl__front){.events = events};
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->given));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->added));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->reach));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->todo));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->queued));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->changes));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->changed_in));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->met_in));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->implied));
    SL__TRY(SL__TAKE(&front->memory, ranks, &front->source_of));
    memset(front->source_of, 0xff, ranks * sizeof *front->source_of);
    return SL_OK;
}

void sl__front_close(sl__front *front)
{
    for (int rank = 0; rank < front->events->extent.ranks; rank++) {
        if (front->given)
            free(front->given[rank].data);
        if (front->added)
            free(front->added[rank].data);
    }
    sl__arena_clear(&front->memory);
}

void sl__front_start(sl__front *front, int rank)
{
    size_t ranks = (size_t)front->events->extent.ranks;
    front->rank = rank;
    front->step = 0;
    front->implied_inputs = 0;
    memset(front->reach, 0, ranks * sizeof *front->reach);
    memset(front->implied, 0, ranks * sizeof *front->implied);
}

/* ------------------------------------------------------------ the graph -- */

static sl_status add_input(const sl__front *front, sl__front_inputs *to,
                           uint32_t step, uint32_t on)
{
    assert(!to->count || to->data[to->count - 1].step <= step);
    SL__TRY(
        sl__grow(&to->data, &to->capacity, to->count + 1, sizeof *to->data));
    to->data[to->count++] = (input){step, front->events->rank_of[on],
                                    sl__step_of(front->events, on)};
    return SL_OK;
}

sl_status sl__front_give(sl__front *front, uint32_t node, uint32_t on)
{
    uint32_t *implied = &front->implied[front->events->rank_of[on]];
    uint32_t end = sl__step_of(front->events, on) + 1;
    sl__front_inputs *to = &front->given[front->rank];
    assert(front->events->rank_of[node] == front->rank);
    if (*implied >= end)
        return SL_OK;
    to->sources += *implied == 0;
    *implied = end;
    return add_input(front, to, sl__step_of(front->events, node), on);
}

/* Whether the walk has passed the action that a rank's next input comes after.
 * `met` has how many of its inputs each rank has passed. */
static bool is_met(const sl__front *front, const size_t *met, int rank)
{
    const input *next = &front->given[rank].data[met[rank]];
    const sl__front_inputs *on = &front->given[next->rank];
    size_t reached = met[next->rank];
    return reached == on->count || on->data[reached].step > next->on_step;
}

/* Runs a rank to its end. Where an input is missing, runs the rank that it
 * comes from first, until that input is there. A cycle leads back to a rank
 * that is being run: then this is false. */
static bool runs_to_its_end(sl__front *front, size_t *met, int rank)
{
    uint16_t *running = front->todo;
    size_t depth = 0;
    running[depth++] = (uint16_t)rank;
    front->queued[rank] = 1;
    while (depth) {
        int top = running[depth - 1];
        bool done = met[top] == front->given[top].count;
        if (done || (depth > 1 && is_met(front, met, running[depth - 2]))) {
            front->queued[top] = 0;
            depth--;
        } else if (is_met(front, met, top)) {
            met[top]++;
        } else {
            uint16_t next = front->given[top].data[met[top]].rank;
            if (front->queued[next])
                return false;
            front->queued[next] = 1;
            running[depth++] = next;
        }
    }
    return true;
}

sl_status sl__front_find_cycle(sl__front *front, uint32_t *out_node)
{
    size_t *met; /* by rank: how many of its inputs it has passed */
    *out_node = SL__NOWHERE;
    SL__TRY(
        SL__TAKE(&front->memory, (size_t)front->events->extent.ranks, &met));
    for (int rank = 0; rank < front->events->extent.ranks; rank++) {
        if (runs_to_its_end(front, met, rank))
            continue;
        *out_node = front->events->first[rank] +
                    front->given[rank].data[met[rank]].step;
        break;
    }
    return SL_OK;
}

/* ------------------------------------------------------------ the front -- */

/* Extends the front to before `step` on a rank; false where this would include
 * the place. */
static inline bool raise_to(sl__front *front, int rank, uint32_t step)
{
    sl__front_reach *at = &front->reach[rank];
    if (step <= at->step)
        return true;
    if (rank == front->rank)
        return false;
    if (front->changed_in[rank] != front->attempt) {
        front->changed_in[rank] = front->attempt;
        front->changes[front->change_count++] =
            (sl__front_change){(uint16_t)rank, *at};
    }
    at->step = step;
    if (!front->queued[rank]) {
        front->queued[rank] = 1;
        front->todo[front->todo_count++] = (uint16_t)rank;
    }
    return true;
}

/* How many inputs there are before a step; at least `least`. */
static size_t count_before(const sl__front_inputs *from, uint32_t end,
                           size_t least)
{
    size_t span = 1;
    while (least + span <= from->count &&
           from->data[least + span - 1].step < end) {
        least += span;
        span *= 2;
    }
    for (; span > 0; span /= 2) {
        if (least + span <= from->count &&
            from->data[least + span - 1].step < end)
            least += span;
    }
    return least;
}

/* Follows the inputs of a rank before a step. Of several from one rank, the
 * last implies the others. */
static inline bool take_inputs(sl__front *front, const sl__front_inputs *from,
                               uint32_t end, size_t *at)
{
    enum { FEW = 4 };
    size_t known = *at, met = 0;
    for (; *at < from->count && from->data[*at].step < end; ++*at) {
        const input *next = &from->data[*at];
        if (*at == known + FEW)
            break;
        if (!raise_to(front, next->rank, next->on_step + 1))
            return false;
    }
    if (*at < known + FEW)
        return true;
    size_t next = *at = count_before(from, end, *at);
    front->round++;
    while (next > known + FEW && met < from->sources) {
        const input *last = &from->data[--next];
        met += front->met_in[last->rank] != front->round;
        front->met_in[last->rank] = front->round;
        if (!raise_to(front, last->rank, last->on_step + 1))
            return false;
    }
    return true;
}

/* Follows inputs until none is missing; false where the front would include the
 * place. `so_far` is false where that is known already. */
static bool complete(sl__front *front, bool so_far)
{
    while (front->todo_count) {
        int next = front->todo[--front->todo_count];
        sl__front_reach *at = &front->reach[next];
        front->queued[next] = 0;
        so_far =
            so_far &&
            take_inputs(front, &front->given[next], at->step, &at->given) &&
            take_inputs(front, &front->added[next], at->step, &at->added);
    }
    return so_far;
}

/* Extends the front by an action and all that must come before it; false where
 * this would include the place. */
static bool extend(sl__front *front, int rank, uint32_t step)
{
    front->attempt++;
    front->change_count = 0;
    return complete(front, raise_to(front, rank, step + 1));
}

static void undo(sl__front *front)
{
    while (front->change_count) {
        const sl__front_change *last = &front->changes[--front->change_count];
        front->reach[last->rank] = last->before;
    }
}

void sl__front_catch_up(sl__front *front)
{
    sl__front_reach *own = &front->reach[front->rank];
    front->attempt++;
    front->change_count = 0;
    own->step = front->step;
    bool known = complete(front, take_inputs(front, &front->given[front->rank],
                                             front->step + 1, &own->given));
    assert(known); /* There was no cycle before, and no input adds one. */
    (void)known;
}

bool sl__front_has(const sl__front *front, uint32_t node)
{
    return front->reach[front->events->rank_of[node]].step >
           sl__step_of(front->events, node);
}

sl_status sl__front_add(sl__front *front, uint32_t node, bool *out)
{
    int source = front->events->rank_of[node];
    sl__front_inputs *to = &front->added[front->rank];
    *out = extend(front, source, sl__step_of(front->events, node));
    if (!*out) {
        undo(front);
        return SL_OK;
    }
    to->sources += front->source_of[source] != front->rank;
    front->source_of[source] = front->rank;
    return add_input(front, to, front->step, node);
}

bool sl__front_implies(sl__front *front, uint32_t node)
{
    const sl__front_inputs *given = &front->given[front->rank];
    for (; front->implied_inputs < given->count &&
           given->data[front->implied_inputs].step <= front->step;
         front->implied_inputs++) {
        const input *next = &given->data[front->implied_inputs];
        if (next->on_step >= front->implied[next->rank])
            front->implied[next->rank] = next->on_step + 1;
    }
    return front->implied[front->events->rank_of[node]] >
           sl__step_of(front->events, node);
}

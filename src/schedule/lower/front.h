/* SPDX-License-Identifier: MIT
 *
 * What must come before a place in a row. The order of actions is a graph: each
 * rank's row, a receive after its send, a wait after its receive. Only where an
 * action has such an input from elsewhere is there anything to follow, so the
 * graph is kept as a list of inputs by rank and step.
 *
 * All that must have come before a place is a prefix of every row. These
 * prefixes are the front; it moves along one rank's row, and takes in each
 * input that it meets. */
#ifndef SL_SCHEDULE_FRONT_H
#define SL_SCHEDULE_FRONT_H

#include "schedule/events.h"

typedef struct sl__front_inputs sl__front_inputs;
typedef struct sl__front_reach sl__front_reach;
typedef struct sl__front_change sl__front_change;

typedef struct sl__front {
    const sl__events *events;
    int rank;      /* on whose row the place is; set by sl__front_start */
    uint32_t step; /* the place; the caller moves it forward */
    sl__front_inputs *given; /* by rank: of the schedule as it came */
    sl__front_inputs *added; /* by rank: by sl__front_add */
    sl__front_reach *reach;  /* by rank: the prefixes */
    uint16_t *todo;          /* ranks of which inputs may be missing, a stack */
    uint8_t *queued;         /* by rank: whether it is in `todo` */
    size_t todo_count;
    sl__front_change *changes; /* of the attempt at hand, one per rank */
    size_t change_count;
    uint32_t *changed_in; /* by rank: the latest attempt that changed it */
    uint32_t attempt;
    uint64_t *met_in; /* by rank: the latest round that met it as a source */
    uint64_t round;
    uint32_t *implied; /* by rank: how many of its steps must have come before,
                          as the inputs on the place's row alone imply */
    size_t implied_inputs; /* how many of those inputs are in there */
    int *source_of; /* by rank: the latest that has an added input from it */
    sl__arena memory;
} sl__front;

/* An empty graph; sl__front_close also after a failure. */
sl_status sl__front_open(sl__front *front, const sl__events *events);
void sl__front_close(sl__front *front);

/* Puts the place, and the front, at the start of a rank's row. */
void sl__front_start(sl__front *front, int rank);

/* While the graph is built, at the place: adds the input that `node`, which is
 * there, comes after `on`; not where an earlier one of the row implies it. */
sl_status sl__front_give(sl__front *front, uint32_t node, uint32_t on);

/* Finds an action that the given inputs keep from ever being reached, or
 * SL__NOWHERE. */
sl_status sl__front_find_cycle(sl__front *front, uint32_t *out_node);

/* Whether an input on the place's row says that `node` has come before: mostly
 * so where that is true at all, and found without the front. */
bool sl__front_implies(sl__front *front, uint32_t node);

/* Brings the front to the place, the inputs of what is there included. */
void sl__front_catch_up(sl__front *front);

/* Whether `node` is inside the front: it has come before the place. */
bool sl__front_has(const sl__front *front, uint32_t node);

/* Adds the input that what is at the place comes after `node`; `*out` is false,
 * and nothing changed, where that would close a cycle. After catching up. */
sl_status sl__front_add(sl__front *front, uint32_t node, bool *out);

#endif

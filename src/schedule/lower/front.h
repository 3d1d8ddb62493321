/* SPDX-License-Identifier: MIT
 *
 * Which actions must run before a place in a row. The order of actions is a
 * graph: an action comes after the one before it in its row, a receive after
 * its send, a wait after the receive of its send. Edges within a row need no
 * storage, so the graph is kept as a list, by rank and step, of inputs from
 * other rows.
 *
 * The actions that must run before a place are a prefix of every row. These
 * prefixes are the front. The place moves forward in one row, and the front
 * grows by each input on the way. */
#ifndef SL_SCHEDULE_FRONT_H
#define SL_SCHEDULE_FRONT_H

#include "schedule/events.h"

typedef struct sl__front_inputs sl__front_inputs;
typedef struct sl__front_reach sl__front_reach;
typedef struct sl__front_change sl__front_change;

typedef struct sl__front {
    const sl__events *events;
    int rank;                /* the row of the place; set by sl__front_start */
    uint32_t step;           /* the place; the caller moves it forward */
    sl__front_inputs *given; /* by rank: inputs of the schedule itself */
    sl__front_inputs *added; /* by rank: inputs of sl__front_add */
    sl__front_reach *reach;  /* by rank: the prefixes */
    uint16_t *todo;          /* a stack of ranks with inputs to follow */
    uint8_t *queued;         /* by rank: whether it is in `todo` */
    size_t todo_count;
    sl__front_change *changes; /* of the current attempt, one per rank */
    size_t change_count;
    uint32_t *changed_in; /* by rank: the latest attempt that changed it */
    uint32_t attempt;
    uint64_t *met_in; /* by rank: the latest round in which it was a source */
    uint64_t round;
    /* By rank: how many of its steps come before the place, by the inputs on
     * the place's row alone. */
    uint32_t *implied;
    size_t implied_inputs; /* how many of those inputs it includes */
    int *source_of; /* by rank: the latest that has an added input from it */
    sl__arena memory;
} sl__front;

/* Opens an empty graph. Call sl__front_close also after a failure. */
sl_status sl__front_open(sl__front *front, const sl__events *events);
void sl__front_close(sl__front *front);

/* Puts the place, and the front, at the start of a rank's row. */
void sl__front_start(sl__front *front, int rank);

/* While the graph is built: adds the input that `node`, which is at the place,
 * comes after `on`, unless an earlier input of the row implies it. */
sl_status sl__front_give(sl__front *front, uint32_t node, uint32_t on);

/* Finds an action that can never run because of a cycle among the given inputs;
 * SL__NOWHERE for none. */
sl_status sl__front_find_cycle(sl__front *front, uint32_t *out_node);

/* Whether an input on the place's row alone implies that `node` comes before
 * the place. This is fast, and enough in most cases; otherwise the front
 * decides. */
bool sl__front_implies(sl__front *front, uint32_t node);

/* Extends the front to the place, including the inputs of the action there. */
void sl__front_catch_up(sl__front *front);

/* Whether `node` is inside the front, so that it comes before the place. */
bool sl__front_has(const sl__front *front, uint32_t node);

/* Adds the input that the action at the place comes after `node`. Where that
 * would close a cycle, `*out` is false and nothing changes. Requires
 * sl__front_catch_up. */
sl_status sl__front_add(sl__front *front, uint32_t node, bool *out);

#endif

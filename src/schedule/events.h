/* SPDX-License-Identifier: MIT
 *
 * What each action waits for. The deadlock search, the simulator and the dry
 * run all use these functions, so they agree on what a dependency is.
 *
 * Actions are numbered over all ranks: a node is first[rank] + step, where the
 * step is the index into the row. Of an action that appears twice, the tables
 * have the first; nothing waits for the others. */
#ifndef SL_SCHEDULE_EVENTS_H
#define SL_SCHEDULE_EVENTS_H

#include "schedule/schedule.h"
#include "base/arena.h"

#define SL__NOWHERE UINT32_MAX

typedef struct sl__events {
    const sl_schedule *schedule;
    sl_extent extent;
    uint32_t nodes;
    uint32_t *first;   /* by rank, and one more: its first node */
    uint16_t *rank_of; /* by node */
    int *home;         /* by stage: the rank with most of its actions, or -1 */
    /* By kind (F, I, W, B, SENDs, RECVs, WAIT_SENDs), then stage and
     * microbatch. */
    uint32_t *table[SL_ACTION_KINDS];
    uint32_t *reduction; /* by stage: its REDUCE_GRAD */
    sl__arena memory;
} sl__events;

/* Fails where the schedule is too sparse for tables (sl__check_density). */
sl_status sl__events_open(const sl_schedule *schedule, sl__events *out);
void sl__events_close(sl__events *events);

static inline uint32_t sl__step_of(const sl__events *events, uint32_t node)
{
    return node - events->first[events->rank_of[node]];
}

static inline const sl_action *sl__action_at(const sl__events *events,
                                             uint32_t node)
{
    const sl__row *row = &events->schedule->rows[events->rank_of[node]];
    return &row->actions[sl__step_of(events, node)];
}

/* The node of an action, or SL__NOWHERE, also for stages and microbatches that
 * do not exist. */
uint32_t sl__event_of(const sl__events *events, sl_action_kind kind, int stage,
                      int microbatch);

/* The B of a stage and microbatch, else its I, else SL__NOWHERE. */
uint32_t sl__backward_event(const sl__events *events, int stage,
                            int microbatch);

/* An input of an action. */
typedef struct sl__input {
    uint32_t node; /* must be complete; of a send or receive, its message.
                      SL__NOWHERE: no rank has it */
    int edge;      /* where messages are implied: the edge, between stages
                      `edge` and `edge` + 1, that the result crosses; else -1 */
} sl__input;
#define SL__MAX_INPUTS 4

/* What must be complete before `node` can start, besides the action before it
 * on its rank and its peer. Returns how many. */
int sl__inputs(const sl__events *events, uint32_t node,
               sl__input inputs[SL__MAX_INPUTS]);

/* For a send its receive, for a receive its send, or SL__NOWHERE. */
uint32_t sl__peer(const sl__events *events, uint32_t node);

/* Whether messages complete in posted order, be it all messages of a rank in
 * one sequence, or in one sequence per direction and peer. */
static inline bool sl__completes_in_order(sl_reading reading)
{
    return reading == SL_ORDERED || reading == SL_PER_EDGE;
}

/* For every send and receive the one before it in its sequence, which must be
 * complete first; SL__NOWHERE for the first ones and for all other nodes. The
 * array is by node, from `memory`. Only where messages complete in order. */
sl_status sl__link_messages(const sl__events *events, sl_reading reading,
                            sl__arena *memory, uint32_t **out_before);

#endif

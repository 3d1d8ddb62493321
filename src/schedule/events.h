/* SPDX-License-Identifier: MIT
 *
 * What each action waits for. The deadlock search, the simulator and the dry
 * run all ask here, so they agree on what a dependency is.
 *
 * Actions are numbered through all ranks: a node is first[rank] + step. Where
 * an action appears twice, the first one met counts; later ones are nodes that
 * nothing waits for. */
#ifndef SL_SCHEDULE_EVENTS_H
#define SL_SCHEDULE_EVENTS_H

#include "schedule/schedule.h"

#define SL__NOWHERE UINT32_MAX

typedef struct sl__events {
    const sl_schedule *schedule;
    sl_extent extent;
    uint32_t nodes;
    uint32_t *first;   /* by rank, and one more: its first node */
    uint16_t *rank_of; /* by node */
    int *home;         /* by stage: the rank with most of it; -1: nowhere */
    /* By kind (F, I, W, B, SENDs, RECVs, WAIT_SENDs), then stage and
     * microbatch. */
    uint32_t *table[SL_ACTION_KINDS];
    uint32_t *reduction; /* by stage: its REDUCE_GRAD */
    uint32_t *memory;    /* what the tables are cut from */
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

/* The node of an action, or SL__NOWHERE; any stage and microbatch may be asked
 * for, also those that do not exist. */
uint32_t sl__event(const sl__events *events, sl_action_kind kind, int stage,
                   int microbatch);

/* The B of a stage and microbatch, else its I, else SL__NOWHERE. */
uint32_t sl__backward_event(const sl__events *events, int stage,
                            int microbatch);

/* Something an action needs. */
typedef struct sl__input {
    uint32_t node; /* SL__NOWHERE: it never comes. A send or receive: its
                      message, complete */
    int edge;      /* the edge e, between stages e and e + 1, that a result
                      from another rank crosses unannounced; -1 if none */
} sl__input;
#define SL__MAX_INPUTS 4

/* What must be complete before `node` can start, other than the action before
 * it on its rank and other than its peer. Returns how many. */
int sl__inputs(const sl__events *events, uint32_t node,
               sl__input inputs[SL__MAX_INPUTS]);

/* For a send its receive, for a receive its send, or SL__NOWHERE. */
uint32_t sl__peer(const sl__events *events, uint32_t node);

/* Fills in, for every send and receive, the one that must be complete before it
 * can be, on its rank: under SL_ORDERED the message before it, under
 * SL_PER_EDGE the one before it that goes the same way to or from the same
 * rank. SL__NOWHERE for none, and for all else. */
sl_status sl__link_messages(const sl__events *events, sl_reading reading,
                            uint32_t *before);

#endif

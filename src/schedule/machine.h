/* SPDX-License-Identifier: MIT
 *
 * The machine that the simulator runs: simulate.c steps through rows and
 * compute, simulate_messages.c through sends and receives. */
#ifndef SL_SCHEDULE_MACHINE_H
#define SL_SCHEDULE_MACHINE_H

#include "schedule/events.h"
#include "schedule/simulation.h"
#include "schedule/visits.h"

/* The state of a node; only sends and receives can be POSTED. */
enum { SL__AHEAD, SL__POSTED, SL__COMPLETE };

/* A time, and the node that determined it. */
typedef struct sl__moment {
    double time;
    uint32_t cause;
} sl__moment;

typedef struct sl__machine {
    const sl__events *events;
    const sl_costs *costs;
    sl_simulation *result;
    uint8_t *state;      /* by node */
    uint32_t *cause;     /* by node: the last it waited for, or SL__NOWHERE */
    uint32_t *at;        /* by rank: its next node */
    sl__moment *free_at; /* by rank */
    /* NULL unless messages complete in order. By node: the message before it
     * and the one after it in its sequence, or SL__NOWHERE; and a stack of
     * messages whose predecessor is complete. */
    uint32_t *before, *behind;
    uint32_t *next;
    size_t next_count;
    int *in_flight;  /* by rank: microbatches of its stages */
    int64_t *held;   /* by rank: activation bytes */
    uint16_t *queue; /* ranks to run: a ring of as many as ranks */
    uint8_t *queued; /* by rank */
    size_t queue_head;
    size_t queue_count;
    sl__waiters waiters;
    uint8_t *parked; /* by rank: whether it is among the waiters */
    sl__arena memory;
} sl__machine;

/* Raises a moment to `time`, if that is later. */
static inline void sl__later(sl__moment *of, double time, uint32_t cause)
{
    if (time > of->time)
        *of = (sl__moment){time, cause};
}

/* ---- simulate.c ---- */

/* Enqueues a rank, which will run until it has to wait. */
void sl__enqueue_rank(sl__machine *m, int rank);

/* Whether all inputs of a node are complete. If so, raises `ready` to the time
 * of the last. If not, parks the rank at the first that is missing. */
bool sl__inputs_ready(sl__machine *m, uint32_t node, sl__moment *ready);

/* Completes a node and enqueues the ranks that wait for it. */
void sl__finish_node(sl__machine *m, uint32_t node, sl__moment start,
                     double end);

/* Records the bytes held at a node that does not change them. */
void sl__keep_bytes(sl__machine *m, int rank, uint32_t node);

/* ---- simulate_messages.c ---- */

/* Runs the send or receive that is next on a rank; false if it cannot run
 * yet. */
bool sl__run_message(sl__machine *m, int rank, uint32_t node);

/* Finds the message before and after each one in its sequence. Called before
 * anything runs. */
sl_status sl__order_messages(sl__machine *m);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The machine that the simulator runs: simulate.c steps through rows and
 * compute, simulate_messages.c through sends and receives. */
#ifndef SL_SCHEDULE_MACHINE_H
#define SL_SCHEDULE_MACHINE_H

#include "schedule/events.h"
#include "schedule/simulation.h"
#include "schedule/visits.h"

/* What has become of a node; POSTED only of sends and receives. */
enum { SL__AHEAD, SL__POSTED, SL__COMPLETE };

/* A moment, and the node that made it so. */
typedef struct sl__moment {
    double time;
    uint32_t cause;
} sl__moment;

typedef struct sl__machine {
    const sl__events *events;
    const sl_costs *costs;
    sl_simulation *result;
    uint8_t *state;      /* by node */
    uint32_t *cause;     /* by node: what it waited for last, or SL__NOWHERE */
    uint32_t *at;        /* by rank: the node it has come to */
    sl__moment *free_at; /* by rank */
    /* Where messages complete in order, by node: the message before and the one
     * behind it in its sequence, or SL__NOWHERE; and a stack of messages whose
     * predecessor is complete. Otherwise NULL. */
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

/* Puts a moment off until `time`, if that is later. */
static inline void sl__later(sl__moment *of, double time, uint32_t cause)
{
    if (time > of->time)
        *of = (sl__moment){time, cause};
}

/* ---- simulate.c ---- */

/* Queues a rank, to be run as far as it goes. */
void sl__enqueue_rank(sl__machine *m, int rank);

/* Whether all inputs of a node are there; if so, `ready` is put off until the
 * last of them is. If not, its rank is parked until the first missing one. */
bool sl__inputs_ready(sl__machine *m, uint32_t node, sl__moment *ready);

/* Completes a node and enqueues the ranks that wait for it. */
void sl__finish_node(sl__machine *m, uint32_t node, sl__moment start,
                     double end);

/* Notes the bytes held where a node changes nothing. */
void sl__keep_bytes(sl__machine *m, int rank, uint32_t node);

/* ---- simulate_messages.c ---- */

/* Runs the send or receive that a rank has come to; false if it cannot. */
bool sl__run_message(sl__machine *m, int rank, uint32_t node);

/* Finds what comes before and behind each message, before anything runs. */
sl_status sl__order_messages(sl__machine *m);

#endif

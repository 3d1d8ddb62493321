/* SPDX-License-Identifier: MIT
 *
 * Two structures for walks over all ranks: a queue of ranks to visit, by round
 * and then in ascending order, in which each rank is at most once; and lists of
 * the ranks that are parked until a node is done. With both, the time of a walk
 * is proportional to the actions in it, not to rounds times ranks. Their memory
 * is the arena's. */
#ifndef SL_SCHEDULE_VISITS_H
#define SL_SCHEDULE_VISITS_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sl__visits {
    uint64_t ranks;
    uint64_t *heap; /* round * ranks + rank, the least first */
    size_t count;
    uint8_t *queued; /* by rank */
} sl__visits;

sl_status sl__visits_open(sl__visits *visits, int ranks, sl__arena *memory);

/* Adds a visit of a rank that is not in the queue. */
void sl__visits_push(sl__visits *visits, uint64_t round, int rank);

/* Takes the next visit; false when there is none. */
bool sl__visits_pop(sl__visits *visits, uint64_t *round, int *rank);

#define SL__NOBODY (-1)

typedef struct sl__waiters {
    int16_t *first; /* by node: a rank that waits for it, or SL__NOBODY */
    int16_t *next;  /* by rank: the next that waits for the same node */
} sl__waiters;

sl_status sl__waiters_open(sl__waiters *waiters, size_t nodes, int ranks,
                           sl__arena *memory);

/* Parks a rank, which must not be parked elsewhere, until `node` is done. */
void sl__waiters_park(sl__waiters *waiters, uint32_t node, int rank);

/* Removes one of the ranks parked at `node` and returns it; SL__NOBODY when
 * none is left. */
int sl__waiters_take(sl__waiters *waiters, uint32_t node);

#endif

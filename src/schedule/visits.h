/* SPDX-License-Identifier: MIT
 *
 * Two structures for walks over all ranks: a queue of ranks to visit, by round
 * and then in ascending order, each at most once at a time; and lists of the
 * ranks that are parked until a node happens. With both, a walk costs what
 * happens in it, not rounds times ranks. Their memory is the arena's. */
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

/* Adds a visit of a rank that has none coming. */
void sl__visits_push(sl__visits *visits, uint64_t round, int rank);

/* Takes the next visit; false when there is none. */
bool sl__visits_pop(sl__visits *visits, uint64_t *round, int *rank);

#define SL__NOBODY (-1)

typedef struct sl__waiters {
    int16_t *first; /* by node: a rank that waits for it, or SL__NOBODY */
    int16_t *next;  /* by rank: the next that waits for the same */
} sl__waiters;

sl_status sl__waiters_open(sl__waiters *waiters, size_t nodes, int ranks,
                           sl__arena *memory);

/* Parks a rank, which waits for nothing else, until `node` happens. */
void sl__waiters_park(sl__waiters *waiters, uint32_t node, int rank);

/* Takes a rank off those parked at `node`; SL__NOBODY when none is left. */
int sl__waiters_take(sl__waiters *waiters, uint32_t node);

#endif

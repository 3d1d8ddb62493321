/* SPDX-License-Identifier: MIT
 *
 * Work in shares, one for each thread of a team. A thread that has finished its
 * share takes from those of others, since another process may slow down a core.
 * Threads that wait may take too: work_stealing.c. */
#ifndef SL_TENSOR_CPU_SHARES_H
#define SL_TENSOR_CPU_SHARES_H

#include "tensor/backends/cpu/cpu.h"

#include <stdatomic.h>

enum { SL__SHARES_MAX = 64, SL__THIEVES_MAX = 64 };

typedef struct sl__share {
    _Alignas(64) atomic_llong next;
    int64_t end;
} sl__share;

typedef struct sl__team_work {
    sl__parallel_fn body;
    void *data;
    int64_t chunk;
    int threads;           /* the team's */
    int thieves_max;       /* workers besides the team's */
    atomic_ullong thieves; /* those present, a bit each */
    int share_count;
    sl__share shares[SL__SHARES_MAX];
} sl__team_work;

/* Takes a chunk of a share and runs it; false if none is left. The bounds of a
 * chunk do not depend on which thread takes it, so results do not either. */
static inline bool sl__take(sl__team_work *region, int share, int worker)
{
    sl__share *s = &region->shares[share];
    int64_t from = atomic_fetch_add_explicit(&s->next, region->chunk,
                                             memory_order_relaxed);
    if (from >= s->end)
        return false;
    int64_t left = s->end - from;
    region->body(region->data, worker, from,
                 left < region->chunk ? s->end : from + region->chunk);
    return true;
}

/* ------------------------------------------------------- work_stealing.c -- */

bool sl__someone_steals(void);

/* Offers a region to threads that wait; NULL if no place is free. Close it
 * before it goes out of scope: when sl__close returns, no other thread is in
 * it. */
typedef struct sl__open_place sl__open_place;
sl__open_place *sl__open(sl__team_work *region);
void sl__close(sl__open_place *place);

/* ----------------------------------------------------------- threads.c -- */

/* Runs `body` on this many threads. */
void sl__on_team(int threads, void (*body)(void *data), void *data);

#endif

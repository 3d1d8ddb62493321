/* SPDX-License-Identifier: MIT
 *
 * Work in shares: one for each thread of a team, from which others take once
 * they are done with theirs, for a core may be slowed down by whoever else uses
 * it. And those who wait may take too: work_stealing.c. */
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
    int threads;           /* its own */
    int thieves_max;       /* workers besides these */
    atomic_ullong thieves; /* those there are, a bit each */
    int share_count;
    sl__share shares[SL__SHARES_MAX];
} sl__team_work;

/* Takes a chunk of a share and runs it; false where it has none left. What a
 * chunk is does not depend on who takes it, so neither do results. */
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

/* ----------------------------------------------------------- work_stealing.c -- */

bool sl__someone_steals(void);

/* Lays a region open to those who wait; NULL where there is no place left. It
 * must be closed before it goes: then nobody is in it. */
typedef struct sl__open_place sl__open_place;
sl__open_place *sl__open(sl__team_work *region);
void sl__close(sl__open_place *place);

/* ----------------------------------------------------------- threads.c -- */

/* Runs `body` on so many threads. */
void sl__on_team(int threads, void (*body)(void *data), void *data);

#endif

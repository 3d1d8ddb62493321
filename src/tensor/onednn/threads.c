/* SPDX-License-Identifier: MIT
 *
 * Threads. oneDNN runs on OpenMP; a second pool of ours would fight with its
 * workers, which spin between calls. So ours are the same: parallel regions
 * through the entry points that every OpenMP runtime of GCC's lineage exports
 * and that compilers call, which needs no compiler flag. A thread that calls in
 * has a team of its own, so two programs in two threads do not meet. */
#include "tensor/onednn/onednn.h"

#include <stdatomic.h>

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                   unsigned flags);
int omp_get_thread_num(void);
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
int omp_get_dynamic(void);
void omp_set_dynamic(int dynamic);
int omp_get_thread_limit(void);

/* oneDNN divides the work of a primitive when it is made, and trusts that the
 * team will be as large; so the runtime must not be free to grant less. */
sl__team sl__set_team(sl__team team)
{
    sl__team before = {omp_get_max_threads(), omp_get_dynamic()};
    if (before.threads != team.threads)
        omp_set_num_threads(team.threads);
    if (before.dynamic != team.dynamic)
        omp_set_dynamic(team.dynamic);
    return before;
}

int sl__thread_limit(void)
{
    return omp_get_thread_limit();
}

/* The share of one thread, from which others take once they are done with
 * theirs: a core may be slowed down by whoever else uses it. */
typedef struct share {
    _Alignas(64) atomic_llong next;
    int64_t end;
} share;

enum { SHARES_MAX = 64, CHUNKS = 8 };

struct region {
    sl__parallel_fn body;
    void *data;
    int64_t chunk;
    int share_count;
    share shares[SHARES_MAX];
};

/* What a chunk is does not depend on who takes it, so neither do results. */
static void run_shares(void *data)
{
    struct region *region = data;
    int worker = omp_get_thread_num();
    for (int i = 0; i < region->share_count; i++) {
        share *s = &region->shares[(worker + i) % region->share_count];
        for (;;) {
            int64_t from = atomic_fetch_add_explicit(&s->next, region->chunk,
                                                     memory_order_relaxed);
            if (from >= s->end)
                break;
            int64_t left = s->end - from;
            region->body(region->data, worker, from,
                         left < region->chunk ? s->end : from + region->chunk);
        }
    }
}

void sl__parallel(int threads, int64_t count, int64_t grain,
                  sl__parallel_fn body, void *data)
{
    /* All threads or one: GCC's runtime ends and starts threads whenever a
     * team is smaller or larger than the one before. */
    if (threads <= 1 || count < 2 || count < 2 * grain) {
        body(data, 0, 0, count);
        return;
    }
    struct region region;
    int shares = threads < SHARES_MAX ? threads : SHARES_MAX;
    int64_t chunk = count / shares / CHUNKS, least = (grain + 3) / 4;
    region.body = body;
    region.data = data;
    region.chunk = chunk > least ? chunk : least;
    region.share_count = shares;
    for (int i = 0; i < shares; i++) {
        atomic_init(&region.shares[i].next, count * i / shares);
        region.shares[i].end = count * (i + 1) / shares;
    }
    GOMP_parallel(run_shares, &region, (unsigned)threads, 0);
}

/* SPDX-License-Identifier: MIT
 *
 * Threads. A stage's threads are OpenMP's, started by the function that
 * compilers call for `omp parallel`, which GCC's and LLVM's runtimes export, so
 * no compiler flag is needed. Each thread that calls in has a team of its own,
 * so programs of two ranks do not interfere. */
#include "tensor/work_stealing.h"
#include "tensor/backends/cpu/runtime/shares.h"

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                   unsigned flags);
int omp_get_thread_num(void);
int omp_get_thread_limit(void);

int sl__thread_limit(void)
{
    return omp_get_thread_limit();
}

void sl__on_team(int threads, void (*body)(void *data), void *data)
{
    if (threads > 1)
        GOMP_parallel(body, data, (unsigned)threads, 0);
    else
        body(data);
}

static void run_shares(void *data)
{
    sl__team_work *region = data;
    int worker = region->share_count > 1 ? omp_get_thread_num() : 0;
    for (int i = 0; i < region->share_count; i++) {
        int share = (worker + i) % region->share_count;
        while (sl__take(region, share, worker))
            ;
    }
}

static void divide(sl__team_work *region, int threads, int64_t count,
                   int64_t grain)
{
    enum { CHUNKS = 16 };
    region->threads = threads;
    atomic_init(&region->thieves, 0);
    int shares = threads < SL__SHARES_MAX ? threads : SL__SHARES_MAX;
    int64_t chunk = count / shares / CHUNKS, least = (grain + 3) / 4;
    region->chunk = chunk > least ? chunk : least;
    region->share_count = shares;
    for (int i = 0; i < shares; i++) {
        atomic_init(&region->shares[i].next, count * i / shares);
        region->shares[i].end = count * (i + 1) / shares;
    }
}

static bool smallest;

void sl__steal_smallest(bool small)
{
    smallest = small;
}

static void run_parts(int threads, int thieves, int64_t count, int64_t grain,
                      sl__parallel_fn body, void *data)
{
    bool open = thieves > 0 && sl__someone_steals();
    if (open && smallest)
        grain = 1;
    /* All threads or one: GCC's runtime ends and starts threads whenever a team
     * is smaller or larger than the one before. */
    if ((threads <= 1 && !open) || count < 2 || count < 2 * grain) {
        body(data, 0, 0, count);
        return;
    }
    sl__team_work region;
    region.body = body;
    region.data = data;
    region.thieves_max = thieves < SL__THIEVES_MAX ? thieves : SL__THIEVES_MAX;
    divide(&region, threads > 1 ? threads : 1, count, grain);
    sl__open_place *place = open ? sl__open(&region) : NULL;
    sl__on_team(threads, run_shares, &region);
    sl__close(place);
}

void sl__parallel(int threads, int64_t count, int64_t grain,
                  sl__parallel_fn body, void *data)
{
    run_parts(threads, SL__THIEVES_MAX, count, grain, body, data);
}

void sl__parallel_few(int threads, int workers, int64_t count, int64_t grain,
                      sl__parallel_fn body, void *data)
{
    run_parts(threads, workers - threads, count, grain, body, data);
}

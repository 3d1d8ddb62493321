/* SPDX-License-Identifier: MIT
 *
 * Threads. oneDNN runs on OpenMP; a second pool of ours would fight with its
 * workers, which spin between calls. So ours are the same: parallel regions
 * through the entry points that every OpenMP runtime of GCC's lineage exports
 * and that compilers call, which needs no compiler flag. A thread that calls in
 * has a team of its own, so two programs in two threads do not meet. */
#include "tensor/onednn/onednn.h"

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                   unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
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

struct region {
    sl__parallel_fn body;
    void *data;
    int64_t count;
};

static void run_part(void *data)
{
    const struct region *region = data;
    int worker = omp_get_thread_num(), workers = omp_get_num_threads();
    int64_t from = region->count * worker / workers;
    int64_t to = region->count * (worker + 1) / workers;
    if (from < to)
        region->body(region->data, worker, from, to);
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
    struct region region = {body, data, count};
    GOMP_parallel(run_part, &region, (unsigned)threads, 0);
}

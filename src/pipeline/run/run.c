/* SPDX-License-Identifier: MIT
 *
 * Runs a function on every rank: on threads, or in this process where a
 * launcher has started one for each rank. Fails with the first failure of any
 * rank. */
#include "pipeline/run/runtime.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <pthread.h>

typedef struct worker {
    pthread_t thread;
    sl_comm *comm;
    sl_rank_fn rank;
    void *context;
} worker;

static void *work(void *argument)
{
    worker *own = argument;
    sl_status status = own->rank(own->comm, own->context);
    /* Ends the waits of other ranks for this one. */
    if (status)
        sl_comm_abort(own->comm, status, sl_error_text());
    return NULL;
}

/* Starts a thread for each rank, and waits for all. */
static void run_workers(sl_comm *const *ends, int ranks, sl_rank_fn rank,
                        void *context, worker *workers)
{
    int started = 0;
    for (; started < ranks; started++) {
        worker *own = &workers[started];
        *own =
            (worker){.comm = ends[started], .rank = rank, .context = context};
        if (pthread_create(&own->thread, NULL, work, own)) {
            sl_comm_abort(own->comm, SL_ENOMEM,
                          "no thread could be started for it");
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
}

sl_status sl_threads_run(int ranks, sl_rank_fn rank, void *context)
{
    SL__NEED(rank);
    sl_comm *ends[SL_COMM_MAX_RANKS];
    worker *workers = NULL;
    SL__TRY(sl_threads_create(ranks, ends));
    sl_status status = sl__alloc((size_t)ranks, sizeof *workers, &workers);
    if (!status) {
        run_workers(ends, ranks, rank, context, workers);
        status = sl_comm_progress(ends[0]);
    }
    free(workers);
    for (int i = 0; i < ranks; i++)
        sl_comm_destroy(ends[i]);
    return status;
}

/* If this rank has failed, makes all fail. Else waits for all: a run succeeds
 * on all ranks or on none. */
static sl_status finish(sl_comm *comm, sl_status status)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group all = sl__all_ranks(comm, ranks);
    const double for_ever_s = 1e9;
    return status ? sl__abort_ranks(comm, status, sl_error_text())
                  : sl_comm_barrier(comm, &all, SL__TAG_END, for_ever_s);
}

static sl_status run_as_one(int ranks, sl_rank_fn rank, void *context)
{
    sl_comm *comm;
    SL__TRY(sl_mpi_create(&comm));
    int size = sl_comm_size(comm);
    sl_status status =
        ranks == 0 || ranks == size
            ? rank(comm, context)
            : sl_fail(SL_EINVAL, "%d ranks, and there are %d", ranks, size);
    status = finish(comm, status);
    sl_comm_destroy(comm);
    return status;
}

sl_status sl_run(int ranks, sl_rank_fn rank, void *context)
{
    SL__NEED(rank);
    if (ranks < 0)
        return sl_fail(SL_EINVAL, "%d ranks", ranks);
    return sl_mpi_is_launched()
               ? run_as_one(ranks, rank, context)
               : sl_threads_run(ranks ? ranks : 1, rank, context);
}

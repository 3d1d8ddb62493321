/* SPDX-License-Identifier: MIT
 *
 * A function on every rank: ranks as threads, or this process as one of a job's.
 * Says what the first to fail said. */
#include "pipeline/run/runtime.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct worker {
    pthread_t thread;
    sl_comm *comm;
    sl_rank_fn rank;
    void *context;
    sl_status status;
    char sentence[SL__ERROR_TEXT_MAX];
} worker;

static void *work(void *argument)
{
    worker *own = argument;
    own->status = own->rank(own->comm, own->context);
    if (own->status) {
        snprintf(own->sentence, sizeof own->sentence, "%s", sl_error_text());
        /* Whoever waits for this rank need not. */
        if (!sl_comm_progress(own->comm))
            sl_comm_abort(own->comm, own->status, own->sentence);
    }
    return NULL;
}

/* The failure that all ranks heard of, else that of the lowest rank. */
static sl_status first_failure(worker *workers, int ranks)
{
    sl_status heard = sl_comm_progress(workers[0].comm);
    if (heard)
        return heard;
    for (int i = 0; i < ranks; i++) {
        if (workers[i].status)
            return sl__fail_lines(workers[i].status, workers[i].sentence);
    }
    return SL_OK;
}

sl_status sl_threads_run(int ranks, sl_rank_fn rank, void *context)
{
    SL__NEED(rank);
    sl_comm *ends[SL_COMM_MAX_RANKS];
    worker *workers = NULL;
    sl_status status = sl_threads_create(ranks, ends);
    if (status)
        return status;
    status = sl__alloc((size_t)ranks, sizeof *workers, &workers);
    int started = 0;
    for (; started < ranks && !status; started++) {
        workers[started] =
            (worker){.comm = ends[started], .rank = rank, .context = context};
        if (pthread_create(&workers[started].thread, NULL, work,
                           &workers[started])) {
            status = sl_fail(SL_ENOMEM, "rank %d gets no thread", started);
            sl_comm_abort(ends[0], status, "a rank gets no thread");
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    if (!status)
        status = first_failure(workers, ranks);
    free(workers);
    for (int i = 0; i < ranks; i++)
        sl_comm_destroy(ends[i]);
    return status;
}

/* A failure of this rank ends the waits of all others; where there is none, the
 * end comes for all or for none. */
static sl_status finish(sl_comm *comm, sl_status status)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group all = {ranks, sl_comm_size(comm)};
    const double for_ever_s = 1e9;
    char why[SL__REPORT_MAX];
    for (int i = 0; i < all.count; i++)
        ranks[i] = i;
    if (!status)
        return sl_comm_barrier(comm, &all, SL__TAG_END, for_ever_s);
    snprintf(why, sizeof why, "%s", sl_error_text());
    sl_status heard = sl_comm_progress(comm);
    return heard ? heard : sl__abort_ranks(comm, status, why);
}

static sl_status run_as_one(int ranks, sl_rank_fn rank, void *context)
{
    sl_comm *comm;
    sl_status status = sl_mpi_create(&comm);
    if (status)
        return status;
    int size = sl_comm_size(comm);
    status =
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

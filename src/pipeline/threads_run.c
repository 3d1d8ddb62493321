/* SPDX-License-Identifier: MIT
 *
 * Ranks as threads: starts them, waits for them, and says what the first to
 * fail said. */
#include "sluice/pipeline.h"

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

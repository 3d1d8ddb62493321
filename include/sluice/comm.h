/* SPDX-License-Identifier: MIT
 *
 * Messages between ranks, over a transport: threads of one process, or MPI.
 *
 *     sl_comm *ends[2];
 *     if (sl_threads_create(2, ends))
 *         fprintf(stderr, "%s\n", sl_error_text());
 *     else {
 *         sl_request sent, received;
 *         int there = 7, here = 0;
 *         sl_comm_send(ends[0], 1, 5, &there, sizeof there, &sent);
 *         sl_comm_recv(ends[1], 0, 5, &here, sizeof here, &received);
 *         sl_comm_wait(ends[1], &received, 1.0);
 *         sl_comm_wait(ends[0], &sent, 1.0);
 *         printf("%d\n", here);
 *         sl_comm_destroy(ends[0]);
 *         sl_comm_destroy(ends[1]);
 *     }
 *
 * Life cycle: each rank has its end of the transport (`sl_comm`); messages are
 * posted and waited for through requests, which are the caller's. Nothing is
 * allocated between creation and destruction, but for room that collectives
 * take when they are first called with a size.
 *
 * Thread rule: one thread at a time per end.
 *
 * When a rank fails it says so with sl_comm_abort; every call on every rank
 * then fails with that first failure's sentence, also those that wait.
 */
#ifndef SLUICE_COMM_H
#define SLUICE_COMM_H

#include "sluice/base.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------- transports -- */

typedef struct sl_comm sl_comm;

#define SL_COMM_MAX_RANKS 1024

/* Ranks as threads of this process: an end for each, in `out`, which has room
 * for `ranks`. All are to be destroyed, in any order. */
SL_API sl_status sl_threads_create(int ranks, sl_comm **out);

/* This process's rank of MPI_COMM_WORLD; initialises MPI where nobody has, and
 * then finalises it when destroyed, unless a rank has failed: others may be
 * gone then. All ranks call it, and all destroy. Fails with SL_ENOTFOUND where
 * Sluice was built without MPI. */
SL_API sl_status sl_mpi_create(sl_comm **out);

/* Whether a launcher, as mpirun, has started this process as one of several. */
SL_API bool sl_mpi_is_launched(void);

SL_API void sl_comm_destroy(sl_comm *comm);

SL_API int sl_comm_rank(const sl_comm *comm);
SL_API int sl_comm_size(const sl_comm *comm);
/* "threads" or "mpi". */
SL_API const char *sl_comm_name(const sl_comm *comm);

/* ------------------------------------------------------------- messages -- */

/* A message on its way. It must stay where it is, and the memory that it was
 * posted with, until it is complete or cancelled. */
typedef struct sl_request {
    double done_s; /* of what is complete: when, on the monotonic clock; over
                      MPI, when it was seen to be */
    bool posted;   /* and neither complete nor cancelled */
    void *staged;  /* of memory of a device: its copy in that of the process */
    /* The transport's. */
    void *transport[8];
} sl_request;

/* What every MPI has. */
#define SL_COMM_MAX_TAG (1 << 19)
/* The first that pipelines leave to their callers, up to SL_COMM_MAX_TAG - 2. */
#define SL_COMM_OWN_TAG 400000

/* Posts a message to another rank. It is complete when its memory may change.
 * Messages of one sender and tag arrive in the order they were posted; tags are from 0 to
 * SL_COMM_MAX_TAG - 1. */
SL_API sl_status sl_comm_send(sl_comm *comm, int peer, int tag,
                              const void *data, size_t bytes,
                              sl_request *request);

/* Posts a receive of exactly so many bytes into `buffer`. */
SL_API sl_status sl_comm_recv(sl_comm *comm, int peer, int tag, void *buffer,
                              size_t bytes, sl_request *request);

/* Whether a request is complete; never waits. A message of another size than
 * the receiver expects fails there with SL_EINVAL, as does a request that was
 * never posted, or was cancelled. */
SL_API sl_status sl_comm_test(sl_comm *comm, sl_request *request,
                              bool *out_done);

/* Waits for a request, at most so many seconds, then fails with SL_ETIME; the
 * request is still posted then. */
SL_API sl_status sl_comm_wait(sl_comm *comm, sl_request *request,
                              double timeout_s);

/* Takes a request back that will not complete any more, after a failure: its
 * memory is the caller's again, unless sl_comm_holds_memory. One that is not posted is left alone. */
SL_API void sl_comm_cancel(sl_comm *comm, sl_request *request);

/* Whether something could not be taken back: over MPI a message that the other
 * side has begun to move stays with MPI, and so does its memory, for good. */
SL_API bool sl_comm_holds_memory(const sl_comm *comm);

/* Moves messages along while the rank computes; fails where a rank has. */
SL_API sl_status sl_comm_progress(sl_comm *comm);

/* Ends all waits on all ranks with this status and sentence, unless another
 * failure came first. The rank's number goes before the sentence. */
SL_API void sl_comm_abort(sl_comm *comm, sl_status status,
                          const char *sentence);

/* What a rank is doing, in a few words, for those who wait for it. */
#define SL_COMM_ANSWER_MAX 200

/* Called when another rank asks: over threads by that one's thread, at any
 * time, so it may read only what never changes or is atomic. */
typedef void (*sl_answer_fn)(void *context, char *text, size_t size);

/* Sets what this rank answers, until what it reads goes away: then it is cleared,
 * where it is still that which has this context. */
SL_API void sl_comm_set_answer(sl_comm *comm, sl_answer_fn answer,
                               void *context);

SL_API void sl_comm_clear_answer(sl_comm *comm, const void *context);

/* Asks all ranks, each with room in `texts`, and waits so long at most. Whoever
 * does not answer, as a process that never comes back to its messages, leaves
 * its text empty. */
SL_API void sl_comm_ask(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                        double timeout_s);

/* ---------------------------------------------------------- collectives -- */

/* Some ranks, all of which call the same collectives with the same tag in the
 * same order. Sums are taken in the order of the group, so they are the same
 * bits on every rank, every time, over every transport. */
typedef struct sl_group {
    const int *ranks;
    int count;
} sl_group;

SL_API sl_status sl_comm_barrier(sl_comm *comm, const sl_group *group, int tag,
                                 double timeout_s);

/* Replaces `count` floats by their sums over the group. */
SL_API sl_status sl_comm_allreduce(sl_comm *comm, const sl_group *group,
                                   int tag, sl_dtype dtype, void *data,
                                   size_t count, double timeout_s);

/* Part i of the sums, of `count` numbers in all, into `out` of the group's i-th
 * rank. Parts are as even as can be, the first ones one longer:
 * sl_group_part. */
SL_API sl_status sl_comm_reduce_scatter(sl_comm *comm, const sl_group *group,
                                        int tag, sl_dtype dtype,
                                        const void *data, size_t count,
                                        void *out, double timeout_s);

/* The parts of every rank, in the order of the group, into `data`, where the
 * caller's own part lies already. */
SL_API sl_status sl_comm_allgather(sl_comm *comm, const sl_group *group,
                                   int tag, size_t number_bytes, void *data,
                                   size_t count, double timeout_s);

/* Where part `index` of `count` numbers begins, and how long it is. */
SL_API void sl_group_part(const sl_group *group, size_t count, int index,
                          size_t *out_first, size_t *out_length);

/* Something that all ranks were told, each for itself: a name and a value. */
typedef struct sl_comm_item {
    const char *name;
    const char *value;
} sl_comm_item;

/* Compares items over the group, which gives as many, in the same order, on
 * every rank. Where one differs, all ranks fail with SL_EINVAL and a sentence
 * that names it, two ranks, and what each of them was told. */
SL_API sl_status sl_comm_agree(sl_comm *comm, const sl_group *group, int tag,
                               const sl_comm_item *items, int count,
                               double timeout_s);

/* Copies `bytes` from the group's `root`-th rank to all others. */
SL_API sl_status sl_comm_broadcast(sl_comm *comm, const sl_group *group,
                                   int tag, int root, void *data, size_t bytes,
                                   double timeout_s);

#ifdef __cplusplus
}
#endif
#endif

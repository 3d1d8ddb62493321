/* SPDX-License-Identifier: MIT
 *
 * Messages between ranks, over a transport: threads of one process, or MPI.
 *
 *     sl_comm *ends[2];
 *     if (sl_threads_create(2, ends))
 *         fprintf(stderr, "%s\n", sl_error_text());
 *     else {
 *         sl_request sent, received;
 *         int given = 7, found = 0;
 *         sl_comm_send(ends[0], 1, 5, &given, sizeof given, &sent);
 *         sl_comm_recv(ends[1], 0, 5, &found, sizeof found, &received);
 *         sl_comm_wait(ends[1], &received, 1.0);
 *         sl_comm_wait(ends[0], &sent, 1.0);
 *         printf("%d\n", found);
 *         sl_comm_destroy(ends[0]);
 *         sl_comm_destroy(ends[1]);
 *     }
 *
 * Life cycle: each rank has its end of the transport (`sl_comm`); messages are
 * posted and waited for through requests, which are the caller's. Between
 * creation and destruction nothing is allocated, except for scratch memory of
 * collectives, when one is larger than all before.
 *
 * Thread rule: one thread at a time per end.
 *
 * A rank that fails calls sl_comm_abort; from then on every call on every rank
 * fails with the sentence of the first failure, also those that wait already.
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

/* Ranks as threads of this process. Writes an end for each to `out`, which has
 * room for `ranks`. Destroy all of them, in any order. */
SL_API sl_status sl_threads_create(int ranks, sl_comm **out);

/* This process's rank of MPI_COMM_WORLD. Initialises MPI if the program has
 * not; destroying the end then finalises it, unless a rank has failed, since
 * others may be gone. All ranks call it, and all destroy their end. Fails with
 * SL_ENOTFOUND if Sluice was built without MPI. */
SL_API sl_status sl_mpi_create(sl_comm **out);

/* Whether a launcher such as mpirun has started this process as one of
 * several. */
SL_API bool sl_mpi_is_launched(void);

SL_API void sl_comm_destroy(sl_comm *comm);

SL_API int sl_comm_rank(const sl_comm *comm);
SL_API int sl_comm_size(const sl_comm *comm);

/* ------------------------------------------------------------- messages -- */

/* A message on its way. The request, and the memory that it was posted with,
 * must stay where they are until it is complete or cancelled. */
typedef struct sl_request {
    /* When it was complete, on the monotonic clock; over MPI, when that was
     * noticed. */
    double done_s;
    bool posted;        /* posted, and neither complete nor cancelled */
    void *staged;       /* a host copy of a message of device memory */
    void *transport[10]; /* the transport's own */
} sl_request;

/* Tags are below this, as every MPI allows. */
#define SL_COMM_MAX_TAG (1 << 19)
/* Pipelines do not use the tags from this one to SL_COMM_MAX_TAG - 2. */
#define SL_COMM_OWN_TAG 400000

/* Posts a message to another rank. Its memory must not change until it is
 * complete. Messages of one sender and tag arrive in the order in which they
 * were posted. */
SL_API sl_status sl_comm_send(sl_comm *comm, int peer, int tag,
                              const void *data, size_t bytes,
                              sl_request *request);

/* Posts a receive of exactly `bytes` into `buffer`. */
SL_API sl_status sl_comm_recv(sl_comm *comm, int peer, int tag, void *buffer,
                              size_t bytes, sl_request *request);

/* Whether a request is complete; never waits. A message of another size than
 * the receiver expects fails there with SL_EINVAL, as does a request that was
 * never posted, or was cancelled. */
SL_API sl_status sl_comm_test(sl_comm *comm, sl_request *request,
                              bool *out_done);

/* Waits until a request is complete. After `timeout_s` it fails with SL_ETIME,
 * and the request stays posted. */
SL_API sl_status sl_comm_wait(sl_comm *comm, sl_request *request,
                              double timeout_s);

/* Cancels a request that, after a failure, will not complete. Its memory is the
 * caller's again, unless sl_comm_holds_memory. Does nothing if the request is
 * not posted. */
SL_API void sl_comm_cancel(sl_comm *comm, sl_request *request);

/* Whether a request could not be cancelled: over MPI, a message in transit
 * stays with MPI, and so does its memory, for good. */
SL_API bool sl_comm_holds_memory(const sl_comm *comm);

/* Makes progress with messages while a rank computes, which MPI needs. Fails if
 * a rank has failed. */
SL_API sl_status sl_comm_progress(sl_comm *comm);

/* Makes every wait on every rank fail with this status, and with this sentence
 * after the number of this rank. Does nothing if another failure came first. */
SL_API void sl_comm_abort(sl_comm *comm, sl_status status,
                          const char *sentence);

/* The longest answer to a rank that asks what this one is doing. */
#define SL_COMM_ANSWER_MAX 200

/* Writes the answer of a rank. Over threads the asking rank calls it, at any
 * time, so it may read only what never changes or is atomic. */
typedef void (*sl_answer_fn)(void *context, char *text, size_t size);

/* Sets how this rank answers. Clear it before its context is destroyed;
 * clearing does nothing if an answer with another context has been set
 * since. */
SL_API void sl_comm_set_answer(sl_comm *comm, sl_answer_fn answer,
                               void *context);
SL_API void sl_comm_clear_answer(sl_comm *comm, const void *context);

/* Asks all ranks what they are doing; `texts` has room for each. The text of a
 * rank that does not answer in time, or has no answer set, is empty. */
SL_API void sl_comm_ask(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                        double timeout_s);

/* ---------------------------------------------------------- collectives -- */

/* Some ranks, all of which call the same collectives with the same tag in the
 * same order. Sums are taken in the order of the group, so every rank gets the
 * same bits, every time, over every transport. */
typedef struct sl_group {
    const int *ranks;
    int count;
} sl_group;

SL_API sl_status sl_comm_barrier(sl_comm *comm, const sl_group *group, int tag,
                                 double timeout_s);

/* Replaces `count` numbers by their sums over the group. */
SL_API sl_status sl_comm_allreduce(sl_comm *comm, const sl_group *group,
                                   int tag, sl_dtype dtype, void *data,
                                   size_t count, double timeout_s);

/* Sums `count` numbers over the group, and writes part i of the sums to `out`
 * of the group's i-th rank. sl_group_part says which part that is. */
SL_API sl_status sl_comm_reduce_scatter(sl_comm *comm, const sl_group *group,
                                        int tag, sl_dtype dtype,
                                        const void *data, size_t count,
                                        void *out, double timeout_s);

/* Gathers the parts of all ranks, in the order of the group, in `data`. This
 * rank's own part must be there already, where sl_group_part says. */
SL_API sl_status sl_comm_allgather(sl_comm *comm, const sl_group *group,
                                   int tag, size_t number_bytes, void *data,
                                   size_t count, double timeout_s);

/* Where part `index` of `count` numbers begins, and how long it is. Parts
 * differ by one number at most, and the first ones are the longer. */
SL_API void sl_group_part(const sl_group *group, size_t count, int index,
                          size_t *out_first, size_t *out_length);

/* An option that must have the same value on all ranks. */
typedef struct sl_comm_item {
    const char *name;
    const char *value;
} sl_comm_item;

/* Compares options over the group; all ranks give the same names in the same
 * order. Where one differs, all ranks fail with SL_EINVAL and a sentence that
 * names the option, two ranks, and the value of each. */
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

/* SPDX-License-Identifier: MIT
 *
 * What a transport implements: messages, and news of failures. Unless a
 * transport has collectives of its own, they are made of messages, and so give
 * the same bits over every transport. */
#ifndef SL_COMM_COMM_H
#define SL_COMM_COMM_H

#include "base/device.h"
#include "sluice/comm.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct sl__transport {
    bool is_one_process; /* all ranks are threads of this process */
    /* The transport moves device memory itself, ordered by its stream. For
     * other transports, such messages are staged through host memory
     * (staging.c). */
    bool takes_device_memory;
    void (*destroy)(sl_comm *comm);
    sl_status (*send)(sl_comm *comm, sl__stream *stream, int peer, int tag,
                      const void *data, size_t bytes, sl_request *request);
    sl_status (*recv)(sl_comm *comm, sl__stream *stream, int peer, int tag,
                      void *buffer, size_t bytes, sl_request *request);
    void (*cancel)(sl_comm *comm, sl_request *request);
    sl_status (*test)(sl_comm *comm, sl_request *request, bool *out_done);
    /* Returns when the request is complete, a rank has failed, or the time is
     * over, whichever comes first. */
    void (*wait)(sl_comm *comm, sl_request *request, double timeout_s);
    sl_status (*progress)(sl_comm *comm);
    void (*abort)(sl_comm *comm, sl_status status, const char *sentence);
    /* Fails with the first failure of any rank that is known here. */
    sl_status (*check)(sl_comm *comm);
    /* Asks all other ranks; the text of a rank that does not answer stays as it
     * was. */
    void (*ask)(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                double timeout_s);
    /* The transport's own versions of sl__comm_allreduce and the others; NULL:
     * they are made of messages. They sum in the order of the group, as
     * `sl_group` promises. */
    sl_status (*allreduce)(sl_comm *comm, sl__stream *stream,
                           const sl_group *group, int tag, sl_dtype dtype,
                           void *data, size_t count, double timeout_s);
    sl_status (*reduce_scatter)(sl_comm *comm, sl__stream *stream,
                                const sl_group *group, int tag, sl_dtype dtype,
                                const void *data, size_t count, void *out,
                                double timeout_s);
    sl_status (*allgather)(sl_comm *comm, sl__stream *stream,
                           const sl_group *group, int tag, size_t size,
                           void *data, size_t count, double timeout_s);
} sl__transport;

/* Memory in which collectives sum. */
typedef struct sl__scratch {
    sl__stream *stream;
    void *data;
    size_t bytes;
} sl__scratch;

/* Useful work for a rank that waits. Returns when there is nothing left to do
 * or the wait is over; false: there was nothing to do. */
typedef bool (*sl__idle_fn)(void *context, bool (*is_over)(void *wait),
                            void *wait);

/* The part that the ends of all transports share; each transport's struct
 * begins with it. */
struct sl_comm {
    const sl__transport *transport;
    int rank;
    int size;
    sl_request *requests;      /* of collectives, two per rank */
    sl__scratch host_scratch;
    /* By stream: what has been recorded must stay where it is. */
    sl__scratch *scratches;
    size_t scratch_count, scratch_capacity;
    struct sl__staged *staged; /* unused copies, for reuse */
    bool holds_memory;         /* see sl_comm_holds_memory */
    bool has_lock;             /* `answer_lock` is initialised */
    /* Guards the next two members: threads of other ranks call `answer`. */
    pthread_mutex_t answer_lock;
    sl_answer_fn answer;
    void *answer_context;
    sl__idle_fn idle; /* or NULL */
    void *idle_context;
    bool crowded;      /* see sl__comm_set_crowded */
    atomic_int *crowd; /* how many ranks of the process are crowded; or NULL */
};

/* Whether all ranks are in this process. */
static inline bool sl__comm_is_one_process(const sl_comm *comm)
{
    return comm->transport->is_one_process;
}

/* The group of all ranks; writes their numbers to `ranks`. */
static inline sl_group sl__all_ranks(const sl_comm *comm,
                                     int ranks[SL_COMM_MAX_RANKS])
{
    for (int i = 0; i < comm->size; i++)
        ranks[i] = i;
    return (sl_group){ranks, comm->size};
}

/* Sets what this rank does while it waits. Only transports within one process
 * call it. */
void sl__comm_set_idle(sl_comm *comm, sl__idle_fn idle, void *context);
void sl__comm_clear_idle(sl_comm *comm, const void *context);

/* Sets whether this rank is crowded: other processes compete for its core.
 * While any rank of the process is, ranks that wait neither spin nor call their
 * idle function: that would take a core from the ranks that they wait for. */
void sl__comm_set_crowded(sl_comm *comm, bool crowded);

/* Writes this rank's answer to `text`, if it has one. */
void sl__comm_call_answer(sl_comm *comm, char text[SL_COMM_ANSWER_MAX]);

/* sl_comm_send and the others for device memory, ordered by its stream. */
sl_status sl__comm_send(sl_comm *comm, sl__stream *stream, int peer, int tag,
                        const void *data, size_t bytes, sl_request *request);
sl_status sl__comm_recv(sl_comm *comm, sl__stream *stream, int peer, int tag,
                        void *buffer, size_t bytes, sl_request *request);
sl_status sl__comm_allreduce(sl_comm *comm, sl__stream *stream,
                             const sl_group *group, int tag, sl_dtype dtype,
                             void *data, size_t count, double timeout_s);
sl_status sl__comm_reduce_scatter(sl_comm *comm, sl__stream *stream,
                                  const sl_group *group, int tag,
                                  sl_dtype dtype, const void *data,
                                  size_t count, void *out, double timeout_s);
sl_status sl__comm_allgather(sl_comm *comm, sl__stream *stream,
                             const sl_group *group, int tag, size_t size,
                             void *data, size_t count, double timeout_s);

/* Scratch memory for sums. sum_bytes: what a sum of `count` numbers takes on
 * each rank; reserve: makes sure that this much is there, and keeps it from
 * call to call; reserved: how much is there; forget: frees that of a device,
 * before its stream is closed. */
int64_t sl__comm_sum_bytes(int ranks, sl_dtype dtype, size_t count);
sl_status sl__comm_reserve(sl_comm *comm, sl__stream *stream, int64_t bytes);
int64_t sl__comm_reserved(const sl_comm *comm, const sl__stream *stream);
void sl__comm_forget(sl_comm *comm, const sl__stream *stream);

/* Gives all ranks the smallest and the largest of the group's values, in as few
 * rounds as a barrier. */
sl_status sl__comm_range(sl_comm *comm, const sl_group *group, int tag,
                         uint64_t value, double timeout_s, uint64_t *out_least,
                         uint64_t *out_most);

/* Initialises the part that all transports share; frees it. */
sl_status sl__comm_start(sl_comm *comm, const sl__transport *transport,
                         int rank, int size);
void sl__comm_end(sl_comm *comm);

#endif

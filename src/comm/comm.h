/* SPDX-License-Identifier: MIT
 *
 * The table behind which transports live. A transport carries messages and
 * failures; collectives are made of messages, so that they give the same bits
 * over every transport. */
#ifndef SL_COMM_COMM_H
#define SL_COMM_COMM_H

#include "base/device.h"
#include "sluice/comm.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct sl__transport {
    const char *name;
    bool is_one_process; /* all ranks are in it */
    /* Moves memory of devices, by their streams; else messages of such memory
     * are copied into that of the process on their way. */
    bool takes_device_memory;
    void (*destroy)(sl_comm *comm);
    sl_status (*send)(sl_comm *comm, sl__stream *stream, int peer, int tag,
                      const void *data, size_t bytes, sl_request *request);
    sl_status (*recv)(sl_comm *comm, sl__stream *stream, int peer, int tag,
                      void *buffer, size_t bytes, sl_request *request);
    void (*cancel)(sl_comm *comm, sl_request *request);
    sl_status (*test)(sl_comm *comm, sl_request *request, bool *out_done);
    /* Waits until the request is complete, a rank has failed or the time is
     * over, whichever is first; says nothing of which. */
    void (*wait)(sl_comm *comm, sl_request *request, double timeout_s);
    sl_status (*progress)(sl_comm *comm);
    void (*abort)(sl_comm *comm, sl_status status, const char *sentence);
    /* Fails with the first failure of any rank that is known of here. */
    sl_status (*check)(sl_comm *comm);
    /* Asks all other ranks; texts that nobody fills in stay as they are. */
    void (*ask)(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                double timeout_s);
    /* Collectives of its own, as sl__comm_allreduce and the others; NULL: they
     * are made of messages. */
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

/* Room that collectives have for sums, in the memory of a stream. */
typedef struct sl__scratch {
    sl__stream *stream;
    void *data;
    size_t bytes;
} sl__scratch;

/* What a rank does while it waits: something useful, until there is nothing or
 * the wait is over. False: there was nothing. */
typedef bool (*sl__idle_fn)(void *context, bool (*is_over)(void *wait),
                            void *wait);

/* What every end has; a transport's own begins with it. */
struct sl_comm {
    const sl__transport *transport;
    int rank;
    int size;
    sl_request *requests;      /* of collectives: two per rank */
    sl__scratch scratch[2];    /* of the process, and of a device */
    struct sl__staged *staged; /* copies that are free, to be used again */
    /* What this rank answers; guarded, for other threads may call it. */
    bool started; /* the lock is there */
    bool holds_memory;
    pthread_mutex_t answering;
    sl_answer_fn answer;
    void *answer_context;
    sl__idle_fn idle; /* or NULL */
    void *idle_context;
    bool crowded;
    atomic_int *crowd; /* how many ranks of the process are; or NULL */
};

/* Whether all ranks are in this process. */
static inline bool sl__comm_is_one_process(const sl_comm *comm)
{
    return comm->transport->is_one_process;
}

/* What this end does while it waits, where the transport has ranks in one
 * process; others never call it. */
void sl__comm_set_idle(sl_comm *comm, sl__idle_fn idle, void *context);
void sl__comm_clear_idle(sl_comm *comm, const void *context);

/* Says whether this rank's core is wanted by other processes too. While that of
 * any rank of the process is, ranks that wait neither spin nor do anything else:
 * they would take a core from those that they wait for. */
void sl__comm_set_crowded(sl_comm *comm, bool crowded);

/* The answer of an end, where it has one. */
void sl__comm_call_answer(sl_comm *comm, char text[SL_COMM_ANSWER_MAX]);

/* sl_comm_send and the others, on memory of a device, ordered by its stream. */
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

/* Bytes that summing so many numbers over so many ranks takes at each end;
 * making sure that they are there, in the memory of a stream; how many are; and
 * giving those of a device back before its stream is closed. */
int64_t sl__comm_sum_bytes(int ranks, sl_dtype dtype, size_t count);
sl_status sl__comm_reserve(sl_comm *comm, sl__stream *stream, int64_t bytes);
int64_t sl__comm_reserved(const sl_comm *comm, const sl__stream *stream);
void sl__comm_forget(sl_comm *comm, const sl__stream *stream);

/* The least and the largest of the group's values, which all ranks get: in as
 * few rounds as a barrier. */
sl_status sl__comm_range(sl_comm *comm, const sl_group *group, int tag,
                         uint64_t value, double timeout_s, uint64_t *out_least,
                         uint64_t *out_most);

/* Fills in what every end has; and frees it. */
sl_status sl__comm_start(sl_comm *comm, const sl__transport *transport,
                         int rank, int size);
void sl__comm_end(sl_comm *comm);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What is common to all transports: checks of arguments, staging of device
 * memory, and the answer of a rank that is asked what it is doing. */
#include "comm/comm.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"
#include "comm/staging.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sl_status sl__comm_start(sl_comm *comm, const sl__transport *transport,
                         int rank, int size)
{
    assert(rank >= 0 && rank < size && size <= SL_COMM_MAX_RANKS);
    comm->transport = transport;
    comm->rank = rank;
    comm->size = size;
    if (pthread_mutex_init(&comm->answer_lock, NULL))
        return sl_fail(SL_ENOMEM, "out of memory: a lock");
    comm->has_lock = true;
    return sl__alloc(2 * (size_t)size, sizeof *comm->requests, &comm->requests);
}

void sl__comm_end(sl_comm *comm)
{
    if (comm->has_lock)
        pthread_mutex_destroy(&comm->answer_lock);
    if (comm->holds_memory)
        return;
    free(comm->requests);
    free(comm->host_scratch.data);
    free(comm->scratches);
    sl__stage_clear(comm);
}

bool sl_mpi_is_launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") ||
           getenv("PMIX_RANK");
}

void sl_comm_destroy(sl_comm *comm)
{
    if (comm)
        comm->transport->destroy(comm);
}

int sl_comm_rank(const sl_comm *comm)
{
    return comm ? comm->rank : 0;
}

int sl_comm_size(const sl_comm *comm)
{
    return comm ? comm->size : 0;
}

static sl_status check_message(sl_comm *comm, int peer, int tag)
{
    if (peer < 0 || peer >= comm->size)
        return sl_fail(SL_EINVAL, "rank %d: there is no rank %d of %d",
                       comm->rank, peer, comm->size);
    if (peer == comm->rank)
        return sl_fail(SL_EINVAL, "rank %d: a message to itself", comm->rank);
    if (tag < 0 || tag >= SL_COMM_MAX_TAG)
        return sl_fail(SL_EINVAL, "rank %d: tag %d, expected 0 to %d",
                       comm->rank, tag, SL_COMM_MAX_TAG - 1);
    return comm->transport->check(comm);
}

/* Whether a message must be staged through host memory. */
static bool is_staged(const sl_comm *comm, const sl__stream *stream,
                      size_t bytes)
{
    return bytes && !sl__is_host(stream) &&
           !comm->transport->takes_device_memory;
}

sl_status sl__comm_send(sl_comm *comm, sl__stream *stream, int peer, int tag,
                        const void *data, size_t bytes, sl_request *request)
{
    SL__TRY(check_message(comm, peer, tag));
    memset(request, 0, sizeof *request);
    if (is_staged(comm, stream, bytes))
        SL__TRY(sl__stage_send(comm, stream, &data, bytes, request));
    sl_status status =
        comm->transport->send(comm, stream, peer, tag, data, bytes, request);
    request->posted = !status;
    return status;
}

sl_status sl__comm_recv(sl_comm *comm, sl__stream *stream, int peer, int tag,
                        void *buffer, size_t bytes, sl_request *request)
{
    SL__TRY(check_message(comm, peer, tag));
    memset(request, 0, sizeof *request);
    if (is_staged(comm, stream, bytes))
        SL__TRY(sl__stage_recv(comm, stream, &buffer, bytes, request));
    sl_status status =
        comm->transport->recv(comm, stream, peer, tag, buffer, bytes, request);
    request->posted = !status;
    return status;
}

sl_status sl_comm_send(sl_comm *comm, int peer, int tag, const void *data,
                       size_t bytes, sl_request *request)
{
    SL__NEED(comm, request);
    if (bytes)
        SL__NEED(data);
    return sl__comm_send(comm, &sl__host, peer, tag, data, bytes, request);
}

sl_status sl_comm_recv(sl_comm *comm, int peer, int tag, void *buffer,
                       size_t bytes, sl_request *request)
{
    SL__NEED(comm, request);
    if (bytes)
        SL__NEED(buffer);
    return sl__comm_recv(comm, &sl__host, peer, tag, buffer, bytes, request);
}

void sl_comm_cancel(sl_comm *comm, sl_request *request)
{
    if (!comm || !request)
        return;
    if (request->posted)
        comm->transport->cancel(comm, request);
    sl__stage_drop(comm, request);
    request->posted = false;
}

bool sl_comm_holds_memory(const sl_comm *comm)
{
    return comm && comm->holds_memory;
}

/* For a request that was never posted, or was cancelled: it cannot complete. */
static sl_status refuse_unposted(sl_comm *comm)
{
    SL__TRY(comm->transport->check(comm));
    return sl_fail(SL_EINVAL, "rank %d: the request is not posted", comm->rank);
}

sl_status sl_comm_test(sl_comm *comm, sl_request *request, bool *out_done)
{
    SL__NEED(comm, request, out_done);
    if (!request->posted && request->done_s == 0)
        return refuse_unposted(comm);
    SL__TRY(comm->transport->test(comm, request, out_done));
    if (!*out_done)
        return SL_OK;
    assert(request->done_s > 0);
    request->posted = false;
    return sl__stage_end(comm, request);
}

sl_status sl_comm_wait(sl_comm *comm, sl_request *request, double timeout_s)
{
    SL__NEED(comm, request);
    bool done = false;
    if (!(timeout_s >= 0))
        return sl_fail(SL_EINVAL, "rank %d: %g seconds to wait", comm->rank,
                       timeout_s);
    SL__TRY(sl_comm_test(comm, request, &done));
    if (done)
        return SL_OK;
    comm->transport->wait(comm, request, timeout_s);
    SL__TRY(sl_comm_test(comm, request, &done));
    if (done)
        return SL_OK;
    return sl_fail(SL_ETIME, "rank %d waited %g s for a message", comm->rank,
                   timeout_s);
}

sl_status sl_comm_progress(sl_comm *comm)
{
    SL__NEED(comm);
    return comm->transport->progress(comm);
}

/* ---------------------------------------------------- while a rank waits -- */

void sl__comm_set_idle(sl_comm *comm, sl__idle_fn idle, void *context)
{
    comm->idle = idle;
    comm->idle_context = context;
}

void sl__comm_clear_idle(sl_comm *comm, const void *context)
{
    if (comm->idle_context == context)
        sl__comm_set_idle(comm, NULL, NULL);
}

void sl__comm_set_crowded(sl_comm *comm, bool crowded)
{
    if (comm->crowd && crowded != comm->crowded)
        atomic_fetch_add(comm->crowd, crowded ? 1 : -1);
    comm->crowded = crowded;
}

/* -------------------------------------------------------------- asking -- */

void sl_comm_set_answer(sl_comm *comm, sl_answer_fn answer, void *context)
{
    if (!comm)
        return;
    pthread_mutex_lock(&comm->answer_lock);
    comm->answer = answer;
    comm->answer_context = context;
    pthread_mutex_unlock(&comm->answer_lock);
}

void sl_comm_clear_answer(sl_comm *comm, const void *context)
{
    if (!comm)
        return;
    pthread_mutex_lock(&comm->answer_lock);
    if (comm->answer_context == context) {
        comm->answer = NULL;
        comm->answer_context = NULL;
    }
    pthread_mutex_unlock(&comm->answer_lock);
}

void sl__comm_call_answer(sl_comm *comm, char text[SL_COMM_ANSWER_MAX])
{
    pthread_mutex_lock(&comm->answer_lock);
    if (comm->answer)
        comm->answer(comm->answer_context, text, SL_COMM_ANSWER_MAX);
    pthread_mutex_unlock(&comm->answer_lock);
}

void sl_comm_ask(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                 double timeout_s)
{
    if (!comm || !texts)
        return;
    for (int i = 0; i < comm->size; i++)
        texts[i][0] = '\0';
    sl__comm_call_answer(comm, texts[comm->rank]);
    comm->transport->ask(comm, texts, timeout_s);
}

void sl_comm_abort(sl_comm *comm, sl_status status, const char *sentence)
{
    if (!comm)
        return;
    char kept[SL__ERROR_TEXT_MAX];
    snprintf(kept, sizeof kept, "rank %d: %s", comm->rank,
             sentence ? sentence : sl_status_text(status));
    comm->transport->abort(comm, status ? status : SL_EINVAL, kept);
}

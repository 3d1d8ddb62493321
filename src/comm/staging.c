/* SPDX-License-Identifier: MIT
 *
 * Messages of device memory over a transport that only moves host memory: they
 * are copied through host memory on both sides. The copies' memory is kept for
 * later messages, so nothing is allocated once each size has been seen. */
#include "comm/staging.h"

#include "base/memory.h"
#include "base/try.h"

struct sl__staged {
    struct sl__staged *next;
    sl__stream *stream;
    void *memory; /* of a receive: its destination */
    size_t bytes;
    const sl__buffer_ops
        *buffers; /* which `data` is of; the stream may be gone */
    void *data;
};

/* On a GPU the copies are pinned: it moves them itself. */
static sl_status make(sl__stream *stream, size_t bytes, sl__staged **out)
{
    sl__staged *made;
    SL__TRY(sl__alloc(1, sizeof *made, &made));
    made->bytes = bytes;
    made->buffers = stream->buffers;
    sl_status status =
        sl__device_allocate_host(stream, (int64_t)bytes, &made->data);
    if (status)
        free(made);
    else
        *out = made;
    return status;
}

static sl_status take(sl_comm *comm, sl__stream *stream, size_t bytes,
                      sl__staged **out)
{
    for (sl__staged **at = &comm->staged; *at; at = &(*at)->next) {
        if ((*at)->bytes != bytes || (*at)->buffers != stream->buffers)
            continue;
        *out = *at;
        *at = (*at)->next;
        return SL_OK;
    }
    return make(stream, bytes, out);
}

sl_status sl__stage_send(sl_comm *comm, sl__stream *stream, const void **data,
                         size_t bytes, sl_request *request)
{
    sl__staged *copy;
    SL__TRY(take(comm, stream, bytes, &copy));
    request->staged = copy;
    copy->memory = NULL;
    SL__TRY(sl__device_read(stream, copy->data, *data, bytes));
    *data = copy->data;
    return SL_OK;
}

sl_status sl__stage_recv(sl_comm *comm, sl__stream *stream, void **buffer,
                         size_t bytes, sl_request *request)
{
    sl__staged *copy;
    SL__TRY(take(comm, stream, bytes, &copy));
    request->staged = copy;
    copy->stream = stream;
    copy->memory = *buffer;
    *buffer = copy->data;
    return SL_OK;
}

sl_status sl__stage_end(sl_comm *comm, sl_request *request)
{
    sl__staged *copy = request->staged;
    if (!copy)
        return SL_OK;
    request->staged = NULL;
    copy->next = comm->staged;
    comm->staged = copy;
    return copy->memory ? sl__device_write(copy->stream, copy->memory,
                                           copy->data, copy->bytes)
                        : SL_OK;
}

void sl__stage_drop(sl_comm *comm, sl_request *request)
{
    sl__staged *copy = request->staged;
    if (!copy || comm->holds_memory)
        return;
    copy->memory = NULL;
    (void)sl__stage_end(comm, request);
}

void sl__stage_clear(sl_comm *comm)
{
    while (comm->staged) {
        sl__staged *next = comm->staged->next;
        sl__device_release_host(comm->staged->buffers, comm->staged->data);
        free(comm->staged);
        comm->staged = next;
    }
}

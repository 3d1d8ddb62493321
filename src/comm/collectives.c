/* SPDX-License-Identifier: MIT
 *
 * Collectives made of messages. An allreduce is a reduce-scatter, in which each
 * rank sums one part in the order of the group, and an allgather: every number
 * goes over the wire twice, and the bits depend on the group alone. */
#include "comm/comm.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>

/* A collective in progress. */
typedef struct collective {
    sl_comm *comm;
    sl__stream *stream; /* of the memory that is moved and summed */
    const sl_group *group;
    int tag;
    int own;         /* index of this rank in the group */
    double deadline; /* seconds */
} collective;

static sl_status start(sl_comm *comm, sl__stream *stream, const sl_group *group,
                       int tag, double timeout_s, collective *out)
{
    *out =
        (collective){comm, stream, group, tag, -1, sl__seconds() + timeout_s};
    if (group->count > 0 && !group->ranks)
        return sl_fail(SL_EINVAL, "rank %d: a group without its ranks",
                       comm->rank);
    for (int i = 0; i < group->count; i++) {
        int rank = group->ranks[i];
        if (rank < 0 || rank >= comm->size)
            return sl_fail(SL_EINVAL, "rank %d: a group with rank %d of %d",
                           comm->rank, rank, comm->size);
        if (rank != comm->rank)
            continue;
        if (out->own >= 0)
            return sl_fail(SL_EINVAL, "rank %d is in its group twice", rank);
        out->own = i;
    }
    if (out->own < 0)
        return sl_fail(SL_EINVAL, "rank %d is not in the group", comm->rank);
    /* There are requests for all ranks: a larger group has a rank twice. */
    if (group->count > comm->size)
        return sl_fail(SL_EINVAL, "a group of %d ranks of %d", group->count,
                       comm->size);
    return SL_OK;
}

/* Cancels what a failed collective has posted; forwards its status. */
static sl_status end(sl_comm *comm, sl_status status)
{
    for (int i = 0; i < 2 * comm->size && status; i++)
        sl_comm_cancel(comm, &comm->requests[i]);
    return status;
}

static sl_request *sending(const collective *c, int member)
{
    return &c->comm->requests[member];
}

static sl_request *receiving(const collective *c, int member)
{
    return &c->comm->requests[c->comm->size + member];
}

static sl_status send_to(const collective *c, int member, const void *data,
                         size_t bytes)
{
    assert(member != c->own && !sending(c, member)->posted);
    return sl__comm_send(c->comm, c->stream, c->group->ranks[member], c->tag,
                         data, bytes, sending(c, member));
}

static sl_status recv_from(const collective *c, int member, void *data,
                           size_t bytes)
{
    assert(member != c->own && !receiving(c, member)->posted);
    return sl__comm_recv(c->comm, c->stream, c->group->ranks[member], c->tag,
                         data, bytes, receiving(c, member));
}

static sl_status wait_for(const collective *c, sl_request *request)
{
    double left = c->deadline - sl__seconds();
    return sl_comm_wait(c->comm, request, left > 0 ? left : 0);
}

/* Waits until all sends are complete, so that their memory may change. */
static sl_status wait_for_sends(const collective *c)
{
    for (int i = 0; i < c->group->count; i++) {
        if (i != c->own)
            SL__TRY(wait_for(c, sending(c, i)));
    }
    return SL_OK;
}

void sl_group_part(const sl_group *group, size_t count, int index,
                   size_t *out_first, size_t *out_length)
{
    size_t first = 0, length = 0;
    if (group && index >= 0 && index < group->count) {
        size_t ranks = (size_t)group->count, i = (size_t)index;
        size_t even = count / ranks, more = count % ranks;
        first = even * i + (i < more ? i : more);
        length = even + (i < more);
    }
    if (out_first)
        *out_first = first;
    if (out_length)
        *out_length = length;
}

/* Bytes of the longest part that a rank may have. */
static size_t part_bytes(size_t ranks, sl_dtype dtype, size_t count)
{
    size_t longest = (count + ranks - 1) / ranks;
    return (longest * sl_dtype_bytes(dtype) + 64) / 64 * 64;
}

int64_t sl__comm_sum_bytes(int ranks, sl_dtype dtype, size_t count)
{
    size_t all = (size_t)ranks;
    return (int64_t)(all * part_bytes(all, dtype, count));
}

/* The scratch of a stream; NULL: there is none yet. */
static sl__scratch *scratch_of(const sl_comm *comm, const sl__stream *stream)
{
    if (sl__is_host(stream))
        return (sl__scratch *)&comm->host_scratch;
    for (size_t i = 0; i < comm->scratch_count; i++) {
        if (comm->scratches[i].stream == stream)
            return &comm->scratches[i];
    }
    return NULL;
}

static void free_scratch(sl__scratch *scratch)
{
    if (scratch->data)
        scratch->stream->buffers->release(scratch->stream, scratch->data);
    *scratch = (sl__scratch){0};
}

static sl_status add_scratch(sl_comm *comm, sl__scratch **out)
{
    SL__TRY(sl__grow(&comm->scratches, &comm->scratch_capacity,
                     comm->scratch_count + 1, sizeof *comm->scratches));
    *out = &comm->scratches[comm->scratch_count++];
    **out = (sl__scratch){0};
    return SL_OK;
}

sl_status sl__comm_reserve(sl_comm *comm, sl__stream *stream, int64_t bytes)
{
    sl__scratch *scratch = scratch_of(comm, stream);
    void *wider;
    assert(bytes >= 0);
    if (sl__is_host(stream))
        stream = &sl__host; /* sl__host outlives every end. */
    if (scratch && (size_t)bytes <= scratch->bytes)
        return SL_OK;
    if (!scratch)
        SL__TRY(add_scratch(comm, &scratch));
    SL__TRY(sl__device_allocate(stream, "sums over ranks", bytes, &wider));
    free_scratch(scratch);
    *scratch = (sl__scratch){stream, wider, (size_t)bytes};
    return SL_OK;
}

int64_t sl__comm_reserved(const sl_comm *comm, const sl__stream *stream)
{
    const sl__scratch *scratch = scratch_of(comm, stream);
    return scratch ? (int64_t)scratch->bytes : 0;
}

void sl__comm_forget(sl_comm *comm, const sl__stream *stream)
{
    sl__scratch *scratch = scratch_of(comm, stream);
    if (!scratch || sl__is_host(stream))
        return;
    free_scratch(scratch);
    *scratch = comm->scratches[--comm->scratch_count];
}

/* -------------------------------------------------------------- barrier -- */

/* Sends to the rank `distance` places after this one, and receives from the one
 * as far before it. With distances 1, 2, 4, ... every rank has heard of every
 * other, directly or not, after the last. */
static sl_status exchange(const collective *c, int distance, const void *sent,
                          void *received, size_t bytes)
{
    int count = c->group->count;
    int to = (c->own + distance) % count;
    int from = (c->own - distance + count) % count;
    SL__TRY(send_to(c, to, sent, bytes));
    SL__TRY(recv_from(c, from, received, bytes));
    SL__TRY(wait_for(c, receiving(c, from)));
    return wait_for(c, sending(c, to));
}

sl_status sl_comm_barrier(sl_comm *comm, const sl_group *group, int tag,
                          double timeout_s)
{
    SL__NEED(comm, group);
    collective c;
    sl_status status = start(comm, &sl__host, group, tag, timeout_s, &c);
    for (int distance = 1; distance < group->count && !status; distance *= 2)
        status = exchange(&c, distance, NULL, NULL, 0);
    return end(comm, status);
}

sl_status sl__comm_range(sl_comm *comm, const sl_group *group, int tag,
                         uint64_t value, double timeout_s, uint64_t *out_least,
                         uint64_t *out_most)
{
    collective c;
    uint64_t own[2] = {value, value};
    SL__TRY(start(comm, &sl__host, group, tag, timeout_s, &c));
    for (int distance = 1; distance < group->count; distance *= 2) {
        const uint64_t sent[2] = {own[0], own[1]};
        uint64_t received[2];
        sl_status status = exchange(&c, distance, sent, received, sizeof sent);
        /* The arrays end their life here: nothing may stay posted. */
        if (status)
            return end(comm, status);
        own[0] = received[0] < own[0] ? received[0] : own[0];
        own[1] = received[1] > own[1] ? received[1] : own[1];
    }
    *out_least = own[0];
    *out_most = own[1];
    return SL_OK;
}

/* ----------------------------------------------------------------- sums -- */

/* Posts the messages of a reduce-scatter: to each rank its part of `from`, and
 * from each rank this rank's part, `stride` bytes apart in `to`. */
static sl_status post_parts(const collective *c, const char *from, char *to,
                            size_t stride, size_t size, size_t count)
{
    size_t first, length;
    sl_group_part(c->group, count, c->own, &first, &length);
    for (int i = 0; i < c->group->count; i++) {
        if (i != c->own)
            SL__TRY(recv_from(c, i, to + stride * (size_t)i, length * size));
    }
    for (int i = 0; i < c->group->count; i++) {
        sl_group_part(c->group, count, i, &first, &length);
        if (i != c->own)
            SL__TRY(send_to(c, i, from + first * size, length * size));
    }
    return SL_OK;
}

/* Sends every other rank its part of `data`, and sums this rank's part, in the
 * order of the group, into `out`, which may be that part of `data` itself. */
static sl_status reduce_scatter(const collective *c, sl_dtype dtype,
                                const void *data, size_t count, void *out)
{
    size_t size = sl_dtype_bytes(dtype), first, length;
    const char *from = data;
    int ranks = c->group->count;
    sl_group_part(c->group, count, c->own, &first, &length);
    /* Scratch has this rank's part once from each rank of the group. */
    size_t stride = part_bytes((size_t)ranks, dtype, count);
    SL__TRY(sl__comm_reserve(c->comm, c->stream,
                             sl__comm_sum_bytes(ranks, dtype, count)));
    char *scratch = scratch_of(c->comm, c->stream)->data;
    assert(length * size <= stride);
    SL__TRY(post_parts(c, from, scratch, stride, size, count));
    if (length)
        SL__TRY(sl__device_copy(c->stream, scratch + stride * (size_t)c->own,
                                from + first * size, length * size));
    for (int i = 0; i < ranks; i++) {
        if (i != c->own)
            SL__TRY(wait_for(c, receiving(c, i)));
        if (i > 0 && length)
            SL__TRY(sl__device_add(c->stream, dtype, scratch,
                                   scratch + stride * (size_t)i,
                                   (int64_t)length));
    }
    /* Sends may still be pending, but they read other parts of `data`. */
    if (length)
        SL__TRY(sl__device_copy(c->stream, out, scratch, length * size));
    return wait_for_sends(c);
}

static sl_status allgather(const collective *c, size_t size, void *data,
                           size_t count)
{
    size_t first, length;
    char *at = data;
    for (int i = 0; i < c->group->count; i++) {
        sl_group_part(c->group, count, i, &first, &length);
        if (i != c->own)
            SL__TRY(recv_from(c, i, at + first * size, length * size));
    }
    sl_group_part(c->group, count, c->own, &first, &length);
    for (int i = 0; i < c->group->count; i++) {
        if (i != c->own)
            SL__TRY(send_to(c, i, at + first * size, length * size));
    }
    for (int i = 0; i < c->group->count; i++) {
        if (i != c->own)
            SL__TRY(wait_for(c, receiving(c, i)));
    }
    return wait_for_sends(c);
}

static sl_status check_sum(sl_dtype dtype)
{
    return dtype == SL_F32 || dtype == SL_F64 || dtype == SL_BF16
               ? SL_OK
               : sl__refuse_dtype("a sum", dtype);
}

sl_status sl__comm_allreduce(sl_comm *comm, sl__stream *stream,
                             const sl_group *group, int tag, sl_dtype dtype,
                             void *data, size_t count, double timeout_s)
{
    collective c;
    size_t first, length, size = sl_dtype_bytes(dtype);
    SL__TRY(check_sum(dtype));
    SL__TRY(start(comm, stream, group, tag, timeout_s, &c));
    if (group->count == 1)
        return SL_OK;
    if (comm->transport->allreduce)
        return comm->transport->allreduce(comm, stream, group, tag, dtype, data,
                                          count, timeout_s);
    sl_group_part(group, count, c.own, &first, &length);
    sl_status status =
        reduce_scatter(&c, dtype, data, count, (char *)data + first * size);
    if (!status)
        status = allgather(&c, size, data, count);
    return end(comm, status);
}

sl_status sl__comm_reduce_scatter(sl_comm *comm, sl__stream *stream,
                                  const sl_group *group, int tag,
                                  sl_dtype dtype, const void *data,
                                  size_t count, void *out, double timeout_s)
{
    collective c;
    SL__TRY(check_sum(dtype));
    SL__TRY(start(comm, stream, group, tag, timeout_s, &c));
    if (comm->transport->reduce_scatter)
        return comm->transport->reduce_scatter(comm, stream, group, tag, dtype,
                                               data, count, out, timeout_s);
    return end(comm, reduce_scatter(&c, dtype, data, count, out));
}

sl_status sl__comm_allgather(sl_comm *comm, sl__stream *stream,
                             const sl_group *group, int tag, size_t size,
                             void *data, size_t count, double timeout_s)
{
    collective c;
    SL__TRY(start(comm, stream, group, tag, timeout_s, &c));
    if (comm->transport->allgather)
        return comm->transport->allgather(comm, stream, group, tag, size, data,
                                          count, timeout_s);
    return end(comm, allgather(&c, size, data, count));
}

sl_status sl_comm_allreduce(sl_comm *comm, const sl_group *group, int tag,
                            sl_dtype dtype, void *data, size_t count,
                            double timeout_s)
{
    SL__NEED(comm, group);
    if (count)
        SL__NEED(data);
    return sl__comm_allreduce(comm, &sl__host, group, tag, dtype, data, count,
                              timeout_s);
}

sl_status sl_comm_reduce_scatter(sl_comm *comm, const sl_group *group, int tag,
                                 sl_dtype dtype, const void *data, size_t count,
                                 void *out, double timeout_s)
{
    SL__NEED(comm, group);
    if (count)
        SL__NEED(data, out);
    return sl__comm_reduce_scatter(comm, &sl__host, group, tag, dtype, data,
                                   count, out, timeout_s);
}

sl_status sl_comm_allgather(sl_comm *comm, const sl_group *group, int tag,
                            size_t size, void *data, size_t count,
                            double timeout_s)
{
    SL__NEED(comm, group);
    if (count)
        SL__NEED(data);
    return sl__comm_allgather(comm, &sl__host, group, tag, size, data, count,
                              timeout_s);
}

/* The root sends to all others; each of these receives from it. */
static sl_status broadcast(const collective *c, int root, void *data,
                           size_t bytes)
{
    if (c->own != root) {
        SL__TRY(recv_from(c, root, data, bytes));
        return wait_for(c, receiving(c, root));
    }
    for (int i = 0; i < c->group->count; i++) {
        if (i != root)
            SL__TRY(send_to(c, i, data, bytes));
    }
    return wait_for_sends(c);
}

sl_status sl_comm_broadcast(sl_comm *comm, const sl_group *group, int tag,
                            int root, void *data, size_t bytes,
                            double timeout_s)
{
    SL__NEED(comm, group);
    if (bytes)
        SL__NEED(data);
    collective c;
    SL__TRY(start(comm, &sl__host, group, tag, timeout_s, &c));
    if (root < 0 || root >= group->count)
        return sl_fail(SL_EINVAL, "rank %d: the root is number %d of %d",
                       comm->rank, root, group->count);
    return end(comm, broadcast(&c, root, data, bytes));
}

/* SPDX-License-Identifier: MIT
 *
 * Collectives out of messages. A sum is scattered, each rank of the group
 * summing one part in the order of the group, and gathered: every number goes
 * over the wire twice, and the bits depend on the group alone. */
#include "comm/comm.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

/* A collective at work. */
typedef struct collective {
    sl_comm *comm;
    const sl_group *group;
    int tag;
    int own;         /* place of this rank in the group */
    double deadline; /* seconds */
} collective;

static sl_status start(sl_comm *comm, const sl_group *group, int tag,
                       double timeout_s, collective *out)
{
    *out = (collective){comm, group, tag, -1, sl__seconds() + timeout_s};
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
    /* Room for requests is that of all ranks; more are a rank twice. */
    if (group->count > comm->size)
        return sl_fail(SL_EINVAL, "a group of %d ranks of %d", group->count,
                       comm->size);
    return SL_OK;
}

/* Takes back what a collective that failed has posted; forwards its status. */
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
    return sl_comm_send(c->comm, c->group->ranks[member], c->tag, data, bytes,
                        sending(c, member));
}

static sl_status recv_from(const collective *c, int member, void *data,
                           size_t bytes)
{
    return sl_comm_recv(c->comm, c->group->ranks[member], c->tag, data, bytes,
                        receiving(c, member));
}

static sl_status wait_for(const collective *c, sl_request *request)
{
    double left = c->deadline - sl__seconds();
    return sl_comm_wait(c->comm, request, left > 0 ? left : 0);
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

static size_t number_bytes(sl_number number)
{
    return number == SL_NUMBER_F32 ? sizeof(float) : sizeof(double);
}

/* Room for a part of a sum, of the longest that a rank may have. */
static size_t part_bytes(size_t ranks, sl_number number, size_t count)
{
    size_t longest = (count + ranks - 1) / ranks;
    return (longest * number_bytes(number) + 64) / 64 * 64;
}

int64_t sl__comm_sum_bytes(int ranks, sl_number number, size_t count)
{
    size_t all = (size_t)ranks;
    return (int64_t)(all * part_bytes(all, number, count));
}

/* Room that lasts from call to call. */
sl_status sl__comm_reserve(sl_comm *comm, int64_t bytes)
{
    if ((size_t)bytes <= comm->scratch_bytes)
        return SL_OK;
    void *wider;
    sl_status status = sl__alloc((size_t)bytes, 1, &wider);
    if (status)
        return status;
    free(comm->scratch);
    comm->scratch = wider;
    comm->scratch_bytes = (size_t)bytes;
    return SL_OK;
}

static void add(sl_number number, const void *from, void *to, size_t count)
{
    if (number == SL_NUMBER_F32) {
        const float *x = from;
        float *y = to;
        for (size_t i = 0; i < count; i++)
            y[i] += x[i];
    } else {
        const double *x = from;
        double *y = to;
        for (size_t i = 0; i < count; i++)
            y[i] += x[i];
    }
}

/* Waits until everything that was sent may change again. */
static sl_status finish_sends(const collective *c)
{
    sl_status status = SL_OK;
    for (int i = 0; i < c->group->count && !status; i++) {
        if (i != c->own)
            status = wait_for(c, sending(c, i));
    }
    return status;
}

/* -------------------------------------------------------------- barrier -- */

sl_status sl_comm_barrier(sl_comm *comm, const sl_group *group, int tag,
                          double timeout_s)
{
    SL__NEED(comm, group);
    collective c;
    sl_status status = start(comm, group, tag, timeout_s, &c);
    /* In rounds, each to and from ranks twice as far. */
    for (int far = 1; far < group->count && !status; far *= 2) {
        int to = (c.own + far) % group->count;
        int from = (c.own - far + group->count) % group->count;
        status = send_to(&c, to, NULL, 0);
        if (!status)
            status = recv_from(&c, from, NULL, 0);
        if (!status)
            status = wait_for(&c, receiving(&c, from));
        if (!status)
            status = wait_for(&c, sending(&c, to));
    }
    return end(comm, status);
}

sl_status sl__comm_range(sl_comm *comm, const sl_group *group, int tag,
                         uint64_t value, double timeout_s, uint64_t *out_least,
                         uint64_t *out_most)
{
    collective c;
    uint64_t own[2] = {value, value}, theirs[2];
    sl_status status = start(comm, group, tag, timeout_s, &c);
    /* In rounds, as in a barrier: what is known of reaches twice as far with
     * each. */
    for (int far = 1; far < group->count && !status; far *= 2) {
        int to = (c.own + far) % group->count;
        int from = (c.own - far + group->count) % group->count;
        uint64_t said[2] = {own[0], own[1]};
        status = send_to(&c, to, said, sizeof said);
        if (!status)
            status = recv_from(&c, from, theirs, sizeof theirs);
        if (!status)
            status = wait_for(&c, receiving(&c, from));
        if (!status)
            status = wait_for(&c, sending(&c, to));
        /* What was posted leaves with this function. */
        if (status)
            return end(comm, status);
        own[0] = theirs[0] < own[0] ? theirs[0] : own[0];
        own[1] = theirs[1] > own[1] ? theirs[1] : own[1];
    }
    if (!status) {
        *out_least = own[0];
        *out_most = own[1];
    }
    return end(comm, status);
}

/* ----------------------------------------------------------------- sums -- */

/* Sends every other rank its part of `data`, and sums up one's own, in the
 * order of the group, into `out`, which may be that part of `data` itself. */
static sl_status scatter_sum(const collective *c, sl_number number,
                             const void *data, size_t count, void *out)
{
    size_t size = number_bytes(number), first, length;
    const char *from = data;
    int ranks = c->group->count;
    sl_group_part(c->group, count, c->own, &first, &length);
    /* One's own part, and those of the others behind it. */
    size_t part = part_bytes((size_t)ranks, number, count);
    sl_status status =
        sl__comm_reserve(c->comm, sl__comm_sum_bytes(ranks, number, count));
    char *scratch = c->comm->scratch;
    for (int i = 0; i < ranks && !status; i++) {
        if (i != c->own)
            status = recv_from(c, i, scratch + part * (size_t)i, length * size);
    }
    for (int i = 0; i < ranks && !status; i++) {
        size_t start_at, own;
        sl_group_part(c->group, count, i, &start_at, &own);
        if (i != c->own)
            status = send_to(c, i, from + start_at * size, own * size);
    }
    if (!status && length)
        memcpy(scratch + part * (size_t)c->own, from + first * size,
               length * size);
    for (int i = 0; i < ranks && !status; i++) {
        if (i != c->own)
            status = wait_for(c, receiving(c, i));
        if (!status && i > 0)
            add(number, scratch + part * (size_t)i, scratch, length);
    }
    /* What `out` overlaps may still be on its way to nobody: parts of others
     * are apart from one's own. */
    if (!status && length)
        memcpy(out, scratch, length * size);
    return status ? status : finish_sends(c);
}

static sl_status gather(const collective *c, size_t size, void *data,
                        size_t count)
{
    size_t first, length;
    char *at = data;
    sl_status status = SL_OK;
    for (int i = 0; i < c->group->count && !status; i++) {
        sl_group_part(c->group, count, i, &first, &length);
        if (i != c->own)
            status = recv_from(c, i, at + first * size, length * size);
    }
    sl_group_part(c->group, count, c->own, &first, &length);
    for (int i = 0; i < c->group->count && !status; i++) {
        if (i != c->own)
            status = send_to(c, i, at + first * size, length * size);
    }
    for (int i = 0; i < c->group->count && !status; i++) {
        if (i != c->own)
            status = wait_for(c, receiving(c, i));
    }
    return status ? status : finish_sends(c);
}

sl_status sl_comm_allreduce(sl_comm *comm, const sl_group *group, int tag,
                            sl_number number, void *data, size_t count,
                            double timeout_s)
{
    SL__NEED(comm, group);
    if (count)
        SL__NEED(data);
    collective c;
    size_t first, length, size = number_bytes(number);
    sl_status status = start(comm, group, tag, timeout_s, &c);
    if (status || group->count == 1)
        return status;
    sl_group_part(group, count, c.own, &first, &length);
    status = scatter_sum(&c, number, data, count, (char *)data + first * size);
    if (!status)
        status = gather(&c, size, data, count);
    return end(comm, status);
}

sl_status sl_comm_reduce_scatter(sl_comm *comm, const sl_group *group, int tag,
                                 sl_number number, const void *data,
                                 size_t count, void *out, double timeout_s)
{
    SL__NEED(comm, group);
    if (count)
        SL__NEED(data, out);
    collective c;
    sl_status status = start(comm, group, tag, timeout_s, &c);
    if (!status)
        status = scatter_sum(&c, number, data, count, out);
    return end(comm, status);
}

sl_status sl_comm_allgather(sl_comm *comm, const sl_group *group, int tag,
                            size_t size, void *data, size_t count,
                            double timeout_s)
{
    SL__NEED(comm, group);
    if (count)
        SL__NEED(data);
    collective c;
    sl_status status = start(comm, group, tag, timeout_s, &c);
    if (!status)
        status = gather(&c, size, data, count);
    return end(comm, status);
}

sl_status sl_comm_broadcast(sl_comm *comm, const sl_group *group, int tag,
                            int root, void *data, size_t bytes,
                            double timeout_s)
{
    SL__NEED(comm, group);
    if (bytes)
        SL__NEED(data);
    collective c;
    sl_status status = start(comm, group, tag, timeout_s, &c);
    if (!status && (root < 0 || root >= group->count))
        status = sl_fail(SL_EINVAL, "rank %d: the root is number %d of %d",
                         comm->rank, root, group->count);
    if (status)
        return status;
    if (c.own != root) {
        status = recv_from(&c, root, data, bytes);
        if (!status)
            status = wait_for(&c, receiving(&c, root));
        return end(comm, status);
    }
    for (int i = 0; i < group->count && !status; i++) {
        if (i != root)
            status = send_to(&c, i, data, bytes);
    }
    if (!status)
        status = finish_sends(&c);
    return end(comm, status);
}

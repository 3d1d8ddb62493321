/* SPDX-License-Identifier: MIT
 *
 * Sums the gradients of tied parameters: after a step, each stage that has the
 * parameter has the sum of all its gradients. */
#include "pipeline/run/runtime.h"

#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

/* The gradient of a tied parameter in one of its stages. */
static sl_status find_gradient(const sl_pipeline *pipeline, const sl_tie *tie,
                               int member, sl_port *out)
{
    return sl_stage_port(pipeline->owner_stages[tie->stages[member]],
                         SL_PORT_PARAMETER_GRADIENT, tie->stage_names[member],
                         out);
}

static sl_status clear_gradient(sl_pipeline *pipeline, const sl_tie *tie,
                                int member)
{
    sl_memory *memory = pipeline->owners[tie->stages[member]];
    sl_port port;
    SL__TRY(find_gradient(pipeline, tie, member, &port));
    const sl__shard own = sl__own_shard(pipeline, port.dtype, port.bytes);
    if (sl__port_memory(memory, &port, 0))
        return sl__memory_clear(memory, &port, own.first, own.bytes);
    memset(pipeline->scratch_host, 0, (size_t)port.bytes);
    return sl_memory_write(memory, &port, 0, pipeline->scratch_host,
                           (size_t)port.bytes);
}

sl_status sl__clear_tied_copies(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    for (int t = 0; t < count; t++) {
        for (int k = 1; k < ties[t].stage_count; k++) {
            if (sl__is_own(pipeline, ties[t].stages[k]))
                SL__TRY(clear_gradient(pipeline, &ties[t], k));
        }
    }
    return SL_OK;
}

int sl__tie_ranks(const sl_pipeline *pipeline, const sl_tie *tie,
                  int ranks[SL_COMM_MAX_RANKS])
{
    int count = 0;
    for (int k = 0; k < tie->stage_count; k++) {
        int rank = sl__comm_rank(pipeline, pipeline->rank_of[tie->stages[k]]);
        bool known = false;
        for (int i = 0; i < count; i++)
            known |= ranks[i] == rank;
        if (!known)
            ranks[count++] = rank;
    }
    return count;
}

/* Finds a gradient in device memory; one of callbacks is copied to `room`
 * first. */
static sl_status reach(const sl_pipeline *pipeline, const sl_tie *tie,
                       int member, char *room, sl_port *port, char **out)
{
    sl_memory *memory = pipeline->owners[tie->stages[member]];
    SL__TRY(find_gradient(pipeline, tie, member, port));
    *out = sl__port_memory(memory, port, 0);
    if (*out)
        return SL_OK;
    assert(room && pipeline->scratch_host);
    *out = room;
    SL__TRY(sl_memory_read(memory, port, 0, pipeline->scratch_host,
                           (size_t)port->bytes));
    return sl__device_write(pipeline->stream, room, pipeline->scratch_host,
                            (size_t)port->bytes);
}

/* Writes the sum to the gradient of a stage of this rank. */
static sl_status write_sum(const sl_pipeline *pipeline, const sl_tie *tie,
                           int member, sl__shard part, const char *sum)
{
    sl_memory *memory = pipeline->owners[tie->stages[member]];
    sl_port port;
    SL__TRY(find_gradient(pipeline, tie, member, &port));
    char *own = sl__port_memory(memory, &port, 0);
    if (own == sum)
        return SL_OK;
    if (own)
        return sl__device_copy(pipeline->stream, own + part.first,
                               sum + part.first, part.bytes);
    SL__TRY(sl__device_read(pipeline->stream, pipeline->scratch_host, sum,
                            (size_t)port.bytes));
    return sl_memory_write(memory, &port, 0, pipeline->scratch_host,
                           (size_t)port.bytes);
}

/* Adds the gradients of all stages of this rank to that of the first,
 * all-reduces the result over ranks, and writes it to all stages of this rank.
 * With shards, only this replica's shard is summed: the rest was freed. */
static sl_status sum_tie(sl_pipeline *pipeline, const sl_tie *tie, int tag)
{
    int ranks[SL_COMM_MAX_RANKS];
    char *sum = NULL;
    const sl__shard part = sl__own_shard(pipeline, tie->dtype, tie->bytes);
    int64_t count = (int64_t)(part.bytes / sl_dtype_bytes(tie->dtype));
    for (int k = 0; k < tie->stage_count; k++) {
        char *own, *room = pipeline->scratch;
        sl_port port;
        if (!sl__is_own(pipeline, tie->stages[k]))
            continue;
        if (sum && room)
            room += sl__aligned(tie->bytes);
        SL__TRY(reach(pipeline, tie, k, room, &port, &own));
        if (sum)
            SL__TRY(sl__device_add(pipeline->stream, tie->dtype,
                                   sum + part.first, own + part.first, count));
        else
            sum = own;
    }
    if (!sum)
        return SL_OK;
    const sl_group group = {ranks, sl__tie_ranks(pipeline, tie, ranks)};
    SL__TRY(sl__comm_allreduce(pipeline->comm, pipeline->stream, &group, tag,
                               tie->dtype, sum + part.first, (size_t)count,
                               pipeline->options.timeout_s));
    for (int k = 0; k < tie->stage_count; k++) {
        if (sl__is_own(pipeline, tie->stages[k]))
            SL__TRY(write_sum(pipeline, tie, k, part, sum));
    }
    return SL_OK;
}

sl_status sl__sum_tied_gradients(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    for (int t = 0; t < count; t++)
        SL__TRY(sum_tie(pipeline, &ties[t], SL__TAG_TIES + t));
    return SL_OK;
}

/* Bytes of the largest tied gradient of callbacks of this rank. */
static int64_t called_bytes(const sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    int64_t bytes = 0;
    const sl_tie *ties = sl_model_ties(model, &count);
    for (int t = 0; t < count; t++) {
        for (int k = 0; k < ties[t].stage_count; k++) {
            int stage = ties[t].stages[k];
            if (sl__is_own(pipeline, stage) &&
                model->parts[stage].is_callbacks && ties[t].bytes > bytes)
                bytes = ties[t].bytes;
        }
    }
    return sl__aligned(bytes);
}

static int64_t losses_bytes(const sl_pipeline *pipeline)
{
    return sl__aligned((int64_t)sizeof(double) * pipeline->microbatches);
}

int64_t sl__scratch_bytes(const sl_pipeline *pipeline, const sl_model *model)
{
    return losses_bytes(pipeline) + 3 * called_bytes(pipeline, model);
}

sl_status sl__make_scratch(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    sl__stream *stream = pipeline->stream;
    int64_t called = called_bytes(pipeline, model);
    sl_model_ties(model, &count);
    if (count > SL__TAG_REPLICAS - SL__TAG_TIES)
        return sl_fail(SL_EINVAL, "%d tied parameters are too many", count);
    SL__TRY(sl__comm_reserve(pipeline->comm, stream,
                             sl__sum_bytes(pipeline, model)));
    if (pipeline->device_losses)
        return SL_OK;
    void *losses, *scratch;
    SL__TRY(
        sl__device_allocate(stream, "losses", losses_bytes(pipeline), &losses));
    pipeline->device_losses = losses;
    pipeline->scratch_bytes = sl__scratch_bytes(pipeline, model);
    if (!called)
        return SL_OK;
    SL__TRY(
        sl__device_allocate(stream, "tied gradients", 2 * called, &scratch));
    pipeline->scratch = scratch;
    return sl__alloc((size_t)called, 1, &pipeline->scratch_host);
}

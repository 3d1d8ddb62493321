/* SPDX-License-Identifier: MIT
 *
 * Parameters that several stages have: after a step each of these has the sum
 * of all their gradients. */
#include "pipeline/run/runtime.h"

#include "base/memory.h"
#include "comm/comm.h"
#include "tensor/program.h"

#include <string.h>

/* The gradient of a tied parameter in one of its stages. */
static sl_status find_gradient(const sl_pipeline *pipeline, const sl_tie *tie,
                               int member, sl_port *out)
{
    return sl_stage_port(pipeline->owner_stages[tie->stages[member]],
                         SL_PORT_PARAMETER_GRADIENT, tie->stage_names[member],
                         out);
}

static void add(sl_dtype dtype, const void *from, void *to, int64_t bytes)
{
    if (dtype == SL_F32) {
        for (int64_t i = 0; i < bytes / (int64_t)sizeof(float); i++)
            ((float *)to)[i] += ((const float *)from)[i];
    } else {
        for (int64_t i = 0; i < bytes / (int64_t)sizeof(double); i++)
            ((double *)to)[i] += ((const double *)from)[i];
    }
}

sl_status sl__part_ties(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    sl_status status = SL_OK;
    for (int t = 0; t < count && !status; t++) {
        for (int k = 1; k < ties[t].stage_count && !status; k++) {
            sl_port port;
            int stage = ties[t].stages[k];
            if (!sl__is_own(pipeline, stage))
                continue;
            status = find_gradient(pipeline, &ties[t], k, &port);
            sl__part_of own = sl__own_part(pipeline, port.dtype, port.bytes);
            if (status || sl__memory_clear(pipeline->owners[stage], &port,
                                           own.first, own.bytes))
                continue;
            memset(pipeline->scratch, 0, (size_t)port.bytes);
            status = sl_memory_write(pipeline->owners[stage], &port, 0,
                                     pipeline->scratch, (size_t)port.bytes);
        }
    }
    return status;
}

/* The ranks of a tie, in the order of its stages. */
static int list_ranks(const sl_pipeline *pipeline, const sl_tie *tie,
                      int *ranks)
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

/* Where a gradient lies; that of callbacks is copied to `room`. */
static sl_status reach(const sl_pipeline *pipeline, const sl_tie *tie,
                       int member, char *room, sl_port *port, char **out)
{
    sl_memory *memory = pipeline->owners[tie->stages[member]];
    sl_status status = find_gradient(pipeline, tie, member, port);
    if (status)
        return status;
    *out = sl__port_memory(memory, port, 0);
    if (*out)
        return SL_OK;
    *out = room;
    return sl_memory_read(memory, port, 0, room, (size_t)port->bytes);
}

/* Sums in the memory of the first stage that is here, over the others here and
 * then over ranks; all of them then get it. Where replicas keep parts, the part
 * of this one: the rest was given back. */
static sl_status join_tie(sl_pipeline *pipeline, const sl_tie *tie, int tag)
{
    int ranks[SL_COMM_MAX_RANKS];
    char *sum = NULL;
    const sl__part_of part = sl__own_part(pipeline, tie->dtype, tie->bytes);
    sl_port port;
    sl_status status = SL_OK;
    for (int k = 0; k < tie->stage_count && !status; k++) {
        char *own, *room = pipeline->scratch;
        if (!sl__is_own(pipeline, tie->stages[k]))
            continue;
        if (sum && room)
            room += tie->bytes;
        status = reach(pipeline, tie, k, room, &port, &own);
        if (!status && sum)
            add(tie->dtype, own + part.first, sum + part.first,
                (int64_t)part.bytes);
        else if (!status)
            sum = own;
    }
    if (status || !sum)
        return status;
    sl_group group = {ranks, list_ranks(pipeline, tie, ranks)};
    size_t size = sl_dtype_bytes(tie->dtype);
    status = sl_comm_allreduce(pipeline->comm, &group, tag,
                               sl__number_of(tie->dtype), sum + part.first,
                               part.bytes / size, pipeline->options.timeout_s);
    for (int k = 0; k < tie->stage_count && !status; k++) {
        sl_memory *memory = pipeline->owners[tie->stages[k]];
        if (!sl__is_own(pipeline, tie->stages[k]))
            continue;
        status = find_gradient(pipeline, tie, k, &port);
        if (status || sl__port_memory(memory, &port, 0) == sum)
            continue;
        if (!sl__memory_write_piece(memory, &port, part.first, sum + part.first,
                                    part.bytes))
            status = sl_memory_write(memory, &port, 0, sum, (size_t)port.bytes);
    }
    return status;
}

sl_status sl__join_ties(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    sl_status status = SL_OK;
    for (int t = 0; t < count && !status; t++)
        status = join_tie(pipeline, &ties[t], SL__TAG_TIES + t);
    return status;
}

int64_t sl__scratch_bytes(const sl_pipeline *pipeline, const sl_model *model)
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
    return 2 * bytes;
}

sl_status sl__make_scratch(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    int64_t bytes = sl__scratch_bytes(pipeline, model);
    sl_model_ties(model, &count);
    if (count > SL__TAG_REPLICAS - SL__TAG_TIES)
        return sl_fail(SL_EINVAL, "%d tied parameters are too many", count);
    sl_status status =
        sl__comm_reserve(pipeline->comm, sl__sum_bytes(pipeline, model));
    if (status || pipeline->scratch || !bytes)
        return status;
    status = sl__alloc((size_t)bytes, 1, &pipeline->scratch);
    if (!status)
        pipeline->scratch_bytes = bytes;
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Parameters that several stages have: after a step each of these has the sum
 * of all their gradients. */
#include "pipeline/runtime.h"

#include "base/memory.h"

#include <string.h>

static sl_number number_of(sl_dtype dtype)
{
    return dtype == SL_F64 ? SL_NUMBER_F64 : SL_NUMBER_F32;
}

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
        memset(pipeline->scratch, 0, (size_t)ties[t].bytes);
        for (int k = 1; k < ties[t].stage_count && !status; k++) {
            sl_port port;
            int stage = ties[t].stages[k];
            if (!sl__is_own(pipeline, stage))
                continue;
            status = find_gradient(pipeline, &ties[t], k, &port);
            if (!status)
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

static sl_status join_tie(sl_pipeline *pipeline, const sl_tie *tie, int tag)
{
    int ranks[SL_COMM_MAX_RANKS];
    char *sum = pipeline->scratch, *own = sum + tie->bytes;
    sl_status status = SL_OK;
    int here = 0;
    for (int k = 0; k < tie->stage_count && !status; k++) {
        sl_port port;
        if (!sl__is_own(pipeline, tie->stages[k]))
            continue;
        status = find_gradient(pipeline, tie, k, &port);
        if (!status)
            status = sl_memory_read(pipeline->owners[tie->stages[k]], &port, 0,
                                    here ? own : sum, (size_t)port.bytes);
        if (!status && here++)
            add(tie->dtype, own, sum, tie->bytes);
    }
    if (status || !here)
        return status;
    sl_group group = {ranks, list_ranks(pipeline, tie, ranks)};
    size_t size = sl_dtype_bytes(tie->dtype);
    status = sl_comm_allreduce(
        pipeline->comm, &group, tag, number_of(tie->dtype), sum,
        (size_t)tie->bytes / size, pipeline->options.timeout_s);
    for (int k = 0; k < tie->stage_count && !status; k++) {
        sl_port port;
        if (!sl__is_own(pipeline, tie->stages[k]))
            continue;
        status = find_gradient(pipeline, tie, k, &port);
        if (!status)
            status = sl_memory_write(pipeline->owners[tie->stages[k]], &port, 0,
                                     sum, (size_t)port.bytes);
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

sl_status sl__make_scratch(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    int64_t bytes = 1;
    const sl_tie *ties = sl_model_ties(model, &count);
    for (int t = 0; t < count; t++)
        bytes = ties[t].bytes > bytes ? ties[t].bytes : bytes;
    if (count > SL__TAG_REPLICAS - SL__TAG_TIES)
        return sl_fail(SL_EINVAL, "%d tied parameters are too many", count);
    if (pipeline->scratch)
        return SL_OK;
    return sl__alloc(2 * (size_t)bytes, 1, &pipeline->scratch);
}

/* SPDX-License-Identifier: MIT
 *
 * Replicas: pipelines side by side that train the same model, each on its own
 * data. Rank r of a pipeline communicates with rank r of all others.
 *
 * Without sharding every replica has all parameters of its stages, and
 * REDUCE_GRAD is an allreduce of the gradients. With sharding, where the
 * schedule has UNSHARD and RESHARD, a replica keeps a shard of each parameter
 * and gradient: UNSHARD gathers the parameters, RESHARD frees all but the
 * shard, REDUCE_GRAD is a reduce-scatter of the gradients.
 *
 * Sums of gradients are means over the replicas, because each microbatch's loss
 * is divided by the number of replicas (bind.c). */
#include "pipeline/run/runtime.h"

#include "base/arguments.h"
#include "base/try.h"

#include <assert.h>

/* The group of ranks that have the same stages. */
static sl_group peers_of(const sl_pipeline *pipeline, int *ranks)
{
    for (int i = 0; i < pipeline->options.replicas; i++)
        ranks[i] = i * pipeline->ranks + pipeline->rank;
    return (sl_group){ranks, pipeline->options.replicas};
}

/* UNSHARD, RESHARD or REDUCE_GRAD of one parameter, or its gradient. */
static sl_status run_on_port(sl_pipeline *pipeline, sl_action_kind kind,
                             sl_memory *memory, const sl_port *port, int tag)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group peers = peers_of(pipeline, ranks);
    assert(kind == SL_REDUCE_GRAD || pipeline->shards);
    char *data = sl__port_memory(memory, port, 0);
    if (!data)
        return sl_fail(SL_EINVAL, "'%.60s' is not in memory that Sluice holds",
                       port->name);
    size_t size = sl_dtype_bytes(port->dtype);
    size_t count = (size_t)port->bytes / size;
    double timeout_s = pipeline->options.timeout_s;
    sl__stream *stream = pipeline->stream;
    if (kind == SL_UNSHARD)
        return sl__comm_allgather(pipeline->comm, stream, &peers, tag, size,
                                  data, count, timeout_s);
    if (kind == SL_REDUCE_GRAD && !pipeline->shards)
        return sl__comm_allreduce(pipeline->comm, stream, &peers, tag,
                                  port->dtype, data, count, timeout_s);
    const sl__shard own = sl__own_shard(pipeline, port->dtype, port->bytes);
    if (kind == SL_REDUCE_GRAD)
        SL__TRY(sl__comm_reduce_scatter(pipeline->comm, stream, &peers, tag,
                                        port->dtype, data, count,
                                        data + own.first, timeout_s));
    return sl__memory_discard(memory, port, own.first, own.bytes);
}

sl__shard sl__own_shard(const sl_pipeline *pipeline, sl_dtype dtype,
                        int64_t bytes)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group peers = peers_of(pipeline, ranks);
    size_t size = sl_dtype_bytes(dtype), first, length;
    if (!pipeline->shards)
        return (sl__shard){0, (size_t)bytes};
    sl_group_part(&peers, (size_t)bytes / size, pipeline->replica, &first,
                  &length);
    return (sl__shard){first * size, length * size};
}

sl_status sl__count_others(const sl_pipeline *pipeline, const sl_stage *stage,
                           sl_port_kind kind, int64_t *out)
{
    int count = sl_stage_port_count(stage, kind);
    for (int i = 0; i < count; i++) {
        sl_port port;
        SL__TRY(sl_stage_port_at(stage, kind, i, &port));
        *out += port.bytes -
                (int64_t)sl__own_shard(pipeline, port.dtype, port.bytes).bytes;
    }
    return SL_OK;
}

static sl_status run_on_stage(sl_pipeline *pipeline, const sl_action *action)
{
    int stage = action->stage;
    const sl_stage *program_stage = pipeline->owner_stages[stage];
    sl_memory *memory = pipeline->owners[stage];
    sl_port_kind kind = action->kind == SL_REDUCE_GRAD
                            ? SL_PORT_PARAMETER_GRADIENT
                            : SL_PORT_PARAMETER;
    if (action->kind != SL_REDUCE_GRAD && !pipeline->shards)
        return SL_OK;
    int count = sl_stage_port_count(program_stage, kind);
    for (int i = 0; i < count; i++) {
        sl_port port;
        SL__TRY(sl_stage_port_at(program_stage, kind, i, &port));
        SL__TRY(run_on_port(pipeline, action->kind, memory, &port,
                            SL__TAG_REPLICAS + stage));
    }
    int64_t others = 0;
    if (action->kind == SL_UNSHARD)
        sl__memory_mark_written(memory);
    else
        SL__TRY(sl__count_others(pipeline, program_stage, kind, &others));
    if (pipeline->shards)
        sl__memory_set_discarded(memory, kind, others);
    return SL_OK;
}

sl_status sl__run_state(sl_pipeline *pipeline, const sl_action *action)
{
    const sl_action_function *custom = &pipeline->functions[action->kind];
    const sl_action_call call = {.action = *action,
                                 .stage = pipeline->owner_stages[action->stage],
                                 .memory = pipeline->owners[action->stage],
                                 .slot = -1,
                                 .options = SL_RUN_OPTIONS_INIT};
    assert(call.memory && sl__is_own(pipeline, action->stage));
    return custom->call ? custom->call(custom->context, &call, 1)
                        : run_on_stage(pipeline, action);
}

void sl__clear_replica_gradients(sl_pipeline *pipeline)
{
    /* With a custom function, the caller decides how gradients are reduced. */
    if (pipeline->replica > 0 && !pipeline->shards &&
        !pipeline->functions[SL_REDUCE_GRAD].call)
        sl_pipeline_zero_gradients(pipeline);
}

sl_status sl__descend_shard(sl_pipeline *pipeline, int stage, double rate)
{
    const sl_stage *program_stage = pipeline->owner_stages[stage];
    int count = sl_stage_port_count(program_stage, SL_PORT_PARAMETER_GRADIENT);
    if (count && sl__is_callbacks(program_stage))
        return sl_fail(SL_EINVAL, "this stage has no gradients here");
    for (int i = 0; i < count; i++) {
        sl_port port;
        SL__TRY(sl_stage_port_at(program_stage, SL_PORT_PARAMETER_GRADIENT, i,
                                 &port));
        size_t size = sl_dtype_bytes(port.dtype);
        const sl__shard own = sl__own_shard(pipeline, port.dtype, port.bytes);
        SL__TRY(sl__memory_descend_part(pipeline->owners[stage], &port,
                                        own.first / size, own.bytes / size,
                                        rate));
    }
    return SL_OK;
}

/* Sluice does not hold the parameters of a stage of callbacks: only custom
 * functions can reduce their gradients, or shard them. */
sl_status sl__check_replicas(const sl_pipeline *pipeline)
{
    const sl_action_function *functions = pipeline->functions;
    bool known = functions[SL_REDUCE_GRAD].call &&
                 (!pipeline->shards ||
                  (functions[SL_UNSHARD].call && functions[SL_RESHARD].call));
    for (int s = 0; s < pipeline->stages && !known; s++) {
        const sl_stage *stage = pipeline->owner_stages[s];
        if (stage && pipeline->options.replicas > 1 &&
            sl__is_callbacks(stage) &&
            sl_stage_port_count(stage, SL_PORT_PARAMETER) > 0)
            return sl_fail(SL_EINVAL,
                           "stage %d is callbacks: give functions for UNSHARD, "
                           "RESHARD and REDUCE_GRAD, or no replicas",
                           s);
    }
    return SL_OK;
}

/* ------------------------------------------------------- all of a rank's -- */

static sl_status run_on_all(sl_pipeline *pipeline, sl_action_kind kind)
{
    sl_status status = SL_OK;
    for (int i = 0; i < pipeline->own_count && !status; i++) {
        const sl_action action =
            sl_action_make(kind, pipeline->own_stages[i], 0);
        if (pipeline->owners[action.stage])
            status = sl__run_state(pipeline, &action);
    }
    return status ? sl__abort_pipeline(pipeline, status) : SL_OK;
}

sl_status sl_pipeline_unshard(sl_pipeline *pipeline)
{
    SL__NEED(pipeline);
    return run_on_all(pipeline, SL_UNSHARD);
}

sl_status sl_pipeline_reshard(sl_pipeline *pipeline)
{
    SL__NEED(pipeline);
    return run_on_all(pipeline, SL_RESHARD);
}

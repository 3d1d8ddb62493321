/* SPDX-License-Identifier: MIT
 *
 * The executor: runs a list of instructions in order. A failure is broadcast to
 * all ranks, with the action in which it happened.
 *
 * Requires: a list of bind.c, in which every address, size, peer and tag is
 * set. Allocates nothing. */
#include "pipeline/run/runtime.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/try.h"
#include "tensor/program.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A seed for each microbatch of each replica (splitmix64). */
static uint64_t mix(uint64_t seed, int microbatch, int replica)
{
    uint64_t place = (uint64_t)replica << 32 | (uint64_t)microbatch;
    uint64_t x = seed + 0x9e3779b97f4a7c15u * (place + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The arguments of a custom function, for an instruction. */
static sl_action_call call_of(const sl_pipeline *pipeline,
                              const sl__instruction *i,
                              const sl__binding *binding, uint64_t seed)
{
    return (sl_action_call){
        .action = i->action,
        .stage = i->u.run.program_stage,
        .memory = i->u.run.memory,
        .program = i->u.run.program,
        .slot = i->u.run.slot,
        .options = {mix(seed, i->action.microbatch, pipeline->replica),
                    binding->scales[i->action.microbatch]}};
}

sl_status sl_action_call_run(const sl_action_call *call)
{
    SL__NEED(call);
    if (sl_action_kind_family(call->action.kind) != SL_FAMILY_COMPUTE)
        return sl_fail(SL_EINVAL, "only compute has a program to run");
    return sl_stage_run(call->stage, call->program, call->memory, call->slot,
                        &call->options);
}

/* Runs joined W's as one. */
static sl_status run_group(const sl__instruction *i, const sl__binding *binding)
{
    int count = 0;
    do {
        assert(i[count].u.run.program == SL_PROGRAM_W);
        assert(i[count].u.run.memory == i->u.run.memory);
        binding->group[count] = i[count].u.run.slot;
    } while (i[count++].joined);
    return sl__stage_enqueue_group(i->u.run.program_stage, i->u.run.memory,
                                   binding->group, count);
}

static sl_status enqueue_on(sl__stream *stream, const sl__instruction *i)
{
    return sl__stage_enqueue_on(stream, i->u.run.program_stage,
                                i->u.run.program, i->u.run.memory,
                                i->u.run.slot);
}

/* Runs both halves of an overlap at once, the first on a stream beside. */
static sl_status run_halves(const sl_pipeline *pipeline,
                            const sl__instruction *i)
{
    sl__stream *stream = pipeline->stream, *beside;
    assert(i->joined && !i[1].joined && i->u.run.memory != i[1].u.run.memory);
    SL__TRY(stream->buffers->side(stream, SL__SIDE_HALF, &beside));
    SL__TRY(sl__device_join(beside, stream));
    sl_status status = enqueue_on(beside, i);
    if (!status)
        status = enqueue_on(stream, i + 1);
    /* Also after a failure: a recording ends on the stream that began it. */
    sl_status joined = sl__device_join(stream, beside);
    return status ? status : joined;
}

/* Runs a program, or joined ones, by a custom function if there is one, else by
 * enqueueing the kernel calls (tensor/run.c). */
static sl_status run(const sl_pipeline *pipeline, const sl__instruction *i,
                     const sl__binding *binding, uint64_t seed)
{
    const sl_action_function *function = i->u.run.function;
    if (!function && i->joined)
        return i->u.run.program == SL_PROGRAM_W ? run_group(i, binding)
                                                : run_halves(pipeline, i);
    if (!function)
        return sl__stage_enqueue(i->u.run.program_stage, i->u.run.program,
                                 i->u.run.memory, i->u.run.slot);
    sl_action_call calls[2] = {call_of(pipeline, i, binding, seed)};
    if (i->joined)
        calls[1] = call_of(pipeline, i + 1, binding, seed);
    /* The error text if the function fails without setting one. */
    sl_fail(SL_OK, "the custom function failed");
    return function->call(function->context, calls, i->joined ? 2 : 1);
}

static sl_status post(const sl_pipeline *pipeline, const sl__instruction *i)
{
    sl_request *request = &i->u.message.request->request;
    assert(!request->posted);
    if (i->kind == SL__DO_SEND)
        return sl__comm_send(pipeline->comm, pipeline->stream,
                             i->u.message.peer, i->u.message.tag,
                             i->u.message.memory, i->u.message.bytes, request);
    return sl__comm_recv(pipeline->comm, pipeline->stream, i->u.message.peer,
                         i->u.message.tag, i->u.message.memory,
                         i->u.message.bytes, request);
}

/* `*now` is the time of the latest clock reading. The clock is read again only
 * if the message was not complete yet. */
static sl_status wait(sl_comm *comm, const sl__instruction *i, double timeout_s,
                      sl__stamp *stamp, double *now)
{
    sl_request *request = &i->u.message.request->request;
    bool done = false;
    SL__TRY(sl_comm_test(comm, request, &done));
    if (!done) {
        sl_status status = sl_comm_wait(comm, request, timeout_s);
        if (status == SL_ETIME)
            return sl_fail(SL_ETIME,
                           "waited %g s for a message between it and stage %d "
                           "on rank %d",
                           timeout_s, i->u.message.peer_stage,
                           i->u.message.peer);
        SL__TRY(status);
        *now = sl__seconds();
    }
    assert(!request->posted);
    stamp->done_s = request->done_s;
    *now = stamp->done_s > *now ? stamp->done_s : *now;
    return SL_OK;
}

/* Keeps a result of F: the loss or an output. */
static sl_status collect(sl_pipeline *pipeline, const sl__binding *binding,
                         const sl__instruction *i)
{
    int count, output = i->u.collect.output, m = i->action.microbatch;
    const sl_model_port *port =
        &sl_model_outputs(binding->model, &count)[output];
    sl__stream *stream = pipeline->stream;
    if (port->is_loss)
        SL__TRY(stream->buffers->convert(stream, SL_F64,
                                         &pipeline->device_losses[m],
                                         port->dtype, i->u.collect.from, 1));
    if (!binding->merges[output])
        return SL_OK;
    return sl__merge_collect(binding->merges[output], m, stream,
                             i->u.collect.from, i->u.collect.bytes);
}

static sl_status execute_one(sl_pipeline *pipeline, const sl__binding *binding,
                             const sl__instruction *i, const sl_batch *batch,
                             uint64_t seed, sl__stamp *stamp, double *now)
{
    switch (i->kind) {
    case SL__DO_PACK: return sl__memory_pack(i->u.run.memory);
    case SL__DO_RUN: return run(pipeline, i, binding, seed);
    case SL__DO_NOTHING: return SL_OK;
    case SL__DO_STATE: return sl__run_state(pipeline, &i->action);
    case SL__DO_FEED:
        if (binding->feed_device)
            return sl__device_copy(pipeline->stream, i->u.feed.to,
                                   (char *)binding->feed_device + i->u.feed.at,
                                   i->u.feed.bytes);
        return sl__batch_load(batch, pipeline->argument_of[i->u.feed.argument],
                              i->action.microbatch, pipeline->stream,
                              i->u.feed.to, i->u.feed.bytes);
    case SL__DO_COPY:
        return sl__device_copy(pipeline->stream, i->u.copy.to, i->u.copy.from,
                               i->u.copy.bytes);
    case SL__DO_SEND:
    case SL__DO_RECV: return post(pipeline, i);
    case SL__DO_WAIT:
        return wait(pipeline->comm, i, pipeline->options.timeout_s, stamp, now);
    case SL__DO_COLLECT: return collect(pipeline, binding, i);
    }
    assert(!"an instruction of no kind");
    return SL_OK;
}

/* Makes all ranks fail, with the instruction that has failed here. */
static sl_status abort_at(sl_pipeline *pipeline, const sl__instruction *i,
                          sl_status status)
{
    static const char *const doing[] = {
        [SL__DO_PACK] = "weights for ", [SL__DO_RUN] = "",
        [SL__DO_NOTHING] = "",          [SL__DO_STATE] = "",
        [SL__DO_FEED] = "input for ",   [SL__DO_COPY] = "copy for ",
        [SL__DO_SEND] = "send after ",  [SL__DO_RECV] = "receive for ",
        [SL__DO_WAIT] = "wait around ", [SL__DO_COLLECT] = "output of "};
    static const char *const names[SL_ACTION_KINDS] = {
        [SL_FORWARD] = "F",
        [SL_BACKWARD_INPUT] = "I",
        [SL_BACKWARD_WEIGHT] = "W",
        [SL_BACKWARD] = "B",
        [SL_SEND_F] = "F",
        [SL_RECV_F] = "F",
        [SL_SEND_B] = "B",
        [SL_RECV_B] = "B",
        [SL_WAIT_SEND_F] = "F",
        [SL_WAIT_SEND_B] = "B",
        [SL_UNSHARD] = "UNSHARD",
        [SL_RESHARD] = "RESHARD",
        [SL_REDUCE_GRAD] = "REDUCE_GRAD"};
    char microbatch[40] = "", where[100];
    const sl_action *about = &i->action;
    if (i->kind != SL__DO_STATE && i->kind != SL__DO_PACK)
        snprintf(microbatch, sizeof microbatch, ", microbatch %d",
                 about->microbatch);
    snprintf(where, sizeof where, "%s%s of stage %d%s: ", doing[i->kind],
             names[about->kind], about->stage, microbatch);
    return sl__abort_where(pipeline, status, where,
                           i->kind == SL__DO_WAIT ? i->u.message.peer : -1);
}

/* Runs the list; `*at` is the current instruction. The clock is read between
 * instructions, so the start of one is the end of the one before. */
static sl_status walk(sl_pipeline *pipeline, sl__binding *binding,
                      const sl__instructions *list, const sl_batch *batch,
                      uint64_t seed, size_t *at)
{
    const sl__device_ops *device = &pipeline->backend->device;
    bool polls = !sl__comm_is_one_process(pipeline->comm);
    volatile uint64_t *times = binding->times;
    sl__event now = {.stamp = times};
    size_t k = 0;
    SL__TRY(device->record(pipeline->stream, &now));
    for (; k < list->count; k++) {
        const sl__instruction *i = &list->data[k];
        *at = k;
        binding->stamps[k].start = now;
        atomic_store_explicit(&pipeline->at, k, memory_order_relaxed);
        atomic_store_explicit(&pipeline->since_s, now.seconds,
                              memory_order_relaxed);
        if (pipeline->before)
            pipeline->before();
        SL__TRY(execute_one(pipeline, binding, i, batch, seed,
                            &binding->stamps[k], &now.seconds));
        now.stamp = times ? &times[*at + 1] : NULL;
        if (i->timed)
            SL__TRY(device->record(pipeline->stream, &now));
        for (; list->data[k].joined; k++)
            binding->stamps[k + 1].start = now;
        assert(k < list->count);
        /* Messages between processes progress only while MPI is called. */
        if (polls && i->kind == SL__DO_RUN)
            SL__TRY(sl_comm_progress(pipeline->comm));
    }
    binding->stamps[k].start = now;
    atomic_store_explicit(&pipeline->at, k, memory_order_relaxed);
    return SL_OK;
}

/* Gives every microbatch its seed and the scale of its loss. */
static sl_status begin_step(const sl_pipeline *pipeline,
                            const sl__binding *binding, uint64_t seed)
{
    for (int v = 0; v < binding->variant_count; v++) {
        const sl__variant *variant = &binding->variants[v];
        for (int i = 0; i < variant->microbatches; i++) {
            int m = variant->which[i];
            binding->blocks[i] =
                (sl__step_block){.seed = mix(seed, m, pipeline->replica),
                                 .loss_scale = binding->scales[m]};
        }
        SL__TRY(sl__memory_begin_step(variant->memory, binding->blocks));
    }
    return SL_OK;
}

/* Fails where a kernel has found invalid data, such as a token that is not in
 * the vocabulary: the kernel records it, and this checks the record. */
static sl_status check_data(sl_pipeline *pipeline, const sl__binding *binding)
{
    char where[100];
    for (int v = 0; v < binding->variant_count; v++) {
        const sl__variant *variant = &binding->variants[v];
        sl_program program;
        int slot;
        sl_status status = sl__memory_check(variant->memory, &slot, &program);
        if (!status)
            continue;
        assert(slot >= 0 && slot < variant->microbatches);
        snprintf(where, sizeof where,
                 "%c of stage %d, microbatch %d: ", "FIWB"[program],
                 variant -> stage, variant -> which[slot]);
        return sl__abort_where(pipeline, status, where, -1);
    }
    return SL_OK;
}

/* Whether this rank computes losses. */
static bool computes_losses(const sl_pipeline *pipeline,
                            const sl__binding *binding)
{
    int count;
    const sl_model_port *outputs = sl_model_outputs(binding->model, &count);
    for (int i = 0; i < count; i++) {
        if (outputs[i].is_loss && sl__is_own(pipeline, outputs[i].stages[0]))
            return true;
    }
    return false;
}

/* Reads what the device has computed beside tensors. */
static sl_status end_step(sl_pipeline *pipeline, sl__binding *binding,
                          const sl__instructions *list)
{
    pipeline->has_losses = computes_losses(pipeline, binding);
    if (pipeline->has_losses)
        SL__TRY(sl__device_read(
            pipeline->stream, pipeline->losses, pipeline->device_losses,
            sizeof *pipeline->losses * (size_t)pipeline->microbatches));
    sl__read_times(pipeline, binding, list);
    return check_data(pipeline, binding);
}

/* What a step or an eval enqueues. */
typedef struct job {
    sl_pipeline *pipeline;
    sl__binding *binding;
    const sl__instructions *list;
    const sl_batch *batch;
    uint64_t seed;
} job;

static sl_status walk_list(const job *own)
{
    sl_pipeline *pipeline = own->pipeline;
    sl__binding *binding = own->binding;
    size_t at = 0;
    sl_status status =
        walk(pipeline, binding, own->list, own->batch, own->seed, &at);
    if (!status)
        return SL_OK;
    status = abort_at(pipeline, &own->list->data[at], status);
    for (size_t m = 0; m < binding->request_count; m++)
        sl_comm_cancel(pipeline->comm, &binding->requests[m].request);
    return status;
}

static sl_status enqueue(void *context)
{
    const job *own = context;
    sl_pipeline *pipeline = own->pipeline;
    const sl_model *model = own->binding->model;
    bool train = own->list == &own->binding->train;
    if (train) {
        sl__clear_replica_gradients(pipeline);
        SL__TRY(sl__clear_tied_copies(pipeline, model));
    }
    SL__TRY(walk_list(own));
    pipeline->end_s[0] = sl__seconds();
    if (train)
        SL__TRY(sl__explain(pipeline, sl__sum_tied_gradients(pipeline, model),
                            "the sum of tied gradients"));
    pipeline->end_s[1] = sl__seconds();
    return SL_OK;
}

/* Packs weights that have changed, before a recorded step, which does not.
 * After an optimizer's step there are none: it has packed them itself. */
static sl_status pack_before(const sl_pipeline *pipeline,
                             const sl__binding *binding)
{
    bool packs = false;
    for (int v = 0; v < binding->variant_count; v++) {
        sl_memory *memory = binding->variants[v].memory;
        packs = packs || sl__memory_needs_packing(memory);
        SL__TRY(sl__memory_pack(memory));
    }
    /* Rank 0 replays for all, on its own stream. */
    return packs ? pipeline->backend->device.finish(pipeline->stream) : SL_OK;
}

sl_status sl__execute(sl_pipeline *pipeline, sl__binding *binding,
                      const sl__instructions *list, const sl_batch *batch,
                      uint64_t seed)
{
    job own = {pipeline, binding, list, batch, seed};
    sl__pipeline_info at = sl__pipeline_describe(pipeline);
    bool train = list == &binding->train;
    assert(train || list == &binding->eval);
    assert(!pipeline->latest);
    memcpy(pipeline->data_s, pipeline->next_data_s, sizeof pipeline->data_s);
    memset(pipeline->next_data_s, 0, sizeof pipeline->next_data_s);
    atomic_store_explicit(&pipeline->at, 0, memory_order_relaxed);
    atomic_store(&pipeline->doing, list);
    SL__TRY(begin_step(pipeline, binding, seed));
    SL__TRY(sl__write_feeds(pipeline, binding, list, batch));
    at.records = sl__can_record(pipeline, binding);
    if (at.records)
        SL__TRY(pack_before(pipeline, binding));
    SL__TRY(sl__run_recorded(&at, &binding->recordings[train], enqueue, &own));
    SL__TRY(end_step(pipeline, binding, list));
    pipeline->latest = list;
    return SL_OK;
}

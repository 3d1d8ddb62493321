/* SPDX-License-Identifier: MIT
 *
 * One rank's part of a pipeline: creation, steps and evals, results. */
#include "pipeline/run/runtime.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------- life -- */

/* Copies custom functions, by kind of action. */
static sl_status copy_functions(sl_pipeline *pipeline)
{
    if (pipeline->options.function_count > 0 && !pipeline->options.functions)
        return sl_fail(SL_EINVAL, "`functions` is NULL");
    for (int i = 0; i < pipeline->options.function_count; i++) {
        const sl_action_function *given = &pipeline->options.functions[i];
        bool known = given->kind > SL_IDLE && given->kind < SL_ACTION_KINDS;
        sl_action_family family = sl_action_kind_family(given->kind);
        if (!known || !given->call || family == SL_FAMILY_COMM ||
            family == SL_FAMILY_WAIT)
            return sl_fail(SL_EINVAL,
                           "a function is for compute, UNSHARD, RESHARD or "
                           "REDUCE_GRAD%s%s",
                           known ? ", not " : "",
                           known ? sl_action_kind_text(given->kind) : "");
        if (pipeline->functions[given->kind].call)
            return sl_fail(SL_EINVAL, "two functions for %s",
                           sl_action_kind_text(given->kind));
        pipeline->functions[given->kind] = *given;
    }
    pipeline->options.functions = NULL;
    return SL_OK;
}

/* The largest number of adjacent W cells of one stage on this rank, which run
 * as one; 1 with a custom function, which is called for each. */
static int count_adjacent_weights(const sl_pipeline *pipeline)
{
    const sl_action *row = sl_schedule_row(pipeline->lowered, pipeline->rank);
    size_t length = sl_schedule_length(pipeline->lowered, pipeline->rank);
    int most = 1, count = 0;
    for (size_t i = 0; i < length; i++) {
        bool weights = row[i].kind == SL_BACKWARD_WEIGHT;
        bool same = weights && count > 0 && row[i - 1].stage == row[i].stage;
        count = same ? count + 1 : weights;
        most = count > most ? count : most;
    }
    return pipeline->functions[SL_BACKWARD_WEIGHT].call ? 1 : most;
}

static sl_status open_stream(sl_pipeline *pipeline)
{
    sl_stage_options *stage = &pipeline->options.stage;
    SL__TRY(sl__backend_find(stage->backend, &pipeline->backend));
    const sl__device_ops *device = &pipeline->backend->device;
    if (stage->device < 0)
        stage->device = sl_comm_rank(pipeline->comm);
    SL__TRY(device->open(stage->threads, stage->device, stage->deterministic,
                         &pipeline->device));
    return device->open_stream(pipeline->device, &pipeline->stream);
}

static void close_stream(sl_pipeline *pipeline)
{
    const sl__backend *backend = pipeline->backend;
    if (pipeline->stream) {
        const sl__buffer_ops *buffers = pipeline->stream->buffers;
        sl__comm_forget(pipeline->comm, pipeline->stream);
        buffers->release(pipeline->stream, pipeline->device_losses);
        buffers->release(pipeline->stream, pipeline->scratch);
        backend->device.close_stream(pipeline->stream);
    }
    if (pipeline->device)
        backend->device.close(pipeline->device);
    free(pipeline->scratch_host);
}

static sl_status start(sl_pipeline *pipeline, sl_model_fn build, void *context)
{
    sl__arena *arena = &pipeline->arena;
    SL__TRY(copy_functions(pipeline));
    SL__TRY(sl__copy_merge_options(pipeline));
    SL__TRY(sl__lower_schedule(pipeline));
    SL__TRY(open_stream(pipeline));
    size_t stages = (size_t)pipeline->stages;
    size_t microbatches = (size_t)pipeline->microbatches;
    pipeline->records = pipeline->backend->graphs && !pipeline->shards &&
                        !pipeline->options.no_graph &&
                        pipeline->options.function_count == 0 &&
                        /* Replicas may have batches of different sizes. */
                        pipeline->options.replicas == 1 &&
                        sl__comm_is_one_process(pipeline->comm);
    pipeline->options.stage.group = count_adjacent_weights(pipeline);
    if (pipeline->options.stage.backward == SL_BACKWARD_NONE)
        pipeline->options.stage.recompute = false;
    SL__TRY(sl_programs_create(build, context, &pipeline->options.stage,
                               &pipeline->programs));
    /* A custom function may read any output. */
    if (!pipeline->options.keep_outputs &&
        pipeline->options.function_count == 0)
        sl__programs_keep_loss_alone(pipeline->programs);
    SL__TRY(sl__arena_take(arena, stages, sizeof *pipeline->owners,
                           &pipeline->owners));
    SL__TRY(sl__arena_take(arena, stages, sizeof *pipeline->owner_stages,
                           &pipeline->owner_stages));
    SL__TRY(sl__arena_take(arena, microbatches, sizeof *pipeline->losses,
                           &pipeline->losses));
    return sl__arena_take(arena, microbatches, sizeof *pipeline->rows,
                          &pipeline->rows);
}

sl_status sl_pipeline_create(sl_comm *comm, sl_model_fn build, void *context,
                             const sl_pipeline_options *options,
                             sl_pipeline **out)
{
    SL__NEED(comm, build, options, out);
    sl_pipeline *pipeline;
    if (!(options->timeout_s > 0) || options->loss < SL_LOSS_MEAN ||
        options->loss > SL_LOSS_SUM || options->replicas < 1)
        return sl_fail(SL_EINVAL, "a pipeline needs a schedule, a timeout, a "
                                  "kind of loss, and at least one replica");
    if (options->work_stealing < SL_STEAL_AUTO ||
        options->work_stealing > SL_STEAL_ALWAYS)
        return sl_fail(SL_EINVAL, "unknown kind of work stealing %d",
                       (int)options->work_stealing);
    SL__TRY(sl__alloc(1, sizeof *pipeline, &pipeline));
    pipeline->comm = comm;
    pipeline->options = *options;
    sl__start_stealing(pipeline);
    sl_status status = start(pipeline, build, context);
    if (status) {
        sl_pipeline_destroy(pipeline);
        return status;
    }
    sl_comm_set_answer(comm, sl__answer, pipeline);
    *out = pipeline;
    return SL_OK;
}

void sl_pipeline_destroy(sl_pipeline *pipeline)
{
    if (!pipeline)
        return;
    sl_comm_clear_answer(pipeline->comm, pipeline);
    sl__stop_stealing(pipeline);
    sl__lowering_release(pipeline->lowering);
    /* A transport that still holds messages may write to their memory, so that
     * is not freed before the process ends. */
    if (sl_comm_holds_memory(pipeline->comm))
        return;
    while (pipeline->bindings) {
        sl__binding *next = pipeline->bindings->next;
        sl__unbind(pipeline, pipeline->bindings);
        pipeline->bindings = next;
    }
    for (int s = 0; s < pipeline->stages && pipeline->owners; s++)
        sl_memory_destroy(pipeline->owners[s]);
    sl_programs_destroy(pipeline->programs);
    close_stream(pipeline);
    sl__arena_clear(&pipeline->arena);
    sl_batch_destroy(pipeline->batch);
    free(pipeline->argument_of);
    free(pipeline);
}

/* ---------------------------------------------------------------- steps -- */

/* Finds the binding for a batch, and creates whatever else steps need. */
static sl_status bind(sl_pipeline *pipeline, const int64_t *rows,
                      sl__binding **out)
{
    int count;
    SL__TRY(sl__bind(pipeline, rows, out));
    SL__TRY(sl__check_replicas(pipeline));
    SL__TRY(sl__make_scratch(pipeline, (*out)->model));
    if (pipeline->argument_of)
        return SL_OK;
    sl_model_inputs((*out)->model, &count);
    return sl__alloc((size_t)count + 1, sizeof *pipeline->argument_of,
                     &pipeline->argument_of);
}

static sl_status bind_batch(sl_pipeline *pipeline, const sl_batch *batch,
                            sl__binding **out)
{
    for (int m = 0; m < pipeline->microbatches; m++)
        pipeline->rows[m] = sl_batch_rows(batch, m);
    SL__TRY(bind(pipeline, pipeline->rows, out));
    int count;
    const sl_model_port *inputs = sl_model_inputs((*out)->model, &count);
    for (int i = 0; i < count; i++)
        pipeline->argument_of[i] = sl_batch_find(batch, inputs[i].name);
    int dim = sl__batch_dim(batch);
    return dim == (*out)->split_dim ? SL_OK
                                    : sl__make_merges(pipeline, *out, dim);
}

sl_status sl__split_rows(sl_pipeline *pipeline, int64_t rows)
{
    int microbatches = pipeline->microbatches;
    if (rows < microbatches && rows != 0)
        return sl_fail(SL_EINVAL, "%lld rows, fewer than the %d microbatches",
                       (long long)rows, microbatches);
    for (int m = 0; m < microbatches; m++)
        pipeline->rows[m] = sl_microbatch_rows(rows, microbatches, m);
    return SL_OK;
}

sl_status sl_pipeline_prepare(sl_pipeline *pipeline, int64_t rows)
{
    SL__NEED(pipeline);
    sl__binding *binding;
    sl_status status = sl__split_rows(pipeline, rows);
    if (!status)
        status = bind(pipeline, pipeline->rows, &binding);
    return status ? sl__abort_pipeline(pipeline, status) : SL_OK;
}

/* The stage that computes the loss; -1: none. */
static int loss_stage(const sl_model *model)
{
    int count;
    const sl_model_port *outputs = sl_model_outputs(model, &count);
    for (int i = 0; i < count; i++) {
        if (outputs[i].is_loss)
            return outputs[i].stages[0];
    }
    return -1;
}

/* Broadcasts the losses, if the options ask for it. Then waits for all ranks: a
 * step succeeds on all of them or on none. */
static sl_status finish(sl_pipeline *pipeline, const sl_model *model)
{
    int ranks[SL_COMM_MAX_RANKS], stage = loss_stage(model);
    double timeout_s = pipeline->options.timeout_s;
    if (stage >= 0 && pipeline->options.share_losses) {
        const sl_group own = sl__pipeline_group(pipeline, ranks);
        pipeline->has_losses = true;
        SL__TRY(sl_comm_broadcast(pipeline->comm, &own, SL__TAG_END,
                                  pipeline->rank_of[stage], pipeline->losses,
                                  sizeof *pipeline->losses *
                                      (size_t)pipeline->microbatches,
                                  timeout_s));
    }
    const sl_group all = sl__all_ranks(pipeline->comm, ranks);
    SL__TRY(sl_comm_barrier(pipeline->comm, &all, SL__TAG_END, timeout_s));
    /* A rank may have failed after this one passed the barrier. */
    return sl_comm_progress(pipeline->comm);
}

sl_status sl__explain(const sl_pipeline *pipeline, sl_status status,
                      const char *what)
{
    if (status != SL_ETIME || sl_comm_progress(pipeline->comm))
        return status;
    return sl_fail(SL_ETIME, "waited %g s for %s", pipeline->options.timeout_s,
                   what);
}

static sl_status run_list(sl_pipeline *pipeline, const sl_batch *batch,
                          uint64_t seed, bool train)
{
    sl__binding *binding;
    int outputs;
    SL__TRY(bind_batch(pipeline, batch, &binding));
    sl_model_outputs(binding->model, &outputs);
    for (int i = 0; i < outputs; i++) {
        if (binding->merges[i])
            sl_merge_restart(binding->merges[i]);
    }
    pipeline->last = binding;
    pipeline->latest = NULL;
    if (pipeline->shards)
        pipeline->holding.most = pipeline->holding.now;
    sl__begin_stealing(pipeline);
    pipeline->has_losses = false;
    SL__TRY(sl__execute(pipeline, binding,
                        train ? &binding->train : &binding->eval, batch, seed));
    SL__TRY(sl__explain(pipeline, finish(pipeline, binding->model),
                        "the end of the step"));
    pipeline->end_s[2] = fmax(sl__seconds(), pipeline->end_s[1]);
    pipeline->helped_s = pipeline->helping_s;
    return SL_OK;
}

/* Splits the batch, unless it is like the one before. It is split twice: the
 * first time gives the number of rows, and so the model whose inputs the
 * arguments are checked against the second time. */
static sl_status split(sl_pipeline *pipeline, const sl_argument *arguments,
                       int count)
{
    sl_batch *rough, *batch;
    const sl_model *model;
    int microbatches = pipeline->microbatches;
    if (sl__batch_reuse(pipeline->batch, arguments, count))
        return SL_OK;
    SL__TRY(sl_batch_create(NULL, arguments, count, microbatches, &rough));
    int64_t rows = sl_batch_rows(rough, 0);
    sl_batch_destroy(rough);
    SL__TRY(sl_programs_model(pipeline->programs, rows, &model));
    SL__TRY(sl_batch_create(model, arguments, count, microbatches, &batch));
    sl_batch_destroy(pipeline->batch);
    pipeline->batch = batch;
    return SL_OK;
}

/* A hash (FNV-1a) of what must be the same on all ranks of a pipeline. */
static uint64_t hash_batch(const sl_batch *batch, bool train)
{
    uint64_t hash = 0xcbf29ce484222325u + train;
    for (int m = 0; m < sl_batch_microbatches(batch); m++)
        hash = (hash ^ (uint64_t)sl_batch_rows(batch, m)) * 0x100000001b3u;
    return hash;
}

/* Fails with what differs between the ranks of this pipeline. */
static sl_status name_difference(sl_pipeline *pipeline, const sl_group *own,
                                 bool train)
{
    char rows[200] = "";
    size_t used = 0;
    for (int m = 0; m < pipeline->microbatches && used + 24 < sizeof rows; m++)
        used += (size_t)snprintf(rows + used, sizeof rows - used, "%s%lld",
                                 m ? " + " : "",
                                 (long long)sl_batch_rows(pipeline->batch, m));
    const sl_comm_item items[] = {
        {"what the batch is for", train ? "a step" : "an eval"},
        {"the rows of the batch", rows}};
    return sl_comm_agree(pipeline->comm, own, SL__TAG_END, items, 2,
                         pipeline->options.timeout_s);
}

/* Ranks with different batches would wait for messages of another size, or for
 * messages that never come. This finds them before any rank waits. */
static sl_status agree(sl_pipeline *pipeline, bool train)
{
    int ranks[SL_COMM_MAX_RANKS];
    uint64_t least = 0, most = 0;
    if (pipeline->ranks == 1)
        return SL_OK;
    const sl_group own = sl__pipeline_group(pipeline, ranks);
    atomic_store(&pipeline->beginning, true);
    sl_status status = sl__comm_range(
        pipeline->comm, &own, SL__TAG_END, hash_batch(pipeline->batch, train),
        pipeline->options.timeout_s, &least, &most);
    if (!status)
        atomic_store(&pipeline->beginning, false);
    if (!status && least != most)
        status = name_difference(pipeline, &own, train);
    return sl__explain(pipeline, status, "all ranks to begin the step");
}

static sl_status try_batch(sl_pipeline *pipeline, const sl_argument *arguments,
                           int count, uint64_t seed, bool train)
{
    SL__TRY(split(pipeline, arguments, count));
    SL__TRY(agree(pipeline, train));
    assert(sl_batch_microbatches(pipeline->batch) == pipeline->microbatches);
    return run_list(pipeline, pipeline->batch, seed, train);
}

static sl_status run_batch(sl_pipeline *pipeline, const sl_argument *arguments,
                           int count, uint64_t seed, bool train)
{
    /* Of several pipelines on a transport, the one that runs answers. */
    sl_comm_set_answer(pipeline->comm, sl__answer, pipeline);
    atomic_fetch_add(&pipeline->steps, 1);
    atomic_store(&pipeline->in_step, true);
    sl_status status = try_batch(pipeline, arguments, count, seed, train);
    if (status)
        status = sl__abort_pipeline(pipeline, status);
    sl__watch_core(pipeline);
    atomic_store(&pipeline->in_step, false);
    atomic_store(&pipeline->beginning, false);
    atomic_store(&pipeline->doing, NULL);
    return status;
}

sl_status sl_pipeline_step(sl_pipeline *pipeline, const sl_argument *arguments,
                           int count, uint64_t seed)
{
    SL__NEED(pipeline);
    if (count > 0)
        SL__NEED(arguments);
    if (pipeline->options.stage.backward == SL_BACKWARD_NONE)
        return sl_fail(SL_EINVAL,
                       "the schedule has no backward: only eval can run it");
    return run_batch(pipeline, arguments, count, seed, true);
}

sl_status sl_pipeline_eval(sl_pipeline *pipeline, const sl_argument *arguments,
                           int count)
{
    SL__NEED(pipeline);
    if (count > 0)
        SL__NEED(arguments);
    return run_batch(pipeline, arguments, count, 0, false);
}

/* -------------------------------------------------------------- results -- */

sl__pipeline_info sl__pipeline_describe(const sl_pipeline *pipeline)
{
    return (sl__pipeline_info){.comm = pipeline->comm,
                               .backend = pipeline->backend,
                               .stream = pipeline->stream,
                               .programs = pipeline->programs,
                               .rank_of = pipeline->rank_of,
                               .own_stages = pipeline->own_stages,
                               .own_count = pipeline->own_count,
                               .rank = pipeline->rank,
                               .ranks = pipeline->ranks,
                               .replica = pipeline->replica,
                               .microbatches = pipeline->microbatches,
                               .shards = pipeline->shards,
                               .records = pipeline->records,
                               .timeout_s = pipeline->options.timeout_s};
}

sl_group sl__pipeline_group(const sl_pipeline *pipeline, int *ranks)
{
    for (int r = 0; r < pipeline->ranks; r++)
        ranks[r] = sl__comm_rank(pipeline, r);
    return (sl_group){ranks, pipeline->ranks};
}

void sl__pipeline_add_optimizer_bytes(sl_pipeline *pipeline, int64_t bytes)
{
    pipeline->optimizer_bytes += bytes;
    assert(pipeline->optimizer_bytes >= 0);
}

const double *sl_pipeline_losses(const sl_pipeline *pipeline, int *count)
{
    bool there = pipeline && pipeline->has_losses;
    if (count)
        *count = there ? pipeline->microbatches : 0;
    return there ? pipeline->losses : NULL;
}

sl_status sl_pipeline_loss(const sl_pipeline *pipeline, double *out)
{
    SL__NEED(pipeline, out);
    double loss = 0;
    if (!pipeline->has_losses)
        return sl_fail(SL_EINVAL, "rank %d has no losses",
                       sl_comm_rank(pipeline->comm));
    for (int m = 0; m < pipeline->microbatches; m++)
        loss += pipeline->losses[m] * pipeline->last->scales[m];
    if (pipeline->options.loss == SL_LOSS_MEAN)
        loss *= pipeline->options.replicas;
    *out = loss;
    return SL_OK;
}

const int *sl_pipeline_stages(const sl_pipeline *pipeline, int *count)
{
    if (count)
        *count = pipeline ? pipeline->own_count : 0;
    return pipeline ? pipeline->own_stages : NULL;
}

const sl_model *sl_pipeline_model(const sl_pipeline *pipeline)
{
    if (!pipeline)
        return NULL;
    const sl__binding *binding =
        pipeline->last ? pipeline->last : pipeline->bindings;
    return binding ? binding->model : NULL;
}

/* Fails with why a stage is not available on this rank. */
static sl_status refuse_stage(const sl_pipeline *pipeline, int stage)
{
    if (stage < 0 || stage >= pipeline->stages)
        return sl_fail(SL_ENOTFOUND, "stage %d, expected 0 to %d", stage,
                       pipeline->stages - 1);
    if (sl__is_own(pipeline, stage))
        return sl_fail(SL_EINVAL,
                       "stage %d is on this rank, but sl_pipeline_prepare has "
                       "not been called",
                       stage);
    return sl_fail(SL_ENOTFOUND, "stage %d is on rank %d, not on rank %d",
                   stage, sl__comm_rank(pipeline, pipeline->rank_of[stage]),
                   sl_comm_rank(pipeline->comm));
}

sl_status sl_pipeline_stage(const sl_pipeline *pipeline, int stage,
                            const sl_stage **out_stage, sl_memory **out_memory)
{
    SL__NEED(pipeline, out_stage, out_memory);
    if (stage < 0 || stage >= pipeline->stages || !pipeline->owners[stage])
        return refuse_stage(pipeline, stage);
    *out_stage = pipeline->owner_stages[stage];
    *out_memory = pipeline->owners[stage];
    return SL_OK;
}

sl_status sl_pipeline_descend(sl_pipeline *pipeline, double rate)
{
    SL__NEED(pipeline);
    for (int s = 0; s < pipeline->stages; s++) {
        if (pipeline->owners[s])
            SL__TRY(pipeline->shards
                        ? sl__descend_shard(pipeline, s, rate)
                        : sl_memory_descend(pipeline->owners[s], rate));
    }
    return SL_OK;
}

void sl_pipeline_zero_gradients(sl_pipeline *pipeline)
{
    if (!pipeline)
        return;
    for (int s = 0; s < pipeline->stages; s++) {
        if (pipeline->owners[s])
            sl_memory_zero_gradients(pipeline->owners[s]);
    }
}

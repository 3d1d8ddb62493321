/* SPDX-License-Identifier: MIT
 *
 * Pipelines: one rank's stages under a schedule; steps and evals. */
#include "pipeline/runtime.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------- schedule -- */

static sl_status check_schedule(const sl_schedule *schedule)
{
    sl_report *report;
    size_t count;
    sl_status status = sl_check(schedule, NULL, &report);
    if (status)
        return status;
    if (!sl_report_is_sound(report)) {
        const sl_finding *findings = sl_report_findings(report, &count);
        status = sl_fail(SL_EUNSOUND, "the schedule is not sound: %s",
                         count ? findings[0].text : "see sluice check");
    }
    sl_report_destroy(report);
    return status;
}

/* The compute actions of a rank, overlaps taken apart. */
static sl_status take_order(sl_pipeline *pipeline, const sl_schedule *schedule,
                            int rank)
{
    const sl_action *row = sl_schedule_row(schedule, rank);
    size_t length = sl_schedule_length(schedule, rank);
    sl_action *order;
    sl_status status =
        sl__arena_take(&pipeline->arena, 2 * length + 1, sizeof *order, &order);
    if (status)
        return status;
    pipeline->orders[rank] = order;
    for (size_t i = 0; i < length; i++) {
        sl_action parts[2];
        int count = sl_action_parts(&row[i], parts);
        for (int k = 0; k < count; k++) {
            if (sl_action_kind_family(parts[k].kind) == SL_FAMILY_COMPUTE)
                order[pipeline->order_counts[rank]++] = parts[k];
        }
    }
    return SL_OK;
}

static sl_status take_orders(sl_pipeline *pipeline, const sl_schedule *schedule)
{
    size_t ranks = (size_t)sl_schedule_ranks(schedule);
    sl_status status = sl__arena_take(
        &pipeline->arena, ranks, sizeof *pipeline->orders, &pipeline->orders);
    if (!status)
        status = sl__arena_take(&pipeline->arena, ranks,
                                sizeof *pipeline->order_counts,
                                &pipeline->order_counts);
    for (size_t r = 0; r < ranks && !status; r++)
        status = take_order(pipeline, schedule, (int)r);
    return status;
}

static sl_status take_placement(sl_pipeline *pipeline,
                                const sl_schedule *schedule)
{
    sl_placement *placement;
    sl_status status = sl_placement_derive(schedule, &placement);
    if (status)
        return status;
    status = sl__arena_take(&pipeline->arena, (size_t)pipeline->stages,
                            sizeof *pipeline->rank_of, &pipeline->rank_of);
    if (!status)
        status =
            sl__arena_take(&pipeline->arena, (size_t)pipeline->stages,
                           sizeof *pipeline->own_stages, &pipeline->own_stages);
    for (int s = 0; s < pipeline->stages && !status; s++) {
        pipeline->rank_of[s] = sl_placement_rank_of(placement, s);
        if (pipeline->rank_of[s] == sl_comm_rank(pipeline->comm))
            pipeline->own_stages[pipeline->own_count++] = s;
    }
    sl_placement_destroy(placement);
    return status;
}

/* Which backward programs the whole schedule asks for. */
static sl_backward backward_of(const sl_schedule *schedule)
{
    bool whole = false, split = false;
    for (int r = 0; r < sl_schedule_ranks(schedule); r++) {
        const sl_action *row = sl_schedule_row(schedule, r);
        for (size_t i = 0; i < sl_schedule_length(schedule, r); i++) {
            sl_action parts[2];
            int count = sl_action_parts(&row[i], parts);
            for (int k = 0; k < count; k++) {
                whole |= parts[k].kind == SL_BACKWARD;
                split |= parts[k].kind == SL_BACKWARD_INPUT;
            }
        }
    }
    if (whole && split)
        return SL_BACKWARD_ANY;
    return whole   ? SL_BACKWARD_WHOLE
           : split ? SL_BACKWARD_SPLIT
                   : SL_BACKWARD_NONE;
}

static sl_status take_schedule(sl_pipeline *pipeline,
                               const sl_schedule *schedule)
{
    if (!schedule)
        return sl_fail(SL_EINVAL, "a pipeline needs a schedule");
    sl_extent extent = sl_schedule_extent(schedule);
    int ranks = sl_comm_size(pipeline->comm);
    if (extent.ranks != ranks)
        return sl_fail(SL_EINVAL, "the schedule has %d ranks, and there are %d",
                       extent.ranks, ranks);
    sl_status status = check_schedule(schedule);
    if (status)
        return status;
    pipeline->stages = extent.stages;
    pipeline->microbatches = extent.microbatches;
    status = take_placement(pipeline, schedule);
    if (!status)
        status = take_orders(pipeline, schedule);
    return status;
}

/* ----------------------------------------------------------------- life -- */

static sl_status start(sl_pipeline *pipeline, sl_model_fn build, void *context)
{
    const sl_schedule *schedule = pipeline->options.schedule;
    sl__arena *arena = &pipeline->arena;
    sl_status status = take_schedule(pipeline, schedule);
    if (status)
        return status;
    pipeline->options.stage.backward = backward_of(schedule);
    if (pipeline->options.stage.backward == SL_BACKWARD_NONE)
        pipeline->options.stage.recompute = false;
    pipeline->options.schedule = NULL;
    size_t stages = (size_t)pipeline->stages;
    status = sl_programs_create(build, context, &pipeline->options.stage,
                                &pipeline->programs);
    if (!status)
        status = sl__arena_take(arena, stages, sizeof *pipeline->owners,
                                &pipeline->owners);
    if (!status)
        status = sl__arena_take(arena, stages, sizeof *pipeline->owner_stages,
                                &pipeline->owner_stages);
    if (!status)
        status = sl__arena_take(arena, (size_t)pipeline->microbatches,
                                sizeof *pipeline->losses, &pipeline->losses);
    if (!status)
        status = sl__arena_take(arena, (size_t)pipeline->microbatches,
                                sizeof *pipeline->rows, &pipeline->rows);
    return status;
}

sl_status sl_pipeline_create(sl_comm *comm, sl_model_fn build, void *context,
                             const sl_pipeline_options *options,
                             sl_pipeline **out)
{
    sl_pipeline *pipeline;
    if (!options || !(options->timeout_s > 0) || options->loss < SL_LOSS_MEAN ||
        options->loss > SL_LOSS_SUM)
        return sl_fail(SL_EINVAL, "a pipeline needs a schedule, a time to wait "
                                  "at most, and a kind of loss");
    sl_status status = sl__alloc(1, sizeof *pipeline, &pipeline);
    if (status)
        return status;
    pipeline->comm = comm;
    pipeline->options = *options;
    status = start(pipeline, build, context);
    if (status)
        sl_pipeline_destroy(pipeline);
    else
        *out = pipeline;
    return status;
}

void sl_pipeline_destroy(sl_pipeline *pipeline)
{
    if (!pipeline)
        return;
    while (pipeline->bounds) {
        sl__bound *next = pipeline->bounds->next;
        sl__unbind(pipeline, pipeline->bounds);
        pipeline->bounds = next;
    }
    for (int s = 0; s < pipeline->stages && pipeline->owners; s++)
        sl_memory_destroy(pipeline->owners[s]);
    sl_programs_destroy(pipeline->programs);
    sl__arena_clear(&pipeline->arena);
    sl_batch_destroy(pipeline->batch);
    free(pipeline->scratch);
    free(pipeline->argument_of);
    free(pipeline);
}

/* A failure that only this rank has seen: the others must not wait. */
static sl_status spread(sl_comm *comm, sl_status status)
{
    char why[700];
    snprintf(why, sizeof why, "%s", sl_error_text());
    sl_status heard = sl_comm_progress(comm);
    return heard ? heard : sl__fail_all(comm, status, why);
}

/* ----------------------------------------------------------------- ties -- */

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

static bool is_here(const sl_pipeline *pipeline, int stage)
{
    return pipeline->rank_of[stage] == sl_comm_rank(pipeline->comm);
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

/* Sums before a step stand in the first stage alone, so that what the step adds
 * to them is counted once. */
static sl_status part_ties(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    sl_status status = SL_OK;
    for (int t = 0; t < count && !status; t++) {
        memset(pipeline->scratch, 0, (size_t)ties[t].bytes);
        for (int k = 1; k < ties[t].stage_count && !status; k++) {
            sl_port port;
            int stage = ties[t].stages[k];
            if (!is_here(pipeline, stage))
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
        int rank = pipeline->rank_of[tie->stages[k]];
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
        if (!is_here(pipeline, tie->stages[k]))
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
        if (!is_here(pipeline, tie->stages[k]))
            continue;
        status = find_gradient(pipeline, tie, k, &port);
        if (!status)
            status = sl_memory_write(pipeline->owners[tie->stages[k]], &port, 0,
                                     sum, (size_t)port.bytes);
    }
    return status;
}

static sl_status join_ties(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    sl_status status = SL_OK;
    for (int t = 0; t < count && !status; t++)
        status = join_tie(pipeline, &ties[t], SL_COMM_MAX_TAG / 2 + t);
    return status;
}

/* Room for two of the largest tied gradient. */
static sl_status make_scratch(sl_pipeline *pipeline, const sl_model *model)
{
    int count;
    int64_t bytes = 1;
    const sl_tie *ties = sl_model_ties(model, &count);
    for (int t = 0; t < count; t++)
        bytes = ties[t].bytes > bytes ? ties[t].bytes : bytes;
    if (count > SL_COMM_MAX_TAG / 4)
        return sl_fail(SL_EINVAL, "%d tied parameters are too many", count);
    if (pipeline->scratch)
        return SL_OK;
    return sl__alloc(2 * (size_t)bytes, 1, &pipeline->scratch);
}

/* ---------------------------------------------------------------- steps -- */

/* Finds the list for a batch, and where its arguments are. */
static sl_status bind(sl_pipeline *pipeline, const int64_t *rows,
                      sl__bound **out)
{
    sl_status status = sl__bind(pipeline, rows, out);
    if (!status)
        status = make_scratch(pipeline, (*out)->model);
    if (!status && !pipeline->argument_of) {
        int count;
        sl_model_inputs((*out)->model, &count);
        status = sl__alloc((size_t)count + 1, sizeof *pipeline->argument_of,
                           &pipeline->argument_of);
    }
    return status;
}

static sl_status bind_batch(sl_pipeline *pipeline, const sl_batch *batch,
                            sl__bound **out)
{
    for (int m = 0; m < pipeline->microbatches; m++)
        pipeline->rows[m] = sl_batch_rows(batch, m);
    sl_status status = bind(pipeline, pipeline->rows, out);
    if (status)
        return status;
    int count;
    const sl_model_port *inputs = sl_model_inputs((*out)->model, &count);
    for (int i = 0; i < count; i++)
        pipeline->argument_of[i] = sl_batch_find(batch, inputs[i].name);
    return SL_OK;
}

sl_status sl_pipeline_prepare(sl_pipeline *pipeline, int64_t rows)
{
    sl__bound *bound;
    if (rows < pipeline->microbatches && rows != 0)
        return sl_fail(SL_EINVAL, "%lld rows, fewer than the %d microbatches",
                       (long long)rows, pipeline->microbatches);
    for (int m = 0; m < pipeline->microbatches; m++)
        pipeline->rows[m] = sl_microbatch_rows(rows, pipeline->microbatches, m);
    sl_status status = bind(pipeline, pipeline->rows, &bound);
    return status ? spread(pipeline->comm, status) : SL_OK;
}

/* The losses for everybody, where that is wanted; and the end of the step,
 * which comes for all ranks or for none. */
static sl_status finish(sl_pipeline *pipeline, const sl_model *model)
{
    int count, ranks[SL_COMM_MAX_RANKS], root = -1;
    const sl_model_port *outputs = sl_model_outputs(model, &count);
    for (int i = 0; i < count; i++) {
        if (outputs[i].is_loss)
            root = pipeline->rank_of[outputs[i].stages[0]];
    }
    sl_group all = {ranks, sl_comm_size(pipeline->comm)};
    for (int i = 0; i < all.count; i++)
        ranks[i] = i;
    double timeout_s = pipeline->options.timeout_s;
    sl_status status = SL_OK;
    if (root >= 0 && pipeline->options.share_losses) {
        pipeline->has_losses = true;
        status = sl_comm_broadcast(
            pipeline->comm, &all, SL_COMM_MAX_TAG - 1, root, pipeline->losses,
            sizeof *pipeline->losses * (size_t)pipeline->microbatches,
            timeout_s);
    }
    if (!status)
        status = sl_comm_barrier(pipeline->comm, &all, SL_COMM_MAX_TAG - 1,
                                 timeout_s);
    return status;
}

static sl_status run_list(sl_pipeline *pipeline, const sl_batch *batch,
                          uint64_t seed, bool train)
{
    sl__bound *bound;
    sl_status status = bind_batch(pipeline, batch, &bound);
    if (status)
        return status;
    int outputs;
    sl_model_outputs(bound->model, &outputs);
    for (int i = 0; i < outputs; i++) {
        if (bound->merges[i])
            sl_merge_restart(bound->merges[i]);
    }
    pipeline->last = bound;
    pipeline->busy_s = 0;
    pipeline->has_losses = false;
    if (train)
        status = part_ties(pipeline, bound->model);
    if (!status)
        status = sl__execute(pipeline, bound,
                             train ? &bound->train : &bound->eval, batch, seed);
    if (!status && train)
        status = join_ties(pipeline, bound->model);
    return status ? status : finish(pipeline, bound->model);
}

/* Splits the batch, unless it is like the one before. Its arguments are held
 * against a model for rows that they imply, which is known once they are split.
 */
static sl_status split(sl_pipeline *pipeline, const sl_argument *arguments,
                       int count)
{
    sl_batch *rough = NULL, *batch = NULL;
    const sl_model *model;
    if (sl__batch_takes(pipeline->batch, arguments, count))
        return SL_OK;
    sl_status status =
        sl_batch_create(NULL, arguments, count, pipeline->microbatches, &rough);
    if (!status)
        status = sl_programs_model(pipeline->programs, sl_batch_rows(rough, 0),
                                   &model);
    if (!status)
        status = sl_batch_create(model, arguments, count,
                                 pipeline->microbatches, &batch);
    sl_batch_destroy(rough);
    if (status)
        return status;
    sl_batch_destroy(pipeline->batch);
    pipeline->batch = batch;
    return SL_OK;
}

static sl_status run_batch(sl_pipeline *pipeline, const sl_argument *arguments,
                           int count, uint64_t seed, bool train)
{
    sl_status status = split(pipeline, arguments, count);
    if (!status)
        status = run_list(pipeline, pipeline->batch, seed, train);
    if (!status)
        return SL_OK;
    return spread(pipeline->comm, status);
}

sl_status sl_pipeline_step(sl_pipeline *pipeline, const sl_argument *arguments,
                           int count, uint64_t seed)
{
    if (pipeline->options.stage.backward == SL_BACKWARD_NONE)
        return sl_fail(SL_EINVAL, "the schedule has no backward: eval is what "
                                  "it can do");
    return run_batch(pipeline, arguments, count, seed, true);
}

sl_status sl_pipeline_eval(sl_pipeline *pipeline, const sl_argument *arguments,
                           int count)
{
    return run_batch(pipeline, arguments, count, 0, false);
}

/* -------------------------------------------------------------- results -- */

const double *sl_pipeline_losses(const sl_pipeline *pipeline, int *count)
{
    *count = pipeline->has_losses ? pipeline->microbatches : 0;
    return pipeline->has_losses ? pipeline->losses : NULL;
}

sl_status sl_pipeline_loss(const sl_pipeline *pipeline, double *out)
{
    double loss = 0;
    if (!pipeline->has_losses)
        return sl_fail(SL_EINVAL, "rank %d has no losses",
                       sl_comm_rank(pipeline->comm));
    for (int m = 0; m < pipeline->microbatches; m++)
        loss += pipeline->losses[m] * pipeline->last->scales[m];
    *out = loss;
    return SL_OK;
}

sl_status sl_pipeline_output(sl_pipeline *pipeline, const char *name,
                             sl_array *out)
{
    int count = 0;
    char quoted[SL__QUOTED_MAX];
    const sl__bound *bound = pipeline->last;
    const sl_model_port *outputs =
        bound ? sl_model_outputs(bound->model, &count) : NULL;
    for (int i = 0; i < count; i++) {
        if (strcmp(outputs[i].name, name) == 0 && bound->merges[i])
            return sl_merge_finish(bound->merges[i], out);
    }
    return sl_fail(SL_ENOTFOUND, "rank %d has kept no output '%s'",
                   sl_comm_rank(pipeline->comm),
                   sl__quoted(name, strlen(name), quoted));
}

const int *sl_pipeline_stages(const sl_pipeline *pipeline, int *count)
{
    *count = pipeline->own_count;
    return pipeline->own_stages;
}

sl_status sl_pipeline_stage(const sl_pipeline *pipeline, int stage,
                            const sl_stage **out_stage, sl_memory **out_memory)
{
    if (stage < 0 || stage >= pipeline->stages || !pipeline->owners[stage])
        return sl_fail(SL_ENOTFOUND,
                       "stage %d is not on rank %d, or not made "
                       "yet",
                       stage, sl_comm_rank(pipeline->comm));
    *out_stage = pipeline->owner_stages[stage];
    *out_memory = pipeline->owners[stage];
    return SL_OK;
}

sl_status sl_pipeline_descend(sl_pipeline *pipeline, double rate)
{
    sl_status status = SL_OK;
    for (int s = 0; s < pipeline->stages && !status; s++) {
        if (pipeline->owners[s])
            status = sl_memory_descend(pipeline->owners[s], rate);
    }
    return status;
}

double sl_pipeline_busy(const sl_pipeline *pipeline)
{
    return pipeline->busy_s;
}

void sl_pipeline_zero_gradients(sl_pipeline *pipeline)
{
    for (int s = 0; s < pipeline->stages; s++) {
        if (pipeline->owners[s])
            sl_memory_zero_gradients(pipeline->owners[s]);
    }
}

int64_t sl_pipeline_bytes(const sl_pipeline *pipeline)
{
    int64_t bytes = 0;
    for (const sl__bound *bound = pipeline->bounds; bound;
         bound = bound->next) {
        for (int i = 0; i < bound->lane_count; i++) {
            const sl__lane *lane = &bound->lanes[i];
            if (!lane->memory)
                continue; /* On another rank. */
            const sl_plan *plan = sl_stage_plan(lane->program_stage);
            bytes += sl_plan_bytes(lane->program_stage, lane->slots);
            if (lane->memory != pipeline->owners[lane->stage])
                bytes -= plan->parameter_bytes + plan->gradient_bytes;
        }
    }
    return bytes;
}

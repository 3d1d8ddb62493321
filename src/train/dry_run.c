/* SPDX-License-Identifier: MIT
 *
 * The dry run of training: the layout of a run, and the memory of every rank,
 * without running it. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "pipeline/pipeline.h"

#include <string.h>

/* Gathers the plans of all ranks on each of them. */
static sl_status share_plans(sl_comm *comm, const sl_rank_bytes *own,
                             double timeout_s, sl_rank_bytes *all)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group group = sl__all_ranks(comm, ranks);
    all[sl_comm_rank(comm)] = *own;
    return sl_comm_allgather(comm, &group, SL__TAG_END, sizeof *all, all,
                             (size_t)group.count, timeout_s);
}

static sl_status check_stage(const sl_weights *weights, const sl_model *model,
                             int stage)
{
    const sl__names *names = &sl_model_stage(model, stage)->graph->parameters;
    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->data[i].name;
        const sl_tensor *tensor = names->data[i].tensor;
        sl_port port = {.dtype = tensor->dtype, .dims = tensor->dims};
        memcpy(port.shape, tensor->shape, sizeof port.shape);
        SL__TRY(sl__check_tensor(sl__find_weight(weights, model, stage, name),
                                 name, &port));
    }
    return SL_OK;
}

/* Checks that the initial weights have every tensor that a stage needs. Only a
 * run checks that their numbers are finite. */
static sl_status check_weights(const char *path, const sl_model *model)
{
    sl_weights *weights;
    SL__TRY(sl_weights_open(path, &weights));
    sl_status status = SL_OK;
    for (int s = 0; s < sl_model_stage_count(model) && !status; s++)
        status = check_stage(weights, model, s);
    sl_weights_close(weights);
    return status;
}

static sl_status describe(sl_pipeline *pipeline, const sl_rank_bytes *all,
                          int64_t rows, sl_train_layout *out)
{
    const sl__pipeline_info at = sl__pipeline_describe(pipeline);
    const sl_model *model;
    SL__TRY(sl_programs_model(
        at.programs, sl_microbatch_rows(rows, at.microbatches, 0), &model));
    *out = (sl_train_layout){.model = model,
                             .ranks = at.ranks,
                             .microbatches = at.microbatches,
                             .rank_of = at.rank_of,
                             .bytes = all,
                             .lowered = sl_pipeline_schedule(pipeline)};
    return SL_OK;
}

/* Plans a run: `all` gets the memory of every rank, and `out` the layout. */
static sl_status plan(sl_comm *comm, const sl_train_options *options,
                      sl_pipeline *pipeline, sl_rank_bytes *all,
                      sl_train_layout *out)
{
    sl_rank_bytes own;
    int microbatches = sl__pipeline_describe(pipeline).microbatches;
    SL__TRY(sl_pipeline_plan(pipeline, options->batch, &own));
    SL__TRY(sl__optimizer_plan(
        pipeline, &options->optimizer,
        sl_microbatch_rows(options->batch, microbatches, 0), &own.optimizer));
    own.planned += own.optimizer;
    SL__TRY(share_plans(comm, &own, options->timeout_s, all));
    SL__TRY(describe(pipeline, all, options->batch, out));
    return options->init && sl_comm_rank(comm) == 0
               ? check_weights(options->init, out->model)
               : SL_OK;
}

sl_status sl_train_dry_run(sl_comm *comm, const sl_train_options *options,
                           void (*show)(void *context,
                                        const sl_train_layout *layout))
{
    SL__NEED(comm, options);
    if (sl_comm_rank(comm) == 0)
        SL__NEED(show);
    sl_gpt2_model_spec model;
    sl_pipeline *pipeline = NULL;
    sl_rank_bytes *all = NULL;
    sl_train_layout layout;
    sl_status status;
    SL__TRY_OR(end, sl__train_check(options));
    SL__TRY_OR(end, sl__alloc((size_t)sl_comm_size(comm), sizeof *all, &all));
    SL__TRY_OR(end, sl__train_pipeline(comm, options, &model, &pipeline));
    SL__TRY_OR(end, plan(comm, options, pipeline, all, &layout));
    if (sl_comm_rank(comm) == 0)
        show(options->context, &layout);
end:
    if (status)
        status = sl__train_fail(comm, pipeline, status);
    sl_pipeline_destroy(pipeline);
    free(all);
    return status;
}

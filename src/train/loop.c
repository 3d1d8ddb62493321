/* SPDX-License-Identifier: MIT
 *
 * The training loop of a rank: read a batch, run the pipeline, step the
 * optimizer; at intervals validate and write a checkpoint. Ranks decide
 * together when to stop. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "pipeline/pipeline.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct trainer {
    sl_comm *comm;
    const sl_train_options *options;
    sl_gpt2_model_spec model;
    sl_pipeline *pipeline;
    sl_optimizer *optimizer;
    sl_progress progress;
    sl__batch batch;
    int64_t bytes;   /* of all ranks */
    sl_claim *claim; /* this rank's lock of the folder, or NULL */
    bool stopped;
} trainer;

static bool is_first(const trainer *t)
{
    return sl_comm_rank(t->comm) == 0;
}

/* ---------------------------------------------------------------- start -- */

sl_status sl__train_check(const sl_train_options *options)
{
    if (!options->schedule || options->batch < 1 || options->steps < 1 ||
        options->keep < 0 || options->save_every < 0 ||
        options->validate_every < 0)
        return sl_fail(SL_EINVAL, "training needs a schedule, a batch and "
                                  "steps");
    SL__TRY(sl__check_save_dtype(options->save_dtype));
    if (!sl_schedule_extent(options->schedule).has_backward)
        return sl_fail(SL_EINVAL, "the schedule has no backward: nothing would "
                                  "be learnt");
    int microbatches = sl_schedule_extent(options->schedule).microbatches;
    if (options->batch < microbatches)
        return sl_fail(SL_EINVAL,
                       "a batch of %lld sequences is fewer than the %d "
                       "microbatches",
                       (long long)options->batch, microbatches);
    if (options->data.length > options->config.positions)
        return sl_fail(SL_EINVAL,
                       "sequences of %lld tokens, and the model has %d "
                       "positions",
                       (long long)options->data.length,
                       options->config.positions);
    if (options->validation.tokens &&
        options->validation.length != options->data.length)
        return sl_fail(SL_EINVAL,
                       "sequences of %lld tokens to validate with, expected "
                       "%lld as in the data",
                       (long long)options->validation.length,
                       (long long)options->data.length);
    int64_t tokens;
    if (__builtin_mul_overflow(options->batch, options->data.length, &tokens))
        return sl_fail(SL_EINVAL,
                       "a batch of %lld sequences of %lld tokens is more than "
                       "memory holds",
                       (long long)options->batch,
                       (long long)options->data.length);
    SL__NEED(options->data.tokens);
    SL__TRY(sl__check_vocabulary(&options->data, "data"));
    return options->validation.tokens && options->validate_every
               ? sl__check_vocabulary(&options->validation, "validation data")
               : SL_OK;
}

/* Sums numbers over all ranks. */
static sl_status sum(const trainer *t, double *numbers, size_t count)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group all = sl__all_ranks(t->comm, ranks);
    return sl_comm_allreduce(t->comm, &all, SL__TAG_END, SL_F64, numbers, count,
                             t->options->timeout_s);
}

static sl_status resume(trainer *t)
{
    const sl_train_options *options = t->options;
    SL__TRY(sl__checkpoint_progress(options->resume, &t->progress));
    /* A newer checkpoint is damaged, or the run would have been resumed from
     * it. */
    if (options->folder && is_first(t))
        SL__TRY(sl__checkpoint_set_aside(options->folder, t->progress.step));
    t->progress.seed = options->seed;
    return sl_checkpoint_read(options->resume, t->pipeline, t->optimizer);
}

static sl_status load(trainer *t)
{
    const sl_train_options *options = t->options;
    t->progress = (sl_progress){.seed = options->seed, .validation = NAN};
    if (options->resume)
        return resume(t);
    return options->init
               ? sl__load_weights(options->init, t->pipeline)
               : sl_pipeline_init_parameters(t->pipeline, sl_gpt2_init,
                                             &options->config, options->seed);
}

sl_status sl__train_pipeline(sl_comm *comm, const sl_train_options *options,
                             sl_gpt2_model_spec *model, sl_pipeline **out)
{
    sl_pipeline_options how = SL_PIPELINE_OPTIONS_INIT;
    *model = (sl_gpt2_model_spec){options->config, SL_GPT2_OPTIONS_INIT,
                                  options->data.length, options->cut,
                                  options->precision};
    if (options->cut.by == SL_CUT_BY_COST)
        model->cut.stages = sl_schedule_extent(options->schedule).stages;
    how.schedule = options->schedule;
    how.stage = options->stage;
    how.share_losses = true;
    how.timeout_s = options->timeout_s;
    how.work_stealing = options->work_stealing;
    how.no_graph = options->no_graph;
    return sl_pipeline_create(comm, sl_gpt2_model, model, &how, out);
}

static sl_status start(trainer *t)
{
    const sl_train_options *options = t->options;
    if (options->folder && is_first(t) && !options->claim)
        SL__TRY(sl_claim_create(options->folder, &t->claim));
    SL__TRY(sl__create_batch(options->batch, options->data.length, &t->batch));
    SL__TRY(sl__train_pipeline(t->comm, options, &t->model, &t->pipeline));
    SL__TRY(sl_pipeline_prepare(t->pipeline, options->batch));
    SL__TRY(
        sl_optimizer_create(t->pipeline, &options->optimizer, &t->optimizer));
    SL__TRY(load(t));
    sl_rank_bytes own;
    sl_pipeline_bytes(t->pipeline, &own);
    double all = (double)own.measured;
    SL__TRY(sum(t, &all, 1));
    t->bytes = (int64_t)all;
    return SL_OK;
}

/* ---------------------------------------------------------------- steps -- */

/* Reads a batch of windows, from the data or from the validation data. */
static sl_status read_batch(trainer *t, const sl_windows *windows,
                            int64_t number)
{
    assert(windows->length == t->options->data.length);
    return sl_windows_read(windows, number, t->options->batch, t->batch.ids,
                           t->batch.labels);
}

/* Computes the mean loss over whole batches of validation windows, in order. */
static sl_status validate(trainer *t, double *out)
{
    const sl_windows *windows = &t->options->validation;
    int64_t batches = sl_windows_count(windows) / t->options->batch;
    double total = 0;
    if (batches > t->options->validation_batches)
        batches = t->options->validation_batches;
    for (int64_t i = 0; i < batches; i++) {
        double loss;
        SL__TRY(read_batch(t, windows, i * t->options->batch));
        SL__TRY(sl_pipeline_eval(t->pipeline, t->batch.arguments, 2));
        SL__TRY(sl_pipeline_loss(t->pipeline, &loss));
        total += loss;
    }
    *out = batches ? total / (double)batches : NAN;
    return SL_OK;
}

static sl_status save(trainer *t)
{
    const sl_train_options *options = t->options;
    SL__TRY(sl_checkpoint_write(t->pipeline, t->optimizer, &options->config,
                                &t->progress, options->save_dtype,
                                options->folder));
    return is_first(t) ? sl_checkpoint_prune(options->folder, options->keep)
                       : SL_OK;
}

static sl_status learn(trainer *t, sl_train_metrics *metrics)
{
    const sl_train_options *options = t->options;
    double start = sl__seconds();
    metrics->rate = sl_rate_at(&options->rate, t->progress.step + 1);
    SL__TRY(read_batch(t, &options->data, t->progress.sequences));
    double begun = sl__seconds();
    metrics->data_s = begun - start;
    sl_pipeline_note_data(t->pipeline, metrics->data_s);
    SL__TRY(
        sl_pipeline_step(t->pipeline, t->batch.arguments, 2, options->seed));
    double stepped = sl__seconds() - begun;
    SL__TRY(sl_pipeline_loss(t->pipeline, &metrics->loss));
    SL__TRY(sl_optimizer_step(t->optimizer, metrics->rate, &metrics->norm));
    /* The ranks' share of compute time; and whether any rank is asked to
     * stop. */
    double shared[2] = {stepped > 0 ? sl_pipeline_busy(t->pipeline) / stepped
                                    : 0,
                        options->stop && options->stop(options->context)};
    SL__TRY(sum(t, shared, 2));
    metrics->bubble = 1 - shared[0] / sl_comm_size(t->comm);
    t->stopped = shared[1] > 0;
    t->progress.step++;
    t->progress.sequences += options->batch;
    metrics->step_s = sl__seconds() - start;
    return SL_OK;
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static bool validates(const trainer *t, bool last)
{
    const sl_train_options *options = t->options;
    if (!options->validation.tokens || options->validate_every == 0)
        return false;
    return is_due(t->progress.step, options->validate_every) ||
           (last && !t->stopped);
}

static void fill_metrics(const trainer *t, bool last, sl_train_metrics *metrics)
{
    const sl_train_options *options = t->options;
    metrics->step = t->progress.step;
    metrics->saved =
        options->folder && (last || is_due(metrics->step, options->save_every));
    metrics->sequences = t->progress.sequences;
    metrics->bytes = t->bytes;
    metrics->tokens_per_s =
        (double)(options->batch * options->data.length) / metrics->step_s;
}

static sl_status step(trainer *t)
{
    const sl_train_options *options = t->options;
    sl_train_metrics metrics = {.validation = NAN};
    sl_status status = SL_OK;
    SL__TRY(learn(t, &metrics));
    bool last = t->stopped || t->progress.step == options->steps;
    /* Taken before validation, which would replace it. */
    sl_trace *trace = NULL;
    if (last && options->trace)
        SL__TRY(sl_pipeline_trace(t->pipeline, &trace));
    if (validates(t, last))
        status = validate(t, &metrics.validation);
    t->progress.validation = metrics.validation;
    fill_metrics(t, last, &metrics);
    /* Report before saving, so that every step in a checkpoint has been
     * reported. */
    if (!status && is_first(t) && options->report)
        options->report(options->context, &metrics);
    if (trace)
        options->trace(options->context, trace);
    sl_trace_destroy(trace);
    SL__TRY(status);
    if (metrics.saved)
        return save(t);
    /* Saving checks this itself. Without it, a run must still not succeed with
     * a model that is not finite. */
    return last ? sl__check_finite(t->pipeline) : SL_OK;
}

sl_status sl__train_fail(sl_comm *comm, sl_pipeline *pipeline, sl_status status)
{
    char why[300];
    if (pipeline)
        return sl__abort_pipeline(pipeline, status);
    snprintf(why, sizeof why, "%s", sl_error_text());
    sl_status heard = sl_comm_progress(comm);
    return heard ? heard : sl__abort_ranks(comm, status, why);
}

static sl_status train(trainer *t)
{
    SL__TRY(sl__train_check(t->options));
    SL__TRY(sl__train_agree(t->comm, t->options));
    SL__TRY(start(t));
    while (!t->stopped && t->progress.step < t->options->steps)
        SL__TRY(step(t));
    return SL_OK;
}

sl_status sl_train(sl_comm *comm, const sl_train_options *options)
{
    SL__NEED(comm, options);
    trainer t = {.comm = comm, .options = options};
    sl_status status = train(&t);
    if (status)
        status = sl__train_fail(comm, t.pipeline, status);
    sl_claim_destroy(t.claim);
    sl_optimizer_destroy(t.optimizer);
    sl_pipeline_destroy(t.pipeline);
    sl__clear_batch(&t.batch);
    return status;
}

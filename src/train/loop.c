/* SPDX-License-Identifier: MIT
 *
 * The training loop, as every rank runs it: read a batch, step, learn; now and
 * then validate and write a checkpoint. Ranks decide together when to stop. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/memory.h"
#include "pipeline/run/runtime.h"

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
    int64_t *ids, *labels;
    int64_t bytes;   /* of all ranks */
    sl_claim *claim; /* of the folder, by this rank; or NULL */
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
    int64_t tokens;
    if (__builtin_mul_overflow(options->batch, options->data.length, &tokens))
        return sl_fail(SL_EINVAL,
                       "a batch of %lld sequences of %lld tokens is more than "
                       "memory holds",
                       (long long)options->batch,
                       (long long)options->data.length);
    sl_status status = sl_windows_check(&options->data, "data");
    if (!status && options->validation.tokens && options->validate_every)
        status = sl_windows_check(&options->validation, "validation data");
    return status;
}

/* Sums numbers over all ranks. */
static sl_status sum(const trainer *t, double *numbers, size_t count)
{
    int ranks[SL_COMM_MAX_RANKS];
    sl_group all = {ranks, sl_comm_size(t->comm)};
    for (int i = 0; i < all.count; i++)
        ranks[i] = i;
    return sl_comm_allreduce(t->comm, &all, SL__TAG_END, SL_F64, numbers, count,
                             t->options->timeout_s);
}

static sl_status load(trainer *t)
{
    const sl_train_options *options = t->options;
    sl_weights *weights;
    t->progress = (sl_progress){.seed = options->seed, .validation = NAN};
    if (options->resume) {
        sl_status status =
            sl__checkpoint_progress(options->resume, &t->progress);
        /* What is newer was not sound, or it would have been resumed from. */
        if (!status && options->folder && is_first(t))
            status =
                sl__checkpoint_set_aside(options->folder, t->progress.step);
        t->progress.seed = options->seed;
        return status ? status
                      : sl_checkpoint_read(options->resume, t->pipeline,
                                           t->optimizer);
    }
    if (!options->init)
        return sl_pipeline_start(t->pipeline, sl_gpt2_start, &options->config,
                                 options->seed);
    sl_status status = sl_weights_open(options->init, &weights);
    if (status)
        return status;
    status = sl_weights_load(weights, t->pipeline);
    sl_weights_close(weights);
    return status;
}

sl_status sl__train_pipeline(sl_comm *comm, const sl_train_options *options,
                             sl_gpt2_model_spec *model, sl_pipeline **out)
{
    sl_pipeline_options how = SL_PIPELINE_OPTIONS_INIT;
    *model = (sl_gpt2_model_spec){options->config, SL_GPT2_OPTIONS_INIT,
                                  options->data.length, options->cut};
    if (options->cut.by == SL_CUT_BY_COST)
        model->cut.stages = sl_schedule_extent(options->schedule).stages;
    how.schedule = options->schedule;
    how.stage = options->stage;
    how.share_losses = true;
    how.timeout_s = options->timeout_s;
    how.lend = options->lend;
    return sl_pipeline_create(comm, sl_gpt2_model, model, &how, out);
}

static sl_status start(trainer *t)
{
    const sl_train_options *options = t->options;
    size_t tokens = (size_t)(options->batch * options->data.length);
    sl_status status = SL_OK;
    if (options->folder && is_first(t) && !options->claim)
        status = sl_claim_create(options->folder, &t->claim);
    if (!status)
        status = sl__alloc(tokens, sizeof *t->ids, &t->ids);
    if (!status)
        status = sl__alloc(tokens, sizeof *t->labels, &t->labels);
    if (!status)
        status = sl__train_pipeline(t->comm, options, &t->model, &t->pipeline);
    if (!status)
        status = sl_pipeline_prepare(t->pipeline, options->batch);
    if (!status)
        status = sl_optimizer_create(t->pipeline, &options->optimizer,
                                     &t->optimizer);
    if (!status)
        status = load(t);
    sl_rank_bytes own;
    if (!status)
        sl_pipeline_bytes(t->pipeline, &own);
    double all = status ? 0 : (double)own.measured;
    if (!status)
        status = sum(t, &all, 1);
    t->bytes = (int64_t)all;
    return status;
}

/* ---------------------------------------------------------------- steps -- */

/* Reads windows, and makes arguments of them. */
static sl_status read_batch(trainer *t, const sl_windows *windows,
                            int64_t number, sl_array arrays[2],
                            sl_argument batch[2])
{
    int64_t rows = t->options->batch, length = windows->length;
    static const char *const names[] = {"input_ids", "labels"};
    int64_t *const data[] = {t->ids, t->labels};
    for (int i = 0; i < 2; i++) {
        arrays[i] = (sl_array){SL_I64, 2, {rows, length}, data[i]};
        batch[i] = (sl_argument){names[i], SL_SPREAD_SPLIT, 0, &arrays[i], 1};
    }
    return sl_windows_read(windows, number, rows, t->ids, t->labels);
}

/* The mean loss over windows one after the other, whole batches of them. */
static sl_status validate(trainer *t, double *out)
{
    const sl_windows *windows = &t->options->validation;
    int64_t batches = sl_windows_count(windows) / t->options->batch;
    double total = 0;
    sl_status status = SL_OK;
    if (batches > t->options->validation_batches)
        batches = t->options->validation_batches;
    for (int64_t i = 0; i < batches && !status; i++) {
        sl_array arrays[2];
        sl_argument batch[2];
        double loss = 0;
        status = read_batch(t, windows, i * t->options->batch, arrays, batch);
        if (!status)
            status = sl_pipeline_eval(t->pipeline, batch, 2);
        if (!status)
            status = sl_pipeline_loss(t->pipeline, &loss);
        total += loss;
    }
    *out = batches ? total / (double)batches : NAN;
    return status;
}

static sl_status save(trainer *t)
{
    const sl_train_options *options = t->options;
    sl_status status =
        sl_checkpoint_write(t->pipeline, t->optimizer, &options->config,
                            &t->progress, options->folder);
    if (!status && is_first(t))
        status = sl_checkpoint_prune(options->folder, options->keep);
    return status;
}

static sl_status learn(trainer *t, sl_train_news *news)
{
    const sl_train_options *options = t->options;
    sl_array arrays[2];
    sl_argument batch[2];
    double start = sl__seconds();
    news->rate = sl_rate_at(&options->rate, t->progress.step + 1);
    sl_status status =
        read_batch(t, &options->data, t->progress.sequences, arrays, batch);
    double begun = sl__seconds();
    news->reading = begun - start;
    sl_pipeline_note_data(t->pipeline, news->reading);
    if (!status)
        status = sl_pipeline_step(t->pipeline, batch, 2, options->seed);
    double stepped = sl__seconds() - begun;
    if (!status)
        status = sl_pipeline_loss(t->pipeline, &news->loss);
    if (!status)
        status = sl_optimizer_step(t->optimizer, news->rate, &news->norm);
    /* What ranks computed; and whether any of them is to stop. */
    double shared[2] = {stepped > 0 ? sl_pipeline_busy(t->pipeline) / stepped
                                    : 0,
                        options->stop && options->stop(options->context)};
    if (!status)
        status = sum(t, shared, 2);
    news->bubble = 1 - shared[0] / sl_comm_size(t->comm);
    t->stopped = shared[1] > 0;
    t->progress.step++;
    t->progress.sequences += options->batch;
    news->seconds = sl__seconds() - start;
    return status;
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static sl_status step(trainer *t)
{
    const sl_train_options *options = t->options;
    sl_train_news news = {.validation = NAN, .bytes = t->bytes};
    sl_status status = learn(t, &news);
    int64_t done = t->progress.step;
    bool last = t->stopped || done == options->steps;
    sl_trace *trace = NULL; /* before others are computed: validation is */
    if (!status && last && options->traced)
        status = sl_pipeline_trace(t->pipeline, &trace);
    if (!status && options->validation.tokens &&
        (is_due(done, options->validate_every) ||
         (last && options->validate_every > 0 && !t->stopped))) {
        status = validate(t, &news.validation);
    }
    t->progress.validation = news.validation;
    news.saved = options->folder && (last || is_due(done, options->save_every));
    news.step = done;
    news.sequences = t->progress.sequences;
    news.tokens_per_s =
        (double)(options->batch * options->data.length) / news.seconds;
    /* Told first: of a step that is in a checkpoint everybody knows. */
    if (!status && is_first(t) && options->tell)
        options->tell(options->context, &news);
    if (trace)
        options->traced(options->context, trace);
    sl_trace_destroy(trace);
    if (!status && news.saved)
        status = save(t);
    /* Saving looks by itself. A run does not end well with such a model. */
    else if (!status && last)
        status = sl__check_finite(t->pipeline);
    return status;
}

sl_status sl__train_fail(sl_comm *comm, sl_pipeline *pipeline, sl_status status)
{
    char why[300];
    if (pipeline)
        return sl__spread(pipeline, status);
    snprintf(why, sizeof why, "%s", sl_error_text());
    sl_status heard = sl_comm_progress(comm);
    return heard ? heard : sl__fail_all(comm, status, why);
}

sl_status sl_train(sl_comm *comm, const sl_train_options *options)
{
    SL__NEED(comm, options);
    trainer t = {.comm = comm, .options = options};
    sl_status status = sl__train_check(options);
    if (!status)
        status = sl__train_agree(comm, options);
    if (!status)
        status = start(&t);
    while (!status && !t.stopped && t.progress.step < options->steps)
        status = step(&t);
    if (status)
        status = sl__train_fail(comm, t.pipeline, status);
    sl_claim_destroy(t.claim);
    sl_optimizer_destroy(t.optimizer);
    sl_pipeline_destroy(t.pipeline);
    free(t.ids);
    free(t.labels);
    return status;
}

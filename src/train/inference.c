/* SPDX-License-Identifier: MIT
 *
 * Evaluates a trained model, and generates tokens with it. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "pipeline/pipeline.h"
#include "tensor/random.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A pipeline with loaded weights, and its batch, with one sequence per
 * microbatch. */
typedef struct reader {
    sl_gpt2_model_spec model;
    sl_pipeline *pipeline;
    int64_t rows, length;
    sl__batch batch;
} reader;

static void close_reader(reader *r)
{
    sl_pipeline_destroy(r->pipeline);
    sl__clear_batch(&r->batch);
}

sl_status sl__load_weights(const char *path, sl_pipeline *pipeline)
{
    sl_weights *weights;
    SL__TRY(sl_weights_open(path, &weights));
    sl_status status = sl_weights_load(weights, pipeline);
    sl_weights_close(weights);
    return status;
}

/* Compares what decides the sizes of messages. */
static sl_status agree(sl_comm *comm, const sl_inference_options *options,
                       int64_t length)
{
    int ranks[SL_COMM_MAX_RANKS];
    char sequence[24];
    const sl_group group = sl__all_ranks(comm, ranks);
    snprintf(sequence, sizeof sequence, "%lld", (long long)length);
    const sl_comm_item items[] = {
        {"precision", sl_dtype_text(options->precision)}, {"seq", sequence}};
    return group.count == 1 ? SL_OK
                            : sl_comm_agree(comm, &group, SL__TAG_END, items, 2,
                                            options->timeout_s);
}

/* Fills in a reader. The caller closes it, also after a failure. */
static sl_status prepare_reader(sl_comm *comm,
                                const sl_inference_options *options,
                                bool outputs, reader *r)
{
    sl_pipeline_options how = SL_PIPELINE_OPTIONS_INIT;
    how.schedule = options->schedule;
    how.stage = options->stage;
    how.share_losses = true;
    how.keep_outputs = outputs;
    how.timeout_s = options->timeout_s;
    sl_status status = agree(comm, options, r->length);
    if (status)
        return sl__train_fail(comm, NULL, status);
    SL__TRY(sl__create_batch(r->rows, r->length, &r->batch));
    SL__TRY(
        sl_pipeline_create(comm, sl_gpt2_model, &r->model, &how, &r->pipeline));
    SL__TRY(sl_pipeline_prepare(r->pipeline, r->rows));
    status = sl__load_weights(options->weights, r->pipeline);
    return status ? sl__abort_pipeline(r->pipeline, status) : SL_OK;
}

static sl_status open_reader(sl_comm *comm, const sl_inference_options *options,
                             int64_t length, bool outputs, reader *r)
{
    sl_extent extent = sl_schedule_extent(options->schedule);
    *r = (reader){.model = {options->config, SL_GPT2_OPTIONS_INIT, length,
                            SL_CUT_OPTIONS_INIT, options->precision},
                  .rows = extent.microbatches,
                  .length = length};
    r->model.cut.by = SL_CUT_BY_COST;
    r->model.cut.inside = true;
    r->model.cut.stages = extent.stages;
    sl_status status = prepare_reader(comm, options, outputs, r);
    if (status)
        close_reader(r);
    return status;
}

/* ------------------------------------------------------------ evaluating -- */

static sl_status sum_losses(reader *r, const sl_windows *windows, int64_t count,
                            double *total)
{
    for (int64_t at = 0; at < count; at += r->rows) {
        int found;
        /* The last batch is padded with windows that do not count. */
        sl_status status = sl_windows_read(windows, at, r->rows, r->batch.ids,
                                           r->batch.labels);
        if (status)
            return sl__abort_pipeline(r->pipeline, status);
        SL__TRY(sl_pipeline_eval(r->pipeline, r->batch.arguments, 2));
        const double *losses = sl_pipeline_losses(r->pipeline, &found);
        assert(!losses || found == r->rows);
        for (int64_t i = 0; losses && i < r->rows && at + i < count; i++)
            *total += losses[i];
    }
    return SL_OK;
}

sl_status sl_evaluate(sl_comm *comm, const sl_inference_options *options,
                      const sl_windows *windows, int64_t most, double *out_loss,
                      int64_t *out_count)
{
    SL__NEED(comm, options, windows, out_loss);
    reader r;
    int64_t count = sl_windows_count(windows);
    double total = 0;
    count = most > 0 && most < count ? most : count;
    SL__TRY(sl__check_windows(windows));
    SL__TRY(open_reader(comm, options, windows->length, false, &r));
    sl_status status = sum_losses(&r, windows, count, &total);
    close_reader(&r);
    SL__TRY(status);
    if (!isfinite(total))
        return sl_fail(SL_EINVAL, "the loss is not finite");
    *out_loss = total / (double)count;
    if (out_count)
        *out_count = count;
    return SL_OK;
}

/* -------------------------------------------------------------- sampling -- */

/* A token and its probability. */
typedef struct choice {
    float logit;
    int token;
} choice;

static int likelier(const void *left, const void *right)
{
    const choice *a = left, *b = right;
    if (a->logit != b->logit)
        return a->logit < b->logit ? 1 : -1;
    return (a->token > b->token) - (a->token < b->token);
}

/* Samples a token; `x` is uniform in [0, 1). */
static int64_t choose(const float *logits, int count, const sl_sampling *how,
                      double x, choice *choices)
{
    int top = how->top_k > 0 && how->top_k < count ? how->top_k : count;
    double sum = 0;
    for (int i = 0; i < count; i++)
        choices[i] = (choice){isnan(logits[i]) ? -INFINITY : logits[i], i};
    qsort(choices, (size_t)count, sizeof *choices, likelier);
    if (!(how->temperature > 0))
        return choices[0].token;
    double most = (double)choices[0].logit;
    for (int i = 0; i < top; i++)
        sum += exp(((double)choices[i].logit - most) / how->temperature);
    double left = x * sum;
    for (int i = 0; i < top; i++) {
        left -= exp(((double)choices[i].logit - most) / how->temperature);
        if (left < 0)
            return choices[i].token;
    }
    return choices[top - 1].token;
}

/* Chooses the next token of every sample, on the rank that has the logits. */
static sl_status choose_all(reader *r, const sl_sampling *how, int64_t place,
                            int64_t number, int64_t *out)
{
    sl_array logits;
    choice *choices;
    int count = r->model.config.vocabulary;
    SL__TRY(sl_pipeline_output(r->pipeline, "logits", &logits));
    SL__TRY(sl__alloc((size_t)count, sizeof *choices, &choices));
    for (int64_t s = 0; s < r->rows; s++) {
        const float *at = (const float *)logits.data +
                          (s * r->length + place) * (int64_t)count;
        uint64_t bits = sl__mix(sl__mix(how->seed + (uint64_t)s) +
                                (uint64_t)number * 0x9e3779b97f4a7c15u);
        out[s] =
            choose(at, count, how, (double)(bits >> 11) * 0x1p-53, choices);
    }
    free(choices);
    return SL_OK;
}

/* The rank that computes the logits. */
static int rank_of_logits(const reader *r)
{
    const sl__pipeline_info at = sl__pipeline_describe(r->pipeline);
    int count;
    const sl_model_port *outputs =
        sl_model_outputs(sl_pipeline_model(r->pipeline), &count);
    for (int i = 0; i < count; i++) {
        if (strcmp(outputs[i].name, "logits") == 0)
            return at.rank_of[outputs[i].stages[0]];
    }
    return 0;
}

/* Fills the batch with the latest tokens of every sample, as many as the model
 * has positions. */
static void fill_ids(reader *r, const int64_t *texts, int64_t whole,
                     int64_t first, int64_t used)
{
    assert(used > 0 && used <= r->length && first + used <= whole);
    /* Attention is causal: what follows the last token does not matter. */
    memset(r->batch.ids, 0, sizeof *texts * (size_t)(r->rows * r->length));
    for (int64_t s = 0; s < r->rows; s++)
        memcpy(r->batch.ids + s * r->length, texts + s * whole + first,
               sizeof *texts * (size_t)used);
}

static sl_status add_tokens(sl_comm *comm, reader *r, const sl_sampling *how,
                            int64_t *texts, int64_t *next)
{
    int ranks[SL_COMM_MAX_RANKS], root = rank_of_logits(r);
    const sl_group all = sl__all_ranks(comm, ranks);
    int64_t whole = how->prompt_count + how->tokens;
    for (int64_t n = 0; n < how->tokens; n++) {
        int64_t there = how->prompt_count + n;
        int64_t first = there > r->length ? there - r->length : 0;
        fill_ids(r, texts, whole, first, there - first);
        SL__TRY(sl_pipeline_eval(r->pipeline, r->batch.arguments, 2));
        if (sl_comm_rank(comm) == root)
            SL__TRY(choose_all(r, how, there - first - 1, n, next));
        SL__TRY(sl_comm_broadcast(
            comm, &all, SL__TAG_END, root, next, sizeof *next * (size_t)r->rows,
            sl__pipeline_describe(r->pipeline).timeout_s));
        for (int64_t s = 0; s < r->rows; s++) {
            texts[s * whole + there] = next[s];
            if (sl_comm_rank(comm) == 0)
                how->emit(how->context, (int)s, next[s]);
        }
    }
    return SL_OK;
}

static sl_status check_prompt(const sl_inference_options *options,
                              const sl_sampling *how)
{
    if (how->prompt_count < 1 || !how->prompt)
        return sl_fail(SL_EINVAL, "a prompt has a token at least");
    if (how->prompt_count > INT32_MAX || how->tokens < 0 ||
        how->tokens > INT32_MAX)
        return sl_fail(SL_EINVAL,
                       "%lld tokens after a prompt of %lld, expected at most "
                       "%d of each",
                       (long long)how->tokens, (long long)how->prompt_count,
                       INT32_MAX);
    for (int64_t i = 0; i < how->prompt_count; i++) {
        if (how->prompt[i] < 0 || how->prompt[i] >= options->config.vocabulary)
            return sl_fail(SL_EINVAL,
                           "token %lld of the prompt is past the vocabulary of "
                           "%d",
                           (long long)how->prompt[i],
                           options->config.vocabulary);
    }
    return SL_OK;
}

sl_status sl_generate_tokens(sl_comm *comm, const sl_inference_options *options,
                             const sl_sampling *sampling)
{
    SL__NEED(comm, options, sampling);
    if (sl_comm_rank(comm) == 0)
        SL__NEED(sampling->emit);
    reader r;
    int64_t *texts = NULL, *next = NULL;
    int64_t length = options->config.positions;
    SL__TRY(check_prompt(options, sampling));
    int64_t whole = sampling->prompt_count + sampling->tokens;
    length = whole < length ? whole : length;
    sl_status status;
    SL__TRY(open_reader(comm, options, length, true, &r));
    SL__TRY_OR(end, sl__alloc((size_t)(r.rows * whole), sizeof *texts, &texts));
    SL__TRY_OR(end, sl__alloc((size_t)r.rows, sizeof *next, &next));
    for (int64_t s = 0; s < r.rows; s++)
        memcpy(texts + s * whole, sampling->prompt,
               sizeof *texts * (size_t)sampling->prompt_count);
    SL__TRY_OR(end, add_tokens(comm, &r, sampling, texts, next));
end:
    if (status)
        status = sl__abort_pipeline(r.pipeline, status);
    free(texts);
    free(next);
    close_reader(&r);
    return status;
}

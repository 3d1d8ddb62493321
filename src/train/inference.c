/* SPDX-License-Identifier: MIT
 *
 * A trained model at work: mean losses, and texts that go on. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "pipeline/run/runtime.h"
#include "tensor/random.h"

#include <math.h>
#include <string.h>

/* A pipeline with weights, and room for a batch of one sequence each. */
typedef struct reader {
    sl_gpt2_model_spec model;
    sl_pipeline *pipeline;
    int64_t rows, length;
    int64_t *ids, *labels;
    sl_array arrays[2];
    sl_argument batch[2];
} reader;

static void close_reader(reader *r)
{
    sl_pipeline_destroy(r->pipeline);
    free(r->ids);
    free(r->labels);
}

static sl_status load(reader *r, const char *path)
{
    sl_weights *weights;
    sl_status status = sl_weights_open(path, &weights);
    if (status)
        return status;
    status = sl_weights_load(weights, r->pipeline);
    sl_weights_close(weights);
    return status;
}

static sl_status open_reader(sl_comm *comm, const sl_inference_options *options,
                             int64_t length, bool outputs, reader *r)
{
    static const char *const names[] = {"input_ids", "labels"};
    sl_pipeline_options how = SL_PIPELINE_OPTIONS_INIT;
    sl_extent extent = sl_schedule_extent(options->schedule);
    *r = (reader){.model = {options->config, SL_GPT2_OPTIONS_INIT, length,
                            SL_CUT_OPTIONS_INIT},
                  .rows = extent.microbatches,
                  .length = length};
    r->model.cut.by = SL_CUT_BY_COST;
    r->model.cut.inside = true;
    r->model.cut.stages = extent.stages;
    how.schedule = options->schedule;
    how.stage = options->stage;
    how.share_losses = true;
    how.keep_outputs = outputs;
    how.timeout_s = options->timeout_s;
    int64_t tokens = 0;
    sl_status status = SL_OK;
    if (__builtin_mul_overflow(r->rows, length, &tokens))
        status = sl_fail(SL_ENOMEM, "out of memory: sequences of %lld tokens",
                         (long long)length);
    if (!status)
        status = sl__alloc((size_t)tokens, sizeof *r->ids, &r->ids);
    if (!status)
        status = sl__alloc((size_t)tokens, sizeof *r->labels, &r->labels);
    if (!status)
        status = sl_pipeline_create(comm, sl_gpt2_model, &r->model, &how,
                                    &r->pipeline);
    if (!status)
        status = sl_pipeline_prepare(r->pipeline, r->rows);
    if (!status) {
        status = load(r, options->weights);
        if (status)
            status = sl__spread(r->pipeline, status);
    }
    int64_t *const data[] = {r->ids, r->labels};
    for (int i = 0; i < 2; i++) {
        r->arrays[i] = (sl_array){SL_I64, 2, {r->rows, length}, data[i]};
        r->batch[i] =
            (sl_argument){names[i], SL_SPREAD_SPLIT, 0, &r->arrays[i], 1};
    }
    if (status)
        close_reader(r);
    return status;
}

/* ------------------------------------------------------------ evaluating -- */

sl_status sl_evaluate(sl_comm *comm, const sl_inference_options *options,
                      const sl_windows *windows, int64_t most, double *out_loss,
                      int64_t *out_count)
{
    SL__NEED(comm, options, windows, out_loss);
    reader r;
    int64_t count = sl_windows_count(windows);
    double total = 0;
    count = most > 0 && most < count ? most : count;
    sl_status status = sl__check_windows(windows);
    if (!status)
        status = open_reader(comm, options, windows->length, false, &r);
    if (status)
        return status;
    for (int64_t at = 0; at < count && !status; at += r.rows) {
        int found;
        /* The last batch is filled up with windows that do not count. */
        status = sl_windows_read(windows, at, r.rows, r.ids, r.labels);
        if (status)
            status = sl__spread(r.pipeline, status);
        if (!status)
            status = sl_pipeline_eval(r.pipeline, r.batch, 2);
        const double *losses =
            status ? NULL : sl_pipeline_losses(r.pipeline, &found);
        for (int64_t i = 0; losses && i < r.rows && at + i < count; i++)
            total += losses[i];
    }
    close_reader(&r);
    if (status)
        return status;
    if (!isfinite(total))
        return sl_fail(SL_EINVAL, "the loss is not finite");
    *out_loss = total / (double)count;
    if (out_count)
        *out_count = count;
    return SL_OK;
}

/* -------------------------------------------------------------- sampling -- */

/* A token with how likely it is. */
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

/* One of the tokens, by chance; `x` is uniform from 0 up to below 1. */
static int64_t choose(const float *logits, int count, const sl_sampling *how,
                      double x, choice *choices)
{
    int top = how->top > 0 && how->top < count ? how->top : count;
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

/* The next token of every sample, on the rank that has the logits. */
static sl_status choose_all(reader *r, const sl_sampling *how, int64_t place,
                            int64_t number, int64_t *out)
{
    sl_array logits;
    choice *choices;
    int count = r->model.config.vocabulary;
    sl_status status = sl_pipeline_output(r->pipeline, "logits", &logits);
    if (!status)
        status = sl__alloc((size_t)count, sizeof *choices, &choices);
    if (status)
        return status;
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
    int count;
    const sl_model_port *outputs =
        sl_model_outputs(sl_pipeline_model(r->pipeline), &count);
    for (int i = 0; i < count; i++) {
        if (strcmp(outputs[i].name, "logits") == 0)
            return r->pipeline->rank_of[outputs[i].stages[0]];
    }
    return 0;
}

static sl_status add_tokens(sl_comm *comm, reader *r, const sl_sampling *how,
                            int64_t *texts, int64_t *next)
{
    int ranks[SL_COMM_MAX_RANKS], root = rank_of_logits(r);
    sl_group all = {ranks, sl_comm_size(comm)};
    int64_t whole = how->prompt_count + how->tokens;
    sl_status status = SL_OK;
    for (int i = 0; i < all.count; i++)
        ranks[i] = i;
    for (int64_t n = 0; n < how->tokens && !status; n++) {
        int64_t there = how->prompt_count + n;
        int64_t first = there > r->length ? there - r->length : 0;
        int64_t used = there - first;
        /* What comes after the last token is not looked at by it. */
        memset(r->ids, 0, sizeof *r->ids * (size_t)(r->rows * r->length));
        for (int64_t s = 0; s < r->rows; s++)
            memcpy(r->ids + s * r->length, texts + s * whole + first,
                   sizeof *texts * (size_t)used);
        status = sl_pipeline_eval(r->pipeline, r->batch, 2);
        if (!status && sl_comm_rank(comm) == root)
            status = choose_all(r, how, used - 1, n, next);
        if (!status)
            status = sl_comm_broadcast(comm, &all, SL__TAG_END, root, next,
                                       sizeof *next * (size_t)r->rows,
                                       r->pipeline->options.timeout_s);
        for (int64_t s = 0; s < r->rows && !status; s++) {
            texts[s * whole + there] = next[s];
            if (sl_comm_rank(comm) == 0)
                how->tell(how->context, (int)s, next[s]);
        }
    }
    return status;
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

sl_status sl_continue(sl_comm *comm, const sl_inference_options *options,
                      const sl_sampling *sampling)
{
    SL__NEED(comm, options, sampling);
    if (sl_comm_rank(comm) == 0)
        SL__NEED(sampling->tell);
    reader r;
    int64_t *texts = NULL, *next = NULL;
    int64_t length = options->config.positions;
    sl_status status = check_prompt(options, sampling);
    if (status)
        return status;
    int64_t whole = sampling->prompt_count + sampling->tokens;
    length = whole < length ? whole : length;
    status = open_reader(comm, options, length, true, &r);
    if (status)
        return status;
    status = sl__alloc((size_t)(r.rows * whole), sizeof *texts, &texts);
    if (!status)
        status = sl__alloc((size_t)r.rows, sizeof *next, &next);
    for (int64_t s = 0; s < r.rows && !status; s++)
        memcpy(texts + s * whole, sampling->prompt,
               sizeof *texts * (size_t)sampling->prompt_count);
    if (!status)
        status = add_tokens(comm, &r, sampling, texts, next);
    if (status)
        status = sl__spread(r.pipeline, status);
    free(texts);
    free(next);
    close_reader(&r);
    return status;
}

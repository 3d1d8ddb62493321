/* SPDX-License-Identifier: MIT
 *
 * Compares, before the first step, the options that all ranks of a run must
 * have in common: a run in which they differ may succeed and leave a wrong
 * model. */
#include "train/train.h"

#include "base/memory.h"
#include "base/writer.h"
#include "pipeline/pipeline.h"
#include "tensor/random.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ITEMS_MAX = 64, VALUE_MAX = 64 };

typedef struct list {
    sl_comm_item items[ITEMS_MAX];
    char values[ITEMS_MAX][VALUE_MAX];
    int count;
} list;

static void add(list *all, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(list *all, const char *name, const char *format, ...)
{
    va_list arguments;
    assert(all->count < ITEMS_MAX);
    char *value = all->values[all->count];
    va_start(arguments, format);
    vsnprintf(value, VALUE_MAX, format, arguments);
    va_end(arguments);
    all->items[all->count++] = (sl_comm_item){name, value};
}

/* --------------------------------------------------------------- digests -- */

static sl_status sum_text(void *sum, const char *data, size_t length)
{
    sl__fnv_add(sum, data, length);
    return SL_OK;
}

static sl_status add_schedule(list *all, const sl_schedule *schedule)
{
    uint64_t sum = SL__FNV_START;
    sl_extent extent = sl_schedule_extent(schedule);
    SL__TRY(sl_schedule_write_csv(schedule, sum_text, &sum));
    add(all, "schedule", "%d ranks, %d stages, %d microbatches, %08" PRIx32,
        extent.ranks, extent.stages, extent.microbatches,
        (uint32_t)(sum ^ sum >> 32));
    return SL_OK;
}

/* Hashes tokens at 256 places, which distinguishes data without reading all of
 * it. */
static sl_status add_windows(list *all, const char *name,
                             const sl_windows *windows)
{
    enum { PLACES = 256, TOKENS = 16 };
    int64_t tokens[TOKENS];
    uint64_t sum = SL__FNV_START;
    if (!windows->tokens) {
        add(all, name, "none");
        return SL_OK;
    }
    int64_t last = windows->count - TOKENS;
    for (int i = 0; i < PLACES && last >= 0; i++) {
        int64_t at = (int64_t)((double)last * i / (PLACES - 1));
        SL__TRY(sl_tokens_read(windows->tokens, windows->first + at, TOKENS,
                               tokens));
        sl__fnv_add(&sum, tokens, sizeof tokens);
    }
    add(all, name, "%" PRId64 " tokens, %08" PRIx32, windows->count,
        (uint32_t)(sum ^ sum >> 32));
    return SL_OK;
}

static void add_cut(list *all, const sl_cut_options *cut)
{
    uint64_t sum = SL__FNV_START;
    for (int i = 0; i < cut->point_count; i++) {
        const sl_cut_point *point = &cut->points[i];
        sl__fnv_add(&sum, point->module, strlen(point->module) + 1);
        sl__fnv_add(&sum, &point->after, sizeof point->after);
    }
    if (cut->point_count > 0)
        add(all, "cut", "at %d places, first %s%.24s, %08" PRIx32,
            cut->point_count, cut->points[0].after ? "after " : "",
            cut->points[0].module, (uint32_t)(sum ^ sum >> 32));
    else
        add(all, "cut", "%s", cut->by == SL_CUT_BY_COST ? "by cost" : "marks");
    add(all, "how it is cut", "%d %d %d %d", (int)cut->by, (int)cut->route,
        (int)cut->feed, cut->inside);
}

static void add_model(list *all, const sl_gpt2_config *config)
{
    add(all, "layers", "%d", config->layers);
    add(all, "d", "%d", config->width);
    add(all, "heads", "%d", config->heads);
    add(all, "inner width", "%d", config->inner);
    add(all, "vocab", "%d", config->vocabulary);
    add(all, "positions", "%d", config->positions);
    add(all, "untied", "%d", !config->tied);
    add(all, "activation", "%d", (int)config->activation);
    add(all, "epsilon of norms", "%.17g", config->epsilon);
}

static void add_optimizer(list *all, const sl_train_options *options)
{
    const sl_optimizer_options *how = &options->optimizer;
    const sl_rate *rate = &options->rate;
    add(all, "optimizer", "%s", how->kind == SL_UPDATE_SGD ? "sgd" : "adamw");
    add(all, "beta1", "%.17g", how->beta1);
    add(all, "beta2", "%.17g", how->beta2);
    add(all, "eps", "%.17g", how->epsilon);
    add(all, "momentum", "%.17g", how->momentum);
    add(all, "weight-decay", "%.17g", how->decay);
    add(all, "decay-all", "%d", how->decay_all);
    add(all, "clip", "%.17g", how->clip);
    add(all, "lr", "%.17g", rate->rate);
    add(all, "lr-last", "%.17g", rate->last);
    add(all, "lr-decay", "%d", (int)rate->kind);
    add(all, "warmup", "%" PRId64, rate->warmup);
    add(all, "steps of the rate", "%" PRId64, rate->steps);
}

static void add_run(list *all, const sl_train_options *options)
{
    const char *backend = options->stage.backend;
    add(all, "seed", "%" PRIu64, options->seed);
    add(all, "batch", "%" PRId64, options->batch);
    add(all, "seq", "%" PRId64, options->data.length);
    add(all, "stride", "%" PRId64, options->data.stride);
    add(all, "the data's range", "%" PRId64 " %" PRIu64 " %d",
        options->data.first, options->data.seed, options->data.shuffled);
    add(all, "the data's vocabulary", "%d", options->data.vocabulary);
    add(all, "steps", "%" PRId64, options->steps);
    add(all, "eval-every", "%" PRId64, options->validate_every);
    add(all, "eval-batches", "%" PRId64, options->validation_batches);
    add(all, "save-every", "%" PRId64, options->save_every);
    add(all, "precision", "%s", sl_dtype_text(options->precision));
    add(all, "save-dtype", "%s", sl_dtype_text(options->save_dtype));
    add(all, "out", "%d", options->folder != NULL);
    add(all, "trace", "%d", options->trace != NULL);
    add(all, "recompute", "%d", options->stage.recompute);
    add(all, "backend", "%.32s", backend ? backend : "");
}

/* Adds the end of the path that the run starts from, which is where paths
 * differ. */
static void add_start(list *all, const sl_train_options *options)
{
    const char *path = options->resume ? options->resume : options->init;
    size_t length = path ? strlen(path) : 0;
    add(all, options->resume ? "resume" : "init", "%s",
        path ? path + (length > 60 ? length - 60 : 0) : "");
}

static sl_status add_all(list *all, const sl_train_options *options)
{
    add(all, "the version of Sluice", "%s", sl_version());
    add_run(all, options);
    add_model(all, &options->config);
    add_optimizer(all, options);
    add_cut(all, &options->cut);
    add_start(all, options);
    SL__TRY(add_schedule(all, options->schedule));
    SL__TRY(add_windows(all, "the data", &options->data));
    return add_windows(all, "the validation data", &options->validation);
}

sl_status sl__train_agree(sl_comm *comm, const sl_train_options *options)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group group = sl__all_ranks(comm, ranks);
    list *all;
    if (group.count == 1)
        return SL_OK;
    SL__TRY(sl__alloc(1, sizeof *all, &all));
    sl_status status = add_all(all, options);
    if (!status)
        status = sl_comm_agree(comm, &group, SL__TAG_END, all->items,
                               all->count, options->timeout_s);
    free(all);
    return status;
}

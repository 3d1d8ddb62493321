/* SPDX-License-Identifier: MIT
 *
 * Merges an output over all microbatches. Parts may come in any order. Sums are
 * taken once all parts have come, over microbatches in ascending order, so that
 * they do not depend on the order of arrival. */
#include "pipeline/batch/batch.h"

#include "base/arena.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "tensor/graph.h"

#include <assert.h>
#include <string.h>

typedef struct part {
    sl_array array; /* data: its memory in the whole, if it has any */
    int64_t first;  /* row of the whole */
    double weight;
    bool is_there;
} part;

struct sl_merge {
    sl__arena arena;
    sl_merge_options options;
    part *parts;
    int count;
    int missing;
    sl_array whole; /* of a concat, a sum or a mean */
    sl__rows rows;  /* of the whole of a concat */
    void *memory;
    int64_t bytes; /* of it */
    bool dry;      /* has no memory, only `bytes` */
};

/* ----------------------------------------------------------------- life -- */

static sl_status check_options(const sl_merge *merge)
{
    const sl_merge_options *options = &merge->options;
    sl_dtype dtype = merge->parts[0].array.dtype;
    if (options->by < SL_MERGE_CONCAT || options->by > SL_MERGE_LIST)
        return sl_fail(SL_EINVAL, "there is no way %d to merge",
                       (int)options->by);
    if (options->by == SL_MERGE_MEAN && !sl__is_float(dtype))
        return sl_fail(SL_EINVAL, "a mean is of floats, found %s",
                       sl_dtype_text(dtype));
    if (options->by == SL_MERGE_SUM && dtype == SL_BOOL)
        return sl_fail(SL_EINVAL, "a sum is of numbers, found bool");
    return SL_OK;
}

/* Checks that parts have the same dtype and shape, except for rows in a concat.
 * The parts of a list may differ. */
static sl_status check_parts(const sl_merge *merge)
{
    char found[SL__ARRAY_TEXT], expected[SL__ARRAY_TEXT];
    sl_merge_by by = merge->options.by;
    int dim = by == SL_MERGE_CONCAT ? merge->options.dim : -1;
    for (int i = 1; i < merge->count && by != SL_MERGE_LIST; i++) {
        const sl_array *array = &merge->parts[i].array;
        sl_array like;
        if (!sl__is_like(array, &merge->parts[0].array, dim, &like))
            return sl_fail(SL_EINVAL,
                           "microbatch %d gives %s, expected %s as microbatch "
                           "0",
                           i, sl__array_text(array, found),
                           sl__array_text(&like, expected));
    }
    return SL_OK;
}

static sl_status check_merge(sl_merge *merge)
{
    for (int i = 0; i < merge->count; i++)
        SL__TRY(sl__check_array(&merge->parts[i].array, "an output"));
    SL__TRY(check_options(merge));
    if (merge->options.by == SL_MERGE_CONCAT)
        SL__TRY(sl__check_dim(&merge->parts[0].array, "an output",
                              &merge->options.dim));
    return check_parts(merge);
}

static sl_status take_weights(sl_merge *merge, const int64_t *rows)
{
    double sum = 0;
    for (int i = 0; i < merge->count; i++) {
        if (rows && rows[i] < 1)
            return sl_fail(SL_EINVAL,
                           "microbatch %d has %lld rows, expected 1 "
                           "or more",
                           i, (long long)rows[i]);
        merge->parts[i].weight = rows ? (double)rows[i] : 1;
        sum += merge->parts[i].weight;
    }
    for (int i = 0; i < merge->count; i++)
        merge->parts[i].weight /= sum;
    return SL_OK;
}

/* Plans the memory: a concat has memory for the whole; the others have memory
 * for the parts, and all but a list for a whole before them. */
static sl_status plan(sl_merge *merge, int64_t *out_head)
{
    bool concat = merge->options.by == SL_MERGE_CONCAT;
    bool list = merge->options.by == SL_MERGE_LIST;
    int64_t rows = 0;
    merge->whole = merge->parts[0].array;
    *out_head =
        concat || list ? 0 : sl__aligned(sl__array_bytes(&merge->whole));
    merge->bytes = *out_head;
    for (int i = 0; i < merge->count; i++) {
        part *own = &merge->parts[i];
        int64_t bytes = sl__array_bytes(&own->array);
        if (__builtin_add_overflow(merge->bytes,
                                   concat ? bytes : sl__aligned(bytes),
                                   &merge->bytes))
            return sl_fail(SL_ENOMEM, "the outputs do not fit memory");
        if (concat) {
            own->first = rows;
            rows += own->array.shape[merge->options.dim];
        }
    }
    if (concat) {
        merge->whole.shape[merge->options.dim] = rows;
        merge->rows = sl__along(&merge->whole, merge->options.dim);
    }
    return SL_OK;
}

static sl_status make_room(sl_merge *merge)
{
    bool concat = merge->options.by == SL_MERGE_CONCAT;
    int64_t at;
    SL__TRY(plan(merge, &at));
    if (merge->dry)
        return SL_OK;
    SL__TRY(sl__alloc((size_t)merge->bytes, 1, &merge->memory));
    merge->whole.data = merge->memory;
    for (int i = 0; i < merge->count; i++) {
        part *own = &merge->parts[i];
        bool is_slice = concat && merge->rows.outer > 1 && merge->count > 1;
        if (concat)
            at = own->first * merge->rows.row_bytes;
        own->array.data = is_slice ? NULL : (char *)merge->memory + at;
        at += sl__aligned(sl__array_bytes(&own->array));
    }
    return SL_OK;
}

static sl_status fill(sl_merge *merge, const sl_array *parts,
                      const int64_t *rows)
{
    SL__TRY(sl__arena_take(&merge->arena, (size_t)merge->count,
                           sizeof *merge->parts, &merge->parts));
    for (int i = 0; i < merge->count; i++)
        merge->parts[i].array = parts[i];
    SL__TRY(check_merge(merge));
    SL__TRY(take_weights(merge, rows));
    return make_room(merge);
}

sl_status sl_merge_create(const sl_merge_options *options,
                          const sl_array *parts, const int64_t *rows,
                          int microbatches, sl_merge **out)
{
    SL__NEED(parts, out);
    return sl__merge_create(options, parts, rows, microbatches, false, out);
}

sl_status sl__merge_create(const sl_merge_options *options,
                           const sl_array *parts, const int64_t *rows,
                           int microbatches, bool dry, sl_merge **out)
{
    static const sl_merge_options defaults = SL_MERGE_OPTIONS_INIT;
    if (microbatches < 1)
        return sl_fail(SL_EINVAL, "%d microbatches, expected 1 or more",
                       microbatches);
    sl_merge *merge;
    SL__TRY(sl__alloc(1, sizeof *merge, &merge));
    merge->options = options ? *options : defaults;
    merge->dry = dry;
    merge->count = merge->missing = microbatches;
    sl_status status = fill(merge, parts, rows);
    if (status)
        sl_merge_destroy(merge);
    else
        *out = merge;
    return status;
}

void sl_merge_destroy(sl_merge *merge)
{
    if (!merge)
        return;
    sl__arena_clear(&merge->arena);
    free(merge->memory);
    free(merge);
}

/* -------------------------------------------------------------- putting -- */

void sl_merge_restart(sl_merge *merge)
{
    if (!merge)
        return;
    merge->missing = merge->count;
    for (int i = 0; i < merge->count; i++)
        merge->parts[i].is_there = false;
}

static sl_status check_index(const sl_merge *merge, int microbatch)
{
    if (microbatch >= 0 && microbatch < merge->count)
        return SL_OK;
    return sl_fail(SL_EINVAL, "microbatch %d, expected 0 to %d", microbatch,
                   merge->count - 1);
}

void *sl_merge_place(const sl_merge *merge, int microbatch)
{
    if (!merge || microbatch < 0 || microbatch >= merge->count)
        return NULL;
    return (void *)merge->parts[microbatch].array.data;
}

/* Records that a part has come, or is about to. */
static sl_status note_part(sl_merge *merge, int microbatch, size_t bytes)
{
    SL__TRY(check_index(merge, microbatch));
    part *own = &merge->parts[microbatch];
    if ((int64_t)bytes != sl__array_bytes(&own->array))
        return sl_fail(SL_EINVAL, "microbatch %d gives %lld bytes, found %zu",
                       microbatch, (long long)sl__array_bytes(&own->array),
                       bytes);
    /* The first part of a new step: discards the last whole. */
    if (merge->missing == 0)
        sl_merge_restart(merge);
    if (own->is_there)
        return sl_fail(SL_EINVAL, "microbatch %d is there already", microbatch);
    own->is_there = true;
    merge->missing--;
    return SL_OK;
}

sl_status sl_merge_put(sl_merge *merge, int microbatch, const void *data,
                       size_t bytes)
{
    SL__NEED(merge, data);
    if (data == sl_merge_place(merge, microbatch))
        return note_part(merge, microbatch, bytes);
    return sl__merge_collect(merge, microbatch, &sl__host, data, bytes);
}

sl_status sl__merge_collect(sl_merge *merge, int microbatch, sl__stream *stream,
                            const void *data, size_t bytes)
{
    assert(!merge->dry);
    SL__TRY(note_part(merge, microbatch, bytes));
    const part *own = &merge->parts[microbatch];
    if (own->array.data)
        return sl__device_read(stream, (void *)own->array.data, data, bytes);
    sl__rows rows = sl__along(&own->array, merge->options.dim);
    return sl__copy_rows(stream, stream->buffers->read, &rows, data, 0,
                         &merge->rows, merge->memory, own->first, rows.rows);
}

/* ------------------------------------------------------------ finishing -- */

static sl_status check_same(const sl_merge *merge, size_t bytes)
{
    const sl_array *first = &merge->parts[0].array;
    for (int i = 1; i < merge->count; i++) {
        if (memcmp(first->data, merge->parts[i].array.data, bytes) != 0)
            return sl_fail(SL_EINVAL,
                           "microbatch %d differs from microbatch 0, expected "
                           "the same",
                           i);
    }
    return SL_OK;
}

/* Sums in double, whatever the dtype of the parts. */
static void sum_floats(sl_merge *merge, int64_t count)
{
    bool mean = merge->options.by == SL_MERGE_MEAN;
    for (int64_t k = 0; k < count; k++) {
        double sum = 0;
        for (int i = 0; i < merge->count; i++)
            sum += sl__float_at(merge->whole.dtype, merge->parts[i].array.data,
                                k) *
                   (mean ? merge->parts[i].weight : 1);
        sl__set_float(merge->whole.dtype, merge->memory, k, sum);
    }
}

static void sum_integers(sl_merge *merge, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        /* Unsigned, so that overflow wraps. */
        uint64_t sum = 0;
        for (int i = 0; i < merge->count; i++) {
            const void *data = merge->parts[i].array.data;
            sum += merge->whole.dtype == SL_I32
                       ? (uint64_t)((const int32_t *)data)[k]
                       : (uint64_t)((const int64_t *)data)[k];
        }
        if (merge->whole.dtype == SL_I32)
            ((int32_t *)merge->memory)[k] = (int32_t)sum;
        else
            ((int64_t *)merge->memory)[k] = (int64_t)sum;
    }
}

static sl_status check_part(const sl_merge *merge, int microbatch)
{
    if (!merge->parts[microbatch].is_there)
        return sl_fail(SL_EINVAL, "microbatch %d has given nothing yet",
                       microbatch);
    return SL_OK;
}

static sl_status check_there(const sl_merge *merge)
{
    for (int i = 0; i < merge->count; i++)
        SL__TRY(check_part(merge, i));
    return SL_OK;
}

sl_status sl_merge_finish(sl_merge *merge, sl_array *out)
{
    SL__NEED(merge, out);
    sl_merge_by by = merge->options.by;
    int64_t bytes = sl__array_bytes(&merge->whole);
    int64_t count = bytes / (int64_t)sl_dtype_bytes(merge->whole.dtype);
    if (by == SL_MERGE_LIST)
        return sl_fail(SL_EINVAL, "a list has no whole, only parts");
    SL__TRY(check_there(merge));
    if (by == SL_MERGE_SAME) {
        SL__TRY(check_same(merge, (size_t)bytes));
        memcpy(merge->memory, merge->parts[0].array.data, (size_t)bytes);
    }
    if (by == SL_MERGE_SUM || by == SL_MERGE_MEAN) {
        if (sl__is_float(merge->whole.dtype))
            sum_floats(merge, count);
        else
            sum_integers(merge, count);
    }
    *out = merge->whole;
    return SL_OK;
}

sl_status sl_merge_part(const sl_merge *merge, int microbatch, sl_array *out)
{
    SL__NEED(merge, out);
    SL__TRY(check_index(merge, microbatch));
    SL__TRY(check_part(merge, microbatch));
    const part *own = &merge->parts[microbatch];
    if (!own->array.data)
        return sl_fail(
            SL_EINVAL,
            "the parts of a concat along dimension %d are not contiguous",
            merge->options.dim);
    *out = own->array;
    return SL_OK;
}

int64_t sl__merge_bytes(const sl_merge *merge)
{
    return merge->bytes;
}

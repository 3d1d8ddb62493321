/* SPDX-License-Identifier: MIT
 *
 * Batches in microbatches. Nothing is copied here: an argument of a microbatch
 * is a slice of the caller's array, found anew whenever it is asked for. */
#include "pipeline/batch/arrays.h"
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

typedef struct argument {
    const char *name; /* the input's; without a model as given, or NULL */
    int input;        /* its number in the model */
    sl_spread spread;
    int dim;
    int given_dim; /* as it was given, */
    bool named;    /* and whether by name */
    sl_array *arrays;
    int array_count;
    char what[80]; /* "argument 'x'", for sentences */
} argument;

struct sl_batch {
    sl__arena arena;
    argument *arguments;
    int count;
    int microbatches;
    int64_t *rows; /* by microbatch */
    int64_t *sizes;
    int size_count;
    bool has_rows; /* something is split */
};

int64_t sl_microbatch_rows(int64_t rows, int count, int index)
{
    if (rows < 0 || index < 0 || index >= count)
        return 0;
    return rows / count + (index < rows % count);
}

/* Where the rows of a microbatch begin in the whole. */
static int64_t first_row(int64_t rows, int count, int index)
{
    int64_t more = index < rows % count ? index : rows % count;
    return rows / count * index + more;
}

/* --------------------------------------------------------------- inputs -- */

/* The number of an input by name; refuses with those there are. */
static sl_status find_input(const sl_model *model, const char *name, int *out)
{
    char quoted[SL__QUOTED_MAX], list[SL__LIST_TEXT] = "none";
    size_t used = 0;
    for (int i = 0; i < model->input_count; i++) {
        if (strcmp(model->inputs[i].name, name) == 0) {
            *out = i;
            return SL_OK;
        }
        if (used < 300)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.60s",
                                     i ? ", " : "", model->inputs[i].name);
    }
    return sl_fail(SL_ENOTFOUND, "the model has no input '%s'; it has %s",
                   sl__quoted(name, strlen(name), quoted), list);
}

/* Binds arguments to inputs of a model, in order and by name. */
static sl_status bind(sl_batch *batch, const sl_model *model,
                      const sl_argument *given)
{
    bool named = false, *bound;
    sl_status status = sl__arena_take(
        &batch->arena, (size_t)model->input_count + 1, sizeof *bound, &bound);
    for (int i = 0; i < batch->count && !status; i++) {
        int *at = &batch->arguments[i].input;
        if (!given[i].name && named)
            return sl_fail(SL_EINVAL,
                           "argument %d has no name and comes after one that "
                           "has",
                           i);
        if (!given[i].name && i >= model->input_count)
            return sl_fail(SL_EINVAL,
                           "%d arguments, and the model has %d inputs",
                           batch->count, model->input_count);
        named = given[i].name;
        *at = i;
        if (named)
            status = find_input(model, given[i].name, at);
        if (!status && bound[*at])
            status = sl_fail(SL_EINVAL, "input '%.60s' is given twice",
                             model->inputs[*at].name);
        if (status)
            return status;
        bound[*at] = true;
        batch->arguments[i].name = model->inputs[*at].name;
    }
    for (int i = 0; i < model->input_count && !status; i++) {
        if (!bound[i])
            status = sl_fail(SL_EINVAL, "input '%.60s' is not given",
                             model->inputs[i].name);
    }
    return status;
}

/* Holds one array against the input of a model, but for its rows. */
static sl_status check_input(const sl_model *model, const argument *own,
                             const sl_array *array)
{
    char found[SL__ARRAY_TEXT], expected[SL__ARRAY_TEXT];
    const sl_model_port *port = &model->inputs[own->input];
    sl_array input = {.dtype = port->dtype, .dims = port->dims}, like;
    memcpy(input.shape, port->shape, sizeof input.shape);
    int dim = own->spread == SL_SPREAD_REPLICATE ? -1 : own->dim;
    if (sl__is_like(array, &input, dim, &like))
        return SL_OK;
    return sl_fail(SL_EINVAL, "stage %d: input '%.60s' is %s, expected %s",
                   port->stage_count ? port->stages[0] : 0, own->name,
                   sl__array_text(array, found),
                   sl__array_text(&like, expected));
}

/* ----------------------------------------------------------------- rows -- */

/* Takes over an argument, checked by itself. */
static sl_status take(sl_batch *batch, const sl_argument *given, int i)
{
    argument *own = &batch->arguments[i];
    char quoted[SL__QUOTED_MAX];
    const char *name = own->name ? own->name : given->name;
    if (name)
        snprintf(own->what, sizeof own->what, "argument '%s'",
                 sl__quoted(name, strlen(name), quoted));
    else
        snprintf(own->what, sizeof own->what, "argument %d", i);
    if (name && sl__arena_text(&batch->arena, name, strlen(name), &own->name))
        return SL_ENOMEM;
    own->spread = given->spread;
    own->dim = own->given_dim = given->dim;
    own->named = given->name;
    own->array_count =
        given->spread == SL_SPREAD_GIVEN ? batch->microbatches : 1;
    if (given->spread < SL_SPREAD_SPLIT || given->spread > SL_SPREAD_GIVEN)
        return sl_fail(SL_EINVAL, "%s: there is no way %d to spread it",
                       own->what, (int)given->spread);
    if (given->array_count != own->array_count || !given->arrays)
        return sl_fail(SL_EINVAL, "%s comes in %d arrays, expected %d",
                       own->what, given->arrays ? given->array_count : 0,
                       own->array_count);
    sl_status status = sl__arena_take(&batch->arena, (size_t)own->array_count,
                                      sizeof *own->arrays, &own->arrays);
    for (int k = 0; k < own->array_count && !status; k++) {
        own->arrays[k] = given->arrays[k];
        status = sl__check_array(&own->arrays[k], own->what);
    }
    if (!status && own->spread != SL_SPREAD_REPLICATE)
        status = sl__check_dim(&own->arrays[0], own->what, &own->dim);
    return status;
}

/* Arrays that come split are alike but for their rows. */
static sl_status check_alike(const argument *own)
{
    char found[SL__ARRAY_TEXT], expected[SL__ARRAY_TEXT];
    for (int k = 1; k < own->array_count; k++) {
        sl_array like;
        if (!sl__is_like(&own->arrays[k], &own->arrays[0], own->dim, &like))
            return sl_fail(SL_EINVAL,
                           "%s: microbatch %d is %s, expected %s as microbatch "
                           "0",
                           own->what, k, sl__array_text(&own->arrays[k], found),
                           sl__array_text(&like, expected));
    }
    return SL_OK;
}

static int64_t rows_of(const sl_batch *batch, const argument *own,
                       int microbatch)
{
    if (own->spread == SL_SPREAD_GIVEN)
        return own->arrays[microbatch].shape[own->dim];
    return sl_microbatch_rows(own->arrays[0].shape[own->dim],
                              batch->microbatches, microbatch);
}

/* Everything that is split has the same rows in every microbatch. */
static sl_status agree(sl_batch *batch, const argument *own,
                       const argument **first)
{
    int64_t all = own->arrays[0].shape[own->dim];
    if (own->spread == SL_SPREAD_SPLIT && all < batch->microbatches)
        return sl_fail(SL_EINVAL,
                       "%s has %lld rows in dimension %d, fewer than the %d "
                       "microbatches",
                       own->what, (long long)all, own->dim,
                       batch->microbatches);
    for (int m = 0; m < batch->microbatches; m++) {
        int64_t rows = rows_of(batch, own, m);
        if (!*first)
            batch->rows[m] = rows;
        else if (rows != batch->rows[m])
            return sl_fail(SL_EINVAL,
                           "%s has %lld rows in microbatch %d, expected %lld "
                           "as %s has",
                           own->what, (long long)rows, m,
                           (long long)batch->rows[m], (*first)->what);
    }
    *first = own;
    return SL_OK;
}

static int descending(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return (*a < *b) - (*a > *b);
}

static sl_status list_sizes(sl_batch *batch)
{
    size_t count = (size_t)batch->microbatches;
    sl_status status = sl__arena_take(&batch->arena, count,
                                      sizeof *batch->sizes, &batch->sizes);
    if (status)
        return status;
    memcpy(batch->sizes, batch->rows, sizeof *batch->sizes * count);
    qsort(batch->sizes, count, sizeof *batch->sizes, descending);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || batch->sizes[i] != batch->sizes[batch->size_count - 1])
            batch->sizes[batch->size_count++] = batch->sizes[i];
    }
    return SL_OK;
}

/* ----------------------------------------------------------------- life -- */

static sl_status fill(sl_batch *batch, const sl_model *model,
                      const sl_argument *arguments)
{
    sl__arena *arena = &batch->arena;
    const argument *first = NULL;
    sl_status status =
        sl__arena_take(arena, (size_t)batch->count, sizeof *batch->arguments,
                       &batch->arguments);
    if (!status)
        status = sl__arena_take(arena, (size_t)batch->microbatches,
                                sizeof *batch->rows, &batch->rows);
    if (!status && model)
        status = bind(batch, model, arguments);
    for (int i = 0; i < batch->count && !status; i++) {
        argument *own = &batch->arguments[i];
        status = take(batch, &arguments[i], i);
        if (!status)
            status = check_alike(own);
        if (!status && model)
            status = check_input(model, own, &own->arrays[0]);
        if (!status && own->spread != SL_SPREAD_REPLICATE)
            status = agree(batch, own, &first);
    }
    batch->has_rows = first;
    return status || !first ? status : list_sizes(batch);
}

sl_status sl_batch_create(const sl_model *model, const sl_argument *arguments,
                          int count, int microbatches, sl_batch **out)
{
    SL__NEED(out);
    enum { MICROBATCHES_MAX = 1 << 20 };
    if (microbatches < 1 || microbatches > MICROBATCHES_MAX)
        return sl_fail(SL_EINVAL, "%d microbatches, expected 1 to %d",
                       microbatches, MICROBATCHES_MAX);
    if (count < 0)
        return sl_fail(SL_EINVAL, "%d arguments", count);
    if (count)
        SL__NEED(arguments);
    sl_batch *batch;
    sl_status status = sl__alloc(1, sizeof *batch, &batch);
    if (status)
        return status;
    batch->count = count;
    batch->microbatches = microbatches;
    status = fill(batch, model, arguments);
    if (status)
        sl_batch_destroy(batch);
    else
        *out = batch;
    return status;
}

void sl_batch_destroy(sl_batch *batch)
{
    if (!batch)
        return;
    sl__arena_clear(&batch->arena);
    free(batch);
}

/* -------------------------------------------------------------- reading -- */

int sl_batch_microbatches(const sl_batch *batch)
{
    return batch ? batch->microbatches : 0;
}

int64_t sl_batch_rows(const sl_batch *batch, int microbatch)
{
    bool is_one = batch && microbatch >= 0 && microbatch < batch->microbatches;
    return is_one && batch->has_rows ? batch->rows[microbatch] : 0;
}

const int64_t *sl_batch_sizes(const sl_batch *batch, int *count)
{
    int found = batch ? batch->size_count : 0;
    if (count)
        *count = found;
    return found ? batch->sizes : NULL;
}

int sl_batch_find(const sl_batch *batch, const char *input)
{
    for (int i = 0; batch && input && i < batch->count; i++) {
        if (batch->arguments[i].name &&
            strcmp(batch->arguments[i].name, input) == 0)
            return i;
    }
    return -1;
}

sl_status sl_batch_replace(sl_batch *batch, int index, const sl_array *arrays,
                           int count)
{
    SL__NEED(batch, arrays);
    char found[SL__ARRAY_TEXT], expected[SL__ARRAY_TEXT];
    if (index < 0 || index >= batch->count)
        return sl_fail(SL_EINVAL, "argument %d, expected 0 to %d", index,
                       batch->count - 1);
    argument *own = &batch->arguments[index];
    if (count != own->array_count)
        return sl_fail(SL_EINVAL, "%s comes in %d arrays, expected %d",
                       own->what, count, own->array_count);
    for (int k = 0; k < count; k++) {
        sl_array like;
        if (!sl__is_like(&arrays[k], &own->arrays[k], -1, &like))
            return sl_fail(SL_EINVAL, "%s is %s, expected %s as before",
                           own->what, sl__array_text(&arrays[k], found),
                           sl__array_text(&like, expected));
    }
    memcpy(own->arrays, arrays, sizeof *arrays * (size_t)count);
    return SL_OK;
}

bool sl__batch_takes(sl_batch *batch, const sl_argument *arguments, int count)
{
    if (!batch || count != batch->count)
        return false;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++) {
            const sl_argument *given = &arguments[i];
            const argument *own = &batch->arguments[i];
            sl_array like;
            if (pass == 1) {
                memcpy(own->arrays, given->arrays,
                       sizeof *own->arrays * (size_t)own->array_count);
                continue;
            }
            if (given->spread != own->spread ||
                given->array_count != own->array_count || !given->arrays ||
                (given->name && strcmp(given->name, own->name) != 0) ||
                given->dim != own->given_dim || !given->name != !own->named)
                return false;
            for (int k = 0; k < own->array_count; k++) {
                if (!sl__is_like(&given->arrays[k], &own->arrays[k], -1, &like))
                    return false;
            }
        }
    }
    return true;
}

/* The array that a microbatch's part lies in, and where its rows begin. */
static sl_status find_part(const sl_batch *batch, int index, int microbatch,
                           const sl_array **whole, sl_array *part,
                           int64_t *first)
{
    if (index < 0 || index >= batch->count)
        return sl_fail(SL_EINVAL, "argument %d, expected 0 to %d", index,
                       batch->count - 1);
    if (microbatch < 0 || microbatch >= batch->microbatches)
        return sl_fail(SL_EINVAL, "microbatch %d, expected 0 to %d", microbatch,
                       batch->microbatches - 1);
    const argument *own = &batch->arguments[index];
    *whole = &own->arrays[own->spread == SL_SPREAD_GIVEN ? microbatch : 0];
    *part = **whole;
    *first = 0;
    if (own->spread == SL_SPREAD_SPLIT) {
        part->shape[own->dim] = batch->rows[microbatch];
        *first = first_row((*whole)->shape[own->dim], batch->microbatches,
                           microbatch);
    }
    return SL_OK;
}

sl_status sl_batch_part(const sl_batch *batch, int index, int microbatch,
                        sl_array *out)
{
    SL__NEED(batch, out);
    const sl_array *whole;
    sl_array part;
    int64_t first;
    sl_status status =
        find_part(batch, index, microbatch, &whole, &part, &first);
    if (status)
        return status;
    const argument *own = &batch->arguments[index];
    if (own->spread == SL_SPREAD_SPLIT) {
        sl__rows rows = sl__along(whole, own->dim);
        bool in_one_piece =
            rows.outer == 1 || part.shape[own->dim] == rows.rows;
        part.data = whole->data && in_one_piece
                        ? (const char *)whole->data + first * rows.row_bytes
                        : NULL;
    }
    *out = part;
    return SL_OK;
}

sl_status sl_batch_copy(const sl_batch *batch, int index, int microbatch,
                        void *out, size_t bytes)
{
    SL__NEED(batch, out);
    return sl__batch_load(batch, index, microbatch, &sl__host, out, bytes);
}

sl_status sl__batch_load(const sl_batch *batch, int index, int microbatch,
                         sl__stream *stream, void *out, size_t bytes)
{
    const sl_array *whole;
    sl_array part;
    int64_t first;
    sl_status status =
        find_part(batch, index, microbatch, &whole, &part, &first);
    if (status)
        return status;
    const argument *own = &batch->arguments[index];
    if ((int64_t)bytes != sl__array_bytes(&part))
        return sl_fail(SL_EINVAL,
                       "%s has %lld bytes in microbatch %d, found "
                       "%zu",
                       own->what, (long long)sl__array_bytes(&part), microbatch,
                       bytes);
    if (!whole->data)
        return sl_fail(SL_EINVAL, "%s has no data", own->what);
    if (own->spread != SL_SPREAD_SPLIT)
        return sl__device_write(stream, out, whole->data, bytes);
    sl__rows from = sl__along(whole, own->dim), to = sl__along(&part, own->dim);
    return sl__copy_rows(stream, stream->buffers->write, &from, whole->data,
                         first, &to, out, 0, to.rows);
}

int sl__batch_dim(const sl_batch *batch)
{
    int found = -2;
    for (int i = 0; i < batch->count; i++) {
        const argument *own = &batch->arguments[i];
        if (own->spread == SL_SPREAD_REPLICATE)
            continue;
        if (found != -2 && found != own->dim)
            return -1;
        found = own->dim;
    }
    return found == -2 ? 0 : found;
}

/* SPDX-License-Identifier: MIT
 *
 * Splits batches into microbatches. Nothing is copied: an argument of a
 * microbatch is a slice of the caller's array, computed whenever it is asked
 * for. */
#include "pipeline/batch/batch.h"
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <stdio.h>
#include <string.h>

typedef struct argument {
    const char *name; /* of the input; without a model as given, or NULL */
    int input;        /* its number in the model */
    sl_spread spread;
    int dim;
    int given_dim; /* `dim` as it was given, */
    bool named;    /* and whether it was given by name */
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
    bool has_rows; /* something is split */
};

int64_t sl_microbatch_rows(int64_t rows, int count, int index)
{
    if (rows < 0 || index < 0 || index >= count)
        return 0;
    return rows / count + (index < rows % count);
}

/* The first row of a microbatch in the batch. */
static int64_t first_row(int64_t rows, int count, int index)
{
    int64_t more = index < rows % count ? index : rows % count;
    return rows / count * index + more;
}

/* --------------------------------------------------------------- inputs -- */

/* The number of an input, by name. The error names the inputs that exist. */
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
    SL__TRY(sl__arena_take(&batch->arena, (size_t)model->input_count + 1,
                           sizeof *bound, &bound));
    for (int i = 0; i < batch->count; i++) {
        int at = i;
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
        if (named)
            SL__TRY(find_input(model, given[i].name, &at));
        if (bound[at])
            return sl_fail(SL_EINVAL, "input '%.60s' is given twice",
                           model->inputs[at].name);
        bound[at] = true;
        batch->arguments[i].input = at;
        batch->arguments[i].name = model->inputs[at].name;
    }
    for (int i = 0; i < model->input_count; i++) {
        if (!bound[i])
            return sl_fail(SL_EINVAL, "input '%.60s' is not given",
                           model->inputs[i].name);
    }
    return SL_OK;
}

/* Checks one array against an input of the model, except for its rows. */
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

/* Checks an argument by itself and adds it to the batch. */
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
    if (name)
        SL__TRY(sl__arena_text(&batch->arena, name, strlen(name), &own->name));
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
    SL__TRY(sl__arena_take(&batch->arena, (size_t)own->array_count,
                           sizeof *own->arrays, &own->arrays));
    for (int k = 0; k < own->array_count; k++) {
        own->arrays[k] = given->arrays[k];
        SL__TRY(sl__check_array(&own->arrays[k], own->what));
    }
    return own->spread == SL_SPREAD_REPLICATE
               ? SL_OK
               : sl__check_dim(&own->arrays[0], own->what, &own->dim);
}

/* Checks that the arrays of a split argument differ only in their rows. */
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

/* Checks that all split arguments have the same rows in every microbatch. */
static sl_status check_rows(sl_batch *batch, const argument *own,
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

/* ----------------------------------------------------------------- life -- */

static sl_status fill(sl_batch *batch, const sl_model *model,
                      const sl_argument *arguments)
{
    const argument *first = NULL;
    SL__TRY(sl__arena_take(&batch->arena, (size_t)batch->count,
                           sizeof *batch->arguments, &batch->arguments));
    SL__TRY(sl__arena_take(&batch->arena, (size_t)batch->microbatches,
                           sizeof *batch->rows, &batch->rows));
    if (model)
        SL__TRY(bind(batch, model, arguments));
    for (int i = 0; i < batch->count; i++) {
        argument *own = &batch->arguments[i];
        SL__TRY(take(batch, &arguments[i], i));
        SL__TRY(check_alike(own));
        if (model)
            SL__TRY(check_input(model, own, &own->arrays[0]));
        if (own->spread != SL_SPREAD_REPLICATE)
            SL__TRY(check_rows(batch, own, &first));
    }
    batch->has_rows = first;
    return SL_OK;
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
    SL__TRY(sl__alloc(1, sizeof *batch, &batch));
    batch->count = count;
    batch->microbatches = microbatches;
    sl_status status = fill(batch, model, arguments);
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

int sl_batch_find(const sl_batch *batch, const char *input)
{
    for (int i = 0; batch && input && i < batch->count; i++) {
        if (batch->arguments[i].name &&
            strcmp(batch->arguments[i].name, input) == 0)
            return i;
    }
    return -1;
}

/* Whether an argument differs from that of the batch in its data alone. */
static bool is_like_own(const argument *own, const sl_argument *given)
{
    sl_array like;
    if (given->spread != own->spread || given->dim != own->given_dim ||
        given->array_count != own->array_count || !given->arrays ||
        !given->name != !own->named ||
        (given->name && strcmp(given->name, own->name) != 0))
        return false;
    for (int k = 0; k < own->array_count; k++) {
        if (!sl__is_like(&given->arrays[k], &own->arrays[k], -1, &like))
            return false;
    }
    return true;
}

bool sl__batch_reuse(sl_batch *batch, const sl_argument *arguments, int count)
{
    if (!batch || count != batch->count)
        return false;
    for (int i = 0; i < count; i++) {
        if (!is_like_own(&batch->arguments[i], &arguments[i]))
            return false;
    }
    for (int i = 0; i < count; i++) {
        const argument *own = &batch->arguments[i];
        memcpy(own->arrays, arguments[i].arrays,
               sizeof *own->arrays * (size_t)own->array_count);
    }
    return true;
}

/* An argument of one microbatch: the caller's array that contains it, the first
 * of its rows there, and its dtype and shape. */
typedef struct slice {
    const argument *own;
    const sl_array *whole;
    int64_t first;
    sl_array part;
} slice;

static sl_status find_slice(const sl_batch *batch, int index, int microbatch,
                            slice *out)
{
    if (index < 0 || index >= batch->count)
        return sl_fail(SL_EINVAL, "argument %d, expected 0 to %d", index,
                       batch->count - 1);
    if (microbatch < 0 || microbatch >= batch->microbatches)
        return sl_fail(SL_EINVAL, "microbatch %d, expected 0 to %d", microbatch,
                       batch->microbatches - 1);
    const argument *own = &batch->arguments[index];
    const sl_array *whole =
        &own->arrays[own->spread == SL_SPREAD_GIVEN ? microbatch : 0];
    *out = (slice){own, whole, 0, *whole};
    if (own->spread == SL_SPREAD_SPLIT) {
        out->part.shape[own->dim] = batch->rows[microbatch];
        out->first =
            first_row(whole->shape[own->dim], batch->microbatches, microbatch);
    }
    return SL_OK;
}

sl_status sl_batch_part(const sl_batch *batch, int index, int microbatch,
                        sl_array *out)
{
    SL__NEED(batch, out);
    slice found;
    SL__TRY(find_slice(batch, index, microbatch, &found));
    *out = found.part;
    if (found.own->spread == SL_SPREAD_SPLIT) {
        sl__rows rows = sl__along(found.whole, found.own->dim);
        bool in_one_piece =
            rows.outer == 1 || found.part.shape[found.own->dim] == rows.rows;
        out->data = out->data && in_one_piece
                        ? (const char *)out->data + found.first * rows.row_bytes
                        : NULL;
    }
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
    slice found;
    SL__TRY(find_slice(batch, index, microbatch, &found));
    const argument *own = found.own;
    int64_t expected = sl__array_bytes(&found.part);
    if ((int64_t)bytes != expected)
        return sl_fail(SL_EINVAL,
                       "%s has %lld bytes in microbatch %d, found %zu",
                       own->what, (long long)expected, microbatch, bytes);
    if (!found.whole->data)
        return sl_fail(SL_EINVAL, "%s has no data", own->what);
    if (own->spread != SL_SPREAD_SPLIT)
        return sl__device_write(stream, out, found.whole->data, bytes);
    sl__rows from = sl__along(found.whole, own->dim);
    sl__rows to = sl__along(&found.part, own->dim);
    return sl__copy_rows(stream, stream->buffers->write, &from,
                         found.whole->data, found.first, &to, out, 0, to.rows);
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

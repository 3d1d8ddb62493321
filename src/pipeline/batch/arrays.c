/* SPDX-License-Identifier: MIT */
#include "pipeline/batch/batch.h"

#include "base/dtype.h"
#include "base/try.h"
#include "tensor/graph.h"

#include <stdio.h>
#include <string.h>

/* Larger than any memory, and small enough that sums of a few do not
 * overflow. */
#define ARRAY_BYTES_MAX (INT64_C(1) << 56)

sl__rows sl__along(const sl_array *array, int dim)
{
    sl__rows out = {1, array->shape[dim],
                    (int64_t)sl_dtype_bytes(array->dtype)};
    for (int i = 0; i < array->dims; i++) {
        if (i < dim)
            out.outer *= array->shape[i];
        if (i > dim)
            out.row_bytes *= array->shape[i];
    }
    return out;
}

int64_t sl__array_bytes(const sl_array *array)
{
    int64_t bytes = (int64_t)sl_dtype_bytes(array->dtype);
    for (int i = 0; i < array->dims; i++)
        bytes *= array->shape[i];
    return bytes;
}

bool sl__is_like(const sl_array *array, const sl_array *other, int dim,
                 sl_array *out_like)
{
    *out_like = *other;
    if (array->dims == other->dims && dim >= 0)
        out_like->shape[dim] = array->shape[dim];
    bool same = array->dtype == other->dtype && array->dims == other->dims;
    for (int d = 0; same && d < other->dims; d++)
        same = array->shape[d] == out_like->shape[d];
    return same;
}

const char *sl__array_text(const sl_array *array, char out[SL__ARRAY_TEXT])
{
    char text[SL__SHAPE_TEXT];
    snprintf(out, SL__ARRAY_TEXT, "%s %s", sl_dtype_text(array->dtype),
             sl__shape_text(array->dims, array->shape, text));
    return out;
}

sl_status sl__check_array(const sl_array *array, const char *what)
{
    if (sl_dtype_bytes(array->dtype) == 0)
        return sl_fail(SL_EINVAL, "%s: dtype %d does not exist", what,
                       (int)array->dtype);
    if (!sl__is_computed(array->dtype))
        return sl__refuse_dtype(what, array->dtype);
    if (array->dims < 0 || array->dims > SL_DIMS_MAX)
        return sl_fail(SL_EINVAL, "%s: %d dimensions, expected 0 to %d", what,
                       array->dims, SL_DIMS_MAX);
    int64_t bytes = (int64_t)sl_dtype_bytes(array->dtype);
    for (int i = 0; i < array->dims; i++) {
        if (array->shape[i] < 1 ||
            __builtin_mul_overflow(bytes, array->shape[i], &bytes) ||
            bytes > ARRAY_BYTES_MAX)
            return sl_fail(SL_EINVAL,
                           "%s: size %lld in dimension %d, expected from 1 up "
                           "to what memory holds",
                           what, (long long)array->shape[i], i);
    }
    return SL_OK;
}

sl_status sl__check_dim(const sl_array *array, const char *what, int *dim)
{
    char text[SL__ARRAY_TEXT];
    if (*dim >= -array->dims && *dim < array->dims) {
        *dim += *dim < 0 ? array->dims : 0;
        return SL_OK;
    }
    return sl_fail(SL_EINVAL,
                   "%s is %s and has no dimension %d to be split along", what,
                   sl__array_text(array, text), *dim);
}

sl_status sl__copy_rows(sl__stream *stream, sl__move_fn move,
                        const sl__rows *source, const void *from_data,
                        int64_t from, const sl__rows *target, void *to_data,
                        int64_t to, int64_t count)
{
    size_t bytes = (size_t)(count * source->row_bytes);
    for (int64_t i = 0; i < source->outer; i++)
        SL__TRY(
            move(stream,
                 (char *)to_data + (i * target->rows + to) * target->row_bytes,
                 (const char *)from_data +
                     (i * source->rows + from) * source->row_bytes,
                 bytes));
    return SL_OK;
}

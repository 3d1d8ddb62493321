/* SPDX-License-Identifier: MIT
 *
 * Shapes: sizes, strides, text. Every size here was checked when its tensor was
 * made, so products cannot overflow. */
#include "tensor/graph.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* More than any machine has, and so small that a million of them can be
 * added. */
#define TENSOR_BYTES_MAX ((int64_t)1 << 42)

int64_t sl__count(const sl_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->dims; i++)
        count *= tensor->shape[i];
    return count;
}

int64_t sl__bytes(const sl_tensor *tensor)
{
    return sl__count(tensor) * (int64_t)sl_dtype_bytes(tensor->dtype);
}

bool sl__is_dense(const sl_tensor *tensor)
{
    int64_t expected = 1;
    for (int i = tensor->dims - 1; i >= 0; i--) {
        if (tensor->shape[i] == 1)
            continue;
        if (tensor->stride[i] != expected)
            return false;
        expected *= tensor->shape[i];
    }
    return true;
}

bool sl__has_shape(const sl_tensor *tensor, int dims, const int64_t *shape)
{
    return tensor->dims == dims &&
           (dims == 0 ||
            memcmp(tensor->shape, shape, sizeof *shape * dims) == 0);
}

bool sl__same_shape(const sl_tensor *a, const sl_tensor *b)
{
    return sl__has_shape(a, b->dims, b->shape);
}

void sl__dense_strides(int dims, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int i = dims - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i];
    }
}

const char *sl__shape_text(int dims, const int64_t *shape,
                           char out[SL__SHAPE_TEXT])
{
    int used = snprintf(out, SL__SHAPE_TEXT, "(");
    for (int i = 0; i < dims && i < SL_DIMS_MAX; i++)
        used += snprintf(out + used, SL__SHAPE_TEXT - used, "%s%lld",
                         i ? ", " : "", (long long)shape[i]);
    snprintf(out + used, SL__SHAPE_TEXT - used, ")");
    return out;
}

bool sl__reshape_strides(const sl_tensor *from, int dims, const int64_t *shape,
                         int64_t *stride)
{
    /* Walk both shapes from the end in groups of equal size: inside a group the
     * old dimensions must be adjacent in memory. */
    int old = from->dims - 1, new = dims - 1;
    while (new >= 0) {
        while (old >= 0 && from->shape[old] == 1)
            old--;
        if (shape[new] == 1 || old < 0) {
            stride[new --] = 1;
            continue;
        }
        int64_t step = from->stride[old];
        int64_t have = from->shape[old], want = 1;
        int64_t run = from->shape[old] * step; /* stride that joins the next */
        old--;
        int first = new;
        while (want < have || (new >= 0 && new == first)) {
            want *= shape[new];
            new --;
            while (have < want) {
                while (old >= 0 && from->shape[old] == 1)
                    old--;
                if (old < 0 || from->stride[old] != run)
                    return false;
                have *= from->shape[old];
                run = from->shape[old] * from->stride[old];
                old--;
            }
            if (new < 0 && want < have)
                return false;
        }
        if (want != have)
            return false;
        for (int i = first; i > new; i--) {
            stride[i] = step;
            step *= shape[i];
        }
    }
    return true;
}

bool sl__check_shape(sl_graph *graph, const char *op, const char *name,
                     sl_dtype dtype, int dims, const int64_t *shape)
{
    char text[SL__SHAPE_TEXT], quoted[SL__QUOTED_MAX];
    sl__quoted(name, strlen(name), quoted);
    if (dims < 0 || dims > SL_DIMS_MAX || (dims > 0 && !shape))
        return sl__refuse(graph, op, "'%s' has %d dimensions, expected 0 to %d",
                          quoted, dims, SL_DIMS_MAX);
    int64_t bytes = (int64_t)sl_dtype_bytes(dtype);
    for (int i = 0; i < dims; i++) {
        if (shape[i] < 1)
            return sl__refuse(graph, op, "'%s' is %s, expected sizes from 1 up",
                              quoted, sl__shape_text(dims, shape, text));
        if (__builtin_mul_overflow(bytes, shape[i], &bytes) ||
            bytes > TENSOR_BYTES_MAX)
            return sl__refuse(
                graph, op, "'%s' is %s, expected at most %lld bytes of %s",
                quoted, sl__shape_text(dims, shape, text),
                (long long)TENSOR_BYTES_MAX, sl_dtype_text(dtype));
    }
    return true;
}

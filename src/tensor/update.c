/* SPDX-License-Identifier: MIT
 *
 * Optimizer steps on the CPU: AdamW and SGD with momentum. They compute what
 * PyTorch does, in its order; except that SGD's decay is decoupled too. */
#include "tensor/backend.h"

#include "base/try.h"

#include <math.h>

/* Defined once for each pair of dtypes: X of the parameter, T of its gradient
 * and states, in which it is computed. */
#define UPDATE(X, T, ROOT)                                                     \
    static void adamw_##X##_##T(                                               \
        const sl__update *how, const sl__update_block *block, X *restrict x,   \
        T *restrict g, T *restrict m, T *restrict v, int64_t count)            \
    {                                                                          \
        double steps = (double)block->step;                                    \
        double whole1 = 1 - pow(how->beta1, steps);                            \
        double whole2 = sqrt(1 - pow(how->beta2, steps));                      \
        const T keep = (T)(1 - block->rate * how->decay);                      \
        const T scale = (T)block->scale;                                       \
        const T b1 = (T)how->beta1, b2 = (T)how->beta2;                        \
        const T c1 = (T)(1 - how->beta1), c2 = (T)(1 - how->beta2);            \
        const T by = (T)(block->rate / whole1), root = (T)whole2;              \
        const T epsilon = (T)how->epsilon;                                     \
        for (int64_t i = 0; i < count; i++) {                                  \
            T slope = g[i] * scale;                                            \
            T mean = b1 * m[i] + c1 * slope;                                   \
            T square = b2 * v[i] + c2 * slope * slope;                         \
            m[i] = mean;                                                       \
            v[i] = square;                                                     \
            x[i] = (X)((T)x[i] * keep -                                        \
                       by * mean / (ROOT(square) / root + epsilon));           \
            g[i] = 0;                                                          \
        }                                                                      \
    }                                                                          \
    static void sgd_##X##_##T(const sl__update *how,                           \
                              const sl__update_block *block, X *restrict x,    \
                              T *restrict g, T *restrict m, int64_t count)     \
    {                                                                          \
        const T keep = (T)(1 - block->rate * how->decay);                      \
        const T scale = (T)block->scale, rate = (T)block->rate;                \
        const T momentum = (T)how->momentum;                                   \
        for (int64_t i = 0; i < count; i++) {                                  \
            T slope = g[i] * scale;                                            \
            if (m)                                                             \
                m[i] = slope = momentum * m[i] + slope;                        \
            x[i] = (X)((T)x[i] * keep - rate * slope);                         \
            g[i] = 0;                                                          \
        }                                                                      \
    }                                                                          \
    static sl_status update_##X##_##T(const sl__update *how,                   \
                                      const sl__update_block *block,           \
                                      const sl__update_args *a)                \
    {                                                                          \
        if (how->kind == SL_UPDATE_ADAMW)                                      \
            adamw_##X##_##T(how, block, a->value, a->gradient, a->first,       \
                            a->second, a->count);                              \
        else                                                                   \
            sgd_##X##_##T(how, block, a->value, a->gradient, a->first,         \
                          a->count);                                           \
        return SL_OK;                                                          \
    }
UPDATE(float, float, sqrtf)
UPDATE(double, double, sqrt)
UPDATE(float, double, sqrt)

sl__update_args sl__update_part(const sl__update_args *args, int64_t first,
                                int64_t count)
{
    size_t at = (size_t)first * sl_dtype_bytes(args->dtype);
    size_t gradient_at = (size_t)first * sl_dtype_bytes(args->gradient_dtype);
    sl__update_args part = *args;
    part.value = (char *)args->value + at;
    part.gradient = (char *)args->gradient + gradient_at;
    if (args->first)
        part.first = (char *)args->first + gradient_at;
    if (args->second)
        part.second = (char *)args->second + gradient_at;
    if (args->half)
        part.half = (uint16_t *)args->half + first;
    part.count = count;
    return part;
}

static sl_status update_one(const sl__update *how,
                            const sl__update_block *block,
                            const sl__update_args *args)
{
    if (args->dtype == SL_F32 && args->gradient_dtype == SL_F32)
        return update_float_float(how, block, args);
    if (args->dtype == SL_F64 && args->gradient_dtype == SL_F64)
        return update_double_double(how, block, args);
    if (args->dtype == SL_F32 && args->gradient_dtype == SL_F64)
        return update_float_double(how, block, args);
    return sl_fail(SL_EINVAL, "an update of %s by a gradient of %s",
                   sl_dtype_text(args->dtype),
                   sl_dtype_text(args->gradient_dtype));
}

sl_status sl__cpu_update(sl__stream *stream, const sl__update *how,
                         const sl__update_block *block,
                         const sl__update_args *args, int count)
{
    (void)stream;
    for (int i = 0; i < count && !isnan(block->scale); i++)
        SL__TRY(update_one(&how[i], block, &args[i]));
    return SL_OK;
}

sl_status sl__cpu_squares(sl__stream *stream, const sl__update_args *args,
                          double *const *each, int count, double *all,
                          void *scratch)
{
    (void)scratch;
    const sl__buffer_ops *buffers = stream->buffers;
    if (all)
        SL__TRY(sl__device_clear(stream, all, sizeof *all));
    for (int i = 0; i < count; i++) {
        if (!each[i])
            continue;
        SL__TRY(buffers->square_sum(stream, args[i].gradient_dtype,
                                    args[i].gradient, args[i].count, each[i]));
        if (all)
            SL__TRY(sl__device_add(stream, SL_F64, all, each[i], 1));
    }
    return SL_OK;
}

sl_status sl__cpu_clip(sl__stream *stream, sl__update_block *block, double clip)
{
    double norm = sqrt(block->squares);
    (void)stream;
    /* As in PyTorch, which adds 1e-6. */
    double scale = clip / (norm + 1e-6);
    block->scale = !isfinite(norm) ? NAN : clip > 0 && scale < 1 ? scale : 1;
    return SL_OK;
}

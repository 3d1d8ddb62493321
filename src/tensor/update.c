/* SPDX-License-Identifier: MIT
 *
 * Steps of optimizers, on the CPU: AdamW and SGD with momentum, decay apart from
 * the gradient. What PyTorch computes, in its order. */
#include "tensor/program.h"

#include "base/arguments.h"

#include <math.h>
#include <string.h>

/* Written once for both kinds of numbers. */
#define UPDATE(T, ROOT)                                                        \
    static void adamw_##T(const sl_update *how, T *restrict x, T *restrict g,  \
                          T *restrict m, T *restrict v, int64_t count)         \
    {                                                                          \
        double steps = (double)how->step;                                      \
        double whole1 = 1 - pow(how->beta1, steps);                            \
        double whole2 = sqrt(1 - pow(how->beta2, steps));                      \
        const T keep = (T)(1 - how->rate * how->decay), scale = (T)how->scale; \
        const T b1 = (T)how->beta1, b2 = (T)how->beta2;                        \
        const T c1 = (T)(1 - how->beta1), c2 = (T)(1 - how->beta2);            \
        const T by = (T)(how->rate / whole1), root = (T)whole2;                \
        const T epsilon = (T)how->epsilon;                                     \
        for (int64_t i = 0; i < count; i++) {                                  \
            T slope = g[i] * scale;                                            \
            T mean = b1 * m[i] + c1 * slope;                                   \
            T square = b2 * v[i] + c2 * slope * slope;                         \
            m[i] = mean;                                                       \
            v[i] = square;                                                     \
            x[i] = x[i] * keep - by * mean / (ROOT(square) / root + epsilon);  \
            g[i] = 0;                                                          \
        }                                                                      \
    }                                                                          \
    static void sgd_##T(const sl_update *how, T *restrict x, T *restrict g,    \
                        T *restrict m, int64_t count)                          \
    {                                                                          \
        const T keep = (T)(1 - how->rate * how->decay), scale = (T)how->scale; \
        const T rate = (T)how->rate, momentum = (T)how->momentum;              \
        for (int64_t i = 0; i < count; i++) {                                  \
            T slope = g[i] * scale;                                            \
            if (m)                                                             \
                m[i] = slope = momentum * m[i] + slope;                        \
            x[i] = x[i] * keep - rate * slope;                                 \
            g[i] = 0;                                                          \
        }                                                                      \
    }                                                                          \
    static double squares_##T(const T *g, int64_t count)                       \
    {                                                                          \
        enum { LANES = 8 };                                                    \
        double sums[LANES] = {0};                                              \
        int64_t i = 0;                                                         \
        for (; i + LANES <= count; i += LANES) {                               \
            for (int k = 0; k < LANES; k++)                                    \
                sums[k] += (double)g[i + k] * (double)g[i + k];                \
        }                                                                      \
        for (; i < count; i++)                                                 \
            sums[0] += (double)g[i] * (double)g[i];                            \
        for (int k = 1; k < LANES; k++)                                        \
            sums[0] += sums[k];                                                \
        return sums[0];                                                        \
    }
UPDATE(float, sqrtf)
UPDATE(double, sqrt)

void sl__cpu_update(sl_dtype dtype, const sl_update *how, void *value,
                    void *gradient, void *first, void *second, int64_t count,
                    int threads)
{
    bool adamw = how->kind == SL_UPDATE_ADAMW;
    (void)threads;
    if (dtype == SL_F32 && adamw)
        adamw_float(how, value, gradient, first, second, count);
    else if (dtype == SL_F32)
        sgd_float(how, value, gradient, first, count);
    else if (adamw)
        adamw_double(how, value, gradient, first, second, count);
    else
        sgd_double(how, value, gradient, first, count);
}

/* The memory of a gradient, where it is here. */
static sl_status find(const sl_memory *memory, const sl_stage *stage,
                      const sl_port *port, char **out)
{
    if (port->kind != SL_PORT_PARAMETER_GRADIENT || sl__is_callbacks(stage))
        return sl_fail(SL_EINVAL, "'%.60s' is not a gradient that is here",
                       port->name);
    *out = sl__port_memory(memory, port, 0);
    if (!*out)
        return sl_fail(SL_EINVAL, "this stage has no gradients here");
    return sl__check_port(stage, port);
}

sl_status sl_memory_update(sl_memory *memory, const sl_port *gradient,
                           const sl_update *how, void *first, void *second)
{
    SL__NEED(memory, gradient, how);
    const sl_stage *stage = sl__memory_stage(memory);
    char *slope = NULL;
    sl_status status = find(memory, stage, gradient, &slope);
    if (status)
        return status;
    if (how->kind == SL_UPDATE_ADAMW ? !first || !second || how->step < 1
                                     : how->momentum != 0 && !first)
        return sl_fail(SL_EINVAL, "an update of '%.60s' lacks its state",
                       gradient->name);
    sl_port value = *gradient;
    value.kind = SL_PORT_PARAMETER;
    sl__saved saved;
    stage->backend->begin(stage->options.threads, &saved);
    stage->backend->update(
        gradient->dtype, how, sl__port_memory(memory, &value, 0), slope, first,
        second, gradient->bytes / (int64_t)sl_dtype_bytes(gradient->dtype),
        stage->options.threads);
    stage->backend->end(&saved);
    sl__memory_touch(memory);
    return SL_OK;
}

sl_status sl_memory_square_sum(const sl_memory *memory, const sl_port *gradient,
                               double *out)
{
    SL__NEED(memory, gradient, out);
    char *slope = NULL;
    sl_status status = find(memory, sl__memory_stage(memory), gradient, &slope);
    if (status)
        return status;
    int64_t count = gradient->bytes / (int64_t)sl_dtype_bytes(gradient->dtype);
    *out = gradient->dtype == SL_F64
               ? squares_double((const double *)(void *)slope, count)
               : squares_float((const float *)(void *)slope, count);
    return SL_OK;
}

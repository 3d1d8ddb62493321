/* SPDX-License-Identifier: MIT
 *
 * What the plain kernels of both float types share. */
#ifndef SL_TENSOR_REF_H
#define SL_TENSOR_REF_H

#include "tensor/backend.h"
#include "tensor/random.h"

#include <math.h>
#include <string.h>

/* A position in a tensor, advanced with the last dimension fastest. */
typedef struct sl__index {
    int64_t at[SL_DIMS_MAX];
} sl__index;

static inline int64_t sl__at(const sl__arg *arg, const sl__index *index)
{
    int64_t at = 0;
    for (int d = 0; d < arg->dims; d++)
        at += index->at[d] * arg->stride[d];
    return at;
}

static inline void sl__next(const sl__arg *arg, sl__index *index)
{
    for (int d = arg->dims - 1; d >= 0; d--) {
        if (++index->at[d] < arg->shape[d])
            return;
        index->at[d] = 0;
    }
}

extern const sl__kernel_fn sl__ref_f32_table[SL__OP_COUNT];
extern const sl__kernel_fn sl__ref_f64_table[SL__OP_COUNT];

/* Both GELUs and SiLU, with their slopes. */
static inline double gelu_inner(double x)
{
    return 0.79788456080286535588 * (x + 0.044715 * x * x * x);
}

static inline double gelu_tanh_slope(double x)
{
    double t = tanh(gelu_inner(x));
    double inner = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

static inline double gelu_erf_slope(double x)
{
    return 0.5 * (1 + erf(x * M_SQRT1_2)) +
           x * exp(-0.5 * x * x) * 0.39894228040143267794;
}

static inline double silu_slope(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

/* An activation that was fused into a product. */
static inline double activate(sl__op op, double x)
{
    switch (op) {
    case SL__RELU: return x > 0 || x != x ? x : 0;
    case SL__GELU_TANH: return 0.5 * x * (1 + tanh(gelu_inner(x)));
    case SL__GELU_ERF: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    default: return x;
    }
}

#endif

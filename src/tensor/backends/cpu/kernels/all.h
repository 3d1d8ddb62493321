/* SPDX-License-Identifier: MIT
 *
 * The vector kernels, included once per instruction set and type of elements:
 * VECTOR(name) makes a name for it. ref/kernels.h specifies what each computes;
 * here it is done LANES elements at a time, on the run's threads.
 * sl__vector_accepts has checked the geometry. */
#include "tensor/backends/cpu/kernels/vector.h"

#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"
#include "tensor/random.h"

#include <math.h>

#define ARGS const sl__kernel *kernel, void *const *p, const sl__run *run

/* A kernel at work: what the parts of a parallel run share. */
typedef struct work {
    const sl__kernel *kernel;
    void *const *p;
    const sl__run *run;
} work;

/* As many elements, or rows, as are worth a thread. */
enum { GRAIN = 8192 };

INLINE sl_status spread(ARGS, int64_t count, int64_t grain,
                        sl__parallel_fn body)
{
    work shared = {kernel, p, run};
    sl__parallel(sl__threads_of(run), count, grain, body, &shared);
    return SL_OK;
}

INLINE int64_t columns_of(const sl__arg *arg)
{
    return arg->shape[arg->dims - 1];
}

/* Runs `body` on the rows of an arg, as many at a time as are worth a
 * thread. */
static sl_status spread_rows(ARGS, const sl__arg *arg, sl__parallel_fn body)
{
    int64_t columns = columns_of(arg);
    return spread(kernel, p, run, sl__arg_count(arg) / columns,
                  GRAIN / columns + 1, body);
}

/* Walks 0..count in vectors: V handles a whole one at i, T the last n lanes. */
#define WALK(count, V, T)                                                      \
    do {                                                                       \
        int64_t i = 0;                                                         \
        for (; i + LANES <= (count); i += LANES)                               \
            V;                                                                 \
        int64_t n = (count)-i;                                                 \
        if (n > 0)                                                             \
            T;                                                                 \
    } while (0)

/* Keeps the lanes below n; the others are 0. */
INLINE vf first_lanes(vf v, int64_t n)
{
    vf kept = {0};
    memcpy(&kept, &v, sizeof(float) * (size_t)n);
    return kept;
}

#include "tensor/backends/cpu/kernels/elements.h"
#include "tensor/backends/cpu/kernels/rows.h"
#include "tensor/backends/cpu/kernels/moves.h"
#include "tensor/backends/cpu/kernels/losses.h"
#include "tensor/backends/cpu/kernels/transpose.h"
#include "tensor/backends/cpu/kernels/tile.h"
#include "tensor/backends/cpu/kernels/attention.h"

extern const sl__vector_kernels VECTOR(sl__vector);

#ifndef ELEMENT_IS_BF16
/* Products apply the activation after them by its own kernel, in place. */
static sl_status activate(ARGS)
{
    int result = kernel->operand_count;
    if (kernel->activation == SL__OP_COUNT)
        return SL_OK;
    const sl__kernel after = {.args = &kernel->args[result],
                              .node = kernel->node};
    void *const in_place[] = {p[result], p[result]};
    return VECTOR(sl__vector).table[kernel->activation](&after, in_place, run);
}

#include "tensor/backends/cpu/gemm/panels.h"
#include "tensor/backends/cpu/gemm/dot_product.h"
#include "tensor/backends/cpu/gemm/rank_update.h"
#endif

const sl__vector_kernels VECTOR(sl__vector) = {
    .name = VECTOR_NAME,
    .table =
        {
            [SL__ADD] = add,
            [SL__SUB] = sub,
            [SL__MUL] = mul,
            [SL__SCALE] = scale,
            [SL__RELU] = relu,
            [SL__GELU_TANH] = gelu_tanh,
            [SL__GELU_ERF] = gelu_erf,
            [SL__SILU] = silu,
            [SL__DROPOUT] = dropout,
            [SL__LAYER_NORM] = layer_norm,
            [SL__ADD_NORM] = add_norm,
            [SL__RMS_NORM] = rms_norm,
            [SL__SOFTMAX] = softmax,
            [SL__ATTENTION] = attention,
#ifdef ELEMENT_IS_BF16
            [SL__CAST] = cast,
            [SL__EMBEDDING] = embedding,
#endif
            [SL__CONCAT] = concat,
            [SL__COPY] = copy,
            [SL__REDUCE] = reduce,
            [SL__MSE] = mse,
            [SL__CROSS_ENTROPY] = cross_entropy,
            [SL__RELU_GRAD] = relu_grad,
            [SL__GELU_TANH_GRAD] = gelu_tanh_grad,
            [SL__GELU_ERF_GRAD] = gelu_erf_grad,
            [SL__SILU_GRAD] = silu_grad,
            [SL__NORM_GRAD] = norm_grad,
            [SL__NORM_WEIGHT_GRAD] = norm_weight_grad,
            [SL__SOFTMAX_GRAD] = softmax_grad,
            [SL__EMBEDDING_GRAD] = embedding_grad,
            [SL__ATTENTION_GRAD] = attention_grad,
            [SL__MSE_GRAD] = mse_grad,
            [SL__CROSS_ENTROPY_GRAD] = cross_entropy_grad,
        },
    .lanes = LANES,
#ifndef ELEMENT_IS_BF16
    .multiply_panels = multiply_panels,
    .multiply_dots = multiply_dots,
    .add_rank_update = add_rank_update,
    .pack_panels = pack_panels,
#endif
};

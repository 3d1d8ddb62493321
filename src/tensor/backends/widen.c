/* SPDX-License-Identifier: MIT
 *
 * What a kernel on bf16 computes: that of f32, on operands that are widened to
 * f32 in scratch, with results rounded to bf16. A product rounds f32 operands
 * to bf16 first, as if a cast had been before it. */
#include "tensor/backends/ref/ref.h"

#include "base/memory.h"
#include "base/try.h"

#include <assert.h>

enum { NOT_MOVED = -1 };

typedef struct widened {
    sl__kernel inner; /* on f32 */
    int count;        /* operands and results */
    int64_t scratch;  /* of `inner`: where it begins */
    int64_t *moved;   /* by arg: where in scratch it is as f32, in bytes */
    sl__arg args[];   /* of `inner` */
} widened;

bool sl__has_half(const sl__kernel *kernel)
{
    for (int i = 0; i < kernel->arg_count; i++) {
        if (kernel->args[i].pool != SL__POOL_NONE &&
            kernel->args[i].dtype == SL_BF16)
            return true;
    }
    return false;
}

/* Elements from the first to the last. */
static int64_t span_of(const sl__arg *arg)
{
    int64_t span = 1;
    for (int d = 0; d < arg->dims; d++)
        span += (arg->shape[d] - 1) * arg->stride[d];
    return span;
}

bool sl__widen_rounds_biases = false;

/* Whether a product rounds this operand, which is f32. */
static bool is_rounded(const sl__kernel *kernel, int arg)
{
    int rounded = sl__widen_rounds_biases ? kernel->operand_count : 2;
    return kernel->node->op == SL__MATMUL && arg < rounded &&
           kernel->args[arg].dtype == SL_F32;
}

static bool is_moved(const sl__kernel *kernel, int arg)
{
    /* A cast reads every dtype. */
    if (kernel->node->op == SL__CAST && arg == 0)
        return false;
    return kernel->args[arg].pool != SL__POOL_NONE &&
           (kernel->args[arg].dtype == SL_BF16 || is_rounded(kernel, arg));
}

static void widen(const sl__kernel *kernel, int arg, const void *from,
                  float *to)
{
    const sl__arg *a = &kernel->args[arg];
    int64_t span = span_of(a);
    if (a->dtype == SL_BF16) {
        sl__convert_floats(SL_F32, to, SL_BF16, from, span);
        return;
    }
    const float *x = from;
    for (int64_t i = 0; i < span; i++)
        to[i] = sl__from_bf16(sl__to_bf16(x[i]));
}

/* Writes the elements of a strided tensor, and nothing between them. */
static void narrow(const sl__arg *a, const float *from, uint16_t *to)
{
    int64_t index[SL_DIMS_MAX] = {0}, count = sl__arg_count(a);
    if (sl__arg_is_dense(a)) {
        sl__convert_floats(SL_BF16, to, SL_F32, from, count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int d = 0; d < a->dims; d++)
            at += index[d] * a->stride[d];
        to[at] = sl__to_bf16(from[at]);
        for (int d = a->dims - 1; d >= 0 && ++index[d] == a->shape[d]; d--)
            index[d] = 0;
    }
}

/* Applies the activation after a product, which has been rounded, and rounds
 * again: as if the activation were a kernel of its own. */
static void activate_rounded(sl__op op, const sl__arg *a, float *x)
{
    int64_t span = span_of(a);
    for (int64_t i = 0; i < span; i++)
        x[i] = (float)activate(op, sl__from_bf16(sl__to_bf16(x[i])));
}

static sl_status run_widened(const sl__kernel *kernel, void *const *p,
                             const sl__run *run)
{
    const widened *w = kernel->private;
    char *scratch = p[kernel->arg_count - 1];
    void **q = (void **)scratch;
    for (int i = 0; i < w->count; i++) {
        bool is_read = i < kernel->operand_count || kernel->adds;
        q[i] = w->moved[i] == NOT_MOVED ? p[i] : scratch + w->moved[i];
        if (w->moved[i] != NOT_MOVED && is_read)
            widen(kernel, i, p[i], q[i]);
    }
    q[w->count] = scratch + w->scratch;
    SL__TRY(w->inner.run(&w->inner, q, run));
    int result = kernel->operand_count;
    if (kernel->activation != SL__OP_COUNT && w->moved[result] != NOT_MOVED)
        activate_rounded(kernel->activation, &kernel->args[result], q[result]);
    for (int i = result; i < w->count; i++) {
        if (w->moved[i] != NOT_MOVED)
            narrow(&kernel->args[i], q[i], p[i]);
    }
    return SL_OK;
}

sl_status sl__widen_prepare(sl__kernel *kernel, sl__prepare_inner_fn prepare,
                            sl__device *device)
{
    widened *w;
    int count = kernel->arg_count;
    size_t bytes = sizeof *w + (size_t)count * sizeof *w->args;
    SL__TRY(sl__alloc(bytes + (size_t)count * sizeof *w->moved, 1, &w));
    kernel->private = w;
    w->count = count;
    w->moved = (int64_t *)((char *)w + bytes);
    int64_t at = sl__aligned((count + 1) * (int64_t)sizeof(void *));
    for (int i = 0; i < count; i++) {
        w->args[i] = kernel->args[i];
        w->moved[i] = NOT_MOVED;
        if (!is_moved(kernel, i))
            continue;
        w->args[i].dtype = SL_F32;
        w->moved[i] = at;
        at += sl__aligned(span_of(&kernel->args[i]) * (int64_t)sizeof(float));
    }
    w->scratch = at;
    w->inner = *kernel;
    w->inner.args = w->args;
    w->inner.private = NULL;
    w->inner.group_max = 1;
    /* After a product that is rounded, it is applied here. */
    if (w->moved[kernel->operand_count] != NOT_MOVED)
        w->inner.activation = SL__OP_COUNT;
    SL__TRY(prepare(device, &w->inner));
    assert(!w->inner.private && w->inner.packs[0] < 0 &&
           w->inner.packs[1] < 0);
    if (w->inner.scratch_bytes)
        w->inner.arg_count++;
    kernel->run = run_widened;
    kernel->scratch_bytes = at + w->inner.scratch_bytes;
    return SL_OK;
}

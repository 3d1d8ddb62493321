/* SPDX-License-Identifier: MIT
 *
 * Attention and its gradient: on tensor cores in bf16, for heads of up to 64,
 * else by plain kernels. Both save the same, so one may follow the other. */
#include "tensor/backends/cuda/gpu.h"

#include "base/memory.h"
#include "base/try.h"

#include <math.h>

enum { THREADS = 128, TILE = 64, FLASH_SIZE = 64, EIGHT = 8 };

/* kernel->private */
typedef struct attention {
    attention_params p;
    bool flash; /* the geometry allows it */
} attention;

#define RUN const sl__kernel *kernel, void *const *p, const sl__run *run

static bool are_aligned(void *const *pointers, int count)
{
    for (int i = 0; i < count; i++) {
        if (!sl__cuda_is_aligned(pointers[i]))
            return false;
    }
    return true;
}

static int64_t tiles_of(const attention_params *a)
{
    return (a->length + TILE - 1) / TILE * a->batch * a->heads;
}

static sl_status run_forward(RUN)
{
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    const attention *own = kernel->private;
    attention_params a = own->p;
    a.q = p[0];
    a.k = p[1];
    a.v = p[2];
    a.result[0] = p[3];
    a.saved = p[4];
    if (own->flash && are_aligned(p, 4))
        return sl__cuda_launch(stream, SL__CUDA_flash_forward, tiles_of(&a), 1,
                               THREADS, &a);
    return sl__cuda_launch(stream,
                           a.dtype == DT_F64 ? SL__CUDA_attention_f64
                                             : SL__CUDA_attention_f32,
                           a.length * a.batch * a.heads, 1, THREADS, &a);
}

/* By query first, which also gives what is needed by key. */
static sl_status run_flash(const sl__cuda_stream *stream,
                           const attention_params *a)
{
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_flash_query, tiles_of(a), 1,
                            THREADS, a));
    return a->result[1] || a->result[2]
               ? sl__cuda_launch(stream, SL__CUDA_flash_key, tiles_of(a), 1,
                                 THREADS, a)
               : SL_OK;
}

static sl_status run_backward(RUN)
{
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    const attention *own = kernel->private;
    attention_params a = own->p;
    int64_t rows = a.length * a.batch * a.heads;
    bool wide = a.dtype == DT_F64;
    a.dy = p[0];
    a.q = p[1];
    a.k = p[2];
    a.v = p[3];
    a.out = p[4];
    a.saved = p[5];
    for (int i = 0; i < 3; i++)
        a.result[i] = p[6 + i];
    if (own->flash && are_aligned(p, 9)) {
        a.base = p[kernel->arg_count - 1];
        return run_flash(stream, &a);
    }
    if (a.result[0])
        SL__TRY(sl__cuda_launch(stream,
                                wide ? SL__CUDA_attention_query_f64
                                     : SL__CUDA_attention_query_f32,
                                rows, 1, THREADS, &a));
    return a.result[1] || a.result[2]
               ? sl__cuda_launch(stream,
                                 wide ? SL__CUDA_attention_key_f64
                                      : SL__CUDA_attention_key_f32,
                                 rows, 1, THREADS, &a)
               : SL_OK;
}

/* Sets where rows of an operand or result lie; false: not in pieces of eight
 * numbers of bf16. */
static bool set_strides(attention_params *a, int which, const sl__arg *arg)
{
    if (arg->pool == SL__POOL_NONE)
        return true;
    /* The stride of a dimension of 1 is of no account. */
    for (int d = 0; d < 2; d++)
        a->stride[which][d] = arg->shape[d] == 1 ? 0 : arg->stride[d];
    return arg->dtype == SL_BF16 && a->stride[which][0] % EIGHT == 0 &&
           a->stride[which][1] % EIGHT == 0 && arg->stride[2] == 1;
}

sl_status sl__cuda_prepare_attention(sl__gpu *gpu, sl__kernel *kernel)
{
    enum { Q, K, V, OUT, DY, RESULT };
    attention *own;
    const sl__arg *args = kernel->args;
    bool backward = kernel->node->op == SL__ATTENTION_GRAD;
    const sl__arg *q = &args[backward];
    (void)gpu;
    SL__TRY(sl__alloc(1, sizeof *own, &own));
    attention_params *a = &own->p;
    kernel->private = own;
    kernel->run = backward ? run_backward : run_forward;
    a->dtype = (int)q->dtype;
    a->saved_dtype = (int)args[backward ? 5 : 4].dtype;
    a->heads = kernel->node->attributes.heads;
    a->size = (int)(q->shape[2] / a->heads);
    a->batch = q->shape[0];
    a->length = q->shape[1];
    a->scale = 1 / sqrt((double)a->size);
    own->flash = a->size <= FLASH_SIZE && a->size % EIGHT == 0 &&
                 a->saved_dtype == DT_F32 && a->length < INT32_MAX / 2;
    for (int i = 0; i < 3; i++)
        own->flash &= set_strides(a, Q + i, &args[backward + i]);
    if (backward) {
        own->flash &= set_strides(a, OUT, &args[4]);
        own->flash &= set_strides(a, DY, &args[0]);
        for (int i = 0; i < 3; i++)
            own->flash &= set_strides(a, RESULT + i, &args[6 + i]);
    } else {
        own->flash &= set_strides(a, RESULT, &args[3]);
    }
    if (own->flash && backward)
        kernel->scratch_bytes = sl__aligned(a->batch * a->heads * a->length *
                                            (int64_t)sizeof(float));
    return SL_OK;
}

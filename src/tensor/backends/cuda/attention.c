/* SPDX-License-Identifier: MIT
 *
 * Attention and its gradient. */
#include "tensor/backends/cuda/gpu.h"

#include "base/memory.h"
#include "base/try.h"

#include <math.h>
#include <string.h>

enum { THREADS = 128 };

static void set_strides(attention_params *a, int which, const sl__arg *arg)
{
    if (arg->pool == SL__POOL_NONE)
        return;
    a->stride[which][0] = arg->stride[0];
    a->stride[which][1] = arg->stride[1];
}

static sl_status run_forward(const sl__kernel *kernel, void *const *p,
                             const sl__run *run)
{
    attention_params a = *(const attention_params *)kernel->private;
    a.q = p[0];
    a.k = p[1];
    a.v = p[2];
    a.result[0] = p[3];
    a.saved = p[4];
    return sl__cuda_launch(
        sl__cuda_of(run->stream),
        a.dtype == DT_F64 ? SL__CUDA_attention_f64 : SL__CUDA_attention_f32,
        a.length * a.batch * a.heads, 1, THREADS, &a);
}

static sl_status run_backward(const sl__kernel *kernel, void *const *p,
                              const sl__run *run)
{
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    attention_params a = *(const attention_params *)kernel->private;
    bool wide = a.dtype == DT_F64;
    a.dy = p[0];
    a.q = p[1];
    a.k = p[2];
    a.v = p[3];
    a.out = p[4];
    a.saved = p[5];
    for (int i = 0; i < 3; i++)
        a.result[i] = p[6 + i];
    if (a.result[0])
        SL__TRY(sl__cuda_launch(stream,
                                wide ? SL__CUDA_attention_query_f64
                                     : SL__CUDA_attention_query_f32,
                                a.length * a.batch * a.heads, 1, THREADS, &a));
    if (a.result[1] || a.result[2])
        SL__TRY(sl__cuda_launch(stream,
                                wide ? SL__CUDA_attention_key_f64
                                     : SL__CUDA_attention_key_f32,
                                a.length * a.batch * a.heads, 1, THREADS, &a));
    return SL_OK;
}

sl_status sl__cuda_prepare_attention(sl__gpu *gpu, sl__kernel *kernel)
{
    enum { Q, K, V, OUT, DY, RESULT };
    attention_params *a;
    const sl__arg *args = kernel->args;
    bool backward = kernel->node->op == SL__ATTENTION_GRAD;
    const sl__arg *q = &args[backward];
    (void)gpu;
    SL__TRY(sl__alloc(1, sizeof *a, &a));
    kernel->private = a;
    kernel->run = backward ? run_backward : run_forward;
    a->dtype = (int)q->dtype;
    a->saved_dtype = (int)args[backward ? 5 : 4].dtype;
    a->heads = kernel->node->attributes.heads;
    a->size = (int)(q->shape[2] / a->heads);
    a->batch = q->shape[0];
    a->length = q->shape[1];
    a->scale = 1 / sqrt((double)a->size);
    for (int i = 0; i < 3; i++)
        set_strides(a, Q + i, &args[backward + i]);
    if (backward) {
        set_strides(a, OUT, &args[4]);
        set_strides(a, DY, &args[0]);
        for (int i = 0; i < 3; i++)
            set_strides(a, RESULT + i, &args[6 + i]);
    } else {
        set_strides(a, RESULT, &args[3]);
    }
    return SL_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * Attention and its gradient: in bf16 by cuDNN, unless every run shall have the
 * same bits or there is little of it; else on tensor cores for heads of up to
 * 64, else by plain kernels. All save the same, so any may follow any. */
#include "tensor/backends/cuda/cudnn.h"

#include "base/memory.h"
#include "base/try.h"

#include <math.h>
#include <string.h>

enum { THREADS = 128, TILE = 64, FLASH_SIZE = 64, EIGHT = 8 };

/* kernel->private */
typedef struct attention {
    attention_params p;
    bool flash;    /* the geometry allows it */
    bool is_short; /* too few tiles to fill the GPU */
    sl__cudnn *cudnn;
    const sl__cudnn_plan *plan; /* cuDNN's; or NULL */
} attention;

/* Parts of the scratch of cuDNN's backward: sums of dq, then dy . out, then
 * what it asks for. */
static int64_t sums_bytes(const attention_params *a)
{
    return sl__aligned(a->batch * a->heads * a->length * a->size *
                       (int64_t)sizeof(float));
}

static int64_t rows_bytes(const attention_params *a)
{
    return sl__aligned(a->batch * a->heads * a->length *
                       (int64_t)sizeof(float));
}

enum { WORKSPACE_ALIGNMENT = 256 };

static void *aligned(char *memory)
{
    return (void *)(((uintptr_t)memory + WORKSPACE_ALIGNMENT - 1) /
                    WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT);
}

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
    if (own->plan && are_aligned(p, 5)) {
        void *const pointers[SL__CUDNN_IDS] = {[SL__CUDNN_Q] = p[0],
                                               [SL__CUDNN_K] = p[1],
                                               [SL__CUDNN_V] = p[2],
                                               [SL__CUDNN_OUT] = p[3],
                                               [SL__CUDNN_STATS] = p[4]};
        return sl__cudnn_run(own->cudnn, stream, own->plan, a.scale, pointers,
                             aligned(p[kernel->arg_count - 1]));
    }
    if (own->flash && are_aligned(p, 4))
        return sl__cuda_launch(stream, SL__CUDA_flash_forward, tiles_of(&a), 1,
                               THREADS, &a);
    return sl__cuda_launch(stream,
                           a.dtype == DT_F64 ? SL__CUDA_attention_f64
                                             : SL__CUDA_attention_f32,
                           a.length * a.batch * a.heads, 1, THREADS, &a);
}

/* By query first, which also gives what is needed by key; or both at once, and
 * each finds that by itself. */
static sl_status run_flash(const sl__cuda_stream *stream, bool at_once,
                           const attention_params *a)
{
    if (at_once && (a->result[1] || a->result[2]))
        return sl__cuda_launch(stream, SL__CUDA_flash_both, 2 * tiles_of(a), 1,
                               2 * THREADS, a);
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_flash_query, tiles_of(a), 1,
                            THREADS, a));
    return a->result[1] || a->result[2]
               ? sl__cuda_launch(stream, SL__CUDA_flash_key, tiles_of(a), 1,
                                 THREADS, a)
               : SL_OK;
}

static sl_status run_cudnn_backward(const attention *own,
                                    const sl__kernel *kernel, void *const *p,
                                    const sl__run *run)
{
    const attention_params *a = &own->p;
    char *scratch = p[kernel->arg_count - 1];
    char *rows = scratch + sums_bytes(a);
    void *const pointers[SL__CUDNN_IDS] = {
        [SL__CUDNN_DY] = p[0],  [SL__CUDNN_Q] = p[1],
        [SL__CUDNN_K] = p[2],   [SL__CUDNN_V] = p[3],
        [SL__CUDNN_OUT] = p[4], [SL__CUDNN_STATS] = p[5],
        [SL__CUDNN_DQ] = p[6],  [SL__CUDNN_DK] = p[7],
        [SL__CUDNN_DV] = p[8],  [SL__CUDNN_DQ_SUM] = scratch,
        [SL__CUDNN_ROWS] = rows};
    SL__TRY(sl__device_clear(run->stream, scratch, (size_t)sums_bytes(a)));
    return sl__cudnn_run(own->cudnn, sl__cuda_of(run->stream), own->plan,
                         a->scale, pointers, aligned(rows + rows_bytes(a)));
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
    if (own->plan && are_aligned(p, 9))
        return run_cudnn_backward(own, kernel, p, run);
    if (own->flash && are_aligned(p, 9)) {
        a.base = own->is_short ? NULL : p[kernel->arg_count - 1];
        return run_flash(stream, own->is_short, &a);
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

/* What cuDNN calls a row of attention_params.stride. */
static const int cudnn_names[] = {SL__CUDNN_Q,   SL__CUDNN_K,  SL__CUDNN_V,
                                  SL__CUDNN_OUT, SL__CUDNN_DY, SL__CUDNN_DQ,
                                  SL__CUDNN_DK,  SL__CUDNN_DV};
enum { Q, K, V, OUT, DY, RESULT };

/* Asks cuDNN for a plan, where all strides suit it and all results exist. */
static sl_status prepare_cudnn(sl__gpu *gpu, sl__kernel *kernel, bool backward,
                               attention *own)
{
    const attention_params *a = &own->p;
    sl__cudnn_shape shape = {a->batch, a->heads, a->length, a->size, {{0}}};
    for (int i = 0; i < (backward ? RESULT + 3 : RESULT + 1); i++) {
        int name = !backward && i == RESULT ? SL__CUDNN_OUT : cudnn_names[i];
        if (!backward && (i == OUT || i == DY))
            continue;
        memcpy(shape.stride[name], a->stride[i], sizeof *shape.stride);
    }
    for (int i = 0; backward && i < 3; i++) {
        if (kernel->args[6 + i].pool == SL__POOL_NONE)
            return SL_OK;
    }
    sl__cudnn_open(gpu, &own->cudnn);
    if (!own->cudnn)
        return SL_OK;
    SL__TRY(sl__cudnn_find(gpu, own->cudnn, &shape, backward, &own->plan));
    if (!own->plan->plan) {
        own->plan = NULL;
        return SL_OK;
    }
    kernel->scratch_bytes = sl__aligned(own->plan->workspace) +
                            WORKSPACE_ALIGNMENT +
                            (backward ? sums_bytes(a) + rows_bytes(a) : 0);
    return SL_OK;
}

sl_status sl__cuda_prepare_attention(const sl__device *device,
                                     sl__kernel *kernel)
{
    enum { CUDNN_SIZE = 128, TILES_EACH = 2 };
    attention *own;
    const sl__arg *args = kernel->args;
    bool backward = kernel->node->op == SL__ATTENTION_GRAD, fits = true;
    const sl__arg *q = &args[backward];
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
    for (int i = 0; i < 3; i++)
        fits &= set_strides(a, Q + i, &args[backward + i]);
    if (backward) {
        fits &= set_strides(a, OUT, &args[4]);
        fits &= set_strides(a, DY, &args[0]);
        for (int i = 0; i < 3; i++)
            fits &= set_strides(a, RESULT + i, &args[6 + i]);
    } else {
        fits &= set_strides(a, RESULT, &args[3]);
    }
    fits = fits && a->size % EIGHT == 0 && a->saved_dtype == DT_F32 &&
           a->length < INT32_MAX / 2;
    own->flash = fits && a->size <= FLASH_SIZE;
    own->is_short =
        own->flash && tiles_of(a) <= TILES_EACH * device->gpu->processors;
    if (own->flash && backward && !own->is_short)
        kernel->scratch_bytes = rows_bytes(a);
    return fits && a->size <= CUDNN_SIZE && a->length > 1 && !own->is_short &&
                   !device->deterministic
               ? prepare_cudnn(device->gpu, kernel, backward, own)
               : SL_OK;
}

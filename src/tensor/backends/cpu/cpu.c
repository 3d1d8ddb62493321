/* SPDX-License-Identifier: MIT
 *
 * The table of the `cpu` backend: devices, streams, and which kernel an op
 * gets. */
#include "tensor/backends/cpu/cpu.h"

#include "base/memory.h"
#include "base/try.h"
#include "tensor/backends/cpu/gemm/gemm.h"

#include <stdio.h>

enum { THREADS_MAX = 1024 };

struct sl__device {
    int threads;
};

static void close_device(sl__device *device)
{
    free(device);
}

static sl_status open_device(int threads, int number, bool deterministic,
                      sl__device **out)
{
    (void)number;
    (void)deterministic;
    if (threads > sl__thread_limit())
        return sl_fail(SL_EINVAL, "%d threads, but OMP_THREAD_LIMIT is %d",
                       threads, sl__thread_limit());
    SL__TRY(sl__gemm_check_environment());
    SL__TRY(sl__amx_check_environment());
    SL__TRY(sl__alloc(1, sizeof **out, out));
    (*out)->threads = threads;
    return SL_OK;
}

/* A stream, with the number of threads that do its work. */
typedef struct cpu_stream {
    sl__stream stream; /* first */
    int threads;
} cpu_stream;

int sl__threads_of(const sl__run *run)
{
    return run->stream ? ((const cpu_stream *)run->stream)->threads : 1;
}

static sl_status open_stream(sl__device *device, sl__stream **out)
{
    cpu_stream *stream;
    SL__TRY(sl__alloc(1, sizeof *stream, &stream));
    stream->stream.buffers = &sl__host_buffers;
    stream->threads = device->threads;
    *out = &stream->stream;
    return SL_OK;
}

static void close_stream(sl__stream *stream)
{
    free(stream);
}

static void describe(int device, sl_dtype precision, char *out, size_t size)
{
    (void)device;
    enum { MANY_ROWS = 64 };
    const sl__split_kernels *splits = sl__split_choose(1);
    if (precision == SL_BF16)
        snprintf(out, size, "%s, products by %s",
                 sl__vector_choose_bf16()->name,
                 sl__bf16_choose(MANY_ROWS)->name);
    else
        snprintf(out, size, "%s%s%s", sl__vector_choose()->name,
                 splits ? ", large products of one thread by " : "",
                 splits ? splits->name : "");
}

static void forget(sl__kernel *kernel)
{
    free(kernel->private);
}

/* A kernel that is no product. */
static sl_status prepare_plain(sl__device *device, sl__kernel *kernel)
{
    sl__op op = kernel->node->op;
    sl_dtype dtype = sl__kernel_dtype(kernel);
    kernel->run = sl__ref_kernel(op, dtype);
    sl__kernel_fn fast = sl__vector_choose()->table[op];
    if (dtype == SL_F32 && fast && sl__vector_accepts(kernel, device->threads))
        kernel->run = fast;
    return SL_OK;
}

static sl_status prepare_bf16(sl__device *device, sl__packs *packs,
                              sl__kernel *kernel)
{
    sl__op op = kernel->node->op;
    sl__kernel_fn fast = sl__vector_choose_bf16()->table[op];
    if (op == SL__MATMUL)
        SL__TRY(sl__gemm_prepare_bf16(packs, kernel));
    else if (fast && sl__vector_takes_bf16(kernel) &&
             sl__vector_accepts(kernel, device->threads))
        kernel->run = fast;
    return kernel->run ? SL_OK
                       : sl__widen_prepare(kernel, prepare_plain, device);
}

sl_status sl__bf16_activate(const sl__kernel *kernel, void *const *p,
                            const sl__run *run)
{
    int result = kernel->operand_count;
    const sl__arg *out = &kernel->args[result];
    if (kernel->activation == SL__OP_COUNT || kernel->activation == SL__RELU)
        return SL_OK;
    const sl__vector_kernels *vector =
        out->dtype == SL_BF16 ? sl__vector_choose_bf16() : sl__vector_choose();
    const sl__kernel after = {.args = out, .node = kernel->node};
    void *const in_place[] = {p[result], p[result]};
    return vector->table[kernel->activation](&after, in_place, run);
}

static sl_status prepare(sl__device *device, sl__packs *packs,
                         sl__kernel *kernel)
{
    if (sl__has_half(kernel))
        return prepare_bf16(device, packs, kernel);
    SL__TRY(prepare_plain(device, kernel));
    if (kernel->node->op == SL__MATMUL && sl__kernel_dtype(kernel) == SL_F32)
        return sl__gemm_prepare(device->threads, packs, kernel);
    return SL_OK;
}

typedef struct update_job {
    sl__stream *stream;
    const sl__update *how;
    const sl__update_block *block;
    const sl__update_args *args;
} update_job;

static void update_part(void *data, int worker, int64_t from, int64_t to)
{
    const update_job *u = data;
    /* A piece at a time, so that the gradient is zeroed while it is in
     * cache. */
    enum { PIECE = 4096 };
    (void)worker;
    for (int64_t at = from; at < to; at += PIECE) {
        int64_t count = to - at < PIECE ? to - at : PIECE;
        const sl__update_args part = sl__update_part(u->args, at, count);
        sl__cpu_update(u->stream, u->how, u->block, &part, 1);
    }
}

static sl_status update(sl__stream *stream, const sl__update *how,
                        const sl__update_block *block,
                        const sl__update_args *args, int count)
{
    for (int i = 0; i < count; i++) {
        /* Refuses unsupported dtypes here: the parts below cannot. */
        const sl__update_args none = sl__update_part(&args[i], 0, 0);
        SL__TRY(sl__cpu_update(stream, &how[i], block, &none, 1));
        update_job u = {stream, &how[i], block, &args[i]};
        sl__parallel(((const cpu_stream *)stream)->threads, args[i].count,
                     1 << 14, update_part, &u);
    }
    return SL_OK;
}

const sl__backend sl__backend_cpu = {
    .name = "cpu",
    .device = {.threads_max = THREADS_MAX,
               .open = open_device,
               .close = close_device,
               .open_stream = open_stream,
               .close_stream = close_stream,
               .begin = sl__cpu_begin_or_end,
               .end = sl__cpu_begin_or_end,
               .record = sl__cpu_record,
               .wait = sl__cpu_wait,
               .finish = sl__cpu_finish},
    .buffers = &sl__host_buffers,
    .kernels = {.prepare = prepare,
                .forget = forget,
                .describe = describe,
                .clip = sl__cpu_clip,
                .squares = sl__cpu_squares,
                .update = update},
};

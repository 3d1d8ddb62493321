/* SPDX-License-Identifier: MIT
 *
 * The table of the `onednn` backend: which kernel an op gets. */
#include "tensor/backends/cpu/cpu.h"

#include "base/memory.h"
#include "base/try.h"

enum { THREADS_MAX = 1024 };

static void close_device(sl__device *device)
{
    sl__dnn_context *dnn = (sl__dnn_context *)device;
    if (dnn->stream)
        dnnl_stream_destroy(dnn->stream);
    if (dnn->engine)
        dnnl_engine_destroy(dnn->engine);
    free(dnn);
}

static sl_status open_device(int threads, sl__device **out)
{
    sl__dnn_context *dnn;
    if (threads > sl__thread_limit())
        return sl_fail(SL_EINVAL, "%d threads, but OMP_THREAD_LIMIT is %d",
                       threads, sl__thread_limit());
    sl_status status = sl__splits_check();
    if (!status)
        status = sl__dnn_cap_isa();
    if (!status)
        status = sl__alloc(1, sizeof *dnn, &dnn);
    if (status)
        return status;
    dnn->threads = threads;
    dnnl_status_t made = dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
    if (!made)
        made = dnnl_stream_create(&dnn->stream, dnn->engine,
                                  dnnl_stream_default_flags);
    if (made) {
        close_device((sl__device *)dnn);
        return sl__dnn_fail("dnnl_engine_create", made);
    }
    *out = (sl__device *)dnn;
    return SL_OK;
}

/* A stream: the team of threads that its work is done by. */
typedef struct cpu_stream {
    sl__stream stream; /* first */
    int threads;
    sl__team before; /* of the thread that enqueues, meanwhile */
} cpu_stream;

int sl__threads_of(const sl__run *run)
{
    return run->stream ? ((const cpu_stream *)run->stream)->threads : 1;
}

static sl_status open_stream(sl__device *device, sl__stream **out)
{
    const sl__dnn_context *dnn = (const sl__dnn_context *)device;
    cpu_stream *stream;
    SL__TRY(sl__alloc(1, sizeof *stream, &stream));
    stream->stream.buffers = &sl__host_buffers;
    stream->threads = dnn->threads;
    *out = &stream->stream;
    return SL_OK;
}

static void close_stream(sl__stream *stream)
{
    free(stream);
}

static sl_status begin(sl__stream *stream)
{
    cpu_stream *own = (cpu_stream *)stream;
    own->before = sl__set_team((sl__team){own->threads, 0});
    return SL_OK;
}

static sl_status end(sl__stream *stream)
{
    sl__set_team(((cpu_stream *)stream)->before);
    return SL_OK;
}

/* oneDNN chooses its kernels for the team that it finds. */
static sl_status prepare_matmul(sl__dnn_context *dnn, sl__packs *packs,
                                sl__kernel *kernel)
{
    sl__team before = sl__set_team((sl__team){dnn->threads, 0});
    sl_status status = sl__dnn_prepare_matmul(dnn, packs, kernel);
    sl__set_team(before);
    return status;
}

static sl_status prepare(sl__device *device, sl__packs *packs,
                         sl__kernel *kernel)
{
    sl__dnn_context *dnn = (sl__dnn_context *)device;
    sl__op op = kernel->node->op;
    sl_dtype dtype = sl__kernel_dtype(kernel);
    kernel->run = sl__ref_kernel(op, dtype);
    if (dtype != SL_F32)
        return SL_OK;
    if (op == SL__MATMUL)
        return prepare_matmul(dnn, packs, kernel);
    sl__kernel_fn fast = sl__vector_choose()->table[op];
    if (fast && sl__vector_accepts(kernel, dnn->threads))
        kernel->run = fast;
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
    /* A piece at a time, so that what is zeroed is still in cache. */
    enum { PIECE = 4096 };
    (void)worker;
    for (int64_t at = from; at < to; at += PIECE) {
        int64_t count = to - at < PIECE ? to - at : PIECE;
        const sl__update_args part = sl__update_part(u->args, at, count);
        sl__cpu_update(u->stream, u->how, u->block, &part);
    }
}

static sl_status update(sl__stream *stream, const sl__update *how,
                        const sl__update_block *block,
                        const sl__update_args *args)
{
    /* What it cannot do it refuses here, where that can be heard. */
    const sl__update_args none = sl__update_part(args, 0, 0);
    SL__TRY(sl__cpu_update(stream, how, block, &none));
    update_job u = {stream, how, block, args};
    sl__parallel(((const cpu_stream *)stream)->threads, args->count, 1 << 14,
                 update_part, &u);
    return SL_OK;
}

const sl__backend sl__backend_cpu = {
    .name = "cpu",
    .device = {.threads_max = THREADS_MAX,
               .open = open_device,
               .close = close_device,
               .open_stream = open_stream,
               .close_stream = close_stream,
               .begin = begin,
               .end = end,
               .record = sl__cpu_record,
               .wait = sl__cpu_wait,
               .finish = sl__cpu_finish},
    .buffers = &sl__host_buffers,
    .kernels = {.prepare = prepare,
                .forget = sl__dnn_forget,
                .bind = sl__dnn_bind,
                .unbind = sl__dnn_unbind,
                .clip = sl__cpu_clip,
                .update = update},
};

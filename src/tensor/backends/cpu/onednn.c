/* SPDX-License-Identifier: MIT
 *
 * The table of the `onednn` backend: which kernel an op gets. */
#include "tensor/backends/cpu/onednn.h"

#include "base/memory.h"

enum { THREADS_MAX = 1024 };

static void close_context(void *context)
{
    sl__dnn_context *dnn = context;
    if (dnn->stream)
        dnnl_stream_destroy(dnn->stream);
    if (dnn->engine)
        dnnl_engine_destroy(dnn->engine);
    free(dnn);
}

static sl_status open_context(int threads, void **out_context)
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
        close_context(dnn);
        return sl__dnn_fail("dnnl_engine_create", made);
    }
    *out_context = dnn;
    return SL_OK;
}

static sl_status prepare(void *context, sl__packs *packs, sl__kernel *kernel)
{
    sl__dnn_context *dnn = context;
    sl__op op = kernel->node->op;
    sl_dtype dtype = sl__kernel_dtype(kernel);
    kernel->run = sl__ref_kernel(op, dtype);
    if (dtype != SL_F32)
        return SL_OK;
    if (op == SL__MATMUL)
        return sl__dnn_prepare_matmul(dnn, packs, kernel);
    sl__kernel_fn fast = sl__vector_choose()->table[op];
    if (fast && sl__vector_accepts(kernel, dnn->threads))
        kernel->run = fast;
    return SL_OK;
}

static void begin(int threads, sl__saved *out)
{
    sl__team before = sl__set_team((sl__team){threads, 0});
    *out = (sl__saved){{before.threads, before.dynamic}};
}

static void end(const sl__saved *saved)
{
    sl__set_team((sl__team){saved->values[0], saved->values[1]});
}

typedef struct descent {
    sl_dtype dtype;
    char *value, *gradient;
    double rate;
} descent;

static void descend_part(void *data, int worker, int64_t from, int64_t to)
{
    const descent *d = data;
    size_t size = sl_dtype_bytes(d->dtype);
    /* A piece at a time, so that what is zeroed is still near. */
    enum { PIECE = 4096 };
    (void)worker;
    for (int64_t at = from; at < to; at += PIECE) {
        int64_t count = to - at < PIECE ? to - at : PIECE;
        sl__cpu_descend(d->dtype, d->value + (size_t)at * size,
                        d->gradient + (size_t)at * size, count, d->rate, 1);
    }
}

static void descend(sl_dtype dtype, void *value, void *gradient, int64_t count,
                    double rate, int threads)
{
    descent d = {dtype, value, gradient, rate};
    sl__parallel(threads, count, 1 << 16, descend_part, &d);
}

typedef struct update_job {
    sl_dtype dtype;
    const sl_update *how;
    char *value, *gradient, *first, *second;
} update_job;

static void update_part(void *data, int worker, int64_t from, int64_t to)
{
    const update_job *u = data;
    size_t at = (size_t)from * sl_dtype_bytes(u->dtype);
    (void)worker;
    sl__cpu_update(u->dtype, u->how, u->value + at, u->gradient + at,
                   u->first ? u->first + at : NULL,
                   u->second ? u->second + at : NULL, to - from, 1);
}

static void update(sl_dtype dtype, const sl_update *how, void *value,
                   void *gradient, void *first, void *second, int64_t count,
                   int threads)
{
    update_job u = {dtype, how, value, gradient, first, second};
    sl__parallel(threads, count, 1 << 14, update_part, &u);
}

const sl__backend sl__backend_onednn = {
    .name = "onednn",
    .threads_max = THREADS_MAX,
    .open = open_context,
    .close = close_context,
    .prepare = prepare,
    .forget = sl__dnn_forget,
    .bind = sl__dnn_bind,
    .unbind = sl__dnn_unbind,
    .allocate = sl__cpu_allocate,
    .release = sl__cpu_release,
    .copy_in = sl__cpu_copy,
    .copy_out = sl__cpu_copy,
    .clear = sl__cpu_clear,
    .discard = sl__cpu_discard,
    .descend = descend,
    .update = update,
    .begin = begin,
    .end = end,
};

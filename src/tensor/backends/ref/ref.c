/* SPDX-License-Identifier: MIT
 *
 * The `ref` backend: plain C on one thread, every op, both float types. It is
 * the specification that other backends are tested against. */
#include "tensor/backends/ref/ref.h"

#include <stdio.h>
#include <stdlib.h>

/* Integers and bools are only ever copied. */
static sl_status copy_bytes(const sl__kernel *kernel, void *const *p,
                            const sl__run *run)
{
    (void)run;
    const sl__arg *from = &kernel->args[0], *to = &kernel->args[1];
    size_t bytes = sl_dtype_bytes(from->dtype);
    int64_t count = sl__arg_count(from);
    sl__index index = {0};
    for (int64_t i = 0; i < count; i++) {
        memcpy((char *)p[1] + sl__at(to, &index) * (int64_t)bytes,
               (const char *)p[0] + sl__at(from, &index) * (int64_t)bytes,
               bytes);
        sl__next(from, &index);
    }
    return SL_OK;
}

sl__kernel_fn sl__ref_kernel(sl__op op, sl_dtype dtype)
{
    if (dtype == SL_F32)
        return sl__ref_f32_table[op];
    return dtype == SL_F64 ? sl__ref_f64_table[op] : copy_bytes;
}

struct sl__device {
    char unused;
};

static sl_status open(int threads, int number, bool deterministic,
                      sl__device **out)
{
    static sl__device device;
    (void)threads;
    (void)number;
    (void)deterministic;
    *out = &device;
    return SL_OK;
}

static void close(sl__device *device)
{
    (void)device;
}

static sl_status open_stream(sl__device *device, sl__stream **out)
{
    (void)device;
    *out = &sl__host;
    return SL_OK;
}

static void close_stream(sl__stream *stream)
{
    (void)stream;
}

static sl_status prepare_plain(sl__device *device, sl__kernel *kernel)
{
    (void)device;
    kernel->run = sl__ref_kernel(kernel->node->op, sl__kernel_dtype(kernel));
    return SL_OK;
}

static sl_status prepare(sl__device *device, sl__packs *packs,
                         sl__kernel *kernel)
{
    (void)packs;
    if (sl__has_half(kernel))
        return sl__widen_prepare(kernel, prepare_plain, device);
    return prepare_plain(device, kernel);
}

static void describe(int device, sl_dtype precision, char *out, size_t size)
{
    (void)device;
    (void)precision;
    snprintf(out, size, "plain C");
}

static void forget(sl__kernel *kernel)
{
    free(kernel->private);
}

const sl__backend sl__backend_ref = {
    .name = "ref",
    .device = {.threads_max = 1,
               .open = open,
               .close = close,
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
                .update = sl__cpu_update},
};

/* SPDX-License-Identifier: MIT
 *
 * The `ref` backend: plain C on one thread, every op, both float types. It is
 * the specification that other backends are tested against. */
#include "tensor/backends/ref/ref.h"

/* Integers and bools are only ever moved. */
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

static sl_status open(int threads, void **out_context)
{
    (void)threads;
    *out_context = NULL;
    return SL_OK;
}

static void close(void *context)
{
    (void)context;
}

static sl_status prepare(void *context, sl__packs *packs, sl__kernel *kernel)
{
    (void)context;
    (void)packs;
    kernel->run = sl__ref_kernel(kernel->node->op, sl__kernel_dtype(kernel));
    return SL_OK;
}

static void forget(sl__kernel *kernel)
{
    (void)kernel;
}

static sl_status bind(void *context, const sl__kernel *kernel, void *const *p,
                      void **out_state)
{
    (void)context;
    (void)kernel;
    (void)p;
    *out_state = NULL;
    return SL_OK;
}

static void unbind(void *state)
{
    (void)state;
}

static void begin(int threads, sl__saved *out)
{
    *out = (sl__saved){{threads}};
}

static void end(const sl__saved *saved)
{
    (void)saved;
}

const sl__backend sl__backend_ref = {
    .name = "ref",
    .threads_max = 1,
    .open = open,
    .close = close,
    .prepare = prepare,
    .forget = forget,
    .bind = bind,
    .unbind = unbind,
    .allocate = sl__cpu_allocate,
    .release = sl__cpu_release,
    .copy_in = sl__cpu_copy,
    .copy_out = sl__cpu_copy,
    .clear = sl__cpu_clear,
    .discard = sl__cpu_discard,
    .descend = sl__cpu_descend,
    .update = sl__cpu_update,
    .begin = begin,
    .end = end,
};

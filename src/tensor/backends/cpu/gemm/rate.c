/* SPDX-License-Identifier: MIT
 *
 * The yardstick: how fast oneDNN itself multiplies by a packed weight. */
#include "tensor/backends/cpu/gemm/product.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/memory.h"

/* A product with memory of its own for each of its parts. */
typedef struct bench_parts {
    dnnl_exec_arg_t args[4];
    void *data[4];
    int count;
} bench_parts;

static sl_status add_part(bench_parts *bench, dnnl_engine_t engine, int name,
                          const sl__md *md)
{
    if (!md->set)
        return SL_OK;
    int at = bench->count++;
    int64_t bytes = (int64_t)dnnl_memory_desc_get_size(sl__md_use(md));
    sl_status status =
        sl__host_buffers.allocate(&sl__host, bytes, &bench->data[at]);
    if (status)
        return status;
    float *data = bench->data[at];
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *data; i++)
        data[i] = (float)(i % 7) * 1e-3f;
    bench->args[at].arg = name;
    dnnl_status_t made = dnnl_memory_create(
        &bench->args[at].memory, sl__md_use(md), engine, bench->data[at]);
    return made ? sl__dnn_fail("dnnl_memory_create", made) : SL_OK;
}

static sl_status measure(const sl__product *product, dnnl_stream_t stream,
                         const bench_parts *bench, double seconds,
                         double *out_seconds)
{
    double best = 1e9, start = sl__seconds();
    for (int i = 0; i < 3 || sl__seconds() - start < seconds; i++) {
        double before = sl__seconds();
        dnnl_status_t status = dnnl_primitive_execute(
            product->primitive, stream, bench->count, bench->args);
        if (status)
            return sl__dnn_fail("dnnl_primitive_execute", status);
        double took = sl__seconds() - before;
        best = took < best ? took : best;
    }
    *out_seconds = best;
    return SL_OK;
}

static sl_status measure_product(const sl__dnn_context *dnn,
                                 const sl__product_spec *spec, double seconds,
                                 double *out_seconds)
{
    sl__product product;
    bench_parts parts = {.count = 0};
    sl_status status = sl__product_create(dnn->engine, spec, &product);
    if (status)
        return status;
    status = add_part(&parts, dnn->engine, DNNL_ARG_SRC, &product.src);
    if (!status)
        status =
            add_part(&parts, dnn->engine, DNNL_ARG_WEIGHTS, &product.weights);
    if (!status)
        status = add_part(&parts, dnn->engine, DNNL_ARG_DST, &product.dst);
    if (!status)
        status = add_part(&parts, dnn->engine, DNNL_ARG_SCRATCHPAD,
                          &product.scratch);
    if (!status)
        status = measure(&product, dnn->stream, &parts, seconds, out_seconds);
    for (int i = 0; i < parts.count; i++) {
        if (parts.args[i].memory)
            dnnl_memory_destroy(parts.args[i].memory);
        sl__host_buffers.release(&sl__host, parts.data[i]);
    }
    sl__product_clear(&product);
    return status;
}

sl_status sl_measure_packed_matmul(int m, int n, int k, int threads,
                                   double seconds, double *out_gflops)
{
    SL__NEED(out_gflops);
    const sl__backend *backend = &sl__backend_cpu;
    if (m < 1 || n < 1 || k < 1)
        return sl_fail(SL_EINVAL, "a product of %d x %d x %d", m, n, k);
    if (threads < 1 || threads > backend->device.threads_max)
        return sl_fail(SL_EINVAL, "%d threads, expected 1 to %d", threads,
                       backend->device.threads_max);
    sl__device *device;
    double took = 0;
    sl_status status = backend->device.open(threads, &device);
    if (status)
        return status;
    const sl__product_spec spec = {.batch = 1,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .src = {0, k, 1},
                                   .weights = {0, n, 1},
                                   .dst = {0, n, 1},
                                   .type = dnnl_f32,
                                   .packed = true,
                                   .activation = SL__OP_COUNT};
    sl__team before = sl__set_team((sl__team){threads, 0});
    status = measure_product((sl__dnn_context *)device, &spec, seconds, &took);
    sl__set_team(before);
    backend->device.close(device);
    if (!status)
        *out_gflops = 2e-9 * m * n * k / took;
    return status;
}

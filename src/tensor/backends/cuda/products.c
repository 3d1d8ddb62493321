/* SPDX-License-Identifier: MIT
 *
 * Products: by cuBLASLt wherever it takes the geometry, else by a plain kernel.
 * In bf16, weights and biases in f32 are packed as bf16. */
#include "tensor/backends/cuda/products.h"

#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* kernel->private */
typedef struct product {
    sl__cuda_product lt;
    sl__cublas *cublas;
    product_params any; /* where cuBLASLt does not take it */
    map_params after;   /* an activation, on the result; op 0: none */
} product;

/* Of cuBLASLt's workspace; more than scratch has. */
enum { WORKSPACE_ALIGNMENT = 256 };

#define RUN const sl__kernel *kernel, void *const *p, const sl__run *run

/* -------------------------------------------------------------- packing -- */

static sl_status run_pack(RUN)
{
    const map_params m = {.a = p[0],
                          .out = p[1],
                          .op = MAP_COPY,
                          .dtype = {DT_F32, 0, DT_BF16},
                          .count = sl__arg_count(&kernel->args[0])};
    return sl__cuda_map(sl__cuda_of(run->stream), &m);
}

/* Finds the pack of a tensor's whole base, or adds it. */
static sl_status find_pack(sl__packs *packs, const sl__node *node,
                           const sl_tensor *base, int *out)
{
    sl__pack *pack;
    for (size_t i = 0; i < packs->count; i++) {
        *out = (int)i;
        if (packs->data[i]->tensor == base)
            return SL_OK;
    }
    SL__TRY(sl__grow(&packs->data, &packs->capacity, packs->count + 1,
                     sizeof *packs->data));
    SL__TRY(sl__alloc(1, sizeof *pack, &pack));
    pack->tensor = base;
    pack->bytes = sl__count(base) * (int64_t)sl_dtype_bytes(SL_BF16);
    pack->args[0] = (sl__arg){.dtype = SL_F32, .dims = base->dims};
    memcpy(pack->args[0].shape, base->shape, sizeof base->shape);
    memcpy(pack->args[0].stride, base->stride, sizeof base->stride);
    pack->kernel = (sl__kernel){.run = run_pack,
                                .args = pack->args,
                                .arg_count = 2,
                                .operand_count = 1,
                                .node = node,
                                .activation = SL__OP_COUNT,
                                .packs = {-1, -1, -1}};
    pack->is_cast = true;
    *out = (int)packs->count;
    packs->data[packs->count++] = pack;
    return SL_OK;
}

static bool is_held(const sl_tensor *tensor)
{
    sl__leaf leaf = tensor->base->leaf;
    return leaf == SL__PARAMETER || leaf == SL__BUFFER;
}

/* Packs what is held in f32; `dtypes` become what the product reads. False: an
 * operand in f32 that is not held. */
static sl_status pack_operands(sl__packs *packs, sl__kernel *kernel,
                               sl_dtype *dtypes, bool *out_fits)
{
    const sl__node *node = kernel->node;
    *out_fits = true;
    for (int i = 0; i < kernel->operand_count; i++) {
        const sl_tensor *operand = node->operands[i];
        if (dtypes[i] != SL_F32)
            continue;
        *out_fits = *out_fits && is_held(operand);
    }
    for (int i = 0; i < kernel->operand_count && *out_fits; i++) {
        const sl_tensor *operand = node->operands[i];
        if (dtypes[i] != SL_F32)
            continue;
        SL__TRY(find_pack(packs, node, operand->base, &kernel->packs[i]));
        kernel->pack_offsets[i] =
            operand->offset * (int64_t)sl_dtype_bytes(SL_BF16);
        dtypes[i] = SL_BF16;
    }
    return SL_OK;
}

/* ------------------------------------------------------------- geometry -- */

/* A matrix as cuBLASLt reads it, by columns: as it lies, or transposed. */
typedef struct matrix {
    bool transposed, fits;
    int64_t rows, columns; /* as stored */
    int64_t lead;
    int64_t batch; /* stride */
} matrix;

static matrix as_matrix(int64_t rows, int64_t columns, int64_t row_stride,
                        int64_t column_stride, int64_t batch)
{
    matrix out = {.fits = true, .batch = batch};
    bool plain = (row_stride == 1 || rows == 1) &&
                 (columns == 1 || column_stride >= rows);
    bool turned = (column_stride == 1 || columns == 1) &&
                  (rows == 1 || row_stride >= columns);
    if (plain) {
        out.rows = rows;
        out.columns = columns;
        out.lead = columns == 1 ? rows : column_stride;
    } else if (turned) {
        out.transposed = true;
        out.rows = columns;
        out.columns = rows;
        out.lead = rows == 1 ? columns : row_stride;
    } else {
        out.fits = false;
    }
    return out;
}

static cudaDataType_t type_of(sl_dtype dtype)
{
    return dtype == SL_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static void set_layout(const sl__cublas *cublas,
                       cublasLtMatrixLayoutOpaque_t *layout, const matrix *m,
                       sl_dtype dtype, int batch, int64_t *out_bytes)
{
    cublas->f.init_layout(layout, sizeof *layout, type_of(dtype),
                          (uint64_t)m->rows, (uint64_t)m->columns, m->lead);
    *out_bytes = (m->lead * m->columns + (batch - 1) * m->batch) *
                 (int64_t)sl_dtype_bytes(dtype);
    if (batch <= 1)
        return;
    cublas->f.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                         sizeof batch);
    cublas->f.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                         &m->batch, sizeof m->batch);
}

/* How an operand is aligned, in bytes: where it lies in its piece of a pool,
 * which is aligned to more. */
static uint32_t alignment_of(const sl_tensor *tensor, sl_dtype dtype)
{
    enum { MOST = 16 };
    uint64_t at = (uint64_t)tensor->offset * sl_dtype_bytes(dtype) | MOST;
    return (uint32_t)(at & -at);
}

/* Multiprocessors for a product; 0: all. In backward a small product and a
 * weight gradient of few rows run beside each other, and a block that has found
 * a multiprocessor keeps it. The gradient waits for memory (its result is read
 * and written), so a quarter of the GPU does; the product, of a few
 * microseconds on half of it, finds the rest. */
static int processors_for(const sl__gpu *gpu, const sl__kernel *kernel,
                          const sl__cuda_product *lt)
{
    const double flops_per_byte = 100, small_flops = 3e9;
    const sl__node *node = kernel->node;
    double flops = 2 * lt->multiplies;
    double bytes = (double)(lt->bytes[0] + lt->bytes[1] + 2 * lt->bytes[2]);
    if (!node->backward)
        return 0;
    if (node->results[0]->base->leaf == SL__PARAMETER_GRADIENT)
        return flops < flops_per_byte * bytes ? gpu->processors / 4 : 0;
    return flops < small_flops ? gpu->processors / 2 : 0;
}

/* Describes the product for cuBLASLt; false: it does not take it. The rows of a
 * row-major result are the columns of cuBLASLt's, which computes the transposed
 * product then: its A is our second operand. */
static bool describe(const sl__gpu *gpu, const sl__cublas *cublas,
                     const sl__kernel *kernel, const sl_dtype *dtypes,
                     sl_dtype out, sl__cuda_product *lt)
{
    sl__matmul_sizes s = sl__matmul_geometry(kernel);
    bool has_bias = kernel->operand_count == 3;
    int batch = (int)s.batch;
    matrix d = as_matrix(s.n, s.m, s.out[2], s.out[1], s.out[0]);
    lt->swaps = d.fits && !d.transposed;
    matrix a, b;
    if (lt->swaps) {
        a = as_matrix(s.n, s.k, s.b[2], s.b[1], s.b[0]);
        b = as_matrix(s.k, s.m, s.a[2], s.a[1], s.a[0]);
    } else {
        d = as_matrix(s.m, s.n, s.out[1], s.out[2], s.out[0]);
        a = as_matrix(s.m, s.k, s.a[1], s.a[2], s.a[0]);
        b = as_matrix(s.k, s.n, s.b[1], s.b[2], s.b[0]);
    }
    if (!a.fits || !b.fits || !d.fits || d.transposed ||
        (has_bias && (!lt->swaps || kernel->args[2].stride[0] != 1)) ||
        s.batch > INT32_MAX || s.batch * s.m * s.n * s.k == 0)
        return false;
    const sl_dtype da = dtypes[lt->swaps], db = dtypes[!lt->swaps];
    if (da != db || (has_bias && dtypes[2] != out && batch > 1))
        return false;
    cublasOperation_t turned = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType_t bias_type = type_of(has_bias ? dtypes[2] : out);
    cublas->f.init_product(&lt->description, sizeof lt->description,
                           CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (a.transposed)
        cublas->f.set_product(&lt->description, CUBLASLT_MATMUL_DESC_TRANSA,
                              &turned, sizeof turned);
    if (b.transposed)
        cublas->f.set_product(&lt->description, CUBLASLT_MATMUL_DESC_TRANSB,
                              &turned, sizeof turned);
    lt->has_bias = has_bias;
    lt->multiplies = (double)s.batch * (double)s.m * (double)s.n * (double)s.k;
    if (has_bias) {
        cublas->f.set_product(&lt->description, CUBLASLT_MATMUL_DESC_EPILOGUE,
                              &epilogue, sizeof epilogue);
        cublas->f.set_product(&lt->description,
                              CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                              sizeof bias_type);
    }
    lt->alignment[0] = alignment_of(kernel->node->operands[lt->swaps], da);
    lt->alignment[1] = alignment_of(kernel->node->operands[!lt->swaps], db);
    lt->alignment[2] = alignment_of(kernel->node->results[0], out);
    set_layout(cublas, &lt->a, &a, da, batch, &lt->bytes[0]);
    set_layout(cublas, &lt->b, &b, db, batch, &lt->bytes[1]);
    set_layout(cublas, &lt->d, &d, out, batch, &lt->bytes[2]);
    int processors = processors_for(gpu, kernel, lt);
    if (processors)
        cublas->f.set_product(&lt->description,
                              CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &processors,
                              sizeof processors);
    snprintf(lt->key, sizeof lt->key,
             "%s %s bias %d adds %d on %d at %u %u %u batch %d: %lldx%lldx%lld "
             "%c%lld+%lld %c%lld+%lld %lld+%lld",
             sl_dtype_text(da), sl_dtype_text(out), has_bias, kernel->adds,
             processors, lt->alignment[0], lt->alignment[1], lt->alignment[2],
             batch, (long long)d.rows, (long long)d.columns, (long long)s.k,
             a.transposed ? 'T' : 'N', (long long)a.lead, (long long)a.batch,
             b.transposed ? 'T' : 'N', (long long)b.lead, (long long)b.batch,
             (long long)d.lead, (long long)d.batch);
    return true;
}

/* -------------------------------------------------------------- running -- */

static sl_status activate(const product *own, void *result, const sl__run *run)
{
    map_params m = own->after;
    if (m.op == MAP_COPY)
        return SL_OK;
    m.a = m.out = result;
    return sl__cuda_map(sl__cuda_of(run->stream), &m);
}

static sl_status run_lt(RUN)
{
    /* The bias is an attribute of the description, so that is copied. */
    product *own = kernel->private;
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    cublasLtMatmulDescOpaque_t description = own->lt.description;
    const float one = 1;
    void *result = p[kernel->operand_count];
    void *workspace = own->lt.workspace
                          ? (void *)(((uintptr_t)p[kernel->arg_count - 1] +
                                      WORKSPACE_ALIGNMENT - 1) /
                                     WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT)
                          : NULL;
    SL__TRY(sl__gpu_enter(stream->gpu));
    if (own->lt.has_bias)
        own->cublas->f.set_product(&description,
                                   CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p[2],
                                   sizeof p[2]);
    cublasStatus_t status = own->cublas->f.multiply(
        own->cublas->handle, &description, &one, p[own->lt.swaps], &own->lt.a,
        p[!own->lt.swaps], &own->lt.b, &own->lt.beta, result, &own->lt.d,
        result, &own->lt.d, &own->lt.algorithm, workspace, own->lt.workspace,
        stream->handle);
    sl__gpu_leave(stream->gpu);
    SL__TRY(sl__cublas_check(status, own->lt.key));
    return activate(own, result, run);
}

static sl_status run_any(RUN)
{
    const product *own = kernel->private;
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    product_params a = own->any;
    a.a = p[0];
    a.b = p[1];
    a.bias = kernel->operand_count == 3 ? p[2] : NULL;
    a.out = p[kernel->operand_count];
    return sl__cuda_launch(stream, SL__CUDA_product,
                           sl__cuda_blocks(stream, a.batch * a.m * a.n), 1, 256,
                           &a);
}

static void prepare_any(sl__kernel *kernel, const sl_dtype *dtypes,
                        product_params *a)
{
    sl__matmul_sizes s = sl__matmul_geometry(kernel);
    const sl__arg *out = &kernel->args[kernel->operand_count];
    kernel->run = run_any;
    *a = (product_params){.rounds = sl__has_half(kernel),
                          .adds = kernel->adds,
                          .op = MAP_COPY,
                          .batch = s.batch,
                          .m = s.m,
                          .n = s.n,
                          .k = s.k};
    for (int i = 0; i < kernel->operand_count; i++)
        a->dtype[i] = (int)dtypes[i];
    a->dtype[3] = (int)out->dtype;
    memcpy(a->sa, s.a, sizeof s.a);
    memcpy(a->sb, s.b, sizeof s.b);
    memcpy(a->so, s.out, sizeof s.out);
    if (kernel->activation != SL__OP_COUNT)
        a->op = sl__cuda_map_op(kernel->activation);
}

static sl_status prepare(sl__gpu *gpu, sl__packs *packs, sl__kernel *kernel,
                         product *own)
{
    sl_dtype dtypes[3];
    int result = kernel->operand_count;
    const sl__arg *out = &kernel->args[result];
    bool fits = true;
    assert(result <= 3);
    own->lt.beta = kernel->adds ? 1 : 0;
    for (int i = 0; i < result; i++) {
        dtypes[i] = kernel->args[i].dtype;
        fits = fits && (dtypes[i] == SL_F32 || dtypes[i] == SL_BF16);
    }
    fits = fits && (out->dtype == SL_F32 || out->dtype == SL_BF16);
    if (fits && sl__has_half(kernel))
        SL__TRY(pack_operands(packs, kernel, dtypes, &fits));
    if (fits) {
        SL__TRY(sl__cublas_open(gpu, &own->cublas));
        own->lt.fits =
            describe(gpu, own->cublas, kernel, dtypes, out->dtype, &own->lt);
    }
    if (own->lt.fits)
        SL__TRY(sl__cublas_choose(gpu, own->cublas, &own->lt));
    if (!own->lt.fits) {
        prepare_any(kernel, dtypes, &own->any);
        return SL_OK;
    }
    kernel->run = run_lt;
    if (own->lt.workspace)
        kernel->scratch_bytes =
            sl__aligned((int64_t)own->lt.workspace) + WORKSPACE_ALIGNMENT;
    if (kernel->activation != SL__OP_COUNT)
        own->after = (map_params){.op = sl__cuda_map_op(kernel->activation),
                                  .dtype = {out->dtype, 0, out->dtype},
                                  .count = sl__arg_count(out)};
    return SL_OK;
}

sl_status sl__cuda_prepare_product(sl__gpu *gpu, sl__packs *packs,
                                   sl__kernel *kernel)
{
    product *own;
    SL__TRY(sl__alloc(1, sizeof *own, &own));
    kernel->private = own;
    return prepare(gpu, packs, kernel, own);
}

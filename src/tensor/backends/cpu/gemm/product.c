/* SPDX-License-Identifier: MIT
 *
 * Building the primitive of a product: layouts, fused steps, scratchpad in our
 * hands. */
#include "tensor/backends/cpu/gemm/product.h"

sl_status sl__dnn_fail(const char *call, dnnl_status_t status)
{
    return sl_fail(status == dnnl_out_of_memory ? SL_ENOMEM : SL_EINVAL,
                   "oneDNN: %s failed with status %d", call, (int)status);
}

/* A matrix, or a batch of them, with strides; those of sizes of 1, which may be
 * anything, are made such that oneDNN sees rows. */
static dnnl_status_t describe_matrix(sl__md *md, int64_t batch, int64_t rows,
                                     int64_t columns, const int64_t stride[3],
                                     dnnl_data_type_t type)
{
    bool batched = batch > 1;
    int64_t row = stride[1], column = stride[2];
    if (rows == 1 && columns == 1)
        row = column = 1;
    else if (rows == 1)
        row = column == 1 ? columns : 1;
    else if (columns == 1)
        column = 1;
    dnnl_dims_t shape = {batch, rows, columns};
    dnnl_dims_t strides = {stride[0], row, column};
    return sl__md_strided(md, batched ? 3 : 2, shape + !batched, type,
                          strides + !batched);
}

static dnnl_status_t describe_all(sl__product *product,
                                  const sl__product_spec *spec)
{
    dnnl_dims_t plain = {spec->k, spec->n};
    dnnl_dims_t row = {1, 1, spec->n}, row_stride = {spec->n, spec->n, 1};
    int skip = spec->batch > 1 ? 0 : 1;
    dnnl_status_t status = describe_matrix(&product->src, spec->batch, spec->m,
                                           spec->k, spec->src, spec->type);
    if (!status && spec->packed)
        status = sl__md_any(&product->weights, 2, plain, spec->type);
    else if (!status)
        status = describe_matrix(&product->weights, spec->batch, spec->k,
                                 spec->n, spec->weights, spec->type);
    if (!status)
        status = describe_matrix(&product->dst, spec->batch, spec->m, spec->n,
                                 spec->dst, dnnl_f32);
    if (!status && spec->has_bias)
        status = sl__md_strided(&product->bias, 3 - skip, row + skip, dnnl_f32,
                                row_stride + skip);
    return status;
}

static dnnl_alg_kind_t algorithm_of(sl__op activation)
{
    switch (activation) {
    case SL__GELU_TANH: return dnnl_eltwise_gelu_tanh;
    case SL__GELU_ERF: return dnnl_eltwise_gelu_erf;
    default: return dnnl_alg_kind_undef;
    }
}

static dnnl_status_t make_attributes(const sl__product_spec *spec,
                                     dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops;
    dnnl_alg_kind_t algorithm = algorithm_of(spec->activation);
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(*out,
                                                     dnnl_scratchpad_mode_user);
    if (!status)
        status = dnnl_post_ops_create(&ops);
    if (status) {
        dnnl_primitive_attr_destroy(*out);
        return status;
    }
    if (spec->adds)
        status = sl__append_sum(ops);
    if (!status && algorithm != dnnl_alg_kind_undef)
        status = sl__append_eltwise(ops, algorithm);
    if (!status)
        status = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    if (status)
        dnnl_primitive_attr_destroy(*out);
    return status;
}

/* Notes the scratchpad that a described primitive wants. */
static dnnl_status_t read_scratch(sl__product *product,
                                  const_dnnl_primitive_desc_t description)
{
    sl__md_ref scratch =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    if (!scratch || dnnl_memory_desc_get_size(scratch) == 0)
        return dnnl_success;
    product->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
    return sl__md_copy(&product->scratch, scratch);
}

/* Reads the layout that was chosen for the weights off the description. */
static dnnl_status_t read_choices(sl__product *product,
                                  const_dnnl_primitive_desc_t description)
{
    sl__md_ref weights =
        dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    sl__md_clear(&product->weights);
    dnnl_status_t status = sl__md_copy(&product->weights, weights);
    return status ? status : read_scratch(product, description);
}

sl_status sl__product_create(dnnl_engine_t engine, const sl__product_spec *spec,
                             sl__product *out)
{
    sl__product product = {0};
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t description = NULL;
    const char *call = "describing a product";
    dnnl_status_t status = describe_all(&product, spec);
    if (!status)
        status = make_attributes(spec, &attributes);
    if (!status) {
        call = "dnnl_matmul";
        status = sl__matmul_create(&description, engine, &product.src,
                                   &product.weights, &product.bias,
                                   &product.dst, attributes);
        dnnl_primitive_attr_destroy(attributes);
    }
    if (!status)
        status = read_choices(&product, description);
    if (!status) {
        call = "dnnl_primitive_create";
        status = dnnl_primitive_create(&product.primitive, description);
    }
    if (description)
        dnnl_primitive_desc_destroy(description);
    if (status) {
        sl__product_clear(&product);
        return sl__dnn_fail(call, status);
    }
    *out = product;
    return SL_OK;
}

void sl__product_clear(sl__product *product)
{
    if (product->primitive)
        dnnl_primitive_destroy(product->primitive);
    product->primitive = NULL;
    sl__md_clear(&product->src);
    sl__md_clear(&product->weights);
    sl__md_clear(&product->bias);
    sl__md_clear(&product->dst);
    sl__md_clear(&product->scratch);
}

/* SPDX-License-Identifier: MIT
 *
 * A matrix product as a oneDNN primitive. */
#ifndef SL_TENSOR_ONEDNN_PRODUCT_H
#define SL_TENSOR_ONEDNN_PRODUCT_H

#include "tensor/backends/cpu/gemm/api.h"
#include "tensor/backends/cpu/cpu.h"

/* src (G, M, K) x weights (G, K, N) [+ bias (N)] -> dst (G, M, N); strides in
 * elements, G 1 for a plain product. */
typedef struct sl__product_spec {
    int64_t batch, m, n, k;
    int64_t src[3], weights[3], dst[3]; /* strides */
    dnnl_data_type_t type;              /* of src and weights */
    bool has_bias;
    bool packed; /* weights, as our kernels like them; oneDNN: as it does */
    bool adds;
    sl__op activation; /* SL__OP_COUNT: none */
} sl__product_spec;

typedef struct sl__product {
    dnnl_primitive_t primitive;
    sl__md src, weights, bias, dst, scratch;
    int64_t scratch_bytes;
} sl__product;

sl_status sl__product_create(dnnl_engine_t engine, const sl__product_spec *spec,
                             sl__product *out);
void sl__product_clear(sl__product *product);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The few calls of oneDNN's C API that differ between its versions 2 and 3,
 * under one name each. A description of memory is a value in v2 and a handle in
 * v3; here it is always something to clear. */
#ifndef SL_TENSOR_ONEDNN_API_H
#define SL_TENSOR_ONEDNN_API_H

#include <dnnl.h>

#include <stdbool.h>
#include <string.h>

typedef struct sl__md {
    dnnl_memory_desc_t md;
    bool set;
} sl__md;

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t sl__md_ref;

static inline sl__md_ref sl__md_use(const sl__md *md)
{
    return md->set ? md->md : NULL;
}

static inline void sl__md_clear(sl__md *md)
{
    if (md->set)
        dnnl_memory_desc_destroy(md->md);
    md->set = false;
}

static inline dnnl_status_t sl__md_strided(sl__md *md, int dims,
                                           const dnnl_dims_t shape,
                                           dnnl_data_type_t type,
                                           const dnnl_dims_t stride)
{
    dnnl_status_t status = dnnl_memory_desc_create_with_strides(
        &md->md, dims, shape, type, stride);
    md->set = status == dnnl_success;
    return status;
}

static inline dnnl_status_t
sl__md_any(sl__md *md, int dims, const dnnl_dims_t shape, dnnl_data_type_t type)
{
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(
        &md->md, dims, shape, type, dnnl_format_tag_any);
    md->set = status == dnnl_success;
    return status;
}

static inline dnnl_status_t sl__md_copy(sl__md *md, sl__md_ref from)
{
    dnnl_status_t status = dnnl_memory_desc_clone(&md->md, from);
    md->set = status == dnnl_success;
    return status;
}

static inline dnnl_status_t sl__append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

static inline dnnl_status_t sl__append_eltwise(dnnl_post_ops_t ops,
                                               dnnl_alg_kind_t algorithm)
{
    return dnnl_post_ops_append_eltwise(ops, algorithm, 0, 0);
}

static inline dnnl_status_t
sl__matmul_create(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                  const sl__md *src, const sl__md *weights, const sl__md *bias,
                  const sl__md *dst, dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(
        out, engine, sl__md_use(src), sl__md_use(weights), sl__md_use(bias),
        sl__md_use(dst), attr);
}

#else

typedef const dnnl_memory_desc_t *sl__md_ref;

static inline sl__md_ref sl__md_use(const sl__md *md)
{
    return md->set ? &md->md : NULL;
}

static inline void sl__md_clear(sl__md *md)
{
    md->set = false;
}

static inline dnnl_status_t sl__md_strided(sl__md *md, int dims,
                                           const dnnl_dims_t shape,
                                           dnnl_data_type_t type,
                                           const dnnl_dims_t stride)
{
    md->set = true;
    return dnnl_memory_desc_init_by_strides(&md->md, dims, shape, type, stride);
}

static inline dnnl_status_t
sl__md_any(sl__md *md, int dims, const dnnl_dims_t shape, dnnl_data_type_t type)
{
    md->set = true;
    return dnnl_memory_desc_init_by_tag(&md->md, dims, shape, type,
                                        dnnl_format_tag_any);
}

static inline dnnl_status_t sl__md_copy(sl__md *md, sl__md_ref from)
{
    md->set = true;
    md->md = *from;
    return dnnl_success;
}

static inline dnnl_status_t sl__append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1);
}

static inline dnnl_status_t sl__append_eltwise(dnnl_post_ops_t ops,
                                               dnnl_alg_kind_t algorithm)
{
    return dnnl_post_ops_append_eltwise(ops, 1, algorithm, 0, 0);
}

static inline dnnl_status_t
sl__matmul_create(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                  const sl__md *src, const sl__md *weights, const sl__md *bias,
                  const sl__md *dst, dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status =
        dnnl_matmul_desc_init(&desc, sl__md_use(src), sl__md_use(weights),
                              sl__md_use(bias), sl__md_use(dst));
    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
}

#endif
#endif

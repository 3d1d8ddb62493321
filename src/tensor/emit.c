/* SPDX-License-Identifier: MIT
 *
 * Appending nodes: what builders (build.c) and gradient rules (gradients.c)
 * share. Callers have checked the shapes; a NULL operand, left by an earlier
 * refusal, gives NULL. */
#include "tensor/graph.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

static sl__node *new_node(sl_graph *graph, sl__op op, sl__attributes attributes,
                          int count, sl_tensor *const *operands)
{
    sl__node *node;
    if (SL__TAKE(&graph->arena, 1, &node) ||
        SL__TAKE(&graph->arena, count, &node->operands)) {
        sl__no_memory(graph);
        return NULL;
    }
    node->op = op;
    node->attributes = attributes;
    node->operand_count = count;
    node->backward = graph->in_backward;
    node->module = graph->module;
    for (int i = 0; i < count; i++)
        node->operands[i] = operands[i];
    return node;
}

sl_tensor *sl__append_node(sl_graph *graph, sl__node *node)
{
    if (sl__grow(&graph->nodes, &graph->node_capacity, graph->node_count + 1,
                 sizeof *graph->nodes))
        return sl__no_memory(graph);
    node->index = (int)graph->node_count;
    graph->nodes[graph->node_count++] = node;
    return node->results[0];
}

sl_tensor *sl__add_result(sl__node *node, sl_dtype dtype, int dims,
                          const int64_t *shape)
{
    sl_graph *graph = node->operands[0]->graph;
    sl_tensor *tensor = sl__new_tensor(graph, dtype, dims, shape);
    if (!tensor)
        return NULL;
    tensor->node = node;
    int slot = 0;
    while (node->results[slot])
        slot++;
    assert(slot < sl__ops[node->op].results);
    node->results[slot] = tensor;
    return tensor;
}

sl_tensor *sl__emit(sl_graph *graph, sl__op op, sl__attributes attributes,
                    int count, sl_tensor *const *operands, sl_dtype dtype,
                    int dims, const int64_t *shape)
{
    if (graph->status ||
        !sl__check_shape(graph, sl__ops[op].name, "result", dtype, dims, shape))
        return NULL;
    sl__node *node = new_node(graph, op, attributes, count, operands);
    if (!node)
        return NULL;
    bool needs_gradient = false;
    for (int i = 0; i < count; i++) {
        if (sl__ops[op].traits & SL__DENSE)
            node->operands[i] = sl__dense(node->operands[i]);
        if (!node->operands[i])
            return NULL;
        needs_gradient |= node->operands[i]->needs_gradient;
    }
    sl_tensor *result = sl__new_tensor(graph, dtype, dims, shape);
    if (!result)
        return NULL;
    result->node = node;
    result->needs_gradient = needs_gradient && !graph->in_backward;
    node->results[0] = result;
    return sl__append_node(graph, node);
}

sl_tensor *sl__emit_like(sl_graph *graph, sl__op op, sl__attributes attributes,
                         int count, sl_tensor *const *operands,
                         const sl_tensor *like)
{
    return sl__emit(graph, op, attributes, count, operands, like->dtype,
                    like->dims, like->shape);
}

sl_tensor *sl__emit_view(sl_graph *graph, sl__op op, sl__attributes attributes,
                         sl_tensor *operand, int dims, const int64_t *shape,
                         const int64_t *stride, int64_t offset)
{
    if (graph->status || !sl__check_shape(graph, sl__ops[op].name, "result",
                                          operand->dtype, dims, shape))
        return NULL;
    sl__node *node = new_node(graph, op, attributes, 1, &operand);
    sl_tensor *view =
        node ? sl__new_tensor(graph, operand->dtype, dims, shape) : NULL;
    if (!view)
        return NULL;
    view->node = node;
    view->base = operand->base;
    view->offset = offset;
    view->needs_gradient = operand->needs_gradient;
    view->expanded = operand->expanded || op == SL__EXPAND;
    if (dims)
        memcpy(view->stride, stride, sizeof *stride * dims);
    node->results[0] = view;
    return sl__append_node(graph, node);
}

sl_tensor *sl__dense(sl_tensor *tensor)
{
    if (!tensor || sl__is_dense(tensor))
        return tensor;
    return sl__emit_like(tensor->graph, SL__COPY, (sl__attributes){0}, 1,
                         &tensor, tensor);
}

sl_tensor *sl__view_as(sl_tensor *x, int dims, const int64_t *shape)
{
    int64_t stride[SL_DIMS_MAX];
    if (!x)
        return NULL;
    if (sl__has_shape(x, dims, shape))
        return x;
    if (!sl__reshape_strides(x, dims, shape, stride)) {
        x = sl__dense(x);
        sl__dense_strides(dims, shape, stride);
    }
    if (!x)
        return NULL;
    return sl__emit_view(x->graph, SL__RESHAPE, (sl__attributes){0}, x, dims,
                         shape, stride, x->offset);
}

sl_tensor *sl__view_transposed(sl_tensor *x, int dim_a, int dim_b)
{
    if (!x)
        return NULL;
    int64_t shape[SL_DIMS_MAX], stride[SL_DIMS_MAX];
    memcpy(shape, x->shape, sizeof shape);
    memcpy(stride, x->stride, sizeof stride);
    shape[dim_a] = x->shape[dim_b];
    shape[dim_b] = x->shape[dim_a];
    stride[dim_a] = x->stride[dim_b];
    stride[dim_b] = x->stride[dim_a];
    return sl__emit_view(x->graph, SL__TRANSPOSE,
                         (sl__attributes){.dim = dim_a, .dim_b = dim_b}, x,
                         x->dims, shape, stride, x->offset);
}

sl_tensor *sl__view_slice(sl_tensor *x, int dim, int64_t start, int64_t length)
{
    if (!x)
        return NULL;
    int64_t shape[SL_DIMS_MAX];
    assert(dim < x->dims && start >= 0 && start + length <= x->shape[dim]);
    memcpy(shape, x->shape, sizeof shape);
    shape[dim] = length;
    return sl__emit_view(
        x->graph, SL__SLICE, (sl__attributes){.dim = dim, .integer = start}, x,
        x->dims, shape, x->stride, x->offset + start * x->stride[dim]);
}

sl_tensor *sl__view_expanded(sl_tensor *x, int dims, const int64_t *shape)
{
    if (!x || sl__has_shape(x, dims, shape))
        return x;
    int64_t stride[SL_DIMS_MAX] = {0};
    assert(dims >= x->dims);
    for (int i = 0; i < x->dims; i++) {
        int at = dims - x->dims + i;
        stride[at] = x->shape[i] == shape[at] ? x->stride[i] : 0;
    }
    return sl__emit_view(x->graph, SL__EXPAND, (sl__attributes){0}, x, dims,
                         shape, stride, x->offset);
}

sl_tensor *sl__with_whole_rows(sl_tensor *x)
{
    if (!x->expanded && (x->stride[2] == 1 || x->shape[2] == 1))
        return x;
    return sl__dense(x);
}

/* A matrix that kernels can read directly: one of its last two strides is 1 and
 * with the other one rows do not overlap. A copy, if the tensor is not one. */
static sl_tensor *matrix(sl_tensor *x)
{
    int rows = x->dims - 2, columns = x->dims - 1;
    bool row_major = (x->stride[columns] == 1 || x->shape[columns] == 1) &&
                     x->stride[rows] >= x->shape[columns];
    bool column_major = (x->stride[rows] == 1 || x->shape[rows] == 1) &&
                        x->stride[columns] >= x->shape[rows];
    if (!x->expanded && (row_major || column_major))
        return x;
    return sl__dense(x);
}

sl_tensor *sl__emit_matmul(sl_tensor *a, sl_tensor *b, sl_tensor *bias,
                           sl_dtype dtype)
{
    if (!a || !b)
        return NULL;
    int dims = a->dims;
    int64_t shape[3] = {a->shape[0], a->shape[dims - 2], b->shape[dims - 1]};
    assert(a->dims == b->dims && a->shape[dims - 1] == b->shape[dims - 2]);
    sl_tensor *operands[] = {matrix(a), matrix(b), sl__dense(bias)};
    if (!operands[0] || !operands[1] || (bias && !operands[2]))
        return NULL;
    return sl__emit(a->graph, SL__MATMUL, (sl__attributes){0}, bias ? 3 : 2,
                    operands, dtype, dims, dims == 3 ? shape : shape + 1);
}

sl_tensor *sl__emit_concat(sl_graph *graph, int count, sl_tensor *const *parts,
                           const int64_t *starts, bool gaps, int dims,
                           const int64_t *shape)
{
    sl_tensor *out = sl__emit(graph, SL__CONCAT, (sl__attributes){.flag = gaps},
                              count, parts, parts[0]->dtype, dims, shape);
    if (!out)
        return NULL;
    out->node->starts = sl__keep_data(
        graph, starts, count * SL_DIMS_MAX * (int64_t)sizeof *starts);
    return out->node->starts ? out : NULL;
}

sl_tensor *sl__emit_cast(sl_tensor *x, sl_dtype dtype)
{
    if (!x || x->dtype == dtype)
        return x;
    return sl__emit(x->graph, SL__CAST, (sl__attributes){0}, 1, &x, dtype,
                    x->dims, x->shape);
}

sl_tensor *sl__emit_reduce(sl_tensor *x, double factor, sl_dtype dtype,
                           int dims, const int64_t *shape)
{
    if (!x)
        return NULL;
    return sl__emit(x->graph, SL__REDUCE, (sl__attributes){.number = factor}, 1,
                    &x, dtype, dims, shape);
}

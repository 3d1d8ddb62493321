/* SPDX-License-Identifier: MIT
 *
 * Walks the forward nodes from the last to the first; when a node is reached,
 * all users of its result have contributed to its gradient. Rules per op are in
 * gradients.c.
 *
 * A parameter's gradient is never a tensor that is summed up first: each
 * contribution to it, or to a view of it, is added in place in the pool of
 * gradients. */
#include "tensor/autodiff.h"

#include "base/try.h"

#include <assert.h>
#include <string.h>

bool sl__adds_directly(const sl__diff *diff, const sl_tensor *tensor,
                       sl_dtype dtype)
{
    const sl_tensor *base = tensor->base;
    return tensor->needs_gradient && base->leaf == SL__PARAMETER &&
           !tensor->expanded && sl__is_dense(tensor) &&
           diff->parameters[base->leaf_index]->dtype == dtype;
}

/* Whether a node that adds computes this, as its first result or as a further
 * one. */
static bool is_result(const sl_tensor *gradient)
{
    const sl__node *node = gradient->node;
    for (int i = 0; i < SL__RESULTS_MAX; i++) {
        if (node->results[i] == gradient)
            return sl__ops[node->op].traits & SL__ADDS &&
                   (i == 0 || node->adds);
    }
    return false;
}

/* Makes `gradient` add to the gradient of the parameter under `view`, where the
 * view lies in the parameter. */
static void accumulate(sl__diff *diff, const sl_tensor *view,
                       sl_tensor *gradient)
{
    sl_tensor *total = diff->parameters[view->base->leaf_index];
    sl__node *node = gradient->node;
    bool direct =
        node && (size_t)gradient->id >= diff->fresh &&
        gradient->base == gradient && is_result(gradient) &&
        gradient->dtype == total->dtype &&
        (sl__ops[node->op].traits & SL__STRIDED || sl__is_dense(view));
    if (!direct) {
        gradient = sl__emit(
            diff->graph, gradient->dtype == total->dtype ? SL__COPY : SL__CAST,
            (sl__attributes){0}, 1, &gradient, total->dtype, view->dims,
            view->shape);
        if (!gradient)
            return;
        node = gradient->node;
    }
    node->adds = true;
    gradient->base = total;
    gradient->offset = view->offset;
    memcpy(gradient->stride, view->stride, sizeof view->stride);
}

/* Lets the gradient of a norm, whose node is the latest, add what is known of
 * the gradient already; false: it cannot. */
static bool add_in_norm(sl__diff *diff, sl_tensor *gradient, sl_tensor *known)
{
    enum { OWN = 4 };
    sl__node *node = gradient->node;
    sl_tensor **operands;
    if (!node || node->op != SL__NORM_GRAD || node->operand_count != OWN ||
        (size_t)gradient->id < diff->fresh || !sl__is_dense(known) ||
        known->dtype != gradient->dtype ||
        SL__TAKE(&diff->graph->arena, OWN + 1, &operands))
        return false;
    memcpy(operands, node->operands, OWN * sizeof *operands);
    operands[OWN] = known;
    node->operands = operands;
    node->operand_count++;
    return true;
}

void sl__contribute(sl__diff *diff, sl_tensor *tensor, sl_tensor *gradient)
{
    if (!gradient || !tensor->needs_gradient)
        return;
    assert(sl__same_shape(tensor, gradient));
    if (tensor->base->leaf == SL__PARAMETER && !tensor->expanded) {
        accumulate(diff, tensor, gradient);
        return;
    }
    if (tensor->dtype == SL_BF16)
        gradient = sl__emit_cast(gradient, SL_BF16);
    sl_tensor **sum = &diff->sums[tensor->id];
    if (*sum && !add_in_norm(diff, gradient, *sum)) {
        sl_tensor *both[] = {*sum, gradient};
        gradient = sl__emit_like(diff->graph, SL__ADD, (sl__attributes){0}, 2,
                                 both, tensor);
    }
    *sum = gradient;
}

void sl__contribute_piece(sl__diff *diff, sl_tensor *tensor,
                          sl_tensor *gradient, int dim, int64_t start)
{
    sl__piece *piece;
    if (!gradient || !tensor->needs_gradient)
        return;
    if (SL__TAKE(&diff->graph->arena, 1, &piece)) {
        sl__no_memory(diff->graph);
        return;
    }
    *piece = (sl__piece){diff->pieces[tensor->id], gradient, dim, start};
    diff->pieces[tensor->id] = piece;
}

/* Whether slices along one dimension fill it without overlap. */
static bool pieces_fill(const sl_tensor *tensor, const sl__piece *first)
{
    int64_t total = 0;
    for (const sl__piece *a = first; a; a = a->next) {
        if (a->dim != first->dim)
            return false;
        int64_t length = a->gradient->shape[a->dim];
        total += length;
        for (const sl__piece *b = a->next; b; b = b->next) {
            int64_t other = b->gradient->shape[first->dim];
            if (a->start < b->start + other && b->start < a->start + length)
                return false;
        }
    }
    return total == tensor->shape[first->dim];
}

static void join_pieces(sl__diff *diff, sl_tensor *tensor)
{
    sl__piece *first = diff->pieces[tensor->id];
    sl_graph *graph = diff->graph;
    int count = 0;
    for (sl__piece *piece = first; piece; piece = piece->next)
        count++;
    sl_tensor **parts;
    int64_t *starts;
    if (SL__TAKE(&graph->arena, count, &parts) ||
        SL__TAKE(&graph->arena, (size_t)count * SL_DIMS_MAX, &starts)) {
        sl__no_memory(graph);
        return;
    }
    /* The list has the last slice first; the node takes them in order. */
    int at = count;
    for (sl__piece *piece = first; piece; piece = piece->next) {
        parts[--at] = sl__emit_cast(piece->gradient, tensor->dtype);
        starts[at * SL_DIMS_MAX + piece->dim] = piece->start;
    }
    sl__contribute(diff, tensor,
                   sl__emit_concat(graph, count, parts, starts,
                                   !pieces_fill(tensor, first), tensor->dims,
                                   tensor->shape));
}

/* The whole gradient of a tensor whose users have all been seen, or NULL. */
static sl_tensor *finish(sl__diff *diff, sl_tensor *tensor)
{
    if (diff->pieces[tensor->id])
        join_pieces(diff, tensor);
    return diff->sums[tensor->id];
}

static sl_tensor *new_leaf(sl_graph *graph, const sl_tensor *like,
                           sl_dtype dtype, sl__leaf leaf, int index,
                           const char *name)
{
    sl_tensor *tensor = sl__new_tensor(graph, dtype, like->dims, like->shape);
    if (!tensor)
        return NULL;
    tensor->leaf = leaf;
    tensor->leaf_index = index;
    tensor->name = name;
    return tensor;
}

static sl_status make_leaves(sl__diff *diff)
{
    sl_graph *graph = diff->graph;
    for (size_t i = 0; i < graph->parameters.count; i++) {
        sl_tensor *tensor = graph->parameters.data[i].tensor;
        if (!diff->parameters[tensor->leaf_index])
            diff->parameters[tensor->leaf_index] = new_leaf(
                graph, tensor, tensor->gradient_dtype, SL__PARAMETER_GRADIENT,
                tensor->leaf_index, tensor->name);
    }
    for (size_t i = 0; i < graph->outputs.count; i++) {
        const sl__named *output = &graph->outputs.data[i];
        if (output->gradient)
            diff->outputs[i] =
                new_leaf(graph, output->tensor, output->tensor->dtype,
                         SL__OUTPUT_GRADIENT, (int)i, output->name);
    }
    return sl_graph_status(graph);
}

static void seed(sl__diff *diff)
{
    sl_graph *graph = diff->graph;
    for (size_t i = 0; i < graph->outputs.count; i++) {
        if (diff->outputs[i])
            sl__contribute(diff, graph->outputs.data[i].tensor,
                           diff->outputs[i]);
    }
    if (graph->loss && graph->loss->needs_gradient)
        sl__contribute(diff, graph->loss,
                       sl__emit_like(graph, SL__SEED, (sl__attributes){0}, 0,
                                     NULL, graph->loss));
}

static void finish_inputs(sl__diff *diff)
{
    sl_graph *graph = diff->graph;
    for (size_t i = 0; i < graph->inputs.count; i++) {
        const sl__named *input = &graph->inputs.data[i];
        if (!input->gradient)
            continue;
        diff->inputs[i] =
            sl__emit_cast(finish(diff, input->tensor), input->tensor->dtype);
        if (!diff->inputs[i])
            diff->inputs[i] = sl__emit_like(
                graph, SL__ZERO, (sl__attributes){0}, 0, NULL, input->tensor);
    }
}

sl_status sl__differentiate(sl_graph *graph, sl__diff *out)
{
    sl__diff diff = {.graph = graph};
    size_t tensors = graph->tensor_count, nodes = graph->node_count;
    assert(!graph->status && !graph->in_backward);
    SL__TRY(SL__TAKE(&graph->arena, tensors, &diff.sums));
    SL__TRY(SL__TAKE(&graph->arena, tensors, &diff.pieces));
    SL__TRY(SL__TAKE(&graph->arena, graph->inputs.count, &diff.inputs));
    SL__TRY(SL__TAKE(&graph->arena, graph->outputs.count, &diff.outputs));
    SL__TRY(SL__TAKE(&graph->arena, graph->parameter_count, &diff.parameters));
    SL__TRY(make_leaves(&diff));
    graph->in_backward = true;
    diff.fresh = graph->tensor_count;
    seed(&diff);
    for (size_t i = nodes; i-- > 0;) {
        const sl__node *node = graph->nodes[i];
        sl_tensor *result = node->results[0];
        if (!result->needs_gradient)
            continue;
        sl_tensor *dy = finish(&diff, result);
        diff.fresh = graph->tensor_count;
        if (dy)
            sl__apply_rule(&diff, node, dy);
    }
    finish_inputs(&diff);
    SL__TRY(sl_graph_status(graph));
    *out = diff;
    return SL_OK;
}

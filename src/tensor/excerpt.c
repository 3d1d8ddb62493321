/* SPDX-License-Identifier: MIT
 *
 * Excerpts of a graph as graphs of their own, from which cutting makes stages.
 * Nodes are emitted again over the copies of their operands (their "twins"), so
 * that shapes, layout copies and the need of gradients are found anew: an input
 * of the excerpt is contiguous, even if the original was a view of something
 * larger. */
#include "tensor/graph.h"

#include "base/try.h"

#include <assert.h>
#include <string.h>

sl_tensor *sl__find_twin(const sl__excerpt *excerpt, const sl_tensor *tensor)
{
    const sl__twin *twin = &excerpt->twins[tensor->id];
    return twin->graph == excerpt->to ? twin->tensor : NULL;
}

static void set_twin(sl__excerpt *excerpt, const sl_tensor *tensor,
                     sl_tensor *twin)
{
    excerpt->twins[tensor->id] = (sl__twin){twin, excerpt->to};
}

sl_tensor *sl__excerpt_input(sl__excerpt *excerpt, const sl_tensor *tensor,
                             const char *name, sl_gradient gradient)
{
    /* Not by sl_input: the joined names of modules and ops may be longer than
     * the name of an input may be. */
    sl_graph *to = excerpt->to;
    sl_tensor *input =
        sl__new_tensor(to, tensor->dtype, tensor->dims, tensor->shape);
    const char *kept = input ? sl__keep_text(to, name) : NULL;
    if (!kept)
        return NULL;
    input->name = kept;
    input->leaf = SL__INPUT;
    input->leaf_index = (int)to->inputs.count;
    input->needs_gradient = gradient == SL_GRADIENT;
    set_twin(excerpt, tensor, input);
    return sl__name_tensor(&to->inputs, kept, input, gradient);
}

/* A copy of a leaf, not yet named. */
static sl_tensor *copy_leaf(sl__excerpt *excerpt, const sl_tensor *tensor)
{
    sl_graph *to = excerpt->to;
    sl_tensor *leaf =
        sl__new_tensor(to, tensor->dtype, tensor->dims, tensor->shape);
    if (!leaf)
        return NULL;
    leaf->leaf = tensor->leaf;
    leaf->name = sl__keep_text(to, tensor->name);
    leaf->needs_gradient = tensor->leaf == SL__PARAMETER;
    leaf->gradient_dtype = tensor->gradient_dtype;
    leaf->leaf_index = tensor->leaf == SL__PARAMETER ? to->parameter_count++
                                                     : (int)to->buffers.count;
    leaf->data = sl__keep_data(to, tensor->data, sl__bytes(tensor));
    set_twin(excerpt, tensor, leaf);
    return leaf;
}

sl_status sl__excerpt_leaf(sl__excerpt *excerpt, const sl__named *named)
{
    sl_graph *to = excerpt->to;
    sl_tensor *leaf = sl__find_twin(excerpt, named->tensor);
    if (!leaf)
        leaf = copy_leaf(excerpt, named->tensor);
    const char *name = leaf ? leaf->name : NULL;
    if (name && strcmp(name, named->name) != 0)
        name = sl__keep_text(to, named->name);
    if (name)
        sl__name_tensor(leaf->leaf == SL__BUFFER ? &to->buffers
                                                 : &to->parameters,
                        name, leaf, named->gradient);
    return sl_graph_status(to);
}

/* Emits a node over new operands; returns its first result. */
static sl_tensor *emit_again(sl_graph *to, const sl__node *node,
                             sl_tensor **operands)
{
    const sl__attributes *attributes = &node->attributes;
    const sl_tensor *result = node->results[0];
    switch (node->op) {
    case SL__RESHAPE:
        return sl__view_as(operands[0], result->dims, result->shape);
    case SL__TRANSPOSE:
        return sl__view_transposed(operands[0], attributes->dim,
                                   attributes->dim_b);
    case SL__SLICE:
        return sl__view_slice(operands[0], attributes->dim, attributes->integer,
                              result->shape[attributes->dim]);
    case SL__EXPAND:
        return sl__view_expanded(operands[0], result->dims, result->shape);
    case SL__COPY:
        /* A copy node only serves kernels: sl__dense decides again. */
        return sl__dense(operands[0]);
    case SL__MATMUL:
        return sl__emit_matmul(operands[0], operands[1],
                               node->operand_count == 3 ? operands[2] : NULL,
                               result->dtype);
    case SL__CONCAT:
        return sl__emit_concat(to, node->operand_count, operands, node->starts,
                               attributes->flag, result->dims, result->shape);
    case SL__ATTENTION:
        for (int i = 0; i < 3; i++)
            operands[i] = sl__with_whole_rows(operands[i]);
        break;
    default: break;
    }
    return sl__emit(to, node->op, *attributes, node->operand_count, operands,
                    result->dtype, result->dims, result->shape);
}

sl_status sl__excerpt_node(sl__excerpt *excerpt, const sl__node *node)
{
    enum { FEW = 4 };
    sl_graph *to = excerpt->to;
    sl_tensor *few[FEW], **operands = few;
    if (node->operand_count > FEW)
        SL__TRY(SL__TAKE(&to->arena, node->operand_count, &operands));
    for (int i = 0; i < node->operand_count; i++) {
        operands[i] = sl__find_twin(excerpt, node->operands[i]);
        assert(operands[i] || to->status);
    }
    sl_tensor *result = emit_again(to, node, operands);
    if (!result)
        return sl_graph_status(to);
    set_twin(excerpt, node->results[0], result);
    /* Further results of a forward op are read by its backward alone. */
    for (int i = 1; i < SL__RESULTS_MAX; i++) {
        const sl_tensor *more = node->results[i];
        if (more &&
            !sl__add_result(result->node, more->dtype, more->dims, more->shape))
            return sl_graph_status(to);
    }
    return SL_OK;
}

sl_status sl__excerpt_output(sl__excerpt *excerpt, const sl_tensor *tensor,
                             const char *name, sl_gradient gradient,
                             bool is_loss)
{
    sl_graph *to = excerpt->to;
    sl_tensor *twin = sl__find_twin(excerpt, tensor);
    const char *kept = sl__keep_text(to, name);
    assert(twin);
    if (kept)
        sl__name_tensor(&to->outputs, kept, twin, gradient);
    if (is_loss)
        to->loss = twin;
    return sl_graph_status(to);
}

void sl__refresh_gradients(sl_graph *graph)
{
    for (size_t i = 0; i < graph->inputs.count; i++) {
        const sl__named *input = &graph->inputs.data[i];
        input->tensor->needs_gradient = input->gradient == SL_GRADIENT;
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        const sl__node *node = graph->nodes[i];
        bool needs = false;
        for (int k = 0; k < node->operand_count; k++)
            needs |= node->operands[k]->needs_gradient;
        node->results[0]->needs_gradient = needs;
    }
}

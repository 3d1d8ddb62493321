/* SPDX-License-Identifier: MIT
 *
 * Mixed precision: gives the tensors of a graph their dtypes, so that every
 * backend finds them there. What is computed between parameters and losses
 * becomes bf16. Parameters, losses, reductions and the statistics of norms and
 * attentions stay f32, and autodiff gives each gradient the dtype of its
 * tensor. Kernels read f32 beside bf16 where an op has both, so only few casts
 * are put in: for an f32 that a bf16 op reads and that is no parameter, and for
 * outputs.
 *
 * The nodes are listed anew, with each cast before its first user. */
#include "tensor/graph.h"

#include "base/arguments.h"
#include "base/try.h"

#include <stdlib.h>

typedef struct caster {
    sl_graph *graph;
    sl__node **nodes; /* as they were */
    size_t count;
    size_t tensors;   /* how many there were */
    sl_dtype *before; /* by tensor: its dtype before */
    sl_tensor **cast; /* by tensor: as bf16, if that exists */
    sl_tensor **wide; /* by tensor: as f32, for an output */
    bool *is_shown;   /* by tensor: it is an output without a gradient */
    bool *is_reduced; /* by tensor: a sum or a loss, or f32 made of one */
    int *begin;       /* by node: where it is now, or the casts before it */
    int *after;       /* by result: how far after its node it was born */
} caster;

/* ---------------------------------------------------------------- dtypes -- */

static bool reads_half(const sl__node *node)
{
    for (int i = 0; i < node->operand_count; i++) {
        if (node->operands[i]->dtype == SL_BF16)
            return true;
    }
    return false;
}

/* Whether an operand comes from a sum or a loss, by element-wise ops. */
static bool reads_reduced(const caster *c, const sl__node *node)
{
    for (int i = 0; i < node->operand_count; i++) {
        if ((size_t)node->operands[i]->id < c->tensors &&
            c->is_reduced[node->operands[i]->id])
            return true;
    }
    return false;
}

static sl_dtype result_dtype(const caster *c, const sl__node *node)
{
    const sl_tensor *result = node->results[0];
    if (result->dtype != SL_F32)
        return result->dtype;
    if (sl__ops[node->op].traits & SL__VIEW)
        return node->operands[0]->dtype;
    switch (node->op) {
    case SL__REDUCE:
    case SL__MSE:
    case SL__CROSS_ENTROPY:
    case SL__CAST: return SL_F32;
    case SL__MATMUL:
    case SL__ATTENTION:
    case SL__LAYER_NORM:
    case SL__RMS_NORM:
    case SL__EMBEDDING: return SL_BF16;
    default:
        return reads_half(node) ||
                       (result->needs_gradient && !reads_reduced(c, node))
                   ? SL_BF16
                   : SL_F32;
    }
}

/* Whether the kernels of an op read f32 beside bf16. */
static bool mixes(sl__op op)
{
    switch (op) {
    case SL__MATMUL:
    case SL__ADD:
    case SL__SUB:
    case SL__MUL:
    case SL__LAYER_NORM:
    case SL__RMS_NORM:
    case SL__EMBEDDING: return true;
    default: return false;
    }
}

/* Whether a bf16 op reads this operand as bf16, which it is not yet. */
static bool needs_cast(sl__op op, const sl_tensor *operand)
{
    bool is_held = operand->base->leaf == SL__PARAMETER ||
                   operand->base->leaf == SL__BUFFER;
    return op != SL__CAST && operand->dtype == SL_F32 &&
           !(is_held && mixes(op));
}

static sl_tensor *as_half(caster *c, sl_tensor *tensor)
{
    size_t id = (size_t)tensor->id;
    if (id >= c->tensors)
        return tensor;
    if (!c->cast[id])
        c->cast[id] = sl__emit_cast(tensor, SL_BF16);
    return c->cast[id];
}

/* ----------------------------------------------------------------- nodes -- */

static bool append_again(caster *c, sl__node *node)
{
    sl_graph *graph = c->graph;
    sl_dtype dtype = result_dtype(c, node);
    bool reduces = node->op == SL__REDUCE || node->op == SL__MSE ||
                   node->op == SL__CROSS_ENTROPY;
    c->begin[node->index] = (int)graph->node_count;
    graph->module = node->module;
    for (int i = 0; i < node->operand_count && dtype == SL_BF16; i++) {
        if (!(sl__ops[node->op].traits & SL__VIEW) &&
            needs_cast(node->op, node->operands[i]))
            node->operands[i] = as_half(c, node->operands[i]);
        if (!node->operands[i])
            return false;
    }
    sl_tensor *result = node->results[0];
    result->dtype = dtype;
    c->is_reduced[result->id] =
        dtype == SL_F32 && (reduces || reads_reduced(c, node));
    if (!sl__append_node(graph, node))
        return false;
    if (dtype != SL_BF16 || !c->is_shown[result->id])
        return true;
    c->wide[result->id] = sl__emit_cast(result, SL_F32);
    return c->wide[result->id];
}

/* Moves positions in the list of nodes to where those nodes are now. */
static void move_positions(caster *c)
{
    sl_graph *graph = c->graph;
    for (size_t i = 0; i < graph->module_count; i++) {
        graph->modules[i].first = c->begin[graph->modules[i].first];
        graph->modules[i].end = c->begin[graph->modules[i].end];
    }
    for (size_t i = 0; i < graph->region_count; i++) {
        graph->regions[i].first = c->begin[graph->regions[i].first];
        graph->regions[i].end = c->begin[graph->regions[i].end];
    }
    for (size_t i = 0; i < graph->mark_count; i++)
        graph->marks[i] = c->begin[graph->marks[i]];
    for (size_t i = 0; i < c->tensors; i++) {
        sl_tensor *tensor = graph->tensors[i];
        tensor->born = tensor->node ? tensor->node->index + c->after[i]
                                    : c->begin[tensor->born];
    }
}

/* An output that carries a gradient is a message between stages, and bf16. Any
 * other keeps the dtype it was declared with. */
static bool cast_output(caster *c, sl__named *output)
{
    sl_tensor *tensor = output->tensor;
    if (c->before[tensor->id] != SL_F32)
        return true;
    bool is_loss = tensor == c->graph->loss;
    if (output->gradient)
        output->tensor = as_half(c, tensor);
    else if (c->wide[tensor->id])
        output->tensor = c->wide[tensor->id];
    else
        output->tensor = sl__emit_cast(tensor, SL_F32);
    /* Where the loss is also sent to another stage, it still is f32 here. */
    if (is_loss && !output->gradient)
        c->graph->loss = output->tensor;
    return output->tensor;
}

static sl_status assign(caster *c)
{
    sl_graph *graph = c->graph;
    for (size_t i = 0; i < graph->inputs.count; i++) {
        const sl__named *input = &graph->inputs.data[i];
        if (input->gradient && input->tensor->dtype == SL_F32)
            input->tensor->dtype = SL_BF16;
    }
    for (size_t i = 0; i < c->count; i++) {
        if (!append_again(c, c->nodes[i]))
            return sl_graph_status(graph);
    }
    c->begin[c->count] = (int)graph->node_count;
    graph->module = 0;
    for (size_t i = 0; i < graph->outputs.count; i++) {
        if (!cast_output(c, &graph->outputs.data[i]))
            return sl_graph_status(graph);
    }
    move_positions(c);
    return SL_OK;
}

static sl_status prepare(caster *c)
{
    sl_graph *graph = c->graph;
    sl__arena *arena = &graph->arena;
    SL__TRY(SL__TAKE(arena, c->tensors, &c->before));
    SL__TRY(SL__TAKE(arena, c->tensors, &c->cast));
    SL__TRY(SL__TAKE(arena, c->tensors, &c->wide));
    SL__TRY(SL__TAKE(arena, c->tensors, &c->is_shown));
    SL__TRY(SL__TAKE(arena, c->tensors, &c->is_reduced));
    SL__TRY(SL__TAKE(arena, c->count + 1, &c->begin));
    SL__TRY(SL__TAKE(arena, c->tensors, &c->after));
    for (size_t i = 0; i < graph->outputs.count; i++) {
        const sl__named *output = &graph->outputs.data[i];
        c->is_shown[output->tensor->id] |=
            !output->gradient && output->tensor->dtype == SL_F32;
    }
    for (size_t i = 0; i < c->tensors; i++) {
        const sl_tensor *tensor = graph->tensors[i];
        c->before[i] = tensor->dtype;
        if (tensor->node)
            c->after[i] = tensor->born - tensor->node->index;
    }
    return SL_OK;
}

sl_status sl__refuse_precision(sl_dtype precision)
{
    return sl_fail(SL_EINVAL, "precision %s, expected f32 or bf16",
                   sl_dtype_text(precision));
}

sl_status sl_graph_set_precision(sl_graph *graph, sl_dtype precision)
{
    SL__NEED(graph);
    SL__TRY(sl_graph_status(graph));
    SL__TRY(sl__check_left(graph));
    if (precision == SL_F32)
        return SL_OK;
    if (precision != SL_BF16)
        return sl__refuse_precision(precision);
    caster c = {.graph = graph,
                .nodes = graph->nodes,
                .count = graph->node_count,
                .tensors = graph->tensor_count};
    SL__TRY(prepare(&c));
    graph->nodes = NULL;
    graph->node_count = graph->node_capacity = 0;
    sl_status status = assign(&c);
    free(c.nodes);
    return status;
}

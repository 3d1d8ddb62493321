/* SPDX-License-Identifier: MIT
 *
 * Fewer kernels and less memory: the gradients of one attention are computed in
 * one call, a norm computes the sum that it is of, parts of a concat are
 * written in place, and a product applies the activation after it. No value
 * that is read changes. */
#include "tensor/program.h"

#include "base/try.h"

#include <assert.h>
#include <string.h>

/* --------------------------------------------------- attention gradients -- */

static bool same_operands(const sl__node *a, const sl__node *b)
{
    return a->operand_count == b->operand_count &&
           memcmp(a->operands, b->operands,
                  sizeof *a->operands * a->operand_count) == 0;
}

/* A node that was merged into another is in no set. */
void sl__merge_attention_grads(sl_graph *graph, uint8_t *sets)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        sl__node *first = graph->nodes[i];
        if (first->op != SL__ATTENTION_GRAD || !sets[i])
            continue;
        for (size_t k = i + 1; k < graph->node_count; k++) {
            sl__node *other = graph->nodes[k];
            if (other->op != SL__ATTENTION_GRAD || sets[k] != sets[i] ||
                !same_operands(first, other))
                continue;
            for (int r = 0; r < SL__RESULTS_MAX; r++) {
                if (!other->results[r])
                    continue;
                first->results[r] = other->results[r];
                first->results[r]->node = first;
                other->results[r] = NULL;
            }
            sets[k] = 0;
        }
    }
}

/* -------------------------------------------------------- sums and norms -- */

static bool reads(const sl__node *node, const sl_tensor *base)
{
    for (int i = 0; i < node->operand_count; i++) {
        if (node->operands[i]->base == base)
            return true;
    }
    return false;
}

/* The sum that a norm is of, if nothing reads it before; else NULL. */
static sl__node *find_sum(const sl_graph *graph, const sl__node *norm)
{
    const sl_tensor *x = norm->operands[0];
    sl__node *sum = x->node;
    if (norm->backward || !sum || sum->op != SL__ADD || x->base != x)
        return NULL;
    for (int i = 0; i < 2; i++) {
        const sl_tensor *part = sum->operands[i];
        if (part->dtype != x->dtype || !sl__is_dense(part) ||
            !sl__same_shape(part, x))
            return NULL;
    }
    for (int i = sum->index + 1; i < norm->index; i++) {
        if (reads(graph->nodes[i], x))
            return NULL;
    }
    return sum;
}

/* Makes the norm compute the sum, too: (a, b, weight [, bias]) -> (sum, y,
 * statistics). The node of the sum is left empty, and in no program. */
static sl_status merge_sum(sl_graph *graph, sl__node *norm, sl__node *sum)
{
    sl_tensor **operands;
    int weights = norm->operand_count - 1;
    SL__TRY(SL__TAKE(&graph->arena, 2 + weights, &operands));
    memcpy(operands, sum->operands, 2 * sizeof *operands);
    memcpy(operands + 2, norm->operands + 1,
           (size_t)weights * sizeof *operands);
    norm->op = SL__ADD_NORM;
    norm->operands = operands;
    norm->operand_count = 2 + weights;
    norm->results[2] = norm->results[1];
    norm->results[1] = norm->results[0];
    norm->results[0] = sum->results[0];
    norm->results[0]->node = norm;
    sum->results[0] = NULL;
    sum->operand_count = 0;
    return SL_OK;
}

sl_status sl__merge_sums_into_norms(sl_graph *graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        sl__node *norm = graph->nodes[i];
        if (norm->op != SL__LAYER_NORM && norm->op != SL__RMS_NORM)
            continue;
        sl__node *sum = find_sum(graph, norm);
        if (sum)
            SL__TRY(merge_sum(graph, norm, sum));
    }
    return SL_OK;
}

/* --------------------------------------------------------- concat parts -- */

bool sl__is_message(const sl_stage *stage, const sl_tensor *base)
{
    const sl_graph *graph = stage->graph;
    for (size_t i = 0; i < graph->outputs.count; i++) {
        if (graph->outputs.data[i].tensor->base == base)
            return true;
    }
    for (size_t i = 0; i < graph->inputs.count; i++) {
        if (stage->diff.inputs && stage->diff.inputs[i] &&
            stage->diff.inputs[i]->base == base)
            return true;
    }
    return false;
}

/* Makes `part` use the memory of its box in `whole`. */
static void place_part(sl_tensor *part, const sl_tensor *whole,
                       const int64_t *start)
{
    int64_t offset = whole->offset;
    for (int d = 0; d < whole->dims; d++)
        offset += start[d] * whole->stride[d];
    part->base = whole->base;
    part->offset = offset;
    memcpy(part->stride, whole->stride, sizeof part->stride);
}

sl_status sl__place_concat_parts(sl_stage *stage)
{
    sl_graph *graph = stage->graph;
    int *users;
    bool *viewed;
    SL__TRY(SL__TAKE(&graph->arena, graph->tensor_count, &users));
    SL__TRY(SL__TAKE(&graph->arena, graph->tensor_count, &viewed));
    for (size_t i = 0; i < graph->node_count; i++) {
        for (int k = 0; k < graph->nodes[i]->operand_count; k++)
            users[graph->nodes[i]->operands[k]->id]++;
    }
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const sl_tensor *tensor = graph->tensors[i];
        if (tensor->base != tensor)
            viewed[tensor->base->id] = true;
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        sl__node *node = graph->nodes[i];
        if (node->op != SL__CONCAT || node->attributes.flag)
            continue;
        for (int k = 0; k < node->operand_count; k++) {
            sl_tensor *part = node->operands[k];
            if (part->leaf == SL__RESULT && part->base == part &&
                users[part->id] == 1 && !viewed[part->id] &&
                sl__ops[part->node->op].traits & SL__STRIDED &&
                !part->node->adds && !sl__is_message(stage, part))
                place_part(part, node->results[0],
                           node->starts + k * SL_DIMS_MAX);
        }
    }
    return SL_OK;
}

/* ---------------------------------------------------------- activations -- */

static bool is_activation(sl__op op)
{
    return op == SL__RELU || op == SL__GELU_TANH || op == SL__GELU_ERF;
}

/* The activation directly after a product, if nothing else reads the product's
 * result, in this program or in a later one; else NULL. */
static sl__kernel_call *find_activation(const sl_stage *stage,
                                        sl_program program, size_t at)
{
    const sl__kernel_calls *calls = &stage->programs[program];
    const sl_tensor *product = calls->data[at].node->results[0];
    if (product->base != product || sl__is_message(stage, product))
        return NULL;
    for (int later = 0; later < SL_PROGRAM_COUNT; later++) {
        if (later != (int)program &&
            sl__is_carried_in(stage, (sl_program)later, product))
            return NULL;
    }
    sl__kernel_call *found = NULL;
    for (size_t i = at + 1; i < calls->count; i++) {
        const sl__node *node = calls->data[i].node;
        if (!reads(node, product))
            continue;
        if (found || !is_activation(node->op))
            return NULL;
        found = &calls->data[i];
    }
    /* The activation covers the whole product, not a slice of it. */
    return found && sl__is_dense(found->node->operands[0]) &&
                   sl__count(found->node->operands[0]) == sl__count(product)
               ? found
               : NULL;
}

void sl__fuse_activations(sl_stage *stage, sl_program program)
{
    sl__kernel_calls *calls = &stage->programs[program];
    assert(stage->touches[program]);
    for (size_t i = 0; i < calls->count; i++) {
        const sl__node *node = calls->data[i].node;
        if (node->op != SL__MATMUL || node->adds || node->backward)
            continue;
        sl__kernel_call *found = find_activation(stage, program, i);
        if (!found)
            continue;
        calls->data[i].activation = found->node;
        calls->count--;
        memmove(found, found + 1,
                sizeof *found * (&calls->data[calls->count] - found));
    }
}

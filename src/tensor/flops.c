/* SPDX-License-Identifier: MIT
 *
 * Floating point operations of nodes. */
#include "tensor/graph.h"

static double matmul_flops(const sl__node *node)
{
    const sl_tensor *a = node->operands[0], *out = node->results[0];
    return 2.0 * (double)sl__count(out) * (double)a->shape[a->dims - 1];
}

/* Products of T x T/2 x C: two in forward; in backward one for each gradient,
 * and one that dq and dk share. Recomputed scores do not count, since
 * recomputing is the kernel's choice. */
static double attention_flops(const sl__node *node)
{
    const sl_tensor *q = node->operands[node->op == SL__ATTENTION ? 0 : 1];
    double product = (double)sl__count(q) * (double)(q->shape[1] + 1);
    if (node->op == SL__ATTENTION)
        return 2 * product;
    int wanted = node->results[0] || node->results[1];
    for (int i = 0; i < 3; i++)
        wanted += node->results[i] != NULL;
    return product * wanted;
}

double sl__product_flops(const sl__node *node)
{
    if (node->op == SL__MATMUL)
        return matmul_flops(node);
    if (node->op == SL__ATTENTION || node->op == SL__ATTENTION_GRAD)
        return attention_flops(node);
    return 0;
}

double sl__training_flops(const sl__node *node, bool reached)
{
    if (sl__ops[node->op].traits & SL__VIEW)
        return 0;
    bool needs = reached && node->results[0]->needs_gradient;
    double forward = sl__product_flops(node), backward = 0;
    if (forward == 0) {
        forward = (double)sl__count(node->results[0]);
        return needs ? 2 * forward : forward;
    }
    if (node->op == SL__ATTENTION)
        return needs ? 3 * forward : forward;
    for (int i = 0; i < 2 && needs; i++)
        backward += node->operands[i]->needs_gradient ? forward : 0;
    return forward + backward;
}

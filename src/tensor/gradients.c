/* SPDX-License-Identifier: MIT
 *
 * The gradient rule of every op: given the gradient of the first result, emit
 * the gradient of each operand that needs one, each as nodes of its own.
 * Parameters come first: the memory that their gradients read can then be
 * reused for the next gradient. */
#include "tensor/autodiff.h"

typedef void (*rule_fn)(sl__diff *diff, const sl__node *node, sl_tensor *dy);

/* The rule of an op: `dy` is the gradient of the node's first result. */
#define RULE(name)                                                             \
    static void gradient_##name(sl__diff *diff, const sl__node *node,          \
                                sl_tensor *dy)

static const sl__attributes none;

/* A node of a backward op over these operands, shaped like another tensor. */
#define EMIT(op, attributes, like, ...)                                        \
    sl__emit_like(                                                             \
        diff->graph, op, attributes,                                           \
        (int)(sizeof((sl_tensor *[]){__VA_ARGS__}) / sizeof(sl_tensor *)),     \
        (sl_tensor *[]){__VA_ARGS__}, like)

/* Adds to the gradient of an operand; emits no node if it needs none. */
#define CONTRIBUTE(operand, gradient)                                          \
    do {                                                                       \
        if ((operand)->needs_gradient)                                         \
            sl__contribute(diff, operand, gradient);                           \
    } while (0)

RULE(matmul)
{
    sl_tensor *a = node->operands[0], *b = node->operands[1];
    int rows = a->dims - 2, columns = a->dims - 1;
    sl_tensor *bias = node->operand_count == 3 ? node->operands[2] : NULL;
    CONTRIBUTE(b, sl__emit_matmul(sl__view_transposed(a, rows, columns), dy,
                                  NULL, b->dtype));
    if (bias)
        CONTRIBUTE(bias,
                   sl__emit_reduce(dy, 1, bias->dtype, 1, &dy->shape[columns]));
    CONTRIBUTE(a, sl__emit_matmul(dy, sl__view_transposed(b, rows, columns),
                                  NULL, a->dtype));
}

RULE(add)
{
    sl__contribute(diff, node->operands[1], dy);
    sl__contribute(diff, node->operands[0], dy);
}

RULE(sub)
{
    sl_tensor *b = node->operands[1];
    CONTRIBUTE(b, EMIT(SL__SCALE, ((sl__attributes){.number = -1}), b, dy));
    sl__contribute(diff, node->operands[0], dy);
}

RULE(mul)
{
    sl_tensor *a = node->operands[0], *b = node->operands[1];
    CONTRIBUTE(b, EMIT(SL__MUL, none, b, dy, a));
    CONTRIBUTE(a, EMIT(SL__MUL, none, a, dy, b));
}

/* Ops whose gradient is the same op, applied to dy. */
RULE(scale)
{
    sl__contribute(diff, node->operands[0],
                   EMIT(node->op, node->attributes, dy, dy));
}

RULE(dropout)
{
    gradient_scale(diff, node, dy);
}

/* Ops whose gradient is computed from dy and either the operand or the
 * result. */
#define GRADIENT_OF_TWO(name, NAME, other)                                     \
    RULE(name)                                                                 \
    {                                                                          \
        sl__contribute(diff, node->operands[0],                                \
                       EMIT(SL__##NAME##_GRAD, none, dy, dy, other));          \
    }
GRADIENT_OF_TWO(relu, RELU, node->results[0])
GRADIENT_OF_TWO(gelu_tanh, GELU_TANH, node->operands[0])
GRADIENT_OF_TWO(gelu_erf, GELU_ERF, node->operands[0])
GRADIENT_OF_TWO(silu, SILU, node->operands[0])
GRADIENT_OF_TWO(softmax, SOFTMAX, node->results[0])

/* Of weight and bias: by one kernel, where that can add to both. They are of
 * two parameters then: its threads add to one while others add to the other. */
static void contribute_weights(sl__diff *diff, const sl__node *node,
                               sl_tensor *dy)
{
    sl_tensor *x = node->operands[0], *weight = node->operands[1];
    sl_tensor *bias = node->operand_count == 3 ? node->operands[2] : NULL;
    bool both = bias && weight->base != bias->base &&
                sl__adds_directly(diff, weight, weight->dtype) &&
                sl__adds_directly(diff, bias, weight->dtype);
    if (weight->needs_gradient) {
        sl_tensor *gradient =
            EMIT(SL__NORM_WEIGHT_GRAD, none, weight, dy, x, node->results[1]);
        sl_tensor *second =
            gradient && both
                ? sl__add_result(gradient->node, weight->dtype, 1, bias->shape)
                : NULL;
        sl__contribute(diff, weight, gradient);
        if (second)
            sl__contribute(diff, bias, second);
    }
    if (bias && !both)
        CONTRIBUTE(bias,
                   sl__emit_reduce(dy, 1, weight->dtype, 1, weight->shape));
}

RULE(layer_norm)
{
    sl_tensor *x = node->operands[0], *weight = node->operands[1];
    sl_tensor *statistics = node->results[1];
    contribute_weights(diff, node, dy);
    CONTRIBUTE(
        x, EMIT(SL__NORM_GRAD, node->attributes, x, dy, x, weight, statistics));
}

RULE(rms_norm)
{
    gradient_layer_norm(diff, node, dy);
}

RULE(embedding)
{
    sl_tensor *table = node->operands[0];
    sl__contribute(
        diff, table,
        EMIT(SL__EMBEDDING_GRAD, none, table, dy, node->operands[1]));
}

RULE(attention)
{
    sl_tensor *q = node->operands[0], *k = node->operands[1],
              *v = node->operands[2];
    if (dy->expanded || dy->stride[2] != 1)
        dy = sl__dense(dy);
    if (!dy)
        return;
    /* One node each; fuse.c merges those that end up in one program. */
    for (int i = 0; i < 3; i++) {
        sl_tensor *operand = node->operands[i];
        if (!operand->needs_gradient)
            continue;
        sl_tensor *gradient =
            EMIT(SL__ATTENTION_GRAD, node->attributes, operand, dy, q, k, v,
                 node->results[0], node->results[1]);
        if (!gradient)
            return;
        gradient->node->results[0] = NULL;
        gradient->node->results[i] = gradient;
        sl__contribute(diff, operand, gradient);
    }
}

RULE(concat)
{
    for (int i = 0; i < node->operand_count; i++) {
        sl_tensor *part = node->operands[i], *gradient = dy;
        if (!part->needs_gradient)
            continue;
        for (int d = 0; d < part->dims && gradient; d++) {
            if (part->shape[d] != dy->shape[d])
                gradient = sl__view_slice(gradient, d,
                                          node->starts[i * SL_DIMS_MAX + d],
                                          part->shape[d]);
        }
        sl__contribute(diff, part, gradient);
    }
}

RULE(copy)
{
    sl__contribute(diff, node->operands[0], dy);
}

RULE(cast)
{
    sl_tensor *x = node->operands[0];
    sl__contribute(diff, x, sl__emit_cast(dy, x->dtype));
}

RULE(reduce)
{
    sl_tensor *x = node->operands[0];
    if (node->attributes.number != 1)
        dy = EMIT(SL__SCALE, node->attributes, dy, dy);
    sl__contribute(diff, x, sl__view_expanded(dy, x->dims, x->shape));
}

RULE(mse)
{
    for (int i = 0; i < 2; i++)
        CONTRIBUTE(node->operands[i],
                   EMIT(SL__MSE_GRAD, (sl__attributes){.operand = i},
                        node->operands[i], dy, node->operands[0],
                        node->operands[1]));
}

RULE(cross_entropy)
{
    sl_tensor *logits = node->operands[0];
    sl__contribute(diff, logits,
                   EMIT(SL__CROSS_ENTROPY_GRAD, node->attributes, logits, dy,
                        logits, node->operands[1], node->results[1]));
}

RULE(reshape)
{
    sl_tensor *x = node->operands[0];
    sl__contribute(diff, x, sl__view_as(dy, x->dims, x->shape));
}

RULE(transpose)
{
    sl__contribute(
        diff, node->operands[0],
        sl__view_transposed(dy, node->attributes.dim, node->attributes.dim_b));
}

RULE(slice)
{
    sl__contribute_piece(diff, node->operands[0], dy, node->attributes.dim,
                         node->attributes.integer);
}

RULE(expand)
{
    sl_tensor *x = node->operands[0];
    sl__contribute(diff, x,
                   sl__emit_reduce(dy, 1, x->dtype, x->dims, x->shape));
}

void sl__apply_rule(sl__diff *diff, const sl__node *node, sl_tensor *dy)
{
    static const rule_fn rules[SL__OP_COUNT] = {
#define SL_OP(NAME, name, results, traits) [SL__##NAME] = gradient_##name,
#define SL_VIEW_OP(NAME, name)             [SL__##NAME] = gradient_##name,
#define SL_BACKWARD_OP(NAME, name, results, traits)
#include "tensor/ops.def"
#undef SL_OP
#undef SL_VIEW_OP
#undef SL_BACKWARD_OP
    };
    rules[node->op](diff, node, dy);
}

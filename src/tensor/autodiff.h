/* SPDX-License-Identifier: MIT
 *
 * Reverse-mode differentiation of a graph into the same graph. */
#ifndef SL_TENSOR_AUTODIFF_H
#define SL_TENSOR_AUTODIFF_H

#include "tensor/graph.h"

/* The gradient of a box inside a tensor, contributed by a slice. */
typedef struct sl__piece {
    struct sl__piece *next;
    sl_tensor *gradient;
    int dim;
    int64_t start;
} sl__piece;

typedef struct sl__diff {
    sl_graph *graph;
    sl_tensor **sums;   /* per forward tensor: its gradient so far */
    sl__piece **pieces; /* per forward tensor */
    size_t fresh; /* tensors from this id on were made by the current rule */
    /* What autodiff results in, by index of its kind; NULL where no gradient
     * flows. */
    sl_tensor **inputs;
    sl_tensor **outputs;
    sl_tensor **parameters;
} sl__diff;

/* Appends the backward nodes. Requires: a sound graph whose outputs are bound
 * (stage.c). Ensures: each gradient of each operand is a node of its own; what
 * adds to a parameter's gradient is a node with `adds` whose result lies in
 * that gradient. The arrays of `out` are in the graph's arena. */
sl_status sl__differentiate(sl_graph *graph, sl__diff *out);

/* Whether a kernel that adds to dense results adds to this tensor's gradient in
 * place, if it computes in `dtype`. */
bool sl__adds_directly(const sl__diff *diff, const sl_tensor *tensor,
                       sl_dtype dtype);

/* Adds `gradient`, shaped like `tensor`, to the tensor's gradient, if it needs
 * one. */
void sl__contribute(sl__diff *diff, sl_tensor *tensor, sl_tensor *gradient);
void sl__contribute_piece(sl__diff *diff, sl_tensor *tensor,
                          sl_tensor *gradient, int dim, int64_t start);

/* Calls the gradient rule of a node with the gradient of its first result. */
void sl__apply_rule(sl__diff *diff, const sl__node *node, sl_tensor *dy);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The op graph. Nodes stand in an order in which every operand comes before
 * its user; builders and autodiff only append. A tensor is the result of a
 * node, or a leaf; a view shares the memory of its `base`.
 *
 * Invariants: `base->base == base`; the strides and offset of a view count
 * elements from the start of its base; a tensor that is its own base and not
 * placed in another is contiguous. */
#ifndef SL_TENSOR_GRAPH_H
#define SL_TENSOR_GRAPH_H

#include "base/arena.h"
#include "sluice/tensor.h"

typedef enum sl__op {
#define SL_OP(NAME, name, results, traits)          SL__##NAME,
#define SL_VIEW_OP(NAME, name)                      SL__##NAME,
#define SL_BACKWARD_OP(NAME, name, results, traits) SL__##NAME,
#include "tensor/ops.def"
#undef SL_OP
#undef SL_VIEW_OP
#undef SL_BACKWARD_OP
    SL__OP_COUNT,
} sl__op;

enum {
    SL__VIEW = 1,
    SL__DENSE = 2,
    SL__ADDS = 4,
    SL__STRIDED = 8,
    SL__IN_PLACE = 16,
    SL__IN_PLACE2 = 32,
};

typedef struct sl__op_info {
    const char *name;
    int results;
    int traits;
} sl__op_info;
extern const sl__op_info sl__ops[SL__OP_COUNT];

/* What an op needs beside its operands. */
typedef struct sl__attributes {
    double number;   /* factor, epsilon or rate */
    int64_t integer; /* ignored label; start of a slice; key of a dropout */
    int dim;         /* of a slice; first of a transpose */
    int dim_b;       /* second of a transpose */
    int heads;
    int operand; /* gradients: of which operand, where the kernel cares */
    bool flag;   /* norms: with a mean; concat: parts leave gaps */
} sl__attributes;

typedef struct sl__node sl__node;

typedef enum sl__leaf {
    SL__RESULT, /* not a leaf: some node makes it */
    SL__INPUT,
    SL__PARAMETER,
    SL__OUTPUT_GRADIENT,
    SL__PARAMETER_GRADIENT,
} sl__leaf;

struct sl_tensor {
    sl_graph *graph;
    sl_tensor *base;
    sl__node *node; /* that makes it; NULL for a leaf */
    const char *name;
    int id;
    sl__leaf leaf;
    int leaf_index; /* among its kind */
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    int64_t stride[SL_DIMS_MAX];
    int64_t offset;
    bool needs_gradient; /* some input with gradient or parameter is above */
    bool expanded;       /* some elements of the view are the same memory */
};

enum { SL__RESULTS_MAX = 3 };

struct sl__node {
    sl__op op;
    int index; /* in the graph */
    int operand_count;
    sl_tensor **operands;
    sl_tensor *results[SL__RESULTS_MAX];
    sl__attributes attributes;
    bool backward;   /* autodiff made it */
    bool adds;       /* adds to its first result */
    int64_t *starts; /* of concat: where each part begins in the result,
                        SL_DIMS_MAX numbers per part */
};

typedef struct sl__named {
    const char *name;
    sl_tensor *tensor;
    sl_gradient gradient;
} sl__named;

/* A growing list of names with their tensors. */
typedef struct sl__names {
    sl__named *data;
    size_t count;
    size_t capacity;
} sl__names;

struct sl_graph {
    sl__arena arena;
    sl__node **nodes;
    size_t node_count;
    size_t node_capacity;
    sl_tensor **tensors;
    size_t tensor_count;
    size_t tensor_capacity;
    sl__names inputs;
    sl__names parameters; /* one entry per name; aliases share a tensor */
    sl__names outputs;    /* the loss among them */
    int parameter_count;  /* distinct ones */
    sl_tensor *loss;
    char scope[512];
    bool in_backward; /* new nodes are marked so */
    sl_status status; /* the first refusal, with its sentence */
    char *refusal;
};

/* ----------------------------------------------------------- shape.c -- */

int64_t sl__count(const sl_tensor *tensor);
int64_t sl__bytes(const sl_tensor *tensor);
bool sl__is_dense(const sl_tensor *tensor);
bool sl__same_shape(const sl_tensor *a, const sl_tensor *b);
void sl__dense_strides(int dims, const int64_t *shape, int64_t *stride);

/* "(8, 24)"; returns `out`. */
enum { SL__SHAPE_TEXT = 160 };
const char *sl__shape_text(int dims, const int64_t *shape,
                           char out[SL__SHAPE_TEXT]);

/* The strides under which `shape` walks the same elements in the same order;
 * false where there are none. */
bool sl__reshape_strides(const sl_tensor *from, int dims, const int64_t *shape,
                         int64_t *stride);

/* Checks sizes and their product; refuses through the graph. */
bool sl__check_shape(sl_graph *graph, const char *op, const char *name,
                     sl_dtype dtype, int dims, const int64_t *shape);

/* ----------------------------------------------------------- graph.c -- */

/* Keeps the first refusal; always NULL, for `return sl__refuse(...)`. */
sl_tensor *sl__refuse(sl_graph *graph, const char *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
sl_tensor *sl__no_memory(sl_graph *graph);

sl_tensor *sl__new_tensor(sl_graph *graph, sl_dtype dtype, int dims,
                          const int64_t *shape);
sl_status sl__add_name(sl__names *names, const char *name, sl_tensor *tensor,
                       sl_gradient gradient);
const sl__named *sl__find_name(const sl__names *names, const char *name);

/* A deep copy of a sound graph. */
sl_status sl__graph_clone(const sl_graph *graph, sl_graph **out);

/* ------------------------------------------------------------ emit.c -- */

/* Appends a node; its first result has the shape given, further ones come with
 * sl__add_result. A NULL among the operands gives NULL. */
sl_tensor *sl__emit(sl_graph *graph, sl__op op, sl__attributes attributes,
                    int count, sl_tensor *const *operands, sl_dtype dtype,
                    int dims, const int64_t *shape);
/* The same, shaped like another tensor. */
sl_tensor *sl__emit_like(sl_graph *graph, sl__op op, sl__attributes attributes,
                         int count, sl_tensor *const *operands,
                         const sl_tensor *like);
sl_tensor *sl__add_result(sl__node *node, sl_dtype dtype, int dims,
                          const int64_t *shape);

/* A view with this geometry over the operand's base. */
sl_tensor *sl__emit_view(sl_graph *graph, sl__op op, sl__attributes attributes,
                         sl_tensor *operand, int dims, const int64_t *shape,
                         const int64_t *stride, int64_t offset);

/* The tensor itself where it is contiguous, else a copy. */
sl_tensor *sl__dense(sl_tensor *tensor);
sl_tensor *sl__view_as(sl_tensor *x, int dims, const int64_t *shape);
sl_tensor *sl__view_transposed(sl_tensor *x, int dim_a, int dim_b);
sl_tensor *sl__view_slice(sl_tensor *x, int dim, int64_t start, int64_t length);
sl_tensor *sl__view_expanded(sl_tensor *x, int dims, const int64_t *shape);

/* a (M, K) or (G, M, K) times b, plus the bias where there is one. */
sl_tensor *sl__emit_matmul(sl_tensor *a, sl_tensor *b, sl_tensor *bias);

/* Parts put together; `starts` has SL_DIMS_MAX numbers per part. With `gaps`
 * the parts do not fill the result, whose rest is 0. */
sl_tensor *sl__emit_concat(sl_graph *graph, int count, sl_tensor *const *parts,
                           const int64_t *starts, bool gaps, int dims,
                           const int64_t *shape);

/* Sums `x` over the dimensions in which `shape`, aligned at the last, is 1 or
 * absent, times a factor. */
sl_tensor *sl__emit_reduce(sl_tensor *x, double factor, int dims,
                           const int64_t *shape);

#endif

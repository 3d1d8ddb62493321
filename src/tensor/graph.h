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
#include "base/dtype.h"
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
    int operand; /* gradients: which operand's, if the kernel needs that */
    bool flag;   /* norms: with a mean; concat: parts leave gaps */
} sl__attributes;

typedef struct sl__node sl__node;

typedef enum sl__leaf {
    SL__RESULT, /* not a leaf: a node computes it */
    SL__INPUT,
    SL__PARAMETER,
    SL__BUFFER,
    SL__OUTPUT_GRADIENT,
    SL__PARAMETER_GRADIENT,
} sl__leaf;

struct sl_tensor {
    sl_graph *graph;
    sl_tensor *base;
    sl__node *node; /* computes it; NULL for a leaf */
    const char *name;
    int id;
    sl__leaf leaf;
    int leaf_index;   /* among its kind */
    int born;         /* how many nodes the graph had before it */
    const void *data; /* initial values of a buffer; NULL: zeros */
    sl_dtype dtype;
    sl_dtype gradient_dtype; /* of a parameter: of its summed gradient */
    int dims;
    int64_t shape[SL_DIMS_MAX];
    int64_t stride[SL_DIMS_MAX];
    int64_t offset;
    bool needs_gradient; /* depends on a parameter, or such an input */
    bool expanded;       /* several elements of the view share memory */
};

enum { SL__RESULTS_MAX = 3 };

struct sl__node {
    sl__op op;
    int index;  /* in the graph */
    int module; /* in which it was made; 0: none */
    int operand_count;
    sl_tensor **operands;
    sl_tensor *results[SL__RESULTS_MAX];
    sl__attributes attributes;
    bool backward;   /* autodiff made it */
    bool adds;       /* adds to its results */
    int64_t *starts; /* of concat: where each part begins in the result,
                        SL_DIMS_MAX numbers per part */
};

typedef struct sl__named {
    const char *name;
    sl_tensor *tensor;
    sl_gradient gradient;
    bool gradient_only; /* an output that only receives a further gradient */
    uint32_t hash;      /* of the name */
} sl__named;

/* A growing list of named tensors, with a hash index. */
typedef struct sl__names {
    sl__named *data;
    size_t count;
    size_t capacity;
    uint32_t *index; /* hash table of position + 1, or 0 */
    size_t index_size;
} sl__names;

/* A scope, from where it was entered to where it was left. Entering the same
 * name again makes another module of that name. */
typedef struct sl__module {
    const char *name; /* including those around it: "transformer.h.0" */
    int parent;       /* modules count from 1; 0: none */
    int first, end;   /* its nodes */
} sl__module;

/* Nodes that no cut may divide. */
typedef struct sl__region {
    int first, end;
} sl__region;

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
    sl__names buffers;
    sl__names outputs;   /* the loss among them */
    int parameter_count; /* distinct ones */
    sl_tensor *loss;
    sl__module *modules;
    size_t module_count;
    size_t module_capacity;
    int module; /* the innermost open one; 0: none */
    sl__region *regions;
    size_t region_count;
    size_t region_capacity;
    bool in_region;
    int *marks; /* nodes before which a cut is marked, ascending */
    size_t mark_count;
    size_t mark_capacity;
    bool in_backward; /* new nodes are backward nodes */
    sl_status status; /* the first refusal, with its sentence */
    char *refusal;
};

/* Takes `count` zeroed elements for the array `*out` from an arena. */
#define SL__TAKE(arena, count, out)                                            \
    sl__arena_take(arena, count, sizeof **(out), out)

/* ----------------------------------------------------------- shape.c -- */

int64_t sl__count(const sl_tensor *tensor);
int64_t sl__bytes(const sl_tensor *tensor);
bool sl__is_dense(const sl_tensor *tensor);
bool sl__has_shape(const sl_tensor *tensor, int dims, const int64_t *shape);
bool sl__same_shape(const sl_tensor *a, const sl_tensor *b);
void sl__dense_strides(int dims, const int64_t *shape, int64_t *stride);

/* "(8, 24)"; returns `out`. */
enum { SL__SHAPE_TEXT = 160 };
const char *sl__shape_text(int dims, const int64_t *shape,
                           char out[SL__SHAPE_TEXT]);

/* The strides under which `shape` visits the same elements in the same order;
 * false if there are none. */
bool sl__reshape_strides(const sl_tensor *from, int dims, const int64_t *shape,
                         int64_t *stride);

/* Checks sizes and their product; refuses through the graph. */
bool sl__check_shape(sl_graph *graph, const char *op, const char *name,
                     sl_dtype dtype, int dims, const int64_t *shape);

/* ----------------------------------------------------------- graph.c -- */

/* Records the first refusal. Always returns NULL, which is false in a function
 * that returns a bool, for `return sl__refuse(...)`. */
sl_tensor *sl__refuse(sl_graph *graph, const char *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
sl_tensor *sl__no_memory(sl_graph *graph);

/* Copy into the graph's arena; NULL for NULL. If memory runs out, they return
 * NULL too and refuse. */
const char *sl__keep_text(sl_graph *graph, const char *text);
void *sl__keep_data(sl_graph *graph, const void *data, int64_t bytes);

sl_tensor *sl__new_tensor(sl_graph *graph, sl_dtype dtype, int dims,
                          const int64_t *shape);
/* A leaf that is to become an output of this name. */
sl_tensor *sl__loose_leaf(sl_graph *graph, const char *op, const char *name,
                          sl_dtype dtype, int dims, const int64_t *shape);

/* A deep copy of a sound graph, without its modules, regions and marks, and
 * without the outputs that are to be left out; `left_out` may be NULL. */
sl_status sl__graph_clone(const sl_graph *graph, const bool *left_out,
                          sl_graph **out);

/* --------------------------------------------------------- modules.c -- */

/* The name of the innermost open module, at most this long; "" for none. */
enum { SL__SCOPE_MAX = 511 };
const char *sl__open_scope(const sl_graph *graph);

/* Refuses a graph in which a scope or region is still open. */
sl_status sl__check_left(const sl_graph *graph);

/* ----------------------------------------------------------- names.c -- */

sl_status sl__add_name(sl__names *names, const char *name, sl_tensor *tensor,
                       sl_gradient gradient);
/* The same, but refuses through the tensor's graph. Returns the tensor, or
 * NULL. */
sl_tensor *sl__name_tensor(sl__names *names, const char *name,
                           sl_tensor *tensor, sl_gradient gradient);
/* NULL if there is none. */
sl__named *sl__find_name(const sl__names *names, const char *name);
/* Finds the same name in another list, without hashing it again. */
sl__named *sl__find_same(const sl__names *names, const sl__named *other);
void sl__names_clear(sl__names *names);

/* ------------------------------------------------------------ emit.c -- */

/* Appends a node whose operands are in the graph already; returns its first
 * result. */
sl_tensor *sl__append_node(sl_graph *graph, sl__node *node);

/* Makes and appends a node; its first result has the shape given, further ones
 * come with sl__add_result. A NULL among the operands gives NULL. */
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

/* The tensor itself if it is contiguous, else a copy. */
sl_tensor *sl__dense(sl_tensor *tensor);
sl_tensor *sl__view_as(sl_tensor *x, int dims, const int64_t *shape);
sl_tensor *sl__view_transposed(sl_tensor *x, int dim_a, int dim_b);
sl_tensor *sl__view_slice(sl_tensor *x, int dim, int64_t start, int64_t length);
sl_tensor *sl__view_expanded(sl_tensor *x, int dims, const int64_t *shape);

/* (B, T, C) with contiguous rows, so that a head is a part of a row. */
sl_tensor *sl__with_whole_rows(sl_tensor *x);

/* a (M, K) or (G, M, K) times b, plus the bias where there is one. */
sl_tensor *sl__emit_matmul(sl_tensor *a, sl_tensor *b, sl_tensor *bias,
                           sl_dtype dtype);

/* Concatenates parts; `starts` has SL_DIMS_MAX numbers per part. With `gaps`
 * the parts do not cover the result, whose rest is 0. */
sl_tensor *sl__emit_concat(sl_graph *graph, int count, sl_tensor *const *parts,
                           const int64_t *starts, bool gaps, int dims,
                           const int64_t *shape);

/* `x` as another float dtype; `x` itself if it has that dtype. */
sl_tensor *sl__emit_cast(sl_tensor *x, sl_dtype dtype);

/* Sums `x` over the dimensions that are 1 or absent in `shape`, which is
 * aligned at the last dimension, and multiplies by a factor. */
sl_tensor *sl__emit_reduce(sl_tensor *x, double factor, sl_dtype dtype,
                           int dims, const int64_t *shape);

/* ------------------------------------------------------- precision.c -- */

/* Fails because this is no precision. */
sl_status sl__refuse_precision(sl_dtype precision);

/* ----------------------------------------------------------- flops.c -- */

/* Floating point operations of a node's products, as sl_stage_flops counts
 * them. */
double sl__product_flops(const sl__node *node);

/* Estimates the operations of a forward node and, if `reached`, of its
 * backward: those of its products, or one per element if it has none. */
double sl__training_flops(const sl__node *node, bool reached);

/* --------------------------------------------------------- excerpt.c -- */

/* Copies parts of a graph into other graphs, one after the other. The copy of a
 * tensor in the current one is its twin. */
typedef struct sl__twin {
    sl_tensor *tensor;
    const sl_graph *graph; /* the twin is valid while this is current */
} sl__twin;

typedef struct sl__excerpt {
    const sl_graph *from;
    sl_graph *to;
    sl__twin *twins; /* by id in `from` */
} sl__excerpt;

/* NULL if it has none yet. */
sl_tensor *sl__find_twin(const sl__excerpt *excerpt, const sl_tensor *tensor);

/* A contiguous input of the copy, as the twin of a tensor. */
sl_tensor *sl__excerpt_input(sl__excerpt *excerpt, const sl_tensor *tensor,
                             const char *name, sl_gradient gradient);
/* Copies a parameter or buffer under one of its names; call it for each. */
sl_status sl__excerpt_leaf(sl__excerpt *excerpt, const sl__named *named);
/* Copies a node whose operands have twins. If these lie otherwise in memory
 * than the originals, it gets the layout copies that its kernels need. */
sl_status sl__excerpt_node(sl__excerpt *excerpt, const sl__node *node);
sl_status sl__excerpt_output(sl__excerpt *excerpt, const sl_tensor *tensor,
                             const char *name, sl_gradient gradient,
                             bool is_loss);

/* Recomputes which tensors need a gradient, after inputs have changed. */
void sl__refresh_gradients(sl_graph *graph);

#endif

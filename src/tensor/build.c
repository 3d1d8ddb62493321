/* SPDX-License-Identifier: MIT
 *
 * The ops of the public header: each checks its operands, infers its shape and
 * appends its nodes. A refusal names the op, the operands, what was expected
 * and what was found. */
#include "tensor/graph.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------- checking -- */

typedef char shape_text[SL__SHAPE_TEXT];

static const char *shape_of(const sl_tensor *tensor, char *out)
{
    return sl__shape_text(tensor->dims, tensor->shape, out);
}

/* Whether all operands exist. A NULL operand is refused through another
 * operand's graph, unless that has a refusal already: then the NULL came from
 * there. */
static bool are_there(const char *op, int count, sl_tensor *const *operands)
{
    sl_graph *graph = NULL;
    int missing = -1;
    for (int i = 0; i < count; i++) {
        if (!operands[i])
            missing = i;
        else if (operands[i]->graph->status)
            return false;
        else
            graph = operands[i]->graph;
    }
    if (missing >= 0 && graph)
        sl__refuse(graph, op, "operand %d is NULL, expected a tensor", missing);
    return missing < 0 && graph;
}

static bool same_graph(const char *op, const sl_tensor *first,
                       const sl_tensor *tensor)
{
    if (tensor->graph != first->graph)
        sl__refuse(first->graph, op, "'%s' is of another graph",
                   sl_tensor_name(tensor));
    return tensor->graph == first->graph;
}

/* Whether the operands can be used at all: not NULL, of one graph, floats of
 * one dtype. */
static bool usable(const char *op, int count, sl_tensor *const *operands)
{
    if (!are_there(op, count, operands))
        return false;
    for (int i = 0; i < count; i++) {
        const sl_tensor *first = operands[0], *tensor = operands[i];
        if (!same_graph(op, first, tensor))
            return false;
        if (!sl__is_float(tensor->dtype))
            return sl__refuse(first->graph, op, "'%s' is %s, expected a float",
                              sl_tensor_name(tensor),
                              sl_dtype_text(tensor->dtype));
        if (tensor->dtype != first->dtype)
            return sl__refuse(
                first->graph, op, "'%s' is %s, expected %s as '%s' is",
                sl_tensor_name(tensor), sl_dtype_text(tensor->dtype),
                sl_dtype_text(first->dtype), sl_tensor_name(first));
    }
    return true;
}

/* Whether the operands are a float tensor and an integer tensor. */
static bool usable_with_integers(const char *op, sl_tensor *const *operands)
{
    sl_tensor *x = operands[0], *integers = operands[1];
    if (!are_there(op, 2, operands) || !usable(op, 1, operands) ||
        !same_graph(op, x, integers))
        return false;
    if (integers->dtype != SL_I32 && integers->dtype != SL_I64)
        return sl__refuse(x->graph, op, "'%s' is %s, expected i32 or i64",
                          sl_tensor_name(integers),
                          sl_dtype_text(integers->dtype));
    return true;
}

/* Resolves a dimension counted from either end. */
static bool usable_dim(const char *op, const sl_tensor *x, int *dim)
{
    shape_text text;
    if (*dim >= -x->dims && *dim < x->dims) {
        *dim += *dim < 0 ? x->dims : 0;
        return true;
    }
    return sl__refuse(x->graph, op, "'%s' is %s and has no dimension %d",
                      sl_tensor_name(x), shape_of(x, text), *dim);
}

static sl_tensor *refuse_shape(const char *op, const sl_tensor *tensor,
                               const char *expected, const sl_tensor *because)
{
    shape_text found, other;
    return sl__refuse(tensor->graph, op,
                      "'%s' is %s, expected %s to fit '%s' of %s",
                      sl_tensor_name(tensor), shape_of(tensor, found), expected,
                      sl_tensor_name(because), shape_of(because, other));
}

/* Whether a tensor has the shape (size). */
static bool is_vector(const char *op, const sl_tensor *tensor, int64_t size,
                      const sl_tensor *because)
{
    shape_text expected;
    if (tensor->dims == 1 && tensor->shape[0] == size)
        return true;
    return refuse_shape(op, tensor, sl__shape_text(1, &size, expected),
                        because);
}

static int64_t last_size(const sl_tensor *x)
{
    return x->shape[x->dims - 1];
}

/* Gives the node of `out` a second result, which its backward reads. */
static sl_tensor *with_saved(sl_tensor *out, int dims, const int64_t *shape)
{
    return out && sl__add_result(out->node, out->dtype, dims, shape) ? out
                                                                     : NULL;
}

/* x (.., K) as (M, K). */
static sl_tensor *as_rows(sl_tensor *x)
{
    int64_t shape[2] = {sl__count(x) / last_size(x), last_size(x)};
    return sl__view_as(x, 2, shape);
}

/* ------------------------------------------------------------- products -- */

static sl_tensor *matmul_rows(sl_tensor *x, sl_tensor *b, sl_tensor *bias)
{
    int64_t shape[SL_DIMS_MAX];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->dims - 1] = b->shape[1];
    sl_tensor *out = sl__emit_matmul(as_rows(x), b, bias, x->dtype);
    return sl__view_as(out, x->dims, shape);
}

/* (.., M, K) and (.., K, N) with the same leading sizes. */
static sl_tensor *matmul_batched(sl_tensor *a, sl_tensor *b)
{
    int dims = a->dims;
    int64_t m = a->shape[dims - 2], k = a->shape[dims - 1];
    int64_t n = b->shape[dims - 1], batch = sl__count(a) / (m * k);
    int64_t shape[SL_DIMS_MAX];
    memcpy(shape, a->shape, sizeof shape);
    shape[dims - 1] = n;
    sl_tensor *a3 = sl__view_as(a, 3, (int64_t[]){batch, m, k});
    sl_tensor *b3 = sl__view_as(b, 3, (int64_t[]){batch, k, n});
    return sl__view_as(sl__emit_matmul(a3, b3, NULL, a->dtype), dims, shape);
}

sl_tensor *(sl_matmul)(sl_tensor *a, sl_tensor *b)
{
    sl_tensor *operands[] = {a, b};
    shape_text text;
    if (!usable("matmul", 2, operands))
        return NULL;
    if (a->dims < 2)
        return sl__refuse(a->graph, "matmul", "'%s' is %s, expected (.., M, K)",
                          sl_tensor_name(a), shape_of(a, text));
    bool fits = b->dims == 2 || b->dims == a->dims;
    for (int i = 0; fits && b->dims > 2 && i < a->dims - 2; i++)
        fits = a->shape[i] == b->shape[i];
    if (!fits || b->shape[b->dims - 2] != last_size(a))
        return refuse_shape("matmul", b, "(K, N) or (.., K, N)", a);
    return b->dims == 2 ? matmul_rows(a, b, NULL) : matmul_batched(a, b);
}

sl_tensor *(sl_linear)(sl_tensor *x, sl_tensor *weight, sl_tensor *bias,
                       sl_layout layout)
{
    sl_tensor *operands[] = {x, weight, bias};
    if (!usable("linear", bias ? 3 : 2, operands))
        return NULL;
    shape_text text;
    bool out_in = layout == SL_OUT_IN;
    if (x->dims < 1)
        return sl__refuse(x->graph, "linear", "'%s' is (), expected (.., in)",
                          sl_tensor_name(x));
    if (weight->dims != 2)
        return sl__refuse(x->graph, "linear", "'%s' is %s, expected %s",
                          sl_tensor_name(weight), shape_of(weight, text),
                          out_in ? "(out, in)" : "(in, out)");
    if (weight->shape[out_in ? 1 : 0] != last_size(x)) {
        int64_t shape[2] = {weight->shape[0], weight->shape[1]};
        shape[out_in ? 1 : 0] = last_size(x);
        return refuse_shape("linear", weight, sl__shape_text(2, shape, text),
                            x);
    }
    if (bias &&
        !is_vector("linear", bias, weight->shape[out_in ? 0 : 1], weight))
        return NULL;
    sl_tensor *b = out_in ? sl__view_transposed(weight, 0, 1) : weight;
    return b ? matmul_rows(x, b, bias) : NULL;
}

/* --------------------------------------------------- element by element -- */

/* The common shape of two tensors; false where there is none. */
static bool broadcast(const sl_tensor *a, const sl_tensor *b, int *dims,
                      int64_t *shape)
{
    *dims = a->dims > b->dims ? a->dims : b->dims;
    for (int i = 0; i < *dims; i++) {
        int ia = i - (*dims - a->dims), ib = i - (*dims - b->dims);
        int64_t na = ia < 0 ? 1 : a->shape[ia], nb = ib < 0 ? 1 : b->shape[ib];
        if (na != nb && na != 1 && nb != 1)
            return false;
        shape[i] = na > nb ? na : nb;
    }
    return true;
}

static sl_tensor *binary(const char *name, sl__op op, sl_tensor *a,
                         sl_tensor *b)
{
    int dims;
    int64_t shape[SL_DIMS_MAX];
    if (!broadcast(a, b, &dims, shape))
        return refuse_shape(name, b, "sizes that are equal or 1", a);
    sl_tensor *operands[] = {sl__view_expanded(a, dims, shape),
                             sl__view_expanded(b, dims, shape)};
    if (!operands[0] || !operands[1])
        return NULL;
    return sl__emit(a->graph, op, (sl__attributes){0}, 2, operands, a->dtype,
                    dims, shape);
}

static sl_tensor *binary_floats(const char *name, sl__op op, sl_tensor *a,
                                sl_tensor *b)
{
    sl_tensor *operands[] = {a, b};
    return usable(name, 2, operands) ? binary(name, op, a, b) : NULL;
}

sl_tensor *(sl_add)(sl_tensor *a, sl_tensor *b)
{
    return binary_floats("add", SL__ADD, a, b);
}

sl_tensor *(sl_sub)(sl_tensor *a, sl_tensor *b)
{
    return binary_floats("sub", SL__SUB, a, b);
}

sl_tensor *(sl_mul)(sl_tensor *a, sl_tensor *b)
{
    if (b && b->dtype == SL_BOOL && usable("mul", 1, &a)) {
        return same_graph("mul", a, b) ? binary("mul", SL__MUL, a, b) : NULL;
    }
    return binary_floats("mul", SL__MUL, a, b);
}

static sl_tensor *unary(const char *name, sl__op op, sl_tensor *x,
                        sl__attributes attributes)
{
    if (!usable(name, 1, &x))
        return NULL;
    return sl__emit_like(x->graph, op, attributes, 1, &x, x);
}

sl_tensor *(sl_scale)(sl_tensor *x, double factor)
{
    if (x && !x->graph->status && !isfinite(factor))
        return sl__refuse(x->graph, "scale", "the factor is %g", factor);
    return unary("scale", SL__SCALE, x, (sl__attributes){.number = factor});
}

sl_tensor *(sl_cast)(sl_tensor *x, sl_dtype dtype)
{
    if (!usable("cast", 1, &x))
        return NULL;
    if (!sl__is_float(dtype) || !sl__is_computed(dtype))
        return sl__refuse(x->graph, "cast", "to %s, expected f32, f64 or bf16",
                          sl_dtype_text(dtype));
    return sl__emit_cast(x, dtype);
}

#define UNARY(name, NAME)                                                      \
    sl_tensor *(sl_##name)(sl_tensor * x)                                      \
    {                                                                          \
        return unary(#name, SL__##NAME, x, (sl__attributes){0});               \
    }
UNARY(relu, RELU)
UNARY(gelu_tanh, GELU_TANH)
UNARY(gelu_erf, GELU_ERF)
UNARY(silu, SILU)

sl_tensor *(sl_dropout)(sl_tensor *x, double rate)
{
    if (!usable("dropout", 1, &x))
        return NULL;
    if (!(rate >= 0 && rate < 1))
        return sl__refuse(x->graph, "dropout",
                          "the rate is %g, expected from 0 up to below 1",
                          rate);
    if (rate == 0)
        return x;
    /* The node's number distinguishes this dropout from others. */
    return unary("dropout", SL__DROPOUT, x,
                 (sl__attributes){.number = rate,
                                  .integer = (int64_t)x->graph->node_count});
}

/* ---------------------------------------------------------------- norms -- */

static bool usable_norm(const char *op, double epsilon, int count,
                        sl_tensor *const *operands)
{
    if (!usable(op, count, operands))
        return false;
    sl_graph *graph = operands[0]->graph;
    if (operands[0]->dims < 1)
        return sl__refuse(graph, op, "'%s' is (), expected (.., C)",
                          sl_tensor_name(operands[0]));
    if (!(epsilon >= 0) || !isfinite(epsilon))
        return sl__refuse(graph, op, "epsilon is %g, expected 0 or more",
                          epsilon);
    for (int i = 1; i < count; i++) {
        if (!is_vector(op, operands[i], last_size(operands[0]), operands[0]))
            return false;
    }
    return true;
}

/* Appends a norm, which saves mean and 1/deviation of every row. */
static sl_tensor *norm(sl__op op, sl__attributes attributes, int count,
                       sl_tensor *const *operands)
{
    sl_tensor *x = operands[0];
    int64_t saved[2] = {sl__count(x) / last_size(x), 2};
    return with_saved(
        sl__emit_like(x->graph, op, attributes, count, operands, x), 2, saved);
}

sl_tensor *(sl_layer_norm)(sl_tensor *x, sl_tensor *weight, sl_tensor *bias,
                           double epsilon)
{
    sl_tensor *operands[] = {x, weight, bias};
    if (!usable_norm("layer_norm", epsilon, 3, operands))
        return NULL;
    return norm(SL__LAYER_NORM,
                (sl__attributes){.number = epsilon, .flag = true}, 3, operands);
}

sl_tensor *(sl_rms_norm)(sl_tensor *x, sl_tensor *weight, double epsilon)
{
    sl_tensor *operands[] = {x, weight};
    if (!usable_norm("rms_norm", epsilon, 2, operands))
        return NULL;
    return norm(SL__RMS_NORM, (sl__attributes){.number = epsilon}, 2, operands);
}

sl_tensor *(sl_softmax)(sl_tensor *x)
{
    if (!usable("softmax", 1, &x))
        return NULL;
    if (x->dims < 1)
        return sl__refuse(x->graph, "softmax", "'%s' is (), expected (.., C)",
                          sl_tensor_name(x));
    return unary("softmax", SL__SOFTMAX, x, (sl__attributes){0});
}

/* ----------------------------------------------------------- embeddings -- */

sl_tensor *(sl_embedding)(sl_tensor *table, sl_tensor *ids)
{
    shape_text text;
    sl_tensor *operands[] = {table, ids};
    if (!usable_with_integers("embedding", operands))
        return NULL;
    if (table->dims != 2)
        return sl__refuse(table->graph, "embedding",
                          "'%s' is %s, expected (rows, width)",
                          sl_tensor_name(table), shape_of(table, text));
    int64_t shape[SL_DIMS_MAX + 1];
    memcpy(shape, ids->shape, sizeof ids->shape);
    shape[ids->dims] = table->shape[1];
    return sl__emit(table->graph, SL__EMBEDDING, (sl__attributes){0}, 2,
                    operands, table->dtype, ids->dims + 1, shape);
}

sl_tensor *(sl_add_positions)(sl_tensor *x, sl_tensor *table)
{
    sl_tensor *operands[] = {x, table};
    if (!usable("add_positions", 2, operands))
        return NULL;
    if (x->dims < 2 || table->dims != 2 || table->shape[1] != last_size(x) ||
        table->shape[0] < x->shape[x->dims - 2])
        return refuse_shape("add_positions", table, "(at least T, C)", x);
    sl_tensor *rows = sl__view_slice(table, 0, 0, x->shape[x->dims - 2]);
    return rows ? binary("add_positions", SL__ADD, x, rows) : NULL;
}

/* ------------------------------------------------------------ attention -- */

sl_tensor *(sl_causal_attention)(sl_tensor *q, sl_tensor *k, sl_tensor *v,
                                 int heads)
{
    sl_tensor *operands[] = {q, k, v};
    shape_text text;
    if (!usable("causal_attention", 3, operands))
        return NULL;
    if (q->dims != 3)
        return sl__refuse(q->graph, "causal_attention",
                          "'%s' is %s, expected (B, T, C)", sl_tensor_name(q),
                          shape_of(q, text));
    for (int i = 1; i < 3; i++) {
        if (!sl__same_shape(q, operands[i]))
            return refuse_shape("causal_attention", operands[i],
                                "the same shape", q);
    }
    if (heads < 1 || q->shape[2] % heads)
        return sl__refuse(q->graph, "causal_attention",
                          "%d heads do not divide the width of '%s' of %s",
                          heads, sl_tensor_name(q), shape_of(q, text));
    for (int i = 0; i < 3; i++) {
        operands[i] = sl__with_whole_rows(operands[i]);
        if (!operands[i])
            return NULL;
    }
    sl_tensor *out =
        sl__emit_like(q->graph, SL__ATTENTION, (sl__attributes){.heads = heads},
                      3, operands, q);
    int64_t saved[4] = {q->shape[0], heads, q->shape[1], 2};
    return with_saved(out, 4, saved);
}

/* ---------------------------------------------------------------- views -- */

/* Infers a size given as -1; false if that is no whole number. */
static bool complete_shape(const sl_tensor *x, int dims, int64_t *shape)
{
    int64_t known = 1, count = sl__count(x);
    int open = -1;
    for (int i = 0; i < dims; i++) {
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 1 ||
                 __builtin_mul_overflow(known, shape[i], &known))
            return false;
    }
    if (open < 0)
        return known == count;
    shape[open] = count / known;
    return count % known == 0 && shape[open] > 0;
}

static bool usable_view(const sl_tensor *x)
{
    return x && !x->graph->status;
}

sl_tensor *(sl_reshape)(sl_tensor *x, int dims, const int64_t *shape)
{
    shape_text found, wanted;
    if (!usable_view(x))
        return NULL;
    if (dims < 0 || dims > SL_DIMS_MAX || (dims > 0 && !shape))
        return sl__refuse(x->graph, "reshape",
                          "%d dimensions, expected 0 to %d", dims, SL_DIMS_MAX);
    int64_t sizes[SL_DIMS_MAX] = {0};
    for (int i = 0; i < dims; i++)
        sizes[i] = shape[i];
    if (!complete_shape(x, dims, sizes))
        return sl__refuse(x->graph, "reshape",
                          "'%s' is %s, expected as many elements as in %s",
                          sl_tensor_name(x), shape_of(x, found),
                          sl__shape_text(dims, shape, wanted));
    return sl__view_as(x, dims, sizes);
}

sl_tensor *(sl_transpose)(sl_tensor *x, int dim_a, int dim_b)
{
    if (!usable_view(x) || !usable_dim("transpose", x, &dim_a) ||
        !usable_dim("transpose", x, &dim_b))
        return NULL;
    return sl__view_transposed(x, dim_a, dim_b);
}

sl_tensor *(sl_slice)(sl_tensor *x, int dim, int64_t start, int64_t length)
{
    shape_text text;
    if (!usable_view(x) || !usable_dim("slice", x, &dim))
        return NULL;
    if (start < 0 || length < 1 || start > x->shape[dim] - length)
        return sl__refuse(x->graph, "slice",
                          "%lld from %lld of dimension %d, expected a part of "
                          "'%s' of %s",
                          (long long)length, (long long)start, dim,
                          sl_tensor_name(x), shape_of(x, text));
    return sl__view_slice(x, dim, start, length);
}

void(sl_split)(sl_tensor *x, int dim, int count, sl_tensor **parts)
{
    shape_text text;
    for (int i = 0; i < count && parts; i++)
        parts[i] = NULL;
    if (usable_view(x) && !parts) {
        sl__refuse(x->graph, "split", "there is no room for the parts");
        return;
    }
    if (!usable_view(x) || !usable_dim("split", x, &dim))
        return;
    if (count < 1 || x->shape[dim] % count) {
        sl__refuse(x->graph, "split",
                   "%d parts do not divide dimension %d of '%s' of %s", count,
                   dim, sl_tensor_name(x), shape_of(x, text));
        return;
    }
    int64_t length = x->shape[dim] / count;
    for (int i = 0; i < count; i++)
        parts[i] = sl__view_slice(x, dim, i * length, length);
}

sl_tensor *(sl_concat)(sl_tensor *const *parts, int count, int dim)
{
    enum { PARTS_MAX = 4096 };
    if (count < 1 || !parts || !usable("concat", count, parts) ||
        !usable_dim("concat", parts[0], &dim))
        return NULL;
    sl_tensor *first = parts[0];
    if (count > PARTS_MAX)
        return sl__refuse(first->graph, "concat", "%d parts, expected 1 to %d",
                          count, PARTS_MAX);
    int64_t shape[SL_DIMS_MAX], starts[PARTS_MAX * SL_DIMS_MAX] = {0};
    memcpy(shape, first->shape, sizeof shape);
    shape[dim] = 0;
    for (int i = 0; i < count; i++) {
        int64_t expected[SL_DIMS_MAX];
        shape_text text;
        memcpy(expected, first->shape, sizeof expected);
        if (parts[i]->dims == first->dims)
            expected[dim] = parts[i]->shape[dim];
        if (!sl__has_shape(parts[i], first->dims, expected))
            return refuse_shape("concat", parts[i],
                                sl__shape_text(first->dims, expected, text),
                                first);
        starts[i * SL_DIMS_MAX + dim] = shape[dim];
        shape[dim] += parts[i]->shape[dim];
    }
    return sl__emit_concat(first->graph, count, parts, starts, false,
                           first->dims, shape);
}

/* ----------------------------------------------------------- reductions -- */

static sl_tensor *reduce(const char *op, sl_tensor *x, int dim, bool mean)
{
    if (!usable(op, 1, &x))
        return NULL;
    if (dim == SL_ALL)
        return sl__emit_reduce(x, mean ? 1.0 / (double)sl__count(x) : 1.0,
                               x->dtype, 0, NULL);
    if (!usable_dim(op, x, &dim))
        return NULL;
    int64_t kept[SL_DIMS_MAX], shape[SL_DIMS_MAX];
    memcpy(kept, x->shape, sizeof kept);
    kept[dim] = 1;
    for (int i = 0, at = 0; i < x->dims; i++) {
        if (i != dim)
            shape[at++] = x->shape[i];
    }
    sl_tensor *out = sl__emit_reduce(
        x, mean ? 1.0 / (double)x->shape[dim] : 1.0, x->dtype, x->dims, kept);
    return sl__view_as(out, x->dims - 1, shape);
}

sl_tensor *(sl_sum)(sl_tensor *x, int dim)
{
    return reduce("sum", x, dim, false);
}

sl_tensor *(sl_mean)(sl_tensor *x, int dim)
{
    return reduce("mean", x, dim, true);
}

/* --------------------------------------------------------------- losses -- */

sl_tensor *(sl_mse)(sl_tensor *x, sl_tensor *target)
{
    sl_tensor *operands[] = {x, target};
    if (!usable("mse", 2, operands))
        return NULL;
    if (!sl__same_shape(x, target))
        return refuse_shape("mse", target, "the same shape", x);
    return sl__emit(x->graph, SL__MSE, (sl__attributes){0}, 2, operands,
                    x->dtype, 0, NULL);
}

sl_tensor *(sl_cross_entropy)(sl_tensor *logits, sl_tensor *labels,
                              int64_t ignore)
{
    sl_tensor *operands[] = {logits, labels};
    if (!usable_with_integers("cross_entropy", operands))
        return NULL;
    if (logits->dims < 1 ||
        !sl__has_shape(labels, logits->dims - 1, logits->shape))
        return refuse_shape("cross_entropy", labels,
                            "the sizes of the logits but the last", logits);
    sl_tensor *out = sl__emit(logits->graph, SL__CROSS_ENTROPY,
                              (sl__attributes){.integer = ignore}, 2, operands,
                              logits->dtype, 0, NULL);
    int64_t saved[2] = {sl__count(labels), 2};
    return with_saved(out, 2, saved);
}

/* SPDX-License-Identifier: MIT
 *
 * Every op on random shapes, odd sizes and ones among them: gradients of `ref`
 * against central differences in double precision; `cpu`, with each of its
 * instruction sets, against `ref`. */
#include "tensors.h"
#include "tensor/backends/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------- the cases -- */

/* What a case builds with: sizes, inputs and parameters, all at random. */
typedef struct maker {
    sl_graph *graph;
    sl_dtype dtype;
    uint64_t state;
    int made;
    int largest; /* size */
} maker;

static int64_t size(maker *m)
{
    /* A size of 1 breaks things, so it is drawn often. */
    if (test_random_int(&m->state, 0, 4) == 0)
        return 1;
    return test_random_int(&m->state, 1, m->largest);
}

static bool toss(maker *m)
{
    return test_random_int(&m->state, 0, 1);
}

/* An input with gradient, or a parameter. */
static sl_tensor *leaf(maker *m, int dims, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "leaf%d", m->made++);
    if (toss(m))
        return sl_parameter(m->graph, name, m->dtype, dims, shape);
    return sl_input(m->graph, name, m->dtype, dims, shape, SL_GRADIENT);
}

static sl_tensor *integers(maker *m, int dims, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "ids%d", m->made++);
    return sl_input(m->graph, name, toss(m) ? SL_I32 : SL_I64, dims, shape,
                    SL_NO_GRADIENT);
}

/* A leaf of 1 to 3 dimensions. */
static sl_tensor *any(maker *m)
{
    int dims = test_random_int(&m->state, 1, 3);
    return leaf(m, dims, (int64_t[]){size(m), size(m), size(m)});
}

/* The same values under another order in memory, or not. */
static sl_tensor *maybe_transposed(maker *m, sl_tensor *x)
{
    if (sl_tensor_dims(x) < 2 || toss(m))
        return x;
    return sl_transpose(x, 0, -1);
}

static sl_tensor *make_matmul(maker *m)
{
    int64_t a = size(m), b = size(m), c = size(m), g = size(m);
    if (toss(m)) {
        sl_tensor *x = toss(m)
                           ? leaf(m, 2, (int64_t[]){a, b})
                           : sl_transpose(leaf(m, 2, (int64_t[]){b, a}), 0, 1);
        sl_tensor *y = toss(m)
                           ? leaf(m, 2, (int64_t[]){b, c})
                           : sl_transpose(leaf(m, 2, (int64_t[]){c, b}), 0, 1);
        return sl_matmul(x, y);
    }
    sl_tensor *x = leaf(m, 3, (int64_t[]){g, a, b});
    sl_tensor *y = toss(m)
                       ? leaf(m, 3, (int64_t[]){g, b, c})
                       : sl_transpose(leaf(m, 3, (int64_t[]){g, c, b}), 1, 2);
    return sl_matmul(x, y);
}

/* Products whose gradient arrives expanded over the batch. */
static sl_tensor *make_summed_products(maker *m)
{
    int64_t a = size(m), b = size(m), c = size(m), g = size(m);
    sl_tensor *y = sl_matmul(leaf(m, 3, (int64_t[]){g, a, b}),
                             leaf(m, 3, (int64_t[]){g, b, c}));
    return sl_sum(y, test_random_int(&m->state, 0, 2));
}

/* Two layers out of one parameter. */
static sl_tensor *make_sliced_weight(maker *m)
{
    int64_t in = size(m), out = size(m);
    sl_tensor *x = leaf(m, 2, (int64_t[]){size(m), in});
    sl_tensor *w = leaf(m, 2, (int64_t[]){2 * out, in});
    sl_tensor *halves[2];
    sl_split(w, 0, 2, halves);
    sl_tensor *y = sl_linear(x, halves[0], NULL, SL_OUT_IN);
    return sl_mul(y, sl_linear(x, halves[1], NULL, SL_OUT_IN));
}

/* A tensor with its own transpose, which must not be written over it. */
static sl_tensor *make_symmetric(maker *m)
{
    int64_t side = size(m);
    sl_tensor *h = sl_scale(leaf(m, 2, (int64_t[]){side, side}), 2);
    return sl_scale(toss(m) ? sl_add(h, sl_transpose(h, 0, 1))
                            : sl_sub(sl_transpose(h, 0, 1), h),
                    3);
}

/* A gradient that ends at a parameter and also goes on. */
static sl_tensor *make_added_parameter(maker *m)
{
    int64_t a = size(m), b = size(m);
    sl_tensor *x = leaf(m, 2, (int64_t[]){a, b});
    sl_tensor *p = sl_parameter(m->graph, "p", m->dtype, SL_SHAPE(a, b));
    sl_tensor *w = leaf(m, 2, (int64_t[]){b, size(m)});
    return sl_matmul(sl_add(x, p), w);
}

static sl_tensor *make_linear(maker *m)
{
    int64_t in = size(m), out = size(m);
    bool out_in = toss(m);
    int dims = test_random_int(&m->state, 1, 3);
    int64_t shape[3] = {size(m), size(m), size(m)};
    shape[dims - 1] = in;
    sl_tensor *x = leaf(m, dims, shape);
    sl_tensor *w =
        leaf(m, 2, (int64_t[]){out_in ? out : in, out_in ? in : out});
    sl_tensor *b = toss(m) ? leaf(m, 1, &out) : NULL;
    return sl_linear(x, w, b, out_in ? SL_OUT_IN : SL_IN_OUT);
}

/* Some rows of a product alone, through an activation. */
static sl_tensor *make_sliced_activation(maker *m)
{
    int64_t rows = size(m) + 2, in = size(m);
    sl_tensor *y = sl_matmul(leaf(m, 2, (int64_t[]){rows, in}),
                             leaf(m, 2, (int64_t[]){in, size(m)}));
    sl_tensor *part = sl_slice(y, 0, 1, rows - 1 - toss(m));
    return toss(m) ? sl_relu(part) : sl_gelu_tanh(part);
}

static sl_tensor *make_linear_activation(maker *m)
{
    sl_tensor *y = make_linear(m);
    switch (test_random_int(&m->state, 0, 2)) {
    case 0: return sl_relu(y);
    case 1: return sl_gelu_tanh(y);
    default: return sl_gelu_erf(y);
    }
}

/* Two shapes that broadcast, in one way of many. */
static void broadcast_pair(maker *m, sl_tensor **a, sl_tensor **b)
{
    int64_t shape[3] = {size(m), size(m), size(m)};
    int64_t other[3];
    memcpy(other, shape, sizeof other);
    int dims = test_random_int(&m->state, 1, 3);
    for (int i = 0; i < 3; i++) {
        if (test_random_int(&m->state, 0, 2) == 0)
            other[i] = 1;
    }
    *a = leaf(m, 3, shape);
    *b = leaf(m, dims, other + 3 - dims);
    if (toss(m)) {
        sl_tensor *swap = *a;
        *a = *b;
        *b = swap;
    }
}

static sl_tensor *make_add(maker *m)
{
    sl_tensor *a, *b;
    broadcast_pair(m, &a, &b);
    sl_tensor *y = maybe_transposed(m, sl_add(a, b));
    return sl_add(y, sl_silu(y));
}

static sl_tensor *make_sub(maker *m)
{
    sl_tensor *a, *b;
    broadcast_pair(m, &a, &b);
    return sl_sub(a, b);
}

static sl_tensor *make_mul(maker *m)
{
    sl_tensor *a, *b;
    broadcast_pair(m, &a, &b);
    return sl_mul(a, b);
}

static sl_tensor *make_mask(maker *m)
{
    int64_t shape[2] = {size(m), size(m)};
    sl_tensor *mask = sl_input(m->graph, "mask", SL_BOOL, toss(m) ? 2 : 1,
                               toss(m) ? shape : shape, SL_NO_GRADIENT);
    if (sl_tensor_dims(mask) == 1)
        return sl_mul(leaf(m, 2, (int64_t[]){shape[1], shape[0]}), mask);
    return sl_mul(leaf(m, 2, shape), mask);
}

static sl_tensor *make_scale(maker *m)
{
    return sl_scale(maybe_transposed(m, any(m)), -1.7);
}

/* A double in between, so that finite differences see no rounding. */
static sl_tensor *make_cast(maker *m)
{
    return sl_cast(sl_cast(maybe_transposed(m, any(m)), SL_F64), m->dtype);
}

static sl_tensor *make_relu(maker *m)
{
    return sl_relu(maybe_transposed(m, any(m)));
}

static sl_tensor *make_gelu_tanh(maker *m)
{
    return sl_gelu_tanh(sl_scale(any(m), 3));
}

static sl_tensor *make_gelu_erf(maker *m)
{
    return sl_gelu_erf(sl_scale(any(m), 3));
}

static sl_tensor *make_silu(maker *m)
{
    return sl_silu(sl_scale(any(m), 4));
}

static sl_tensor *make_layer_norm(maker *m)
{
    sl_tensor *x = maybe_transposed(m, any(m));
    int64_t last = sl_tensor_shape(x)[sl_tensor_dims(x) - 1];
    sl_tensor *weight = leaf(m, 1, &last);
    bool is_both = test_random_int(&m->state, 0, 3) == 0;
    return sl_layer_norm(x, weight, is_both ? weight : leaf(m, 1, &last), 1e-2);
}

static sl_tensor *make_rms_norm(maker *m)
{
    sl_tensor *x = maybe_transposed(m, any(m));
    int64_t last = sl_tensor_shape(x)[sl_tensor_dims(x) - 1];
    return sl_rms_norm(x, leaf(m, 1, &last), 1e-2);
}

/* A block with a residual: the sum is normed, and read again after that. */
static sl_tensor *make_residual_norm(maker *m)
{
    int64_t shape[] = {size(m), size(m)};
    sl_tensor *h = leaf(m, 2, shape), *x = leaf(m, 2, shape), *y;
    if (toss(m)) /* a row that is broadcast is not summed in the norm */
        x = leaf(m, 1, &shape[1]);
    h = sl_add(h, x);
    if (toss(m))
        h = sl_silu(h); /* neither is what is not a sum */
    sl_tensor *weight = leaf(m, 1, &shape[1]);
    y = toss(m) ? sl_rms_norm(h, weight, 1e-2)
                : sl_layer_norm(h, weight, leaf(m, 1, &shape[1]), 1e-2);
    return toss(m) ? sl_add(h, sl_silu(y)) : sl_add(sl_silu(y), sl_scale(h, 2));
}

static sl_tensor *make_softmax(maker *m)
{
    return sl_softmax(sl_scale(maybe_transposed(m, any(m)), 3));
}

static sl_tensor *make_embedding(maker *m)
{
    sl_tensor *table = leaf(m, 2, (int64_t[]){7, size(m)});
    int dims = test_random_int(&m->state, 0, 2);
    return sl_embedding(table,
                        integers(m, dims, (int64_t[]){size(m), size(m)}));
}

static sl_tensor *make_add_positions(maker *m)
{
    int64_t length = size(m), width = size(m);
    sl_tensor *x = leaf(m, 3, (int64_t[]){size(m), length, width});
    return sl_add_positions(
        x, leaf(m, 2, (int64_t[]){length + size(m) - 1, width}));
}

static sl_tensor *make_attention(maker *m)
{
    int heads = test_random_int(&m->state, 1, 3);
    int64_t width = heads * size(m);
    int64_t shape[3] = {test_random_int(&m->state, 1, 2),
                        size(m) * (m->largest > 10 ? 3 : 1), width};
    sl_tensor *parts[3];
    if (toss(m)) {
        /* As GPT-2 has them: three parts of one row. */
        shape[2] *= 3;
        sl_split(sl_scale(leaf(m, 3, shape), 2), -1, 3, parts);
    } else {
        for (int i = 0; i < 3; i++)
            parts[i] = sl_scale(leaf(m, 3, shape), 2);
    }
    return sl_causal_attention(parts[0], parts[1], parts[2], heads);
}

/* Attention where q, k or v needs no gradient, or only for a parameter. */
static sl_tensor *make_attention_part(maker *m)
{
    int64_t shape[3] = {2, size(m), 4};
    sl_tensor *parts[3];
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "part%d", i);
        parts[i] = sl_input(m->graph, name, m->dtype, 3, shape,
                            toss(m) ? SL_GRADIENT : SL_NO_GRADIENT);
    }
    sl_tensor *learned = sl_parameter(m->graph, "learned", m->dtype, 3, shape);
    parts[test_random_int(&m->state, 0, 2)] = learned;
    return sl_causal_attention(parts[0], parts[1], parts[2], 2);
}

static sl_tensor *make_reshape(maker *m)
{
    int64_t a = size(m), b = size(m), c = size(m);
    sl_tensor *x = leaf(m, 3, (int64_t[]){a, b, c});
    if (toss(m))
        x = sl_transpose(x, test_random_int(&m->state, 0, 2), 1);
    sl_tensor *flat = sl_reshape(x, SL_SHAPE(-1));
    return sl_mul(flat, sl_reshape(x, SL_SHAPE(a * b * c)));
}

static sl_tensor *make_transpose(maker *m)
{
    sl_tensor *x = leaf(m, 3, (int64_t[]){size(m), size(m), size(m)});
    return sl_silu(sl_transpose(sl_transpose(x, 0, 2), 1, -1));
}

static sl_tensor *make_slice(maker *m)
{
    int64_t shape[3] = {size(m), size(m), size(m)};
    sl_tensor *x = leaf(m, 3, shape);
    int dim = test_random_int(&m->state, 0, 2);
    int64_t start = test_random_int(&m->state, 0, (int)shape[dim] - 1);
    int64_t length = test_random_int(&m->state, 1, (int)(shape[dim] - start));
    sl_tensor *part = sl_slice(sl_silu(x), dim, start, length);
    /* Twice, so that slices overlap; and of a leaf itself. */
    sl_tensor *again = sl_slice(x, dim, start, length);
    return sl_mul(sl_mul(part, part), sl_add(again, sl_slice(part, -1, 0, 1)));
}

static sl_tensor *make_split(maker *m)
{
    int64_t shape[2] = {size(m), 3 * size(m)};
    sl_tensor *parts[3];
    sl_split(sl_silu(leaf(m, 2, shape)), 1, 3, parts);
    return sl_add(sl_mul(parts[0], parts[2]), parts[1]);
}

static sl_tensor *make_concat(maker *m)
{
    int64_t shape[3] = {size(m), size(m), size(m)};
    int dim = test_random_int(&m->state, 0, 2);
    int count = test_random_int(&m->state, 1, 4);
    sl_tensor *parts[4];
    for (int i = 0; i < count; i++) {
        shape[dim] = size(m);
        parts[i] = leaf(m, 3, shape);
        if (toss(m))
            parts[i] = sl_silu(parts[i]);
    }
    return sl_concat(parts, count, dim);
}

/* Products written straight into the concat. */
static sl_tensor *make_concat_of_products(maker *m)
{
    int64_t a = size(m), b = size(m), c = size(m);
    sl_tensor *parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = sl_matmul(leaf(m, 2, (int64_t[]){a, b}),
                             leaf(m, 2, (int64_t[]){b, c}));
    return sl_silu(sl_concat(parts, 3, test_random_int(&m->state, 0, 1)));
}

/* Products of which one size is 1, of operands with gaps between rows. */
static sl_tensor *make_strided_vectors(maker *m)
{
    int64_t a = size(m), b = size(m), g = toss(m) ? 1 : size(m);
    sl_tensor *column =
        sl_slice(leaf(m, 3, (int64_t[]){g, a, 3}), 2, 1, 1); /* (g, a, 1) */
    if (toss(m))
        return sl_matmul(sl_transpose(column, 1, 2),
                         leaf(m, 3, (int64_t[]){g, a, b}));
    return sl_matmul(column,
                     sl_slice(leaf(m, 3, (int64_t[]){g, 2, b}), 1, 0, 1));
}

static sl_tensor *make_sum(maker *m)
{
    sl_tensor *x = maybe_transposed(m, any(m));
    int dim =
        toss(m) ? SL_ALL : test_random_int(&m->state, 0, sl_tensor_dims(x) - 1);
    return sl_sum(x, dim);
}

static sl_tensor *make_mean(maker *m)
{
    sl_tensor *x = maybe_transposed(m, any(m));
    int dim =
        toss(m) ? SL_ALL : test_random_int(&m->state, 0, sl_tensor_dims(x) - 1);
    return sl_mean(x, dim);
}

static sl_tensor *make_mse(maker *m)
{
    int64_t shape[2] = {size(m), size(m)};
    return sl_mse(leaf(m, 2, shape), leaf(m, 2, shape));
}

static sl_tensor *make_cross_entropy(maker *m)
{
    int64_t rows = size(m) + 1;
    sl_tensor *x = sl_scale(leaf(m, 2, (int64_t[]){rows, 7}), 3);
    return sl_cross_entropy(x, integers(m, 1, &rows), 6);
}

static sl_tensor *make_dropout(maker *m)
{
    return sl_dropout(sl_dropout(any(m), 0.3), 0.1);
}

static const struct {
    const char *name;
    sl_tensor *(*make)(maker *m);
} cases[] = {
    {"matmul", make_matmul},
    {"summed products", make_summed_products},
    {"sliced weight", make_sliced_weight},
    {"symmetric", make_symmetric},
    {"added parameter", make_added_parameter},
    {"linear", make_linear},
    {"sliced activation", make_sliced_activation},
    {"linear activation", make_linear_activation},
    {"add", make_add},
    {"sub", make_sub},
    {"mul", make_mul},
    {"mask", make_mask},
    {"scale", make_scale},
    {"cast", make_cast},
    {"relu", make_relu},
    {"gelu_tanh", make_gelu_tanh},
    {"gelu_erf", make_gelu_erf},
    {"silu", make_silu},
    {"layer_norm", make_layer_norm},
    {"rms_norm", make_rms_norm},
    {"residual_norm", make_residual_norm},
    {"softmax", make_softmax},
    {"embedding", make_embedding},
    {"add_positions", make_add_positions},
    {"attention", make_attention},
    {"attention in part", make_attention_part},
    {"reshape", make_reshape},
    {"transpose", make_transpose},
    {"slice", make_slice},
    {"split", make_split},
    {"concat", make_concat},
    {"concat of products", make_concat_of_products},
    {"strided vectors", make_strided_vectors},
    {"sum", make_sum},
    {"mean", make_mean},
    {"mse", make_mse},
    {"cross_entropy", make_cross_entropy},
    {"dropout", make_dropout},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

static sl_graph *build(int which, sl_dtype dtype, uint64_t seed, int largest)
{
    maker m = {.dtype = dtype, .state = seed, .largest = largest};
    assert_ok(sl_graph_create(&m.graph));
    sl_output(m.graph, "y", cases[which].make(&m), SL_GRADIENT);
    if (sl_graph_status(m.graph))
        fail_msg("%s, seed %llu: %s", cases[which].name,
                 (unsigned long long)seed, sl_error_text());
    return m.graph;
}

/* ------------------------------------------------- against differences -- */

static double *get_doubles(const test_stage *stage, sl_port_kind kind,
                           const char *name, size_t *count)
{
    return test_get(stage, kind, name, 0, count);
}

/* The sum of the outputs, weighted by the gradients they are given. */
static double weighted_output(const test_stage *stage)
{
    size_t count;
    test_run(stage, "F", 0);
    double *y = get_doubles(stage, SL_PORT_OUTPUT, "y", &count);
    double *dy = get_doubles(stage, SL_PORT_OUTPUT_GRADIENT, "y", NULL);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += y[i] * dy[i];
    free(y);
    free(dy);
    return sum;
}

/* Moves every element of a leaf up and down and compares the slope. */
static void check_leaf(const test_stage *stage, sl_port_kind kind,
                       sl_port_kind gradient_kind, const char *name,
                       const char *what, uint64_t seed)
{
    const double step = 1e-5;
    size_t count;
    double *value = get_doubles(stage, kind, name, &count);
    double *gradient = get_doubles(stage, gradient_kind, name, NULL);
    double off = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double at = value[i];
        value[i] = at + step;
        test_put(stage, kind, name, 0, value);
        double up = weighted_output(stage);
        value[i] = at - step;
        test_put(stage, kind, name, 0, value);
        double slope = (up - weighted_output(stage)) / (2 * step);
        value[i] = at;
        off += (slope - gradient[i]) * (slope - gradient[i]);
        norm += slope * slope;
    }
    test_put(stage, kind, name, 0, value);
    if (!(sqrt(off) <= 1e-7 * sqrt(norm) + 1e-8))
        fail_msg("%s, seed %llu: the gradient of %s is off by %g of %g", what,
                 (unsigned long long)seed, name, sqrt(off), sqrt(norm));
    free(value);
    free(gradient);
}

/* Keeps values away from zero, where ReLU has no slope. */
static void keep_off_zero(const test_stage *stage, sl_port_kind kind)
{
    for (int i = 0; i < sl_stage_port_count(stage->stage, kind); i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(stage->stage, kind, i, &port));
        if (port.dtype != SL_F64)
            continue;
        size_t count;
        double *value = get_doubles(stage, kind, port.name, &count);
        for (size_t k = 0; k < count; k++)
            value[k] += value[k] < 0 ? -0.05 : 0.05;
        test_put(stage, kind, port.name, 0, value);
        free(value);
    }
}

static void check_gradients(int which, uint64_t seed)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    sl_graph *graph = build(which, SL_F64, seed, 4);
    test_stage stage = test_compile(graph, &options, 1);
    test_fill_all(&stage, seed, 0, 7);
    keep_off_zero(&stage, SL_PORT_PARAMETER);
    keep_off_zero(&stage, SL_PORT_INPUT);
    test_run(&stage, "FB", 0);
    const sl_port_kind kinds[2][2] = {
        {SL_PORT_PARAMETER, SL_PORT_PARAMETER_GRADIENT},
        {SL_PORT_INPUT, SL_PORT_INPUT_GRADIENT}};
    for (int k = 0; k < 2; k++) {
        int count = sl_stage_port_count(stage.stage, kinds[k][1]);
        for (int i = 0; i < count; i++) {
            sl_port port;
            assert_ok(sl_stage_port_at(stage.stage, kinds[k][1], i, &port));
            check_leaf(&stage, kinds[k][0], kinds[k][1], port.name,
                       cases[which].name, seed);
        }
    }
    test_release(&stage);
    sl_graph_destroy(graph);
}

static void ref_gradients_match_central_differences(void **state)
{
    (void)state;
    for (int which = 0; which < CASE_COUNT; which++) {
        for (uint64_t seed = 1; seed <= 40; seed++)
            check_gradients(which, seed * 7919);
    }
}

/* ----------------------------------------------------------- against ref -- */

static void compare_backends(int which, sl_dtype precision, uint64_t seed,
                             int largest, int threads)
{
    /* Some of cuBLASLt's products round before they add the bias, which moves
     * small results over a ReLU's edge. */
    double half = test_is_on_gpu() ? 5e-2 : 1e-2;
    double tolerance = precision == SL_BF16 ? half : 1e-5;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph = build(which, SL_F32, seed, largest);
    assert_ok(sl_graph_set_precision(graph, precision));
    options.backend = "ref";
    test_stage ref = test_compile(graph, &options, 1);
    options.backend = "cpu";
    options.threads = threads;
    test_stage fast = test_compile(graph, &options, 1);
    test_fill_all(&ref, seed, 0, 7);
    test_fill_all(&fast, seed, 0, 7);
    /* Twice: gradients of parameters add up, those of inputs do not. */
    test_run(&fast, "FBFIW", 0);
    test_run(&ref, "FB", 0);
    test_context("%s, seed %llu, %s, %s", cases[which].name,
                 (unsigned long long)seed, sl__vector_choose()->name,
                 sl_dtype_text(precision));
    test_assert_same(&fast, &ref, SL_PORT_OUTPUT, 0, tolerance);
    test_assert_same(&fast, &ref, SL_PORT_INPUT_GRADIENT, 0, tolerance);
    test_run(&ref, "FIW", 0);
    test_assert_same(&fast, &ref, SL_PORT_PARAMETER_GRADIENT, 0, tolerance);
    test_release(&ref);
    test_release(&fast);
    sl_graph_destroy(graph);
}

static void compare_cases(void)
{
    for (int which = 0; which < CASE_COUNT; which++) {
        for (uint64_t seed = 1; seed <= 24; seed++)
            for (int half = 0; half < 2; half++)
                compare_backends(which, half ? SL_BF16 : SL_F32, seed * 104729,
                                 seed % 2 ? 40 : 5, seed % 3 ? 1 : 2);
    }
}

static void cpu_matches_ref_on_every_instruction_set(void **state)
{
    (void)state;
    test_with_each_way(compare_cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_gradients_match_central_differences),
        cmocka_unit_test(cpu_matches_ref_on_every_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * See random_graph.h. */
#include "random_graph.h"

#include <stdio.h>
#include <string.h>

enum { TENSORS_MAX = 96, WEIGHTS_MAX = 16 };

typedef struct grower {
    sl_graph *graph;
    sl_dtype dtype;
    test_choose_fn choose;
    void *context;
    sl_tensor *tensors[TENSORS_MAX]; /* floats of 1 to 3 dimensions */
    int count;
    sl_tensor *weights[WEIGHTS_MAX]; /* matrices to be shared */
    int weight_count;
    int named;
} grower;

static int choose(grower *g, int from, int to)
{
    return g->choose(g->context, from, to);
}

static void keep(grower *g, sl_tensor *tensor)
{
    if (tensor && g->count < TENSORS_MAX)
        g->tensors[g->count++] = tensor;
}

/* Recent ones more often than old ones. */
static sl_tensor *some(grower *g)
{
    int from = choose(g, 0, 2) ? g->count * 2 / 3 : 0;
    return g->tensors[choose(g, from, g->count - 1)];
}

static int64_t dim_size(const sl_tensor *x, int dim)
{
    return sl_tensor_shape(x)[dim < 0 ? sl_tensor_dims(x) + dim : dim];
}

static sl_tensor *parameter(grower *g, int dims, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "p%d", g->named++);
    sl_tensor *made = sl_parameter(g->graph, name, g->dtype, dims, shape);
    if (choose(g, 0, 7) == 0) {
        snprintf(name, sizeof name, "q%d", g->named);
        sl_alias(made, name);
    }
    return made;
}

/* What is not learned: small numbers of either sign. */
static sl_tensor *buffer(grower *g, int dims, const int64_t *shape)
{
    char name[16];
    _Alignas(double) char data[4096];
    int64_t count = 1;
    snprintf(name, sizeof name, "b%d", g->named++);
    for (int i = 0; i < dims; i++)
        count *= shape[i];
    if (count > (int64_t)(sizeof data / sizeof(double)))
        return sl_buffer(g->graph, name, g->dtype, dims, shape, NULL);
    for (int64_t i = 0; i < count; i++) {
        double value = (double)((i * 5 + g->named) % 9 - 4) * 0.25;
        if (g->dtype == SL_F64)
            ((double *)(void *)data)[i] = value;
        else
            ((float *)(void *)data)[i] = (float)value;
    }
    return sl_buffer(g->graph, name, g->dtype, dims, shape, data);
}

static sl_tensor *grow_linear(grower *g, sl_tensor *x)
{
    int64_t in = dim_size(x, -1), out = choose(g, 1, 6);
    for (int i = 0; i < g->weight_count && choose(g, 0, 1); i++) {
        sl_tensor *w = g->weights[i];
        if (dim_size(w, 1) == in)
            return sl_linear(x, w, NULL, SL_OUT_IN);
        if (dim_size(w, 0) == in)
            return sl_linear(x, w, NULL, SL_IN_OUT);
    }
    bool out_in = choose(g, 0, 1);
    sl_tensor *w =
        parameter(g, 2, (int64_t[]){out_in ? out : in, out_in ? in : out});
    sl_tensor *bias = choose(g, 0, 1) ? parameter(g, 1, &out) : NULL;
    if (g->weight_count < WEIGHTS_MAX && w)
        g->weights[g->weight_count++] = w;
    sl_tensor *y = sl_linear(x, w, bias, out_in ? SL_OUT_IN : SL_IN_OUT);
    if (y && choose(g, 0, 3) == 0)
        y = sl_slice(y, 0, dim_size(y, 0) / 2, 1);
    switch (choose(g, 0, 3)) {
    case 0: return sl_relu(y);
    case 1: return sl_gelu_tanh(y);
    default: return y;
    }
}

/* Another tensor of the same shape, or a new parameter that broadcasts. */
static sl_tensor *partner(grower *g, sl_tensor *x)
{
    for (int i = 0; i < 6; i++) {
        sl_tensor *other = some(g);
        if (sl_tensor_dims(other) == sl_tensor_dims(x) &&
            memcmp(sl_tensor_shape(other), sl_tensor_shape(x),
                   sizeof(int64_t) * (size_t)sl_tensor_dims(x)) == 0)
            return other;
    }
    if (choose(g, 0, 4) == 0)
        return buffer(g, sl_tensor_dims(x), sl_tensor_shape(x));
    if (choose(g, 0, 2) == 0)
        return parameter(g, sl_tensor_dims(x), sl_tensor_shape(x));
    int64_t last = choose(g, 0, 3) ? dim_size(x, -1) : 1;
    return parameter(g, 1, &last);
}

static sl_tensor *grow_binary(grower *g, sl_tensor *x)
{
    sl_tensor *y = partner(g, x);
    switch (choose(g, 0, 2)) {
    case 0: return sl_sub(x, y);
    case 1: return sl_mul(x, y);
    default: return sl_add(x, y);
    }
}

static sl_tensor *grow_unary(grower *g, sl_tensor *x)
{
    switch (choose(g, 0, 7)) {
    case 0: return sl_scale(x, 0.5);
    case 1: return sl_gelu_tanh(x);
    case 2: return sl_gelu_erf(x);
    case 3: return sl_silu(x);
    case 4: return sl_softmax(x);
    case 5: return sl_dropout(x, 0.3);
    case 6: return sl_cast(sl_cast(x, SL_F64), g->dtype); /* The same bits. */
    default: return sl_relu(x);
    }
}

static sl_tensor *grow_norm(grower *g, sl_tensor *x)
{
    int64_t last = dim_size(x, -1);
    sl_tensor *weight = parameter(g, 1, &last);
    if (choose(g, 0, 1))
        return sl_rms_norm(x, weight, 0.1);
    return sl_layer_norm(x, weight, parameter(g, 1, &last), 0.1);
}

static sl_tensor *grow_view(grower *g, sl_tensor *x)
{
    int dims = sl_tensor_dims(x), dim = choose(g, 0, dims - 1);
    int64_t size = dim_size(x, dim);
    switch (choose(g, 0, 2)) {
    case 0: return sl_transpose(x, dim, choose(g, 0, dims - 1));
    case 1: {
        int start = choose(g, 0, (int)size - 1);
        return sl_slice(x, dim, start, choose(g, 1, (int)size - start));
    }
    default:
        if (dims == 3)
            return sl_reshape(x, SL_SHAPE(-1, dim_size(x, 2)));
        return sl_reshape(x, SL_SHAPE(1, -1, dim_size(x, -1)));
    }
}

static sl_tensor *grow_concat(grower *g, sl_tensor *x)
{
    sl_tensor *parts[3] = {x, partner(g, x), x};
    if (!parts[1] || sl_tensor_dims(parts[1]) != sl_tensor_dims(x) ||
        dim_size(parts[1], 0) != dim_size(x, 0))
        parts[1] = x;
    return sl_concat(parts, choose(g, 1, 3),
                     choose(g, 0, sl_tensor_dims(x) - 1));
}

static sl_tensor *grow_attention(grower *g, sl_tensor *x)
{
    sl_tensor *parts[3];
    if (sl_tensor_dims(x) != 3)
        x = sl_reshape(x, SL_SHAPE(1, -1, dim_size(x, -1)));
    int64_t in = dim_size(x, 2), out = 6;
    sl_split(
        sl_linear(x, parameter(g, 2, (int64_t[]){out, in}), NULL, SL_OUT_IN),
        -1, 3, parts);
    /* Now and then from one part alone. */
    if (choose(g, 0, 4) == 0)
        parts[1] = parts[0];
    return sl_causal_attention(parts[0], parts[1], parts[2], choose(g, 1, 2));
}

static sl_tensor *grow_reduce(grower *g, sl_tensor *x)
{
    if (sl_tensor_dims(x) < 2)
        return x;
    int dim = choose(g, 0, sl_tensor_dims(x) - 1);
    return choose(g, 0, 1) ? sl_sum(x, dim) : sl_mean(x, dim);
}

static void grow(grower *g)
{
    sl_tensor *x = some(g);
    switch (choose(g, 0, 9)) {
    case 0:
    case 1: keep(g, grow_linear(g, x)); break;
    case 2:
    case 3: keep(g, grow_binary(g, x)); break;
    case 4: keep(g, grow_unary(g, x)); break;
    case 5: keep(g, grow_norm(g, x)); break;
    case 6: keep(g, grow_view(g, x)); break;
    case 7: keep(g, grow_concat(g, x)); break;
    case 8: keep(g, grow_attention(g, x)); break;
    default: keep(g, grow_reduce(g, x)); break;
    }
}

static void add_inputs(grower *g)
{
    int count = choose(g, 1, 3);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        int dims = choose(g, 1, 3);
        int64_t shape[3] = {choose(g, 1, 3), choose(g, 1, 4), choose(g, 1, 5)};
        keep(g, sl_input(g->graph, name, g->dtype, dims, shape + 3 - dims,
                         choose(g, 0, 3) ? SL_GRADIENT : SL_NO_GRADIENT));
    }
    if (choose(g, 0, 2) == 0) {
        sl_tensor *ids = sl_input(g->graph, "ids", SL_I64,
                                  SL_SHAPE(2, choose(g, 1, 4)), SL_NO_GRADIENT);
        keep(g, sl_embedding(parameter(g, 2, (int64_t[]){TEST_IDS, 4}), ids));
        if (choose(g, 0, 1))
            sl_output(g->graph, "ids", ids, SL_NO_GRADIENT);
    }
    if (choose(g, 0, 2) == 0) {
        sl_tensor *x = some(g);
        sl_tensor *mask = sl_input(g->graph, "mask", SL_BOOL, sl_tensor_dims(x),
                                   sl_tensor_shape(x), SL_NO_GRADIENT);
        keep(g, sl_mul(x, mask));
    }
}

static void add_outputs(grower *g)
{
    int count = choose(g, 1, 3);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        sl_output(g->graph, name, some(g),
                  choose(g, 0, 3) ? SL_GRADIENT : SL_NO_GRADIENT);
    }
    if (choose(g, 0, 2) == 0)
        sl_loss(g->graph, sl_mean(some(g), SL_ALL));
}

static void show_all(grower *g)
{
    for (int i = 0; i < g->count; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        sl_output(g->graph, name, g->tensors[i], SL_NO_GRADIENT);
    }
}

static sl_graph *make_graph(test_choose_fn choose_fn, void *context,
                            sl_dtype dtype, bool show)
{
    grower g = {.dtype = dtype == SL_BF16 ? SL_F32 : dtype,
                .choose = choose_fn,
                .context = context};
    if (sl_graph_create(&g.graph))
        return NULL;
    add_inputs(&g);
    int steps = choose(&g, 4, 28);
    for (int i = 0; i < steps; i++)
        grow(&g);
    add_outputs(&g);
    if (show)
        show_all(&g);
    if (dtype == SL_BF16)
        sl_graph_set_precision(g.graph, dtype);
    return g.graph;
}

sl_graph *test_random_graph(test_choose_fn choose_fn, void *context,
                            sl_dtype dtype)
{
    return make_graph(choose_fn, context, dtype, false);
}

static int choose_by_seed(void *context, int from, int to)
{
    return test_random_int(context, from, to);
}

static sl_graph *make_seeded(uint64_t seed, sl_dtype dtype, bool show)
{
    uint64_t state = seed;
    sl_graph *graph = make_graph(choose_by_seed, &state, dtype, show);
    if (sl_graph_status(graph))
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_error_text());
    return graph;
}

sl_graph *test_seeded_graph(uint64_t seed, sl_dtype dtype)
{
    return make_seeded(seed, dtype, false);
}

sl_graph *test_shown_graph(uint64_t seed, sl_dtype dtype)
{
    return make_seeded(seed, dtype, true);
}

/* SPDX-License-Identifier: MIT
 *
 * Bytes as calls that build a graph: first sensible ones, whose stage must
 * compile and run, with I and W giving the bits of B; then any, with absurd
 * sizes and dimensions, which are refused or right. */
#include "fuzz.h"

#include "random_graph.h"

#include <string.h>

typedef struct bytes {
    const uint8_t *data;
    size_t left;
} bytes;

static uint8_t next(bytes *from)
{
    if (from->left == 0)
        return 0;
    from->left--;
    return *from->data++;
}

static int choose(void *context, int from, int to)
{
    return from + next(context) % (to - from + 1);
}

/* -------------------------------------------------------------- running -- */

static void fill(const test_stage *stage, sl_port_kind kind)
{
    uint64_t state = (uint64_t)kind;
    for (int i = 0; i < sl_stage_port_count(stage->stage, kind); i++) {
        sl_port port;
        must(!sl_stage_port_at(stage->stage, kind, i, &port));
        void *data = calloc(1, (size_t)port.bytes);
        must(data);
        test_fill(&state, port.dtype, data,
                  (size_t)port.bytes / sl_dtype_bytes(port.dtype));
        must(!sl_memory_write(stage->memory, &port, 0, data,
                              (size_t)port.bytes));
        free(data);
    }
}

static void run(const test_stage *stage, const char *programs)
{
    for (; *programs; programs++) {
        sl_program program = (sl_program)(strchr("FIWB", *programs) - "FIWB");
        must(!sl_stage_run(stage->stage, program, stage->memory, 0, NULL));
    }
}

/* The gradients of all parameters; the caller frees. */
static char *gradients(const test_stage *stage, size_t *size)
{
    char *out = NULL;
    *size = 0;
    int count = sl_stage_port_count(stage->stage, SL_PORT_PARAMETER_GRADIENT);
    for (int i = 0; i < count; i++) {
        sl_port port;
        must(!sl_stage_port_at(stage->stage, SL_PORT_PARAMETER_GRADIENT, i,
                               &port));
        out = realloc(out, *size + (size_t)port.bytes);
        must(out);
        must(!sl_memory_read(stage->memory, &port, 0, out + *size,
                             (size_t)port.bytes));
        *size += (size_t)port.bytes;
    }
    return out;
}

static void try_stage(const sl_graph *graph, const char *backend,
                      bool recompute)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    test_stage stage;
    options.backend = backend;
    options.recompute = recompute;
    must(!sl_stage_compile(graph, &options, &stage.stage));
    if (sl_plan_bytes(stage.stage, 1) > 1 << 20) {
        sl_stage_destroy(stage.stage);
        return;
    }
    must(!sl_memory_create(stage.stage, 1, &stage.memory));
    fill(&stage, SL_PORT_PARAMETER);
    fill(&stage, SL_PORT_INPUT);
    fill(&stage, SL_PORT_OUTPUT_GRADIENT);
    size_t size, other_size;
    run(&stage, "FB");
    char *whole = gradients(&stage, &size);
    sl_memory_zero_gradients(stage.memory);
    run(&stage, "FIW");
    char *split = gradients(&stage, &other_size);
    must(size == other_size && (!size || memcmp(whole, split, size) == 0));
    free(whole);
    free(split);
    sl_memory_destroy(stage.memory);
    sl_stage_destroy(stage.stage);
}

/* ----------------------------------------------------------------- wild -- */

enum { KEPT = 32 };

static int64_t wild_size(bytes *from)
{
    static const int64_t sizes[] = {0,
                                    -1,
                                    INT64_MAX,
                                    INT64_MIN,
                                    (int64_t)1 << 31,
                                    (int64_t)1 << 40,
                                    (int64_t)1 << 62,
                                    3};
    uint8_t byte = next(from);
    return byte < 200 ? byte % 9 : sizes[byte % 8];
}

static void wild_shape(bytes *from, int *dims, int64_t shape[8])
{
    *dims = next(from) % 8;
    for (int i = 0; i < 8; i++)
        shape[i] = wild_size(from);
}

static sl_tensor *wild_leaf(sl_graph *graph, bytes *from, int number)
{
    int dims;
    int64_t shape[8];
    char name[16];
    snprintf(name, sizeof name, "t%d", number);
    uint8_t kind = next(from);
    wild_shape(from, &dims, shape);
    if (kind % 2)
        return sl_parameter(graph, name, (sl_dtype)(kind / 2 % 2), dims, shape);
    return sl_input(graph, name, (sl_dtype)(kind / 2 % 6), dims, shape,
                    kind / 16 % 2 ? SL_GRADIENT : SL_NO_GRADIENT);
}

static sl_tensor *wild_op(bytes *from, sl_tensor *const t[KEPT])
{
    sl_tensor *a = t[next(from) % KEPT], *b = t[next(from) % KEPT];
    sl_tensor *c = t[next(from) % KEPT], *parts[4] = {a, b, c, a};
    int dims, dim = (int8_t)next(from) / 16;
    int64_t shape[8];
    switch (next(from) % 22) {
    case 0: return sl_matmul(a, b);
    case 1: return sl_linear(a, b, dim < 0 ? c : NULL, (sl_layout)(dim & 1));
    case 2: return sl_add(a, b);
    case 3: return sl_sub(a, b);
    case 4: return sl_mul(a, b);
    case 5: return sl_scale(a, dim);
    case 6: return sl_gelu_erf(sl_relu(a));
    case 7: return sl_layer_norm(a, b, c, dim);
    case 8: return sl_rms_norm(a, b, 1);
    case 9: return sl_softmax(a);
    case 10: return sl_embedding(a, b);
    case 11: return sl_add_positions(a, b);
    case 12: return sl_causal_attention(a, b, c, dim);
    case 13: wild_shape(from, &dims, shape); return sl_reshape(a, dims, shape);
    case 14: return sl_transpose(a, dim, next(from) % 4);
    case 15: return sl_slice(a, dim, wild_size(from), wild_size(from));
    case 16: sl_split(a, dim, 1 + next(from) % 4, parts); return parts[0];
    case 17: return sl_concat(parts, 1 + next(from) % 4, dim);
    case 18: return sl_sum(a, dim);
    case 19: return sl_mean(a, SL_ALL);
    case 20: return sl_mse(a, b);
    default: return sl_cross_entropy(a, b, dim);
    }
}

/* Calls of any kind, up to the first that is refused. */
static void build_wild(bytes from, sl_dtype precision)
{
    sl_graph *graph;
    sl_tensor *tensors[KEPT] = {NULL};
    must(!sl_graph_create(&graph));
    for (int i = 0; i < KEPT && from.left; i++) {
        tensors[i] = next(&from) % 3 == 0 || i < 3 ? wild_leaf(graph, &from, i)
                                                   : wild_op(&from, tensors);
        must(!tensors[i] || !sl_graph_status(graph));
        if (sl_graph_status(graph))
            break;
    }
    for (int i = KEPT - 1; i >= 0; i--) {
        if (!tensors[i])
            continue;
        sl_output(graph, "y", tensors[i],
                  sl_tensor_dtype(tensors[i]) <= SL_F64 ? SL_GRADIENT
                                                        : SL_NO_GRADIENT);
        break;
    }
    sl_stage *stage;
    if (!sl_graph_status(graph))
        must(!sl_graph_set_precision(graph, precision));
    if (!sl_graph_status(graph) && !sl_stage_compile(graph, NULL, &stage)) {
        must(sl_plan_bytes(stage, 1) >= 0);
        bool small = sl_plan_bytes(stage, 1) <= 1 << 16;
        sl_memory *memory;
        if (small && !sl_memory_create(stage, 1, &memory)) {
            sl_status status =
                sl_stage_run(stage, SL_PROGRAM_F, memory, 0, NULL);
            if (!status)
                must(!sl_stage_run(stage, SL_PROGRAM_B, memory, 0, NULL));
            sl_memory_destroy(memory);
        }
        sl_stage_destroy(stage);
    }
    sl_graph_destroy(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bytes from = {data, size};
    uint8_t way = next(&from);
    if (way % 2) {
        build_wild(from, way / 2 % 2 ? SL_BF16 : SL_F32);
        return 0;
    }
    sl_graph *graph =
        test_random_graph(choose, &from, way / 8 % 2 ? SL_BF16 : SL_F32);
    must(graph && !sl_graph_status(graph));
    try_stage(graph, way / 2 % 2 ? "ref" : "cpu", way / 4 % 2);
    sl_graph_destroy(graph);
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * Which kernel an op gets. What is known of the geometry is worked out here,
 * into the struct that the kernel is given; a run fills in the addresses. */
#include "tensor/backends/cuda/gpu.h"

#include "base/memory.h"
#include "base/try.h"
#include "tensor/random.h"

#include <assert.h>
#include <string.h>

/* kernel->private of an op that is neither a product nor an attention. */
typedef struct prepared {
    sl__cuda_kernel which, before, end; /* of several launches */
    int64_t blocks, rows;
    int threads;
    union {
        map_params map;
        move_params move;
        reduce_params reduce;
        columns_params columns;
        norm_params norm;
        norm_grad_params norm_grad;
        softmax_params softmax;
        loss_params loss;
        mse_params mse;
        embedding_params embedding;
    } p;
} prepared;

#define RUN const sl__kernel *kernel, void *const *p, const sl__run *run

static const sl__arg *result_of(const sl__kernel *kernel)
{
    return &kernel->args[kernel->operand_count];
}

static int64_t row_count(const sl__arg *arg)
{
    int64_t columns = sl__last_size(arg);
    return columns ? sl__arg_count(arg) / columns : 0;
}

/* Where a kernel's scratch lies: after operands and results. */
static void *scratch_of(const sl__kernel *kernel, void *const *p)
{
    return p[kernel->arg_count - 1];
}

static bool is_vector_dtype(sl_dtype dtype)
{
    return dtype == SL_F32 || dtype == SL_BF16;
}

/* Whether all operands and results are f32 or bf16. */
static bool is_narrow(const sl__kernel *kernel)
{
    for (int i = 0; i < kernel->arg_count; i++) {
        if (kernel->args[i].pool != SL__POOL_NONE &&
            kernel->args[i].dtype == SL_F64)
            return false;
    }
    return true;
}

/* Whether rows of this many columns can be read in eights, from where the
 * pointers of this run are. */
static bool reads_eights(int64_t columns, int count, void *const *p)
{
    for (int i = 0; i < count; i++) {
        if (!sl__cuda_is_aligned(p[i]))
            return false;
    }
    return columns % 8 == 0;
}

/* ------------------------------------------------- element by element -- */

int sl__cuda_map_op(sl__op op)
{
    switch (op) {
    case SL__ADD: return MAP_ADD;
    case SL__SUB: return MAP_SUB;
    case SL__MUL: return MAP_MUL;
    case SL__SCALE: return MAP_SCALE;
    case SL__RELU: return MAP_RELU;
    case SL__GELU_TANH: return MAP_GELU_TANH;
    case SL__GELU_ERF: return MAP_GELU_ERF;
    case SL__SILU: return MAP_SILU;
    case SL__RELU_GRAD: return MAP_RELU_GRAD;
    case SL__GELU_TANH_GRAD: return MAP_GELU_TANH_GRAD;
    case SL__GELU_ERF_GRAD: return MAP_GELU_ERF_GRAD;
    case SL__SILU_GRAD: return MAP_SILU_GRAD;
    case SL__DROPOUT: return MAP_DROPOUT;
    case SL__COPY:
    case SL__CAST: return MAP_COPY;
    default: return -1;
    }
}

/* Whether the second operand is dense and repeated, in pieces of eight. */
static bool repeats(const map_params *m)
{
    bool strided = m->dims == 2 && m->b && m->stride[0][1] == 1 &&
                   m->stride[1][1] == 1 && m->stride[2][1] == 1 &&
                   m->stride[1][0] == 0 && m->stride[0][0] == m->shape[1] &&
                   m->stride[2][0] == m->shape[1];
    return strided && !m->adds && m->shape[1] % 8 == 0 &&
           m->dtype[1] != DT_BOOL && sl__cuda_is_aligned(m->a) &&
           sl__cuda_is_aligned(m->b) && sl__cuda_is_aligned(m->out);
}

static sl_status launch_repeated(const sl__cuda_stream *stream,
                                 const map_params *m)
{
    map_params r = *m;
    r.shape[0] = m->shape[1];
    return sl__cuda_launch(stream, SL__CUDA_map_repeated,
                           sl__cuda_blocks(stream, m->count / 8), 1, 256, &r);
}

static sl_status launch_map(const sl__cuda_stream *stream, const map_params *m)
{
    bool is_dense = m->dims == 0 ||
                    (m->dims == 1 && m->stride[0][0] == 1 &&
                     (!m->b || m->stride[1][0] == 1) && m->stride[2][0] == 1);
    if (is_dense)
        return sl__cuda_map(stream, m);
    bool is_wide = m->dtype[0] == DT_F64 || m->dtype[2] == DT_F64;
    if (!is_wide && repeats(m))
        return launch_repeated(stream, m);
    return sl__cuda_launch(stream,
                           is_wide ? SL__CUDA_map_f64 : SL__CUDA_map_f32,
                           sl__cuda_blocks(stream, m->count), 1, 256, m);
}

static sl_status run_map(RUN)
{
    const prepared *own = kernel->private;
    map_params m = own->p.map;
    m.a = p[0];
    m.b = kernel->operand_count > 1 ? p[1] : NULL;
    m.out = p[kernel->operand_count];
    m.block = run->block;
    return launch_map(sl__cuda_of(run->stream), &m);
}

/* Dropout counts elements in order, so its shape stays as it is. */
static void prepare_map(const sl__gpu *gpu, sl__kernel *kernel, prepared *own)
{
    (void)gpu;
    map_params *m = &own->p.map;
    const sl__attributes *attributes = &kernel->node->attributes;
    const sl__arg *out = result_of(kernel), *first = &kernel->args[0];
    int inputs = kernel->operand_count;
    const sl__arg *args[] = {first, inputs > 1 ? &kernel->args[1] : first, out};
    m->op = sl__cuda_map_op(kernel->node->op);
    m->adds = kernel->adds;
    m->count = sl__arg_count(first);
    m->number = attributes->number;
    memcpy(m->shape, first->shape, sizeof first->shape);
    for (int i = 0; i < 3; i++) {
        m->dtype[i] = args[i]->dtype;
        memcpy(m->stride[i], args[i]->stride, sizeof args[i]->stride);
    }
    m->dims = sl__cuda_collapse(first->dims, 3, m->shape, m->stride);
    if (m->op != MAP_DROPOUT)
        return;
    m->number = 1 / (1 - attributes->number);
    m->integer = attributes->integer;
    m->threshold = sl__dropout_threshold(attributes->number);
}

/* ---------------------------------------------------------------- moves -- */

static sl_status launch_move(const sl__cuda_stream *stream,
                             const move_params *given)
{
    move_params m = *given;
    bool is_dense = m.dims == 0 ||
                    (m.dims == 1 && m.stride[0][0] == 1 && m.stride[1][0] == 1);
    if (is_dense)
        return stream->stream.buffers->copy((sl__stream *)&stream->stream, m.to,
                                            m.from,
                                            (size_t)(m.count * m.bytes));
    return sl__cuda_launch(stream, SL__CUDA_move,
                           sl__cuda_blocks(stream, m.count), 1, 256, &m);
}

static void describe_move(const sl__arg *from, const sl__arg *to,
                          move_params *m)
{
    m->bytes = (int)sl_dtype_bytes(from->dtype);
    m->count = sl__arg_count(from);
    memcpy(m->shape, from->shape, sizeof from->shape);
    memcpy(m->stride[0], from->stride, sizeof from->stride);
    memcpy(m->stride[1], to->stride, sizeof to->stride);
    m->dims = sl__cuda_collapse(from->dims, 2, m->shape, m->stride);
    /* Rows whose pieces of 16 bytes lie together are moved by these. */
    int per = 16 / m->bytes, last = m->dims - 1;
    bool joins = m->dims > 0 && m->stride[0][last] == 1 &&
                 m->stride[1][last] == 1 && m->shape[last] % per == 0;
    for (int d = 0; d < last && joins; d++)
        joins = m->stride[0][d] % per == 0 && m->stride[1][d] % per == 0;
    if (!joins || per == 1)
        return;
    m->bytes = 16;
    m->count /= per;
    m->shape[last] /= per;
    for (int d = 0; d < last; d++) {
        m->stride[0][d] /= per;
        m->stride[1][d] /= per;
    }
}

/* The same, of one element at a time. */
static void describe_narrow(const sl__arg *from, const sl__arg *to,
                            move_params *m)
{
    *m = (move_params){.bytes = (int)sl_dtype_bytes(from->dtype),
                       .count = sl__arg_count(from)};
    memcpy(m->shape, from->shape, sizeof from->shape);
    memcpy(m->stride[0], from->stride, sizeof from->stride);
    memcpy(m->stride[1], to->stride, sizeof to->stride);
    m->dims = sl__cuda_collapse(from->dims, 2, m->shape, m->stride);
}

static sl_status move_box(const sl__cuda_stream *stream, const sl__arg *from,
                          const void *source, const sl__arg *to, void *target)
{
    move_params m = {0};
    if (sl__cuda_is_aligned(source) && sl__cuda_is_aligned(target))
        describe_move(from, to, &m);
    else
        describe_narrow(from, to, &m);
    m.from = source;
    m.to = target;
    return launch_move(stream, &m);
}

static sl_status run_move(RUN)
{
    return move_box(sl__cuda_of(run->stream), &kernel->args[0], p[0],
                    &kernel->args[1], p[1]);
}

/* Adds a part to its box. */
static sl_status add_box(const sl__cuda_stream *stream, const sl__arg *from,
                         const void *source, const sl__arg *to, void *target)
{
    map_params m = {.a = source,
                    .out = target,
                    .op = MAP_COPY,
                    .adds = 1,
                    .dtype = {from->dtype, 0, to->dtype},
                    .count = sl__arg_count(from)};
    memcpy(m.shape, from->shape, sizeof from->shape);
    memcpy(m.stride[0], from->stride, sizeof from->stride);
    memcpy(m.stride[2], to->stride, sizeof to->stride);
    memcpy(m.stride[1], m.stride[0], sizeof m.stride[0]);
    m.dims = sl__cuda_collapse(from->dims, 3, m.shape, m.stride);
    return launch_map(stream, &m);
}

static sl_status run_concat(RUN)
{
    const sl__node *node = kernel->node;
    const sl__arg *out = result_of(kernel);
    sl__stream *stream = run->stream;
    char *target = p[kernel->operand_count];
    size_t size = sl_dtype_bytes(out->dtype);
    bool gaps = node->attributes.flag;
    if (gaps)
        SL__TRY(sl__device_clear(stream, target,
                                 (size_t)sl__arg_count(out) * size));
    for (int i = 0; i < kernel->operand_count; i++) {
        int64_t at = 0;
        for (int d = 0; d < out->dims; d++)
            at += node->starts[i * SL_DIMS_MAX + d] * out->stride[d];
        void *box = target + at * (int64_t)size;
        if (box == p[i])
            continue;
        SL__TRY((gaps ? add_box : move_box)(sl__cuda_of(stream),
                                            &kernel->args[i], p[i], out, box));
    }
    return SL_OK;
}

static sl_status run_zero(RUN)
{
    const sl__arg *out = &kernel->args[0];
    return sl__device_clear(run->stream, p[0],
                            (size_t)sl__arg_count(out) *
                                sl_dtype_bytes(out->dtype));
}

static sl_status run_seed(RUN)
{
    const map_params m = {.out = p[0],
                          .block = run->block,
                          .dtype = {0, 0, kernel->args[0].dtype}};
    return sl__cuda_launch(sl__cuda_of(run->stream), SL__CUDA_seed, 1, 1, 1,
                           &m);
}

/* ----------------------------------------------------------------- sums -- */

enum { COLUMNS_BLOCK = 256, PARTS_MAX = 64, LINES = 8, FEW_ROWS = 1024 };

/* Into how many parts the rows are divided, so that the GPU is filled. */
static int columns_parts(const sl__gpu *gpu, int64_t rows, int64_t columns)
{
    int64_t wide = (columns + COLUMNS_BLOCK - 1) / COLUMNS_BLOCK;
    int64_t parts = (4 * gpu->processors + wide - 1) / wide;
    int64_t most = (rows + LINES - 1) / LINES;
    parts = parts < PARTS_MAX ? parts : PARTS_MAX;
    return (int)(parts < most ? parts : most > 0 ? most : 1);
}

static sl_status launch_columns(const sl__cuda_stream *stream,
                                const columns_params *c)
{
    void *pointers[] = {(void *)c->dy, (void *)c->x, (void *)c->saved};
    bool is_narrow =
        is_vector_dtype(c->dtype[0]) && is_vector_dtype(c->dtype[3]) &&
        (!c->x || (is_vector_dtype(c->dtype[1]) && c->dtype[2] == DT_F32));
    if (!is_narrow || !reads_eights(c->columns, 3, pointers))
        return sl__cuda_launch(stream, SL__CUDA_columns_any, c->columns, 1, 128,
                               c);
    if (c->rows <= FEW_ROWS)
        return sl__cuda_launch(
            stream, c->x ? SL__CUDA_columns_short_norm : SL__CUDA_columns_short,
            (c->columns + 15) / 16, 1, 256, c);
    SL__TRY(sl__cuda_launch(
        stream, c->x ? SL__CUDA_columns_eights_norm : SL__CUDA_columns_eights,
        (c->columns + COLUMNS_BLOCK - 1) / COLUMNS_BLOCK, c->parts,
        COLUMNS_BLOCK, c));
    return sl__cuda_launch(stream, SL__CUDA_columns_end, (c->columns + 31) / 32,
                           c->plain ? 2 : 1, 256, c);
}

static sl_status run_norm_weight_grad(RUN)
{
    columns_params c = ((const prepared *)kernel->private)->p.columns;
    c.dy = p[0];
    c.x = p[1];
    c.saved = p[2];
    c.out = p[3];
    c.plain = p[4];
    c.partial = scratch_of(kernel, p);
    return launch_columns(sl__cuda_of(run->stream), &c);
}

static sl_status run_row_sum(RUN)
{
    columns_params c = ((const prepared *)kernel->private)->p.columns;
    c.dy = p[0];
    c.out = p[1];
    c.partial = scratch_of(kernel, p);
    return launch_columns(sl__cuda_of(run->stream), &c);
}

static void prepare_columns(const sl__gpu *gpu, sl__kernel *kernel,
                            prepared *own)
{
    bool is_norm = kernel->node->op == SL__NORM_WEIGHT_GRAD;
    columns_params *c = &own->p.columns;
    const sl__arg *out = result_of(kernel), *args = kernel->args;
    c->columns = sl__last_size(out);
    c->rows = sl__arg_count(&args[0]) / c->columns;
    c->dtype[0] = args[0].dtype;
    c->dtype[1] = is_norm ? args[1].dtype : 0;
    c->dtype[2] = is_norm ? args[2].dtype : 0;
    c->dtype[3] = out->dtype;
    c->adds = kernel->adds;
    c->number = is_norm ? 1 : kernel->node->attributes.number;
    c->parts = columns_parts(gpu, c->rows, c->columns);
    kernel->scratch_bytes = sl__aligned((is_norm ? 2 : 1) * c->parts *
                                        c->columns * (int64_t)sizeof(float));
}

static sl_status run_reduce(RUN)
{
    enum { SHORT = 64 };
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    reduce_params r = ((const prepared *)kernel->private)->p.reduce;
    r.in = p[0];
    r.out = p[1];
    if (r.summed <= SHORT)
        return sl__cuda_launch(stream, SL__CUDA_reduce_each,
                               sl__cuda_blocks(stream, r.kept), 1, 256, &r);
    return sl__cuda_launch(stream, SL__CUDA_reduce,
                           r.kept < 65536 ? r.kept : 65536, 1, 256, &r);
}

/* Whether dense rows are summed into a dense row. */
static bool sums_rows(const sl__arg *in, const sl__arg *out)
{
    return out->dims > 0 && sl__arg_is_dense(in) && sl__arg_is_dense(out) &&
           in->dims > 0 && sl__last_size(out) == sl__last_size(in) &&
           sl__arg_count(out) == sl__last_size(out) && sl__last_size(out) > 0;
}

static void prepare_reduce(const sl__gpu *gpu, sl__kernel *kernel,
                           prepared *own)
{
    (void)gpu;
    const sl__arg *in = &kernel->args[0], *out = &kernel->args[1];
    reduce_params *r = &own->p.reduce;
    int64_t stride[2][CUDA_DIMS], summed[1][CUDA_DIMS];
    int kept = 0, gone = 0;
    r->kept = r->summed = 1;
    for (int d = 0; d < in->dims; d++) {
        int at = d - (in->dims - out->dims);
        if (at >= 0 && out->shape[at] == in->shape[d]) {
            r->kept_shape[kept] = in->shape[d];
            stride[0][kept] = in->stride[d];
            stride[1][kept++] = out->stride[at];
            r->kept *= in->shape[d];
        } else {
            r->summed_shape[gone] = in->shape[d];
            summed[0][gone++] = in->stride[d];
            r->summed *= in->shape[d];
        }
    }
    r->kept_dims = sl__cuda_collapse(kept, 2, r->kept_shape, stride);
    r->summed_dims = sl__cuda_collapse(gone, 1, r->summed_shape, summed);
    memcpy(r->kept_stride, stride[0], sizeof stride[0]);
    memcpy(r->out_stride, stride[1], sizeof stride[1]);
    memcpy(r->summed_stride, summed[0], sizeof summed[0]);
    r->dtype[0] = in->dtype;
    r->dtype[1] = out->dtype;
    r->adds = kernel->adds;
    r->number = kernel->node->attributes.number;
}

/* ---------------------------------------------------------------- norms -- */

enum { FEW_COLUMNS = 768, MANY_COLUMNS = 2048, WARPS = 4 };

/* One of three kernels: for rows of a few columns, of more, of any. */
static sl_status launch_rows(const sl__cuda_stream *stream, bool by_warp,
                             sl__cuda_kernel few, int64_t rows, int64_t columns,
                             const void *params)
{
    if (!by_warp || columns > MANY_COLUMNS)
        return sl__cuda_launch(stream, few + 2, rows, 1, 128, params);
    return sl__cuda_launch(stream, columns <= FEW_COLUMNS ? few : few + 1,
                           (rows + WARPS - 1) / WARPS, 1, 32 * WARPS, params);
}

/* Where the weight of a norm is among its operands. An ADD_NORM has one operand
 * more before it, and its sum before the other results. */
static int norm_weight(const sl__kernel *kernel)
{
    return kernel->node->op == SL__ADD_NORM ? 2 : 1;
}

static sl_status run_norm(RUN)
{
    norm_params n = ((const prepared *)kernel->private)->p.norm;
    int weight = norm_weight(kernel), result = kernel->operand_count;
    int normed = result + weight - 1;
    n.x = p[0];
    n.b = weight == 2 ? p[1] : NULL;
    n.weight = p[weight];
    n.bias = result == weight + 2 ? p[weight + 1] : NULL;
    n.sum = weight == 2 ? p[result] : NULL;
    n.y = p[normed];
    n.saved = p[normed + 1];
    bool by_warp = is_narrow(kernel) && n.dtype[4] == DT_F32 &&
                   reads_eights(n.columns, normed + 1, p);
    return launch_rows(sl__cuda_of(run->stream), by_warp, SL__CUDA_norm_3,
                       n.rows, n.columns, &n);
}

static void prepare_norm(const sl__gpu *gpu, sl__kernel *kernel, prepared *own)
{
    (void)gpu;
    norm_params *n = &own->p.norm;
    const sl__arg *args = kernel->args;
    int weight = norm_weight(kernel);
    int normed = kernel->operand_count + weight - 1;
    n->dtype[0] = args[0].dtype;
    n->dtype[1] = args[weight].dtype;
    n->dtype[2] = args[weight + 1].dtype;
    n->dtype[3] = args[normed].dtype;
    n->dtype[4] = args[normed + 1].dtype;
    n->centred = kernel->node->attributes.flag;
    n->columns = sl__last_size(&args[0]);
    n->rows = row_count(&args[0]);
    n->epsilon = kernel->node->attributes.number;
}

static sl_status run_norm_grad(RUN)
{
    norm_grad_params n = ((const prepared *)kernel->private)->p.norm_grad;
    n.dy = p[0];
    n.x = p[1];
    n.weight = p[2];
    int result = kernel->operand_count;
    n.saved = p[3];
    n.further = result == 5 ? p[4] : NULL;
    n.dx = p[result];
    bool by_warp = is_narrow(kernel) && n.dtype[3] == DT_F32 &&
                   reads_eights(n.columns, result + 1, p);
    return launch_rows(sl__cuda_of(run->stream), by_warp, SL__CUDA_norm_grad_3,
                       n.rows, n.columns, &n);
}

static void prepare_norm_grad(const sl__gpu *gpu, sl__kernel *kernel,
                              prepared *own)
{
    (void)gpu;
    norm_grad_params *n = &own->p.norm_grad;
    for (int i = 0; i < 4; i++)
        n->dtype[i] = kernel->args[i].dtype;
    n->dtype[4] = result_of(kernel)->dtype;
    n->centred = kernel->node->attributes.flag;
    n->columns = sl__last_size(&kernel->args[1]);
    n->rows = row_count(&kernel->args[1]);
}

static sl_status run_softmax(RUN)
{
    softmax_params s = ((const prepared *)kernel->private)->p.softmax;
    bool backward = kernel->node->op == SL__SOFTMAX_GRAD;
    s.dy = backward ? p[0] : NULL;
    s.x = p[backward];
    s.out = p[1 + backward];
    return sl__cuda_launch(sl__cuda_of(run->stream),
                           backward ? SL__CUDA_softmax_grad : SL__CUDA_softmax,
                           s.rows, 1, 128, &s);
}

static void prepare_softmax(const sl__gpu *gpu, sl__kernel *kernel,
                            prepared *own)
{
    (void)gpu;
    softmax_params *s = &own->p.softmax;
    bool backward = kernel->node->op == SL__SOFTMAX_GRAD;
    s->dtype[0] = kernel->args[backward].dtype;
    s->dtype[1] = kernel->args[0].dtype;
    s->dtype[2] = result_of(kernel)->dtype;
    s->columns = sl__last_size(&kernel->args[0]);
    s->rows = row_count(&kernel->args[0]);
}

/* --------------------------------------------------------------- losses -- */

enum { LOSS_THREADS = 512, ONE_BLOCK = 1024 };

static sl_status run_cross_entropy(RUN)
{
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    loss_params l = ((const prepared *)kernel->private)->p.loss;
    l.logits = p[0];
    l.labels = p[1];
    l.out = p[2];
    l.saved = p[3];
    l.block = run->block;
    l.terms = scratch_of(kernel, p);
    bool eights = is_narrow(kernel) && reads_eights(l.columns, 1, p);
    SL__TRY(sl__cuda_launch(stream,
                            eights ? SL__CUDA_loss_eights : SL__CUDA_loss_any,
                            l.rows, 1, eights ? LOSS_THREADS : 128, &l));
    return sl__cuda_launch(stream, SL__CUDA_loss_end, 1, 1, ONE_BLOCK, &l);
}

static sl_status run_cross_entropy_grad(RUN)
{
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    loss_params l = ((const prepared *)kernel->private)->p.loss;
    void *const rows[] = {p[1], p[4]};
    l.dloss = p[0];
    l.logits = p[1];
    l.labels = p[2];
    l.saved = p[3];
    l.out = p[4];
    l.block = run->block;
    l.terms = scratch_of(kernel, p);
    bool eights = is_narrow(kernel) && l.dtype[3] == DT_F32 &&
                  reads_eights(l.columns, 2, rows);
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_loss_factor, 1, 1, ONE_BLOCK, &l));
    return sl__cuda_launch(
        stream, eights ? SL__CUDA_loss_grad_eights : SL__CUDA_loss_grad_any,
        l.rows, 1, eights ? LOSS_THREADS : 128, &l);
}

static void prepare_loss(const sl__gpu *gpu, sl__kernel *kernel, prepared *own)
{
    (void)gpu;
    loss_params *l = &own->p.loss;
    const sl__arg *args = kernel->args;
    bool backward = kernel->node->op == SL__CROSS_ENTROPY_GRAD;
    l->dtype[0] = args[backward].dtype;
    l->dtype[1] = args[1 + backward].dtype;
    l->dtype[2] = args[0].dtype;
    l->dtype[3] = args[3].dtype;
    l->dtype[4] = args[backward ? 4 : 2].dtype;
    l->columns = sl__last_size(&args[backward]);
    l->rows = sl__arg_count(&args[1 + backward]);
    l->ignore = kernel->node->attributes.integer;
    l->kernel = kernel->number;
    kernel->scratch_bytes = sl__aligned(
        (backward ? 1 : l->rows) * (int64_t)sizeof(double) + SL__ALIGNMENT);
}

static sl_status run_mse(RUN)
{
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    mse_params m = ((const prepared *)kernel->private)->p.mse;
    bool backward = kernel->node->op == SL__MSE_GRAD;
    m.dloss = backward ? p[0] : NULL;
    m.x = p[backward];
    m.target = p[1 + backward];
    m.out = p[2 + backward];
    return backward
               ? sl__cuda_launch(stream, SL__CUDA_mse_grad,
                                 sl__cuda_blocks(stream, m.count), 1, 256, &m)
               : sl__cuda_launch(stream, SL__CUDA_mse, 1, 1, ONE_BLOCK, &m);
}

static void prepare_mse(const sl__gpu *gpu, sl__kernel *kernel, prepared *own)
{
    (void)gpu;
    mse_params *m = &own->p.mse;
    bool backward = kernel->node->op == SL__MSE_GRAD;
    m->dtype[0] = kernel->args[backward].dtype;
    m->dtype[1] = kernel->args[1 + backward].dtype;
    m->dtype[2] = kernel->args[0].dtype;
    m->dtype[3] = result_of(kernel)->dtype;
    m->count = sl__arg_count(&kernel->args[backward]);
    m->sign = kernel->node->attributes.operand == 1 ? -1 : 1;
}

/* ----------------------------------------------------------- embeddings -- */

static sl_status run_embedding(RUN)
{
    embedding_params e = ((const prepared *)kernel->private)->p.embedding;
    void *const rows[] = {p[0], p[2]};
    bool eights = is_narrow(kernel) && reads_eights(e.columns, 2, rows);
    e.table = p[0];
    e.ids = p[1];
    e.out = p[2];
    e.block = run->block;
    return sl__cuda_launch(sl__cuda_of(run->stream),
                           eights ? SL__CUDA_embedding_eights
                                  : SL__CUDA_embedding,
                           e.count, 1, 96, &e);
}

static sl_status run_embedding_grad(RUN)
{
    const sl__cuda_stream *stream = sl__cuda_of(run->stream);
    embedding_params e = ((const prepared *)kernel->private)->p.embedding;
    int64_t stride = sl__aligned(e.count * (int64_t)sizeof(int));
    char *scratch = scratch_of(kernel, p);
    e.dy = p[0];
    e.ids = p[1];
    e.out = p[2];
    e.block = run->block;
    e.first = (int *)(void *)scratch;
    e.place = (int *)(void *)(scratch + stride);
    e.start = (int *)(void *)(scratch + 2 * stride);
    e.order = (int *)(void *)(scratch + 3 * stride);
    if (!kernel->adds)
        SL__TRY(sl__device_clear(run->stream, e.out,
                                 (size_t)(e.rows * e.columns) *
                                     sl_dtype_bytes(e.dtype[2])));
    enum { PARTS_MOST = 8, PART = 1024 };
    int64_t blocks = (e.count + 127) / 128, parts = (e.count + PART - 1) / PART;
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_group_begin, blocks, 1, 128, &e));
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_group_count, blocks,
                            parts < PARTS_MOST ? parts : PARTS_MOST, 128, &e));
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_group_start, e.count > 0, 1,
                            ONE_BLOCK, &e));
    SL__TRY(sl__cuda_launch(stream, SL__CUDA_group_order, blocks, 1, 128, &e));
    return sl__cuda_launch(stream,
                           e.dtype[2] == DT_F64 ? SL__CUDA_embedding_grad_f64
                                                : SL__CUDA_embedding_grad_f32,
                           e.count, 1, 128, &e);
}

static void prepare_embedding(const sl__gpu *gpu, sl__kernel *kernel,
                              prepared *own)
{
    (void)gpu;
    embedding_params *e = &own->p.embedding;
    const sl__arg *args = kernel->args;
    bool backward = kernel->node->op == SL__EMBEDDING_GRAD;
    const sl__arg *table = backward ? &args[2] : &args[0];
    for (int i = 0; i < 3; i++)
        e->dtype[i] = args[i].dtype;
    e->adds = kernel->adds;
    e->count = sl__arg_count(&args[1]);
    e->rows = table->shape[0];
    e->columns = table->shape[1];
    e->kernel = kernel->number;
    if (backward)
        kernel->scratch_bytes =
            4 * sl__aligned(e->count * (int64_t)sizeof(int)) + SL__ALIGNMENT;
}

/* ------------------------------------------------------------ choosing -- */

/* How an op is run, and what prepares that; without either, its geometry
 * decides. */
typedef struct choice {
    sl__kernel_fn run;
    void (*prepare)(const sl__gpu *gpu, sl__kernel *kernel, prepared *own);
} choice;

static const choice choices[SL__OP_COUNT] = {
    [SL__CONCAT] = {run_concat, NULL},
    [SL__ZERO] = {run_zero, NULL},
    [SL__SEED] = {run_seed, NULL},
    [SL__NORM_WEIGHT_GRAD] = {run_norm_weight_grad, prepare_columns},
    [SL__LAYER_NORM] = {run_norm, prepare_norm},
    [SL__RMS_NORM] = {run_norm, prepare_norm},
    [SL__ADD_NORM] = {run_norm, prepare_norm},
    [SL__NORM_GRAD] = {run_norm_grad, prepare_norm_grad},
    [SL__SOFTMAX] = {run_softmax, prepare_softmax},
    [SL__SOFTMAX_GRAD] = {run_softmax, prepare_softmax},
    [SL__CROSS_ENTROPY] = {run_cross_entropy, prepare_loss},
    [SL__CROSS_ENTROPY_GRAD] = {run_cross_entropy_grad, prepare_loss},
    [SL__MSE] = {run_mse, prepare_mse},
    [SL__MSE_GRAD] = {run_mse, prepare_mse},
    [SL__EMBEDDING] = {run_embedding, prepare_embedding},
    [SL__EMBEDDING_GRAD] = {run_embedding_grad, prepare_embedding},
};

static choice choose(const sl__kernel *kernel)
{
    sl__op op = kernel->node->op;
    sl_dtype dtype = sl__kernel_dtype(kernel);
    bool is_float = is_vector_dtype(dtype) || dtype == SL_F64;
    if (choices[op].run)
        return choices[op];
    if (op == SL__REDUCE)
        return sums_rows(&kernel->args[0], &kernel->args[1])
                   ? (choice){run_row_sum, prepare_columns}
                   : (choice){run_reduce, prepare_reduce};
    /* Integers and bools are only ever copied; and so are floats that neither
     * change nor add. */
    if (!is_float || (op == SL__COPY && !kernel->adds))
        return (choice){run_move, NULL};
    assert(sl__cuda_map_op(op) >= 0);
    return (choice){run_map, prepare_map};
}

sl_status sl__cuda_prepare(sl__device *device, sl__packs *packs,
                           sl__kernel *kernel)
{
    prepared *own;
    sl__op op = kernel->node->op;
    if (op == SL__MATMUL)
        return sl__cuda_prepare_product(device->gpu, packs, kernel);
    if (op == SL__ATTENTION || op == SL__ATTENTION_GRAD)
        return sl__cuda_prepare_attention(device, kernel);
    SL__TRY(sl__alloc(1, sizeof *own, &own));
    kernel->private = own;
    choice found = choose(kernel);
    kernel->run = found.run;
    if (found.prepare)
        found.prepare(device->gpu, kernel, own);
    return SL_OK;
}

void sl__cuda_forget(sl__kernel *kernel)
{
    free(kernel->private);
}

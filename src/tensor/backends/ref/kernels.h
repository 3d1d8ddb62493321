/* SPDX-License-Identifier: MIT
 *
 * The specification of every op, in plain C, included once per float type:
 * REAL is the type, KERNEL(name) makes a name of it. Sums are kept in double.
 *
 * `p` has the operands, then the results; a kernel that `adds` adds to its
 * first result. Results may lie where operands do only for ops marked IN_PLACE
 * in ops.def. */

#define ARGS const sl__kernel *kernel, void *const *p, const sl__run *run

/* Row (b, i) of arg `a`, a (B, T, C). */
#define ROW(a, b, i)                                                           \
    ((REAL *)p[a] + (b)*args[a].stride[0] + (i)*args[a].stride[1])

static const sl__arg *KERNEL(result)(const sl__kernel *kernel)
{
    return &kernel->args[kernel->operand_count];
}

/* --------------------------------------------------- element by element -- */

enum { OP_ADD, OP_SUB, OP_MUL };

static sl_status KERNEL(binary)(ARGS, int op)
{
    (void)run;
    const sl__arg *a = &kernel->args[0], *b = &kernel->args[1];
    const REAL *pa = p[0];
    REAL *out = p[2];
    int64_t count = sl__arg_count(KERNEL(result)(kernel));
    sl__index index = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t ib = sl__at(b, &index);
        double x = pa[sl__at(a, &index)];
        double y = b->dtype == SL_BOOL ? ((const uint8_t *)p[1])[ib] != 0
                                       : ((const REAL *)p[1])[ib];
        out[i] = (REAL)(op == OP_ADD ? x + y : op == OP_SUB ? x - y : x * y);
        sl__next(a, &index);
    }
    return SL_OK;
}

static sl_status KERNEL(add)(ARGS)
{
    return KERNEL(binary)(kernel, p, run, OP_ADD);
}

static sl_status KERNEL(sub)(ARGS)
{
    return KERNEL(binary)(kernel, p, run, OP_SUB);
}

static sl_status KERNEL(mul)(ARGS)
{
    return KERNEL(binary)(kernel, p, run, OP_MUL);
}

/* out[i] = EXPRESSION of x = the first operand and, where it exists, z = the
 * second. */
#define UNARY(name, EXPRESSION)                                                \
    static sl_status KERNEL(name)(ARGS)                                        \
    {                                                                          \
        (void)run;                                                             \
        const REAL *px = p[0];                                                 \
        REAL *out = p[1];                                                      \
        int64_t count = sl__arg_count(&kernel->args[0]);                       \
        for (int64_t i = 0; i < count; i++) {                                  \
            double x = px[i];                                                  \
            out[i] = (REAL)(EXPRESSION);                                       \
        }                                                                      \
        return SL_OK;                                                          \
    }
#define GRADIENT(name, EXPRESSION)                                             \
    static sl_status KERNEL(name)(ARGS)                                        \
    {                                                                          \
        (void)run;                                                             \
        const REAL *pdy = p[0], *pz = p[1];                                    \
        REAL *out = p[2];                                                      \
        int64_t count = sl__arg_count(&kernel->args[0]);                       \
        for (int64_t i = 0; i < count; i++) {                                  \
            double dy = pdy[i], z = pz[i];                                     \
            out[i] = (REAL)(EXPRESSION);                                       \
        }                                                                      \
        return SL_OK;                                                          \
    }

UNARY(scale, x * kernel->node->attributes.number)
UNARY(relu, x > 0 || x != x ? x : 0)
UNARY(gelu_tanh, 0.5 * x * (1 + tanh(gelu_inner(x))))
UNARY(gelu_erf, 0.5 * x * (1 + erf(x * M_SQRT1_2)))
UNARY(silu, x / (1 + exp(-x)))
GRADIENT(relu_grad, z > 0 ? dy : 0) /* z is the output */
GRADIENT(gelu_tanh_grad, dy *gelu_tanh_slope(z))
GRADIENT(gelu_erf_grad, dy *gelu_erf_slope(z))
GRADIENT(silu_grad, dy *silu_slope(z))
#undef UNARY
#undef GRADIENT

static sl_status KERNEL(dropout)(ARGS)
{
    const sl__attributes *attributes = &kernel->node->attributes;
    const REAL *x = p[0];
    REAL *out = p[1];
    uint64_t key = sl__dropout_key(run->block->seed, attributes->integer);
    uint64_t threshold = sl__dropout_threshold(attributes->number);
    double factor = 1 / (1 - attributes->number);
    int64_t count = sl__arg_count(&kernel->args[0]);
    for (int64_t i = 0; i < count; i++)
        out[i] = sl__dropout_keeps(key, (uint64_t)i, threshold)
                     ? (REAL)(x[i] * factor)
                     : 0;
    return SL_OK;
}

/* ------------------------------------------------------------- products -- */

/* (G, M, K) x (G, K, N) [+ (N)] -> (G, M, N), each with its strides. */
static sl_status KERNEL(matmul)(ARGS)
{
    (void)run;
    sl__matmul_sizes s = sl__matmul_geometry(kernel);
    const REAL *a = p[0], *b = p[1];
    const REAL *bias = kernel->operand_count == 3 ? p[2] : NULL;
    REAL *out = p[kernel->operand_count];
    for (int64_t g = 0; g < s.batch; g++) {
        for (int64_t m = 0; m < s.m; m++) {
            for (int64_t n = 0; n < s.n; n++) {
                double sum = bias ? bias[n] : 0;
                int64_t i = g * s.a[0] + m * s.a[1];
                int64_t j = g * s.b[0] + n * s.b[2];
                for (int64_t k = 0; k < s.k; k++, i += s.a[2], j += s.b[1])
                    sum += (double)a[i] * (double)b[j];
                REAL *to = &out[g * s.out[0] + m * s.out[1] + n * s.out[2]];
                /* Rounded as if the product had been stored and read again. */
                if (kernel->activation != SL__OP_COUNT)
                    sum = activate(kernel->activation, (REAL)sum);
                *to = (REAL)(kernel->adds ? *to + sum : sum);
            }
        }
    }
    return SL_OK;
}

/* ---------------------------------------------------------------- norms -- */

/* x (R, C), weight (C) [, bias (C)] -> y (R, C), mean and 1/deviation (R, 2).
 * Without `flag` the mean is taken as 0. */
static sl_status KERNEL(norm_rows)(const sl__kernel *kernel, const REAL *x,
                                   const REAL *weight, const REAL *bias,
                                   REAL *y, REAL *saved)
{
    const sl__attributes *attributes = &kernel->node->attributes;
    int64_t columns = sl__last_size(&kernel->args[0]);
    int64_t rows = sl__arg_count(&kernel->args[0]) / columns;
    for (int64_t r = 0; r < rows; r++, x += columns, y += columns, saved += 2) {
        double mean = 0, square = 0;
        for (int64_t c = 0; c < columns && attributes->flag; c++)
            mean += x[c];
        mean /= (double)columns;
        for (int64_t c = 0; c < columns; c++)
            square += (x[c] - mean) * (x[c] - mean);
        double scale = 1 / sqrt(square / (double)columns + attributes->number);
        for (int64_t c = 0; c < columns; c++)
            y[c] = (REAL)((x[c] - mean) * scale * weight[c] +
                          (bias ? bias[c] : 0));
        saved[0] = (REAL)mean;
        saved[1] = (REAL)scale;
    }
    return SL_OK;
}

static sl_status KERNEL(layer_norm)(ARGS)
{
    int result = kernel->operand_count;
    (void)run;
    return KERNEL(norm_rows)(kernel, p[0], p[1], result == 3 ? p[2] : NULL,
                             p[result], p[result + 1]);
}

static sl_status KERNEL(rms_norm)(ARGS)
{
    return KERNEL(layer_norm)(kernel, p, run);
}

/* a, b (R, C), weight (C) [, bias (C)] -> x = a + b, y, saved: x as it is
 * stored, which may be as bf16, is normed. */
static sl_status KERNEL(add_norm)(ARGS)
{
    int result = kernel->operand_count;
    const REAL *a = p[0], *b = p[1];
    REAL *x = p[result];
    bool rounds = kernel->node->results[0]->dtype == SL_BF16;
    int64_t count = sl__arg_count(&kernel->args[0]);
    (void)run;
    for (int64_t i = 0; i < count; i++) {
        x[i] = a[i] + b[i];
        if (rounds)
            x[i] = sl__from_bf16(sl__to_bf16((float)x[i]));
    }
    return KERNEL(norm_rows)(kernel, x, p[2], result == 4 ? p[3] : NULL,
                             p[result + 1], p[result + 2]);
}

/* dy, x (R, C), weight (C), saved (R, 2) [, further (R, C)] -> dx (R, C). With
 * g = dy * weight and n the normed x: dx = scale * (g - mean(g) - n * mean(g *
 * n)) [+ further, another gradient of x]. */
static sl_status KERNEL(norm_grad)(ARGS)
{
    (void)run;
    const REAL *dy = p[0], *x = p[1], *weight = p[2], *saved = p[3];
    const REAL *further = kernel->operand_count == 5 ? p[4] : NULL;
    REAL *dx = p[kernel->operand_count];
    bool centred = kernel->node->attributes.flag;
    int64_t columns = sl__last_size(&kernel->args[1]);
    int64_t rows = sl__arg_count(&kernel->args[1]) / columns;
    for (int64_t r = 0; r < rows; r++) {
        double mean = saved[2 * r], scale = saved[2 * r + 1];
        double sum = 0, product = 0;
        for (int64_t c = 0; c < columns; c++) {
            double g = (double)dy[c] * weight[c];
            sum += centred ? g : 0;
            product += g * (x[c] - mean) * scale;
        }
        sum /= (double)columns;
        product /= (double)columns;
        for (int64_t c = 0; c < columns; c++)
            dx[c] = (REAL)(scale * ((double)dy[c] * weight[c] - sum -
                                    (x[c] - mean) * scale * product) +
                           (further ? further[c] : 0));
        dy += columns;
        x += columns;
        dx += columns;
        further = further ? further + columns : NULL;
    }
    return SL_OK;
}

/* dy, x (R, C), saved (R, 2) -> dweight (C) [, dbias (C)]. */
static sl_status KERNEL(norm_weight_grad)(ARGS)
{
    (void)run;
    const REAL *dy = p[0], *x = p[1], *saved = p[2];
    REAL *out = p[3], *bias = p[4];
    int64_t columns = sl__last_size(&kernel->args[1]);
    int64_t rows = sl__arg_count(&kernel->args[1]) / columns;
    for (int64_t c = 0; c < columns; c++) {
        double sum = 0, all = 0;
        for (int64_t r = 0; r < rows; r++) {
            sum += (double)dy[r * columns + c] *
                   ((double)x[r * columns + c] - saved[2 * r]) *
                   saved[2 * r + 1];
            all += dy[r * columns + c];
        }
        out[c] = (REAL)(kernel->adds ? out[c] + sum : sum);
        if (bias)
            bias[c] = (REAL)(kernel->adds ? bias[c] + all : all);
    }
    return SL_OK;
}

/* -------------------------------------------------------------- softmax -- */

static sl_status KERNEL(softmax)(ARGS)
{
    (void)run;
    const REAL *x = p[0];
    REAL *y = p[1];
    int64_t columns = sl__last_size(&kernel->args[0]);
    int64_t rows = sl__arg_count(&kernel->args[0]) / columns;
    for (int64_t r = 0; r < rows; r++, x += columns, y += columns) {
        double most = -INFINITY, sum = 0;
        for (int64_t c = 0; c < columns; c++)
            most = fmax(most, x[c]);
        for (int64_t c = 0; c < columns; c++)
            sum += exp(x[c] - most);
        for (int64_t c = 0; c < columns; c++)
            y[c] = (REAL)(exp(x[c] - most) / sum);
    }
    return SL_OK;
}

/* dy, y (R, C) -> dx = y * (dy - sum(dy * y)). */
static sl_status KERNEL(softmax_grad)(ARGS)
{
    (void)run;
    const REAL *dy = p[0], *y = p[1];
    REAL *dx = p[2];
    int64_t columns = sl__last_size(&kernel->args[0]);
    int64_t rows = sl__arg_count(&kernel->args[0]) / columns;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < columns; c++)
            sum += (double)dy[c] * y[c];
        for (int64_t c = 0; c < columns; c++)
            dx[c] = (REAL)(y[c] * (dy[c] - sum));
        dy += columns;
        y += columns;
        dx += columns;
    }
    return SL_OK;
}

/* ----------------------------------------------------------- embeddings -- */

/* table (V, C), ids (..) -> (.., C). */
static sl_status KERNEL(embedding)(ARGS)
{
    const REAL *table = p[0];
    REAL *out = p[2];
    int64_t columns = kernel->args[0].shape[1];
    int64_t count = sl__arg_count(&kernel->args[1]);
    for (int64_t i = 0; i < count; i++) {
        int64_t id = sl__integer(&kernel->args[1], p[1], i);
        size_t bytes = sizeof *out * (size_t)columns;
        if (id >= 0 && id < kernel->args[0].shape[0]) {
            memcpy(out + i * columns, table + id * columns, bytes);
        } else {
            sl__note_fault(kernel, run->block, id, i);
            memset(out + i * columns, 0, bytes);
        }
    }
    return SL_OK;
}

/* dy (.., C), ids (..) -> dtable (V, C). */
static sl_status KERNEL(embedding_grad)(ARGS)
{
    const REAL *dy = p[0];
    REAL *out = p[2];
    const sl__arg *table = KERNEL(result)(kernel);
    int64_t columns = table->shape[1];
    int64_t count = sl__arg_count(&kernel->args[1]);
    if (!kernel->adds)
        memset(out, 0, sizeof *out * (size_t)sl__arg_count(table));
    for (int64_t i = 0; i < count; i++) {
        int64_t id = sl__integer(&kernel->args[1], p[1], i);
        if (id < 0 || id >= table->shape[0]) {
            sl__note_fault(kernel, run->block, id, i);
            continue;
        }
        for (int64_t c = 0; c < columns; c++)
            out[id * columns + c] += dy[i * columns + c];
    }
    return SL_OK;
}

/* ------------------------------------------------------------ attention -- */

static double KERNEL(dot)(const REAL *a, const REAL *b, int64_t size)
{
    double sum = 0;
    for (int64_t i = 0; i < size; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* q, k, v (B, T, C) -> out (B, T, C); and for each row of scores the largest
 * and 1 / sum(exp(score - largest)) (B, H, T, 2). */
static sl_status KERNEL(attention)(ARGS)
{
    (void)run;
    const sl__arg *args = kernel->args;
    int heads = kernel->node->attributes.heads;
    int64_t length = args[0].shape[1], size = args[0].shape[2] / heads;
    double scale = 1 / sqrt((double)size);
    REAL *saved = p[4];
    for (int64_t b = 0; b < args[0].shape[0]; b++) {
        for (int h = 0; h < heads; h++) {
            for (int64_t i = 0; i < length; i++, saved += 2) {
                const REAL *q = ROW(0, b, i) + h * size;
                REAL *out = ROW(3, b, i) + h * size;
                double most = -INFINITY, sum = 0;
                for (int64_t j = 0; j <= i; j++)
                    most = fmax(
                        most,
                        scale * KERNEL(dot)(q, ROW(1, b, j) + h * size, size));
                /* Rounded as it is saved, so that backward finds the same
                 * weights. */
                most = (REAL)most;
                for (int64_t j = 0; j <= i; j++)
                    sum += exp(
                        scale * KERNEL(dot)(q, ROW(1, b, j) + h * size, size) -
                        most);
                for (int64_t c = 0; c < size; c++)
                    out[c] = 0;
                for (int64_t j = 0; j <= i; j++) {
                    const REAL *k = ROW(1, b, j) + h * size;
                    const REAL *v = ROW(2, b, j) + h * size;
                    double weight =
                        exp(scale * KERNEL(dot)(q, k, size) - most) / sum;
                    for (int64_t c = 0; c < size; c++)
                        out[c] += (REAL)(weight * v[c]);
                }
                saved[0] = (REAL)most;
                saved[1] = (REAL)(1 / sum);
            }
        }
    }
    return SL_OK;
}

/* dy, q, k, v, out (B, T, C), saved (B, H, T, 2) -> those of dq, dk, dv (B, T,
 * C) that are wanted. With w the weight of j for i and ds = w (dy_i.v_j -
 * dy_i.out_i) scale: dv_j += w dy_i, dq_i += ds k_j, dk_j += ds q_i. */
static sl_status KERNEL(attention_grad)(ARGS)
{
    (void)run;
    const sl__arg *args = kernel->args;
    int heads = kernel->node->attributes.heads;
    int64_t length = args[1].shape[1], size = args[1].shape[2] / heads;
    double scale = 1 / sqrt((double)size);
    const REAL *saved = p[5];
    for (int r = 6; r < 9; r++) {
        for (int64_t b = 0; b < args[1].shape[0] && p[r]; b++) {
            for (int64_t i = 0; i < length; i++)
                memset(ROW(r, b, i), 0, sizeof(REAL) * (size_t)(size * heads));
        }
    }
    for (int64_t b = 0; b < args[1].shape[0]; b++) {
        for (int h = 0; h < heads; h++) {
            for (int64_t i = 0; i < length; i++, saved += 2) {
                const REAL *dy = ROW(0, b, i) + h * size;
                const REAL *q = ROW(1, b, i) + h * size;
                double base = KERNEL(dot)(dy, ROW(4, b, i) + h * size, size);
                for (int64_t j = 0; j <= i; j++) {
                    const REAL *k = ROW(2, b, j) + h * size;
                    const REAL *v = ROW(3, b, j) + h * size;
                    double weight =
                        exp(scale * KERNEL(dot)(q, k, size) - saved[0]) *
                        saved[1];
                    double ds =
                        weight * (KERNEL(dot)(dy, v, size) - base) * scale;
                    for (int64_t c = 0; c < size; c++) {
                        if (p[6])
                            (ROW(6, b, i) + h * size)[c] += (REAL)(ds * k[c]);
                        if (p[7])
                            (ROW(7, b, j) + h * size)[c] += (REAL)(ds * q[c]);
                        if (p[8])
                            (ROW(8, b, j) + h * size)[c] +=
                                (REAL)(weight * dy[c]);
                    }
                }
            }
        }
    }
    return SL_OK;
}

/* -------------------------------------------------- moving and reducing -- */

static void KERNEL(copy_box)(const sl__arg *from, const REAL *source,
                             const sl__arg *to, REAL *target, bool adds)
{
    int64_t count = sl__arg_count(from);
    sl__index index = {0};
    for (int64_t i = 0; i < count; i++) {
        REAL *at = &target[sl__at(to, &index)];
        REAL value = source[sl__at(from, &index)];
        *at = adds ? *at + value : value;
        sl__next(from, &index);
    }
}

static sl_status KERNEL(copy)(ARGS)
{
    (void)run;
    KERNEL(copy_box)
    (&kernel->args[0], p[0], &kernel->args[1], p[1], kernel->adds);
    return SL_OK;
}

/* From another float dtype. */
static sl_status KERNEL(cast)(ARGS)
{
    (void)run;
    const sl__arg *from = &kernel->args[0], *to = &kernel->args[1];
    REAL *target = p[1];
    int64_t count = sl__arg_count(from);
    sl__index index = {0};
    for (int64_t i = 0; i < count; i++) {
        REAL *at = &target[sl__at(to, &index)];
        REAL value =
            (REAL)sl__float_at(from->dtype, p[0], sl__at(from, &index));
        *at = kernel->adds ? *at + value : value;
        sl__next(from, &index);
    }
    return SL_OK;
}

/* Copies parts into their boxes. With `flag` they may leave gaps, which are 0,
 * and overlap, where they add up. A part that lies in its box already is not
 * copied. */
static sl_status KERNEL(concat)(ARGS)
{
    (void)run;
    const sl__node *node = kernel->node;
    const sl__arg *out = KERNEL(result)(kernel);
    REAL *target = p[kernel->operand_count];
    bool gaps = node->attributes.flag;
    if (gaps)
        memset(target, 0, sizeof *target * (size_t)sl__arg_count(out));
    for (int i = 0; i < kernel->operand_count; i++) {
        REAL *box = target;
        for (int d = 0; d < out->dims; d++)
            box += node->starts[i * SL_DIMS_MAX + d] * out->stride[d];
        if (box != p[i])
            KERNEL(copy_box)(&kernel->args[i], p[i], out, box, gaps);
    }
    return SL_OK;
}

/* The sum of everything that is reduced into one element. */
static double KERNEL(reduce_one)(const sl__arg *in, const REAL *source,
                                 const sl__arg *out, const sl__index *place)
{
    /* The dimensions that are summed over; the others are fixed. */
    sl__arg summed = *in;
    int64_t start = 0, count = 1;
    for (int d = 0; d < in->dims; d++) {
        int at = d - (in->dims - out->dims);
        bool kept = at >= 0 && out->shape[at] == in->shape[d];
        if (kept) {
            start += place->at[at] * in->stride[d];
            summed.shape[d] = 1;
        }
        count *= summed.shape[d];
    }
    double sum = 0;
    sl__index index = {0};
    for (int64_t i = 0; i < count; i++) {
        sum += source[start + sl__at(&summed, &index)];
        sl__next(&summed, &index);
    }
    return sum;
}

/* The sum over the dimensions that are 1 or absent in the result, whose shape
 * is aligned at the last dimension, times `number`. */
static sl_status KERNEL(reduce)(ARGS)
{
    (void)run;
    const sl__arg *in = &kernel->args[0], *out = &kernel->args[1];
    const REAL *source = p[0];
    REAL *target = p[1];
    int64_t count = sl__arg_count(out);
    sl__index index = {0};
    for (int64_t i = 0; i < count; i++) {
        double sum = KERNEL(reduce_one)(in, source, out, &index) *
                     kernel->node->attributes.number;
        REAL *at = &target[sl__at(out, &index)];
        *at = (REAL)(kernel->adds ? *at + sum : sum);
        sl__next(out, &index);
    }
    return SL_OK;
}

static sl_status KERNEL(seed)(ARGS)
{
    (void)kernel;
    *(REAL *)p[0] = (REAL)run->block->loss_scale;
    return SL_OK;
}

static sl_status KERNEL(zero)(ARGS)
{
    (void)run;
    memset(p[0], 0, sizeof(REAL) * (size_t)sl__arg_count(&kernel->args[0]));
    return SL_OK;
}

/* --------------------------------------------------------------- losses -- */

static sl_status KERNEL(mse)(ARGS)
{
    (void)run;
    const REAL *x = p[0], *target = p[1];
    int64_t count = sl__arg_count(&kernel->args[0]);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += ((double)x[i] - target[i]) * ((double)x[i] - target[i]);
    *(REAL *)p[2] = (REAL)(sum / (double)count);
    return SL_OK;
}

/* dloss (), x, target -> the gradient of either. */
static sl_status KERNEL(mse_grad)(ARGS)
{
    (void)run;
    const REAL *x = p[1], *target = p[2];
    REAL *out = p[3];
    int64_t count = sl__arg_count(&kernel->args[1]);
    double factor = 2.0 * *(const REAL *)p[0] / (double)count;
    if (kernel->node->attributes.operand == 1)
        factor = -factor;
    for (int64_t i = 0; i < count; i++)
        out[i] = (REAL)(factor * ((double)x[i] - target[i]));
    return SL_OK;
}

/* logits (R, V), labels (R) -> loss (); and for each row the largest logit and
 * log(sum(exp(logit - largest))) (R, 2). They are saved apart, because their
 * sum would round off the smaller one. */
static sl_status KERNEL(cross_entropy)(ARGS)
{
    const REAL *x = p[0];
    REAL *saved = p[3];
    int64_t columns = sl__last_size(&kernel->args[0]);
    int64_t rows = sl__arg_count(&kernel->args[1]), counted = 0;
    double loss = 0;
    for (int64_t r = 0; r < rows; r++, x += columns) {
        double most = -INFINITY, sum = 0;
        for (int64_t c = 0; c < columns; c++)
            most = fmax(most, x[c]);
        for (int64_t c = 0; c < columns; c++)
            sum += exp(x[c] - most);
        saved[2 * r] = (REAL)most;
        saved[2 * r + 1] = (REAL)log(sum);
        int64_t label = sl__integer(&kernel->args[1], p[1], r);
        if (label == kernel->node->attributes.integer)
            continue;
        if (label < 0 || label >= columns) {
            sl__note_fault(kernel, run->block, label, r);
            continue;
        }
        loss += most + log(sum) - x[label];
        counted++;
    }
    *(REAL *)p[2] = (REAL)(loss / (double)counted);
    return SL_OK;
}

/* dloss (), logits (R, V), labels (R), saved (R, 2) -> dlogits (R, V). */
static sl_status KERNEL(cross_entropy_grad)(ARGS)
{
    const REAL *x = p[1], *saved = p[3];
    REAL *out = p[4];
    const sl__arg *labels = &kernel->args[2];
    int64_t columns = sl__last_size(&kernel->args[1]);
    int64_t rows = sl__arg_count(labels);
    int64_t ignore = kernel->node->attributes.integer;
    double factor =
        *(const REAL *)p[0] / (double)sl__count_labels(labels, p[2], ignore);
    for (int64_t r = 0; r < rows; r++, x += columns, out += columns) {
        int64_t label = sl__integer(labels, p[2], r);
        if (label != ignore && (label < 0 || label >= columns)) {
            sl__note_fault(kernel, run->block, label, r);
            label = ignore;
        }
        for (int64_t c = 0; c < columns; c++)
            out[c] = label == ignore
                         ? 0
                         : (REAL)(factor * (exp((double)x[c] - saved[2 * r] -
                                                saved[2 * r + 1]) -
                                            (c == label)));
    }
    return SL_OK;
}

const sl__kernel_fn KERNEL(table)[SL__OP_COUNT] = {
#define SL_OP(NAME, name, results, traits) [SL__##NAME] = KERNEL(name),
#define SL_VIEW_OP(NAME, name)
#define SL_BACKWARD_OP(NAME, name, results, traits) [SL__##NAME] = KERNEL(name),
#include "tensor/ops.def"
#undef SL_OP
#undef SL_VIEW_OP
#undef SL_BACKWARD_OP
};

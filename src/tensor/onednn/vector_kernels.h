/* SPDX-License-Identifier: MIT
 *
 * Our own kernels, included once per instruction set: VECTOR(name) makes a name
 * of it. What each computes is said in ref/kernels.h; here it is done LANES
 * at a time and on the run's threads. Geometry was checked by
 * sl__vector_accepts. */
#include "tensor/onednn/vector.h"

#include "tensor/onednn/onednn.h"
#include "tensor/random.h"

#include <math.h>

#define ARGS const sl__kernel *kernel, void *const *p, const sl__run *run

/* A kernel at work: what the parts of a parallel run share. */
typedef struct work {
    const sl__kernel *kernel;
    void *const *p;
    const sl__run *run;
} work;

/* Elements, or rows, that are worth a thread. */
enum { GRAIN = 8192 };

INLINE sl_status spread(ARGS, int64_t count, int64_t grain,
                        sl__parallel_fn body)
{
    work shared = {kernel, p, run};
    sl__parallel(run->threads, count, grain, body, &shared);
    return SL_OK;
}

INLINE int64_t columns_of(const sl__arg *arg)
{
    return arg->shape[arg->dims - 1];
}

/* Rows of an arg, spread over threads by their work. */
static sl_status spread_rows(ARGS, const sl__arg *arg, sl__parallel_fn body)
{
    int64_t columns = columns_of(arg);
    return spread(kernel, p, run, sl__arg_count(arg) / columns,
                  GRAIN / columns + 1, body);
}

/* Walks 0..count in vectors; V is what to do with a whole one at i, and T with
 * a last part of n lanes. */
#define WALK(count, V, T)                                                      \
    do {                                                                       \
        int64_t i = 0;                                                         \
        for (; i + LANES <= (count); i += LANES)                               \
            V;                                                                 \
        int64_t n = (count)-i;                                                 \
        if (n > 0)                                                             \
            T;                                                                 \
    } while (0)

/* Lanes below n keep theirs, the others are 0. */
INLINE vf first_lanes(vf v, int64_t n)
{
    vf kept = {0};
    memcpy(&kept, &v, sizeof(float) * (size_t)n);
    return kept;
}

/* --------------------------------------------------- element by element -- */

/* out[i] = EXPRESSION of x = p[0][i]. */
#define MAP(name, EXPRESSION)                                                  \
    static void name##_part(void *data, int worker, int64_t i, int64_t to)     \
    {                                                                          \
        (void)worker;                                                          \
        const work *w = data;                                                  \
        const float *a = w->p[0];                                              \
        float *out = w->p[1];                                                  \
        const float number = (float)w->kernel->node->attributes.number;        \
        (void)number;                                                          \
        for (; i + LANES <= to; i += LANES) {                                  \
            vf x = load(a + i);                                                \
            store(out + i, EXPRESSION);                                        \
        }                                                                      \
        if (i < to) {                                                          \
            vf x = load_part(a + i, to - i);                                   \
            store_part(out + i, EXPRESSION, to - i);                           \
        }                                                                      \
    }                                                                          \
    static sl_status name(ARGS)                                                \
    {                                                                          \
        return spread(kernel, p, run, sl__arg_count(&kernel->args[0]), GRAIN,  \
                      name##_part);                                            \
    }

/* out[i] = EXPRESSION of dy = p[0][i] and z = p[1][i]. */
#define MAP2(name, EXPRESSION)                                                 \
    static void name##_part(void *data, int worker, int64_t i, int64_t to)     \
    {                                                                          \
        (void)worker;                                                          \
        const work *w = data;                                                  \
        const float *a = w->p[0], *b = w->p[1];                                \
        float *out = w->p[2];                                                  \
        for (; i + LANES <= to; i += LANES) {                                  \
            vf dy = load(a + i), z = load(b + i);                              \
            store(out + i, EXPRESSION);                                        \
        }                                                                      \
        if (i < to) {                                                          \
            vf dy = load_part(a + i, to - i), z = load_part(b + i, to - i);    \
            store_part(out + i, EXPRESSION, to - i);                           \
        }                                                                      \
    }                                                                          \
    static sl_status name(ARGS)                                                \
    {                                                                          \
        return spread(kernel, p, run, sl__arg_count(&kernel->args[0]), GRAIN,  \
                      name##_part);                                            \
    }

INLINE vf gelu_inner(vf x)
{
    return x * (0.7978845608f + 0.0356774081f * x * x);
}

INLINE vf gelu_tanh_of(vf x)
{
    return 0.5f * x * (1.0f + tanh_lanes(gelu_inner(x)));
}

/* Beyond these, slopes and sigmoids are 0 or 1 to the last bit; the factors
 * they are made of would overflow. */
INLINE vf within(vf x, float most)
{
    x = choose(x > splat(most), splat(most), x);
    return choose(x < splat(-most), splat(-most), x);
}

INLINE vf gelu_tanh_slope(vf x)
{
    x = within(x, 30);
    vf t = tanh_lanes(gelu_inner(x));
    vf inner = 0.7978845608f + 3 * 0.0356774081f * x * x;
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

INLINE vf gelu_erf_slope(vf x)
{
    x = within(x, 30);
    return 0.5f * (1.0f + erf_lanes(x * 0.7071067812f)) +
           x * exp_lanes(-0.5f * x * x) * 0.3989422804f;
}

INLINE vf sigmoid_lanes(vf x)
{
    return 1.0f / (1.0f + exp_lanes(-x));
}

INLINE vf silu_slope(vf x)
{
    x = within(x, 88);
    vf s = sigmoid_lanes(x);
    return s * (1.0f + x * (1.0f - s));
}

MAP(scale, x *number)
MAP(relu, choose(x <= splat(0), splat(0), x))
MAP(gelu_tanh, gelu_tanh_of(x))
MAP(gelu_erf, 0.5f * x * (1.0f + erf_lanes(x * 0.7071067812f)))
MAP(silu, choose(x < splat(-88), splat(0), x *sigmoid_lanes(x)))
MAP2(relu_grad, choose(z > splat(0), dy, splat(0)))
MAP2(gelu_tanh_grad, dy *gelu_tanh_slope(z))
MAP2(gelu_erf_grad, dy *gelu_erf_slope(z))
MAP2(silu_grad, dy *silu_slope(z))
#undef MAP
#undef MAP2

/* Operands repeat after so many elements: all of them, or those behind the
 * expanded dimensions. */
static int64_t period_of(const sl__arg *arg)
{
    int64_t period = 1;
    for (int d = arg->dims - 1; d >= 0; d--) {
        if (arg->shape[d] > 1 && arg->stride[d] == 0)
            break;
        period *= arg->shape[d];
    }
    return period;
}

INLINE vf apply(sl__op op, vf a, vf b)
{
    return op == SL__ADD ? a + b : op == SL__SUB ? a - b : a * b;
}

/* `a` and `b` move on with out, or stay where their step is 0. */
INLINE void binary_span(sl__op op, const float *a, int64_t a_step,
                        const float *b, int64_t b_step, float *out,
                        int64_t count)
{
    vf a_all = splat(a[0]), b_all = splat(b[0]);
    WALK(count,
         store(out + i, apply(op, a_step ? load(a + i) : a_all,
                              b_step ? load(b + i) : b_all)),
         store_part(out + i,
                    apply(op, a_step ? load_part(a + i, n) : a_all,
                          b_step ? load_part(b + i, n) : b_all),
                    n));
}

/* By a mask of bools. */
INLINE void mask_span(const float *a, int64_t a_step, const uint8_t *mask,
                      int64_t mask_step, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = a[i * a_step] * (float)(mask[i * mask_step] != 0);
}

/* From one end of a period to the next; a period of 1 has no end. */
INLINE void binary_part(sl__op op, const work *w, int64_t from, int64_t to)
{
    const sl__arg *args = w->kernel->args;
    float *out = w->p[2];
    int64_t pa = period_of(&args[0]), pb = period_of(&args[1]);
    while (from < to) {
        int64_t ia = from % pa, ib = from % pb, count = to - from;
        if (pa > 1 && count > pa - ia)
            count = pa - ia;
        if (pb > 1 && count > pb - ib)
            count = pb - ib;
        const float *a = (const float *)w->p[0] + ia;
        if (args[1].dtype == SL_BOOL)
            mask_span(a, pa > 1, (const uint8_t *)w->p[1] + ib, pb > 1,
                      out + from, count);
        else
            binary_span(op, a, pa > 1, (const float *)w->p[1] + ib, pb > 1,
                        out + from, count);
        from += count;
    }
}

#define BINARY(name, OP)                                                       \
    static void name##_part(void *data, int worker, int64_t from, int64_t to)  \
    {                                                                          \
        (void)worker;                                                          \
        binary_part(OP, data, from, to);                                       \
    }                                                                          \
    static sl_status name(ARGS)                                                \
    {                                                                          \
        return spread(kernel, p, run, sl__arg_count(&kernel->args[2]), GRAIN,  \
                      name##_part);                                            \
    }
BINARY(add, SL__ADD)
BINARY(sub, SL__SUB)
BINARY(mul, SL__MUL)
#undef BINARY

static void dropout_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__attributes *attributes = &w->kernel->node->attributes;
    const float *x = w->p[0];
    float *out = w->p[1];
    uint64_t key = sl__dropout_key(w->run->seed, attributes->integer);
    uint64_t threshold = sl__dropout_threshold(attributes->number);
    float factor = (float)(1 / (1 - attributes->number));
    for (int64_t i = from; i < to; i++) {
        float kept =
            sl__dropout_keeps(key, (uint64_t)i, threshold) ? factor : 0;
        out[i] = kept != 0 ? x[i] * kept : 0;
    }
}

static sl_status dropout(ARGS)
{
    return spread(kernel, p, run, sl__arg_count(&kernel->args[0]), GRAIN / 4,
                  dropout_part);
}

/* ---------------------------------------------------------------- norms -- */

static void norm_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__kernel *kernel = w->kernel;
    int operands = kernel->operand_count;
    bool centred = kernel->node->attributes.flag;
    const float *weight = w->p[1], *bias = operands == 3 ? w->p[2] : NULL;
    int64_t columns = columns_of(&kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)w->p[0] + r * columns;
        float *y = (float *)w->p[operands] + r * columns;
        float *saved = (float *)w->p[operands + 1] + 2 * r;
        vf total = {0}, square = {0};
        if (centred)
            WALK(columns, total += load(x + i), total += load_part(x + i, n));
        float mean = sum_lanes(total) / (float)columns;
        WALK(
            columns,
            {
                vf d = load(x + i) - mean;
                square += d * d;
            },
            {
                vf d = first_lanes(load_part(x + i, n) - mean, n);
                square += d * d;
            });
        float scale = 1 / sqrtf(sum_lanes(square) / (float)columns +
                                (float)kernel->node->attributes.number);
        WALK(
            columns,
            {
                vf v = (load(x + i) - mean) * scale * load(weight + i);
                store(y + i, bias ? v + load(bias + i) : v);
            },
            {
                vf v = (load_part(x + i, n) - mean) * scale *
                       load_part(weight + i, n);
                store_part(y + i, bias ? v + load_part(bias + i, n) : v, n);
            });
        saved[0] = mean;
        saved[1] = scale;
    }
}

static sl_status layer_norm(ARGS)
{
    return spread_rows(kernel, p, run, &kernel->args[0], norm_part);
}

static sl_status rms_norm(ARGS)
{
    return layer_norm(kernel, p, run);
}

static void norm_grad_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    bool centred = w->kernel->node->attributes.flag;
    const float *weight = w->p[2];
    int64_t columns = columns_of(&w->kernel->args[1]);
    for (int64_t r = from; r < to; r++) {
        const float *dy = (const float *)w->p[0] + r * columns;
        const float *x = (const float *)w->p[1] + r * columns;
        const float *saved = (const float *)w->p[3] + 2 * r;
        float *dx = (float *)w->p[4] + r * columns;
        float mean = saved[0], scale = saved[1];
        vf sums = {0}, products = {0};
        WALK(
            columns,
            {
                vf g = load(dy + i) * load(weight + i);
                sums += g;
                products += g * (load(x + i) - mean);
            },
            {
                vf g = load_part(dy + i, n) * load_part(weight + i, n);
                sums += g;
                products += g * (load_part(x + i, n) - mean);
            });
        float sum = centred ? sum_lanes(sums) / (float)columns : 0;
        float product = sum_lanes(products) * scale * scale / (float)columns;
        WALK(
            columns,
            {
                vf g = load(dy + i) * load(weight + i) - sum;
                store(dx + i, scale * (g - (load(x + i) - mean) * product));
            },
            {
                vf g = load_part(dy + i, n) * load_part(weight + i, n) - sum;
                store_part(dx + i,
                           scale * (g - (load_part(x + i, n) - mean) * product),
                           n);
            });
    }
}

static sl_status norm_grad(ARGS)
{
    return spread_rows(kernel, p, run, &kernel->args[1], norm_grad_part);
}

/* Sums over many rows: a few in float, then those in double. */
enum { FEW_ROWS = 64 };

INLINE void add_lanes(double *totals, vf v)
{
    for (int i = 0; i < LANES; i++)
        totals[i] += v[i];
}

/* Writes the first n totals, times a factor, or adds them. */
INLINE void store_totals(float *out, const double *totals, int64_t n,
                         double factor, bool adds)
{
    for (int64_t i = 0; i < n; i++) {
        double total = totals[i] * factor;
        out[i] = (float)(adds ? out[i] + total : total);
    }
}

/* Columns from..to of the gradient of a norm's weight; threads share columns,
 * counted in vectors. */
static void norm_weight_grad_part(void *data, int worker, int64_t from,
                                  int64_t to)
{
    (void)worker;
    const work *w = data;
    const float *dy = w->p[0], *x = w->p[1], *saved = w->p[2];
    int64_t columns = columns_of(&w->kernel->args[1]);
    int64_t rows = sl__arg_count(&w->kernel->args[1]) / columns;
    for (int64_t at = from * LANES; at < to * LANES; at += LANES) {
        int64_t n = columns - at < LANES ? columns - at : LANES;
        double totals[LANES] = {0};
        for (int64_t first = 0; first < rows; first += FEW_ROWS) {
            int64_t end = rows - first < FEW_ROWS ? rows : first + FEW_ROWS;
            vf sum = {0};
            for (int64_t r = first; r < end; r++) {
                const float *g = dy + r * columns + at;
                const float *z = x + r * columns + at;
                vf gv = n == LANES ? load(g) : load_part(g, n);
                vf zv = n == LANES ? load(z) : load_part(z, n);
                sum += gv * (zv - saved[2 * r]) * saved[2 * r + 1];
            }
            add_lanes(totals, sum);
        }
        store_totals((float *)w->p[3] + at, totals, n, 1, w->kernel->adds);
    }
}

static sl_status norm_weight_grad(ARGS)
{
    int64_t columns = columns_of(&kernel->args[1]);
    int64_t rows = sl__arg_count(&kernel->args[1]) / columns;
    return spread(kernel, p, run, (columns + LANES - 1) / LANES,
                  GRAIN / (rows * LANES) + 1, norm_weight_grad_part);
}

/* -------------------------------------------------------------- softmax -- */

INLINE vf at_most_0(vf x)
{
    return choose(x > splat(0), splat(0), x);
}

INLINE float row_max(const float *x, int64_t columns)
{
    vf most = splat(-INFINITY);
    float last = -INFINITY;
    WALK(columns, most = larger(load(x + i), most), {
        for (int64_t k = 0; k < n; k++)
            last = x[i + k] > last ? x[i + k] : last;
    });
    float found = max_lanes(most);
    return found > last ? found : last;
}

/* Writes e^(scale x - shift), returns their sum. Where the shift is the largest
 * or the log of the sum, these are at most 1, and stay so however it was
 * rounded. `out` may be x. */
INLINE float row_exp(const float *x, float *out, int64_t columns, float scale,
                     float shift)
{
    vf total = {0};
    WALK(
        columns,
        {
            vf e = exp_lanes(at_most_0(load(x + i) * scale - shift));
            total += e;
            store(out + i, e);
        },
        {
            vf part = load_part(x + i, n) * scale - shift;
            vf e = first_lanes(exp_lanes(at_most_0(part)), n);
            total += e;
            store_part(out + i, e, n);
        });
    return sum_lanes(total);
}

INLINE float row_exp_sum(const float *x, int64_t columns, float shift)
{
    vf total = {0};
    WALK(columns, total += exp_lanes(load(x + i) - shift),
         total += first_lanes(exp_lanes(load_part(x + i, n) - shift), n));
    return sum_lanes(total);
}

INLINE void row_scale(float *x, int64_t columns, float factor)
{
    WALK(columns, store(x + i, load(x + i) * factor),
         store_part(x + i, load_part(x + i, n) * factor, n));
}

static void softmax_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    int64_t columns = columns_of(&w->kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)w->p[0] + r * columns;
        float *y = (float *)w->p[1] + r * columns;
        float sum = row_exp(x, y, columns, 1, row_max(x, columns));
        row_scale(y, columns, 1 / sum);
    }
}

static sl_status softmax(ARGS)
{
    return spread_rows(kernel, p, run, &kernel->args[0], softmax_part);
}

INLINE float row_dot(const float *a, const float *b, int64_t columns)
{
    vf total = {0};
    WALK(columns, total += load(a + i) * load(b + i),
         total += load_part(a + i, n) * load_part(b + i, n));
    return sum_lanes(total);
}

static void softmax_grad_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    int64_t columns = columns_of(&w->kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        const float *dy = (const float *)w->p[0] + r * columns;
        const float *y = (const float *)w->p[1] + r * columns;
        float *dx = (float *)w->p[2] + r * columns;
        float sum = row_dot(dy, y, columns);
        WALK(columns, store(dx + i, load(y + i) * (load(dy + i) - sum)),
             store_part(dx + i,
                        load_part(y + i, n) * (load_part(dy + i, n) - sum), n));
    }
}

static sl_status softmax_grad(ARGS)
{
    return spread_rows(kernel, p, run, &kernel->args[0], softmax_grad_part);
}

/* --------------------------------------------------- moving and reducing -- */

INLINE void add_span(float *out, const float *x, int64_t count)
{
    WALK(count, store(out + i, load(out + i) + load(x + i)),
         store_part(out + i, load_part(out + i, n) + load_part(x + i, n), n));
}

/* Rows (all dimensions but the last) of a box, one after the other. */
static void move_rows(const sl__arg *from, const float *source,
                      const sl__arg *to, float *target, bool adds)
{
    int last = from->dims - 1;
    int64_t columns = last < 0 ? 1 : from->shape[last];
    int64_t step = last < 0 ? 1 : from->stride[last];
    int64_t target_step = last < 0 ? 1 : to->stride[last];
    bool plain = columns == 1 || (step == 1 && target_step == 1);
    int64_t rows = sl__arg_count(from) / columns;
    int64_t index[SL_DIMS_MAX] = {0};
    for (int64_t r = 0; r < rows; r++) {
        const float *x = source;
        float *out = target;
        for (int d = 0; d < last; d++) {
            x += index[d] * from->stride[d];
            out += index[d] * to->stride[d];
        }
        if (plain && adds)
            add_span(out, x, columns);
        else if (plain)
            memcpy(out, x, sizeof *out * (size_t)columns);
        else
            for (int64_t c = 0; c < columns; c++)
                out[c * target_step] =
                    x[c * step] + (adds ? out[c * target_step] : 0);
        for (int d = last - 1; d >= 0; d--) {
            if (++index[d] < from->shape[d])
                break;
            index[d] = 0;
        }
    }
}

static sl_status copy(ARGS)
{
    (void)run;
    const sl__arg *from = &kernel->args[0], *to = &kernel->args[1];
    int64_t count = sl__arg_count(from);
    if (!sl__arg_is_dense(from) || !sl__arg_is_dense(to))
        move_rows(from, p[0], to, p[1], kernel->adds);
    else if (kernel->adds)
        add_span(p[1], p[0], count);
    else
        memcpy(p[1], p[0], sizeof(float) * (size_t)count);
    return SL_OK;
}

static sl_status concat(ARGS)
{
    (void)run;
    const sl__node *node = kernel->node;
    const sl__arg *out = &kernel->args[kernel->operand_count];
    float *target = p[kernel->operand_count];
    bool gaps = node->attributes.flag;
    if (gaps)
        memset(target, 0, sizeof *target * (size_t)sl__arg_count(out));
    for (int i = 0; i < kernel->operand_count; i++) {
        float *box = target;
        for (int d = 0; d < out->dims; d++)
            box += node->starts[i * SL_DIMS_MAX + d] * out->stride[d];
        if (box != p[i])
            move_rows(&kernel->args[i], p[i], out, box, gaps);
    }
    return SL_OK;
}

/* Columns from..to, counted in vectors, of the sum of rows. */
static void reduce_columns(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const float *x = w->p[0];
    int64_t columns = sl__arg_count(&w->kernel->args[1]);
    int64_t rows = sl__arg_count(&w->kernel->args[0]) / columns;
    for (int64_t at = from * LANES; at < to * LANES; at += LANES) {
        int64_t n = columns - at < LANES ? columns - at : LANES;
        double totals[LANES] = {0};
        for (int64_t first = 0; first < rows; first += FEW_ROWS) {
            int64_t end = rows - first < FEW_ROWS ? rows : first + FEW_ROWS;
            vf sum = {0};
            for (int64_t r = first; r < end; r++)
                sum += n == LANES ? load(x + r * columns + at)
                                  : load_part(x + r * columns + at, n);
            add_lanes(totals, sum);
        }
        store_totals((float *)w->p[1] + at, totals, n,
                     w->kernel->node->attributes.number, w->kernel->adds);
    }
}

/* Sums in float over stretches, then in double over these. */
static double sum_all(const float *x, int64_t count)
{
    enum { STRETCH = 16 * LANES };
    double sum = 0;
    for (int64_t at = 0; at < count; at += STRETCH) {
        int64_t part = count - at < STRETCH ? count - at : STRETCH;
        vf total = {0};
        WALK(part, total += load(x + at + i),
             total += load_part(x + at + i, n));
        sum += sum_lanes(total);
    }
    return sum;
}

/* The sums of rows from..to. */
static void reduce_rows(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    float *out = w->p[1];
    double factor = w->kernel->node->attributes.number;
    int64_t columns = columns_of(&w->kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        double sum =
            sum_all((const float *)w->p[0] + r * columns, columns) * factor;
        out[r] = (float)(w->kernel->adds ? out[r] + sum : sum);
    }
}

static sl_status reduce(ARGS)
{
    int64_t columns = sl__arg_count(&kernel->args[1]);
    int64_t count = sl__arg_count(&kernel->args[0]);
    if (columns > 1 && sl__reduces_last(&kernel->args[0], &kernel->args[1]))
        return spread_rows(kernel, p, run, &kernel->args[0], reduce_rows);
    if (columns > 1)
        return spread(kernel, p, run, (columns + LANES - 1) / LANES,
                      GRAIN / (count / columns * LANES) + 1, reduce_columns);
    float *out = p[1];
    double sum = sum_all(p[0], count) * kernel->node->attributes.number;
    *out = (float)(kernel->adds ? *out + sum : sum);
    return SL_OK;
}

static sl_status embedding_grad(ARGS)
{
    (void)run;
    const sl__arg *table = &kernel->args[2];
    float *out = p[2];
    int64_t columns = table->shape[1];
    int64_t count = sl__arg_count(&kernel->args[1]);
    if (!kernel->adds)
        memset(out, 0, sizeof *out * (size_t)sl__arg_count(table));
    for (int64_t i = 0; i < count; i++) {
        int64_t id = sl__integer(&kernel->args[1], p[1], i);
        if (id < 0 || id >= table->shape[0])
            return sl__refuse_id(kernel, id, i);
        add_span(out + id * columns, (const float *)p[0] + i * columns,
                 columns);
    }
    return SL_OK;
}

/* --------------------------------------------------------------- losses -- */

static sl_status mse(ARGS)
{
    enum { STRETCH = 16 * LANES };
    (void)run;
    const float *x = p[0], *target = p[1];
    int64_t count = sl__arg_count(&kernel->args[0]);
    double sum = 0;
    for (int64_t at = 0; at < count; at += STRETCH) {
        int64_t part = count - at < STRETCH ? count - at : STRETCH;
        vf total = {0};
        WALK(
            part,
            {
                vf d = load(x + at + i) - load(target + at + i);
                total += d * d;
            },
            {
                vf d = load_part(x + at + i, n) - load_part(target + at + i, n);
                total += d * d;
            });
        sum += sum_lanes(total);
    }
    *(float *)p[2] = (float)(sum / (double)count);
    return SL_OK;
}

static void mse_grad_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const float *x = (const float *)w->p[1] + from;
    const float *target = (const float *)w->p[2] + from;
    float *out = (float *)w->p[3] + from;
    int64_t count = sl__arg_count(&w->kernel->args[1]);
    float factor = (float)(2.0 * *(const float *)w->p[0] / (double)count);
    if (w->kernel->node->attributes.operand == 1)
        factor = -factor;
    WALK(to - from, store(out + i, factor * (load(x + i) - load(target + i))),
         store_part(out + i,
                    factor * (load_part(x + i, n) - load_part(target + i, n)),
                    n));
}

static sl_status mse_grad(ARGS)
{
    return spread(kernel, p, run, sl__arg_count(&kernel->args[1]), GRAIN,
                  mse_grad_part);
}

static void cross_entropy_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    int64_t columns = columns_of(&w->kernel->args[0]);
    float *saved = w->p[3];
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)w->p[0] + r * columns;
        float most = row_max(x, columns);
        saved[2 * r] = most;
        saved[2 * r + 1] = logf(row_exp_sum(x, columns, most));
    }
}

static sl_status cross_entropy(ARGS)
{
    const sl__arg *logits = &kernel->args[0], *labels = &kernel->args[1];
    const float *x = p[0], *saved = p[3];
    int64_t columns = columns_of(logits), rows = sl__arg_count(labels);
    int64_t counted = 0;
    double loss = 0;
    spread_rows(kernel, p, run, logits, cross_entropy_part);
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = sl__integer(labels, p[1], r);
        if (label == kernel->node->attributes.integer)
            continue;
        if (label < 0 || label >= columns)
            return sl__refuse_id(kernel, label, r);
        loss +=
            (double)saved[2 * r] - x[r * columns + label] + saved[2 * r + 1];
        counted++;
    }
    *(float *)p[2] = (float)(loss / (double)counted);
    return SL_OK;
}

static void cross_entropy_grad_part(void *data, int worker, int64_t from,
                                    int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__arg *labels = &w->kernel->args[2];
    const float *saved = w->p[3];
    int64_t ignore = w->kernel->node->attributes.integer;
    int64_t columns = columns_of(&w->kernel->args[1]);
    float factor = (float)(*(const float *)w->p[0] /
                           (double)sl__count_labels(labels, w->p[2], ignore));
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)w->p[1] + r * columns;
        float *out = (float *)w->p[4] + r * columns;
        int64_t label = sl__integer(labels, w->p[2], r);
        if (label == ignore) {
            memset(out, 0, sizeof *out * (size_t)columns);
            continue;
        }
        row_exp(x, out, columns, 1, saved[2 * r]);
        row_scale(out, columns, factor * expf(-saved[2 * r + 1]));
        out[label] -= factor;
    }
}

static sl_status cross_entropy_grad(ARGS)
{
    const sl__arg *labels = &kernel->args[2];
    int64_t columns = columns_of(&kernel->args[1]);
    for (int64_t r = 0; r < sl__arg_count(labels); r++) {
        int64_t label = sl__integer(labels, p[2], r);
        if (label != kernel->node->attributes.integer &&
            (label < 0 || label >= columns))
            return sl__refuse_id(kernel, label, r);
    }
    return spread_rows(kernel, p, run, &kernel->args[1],
                       cross_entropy_grad_part);
}

#include "tensor/onednn/tile.h"

#include "tensor/onednn/attention.h"

const sl__vector_kernels VECTOR(sl__vector) = {
    VECTOR_NAME,
    {
        [SL__ADD] = add,
        [SL__SUB] = sub,
        [SL__MUL] = mul,
        [SL__SCALE] = scale,
        [SL__RELU] = relu,
        [SL__GELU_TANH] = gelu_tanh,
        [SL__GELU_ERF] = gelu_erf,
        [SL__SILU] = silu,
        [SL__DROPOUT] = dropout,
        [SL__LAYER_NORM] = layer_norm,
        [SL__RMS_NORM] = rms_norm,
        [SL__SOFTMAX] = softmax,
        [SL__ATTENTION] = attention,
        [SL__CONCAT] = concat,
        [SL__COPY] = copy,
        [SL__REDUCE] = reduce,
        [SL__MSE] = mse,
        [SL__CROSS_ENTROPY] = cross_entropy,
        [SL__RELU_GRAD] = relu_grad,
        [SL__GELU_TANH_GRAD] = gelu_tanh_grad,
        [SL__GELU_ERF_GRAD] = gelu_erf_grad,
        [SL__SILU_GRAD] = silu_grad,
        [SL__NORM_GRAD] = norm_grad,
        [SL__NORM_WEIGHT_GRAD] = norm_weight_grad,
        [SL__SOFTMAX_GRAD] = softmax_grad,
        [SL__EMBEDDING_GRAD] = embedding_grad,
        [SL__ATTENTION_GRAD] = attention_grad,
        [SL__MSE_GRAD] = mse_grad,
        [SL__CROSS_ENTROPY_GRAD] = cross_entropy_grad,
    },
    add_product,
};

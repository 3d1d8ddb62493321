/* SPDX-License-Identifier: MIT
 *
 * Ops that go row by row: norms and softmax. */

/* ---------------------------------------------------------------- norms -- */

/* With `sums`, of an add_norm, what is normed is the sum of the first two
 * operands, which is stored first. */
INLINE void norm_rows(const work *w, bool sums, int64_t from, int64_t to)
{
    const sl__kernel *kernel = w->kernel;
    int operands = kernel->operand_count, first = sums ? 2 : 1;
    bool centred = kernel->node->attributes.flag;
    void *const *results = w->p + operands + sums;
    const float *weight = w->p[first];
    const float *bias = operands == first + 2 ? w->p[first + 1] : NULL;
    int64_t columns = columns_of(&kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        const element *x = (const element *)w->p[0] + r * columns;
        element *y = (element *)results[0] + r * columns;
        float *saved = (float *)results[1] + 2 * r;
        if (sums) {
            const element *b = (const element *)w->p[1] + r * columns;
            element *sum = (element *)w->p[operands] + r * columns;
            WALK(columns, store(sum + i, load(x + i) + load(b + i)),
                 store_part(sum + i, load_part(x + i, n) + load_part(b + i, n),
                            n));
            x = sum;
        }
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

static void norm_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    norm_rows(data, false, from, to);
}

static void add_norm_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    norm_rows(data, true, from, to);
}

static sl_status add_norm(ARGS)
{
    return spread_rows(kernel, p, run, &kernel->args[0], add_norm_part);
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
    int operands = w->kernel->operand_count;
    const float *weight = w->p[2];
    int64_t columns = columns_of(&w->kernel->args[1]);
    for (int64_t r = from; r < to; r++) {
        const element *further =
            operands == 5 ? (const element *)w->p[4] + r * columns : NULL;
        const element *dy = (const element *)w->p[0] + r * columns;
        const element *x = (const element *)w->p[1] + r * columns;
        const float *saved = (const float *)w->p[3] + 2 * r;
        element *dx = (element *)w->p[operands] + r * columns;
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
                vf own = scale * (g - (load(x + i) - mean) * product);
                store(dx + i, further ? own + load(further + i) : own);
            },
            {
                vf g = load_part(dy + i, n) * load_part(weight + i, n) - sum;
                vf own = scale * (g - (load_part(x + i, n) - mean) * product);
                store_part(dx + i,
                           further ? own + load_part(further + i, n) : own, n);
            });
    }
}

static sl_status norm_grad(ARGS)
{
    return spread_rows(kernel, p, run, &kernel->args[1], norm_grad_part);
}

/* Sums over many rows: this many in float, then their sums in double. */
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

/* Columns from..to of the gradients of a norm's weight and bias. Threads divide
 * the columns, counted in vectors. */
static void norm_weight_grad_part(void *data, int worker, int64_t from,
                                  int64_t to)
{
    (void)worker;
    const work *w = data;
    const element *dy = w->p[0], *x = w->p[1];
    const float *saved = w->p[2];
    float *bias = w->p[4];
    int64_t columns = columns_of(&w->kernel->args[1]);
    int64_t rows = sl__arg_count(&w->kernel->args[1]) / columns;
    for (int64_t at = from * LANES; at < to * LANES; at += LANES) {
        int64_t n = columns - at < LANES ? columns - at : LANES;
        double totals[LANES] = {0}, plain[LANES] = {0};
        for (int64_t first = 0; first < rows; first += FEW_ROWS) {
            int64_t end = rows - first < FEW_ROWS ? rows : first + FEW_ROWS;
            vf sum = {0}, all = {0};
            for (int64_t r = first; r < end; r++) {
                const element *g = dy + r * columns + at;
                const element *z = x + r * columns + at;
                vf gv = n == LANES ? load(g) : load_part(g, n);
                vf zv = n == LANES ? load(z) : load_part(z, n);
                sum += gv * (zv - saved[2 * r]) * saved[2 * r + 1];
                all += gv;
            }
            add_lanes(totals, sum);
            add_lanes(plain, all);
        }
        store_totals((float *)w->p[3] + at, totals, n, 1, w->kernel->adds);
        if (bias)
            store_totals(bias + at, plain, n, 1, w->kernel->adds);
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

/* Rows of a tensor, and rows of f32 in scratch. */
#define NUMBER    element
#define ROW(name) name
#include "tensor/backends/cpu/kernels/row.h"
#undef NUMBER
#undef ROW
#define NUMBER    float
#define ROW(name) name##_f32
#include "tensor/backends/cpu/kernels/row.h"
#undef NUMBER
#undef ROW

static void softmax_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    int64_t columns = columns_of(&w->kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        const element *x = (const element *)w->p[0] + r * columns;
        element *y = (element *)w->p[1] + r * columns;
        float most = row_max(x, columns);
#ifdef ELEMENT_IS_BF16
        /* Rounded once: what is stored is not read again. */
        float part = 1 / row_exp_sum(x, columns, most);
        WALK(
            columns, store(y + i, exp_lanes(load(x + i) - most) * part),
            store_part(y + i, exp_lanes(load_part(x + i, n) - most) * part, n));
#else
        row_scale(y, columns, 1 / row_exp(x, y, columns, 1, most));
#endif
    }
}

static sl_status softmax(ARGS)
{
    return spread_rows(kernel, p, run, &kernel->args[0], softmax_part);
}

static void softmax_grad_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    int64_t columns = columns_of(&w->kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        const element *dy = (const element *)w->p[0] + r * columns;
        const element *y = (const element *)w->p[1] + r * columns;
        element *dx = (element *)w->p[2] + r * columns;
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

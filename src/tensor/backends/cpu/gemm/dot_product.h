/* SPDX-License-Identifier: MIT
 *
 * Products of a few rows with a weight that stays in cache and has contiguous
 * columns, as dot products along the columns. Forward then reads a weight (out,
 * in) where it lies, as backward does: nothing is packed, and the weight takes
 * half the cache. */

/* Rows of a tile. It has as many columns as make one sum per lane. */
enum { DOT_ROWS = 4 };

typedef struct dot_work {
    sl__dot_product shape;
    const float *a, *b, *bias;
    float *out;
} dot_work;

/* Interleaves the first half of the vectors with the second and adds
 * neighbours: half as many vectors remain. */
INLINE void fold(vf v[LANES], int half)
{
#pragma GCC unroll 8
    for (int i = 0; i < half; i++)
        v[i] = INTERLEAVE_LOW(v[i], v[i + half]) +
               INTERLEAVE_HIGH(v[i], v[i + half]);
}

/* The sum of each of LANES vectors, in one vector. */
INLINE vf sum_each(vf v[LANES])
{
    if (LANES > 8)
        fold(v, LANES / 2);
    if (LANES > 4)
        fold(v, 4);
    fold(v, 2);
    fold(v, 1);
    return v[0];
}

/* A tile. Its sums begin as the bias, or as zeros. */
INLINE void dot_tile(const dot_work *w, int64_t i, int64_t j, int rows)
{
    const sl__dot_product *f = &w->shape;
    const int columns = LANES / rows;
    const float *a = w->a + i * f->a_row, *b = w->b + j * f->b_column;
    float sums[LANES];
    vf sum[LANES];
#pragma GCC unroll 16
    for (int s = 0; s < LANES; s++)
        sum[s] = (vf){w->bias ? w->bias[j + s % columns] : 0};
    for (int64_t k = 0; k < f->k; k += LANES) {
        vf left[DOT_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            left[r] = load(a + r * f->a_row + k);
#pragma GCC unroll 16
        for (int c = 0; c < columns; c++) {
            vf right = load(b + c * f->b_column + k);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                sum[r * columns + c] += left[r] * right;
        }
    }
    store(sums, sum_each(sum));
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        memcpy(w->out + (i + r) * f->out_row + j, sums + r * columns,
               sizeof(float) * (size_t)columns);
}

INLINE void dot_rows(const dot_work *w, int64_t *i, int64_t j, int rows)
{
    for (; *i + rows <= w->shape.m; *i += rows) {
        for (int64_t c = 0; c < LANES; c += LANES / rows)
            dot_tile(w, *i, j + c, rows);
    }
}

/* On one thread: so few rows of a small weight are not worth a second. */
static sl_status multiply_dots(ARGS)
{
    const sl__dot_product *f = kernel->private;
    const dot_work w = {.shape = *f,
                        .a = p[f->a],
                        .b = p[f->b],
                        .bias = f->bias < 0 ? NULL : p[f->bias],
                        .out = p[kernel->operand_count]};
    for (int64_t j = 0; j < w.shape.n; j += LANES) {
        int64_t i = 0;
        dot_rows(&w, &i, j, DOT_ROWS);
        dot_rows(&w, &i, j, 2);
        dot_rows(&w, &i, j, 1);
    }
    return activate(kernel, p, run);
}

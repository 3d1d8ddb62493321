/* SPDX-License-Identifier: MIT
 *
 * Products of a few rows with a weight that stays near, whose columns are
 * contiguous: sums of products along them, in vectors. So a weight (out, in)
 * serves x w' where it lies, as it serves y w: it is not packed, and half as
 * large in the caches. */

/* Rows at a time, by so many columns that there is a sum for each lane. */
enum { DOT_ROWS = 4 };

typedef struct dot_work {
    sl__dot_product shape;
    const float *a, *b, *bias;
    float *out;
} dot_work;

/* Adds the halves of vectors to each other, and weaves them into half as many
 * vectors. */
INLINE void fold(vf v[LANES], int half)
{
#pragma GCC unroll 8
    for (int i = 0; i < half; i++)
        v[i] = WEAVE_LOW(v[i], v[i + half]) + WEAVE_HIGH(v[i], v[i + half]);
}

/* The sums of each of LANES vectors, as one. */
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

/* Some rows by some columns. A sum begins as the bias and zeros. */
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

/* On one thread: of a near weight, so few rows are not worth a second. */
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

/* SPDX-License-Identifier: MIT
 *
 * Products of a few rows with the transpose of a matrix in panels: so a weight
 * that was packed for x w serves y w' as well, is packed once and is half as
 * large in the caches. The rows lie in the lanes of vectors, and the numbers of
 * the panel come one by one, in the order in which they lie. */

/* Rows of the result, transposed, whose sums are kept at a time. */
enum { TURNED_ROWS = LANES > 8 ? 24 : 12 };

typedef struct turned_work {
    const sl__turned_product *shape;
    const float *left; /* (k, m) */
    const float *panels;
    float *sums; /* (n, m) */
    float *out;
} turned_work;

/* Adds the products of one k to the sums of a vector of columns. */
INLINE void add_number(vf sum[TURNED_ROWS], const float *a, const float *b,
                       int64_t width, int rows)
{
    vf left = load(a);
#pragma GCC unroll 24
    for (int r = 0; r < rows; r++)
        sum[r] += left * splat(b[r * width]);
}

/* Adds a panel to some rows of the sums, while those of the next panel are
 * asked for. */
INLINE void turned_tile(const turned_work *w, int64_t panel, int64_t row,
                        int rows, int vectors)
{
    const sl__turned_product *f = w->shape;
    const int64_t width = (int64_t)vectors * LANES, first = panel * width;
    const int64_t depth = f->k - first < width ? f->k - first : width;
    const float *b = w->panels + first * f->n + row * width;
    for (int64_t column = 0; column < f->m; column += LANES) {
        const float *a = w->left + first * f->m + column;
        const float *next = b + width * f->n;
        float *to = w->sums + row * f->m + column;
        vf sum[TURNED_ROWS];
#pragma GCC unroll 24
        for (int r = 0; r < rows; r++)
            sum[r] = panel ? load(to + r * f->m) : (vf){0};
        int64_t k = 0;
        for (; k + 2 <= depth; k += 2, next += vectors * LANES) {
            for (int line = 0; line < vectors; line++)
                __builtin_prefetch(next + line * LANES, 0, 2);
            add_number(sum, a + k * f->m, b + k, width, rows);
            add_number(sum, a + (k + 1) * f->m, b + k + 1, width, rows);
        }
        if (k < depth)
            add_number(sum, a + k * f->m, b + k, width, rows);
#pragma GCC unroll 24
        for (int r = 0; r < rows; r++)
            store(to + r * f->m, sum[r]);
    }
}

INLINE void turned_rows(const turned_work *w, int64_t from, int64_t to,
                        int vectors)
{
    const sl__turned_product *f = w->shape;
    for (int64_t panel = 0; panel * vectors * LANES < f->k; panel++) {
        int64_t row = from;
        for (; row + TURNED_ROWS <= to; row += TURNED_ROWS)
            turned_tile(w, panel, row, TURNED_ROWS, vectors);
        for (; row + 8 <= to; row += 8)
            turned_tile(w, panel, row, 8, vectors);
        for (; row < to; row++)
            turned_tile(w, panel, row, 1, vectors);
    }
}

static __attribute__((noinline)) void turned_two(const turned_work *w,
                                                 int64_t from, int64_t to)
{
    turned_rows(w, from, to, 2);
}

static __attribute__((noinline)) void turned_three(const turned_work *w,
                                                   int64_t from, int64_t to)
{
    turned_rows(w, from, to, 3);
}

static void multiply_turned_part(void *data, int worker, int64_t from,
                                 int64_t to)
{
    (void)worker;
    const turned_work *w = data;
    const sl__turned_product *f = w->shape;
    from *= TURNED_ROWS;
    to = to * TURNED_ROWS < f->n ? to * TURNED_ROWS : f->n;
    float *sums = w->sums + from * f->m, *out = w->out + from;
    (f->vectors == 2 ? turned_two : turned_three)(w, from, to);
    transpose(sums, f->m, to - from, f->m, out, f->out_row);
}

static sl_status multiply_turned(ARGS)
{
    const sl__turned_product *f = kernel->private;
    float *scratch = p[kernel->arg_count - 1];
    turned_work w = {.shape = f,
                     .left = scratch,
                     .panels = p[f->b],
                     .sums = scratch + f->k * f->m,
                     .out = p[kernel->operand_count]};
    transpose(p[f->a], f->a_row, f->m, f->k, scratch, f->m);
    sl__parallel(sl__threads_of(run), (f->n + TURNED_ROWS - 1) / TURNED_ROWS,
                 PANEL_GRAIN / (f->m * f->k * TURNED_ROWS) + 1,
                 multiply_turned_part, &w);
    return SL_OK;
}

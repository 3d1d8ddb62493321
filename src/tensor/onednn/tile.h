/* SPDX-License-Identifier: MIT
 *
 * Small products by one register tile, which reads its left factor by single
 * elements, with any strides, and its right factor and result by contiguous
 * rows. */

/* A product C (m, n) = or += A (m, k) B (k, n). */
typedef struct small_product {
    const float *a;
    int64_t a_row, a_column;
    const float *b; /* rows contiguous */
    int64_t b_row;
    float *c; /* rows contiguous */
    int64_t c_row;
    int64_t m, n, k;
    bool adds;
    int64_t ahead; /* elements of c that are asked for ahead; 0: none */
} small_product;

/* One tile at (i, j): `rows` and `vectors` are constants where this is inlined;
 * the last vector has `n` lanes. */
INLINE void tile(const small_product *s, int64_t i, int64_t j, int rows,
                 int vectors, int64_t n)
{
    vf sum[TILE_ROWS][TILE_VECTORS];
    const float *a = s->a + i * s->a_row, *b = s->b + j;
    float *c = s->c + i * s->c_row + j;
    const bool whole = n == LANES;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * s->c_row + v * LANES;
            vf old = !s->adds ? (vf){0} : whole ? load(at) : load_part(at, n);
            sum[r][v] = old;
            if (s->ahead)
                __builtin_prefetch(at + s->ahead, 1);
        }
    }
    for (int64_t k = 0; k < s->k; k++) {
        vf right[TILE_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            right[v] = whole ? load(b + v * LANES) : load_part(b, n);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vf left = splat(a[r * s->a_row]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++)
                sum[r][v] += left * right[v];
        }
        a += s->a_column;
        b += s->b_row;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * s->c_row + v * LANES;
            if (whole)
                store(at, sum[r][v]);
            else
                store_part(at, sum[r][v], n);
        }
    }
}

/* All columns of `rows` rows from i. */
INLINE void tile_rows(const small_product *s, int64_t i, int rows)
{
    int64_t j = 0;
    for (; j + TILE_VECTORS * LANES <= s->n; j += TILE_VECTORS * LANES)
        tile(s, i, j, rows, TILE_VECTORS, LANES);
    for (; j + LANES <= s->n; j += LANES)
        tile(s, i, j, rows, 1, LANES);
    if (j < s->n)
        tile(s, i, j, rows, 1, s->n - j);
}

static void multiply(const small_product *s)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= s->m; i += TILE_ROWS)
        tile_rows(s, i, TILE_ROWS);
    for (; i + 2 <= s->m; i += 2)
        tile_rows(s, i, 2);
    if (i < s->m)
        tile_rows(s, i, 1);
}

/* ------------------------------------------------- gradient of a weight -- */

/* Rows from..to of out, counted in tiles. */
static void add_product_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__flat_product *f = w->kernel->private;
    int64_t first = from * TILE_ROWS, end = to * TILE_ROWS;
    end = end < f->m ? end : f->m;
    const float *a = w->p[f->a], *b = w->p[f->b];
    float *out = w->p[w->kernel->operand_count];
    multiply(&(small_product){.a = a + first * f->a_row,
                              .a_row = f->a_row,
                              .a_column = f->a_column,
                              .b = b,
                              .b_row = f->b_row,
                              .c = out + first * f->out_row,
                              .c_row = f->out_row,
                              .m = end - first,
                              .n = f->n,
                              .k = f->k,
                              .adds = true,
                              .ahead = TILE_ROWS * f->out_row});
}

static sl_status add_product(ARGS)
{
    const sl__flat_product *f = kernel->private;
    return spread(kernel, p, run, (f->m + TILE_ROWS - 1) / TILE_ROWS,
                  GRAIN / (f->n * TILE_ROWS) + 1, add_product_part);
}

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

/* The rows of a flat product under way. */
typedef struct flat_product {
    const sl__flat_product *shape;
    const float *a, *b;
    float *out;
} flat_product;

/* One tile of it. What the tile below will add to is asked for meanwhile, row
 * after row: all at once would wait for all of it. */
INLINE void flat_tile(const flat_product *s, int64_t i, int64_t j, int rows,
                      int vectors, int64_t n)
{
    const sl__flat_product *f = s->shape;
    const float *a = s->a + i * f->a_row, *b = s->b + j;
    float *out = s->out + i * f->out_row + j;
    const bool whole = n == LANES;
    vf sum[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            const float *at = out + r * f->out_row + v * LANES;
            sum[r][v] = whole ? load(at) : load_part(at, n);
        }
    }
    const float *next = out + rows * f->out_row;
    for (int part = 0; part < rows; part++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            __builtin_prefetch(next + v * LANES, 1, 2);
        next += f->out_row;
        int64_t k = f->k * (part + 1) / rows - f->k * part / rows;
        for (; k > 0; k--) {
            vf right[TILE_VECTORS];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++)
                right[v] = whole ? load(b + v * LANES) : load_part(b, n);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vf left = splat(a[r * f->a_row]);
#pragma GCC unroll 8
                for (int v = 0; v < vectors; v++)
                    sum[r][v] += left * right[v];
            }
            a += f->a_column;
            b += f->b_row;
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            float *at = out + r * f->out_row + v * LANES;
            if (whole)
                store(at, sum[r][v]);
            else
                store_part(at, sum[r][v], n);
        }
    }
}

INLINE void flat_rows(const flat_product *s, int64_t i, int rows)
{
    int64_t j = 0, n = s->shape->n;
    for (; j + TILE_VECTORS * LANES <= n; j += TILE_VECTORS * LANES)
        flat_tile(s, i, j, rows, TILE_VECTORS, LANES);
    for (; j + LANES <= n; j += LANES)
        flat_tile(s, i, j, rows, 1, LANES);
    if (j < n)
        flat_tile(s, i, j, rows, 1, n - j);
}

/* Rows from..to of out, counted in tiles. */
static void add_product_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__flat_product *f = w->kernel->private;
    int64_t i = from * TILE_ROWS, end = to * TILE_ROWS;
    end = end < f->m ? end : f->m;
    const flat_product s = {f, w->p[f->a], w->p[f->b],
                            w->p[w->kernel->operand_count]};
    for (; i + TILE_ROWS <= end; i += TILE_ROWS)
        flat_rows(&s, i, TILE_ROWS);
    for (; i + 2 <= end; i += 2)
        flat_rows(&s, i, 2);
    if (i < end)
        flat_rows(&s, i, 1);
}

static sl_status add_product(ARGS)
{
    const sl__flat_product *f = kernel->private;
    return spread(kernel, p, run, (f->m + TILE_ROWS - 1) / TILE_ROWS,
                  GRAIN / (f->n * TILE_ROWS) + 1, add_product_part);
}

/* SPDX-License-Identifier: MIT
 *
 * Small products, a register tile at a time. The left operand may have any
 * strides; the right one and the result have contiguous rows. */

/* Two operands: any strides on the left, contiguous rows on the right. */
typedef struct factors {
    const float *a, *b;
    int64_t a_row, a_column, b_row;
    int64_t depth;
} factors;

/* What is done with a tile, whose sums stay in registers: `rows` and `vectors`
 * are constants after inlining; the last vector has `n` lanes. */
INLINE void load_sums(vf sum[TILE_ROWS][TILE_VECTORS], const float *c,
                      int64_t c_row, int rows, int vectors, int64_t n)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            const float *at = c + r * c_row + v * LANES;
            sum[r][v] = n == LANES ? load(at) : load_part(at, n);
        }
    }
}

/* Adds rows from..to of the depth, of the tile at (i, j). */
INLINE void add_sums(vf sum[TILE_ROWS][TILE_VECTORS], const factors *f,
                     int64_t i, int64_t j, int64_t from, int64_t to, int rows,
                     int vectors, int64_t n)
{
    const float *a = f->a + i * f->a_row + from * f->a_column;
    const float *b = f->b + j + from * f->b_row;
    const bool whole = n == LANES;
    for (int64_t k = from; k < to; k++) {
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

INLINE void store_sums(vf sum[TILE_ROWS][TILE_VECTORS], float *c, int64_t c_row,
                       int rows, int vectors, int64_t n)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * c_row + v * LANES;
            if (n == LANES)
                store(at, sum[r][v]);
            else
                store_part(at, sum[r][v], n);
        }
    }
}

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

/* One tile at (i, j). */
INLINE void tile(const small_product *s, int64_t i, int64_t j, int rows,
                 int vectors, int64_t n)
{
    const factors f = {s->a, s->b, s->a_row, s->a_column, s->b_row, s->k};
    float *c = s->c + i * s->c_row + j;
    vf sum[TILE_ROWS][TILE_VECTORS] = {{{0}}};
    if (s->adds)
        load_sums(sum, c, s->c_row, rows, vectors, n);
    add_sums(sum, &f, i, j, 0, s->k, rows, vectors, n);
    store_sums(sum, c, s->c_row, rows, vectors, n);
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

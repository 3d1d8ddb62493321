/* SPDX-License-Identifier: MIT
 *
 * Small products by one register tile, which reads its left factor by single
 * elements, with any strides, and its right factor and result by contiguous
 * rows. */

/* Two factors: the left one with any strides, rows of the right contiguous. */
typedef struct factors {
    const float *a, *b;
    int64_t a_row, a_column, b_row;
    int64_t depth;
} factors;

/* The steps of a tile, whose sums stay in registers: `rows` and `vectors` are
 * constants where these are inlined; the last vector has `n` lanes. */
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

/* ------------------------------------------------- gradient of a weight -- */

/* A flat product under way: what was held, if anything, then what is given. */
typedef struct flat_product {
    const sl__flat_product *shape;
    factors held, given;
    float *out;
} flat_product;

/* One tile of it: `far` is a constant too. Where it is far, what the tile below
 * will add to is asked for meanwhile, row after row: all at once would wait for
 * all of it. */
INLINE void flat_tile(const flat_product *s, int64_t i, int64_t j, int rows,
                      int vectors, int64_t n, bool far)
{
    const sl__flat_product *f = s->shape;
    float *out = s->out + i * f->out_row + j;
    const float *next = out + rows * f->out_row;
    vf sum[TILE_ROWS][TILE_VECTORS];
    load_sums(sum, out, f->out_row, rows, vectors, n);
    if (s->held.depth > 0)
        add_sums(sum, &s->held, i, j, 0, s->held.depth, rows, vectors, n);
    for (int part = 0; part < rows && far; part++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            __builtin_prefetch(next + v * LANES, 1, 2);
        next += f->out_row;
        add_sums(sum, &s->given, i, j, f->k * part / rows,
                 f->k * (part + 1) / rows, rows, vectors, n);
    }
    if (!far)
        add_sums(sum, &s->given, i, j, 0, f->k, rows, vectors, n);
    store_sums(sum, out, f->out_row, rows, vectors, n);
}

INLINE void flat_rows(const flat_product *s, int64_t i, int rows, bool far)
{
    int64_t j = 0, n = s->shape->n;
    for (; j + TILE_VECTORS * LANES <= n; j += TILE_VECTORS * LANES)
        flat_tile(s, i, j, rows, TILE_VECTORS, LANES, far);
    for (; j + LANES <= n; j += LANES)
        flat_tile(s, i, j, rows, 1, LANES, far);
    if (j < n)
        flat_tile(s, i, j, rows, 1, n - j, far);
}

INLINE void flat_part(const flat_product *s, int64_t i, int64_t end, bool far)
{
    for (; i + TILE_ROWS <= end; i += TILE_ROWS)
        flat_rows(s, i, TILE_ROWS, far);
    for (; i + 2 <= end; i += 2)
        flat_rows(s, i, 2, far);
    if (i < end)
        flat_rows(s, i, 1, far);
}

/* A flat product and what it holds, as its threads see them. */
typedef struct flat_work {
    flat_product product;
    float *a, *b; /* to hold */
} flat_work;

/* Rows from..to of out, counted in tiles. */
static void add_product_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const flat_product *s = &((const flat_work *)data)->product;
    int64_t i = from * TILE_ROWS, end = to * TILE_ROWS;
    end = end < s->shape->m ? end : s->shape->m;
    if (s->shape->is_far)
        flat_part(s, i, end, true);
    else
        flat_part(s, i, end, false);
}

/* Rows from..to of the depth. */
static void hold_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const flat_work *w = data;
    const sl__flat_product *f = w->product.shape;
    const factors *given = &w->product.given;
    for (int64_t k = from; k < to; k++) {
        memcpy(w->a + k * f->m, given->a + k * given->a_column,
               sizeof(float) * (size_t)f->m);
        memcpy(w->b + k * f->n, given->b + k * given->b_row,
               sizeof(float) * (size_t)f->n);
    }
}

/* Holds what is given, where it may; else what was held comes with it. */
static bool hold(flat_work *w, sl__held *held, const sl__run *run)
{
    const sl__flat_product *f = w->product.shape;
    int64_t depth = held->count * f->k;
    float *a = held->factors, *b = a + (f->together - 1) * f->k * f->m;
    if (!held->has_begun)
        held->room = f->first;
    held->has_begun = run->more;
    if (run->more && held->room > 0) {
        held->count++;
        held->room--;
        w->a = a + depth * f->m;
        w->b = b + depth * f->n;
        sl__parallel(run->threads, f->k, GRAIN / (f->m + f->n) + 1, hold_part,
                     w);
        return true;
    }
    w->product.held = (factors){a, b, 1, f->m, f->n, depth};
    held->count = 0;
    held->room = f->together - 1;
    return false;
}

static sl_status add_product(ARGS)
{
    const sl__flat_product *f = kernel->private;
    flat_work w = {.product = {.shape = f,
                               .given = {p[f->a], p[f->b], f->a_row,
                                         f->a_column, f->b_row, f->k},
                               .out = p[kernel->operand_count]}};
    if (f->together > 1 && hold(&w, p[kernel->arg_count - 1], run))
        return SL_OK;
    sl__parallel(run->threads, (f->m + TILE_ROWS - 1) / TILE_ROWS,
                 GRAIN / (f->n * TILE_ROWS) + 1, add_product_part, &w);
    return SL_OK;
}

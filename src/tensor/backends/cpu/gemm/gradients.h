/* SPDX-License-Identifier: MIT
 *
 * The gradient of a weight from a few rows: bound by memory, not by arithmetic.
 * Where several microbatches add to it in one call, it is walked once. */

/* A flat product under way. */
typedef struct flat_product {
    const sl__flat_product *shape;
    factors given;
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

/* Rows from..to of out, counted in tiles. */
static void add_product_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const flat_product *s = data;
    int64_t i = from * TILE_ROWS, end = to * TILE_ROWS;
    end = end < s->shape->m ? end : s->shape->m;
    if (s->shape->is_far)
        flat_part(s, i, end, true);
    else
        flat_part(s, i, end, false);
}

static void add_now(flat_product *s, int threads)
{
    const sl__flat_product *f = s->shape;
    sl__parallel(threads, (f->m + TILE_ROWS - 1) / TILE_ROWS,
                 GRAIN / (f->n * TILE_ROWS) + 1, add_product_part, s);
}

/* ------------------------------------------------------------- together -- */

/* The factors of several microbatches, packed one after the other: of a, then of
 * b, in pieces of a few microbatches, each with all panels, so that what comes is
 * written in order. */
typedef struct together {
    float *a, *b;
    int count;
} together;

/* Packs the factors of a microbatch behind those that are there. */
static void pack_factors(const flat_product *s, together *all,
                         const sl__run *run)
{
    const sl__flat_product *f = s->shape;
    int64_t piece = all->count / f->per_piece;
    int64_t depth = all->count % f->per_piece * f->k;
    pack_into(&f->a_pack, s->given.a,
              all->a + piece * f->a_piece + depth * LANES, run);
    pack_into(&f->b_pack, s->given.b,
              all->b + piece * f->b_piece + depth * f->b_pack.vectors * LANES,
              run);
    all->count++;
}

/* Adds what is packed, in the order in which it came. */
static void add_packed(const flat_product *s, together *all, int threads)
{
    const sl__flat_product *f = s->shape;
    const sl__panel_product shape = {.m = f->m,
                                     .n = f->n,
                                     .k = all->count * f->k,
                                     .out_row = f->out_row,
                                     .vectors = (int)f->b_pack.vectors,
                                     .adds = true,
                                     .adds_far = f->is_far,
                                     .is_far = f->is_far,
                                     .piece = f->per_piece * f->k};
    panel_work w = {.shape = &shape,
                    .a = all->a,
                    .b = all->b,
                    .out = s->out,
                    .a_row = 1,
                    .a_column = LANES,
                    .a_vector = LANES * f->a_pack.room,
                    .b_row = f->b_pack.vectors * LANES,
                    .b_panel = f->b_pack.vectors * LANES * f->b_pack.room,
                    .panels = panels_of(f->n, f->b_pack.vectors),
                    .a_piece = f->a_piece,
                    .b_piece = f->b_piece};
    multiply_all(&w, threads, PANEL_GRAIN);
    all->count = 0;
}

static flat_product flat_of(const sl__kernel *kernel, void *const *p)
{
    const sl__flat_product *f = kernel->private;
    return (flat_product){
        .shape = f,
        .given = {p[f->a], p[f->b], f->a_row, f->a_column, f->b_row, f->k},
        .out = p[kernel->operand_count]};
}

/* Of several microbatches each element is read once, gets their products one
 * after the other, and is written once: the same bits as one by one. */
static sl_status add_product(ARGS)
{
    const sl__flat_product *f = kernel->private;
    int count = run->group > 1 ? run->group : 1;
    if (count == 1 || f->together < 2) {
        for (int i = 0; i < count; i++) {
            flat_product s = flat_of(kernel, p + i * run->group_stride);
            add_now(&s, sl__threads_of(run));
        }
        return SL_OK;
    }
    float *room = p[kernel->arg_count - 1];
    int pieces = (f->together + f->per_piece - 1) / f->per_piece;
    together all = {room, room + pieces * f->a_piece, 0};
    for (int i = 0; i < count; i++) {
        flat_product s = flat_of(kernel, p + i * run->group_stride);
        pack_factors(&s, &all, run);
        if (all.count == f->together || i + 1 == count)
            add_packed(&s, &all, sl__threads_of(run));
    }
    return SL_OK;
}

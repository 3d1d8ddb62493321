/* SPDX-License-Identifier: MIT
 *
 * The gradient of a weight from a few rows: bound by memory, not by arithmetic.
 * So factors of many microbatches wait in panels, to be added in one walk. */

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

/* -------------------------------------------------------------- waiting -- */

/* Where b of what is held begins: behind all of a. */
static float *held_right(const sl__flat_product *f, sl__held *held)
{
    int pieces = (f->together + f->per_piece - 1) / f->per_piece;
    return held->factors + pieces * f->a_piece;
}

/* Packs the factors of a microbatch behind those that wait. */
static void hold(const flat_product *s, sl__held *held, const sl__run *run)
{
    const sl__flat_product *f = s->shape;
    int64_t piece = held->count / f->per_piece;
    int64_t depth = held->count % f->per_piece * f->k;
    pack_into(&f->a_pack, s->given.a,
              held->factors + piece * f->a_piece + depth * LANES, run);
    pack_into(&f->b_pack, s->given.b,
              held_right(f, held) + piece * f->b_piece +
                  depth * f->b_pack.vectors * LANES,
              run);
    held->count++;
}

/* Multiplications that are worth a thread where others come once a step: one
 * that is woken for less spins for longer, beside somebody who works. */
enum { SETTLE_GRAIN = 1 << 20 };

/* Adds what waits, in the order in which it came. */
static void settle(const flat_product *s, sl__held *held, int threads)
{
    const sl__flat_product *f = s->shape;
    const sl__panel_product all = {.m = f->m,
                                   .n = f->n,
                                   .k = held->count * f->k,
                                   .out_row = f->out_row,
                                   .vectors = (int)f->b_pack.vectors,
                                   .adds = true,
                                   .adds_far = f->is_far,
                                   .is_far = f->is_far,
                                   .piece = f->per_piece * f->k};
    panel_work w = {.shape = &all,
                    .a = held->factors,
                    .b = held_right(f, held),
                    .out = s->out,
                    .a_row = 1,
                    .a_column = LANES,
                    .a_vector = LANES * f->a_pack.room,
                    .b_row = f->b_pack.vectors * LANES,
                    .b_panel = f->b_pack.vectors * LANES * f->b_pack.room,
                    .panels = panels_of(f->n, f->b_pack.vectors),
                    .a_piece = f->a_piece,
                    .b_piece = f->b_piece};
    if (held->count > 0)
        multiply_all(&w, threads, SETTLE_GRAIN);
    held->count = 0;
}

/* Whether a microbatch that has come may wait for others. */
static bool may_wait(const sl__flat_product *f, sl__held *held,
                     const sl__run *run)
{
    bool begins = !held->has_begun;
    held->has_begun = run->adding != SL_ADD_NOW;
    if (run->adding != SL_ADD_SOON)
        return run->adding == SL_ADD_LATE;
    if (begins)
        held->room = f->first;
    if (held->room-- > 0)
        return true;
    held->room = f->few - 1;
    return false;
}

static sl_status add_product(ARGS)
{
    const sl__flat_product *f = kernel->private;
    flat_product s = {
        .shape = f,
        .given = {p[f->a], p[f->b], f->a_row, f->a_column, f->b_row, f->k},
        .out = p[kernel->operand_count]};
    sl__held *held = f->together > 1 ? p[kernel->arg_count - 1] : NULL;
    bool waits = held && !run->settles && may_wait(f, held, run);
    if (!held || (!waits && held->count == 0 && !run->settles)) {
        add_now(&s, run->threads);
        return SL_OK;
    }
    if (held->count == f->together)
        settle(&s, held, run->threads);
    if (!run->settles)
        hold(&s, held, run);
    if (!waits)
        settle(&s, held, run->threads);
    return SL_OK;
}

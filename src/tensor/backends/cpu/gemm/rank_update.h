/* SPDX-License-Identifier: MIT
 *
 * The gradient of a weight from a few rows: bound by memory bandwidth. Several
 * microbatches that come in one call are added in one pass over it. */

/* A rank update in progress. */
typedef struct rank_update {
    const sl__rank_update *shape;
    factors given;
    float *out;
} rank_update;

/* One tile of it; `streamed` is a compile-time constant. The rows that the tile
 * below adds to are prefetched meanwhile, one after the other: all at once
 * would fill the load queue. */
INLINE void update_tile(const rank_update *s, int64_t i, int64_t j, int rows,
                        int vectors, int64_t n, bool streamed)
{
    const sl__rank_update *f = s->shape;
    float *out = s->out + i * f->out_row + j;
    const float *next = out + rows * f->out_row;
    vf sum[TILE_ROWS][TILE_VECTORS];
    load_sums(sum, out, f->out_row, rows, vectors, n);
    for (int part = 0; part < rows && streamed; part++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
            __builtin_prefetch(next + v * LANES, 1, 2);
        next += f->out_row;
        add_sums(sum, &s->given, i, j, f->k * part / rows,
                 f->k * (part + 1) / rows, rows, vectors, n);
    }
    if (!streamed)
        add_sums(sum, &s->given, i, j, 0, f->k, rows, vectors, n);
    store_sums(sum, out, f->out_row, rows, vectors, n);
}

INLINE void update_rows(const rank_update *s, int64_t i, int rows,
                        bool streamed)
{
    int64_t j = 0, n = s->shape->n;
    for (; j + TILE_VECTORS * LANES <= n; j += TILE_VECTORS * LANES)
        update_tile(s, i, j, rows, TILE_VECTORS, LANES, streamed);
    for (; j + LANES <= n; j += LANES)
        update_tile(s, i, j, rows, 1, LANES, streamed);
    if (j < n)
        update_tile(s, i, j, rows, 1, n - j, streamed);
}

INLINE void update_rows_of(const rank_update *s, int64_t i, int64_t end,
                           bool streamed)
{
    for (; i + TILE_ROWS <= end; i += TILE_ROWS)
        update_rows(s, i, TILE_ROWS, streamed);
    for (; i + 2 <= end; i += 2)
        update_rows(s, i, 2, streamed);
    if (i < end)
        update_rows(s, i, 1, streamed);
}

/* Rows of out, from..to counted in tiles. */
static void add_update_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const rank_update *s = data;
    int64_t i = from * TILE_ROWS, end = to * TILE_ROWS;
    end = end < s->shape->m ? end : s->shape->m;
    if (s->shape->out_streamed)
        update_rows_of(s, i, end, true);
    else
        update_rows_of(s, i, end, false);
}

static void add_now(rank_update *s, int threads)
{
    const sl__rank_update *f = s->shape;
    sl__parallel(threads, (f->m + TILE_ROWS - 1) / TILE_ROWS,
                 GRAIN / (f->n * TILE_ROWS) + 1, add_update_part, s);
}

/* -------------------------------------------------------------- grouped -- */

/* The operands of several microbatches, packed: all a, then all b, in pieces of
 * a few microbatches. A piece has all panels, so that it is written in
 * order. */
typedef struct group {
    float *a, *b;
    int count;
} group;

/* Packs the operands of a microbatch after those of earlier ones. */
static void pack_operands(const rank_update *s, group *all, int threads)
{
    const sl__rank_update *f = s->shape;
    int64_t piece = all->count / f->per_piece;
    int64_t depth = all->count % f->per_piece * f->k;
    pack_matrix(&f->a_pack, s->given.a,
                all->a + piece * f->a_piece + depth * LANES, threads);
    pack_matrix(&f->b_pack, s->given.b,
                all->b + piece * f->b_piece + depth * f->b_pack.vectors * LANES,
                threads);
    all->count++;
}

/* Adds what is packed, in order. */
static void add_packed(const rank_update *s, group *all, int threads)
{
    const sl__rank_update *f = s->shape;
    const sl__panel_product shape = {.batch = 1,
                                     .m = f->m,
                                     .n = f->n,
                                     .k = all->count * f->k,
                                     .out_row = f->out_row,
                                     .vectors = (int)f->b_pack.vectors,
                                     .adds = true,
                                     .out_streamed = f->out_streamed,
                                     .b_streamed = f->out_streamed,
                                     .piece = f->per_piece * f->k};
    panel_work w = {.shape = &shape,
                    .a = all->a,
                    .b = all->b,
                    .out = s->out,
                    .a_row = 1,
                    .a_column = LANES,
                    .a_vector = LANES * f->a_pack.depth,
                    .b_row = f->b_pack.vectors * LANES,
                    .b_panel = f->b_pack.vectors * LANES * f->b_pack.depth,
                    .panels = panels_of(f->n, f->b_pack.vectors),
                    .a_piece = f->a_piece,
                    .b_piece = f->b_piece};
    multiply_all(&w, threads);
    all->count = 0;
}

static rank_update update_of(const sl__kernel *kernel, void *const *p)
{
    const sl__rank_update *f = kernel->private;
    return (rank_update){
        .shape = f,
        .given = {p[f->a], p[f->b], f->a_row, f->a_column, f->b_row, f->k},
        .out = p[kernel->operand_count]};
}

/* With several microbatches, each element is read once, gets their products one
 * after the other, and is written once: the same bits as in one call for
 * each. */
static sl_status add_rank_update(ARGS)
{
    const sl__rank_update *f = kernel->private;
    int count = run->group > 1 ? run->group : 1;
    if (count == 1 || f->grouped < 2) {
        for (int i = 0; i < count; i++) {
            rank_update s = update_of(kernel, p + i * run->group_stride);
            add_now(&s, sl__threads_of(run));
        }
        return SL_OK;
    }
    float *room = p[kernel->arg_count - 1];
    int pieces = (f->grouped + f->per_piece - 1) / f->per_piece;
    group all = {room, room + pieces * f->a_piece, 0};
    for (int i = 0; i < count; i++) {
        rank_update s = update_of(kernel, p + i * run->group_stride);
        pack_operands(&s, &all, sl__threads_of(run));
        if (all.count == f->grouped || i + 1 == count)
            add_packed(&s, &all, sl__threads_of(run));
    }
    return SL_OK;
}

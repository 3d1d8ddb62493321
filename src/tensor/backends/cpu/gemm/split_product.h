/* SPDX-License-Identifier: MIT
 *
 * Products of f32 by tiles of bf16, included once per kind of tiles, which has
 * defined TILE_LOAD, TILE_ZERO, TILE_STORE, TILE_MULTIPLY, TILES_BEGIN,
 * TILES_END, and TILES_READ, a barrier between writing memory and loading
 * tiles. An f32 is exactly the sum of three bf16 with 8 bits of it each. Of the
 * nine products of two such sums the six largest are added up in f32; the
 * others are smaller than an f32's rounding. So sums are as accurate as those
 * of f32 arithmetic (test_products checks this); a single product may be two
 * roundings off. Tiles do sixteen multiplications in the time of one, so six of
 * them still pay.
 *
 * Two things are not as in f32: an infinity becomes NaN; and numbers and sums
 * below about 2^-103 lose bits, because tiles flush subnormal pieces to
 * zero. */
#include "tensor/backends/cpu/gemm/tiles.h"

/* The pieces of a block lie one after the other, each of two tiles. */
enum { PIECES = SL__SPLIT_PIECES, BLOCK_PAIRS = PIECES * 2 * TILE };
_Static_assert(BLOCK == (int)SL__SPLIT_BLOCK && DEPTH == (int)BLOCK, "");

/* ------------------------------------------------------------ splitting -- */

/* Splits 16 numbers into three pieces each, in the upper halves of `out`. The
 * first is truncated, so that it never exceeds the largest float; the second is
 * rounded, so that the third is small. */
INLINE void split(const float *in, v16u out[PIECES])
{
    const v16u upper = (v16u){0} + 0xffff0000;
    v16u x = *(const v16u_loose *)in;
    out[0] = x & upper;
    v16u rest = (v16u)((v16f)x - (v16f)out[0]);
    out[1] = (rest + 0x8000) & upper;
    out[2] = (v16u)((v16f)rest - (v16f)out[1]) & upper;
}

/* What one tile is split from: 16 rows of 32, none past an edge. */
typedef struct split_source {
    const float *data;
    int64_t row, column;
} split_source;

/* Splits contiguous rows of 32 numbers: row r of each tile is row r. */
INLINE void split_rows(const split_source *s, uint32_t *out[PIECES])
{
    for (int r = 0; r < SIDE; r++) {
        v16u low[PIECES], high[PIECES];
        split(s->data + r * s->row, low);
        split(s->data + r * s->row + SIDE, high);
#pragma GCC unroll 3
        for (int piece = 0; piece < PIECES; piece++) {
            *(v32h_loose *)(out[piece] + r * SIDE) = __builtin_shufflevector(
                (v32h)low[piece], (v32h)high[piece], 1, 3, 5, 7, 9, 11, 13, 15,
                17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47,
                49, 51, 53, 55, 57, 59, 61, 63);
        }
    }
}

/* Splits contiguous columns of 16 numbers: row r of each tile is the r-th pair
 * of columns. */
INLINE void split_columns(const split_source *s, uint32_t *out[PIECES])
{
    for (int r = 0; r < SIDE; r++) {
        v16u even[PIECES], odd[PIECES];
        split(s->data + 2 * r * s->column, even);
        split(s->data + (2 * r + 1) * s->column, odd);
#pragma GCC unroll 3
        for (int piece = 0; piece < PIECES; piece++)
            *(v16u_loose *)(out[piece] + r * SIDE) =
                even[piece] >> 16 | odd[piece];
    }
}

/* The three tiles of a part of an operand, by rows of the left matrix or
 * columns of the right one; past its edges they are 0. */
static void split_tile(split_source s, int64_t rows, int64_t depth, bool left,
                       uint32_t *out[PIECES])
{
    float edge[SIDE][DEPTH];
    if (rows < SIDE || depth < DEPTH || (s.row != 1 && s.column != 1)) {
        memset(edge, 0, sizeof edge);
        for (int64_t r = 0; r < rows && r < SIDE; r++) {
            for (int64_t k = 0; k < depth && k < DEPTH; k++)
                edge[r][k] = s.data[r * s.row + k * s.column];
        }
        s = (split_source){edge[0], DEPTH, 1};
    }
    bool by_rows = s.column == 1;
    if (by_rows)
        split_rows(&s, out);
    else
        split_columns(&s, out);
    for (int piece = 0; piece < PIECES && by_rows != left; piece++)
        transpose_tile(out[piece]);
}

/* An operand to be split: `size` rows of the left matrix, or columns of the
 * right one. */
typedef struct split_factor {
    const float *data;
    int64_t size, depth;
    int64_t row, column; /* strides: to the next of these, to the next k */
    bool left;
    uint32_t *out; /* by block, then by part of the depth: pieces, tiles */
} split_factor;

static void split_block(const split_factor *f, int64_t block, int64_t part)
{
    uint32_t *at = f->out + (block * blocks_of(f->depth) + part) * BLOCK_PAIRS;
    for (int t = 0; t < 2; t++) {
        int64_t first = block * BLOCK + t * SIDE, k = part * DEPTH;
        uint32_t *out[PIECES] = {at + t * TILE, at + (2 + t) * TILE,
                                 at + (4 + t) * TILE};
        split_tile((split_source){f->data + first * f->row + k * f->column,
                                  f->row, f->column},
                   f->size - first, f->depth - k, f->left, out);
    }
}

/* ---------------------------------------------------------- multiplying -- */

/* One block of the result: where its sums begin from, and where they go. */
typedef struct split_sums {
    const float *from; /* NULL: zeros */
    int64_t from_row;
    float *to;
    int64_t to_row;
} split_sums;

/* Tiles 0 to 3 are the result, 4 and 5 left, 6 and 7 right. */
#define MULTIPLY_BLOCK()                                                       \
    do {                                                                       \
        TILE_MULTIPLY(0, 4, 6);                                                \
        TILE_MULTIPLY(1, 4, 7);                                                \
        TILE_MULTIPLY(2, 5, 6);                                                \
        TILE_MULTIPLY(3, 5, 7);                                                \
    } while (0)

#define LOAD_LEFT(piece)                                                       \
    TILE_LOAD(4, a + (2 * (piece)) * TILE, SIDE);                              \
    TILE_LOAD(5, a + (2 * (piece) + 1) * TILE, SIDE)
#define LOAD_RIGHT(piece)                                                      \
    TILE_LOAD(6, b + (2 * (piece)) * TILE, SIDE);                              \
    TILE_LOAD(7, b + (2 * (piece) + 1) * TILE, SIDE)

static void multiply_block(const uint32_t *a, const uint32_t *b, int64_t parts,
                           const split_sums *s)
{
    TILES_READ();
    if (s->from) {
        TILE_LOAD(0, s->from, s->from_row);
        TILE_LOAD(1, s->from + SIDE, s->from_row);
        TILE_LOAD(2, s->from + SIDE * s->from_row, s->from_row);
        TILE_LOAD(3, s->from + SIDE * s->from_row + SIDE, s->from_row);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (; parts > 0; parts--, a += BLOCK_PAIRS, b += BLOCK_PAIRS) {
        /* In an order in which the pieces of one number add up without
         * rounding. */
        LOAD_LEFT(2);
        LOAD_RIGHT(0);
        MULTIPLY_BLOCK();
        LOAD_LEFT(1);
        MULTIPLY_BLOCK();
        LOAD_RIGHT(1);
        MULTIPLY_BLOCK();
        LOAD_LEFT(0);
        MULTIPLY_BLOCK();
        LOAD_RIGHT(2);
        MULTIPLY_BLOCK();
        LOAD_RIGHT(0);
        MULTIPLY_BLOCK();
    }
    TILE_STORE(0, s->to, s->to_row);
    TILE_STORE(1, s->to + SIDE, s->to_row);
    TILE_STORE(2, s->to + SIDE * s->to_row, s->to_row);
    TILE_STORE(3, s->to + SIDE * s->to_row + SIDE, s->to_row);
}

/* A product in progress. */
typedef struct split_work {
    const sl__panel_product *shape;
    const uint32_t *a, *b; /* split */
    const float *bias;
    float *out;
    int64_t strip; /* columns of a unit of work, in blocks */
} split_work;

/* A block at an edge of the result, computed in a whole block beside it. */
static void multiply_edge(const split_work *w, const uint32_t *a,
                          const uint32_t *b, int64_t parts, int64_t i,
                          int64_t j, const split_sums *s)
{
    float whole[BLOCK][BLOCK] = {{0}};
    int64_t rows = w->shape->m - i, columns = w->shape->n - j;
    rows = rows < BLOCK ? rows : BLOCK;
    columns = columns < BLOCK ? columns : BLOCK;
    size_t bytes = sizeof(float) * (size_t)columns;
    for (int64_t r = 0; r < rows && s->from; r++)
        memcpy(whole[r], s->from + r * s->from_row, bytes);
    multiply_block(a, b, parts,
                   &(split_sums){whole[0], BLOCK, whole[0], BLOCK});
    for (int64_t r = 0; r < rows; r++)
        memcpy(s->to + r * s->to_row, whole[r], bytes);
}

/* As many parts of a block's depth are added at a time. */
enum { CACHED_PARTS = 16 };

static void multiply_one(const split_work *w, int64_t row, int64_t column,
                         int64_t part)
{
    const sl__panel_product *f = w->shape;
    int64_t all = blocks_of(f->k), parts = all - part;
    parts = parts < CACHED_PARTS ? parts : CACHED_PARTS;
    const uint32_t *a = w->a + (row * all + part) * BLOCK_PAIRS;
    const uint32_t *b = w->b + (column * all + part) * BLOCK_PAIRS;
    int64_t i = row * BLOCK, j = column * BLOCK;
    float *out = w->out + i * f->out_row + j;
    split_sums sums = {out, f->out_row, out, f->out_row};
    if (part == 0 && !f->adds) {
        sums.from = w->bias ? w->bias + j : NULL;
        sums.from_row = 0;
    }
    if (i + BLOCK <= f->m && j + BLOCK <= f->n)
        multiply_block(a, b, parts, &sums);
    else
        multiply_edge(w, a, b, parts, i, j, &sums);
}

/* A unit of work is a strip of columns by a band of rows, in blocks.
 * Consecutive units of a band are computed together: some of the depth of their
 * rows stays in cache while the columns pass. */
enum { BAND = 8 };

static void multiply_units(const split_work *w, int64_t band, int64_t left,
                           int64_t right)
{
    int64_t parts = blocks_of(w->shape->k), rows = blocks_of(w->shape->m);
    int64_t top = band * BAND, bottom = top + BAND;
    bottom = bottom < rows ? bottom : rows;
    for (int64_t part = 0; part < parts; part += CACHED_PARTS) {
        for (int64_t column = left; column < right; column++) {
            for (int64_t row = top; row < bottom; row++)
                multiply_one(w, row, column, part);
        }
    }
}

static int64_t divide_up(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

static void multiply_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const split_work *w = data;
    int64_t columns = blocks_of(w->shape->n);
    int64_t strips = divide_up(columns, w->strip);
    TILES_BEGIN();
    while (from < to) {
        int64_t first = from % strips, end = first + to - from;
        end = end < strips ? end : strips;
        int64_t right = end * w->strip;
        multiply_units(w, from / strips, first * w->strip,
                       right < columns ? right : columns);
        from += end - first;
    }
    TILES_END();
}

/* Units are large, so that less is read again, but there are several for each
 * thread. */
static void multiply_all(split_work *w, int threads)
{
    int64_t bands = divide_up(blocks_of(w->shape->m), BAND);
    int64_t columns = blocks_of(w->shape->n);
    w->strip = bands * divide_up(columns, 8) < 4 * threads ? 4 : 8;
    sl__parallel(threads, bands * divide_up(columns, w->strip), 1,
                 multiply_part, w);
}

/* Splits blocks from..to, counted over an operand's blocks and parts of its
 * depth, in the order in which they lie in memory. */
static void split_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const split_factor *f = data;
    int64_t parts = blocks_of(f->depth), blocks = blocks_of(f->size);
    for (int64_t at = from; at < to; at++) {
        if (f->row == 1)
            split_block(f, at % blocks, at / blocks);
        else
            split_block(f, at / parts, at % parts);
    }
}

/* As many blocks as are worth a thread. */
enum { FEW_BLOCKS = 8 };

static void split_all(split_factor *factor, int threads)
{
    int64_t parts = blocks_of(factor->depth), blocks = blocks_of(factor->size);
    sl__parallel(threads, blocks * parts, FEW_BLOCKS, split_part, factor);
}

static sl_status multiply_split(const sl__kernel *kernel, void *const *p,
                                const sl__run *run)
{
    const sl__panel_product *f = kernel->private;
    uint32_t *scratch = p[kernel->arg_count - 1];
    split_factor left = {p[f->a],     f->m, f->k,   f->a_row,
                         f->a_column, true, scratch};
    split_work w = {.shape = f,
                    .a = scratch,
                    .b = p[f->b],
                    .bias = f->bias < 0 ? NULL : p[f->bias],
                    .out = p[kernel->operand_count]};
    split_all(&left, sl__threads_of(run));
    if (f->packs_b) {
        uint32_t *out =
            scratch + sl__split_bytes(f->m, f->k) / (int64_t)sizeof *scratch;
        split_factor right = {p[f->b],       f->n,  f->k, f->b_pack.column,
                              f->b_pack.row, false, out};
        split_all(&right, sl__threads_of(run));
        w.b = out;
    }
    multiply_all(&w, sl__threads_of(run));
    if (kernel->activation == SL__OP_COUNT)
        return SL_OK;
    int result = kernel->operand_count;
    const sl__kernel after = {.args = &kernel->args[result],
                              .node = kernel->node};
    void *const in_place[] = {p[result], p[result]};
    return sl__vector_choose()->table[kernel->activation](&after, in_place,
                                                          run);
}

static sl_status pack_split(const sl__kernel *kernel, void *const *p,
                            const sl__run *run)
{
    const sl__panel_pack *f = kernel->private;
    split_factor right = {p[0], f->n, f->k, f->column, f->row, false, p[1]};
    split_all(&right, sl__threads_of(run));
    return SL_OK;
}

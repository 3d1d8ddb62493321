/* SPDX-License-Identifier: MIT
 *
 * Products of bf16 that sum in f32, included once per kind of arithmetic, which
 * has defined BLOCK_PRODUCT, ARITHMETIC_BEGIN and ARITHMETIC_END. Both operands
 * are packed into tiles (tiles.h): a weight once per optimizer step, anything
 * else before each product. A block of the result is summed over the whole
 * depth at once, and rounded once. */
#include "tensor/backends/cpu/gemm/tiles.h"

#include <assert.h>
#include <stdbool.h>

/* Both tiles of a block lie one after the other. */
enum { BLOCK_PAIRS = 2 * TILE };
_Static_assert(BLOCK == (int)SL__BF16_BLOCK && DEPTH == (int)BLOCK, "");

/* ------------------------------------------------------------- rounding -- */

/* 16 numbers to the nearest bf16, ties to even, in the lower halves; NaN stays
 * NaN. Vectors are not passed by value: not every instruction set has such wide
 * ones. */
INLINE void round_16(const float *x, v16u *out)
{
    v16f number = *(const v16f_loose *)x;
    v16u bits = (v16u)number, is_nan = (v16u)(number != number);
    v16u rounded = bits + 0x7fff + (bits >> 16 & 1);
    *out = ((is_nan & (bits | 0x400000)) | (~is_nan & rounded)) >> 16;
}

/* -------------------------------------------------------------- packing -- */

/* What a tile is packed from: 16 rows (of the left matrix, or columns of the
 * right one) by 32 along the depth, none past an edge. */
typedef struct tile_source {
    const void *data;
    int64_t row, column; /* strides: to the next row, to the next k */
    bool is_float;       /* f32, to be rounded; else bf16 */
} tile_source;

INLINE const void *source_at(const tile_source *s, int64_t row, int64_t k)
{
    int64_t at = row * s->row + k * s->column;
    return s->is_float ? (const void *)((const float *)s->data + at)
                       : (const void *)((const uint16_t *)s->data + at);
}

/* 16 contiguous numbers, in the lower halves. */
INLINE void load_16(const void *from, bool is_float, v16u *out)
{
    if (is_float)
        round_16(from, out);
    else
        *out = __builtin_convertvector(*(const v16h_loose *)from, v16u);
}

/* Packs rows that are contiguous along the depth: row r of the tile is row
 * r. */
INLINE void pack_by_rows(const tile_source *s, uint32_t *out)
{
    for (int r = 0; r < SIDE; r++) {
        const void *from = source_at(s, r, 0);
        if (!s->is_float) {
            *(v16u_loose *)(out + r * SIDE) = *(const v16u_loose *)from;
            continue;
        }
        v16u low, high;
        round_16((const float *)from, &low);
        round_16((const float *)from + SIDE, &high);
        *(v32h_loose *)(out + r * SIDE) = __builtin_shufflevector(
            (v32h)low, (v32h)high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
            24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56,
            58, 60, 62);
    }
}

/* Packs what is contiguous along the rows: row r of the tile is the r-th pair
 * along the depth. */
INLINE void pack_by_pairs(const tile_source *s, uint32_t *out)
{
    for (int r = 0; r < SIDE; r++) {
        v16u first, second;
        load_16(source_at(s, 0, 2 * r), s->is_float, &first);
        load_16(source_at(s, 0, 2 * r + 1), s->is_float, &second);
        *(v16u_loose *)(out + r * SIDE) = first | second << 16;
    }
}

INLINE void copy_numbers(const tile_source *s, int64_t row, int64_t k,
                         int64_t step, int64_t count, uint16_t *out)
{
    const void *from = source_at(s, row, k);
    if (!s->is_float && step == 1) {
        memcpy(out, from, sizeof *out * (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = s->is_float ? sl__to_bf16(((const float *)from)[i * step])
                             : ((const uint16_t *)from)[i * step];
}

/* Copies a tile at an edge of the operand, past which it is 0, in the order in
 * which the operand lies in memory. */
static tile_source copy_edge(const tile_source *s, int64_t rows, int64_t depth,
                             uint16_t edge[SIDE * DEPTH])
{
    bool down = s->row == 1 && s->column != 1;
    rows = rows < 0 ? 0 : rows < SIDE ? rows : SIDE;
    depth = depth < DEPTH ? depth : DEPTH;
    memset(edge, 0, sizeof(uint16_t[SIDE * DEPTH]));
    for (int64_t k = 0; k < depth && down; k++)
        copy_numbers(s, 0, k, 1, rows, edge + k * SIDE);
    for (int64_t r = 0; r < rows && !down; r++)
        copy_numbers(s, r, 0, s->column, depth, edge + r * DEPTH);
    return down ? (tile_source){edge, 1, SIDE, false}
                : (tile_source){edge, DEPTH, 1, false};
}

static void pack_tile(tile_source s, int64_t rows, int64_t depth, bool left,
                      uint32_t *out)
{
    uint16_t edge[SIDE * DEPTH];
    if (rows < SIDE || depth < DEPTH || (s.row != 1 && s.column != 1))
        s = copy_edge(&s, rows, depth, edge);
    bool by_rows = s.column == 1;
    if (by_rows)
        pack_by_rows(&s, out);
    else
        pack_by_pairs(&s, out);
    if (by_rows != left)
        transpose_tile(out);
}

/* An operand to be packed: `size` rows of the left matrix, or columns of the
 * right one. */
typedef struct operand {
    tile_source source;
    int64_t size, depth;
    bool left;
    uint32_t *out; /* by block of rows, then by part of the depth */
} operand;

/* Packs blocks from..to, in the order in which they lie in the operand. */
static void pack_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const operand *o = data;
    int64_t parts = blocks_of(o->depth), blocks = blocks_of(o->size);
    for (int64_t at = from; at < to; at++) {
        bool down = o->source.row == 1;
        int64_t block = down ? at % blocks : at / parts;
        int64_t part = down ? at / blocks : at % parts;
        uint32_t *out = o->out + (block * parts + part) * BLOCK_PAIRS;
        for (int t = 0; t < 2; t++) {
            int64_t row = block * BLOCK + t * SIDE, k = part * DEPTH;
            tile_source s = o->source;
            if (row < o->size)
                s.data = source_at(&o->source, row, k);
            pack_tile(s, o->size - row, o->depth - k, o->left, out + t * TILE);
        }
    }
}

/* Packs all of an operand, and returns where the next one may lie. */
static uint32_t *pack_all(operand *o, int threads)
{
    enum { FEW_BLOCKS = 8 }; /* as many as are worth a thread */
    int64_t count = blocks_of(o->depth) * blocks_of(o->size);
    sl__parallel(threads, count, FEW_BLOCKS, pack_part, o);
    return o->out + count * BLOCK_PAIRS;
}

/* ----------------------------------------------------------- multiplying -- */

/* A unit of work is a band of rows by a strip of columns, in blocks: the rows
 * stay in the second-level cache while the columns pass. Where results are
 * added, memory is read and written row by row. */
enum { BAND = 8 };

/* A product in progress: of several microbatches, the results are added to
 * `out` one after the other. */
typedef struct product {
    const sl__bf16_product *shape;
    const uint32_t *a, *b;  /* packed */
    int64_t a_next, b_next; /* from one microbatch to the next */
    int count;              /* of microbatches */
    const float *bias;
    void *out;
    bool rectifies; /* a ReLU follows */
    int64_t strip;  /* columns of a unit of work, in blocks */
} product;

/* Rounds a row of sums, after bias and ReLU, or copies it. */
INLINE void finish_row(const product *w, const float *sums, const float *bias,
                       int64_t at, int64_t columns)
{
    float whole[BLOCK];
    for (int c = 0; c < BLOCK; c += SIDE) {
        v16f x = *(const v16f_loose *)(sums + c);
        if (bias)
            x += *(const v16f_loose *)(bias + c);
        if (w->rectifies)
            x = (v16f)((v16u)x & ~(v16u)(x <= 0));
        *(v16f_loose *)(whole + c) = x;
    }
    if (w->shape->out_is_float) {
        memcpy((float *)w->out + at, whole, sizeof(float) * (size_t)columns);
        return;
    }
    uint16_t halves[BLOCK], *out = (uint16_t *)w->out + at;
    uint16_t *to = columns == BLOCK ? out : halves;
    for (int c = 0; c < BLOCK; c += SIDE) {
        v16u rounded;
        round_16(whole + c, &rounded);
        *(v16h_loose *)(to + c) = __builtin_convertvector(rounded, v16h);
    }
    if (columns < BLOCK)
        memcpy(out, halves, sizeof *out * (size_t)columns);
}

/* Fetches a block of results that will be added to. */
INLINE void fetch_ahead(const product *w, int64_t i, int64_t j, int64_t rows)
{
    const sl__bf16_product *f = w->shape;
    const float *out = (const float *)w->out + i * f->out_row + j;
    for (int64_t r = 0; r < rows && j < f->n; r++) {
        __builtin_prefetch(out + r * f->out_row, 1, 2);
        __builtin_prefetch(out + r * f->out_row + SIDE, 1, 2);
    }
}

/* Adds a block of the products to `sums`, which has this row stride, or writes
 * it: of all microbatches, one after the other. */
INLINE void sum_block(const product *w, int64_t row, int64_t column,
                      int64_t rows, float *sums, int64_t sums_row)
{
    const sl__bf16_product *f = w->shape;
    int64_t pairs = blocks_of(f->k) * BLOCK_PAIRS;
    /* A weight is read from memory once: the last rows that use a block of it
     * fetch the next block. */
    bool fetches = !f->packs_b && (row + 1) % BAND == 0;
    fetches = fetches || (!f->packs_b && row + 1 == blocks_of(f->m));
    fetches = fetches && column + 1 < blocks_of(f->n);
    assert(f->adds || w->count == 1);
    for (int g = 0; g < w->count; g++)
        BLOCK_PRODUCT(w->a + g * w->a_next + row * pairs,
                      w->b + g * w->b_next + column * pairs, f->k, rows, sums,
                      sums_row, f->adds,
                      fetches ? w->b + (column + 1) * pairs : NULL);
}

static void multiply_one(const product *w, int64_t row, int64_t column)
{
    const sl__bf16_product *f = w->shape;
    int64_t i = row * BLOCK, j = column * BLOCK, at = i * f->out_row + j;
    int64_t rows = f->m - i < BLOCK ? f->m - i : BLOCK;
    int64_t columns = f->n - j < BLOCK ? f->n - j : BLOCK;
    _Alignas(64) float sums[BLOCK * BLOCK];
    float bias[BLOCK] = {0};
    if (f->adds && rows == BLOCK && columns == BLOCK) {
        fetch_ahead(w, i, j + BLOCK, rows);
        sum_block(w, row, column, rows, (float *)w->out + at, f->out_row);
        return;
    }
    if (f->adds)
        memset(sums, 0, sizeof sums);
    for (int64_t r = 0; r < rows && f->adds; r++)
        memcpy(sums + r * BLOCK, (float *)w->out + at + r * f->out_row,
               sizeof *sums * (size_t)columns);
    if (w->bias)
        memcpy(bias, w->bias + j, sizeof *bias * (size_t)columns);
    sum_block(w, row, column, rows, sums, BLOCK);
    for (int64_t r = 0; r < rows; r++)
        finish_row(w, sums + r * BLOCK, w->bias ? bias : NULL,
                   at + r * f->out_row, columns);
}

static void multiply_unit(const product *w, int64_t band, int64_t strip)
{
    int64_t rows = blocks_of(w->shape->m), columns = blocks_of(w->shape->n);
    int64_t top = band * BAND, bottom = top + BAND < rows ? top + BAND : rows;
    int64_t left = strip * w->strip;
    int64_t right = left + w->strip < columns ? left + w->strip : columns;
    int64_t count = (bottom - top) * (right - left);
    for (int64_t at = 0; at < count; at++) {
        if (w->shape->adds)
            multiply_one(w, top + at / (right - left),
                         left + at % (right - left));
        else
            multiply_one(w, top + at % (bottom - top),
                         left + at / (bottom - top));
    }
}

static void multiply_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const product *w = data;
    int64_t columns = blocks_of(w->shape->n);
    int64_t strips = (columns + w->strip - 1) / w->strip;
    ARITHMETIC_BEGIN();
    for (int64_t at = from; at < to; at++)
        multiply_unit(w, at / strips, at % strips);
    ARITHMETIC_END();
}

/* Units are large, so that less is read again, but there are several for each
 * thread, unless they would be too small to be worth one. */
static void multiply_all(product *w, int threads)
{
    enum { STRIP_MAX = 16, WORTH = 1 << 18 }; /* multiplications */
    const sl__bf16_product *f = w->shape;
    int64_t bands = (blocks_of(f->m) + BAND - 1) / BAND;
    int64_t columns = blocks_of(f->n), rows = bands > 1 ? BAND * BLOCK : f->m;
    int64_t each = rows * BLOCK * f->k, units;
    for (w->strip = STRIP_MAX;; w->strip /= 2) {
        units = bands * ((columns + w->strip - 1) / w->strip);
        if (w->strip == 1 || units >= 4 * threads ||
            w->strip / 2 * each < WORTH)
            break;
    }
    sl__parallel(threads, units, WORTH / (w->strip * each) + 1, multiply_part,
                 w);
}

static const void *batch_at(const void *data, bool is_float, int64_t at)
{
    return is_float ? (const void *)((const float *)data + at)
                    : (const void *)((const uint16_t *)data + at);
}

/* Product i of the batch, of several microbatches. */
static void multiply_batch(const sl__kernel *kernel, void *const *p,
                           const sl__run *run, int first, int count, int64_t i)
{
    const sl__bf16_product *f = kernel->private;
    int threads = sl__threads_of(run);
    uint32_t *scratch = p[kernel->arg_count - 1], *room = scratch;
    product w = {.shape = f,
                 .a = scratch,
                 .a_next = sl__bf16_bytes(f->m, f->k) / (int64_t)sizeof *room,
                 .count = count,
                 .bias = f->bias < 0 ? NULL : p[f->bias],
                 .rectifies = kernel->activation == SL__RELU};
    void *out = p[kernel->operand_count];
    w.out = f->out_is_float ? (void *)((float *)out + i * f->out_batch)
                            : (void *)((uint16_t *)out + i * f->out_batch);
    for (int g = first; g < first + count; g++) {
        const void *a = p[g * run->group_stride + f->a];
        operand left = {{batch_at(a, f->a_is_float, i * f->a_batch), f->a_row,
                         f->a_column, f->a_is_float},
                        f->m,
                        f->k,
                        true,
                        room};
        room = pack_all(&left, threads);
    }
    w.b = f->packs_b ? room : p[f->b];
    for (int g = first; g < first + count && f->packs_b; g++) {
        const void *b = p[g * run->group_stride + f->b];
        operand right = {{batch_at(b, f->b_is_float, i * f->b_batch),
                          f->b_column, f->b_row, f->b_is_float},
                         f->n,
                         f->k,
                         false,
                         room};
        room = pack_all(&right, threads);
        w.b_next = sl__bf16_bytes(f->n, f->k) / (int64_t)sizeof *room;
    }
    multiply_all(&w, threads);
}

static sl_status multiply_bf16(const sl__kernel *kernel, void *const *p,
                               const sl__run *run)
{
    const sl__bf16_product *f = kernel->private;
    int count = run->group > 1 ? run->group : 1;
    for (int first = 0; first < count; first += f->grouped) {
        int now = count - first < f->grouped ? count - first : f->grouped;
        for (int64_t i = 0; i < f->batch; i++)
            multiply_batch(kernel, p, run, first, now, i);
    }
    return sl__bf16_activate(kernel, p, run);
}

static sl_status pack_bf16(const sl__kernel *kernel, void *const *p,
                           const sl__run *run)
{
    const sl__panel_pack *f = kernel->private;
    operand right = {{p[0], f->column, f->row, true}, f->n, f->k, false, p[1]};
    pack_all(&right, sl__threads_of(run));
    return SL_OK;
}

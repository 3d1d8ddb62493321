/* SPDX-License-Identifier: MIT
 *
 * Products of bf16 by vectors: with the instruction that multiplies pairs where
 * there is one, else in f32, of which a bf16 is the upper half. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"
#include "tensor/backends/cpu/kernels/vector.h"

typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu_loose
    __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Rows whose sums are in registers, of two vectors each. */
enum { PAIR_ROWS = LANES > 8 ? 8 : 4, PAIR_VECTORS = 2 };
enum { PAIR_SIDE = SL__BF16_BLOCK / 2, PAIR_TILE = PAIR_SIDE * PAIR_SIDE };

INLINE vf add_pairs(vf sum, vu a, vu b)
{
#ifdef __AVX512BF16__
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum += (vf)(a << 16) * (vf)(b << 16);
    return sum + (vf)(a & 0xffff0000) * (vf)(b & 0xffff0000);
#endif
}

/* Some rows and columns of a block. */
INLINE void multiply_pairs(const uint32_t *a, const uint32_t *b, int64_t depth,
                           int row, int column, float *sums, int64_t sums_row,
                           bool adds, const uint32_t *ahead)
{
    vf sum[PAIR_ROWS][PAIR_VECTORS];
    a += row / PAIR_SIDE * PAIR_TILE + row % PAIR_SIDE * PAIR_SIDE;
    b += column / PAIR_SIDE * PAIR_TILE + column % PAIR_SIDE;
    sums += row * sums_row + column;
    const int next = LANES == (int)PAIR_SIDE ? PAIR_TILE : LANES;
#pragma GCC unroll 8
    for (int r = 0; r < PAIR_ROWS; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < PAIR_VECTORS; v++)
            sum[r][v] = adds ? load(sums + r * sums_row + v * LANES) : splat(0);
    }
    for (; depth > 0; depth -= 2 * PAIR_SIDE) {
        int pairs =
            depth < 2 * PAIR_SIDE ? (int)(depth + 1) / 2 : (int)PAIR_SIDE;
        for (int k = 0; k < pairs; k++) {
            if (ahead)
                __builtin_prefetch(ahead + k * PAIR_SIDE, 0, 2);
            vu right[PAIR_VECTORS];
#pragma GCC unroll 2
            for (int v = 0; v < PAIR_VECTORS; v++)
                right[v] = *(const vu_loose *)(b + k * PAIR_SIDE + v * next);
#pragma GCC unroll 8
            for (int r = 0; r < PAIR_ROWS; r++) {
                vu left = a[r * PAIR_SIDE + k] - (vu){0};
#pragma GCC unroll 2
                for (int v = 0; v < PAIR_VECTORS; v++)
                    sum[r][v] = add_pairs(sum[r][v], left, right[v]);
            }
        }
        a += 2 * PAIR_TILE;
        b += 2 * PAIR_TILE;
        if (ahead)
            ahead += 2 * PAIR_TILE;
    }
#pragma GCC unroll 8
    for (int r = 0; r < PAIR_ROWS; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < PAIR_VECTORS; v++)
            store(sums + r * sums_row + v * LANES, sum[r][v]);
    }
}

static void multiply_block(const uint32_t *a, const uint32_t *b, int64_t depth,
                           int64_t rows, float *sums, int64_t sums_row,
                           bool adds, const uint32_t *ahead)
{
    for (int row = 0; row < rows; row += PAIR_ROWS) {
        for (int column = 0; column < SL__BF16_BLOCK;
             column += PAIR_VECTORS * LANES) {
            /* The first two rows of tiles fetch a tile each. */
            int tile = row / PAIR_ROWS;
            bool fetches = ahead && column == 0 && tile < 2;
            multiply_pairs(a, b, depth, row, column, sums, sums_row, adds,
                           fetches ? ahead + tile * PAIR_TILE : NULL);
        }
    }
}

#define BLOCK_PRODUCT      multiply_block
#define ARITHMETIC_BEGIN() ((void)0)
#define ARITHMETIC_END()   ((void)0)
#include "tensor/backends/cpu/gemm/bf16_product.h"

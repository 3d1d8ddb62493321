/* SPDX-License-Identifier: MIT
 *
 * Tiles of bf16: 16 rows of 16 pairs, each of two neighbours along k, the depth
 * of a product. A row of a left tile is a row of the left matrix, a column of a
 * right tile is a column of the right one. Products go by blocks of two tiles
 * by two. */
#ifndef SL_TENSOR_CPU_TILES_H
#define SL_TENSOR_CPU_TILES_H

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

enum { SIDE = 16, PAIR = 2, DEPTH = SIDE * PAIR };
enum { TILE = SIDE * SIDE }; /* pairs */
enum { BLOCK = 2 * SIDE };

typedef float v16f __attribute__((vector_size(64)));
typedef uint32_t v16u __attribute__((vector_size(64)));
typedef uint16_t v16h __attribute__((vector_size(32)));
typedef uint16_t v32h __attribute__((vector_size(64)));
typedef float v16f_loose
    __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t v16u_loose
    __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t v16h_loose
    __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t v32h_loose
    __attribute__((vector_size(64), aligned(2), may_alias));

static inline int64_t blocks_of(int64_t size)
{
    return (size + BLOCK - 1) / BLOCK;
}

/* Transposes a tile in place: interleaves the halves of its list of rows
 * log2(SIDE) times. */
INLINE void transpose_tile(uint32_t *tile)
{
    v16u now[SIDE], next[SIDE];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++)
        now[i] = *(const v16u_loose *)(tile + i * SIDE);
#pragma GCC unroll 4
    for (int round = 1; round < SIDE; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < SIDE / 2; i++) {
            next[2 * i] = __builtin_shufflevector(now[i], now[i + SIDE / 2], 0,
                                                  16, 1, 17, 2, 18, 3, 19, 4,
                                                  20, 5, 21, 6, 22, 7, 23);
            next[2 * i + 1] = __builtin_shufflevector(
                now[i], now[i + SIDE / 2], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                13, 29, 14, 30, 15, 31);
        }
        memcpy(now, next, sizeof now);
    }
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++)
        *(v16u_loose *)(tile + i * SIDE) = now[i];
}

#endif

/* SPDX-License-Identifier: MIT
 * Split products on tiles made of plain C: slow, for tests on any CPU. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

#include <string.h>

static _Thread_local uint32_t tiles[8][16][16];

static void load_tile(int tile, const void *from, int64_t row)
{
    const char *data = from;
    for (int r = 0; r < 16; r++)
        memcpy(tiles[tile][r], data + r * row * 4, sizeof tiles[tile][r]);
}

static void store_tile(int tile, void *to, int64_t row)
{
    char *data = to;
    for (int r = 0; r < 16; r++)
        memcpy(data + r * row * 4, tiles[tile][r], sizeof tiles[tile][r]);
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* c += a b. The first number of a pair is in its lower half. As in AMX, a
 * tile's sums of first numbers and of second numbers are added to each other
 * before c. */
static void multiply_tiles(int c, int a, int b)
{
    for (int i = 0; i < 16; i++) {
        float first[16] = {0}, second[16] = {0};
        for (int k = 0; k < 16; k++) {
            uint32_t left = tiles[a][i][k];
            for (int j = 0; j < 16; j++) {
                uint32_t right = tiles[b][k][j];
                first[j] += float_of(left << 16) * float_of(right << 16);
                second[j] +=
                    float_of(left & 0xffff0000) * float_of(right & 0xffff0000);
            }
        }
        for (int j = 0; j < 16; j++) {
            float sum = float_of(tiles[c][i][j]) + (first[j] + second[j]);
            memcpy(&tiles[c][i][j], &sum, sizeof sum);
        }
    }
}

#define TILES_BEGIN()            ((void)0)
#define TILES_END()              ((void)0)
#define TILES_READ()             ((void)0)
#define TILE_ZERO(tile)          memset(tiles[tile], 0, sizeof tiles[tile])
#define TILE_LOAD(tile, p, row)  load_tile(tile, p, row)
#define TILE_STORE(tile, p, row) store_tile(tile, p, row)
#define TILE_MULTIPLY(c, a, b)   multiply_tiles(c, a, b)
#include "tensor/backends/cpu/gemm/split_product.h"

const sl__split_kernels sl__split_portable = {"portable", multiply_split,
                                              pack_split};

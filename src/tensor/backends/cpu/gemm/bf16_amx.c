/* SPDX-License-Identifier: MIT
 * Products of bf16 on AMX's tiles. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

/* What GCC and clang define for it. */
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#include "tensor/backends/cpu/gemm/amx.h"

#include <sys/syscall.h>
#include <unistd.h>

/* Asks the operating system for tile registers, for all threads. */
static bool allow_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ==
           0;
}

/* Tiles 0 to 3 are the result, 4 and 5 left, 6 and 7 right. */
static void multiply_block(const uint32_t *a, const uint32_t *b, int64_t depth,
                           int64_t rows, float *sums, int64_t sums_row,
                           bool adds, const uint32_t *ahead)
{
    enum { SIDE = 16, PAIRS = SIDE * SIDE, ROW_BYTES = 64 };
    const bool two = rows > SIDE;
    float *second = sums + SIDE * sums_row;
    const int64_t bytes = sums_row * (int64_t)sizeof *sums;
    /* GCC does not know what memory tile instructions read. */
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (adds) {
        _tile_loadd(0, sums, bytes);
        _tile_loadd(1, sums + SIDE, bytes);
    }
    if (adds && two) {
        _tile_loadd(2, second, bytes);
        _tile_loadd(3, second + SIDE, bytes);
    }
    for (; depth > 0; depth -= 2 * SIDE, a += 2 * PAIRS, b += 2 * PAIRS) {
        for (int i = 0; ahead && i < 2 * SIDE; i++, ahead += SIDE)
            __builtin_prefetch(ahead, 0, 2);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, ROW_BYTES);
        _tile_loadd(7, b + PAIRS, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(5, a + PAIRS, ROW_BYTES);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, bytes);
    _tile_stored(1, sums + SIDE, bytes);
    if (two) {
        _tile_stored(2, second, bytes);
        _tile_stored(3, second + SIDE, bytes);
    }
    __asm__ volatile("" ::: "memory");
}

#define BLOCK_PRODUCT      multiply_block
#define ARITHMETIC_BEGIN() begin_tiles()
#define ARITHMETIC_END()   _tile_release()
#include "tensor/backends/cpu/gemm/bf16_product.h"

static const sl__bf16_kernels kernels = {"amx", multiply_bf16, pack_bf16};
const sl__bf16_kernels *const sl__bf16_amx = &kernels;

/* Multiplies ones by ones, and compares with the known result. */
int sl__try_amx(void)
{
    static uint32_t ones[BLOCK_PAIRS];
    static float sums[BLOCK * BLOCK];
    if (!allow_tiles())
        return 1;
    for (int i = 0; i < BLOCK_PAIRS; i++)
        ones[i] = 0x3f803f80;
    begin_tiles();
    multiply_block(ones, ones, DEPTH, BLOCK, sums, BLOCK, false, NULL);
    _tile_release();
    for (int i = 0; i < BLOCK * BLOCK; i++) {
        if (sums[i] != DEPTH)
            return 1;
    }
    return 0;
}
#else
const sl__bf16_kernels *const sl__bf16_amx = NULL;

int sl__try_amx(void)
{
    return 1;
}
#endif

/* SPDX-License-Identifier: MIT
 * Split products on AMX's tiles. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

/* What GCC and clang define for it. */
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#include "tensor/backends/cpu/gemm/amx.h"

#define TILES_BEGIN() begin_tiles()
#define TILES_END()   _tile_release()
/* A barrier: GCC does not know what memory tile instructions read. */
#define TILES_READ()             __asm__ volatile("" ::: "memory")
#define TILE_ZERO(tile)          _tile_zero(tile)
#define TILE_LOAD(tile, p, row)  _tile_loadd(tile, p, (row)*4)
#define TILE_STORE(tile, p, row) _tile_stored(tile, p, (row)*4)
#define TILE_MULTIPLY(c, a, b)   _tile_dpbf16ps(c, a, b)
#include "tensor/backends/cpu/gemm/split_product.h"

static const sl__split_kernels kernels = {"amx", multiply_split, pack_split};
const sl__split_kernels *const sl__split_amx = &kernels;
#else
const sl__split_kernels *const sl__split_amx = NULL;
#endif

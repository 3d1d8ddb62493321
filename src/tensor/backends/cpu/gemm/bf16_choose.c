/* SPDX-License-Identifier: MIT
 *
 * Which arithmetic products of bf16 use. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

#include <string.h>

static bool is_forced_off;

bool sl__bf16_force(const char *name)
{
    is_forced_off = name && strcmp(name, "none") == 0;
    return !name || is_forced_off || sl__has_amx();
}

bool sl__has_avx512_bf16(void)
{
#ifdef __x86_64__
    return sl__bf16_avx512 && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

static const sl__bf16_kernels *choose_vectors(void)
{
    const char *set = sl__vector_choose_bf16()->name;
    return strcmp(set, "avx512") == 0 ? sl__bf16_avx512
           : strcmp(set, "avx2") == 0 ? sl__bf16_avx2
                                      : sl__bf16_portable;
}

const sl__bf16_kernels *sl__bf16_choose(int64_t rows)
{
    /* A tile always computes 16 rows. */
    enum { TILES_FROM = 8 };
    bool tiles = rows >= TILES_FROM && !is_forced_off && sl__has_amx();
    return tiles ? sl__bf16_amx : choose_vectors();
}

int64_t sl__bf16_bytes(int64_t size, int64_t depth)
{
    const int64_t block = SL__BF16_BLOCK;
    int64_t blocks = (size + block - 1) / block * ((depth + block - 1) / block);
    return blocks * block * block * (int64_t)sizeof(uint16_t);
}

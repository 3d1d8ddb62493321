/* SPDX-License-Identifier: MIT
 *
 * Which arithmetic products of bf16 use. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "SLUICE_AMX"

static bool has_amx, is_forced_off;

static bool is_asked(const char *answer)
{
    const char *value = getenv(VARIABLE);
    return value && strcmp(value, answer) == 0;
}

sl_status sl__bf16_check_environment(void)
{
    const char *value = getenv(VARIABLE);
    if (!value || !*value || is_asked("never"))
        return SL_OK;
    return sl_fail(SL_EINVAL, VARIABLE " is '%s', expected never", value);
}

static void try_once(void)
{
    has_amx = sl__bf16_begin_amx();
}

/* Whether there are tiles, and nothing forbids them. */
static bool use_amx(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (is_forced_off || is_asked("never"))
        return false;
    pthread_once(&once, try_once);
    return has_amx;
}

bool sl__bf16_force(const char *name)
{
    is_forced_off = name && strcmp(name, "none") == 0;
    return !name || is_forced_off || use_amx();
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
    return rows >= TILES_FROM && use_amx() ? sl__bf16_amx : choose_vectors();
}

int64_t sl__bf16_bytes(int64_t size, int64_t depth)
{
    const int64_t block = SL__BF16_BLOCK;
    int64_t blocks = (size + block - 1) / block * ((depth + block - 1) / block);
    return blocks * block * block * (int64_t)sizeof(uint16_t);
}

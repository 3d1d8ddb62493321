/* SPDX-License-Identifier: MIT
 *
 * Whether products are split, and which. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static bool is_forced;
static const sl__split_kernels *forced, *best;

/* Multiplies ones by ones on AMX, and compares with the known result. */
int sl__split_try_amx(void)
{
    enum { SIZE = SL__SPLIT_BLOCK };
    static float ones[SIZE * SIZE], out[SIZE * SIZE];
    static _Alignas(64) char scratch[2 * SIZE * SIZE * SL__SPLIT_PIECES * 2];
    const sl__panel_pack as_it_lies = {.k = SIZE, .n = SIZE, SIZE, 1};
    sl__panel_product product = {.m = SIZE,
                                 .n = SIZE,
                                 .k = SIZE,
                                 .a_row = SIZE,
                                 .a_column = 1,
                                 .out_row = SIZE,
                                 .packs_b = true,
                                 .b_pack = as_it_lies,
                                 .a = 0,
                                 .b = 1,
                                 .bias = -1};
    const sl__kernel kernel = {.private = &product,
                               .operand_count = 2,
                               .arg_count = 4,
                               .activation = SL__OP_COUNT};
    void *const p[] = {ones, ones, out, scratch};
    const sl__run run = {.stream = NULL}; /* On one thread. */
    if (!sl__split_amx || !sl__split_amx->begin())
        return 1;
    for (int i = 0; i < SIZE * SIZE; i++)
        ones[i] = 1;
    sl__split_amx->multiply(&kernel, p, &run);
    for (int i = 0; i < SIZE * SIZE; i++) {
        if (out[i] != SIZE)
            return 1;
    }
    return 0;
}

static bool is_asked(const char *answer)
{
    const char *value = getenv("SLUICE_AMX");
    return value && strcmp(value, answer) == 0;
}

sl_status sl__split_check_environment(void)
{
    const char *value = getenv("SLUICE_AMX");
    if (!value || !*value || is_asked("always") || is_asked("never"))
        return SL_OK;
    return sl_fail(SL_EINVAL, "SLUICE_AMX is '%s', expected always or never",
                   value);
}

static void choose_once(void)
{
    if (sl__split_amx && !is_asked("never") &&
        sl__amx_works(sl__split_try_amx) && sl__split_amx->begin())
        best = sl__split_amx;
}

const sl__split_kernels *sl__split_choose(int threads)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose_once);
    if (is_forced)
        return forced;
    return threads == 1 || is_asked("always") ? best : NULL;
}

bool sl__split_force(const char *name)
{
    is_forced = false;
    if (!name)
        return true;
    forced = strcmp(name, "portable") == 0 ? &sl__split_portable
             : strcmp(name, "amx") == 0    ? sl__split_choose(1)
                                           : NULL;
    is_forced = forced || strcmp(name, "none") == 0;
    return is_forced;
}

int64_t sl__split_bytes(int64_t size, int64_t depth)
{
    const int64_t block = SL__SPLIT_BLOCK;
    int64_t blocks = (size + block - 1) / block * ((depth + block - 1) / block);
    return blocks * block * block * SL__SPLIT_PIECES * 2;
}

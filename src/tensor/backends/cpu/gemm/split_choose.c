/* SPDX-License-Identifier: MIT
 *
 * Whether products are split, and which. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

#include <string.h>

static bool is_forced;
static const sl__split_kernels *forced;

const sl__split_kernels *sl__split_choose(int threads)
{
    if (is_forced)
        return forced;
    return (threads == 1 || sl__amx_is_asked("always")) && sl__has_amx()
               ? sl__split_amx
               : NULL;
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

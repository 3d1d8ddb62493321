/* SPDX-License-Identifier: MIT
 *
 * Whether products are split, and which. */
#include "tensor/onednn/onednn.h"

#include <string.h>

static bool is_forced;
static const sl__split_kernels *forced;

const sl__split_kernels *sl__splits_choose(void)
{
    if (is_forced)
        return forced;
    /* What isa.c has seen to work, and the user has not forbidden. */
    unsigned isa = dnnl_get_effective_cpu_isa();
    bool has =
        (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    return has ? sl__splits_amx : NULL;
}

bool sl__splits_force(const char *name)
{
    is_forced = false;
    if (!name)
        return true;
    const sl__split_kernels *best = sl__splits_choose();
    forced = strcmp(name, "portable") == 0 ? &sl__splits_portable
             : strcmp(name, "amx") == 0    ? best
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

/* SPDX-License-Identifier: MIT
 *
 * Whether products are split, and which. */
#include "tensor/onednn/onednn.h"

#include <string.h>

static const sl__split_kernels *forced;

const sl__split_kernels *sl__splits_choose(void)
{
    if (forced)
        return forced;
    /* What isa.c has seen to work, and the user has not forbidden. */
    unsigned isa = dnnl_get_effective_cpu_isa();
    bool has =
        (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    return has ? sl__splits_amx : NULL;
}

bool sl__splits_force(const char *name)
{
    forced = NULL;
    if (!name)
        return true;
    if (strcmp(name, "portable") == 0)
        forced = &sl__splits_portable;
    else if (sl__splits_choose() && strcmp(name, "amx") == 0)
        forced = sl__splits_choose();
    return forced;
}

int64_t sl__split_bytes(int64_t size, int64_t depth)
{
    const int64_t block = SL__SPLIT_BLOCK;
    int64_t blocks = (size + block - 1) / block * ((depth + block - 1) / block);
    return blocks * block * block * SL__SPLIT_PIECES * 2;
}

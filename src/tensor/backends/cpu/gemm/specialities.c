/* SPDX-License-Identifier: MIT
 *
 * Which optimisations SLUICE_CPU_WITHOUT switches off. */
#include "tensor/backends/cpu/gemm/gemm.h"

#include <stdlib.h>
#include <string.h>

#define VARIABLE "SLUICE_CPU_WITHOUT"

static const char *const names[SL__SPECIALITIES] = {
    [SL__USE_PACKED_WEIGHTS] = "packed",
    [SL__USE_RANK_UPDATES] = "rank-updates",
    [SL__USE_GROUPED] = "grouped",
    [SL__USE_WIDE_PANELS] = "wide",
    [SL__USE_DOT_PRODUCTS] = "dots",
    [SL__USE_IN_PLACE] = "in-place",
    [SL__USE_PREFETCH] = "prefetch",
};

/* The one that a word of the list names; SL__SPECIALITIES if none has that
 * name. */
static int find(const char *word, size_t length)
{
    int i = 0;
    while (i < SL__SPECIALITIES &&
           (strlen(names[i]) != length || memcmp(names[i], word, length) != 0))
        i++;
    return i;
}

bool sl__gemm_uses(sl__speciality speciality)
{
    const char *at = getenv(VARIABLE);
    while (at && *at) {
        size_t length = strcspn(at, ",");
        if (find(at, length) == (int)speciality)
            return false;
        at += length + (at[length] == ',');
    }
    return true;
}

sl_status sl__gemm_check_environment(void)
{
    const char *at = getenv(VARIABLE);
    while (at && *at) {
        size_t length = strcspn(at, ",");
        if (find(at, length) == SL__SPECIALITIES)
            return sl_fail(SL_EINVAL,
                           VARIABLE " has '%.*s', expected some of packed, "
                                    "rank-updates, grouped, wide, dots, "
                                    "in-place, prefetch",
                           (int)(length < 40 ? length : 40), at);
        at += length + (at[length] == ',');
    }
    return SL_OK;
}

/* SPDX-License-Identifier: MIT */
#include "base/cores.h"

#include <unistd.h>

int sl__cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* More than a set holds. */
    return online > 0 ? (int)online : 1;
}

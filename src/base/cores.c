/* SPDX-License-Identifier: MIT
 *
 * See cores.h. */
#include "base/cores.h"

#include <unistd.h>

int sl__cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
    /* There are more CPUs than a cpu_set_t holds. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

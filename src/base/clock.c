/* SPDX-License-Identifier: MIT
 *
 * See clock.h. */
#include "base/clock.h"

#include <time.h>

double sl__seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

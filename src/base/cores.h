/* SPDX-License-Identifier: MIT */
#ifndef SL_BASE_CORES_H
#define SL_BASE_CORES_H

#include <sched.h>

/* How many cores this process may run on. */
int sl__cores(void);

/* A moment's rest for a core that looks again and again. */
static inline void sl__pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

#endif

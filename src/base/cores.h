/* SPDX-License-Identifier: MIT
 *
 * The cores that this process may use. */
#ifndef SL_BASE_CORES_H
#define SL_BASE_CORES_H

#include <sched.h>

/* How many cores this process may run on. */
int sl__cores(void);

/* A short pause for a core that polls in a loop. */
static inline void sl__pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    /* `yield` does nothing on most cores; this takes about as long as x86's
     * pause. */
    __asm__ volatile("isb" ::: "memory");
#else
    sched_yield();
#endif
}

#endif

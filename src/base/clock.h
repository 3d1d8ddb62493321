/* SPDX-License-Identifier: MIT
 *
 * Seconds that only go forward, from some moment on. */
#ifndef SL_BASE_CLOCK_H
#define SL_BASE_CLOCK_H

double sl__seconds(void);

#endif

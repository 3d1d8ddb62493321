/* SPDX-License-Identifier: MIT
 *
 * Monotonic time in seconds, from an arbitrary origin. */
#ifndef SL_BASE_CLOCK_H
#define SL_BASE_CLOCK_H

double sl__seconds(void);

#endif

/* SPDX-License-Identifier: MIT */
#ifndef SL_BASE_CORES_H
#define SL_BASE_CORES_H

/* How many cores this process may run on. */
int sl__cores(void);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Work stealing: a thread that has to wait runs parts of what other threads of
 * the process compute. Results do not depend on which thread ran which part. */
#ifndef SL_TENSOR_WORK_STEALING_H
#define SL_TENSOR_WORK_STEALING_H

#include <stdbool.h>

/* Between these calls, parallel work offers its parts to waiting threads. Calls
 * nest. */
void sl__stealing_start(void);
void sl__stealing_stop(void);

/* Whether there is work to steal. */
bool sl__can_steal(void);

/* Runs parts that are on offer, on this many threads, until none are left or
 * `is_over` returns true; it is asked between parts. False: there were none. */
bool sl__steal(int threads, bool (*is_over)(void *wait), void *wait);

/* For tests: parts are offered however small they are. */
void sl__steal_smallest(bool small);

#endif

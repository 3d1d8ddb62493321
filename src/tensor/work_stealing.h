/* SPDX-License-Identifier: MIT
 *
 * Work stealing: a thread that has to wait takes parts of what other threads of
 * the process compute. Results do not depend on who computed which part. */
#ifndef SL_TENSOR_WORK_STEALING_H
#define SL_TENSOR_WORK_STEALING_H

#include <stdbool.h>

/* Between these, parallel work offers its parts to stealing threads. Calls
 * nest. */
void sl__stealing_start(void);
void sl__stealing_stop(void);

/* Whether there is work to steal. */
bool sl__can_steal(void);

/* Computes parts of what is on offer, with so many threads, until nothing is
 * left or `is_over` says so, which is asked between parts. False: there was
 * nothing. */
bool sl__steal(int threads, bool (*is_over)(void *wait), void *wait);

/* For tests: parts are offered however small they are. */
void sl__steal_smallest(bool small);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Work stealing: a thread that has to wait takes parts of what other threads of
 * the process compute. Results do not depend on who computed which part. */
#ifndef SL_TENSOR_WORK_STEALING_H
#define SL_TENSOR_WORK_STEALING_H

#include <stdbool.h>

/* While somebody may steal, parallel work is open to thieves. Calls count. */
void sl__stealing_start(void);
void sl__stealing_stop(void);

/* Whether there is anything to take part in. */
bool sl__can_steal(void);

/* Takes part in what is open, with so many threads, until nothing is or the
 * wait is over, which is asked between parts. False: there was nothing. */
bool sl__steal(int threads, bool (*is_over)(void *wait), void *wait);

/* For tests: parts are open however small they are. */
void sl__steal_smallest(bool small);

#endif

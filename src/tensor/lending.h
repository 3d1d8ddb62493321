/* SPDX-License-Identifier: MIT
 *
 * Lending: a thread that has to wait takes part in what other threads of the
 * process compute. Results do not depend on who computed which part of them. */
#ifndef SL_TENSOR_LENDING_H
#define SL_TENSOR_LENDING_H

#include <stdbool.h>

/* While somebody may lend, work that is worth it is laid open: calls count. */
void sl__lending_start(void);
void sl__lending_stop(void);

/* Whether there is anything to take part in. */
bool sl__can_lend(void);

/* Takes part in what is open, with so many threads, until nothing is or the
 * wait is over, which is asked between parts. False: there was nothing. */
bool sl__lend(int threads, bool (*is_over)(void *wait), void *wait);

/* For tests: parts are open however small they are. */
void sl__lend_smallest(bool small);

#endif

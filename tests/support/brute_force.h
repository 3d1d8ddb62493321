/* SPDX-License-Identifier: MIT
 *
 * An oracle for deadlocks: a schedule is run by brute force. Anything that can
 * happen does, until nothing can. It knows the readings from their definition
 * alone, and nothing of the library's analyses. */
#ifndef TEST_BRUTE_FORCE_H
#define TEST_BRUTE_FORCE_H

#include "draft.h"

bool test_deadlocks_by_force(const test_draft *d, sl_reading reading);

/* Whether it is a SEND or a RECV. */
bool test_is_message(sl_action action);

#endif

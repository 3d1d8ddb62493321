/* SPDX-License-Identifier: MIT
 *
 * Backends whose memory cannot be read or written but by their own operations:
 * whoever else touches it dies. They take the place of those they are made of
 * where the environment has SLUICE_TEST_MEMORY=unreadable, so any test can be run
 * again with them. */
#ifndef SL_TEST_GUARDED_H
#define SL_TEST_GUARDED_H

/* Puts them in place, whatever the environment says. */
void test_guard_memory(void);

#endif

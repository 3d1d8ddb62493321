/* SPDX-License-Identifier: MIT
 *
 * Backends whose memory only their own operations can read or write: any other
 * access crashes the test. With SLUICE_TEST_MEMORY=unreadable in the
 * environment they replace the backends that they wrap, so any test can be run
 * again with them. */
#ifndef SL_TEST_GUARDED_H
#define SL_TEST_GUARDED_H

/* Replaces the backends, whatever the environment says. */
void test_guard_memory(void);

#endif

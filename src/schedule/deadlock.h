/* SPDX-License-Identifier: MIT
 *
 * Whether a schedule can run to its end. */
#ifndef SL_SCHEDULE_DEADLOCK_H
#define SL_SCHEDULE_DEADLOCK_H

#include "schedule/events.h"

/* Looks for a deadlock under a reading of communication. If there is one,
 * `*out_waits` is its cycle (or one wait for an action that no rank has) and
 * `*out_count` is at least 1; the caller frees it. Otherwise the count is 0 and
 * the array NULL. */
sl_status sl__find_deadlock(const sl__events *events, sl_reading reading,
                            sl_wait **out_waits, size_t *out_count);

#endif

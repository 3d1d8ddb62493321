/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of the checker. */
#ifndef SL_SCHEDULE_CHECK_H
#define SL_SCHEDULE_CHECK_H

#include "schedule/deadlock.h"
#include "schedule/events.h"
#include "schedule/report.h"

typedef struct sl__check {
    sl__events events;
    sl_report *report;
    bool has_backward; /* or lacks one: something reduces gradients */
} sl__check;

/* Adds a finding at a node: "rank 1, step 4: 1F2 " and what is wrong. */
void sl__check_add(sl__check *check, sl_finding_code code, uint32_t node,
                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds the finding that `node` repeats `first`. */
void sl__check_repeated(sl__check *check, uint32_t node, uint32_t first);

/* Checks sends and receives: in pairs, on the right ranks, in order. */
void sl__check_messages(sl__check *check);

/* Checks waits, where there are any: one after each send and each reduction,
 * and at most one reduction pending on a rank. */
sl_status sl__check_waits(sl__check *check);

/* Adds a finding for each WAIT_SEND that waits for a receive in a cycle under
 * SL_ASYNC: under that reading nothing else can keep a receive from being
 * posted. */
void sl__check_blocked_receives(sl__check *check, const sl_wait *waits,
                                size_t count);

#endif

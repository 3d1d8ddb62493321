/* SPDX-License-Identifier: MIT
 *
 * Collecting findings into a report. */
#ifndef SL_SCHEDULE_REPORT_H
#define SL_SCHEDULE_REPORT_H

#include "sluice/schedule.h"

struct sl_report {
    sl_finding *findings; /* own their text; waits are those in `deadlock` */
    size_t count;
    size_t capacity;
    size_t max;   /* findings kept */
    size_t total; /* findings met */
    /* By reading; text NULL when there is no deadlock. */
    sl_finding deadlock[SL_READINGS];
    bool deadlock_known; /* false when the schedule was too broken to ask */
    sl_status status;    /* the first failure while collecting */
};

sl_status sl__report_create(size_t max, sl_report **out);

/* Adds a finding with a printf-style text; remembers a failure in
 * report->status, so that checks need not look after each. */
void sl__report_add(sl_report *report, sl_finding_code code, int rank, int step,
                    const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Records a deadlock under a reading and takes `waits`. */
void sl__report_deadlock(sl_report *report, const sl_schedule *schedule,
                         sl_reading reading, sl_wait *waits, size_t count);

/* Makes a deadlock under the required reading a finding, which is always kept,
 * and of the others keeps the first by rank and step. */
void sl__report_finish(sl_report *report, sl_reading required);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Collecting findings into a report. */
#ifndef SL_SCHEDULE_REPORT_H
#define SL_SCHEDULE_REPORT_H

#include "sluice/schedule.h"

struct sl_report {
    sl_finding *findings; /* own their text; waits belong to `deadlock` */
    size_t count;
    size_t capacity;
    size_t max;   /* findings kept */
    size_t total; /* findings added */
    /* By reading; text NULL when there is no deadlock. */
    sl_finding deadlock[SL_READINGS];
    bool deadlock_known; /* false: too much of the schedule is missing */
    sl_status status;    /* the first failure while collecting */
};

sl_status sl__report_create(size_t max, sl_report **out);

/* Adds a finding with a printf-style text. A failure is kept in report->status,
 * so that checks need not test every call. */
void sl__report_add(sl_report *report, sl_finding_code code, int rank, int step,
                    const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Records a deadlock under a reading and takes `waits`. */
void sl__report_deadlock(sl_report *report, const sl_schedule *schedule,
                         sl_reading reading, sl_wait *waits, size_t count);

/* Adds a deadlock under the required reading as a finding, which is always
 * kept, and keeps the first of the others by rank and step. */
void sl__report_finish(sl_report *report, sl_reading required);

#endif

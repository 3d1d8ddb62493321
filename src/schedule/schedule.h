/* SPDX-License-Identifier: MIT
 *
 * The representation of a schedule, for the files that build and walk
 * schedules. */
#ifndef SL_SCHEDULE_SCHEDULE_H
#define SL_SCHEDULE_SCHEDULE_H

#include "sluice/schedule.h"

typedef struct sl__row {
    sl_action *actions;
    size_t length;
    size_t capacity;
} sl__row;

struct sl_schedule {
    int ranks;
    sl__row rows[]; /* by rank */
};

/* Makes room for `more` further actions on a rank. */
sl_status sl__row_reserve(sl__row *row, size_t more);

/* Appends without the checks of the public call: the action is one of ours. */
sl_status sl__row_append(sl__row *row, sl_action action);

/* Fails where the stages and microbatches that a schedule names imply far more
 * actions than it has, so that the size of tables by (stage, microbatch) stays
 * in proportion to the schedule. */
sl_status sl__check_density(const sl_extent *extent);

/* Fails with SL_EINVAL naming the first action of a kind for which `refused`
 * is true; `pass` is who refuses. */
sl_status sl__refuse_kinds(const sl_schedule *in, const char *pass,
                           bool (*refused)(uint8_t kind));

#endif

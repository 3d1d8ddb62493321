/* SPDX-License-Identifier: MIT
 *
 * What the passes share: a walk over rows that all begin alike. */
#ifndef SL_SCHEDULE_LOWER_H
#define SL_SCHEDULE_LOWER_H

#include "schedule/schedule.h"

/* Runs `lower_row` over every row of `in` without its idle cells, into the
 * same row of a new schedule. */
typedef sl_status (*sl__lower_row_fn)(const sl__row *from, sl__row *to,
                                      int rank, void *context);
sl_status sl__lower_rows(const sl_schedule *in, sl__lower_row_fn lower_row,
                         void *context, sl_schedule **out);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Shared by passes that work row by row. */
#ifndef SL_SCHEDULE_LOWER_H
#define SL_SCHEDULE_LOWER_H

#include "schedule/schedule.h"

/* Runs `lower_row` over every row of `in` without its idle cells,
 * into the same row of a new schedule, which is empty and has room for as many
 * actions. */
typedef sl_status (*sl__lower_row_fn)(const sl__row *from, sl__row *to,
                                      int rank, void *context);
sl_status sl__lower_rows(const sl_schedule *in, sl__lower_row_fn lower_row,
                         void *context, sl_schedule **out);

#endif

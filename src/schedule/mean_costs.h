/* SPDX-License-Identifier: MIT
 *
 * Costs as measured: the mean of each kind of compute on each stage. */
#ifndef SL_SCHEDULE_MEAN_COSTS_H
#define SL_SCHEDULE_MEAN_COSTS_H

#include "sluice/schedule.h"

typedef struct sl__means sl__means;

sl_status sl__means_create(int stages, sl__means **out);
void sl__means_destroy(sl__means *means);

/* Notes that compute took so long, for a microbatch that holds so many bytes
 * from F to its end; two at once took half of it each. REDUCE_GRAD is what was
 * left to the end of a step. Other actions, and stages that are not there, are
 * not noted. */
void sl__means_add(sl__means *means, const sl_action *action, double took,
                   int64_t bytes);

/* Costs of these means, messages free; to be cleared. What was never measured
 * is taken from what was: B is I and W, each of these half a B, or B is all I
 * where W was left to the end. */
sl_status sl__means_costs(const sl__means *means, sl_costs *out);

#endif

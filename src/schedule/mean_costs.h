/* SPDX-License-Identifier: MIT
 *
 * Costs as measured: the mean of each kind of compute on each stage. */
#ifndef SL_SCHEDULE_MEAN_COSTS_H
#define SL_SCHEDULE_MEAN_COSTS_H

#include "sluice/schedule.h"

typedef struct sl__means sl__means;

sl_status sl__means_create(int stages, sl__means **out);
void sl__means_destroy(sl__means *means);

/* Adds one measurement: how long a compute took, and how many bytes it holds
 * for its microbatch (F: until the microbatch ends; I: until its W). The time
 * of an overlap is divided evenly between its halves. Actions that do not
 * compute, and unknown stages, are ignored. */
void sl__means_add(sl__means *means, const sl_action *action, double took,
                   int64_t bytes);

/* The means as costs, with messages free; the caller clears them. A kind that
 * was never measured is derived from the others: B is I + W, of which a missing
 * one counts as 0, and I and W are half a B each. */
sl_status sl__means_costs(const sl__means *means, sl_costs *out);

#endif

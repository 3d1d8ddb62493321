/* SPDX-License-Identifier: MIT
 *
 * The inside of a simulation's result; simulate.c fills it. */
#ifndef SL_SCHEDULE_SIMULATION_H
#define SL_SCHEDULE_SIMULATION_H

#include "sluice/schedule.h"
#include "base/arena.h"

struct sl_simulation {
    int ranks;
    sl_reading reading;
    double makespan;
    uint32_t *first;      /* by rank, and one more: its first node */
    double *start;        /* by node */
    double *end;          /* by node */
    sl_held_bytes *bytes; /* by node */
    double *busy;         /* by rank */
    int64_t *peak;        /* by rank: bytes */
    int *slots;           /* by rank: most microbatches in flight */
    sl_place *path;       /* the critical path, in order of time */
    size_t path_count;
    sl__arena memory; /* of all arrays */
};

/* Refuses a simulation of a schedule with other rows. */
sl_status sl__check_simulated(const sl_simulation *simulation,
                              const sl_schedule *schedule);

/* Costs of one schedule, looked up. */
const sl_stage_cost *sl__stage_cost(const sl_costs *costs, int stage);
double sl__message_cost(const sl_costs *costs, int edge);
double sl__action_cost(const sl_costs *costs, const sl_action *action);

/* Refuses costs that make no sense, or not for a schedule of this extent. */
sl_status sl__costs_check(const sl_costs *costs, const sl_extent *extent);

#endif

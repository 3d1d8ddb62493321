/* SPDX-License-Identifier: MIT
 *
 * The representation of a simulation's result, which simulate.c fills. */
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

/* Fails where the simulation is of a schedule with other rows. */
sl_status sl__check_simulated(const sl_simulation *simulation,
                              const sl_schedule *schedule);

/* The costs of a stage, an edge, an action: those given for it, else those for
 * all. */
const sl_stage_cost *sl__stage_cost(const sl_costs *costs, int stage);
double sl__message_cost(const sl_costs *costs, int edge);
double sl__action_cost(const sl_costs *costs, const sl_action *action);

/* Refuses costs that are invalid, or that do not fit a schedule of this
 * extent. */
sl_status sl__costs_check(const sl_costs *costs, const sl_extent *extent);

#endif

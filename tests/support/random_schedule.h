/* SPDX-License-Identifier: MIT
 *
 * Random schedules that are valid by construction: actions are drawn in a
 * random order that respects their dependencies, so a row is what one rank did
 * in a run that is possible. */
#ifndef SL_TEST_RANDOM_SCHEDULE_H
#define SL_TEST_RANDOM_SCHEDULE_H

#include "sluice/schedule.h"

/* A small generator of random numbers; seed it with anything but 0. */
typedef struct test_dice {
    uint64_t state;
} test_dice;
int test_below(test_dice *random, int limit);

typedef struct test_shape {
    int ranks;
    int stages;
    int microbatches;
    bool messages; /* with SENDs and RECVs, at random places that work */
    bool overlaps; /* with OVERLAP_F_B */
    bool idle;     /* with idle cells */
} test_shape;

/* Random sizes with at least 2 microbatches, and random features. */
test_shape test_random_shape(test_dice *random);

sl_schedule *test_random_schedule(test_dice *random, const test_shape *shape);

#endif

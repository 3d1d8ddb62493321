/* SPDX-License-Identifier: MIT
 *
 * Schedules that tests edit cell by cell: to damage them, and to look into rows
 * without the library's own tables. */
#ifndef TEST_DRAFT_H
#define TEST_DRAFT_H

#include "random_schedule.h"

/* A copy of a schedule that can be edited: rows of actions. */
typedef struct test_draft {
    int ranks;
    int lengths[8];
    sl_action rows[8][600];
} test_draft;

void test_draft_of(const sl_schedule *schedule, test_draft *out);
sl_schedule *test_draft_finish(const test_draft *from);
void test_draft_remove(test_draft *d, int rank, int step);
void test_draft_insert(test_draft *d, int rank, int step, sl_action action);

/* Where an action is, also as a half of OVERLAP_F_B; false where it is not. */
bool test_draft_find(const test_draft *d, sl_action_kind kind, int stage,
                     int mb, int *out_rank, int *out_step);

/* A whole lowered random schedule without overlaps, so that each cell is one
 * action; random messages half the time, else the passes'. */
void test_draw_lowered(test_dice *random, test_draft *out);

/* Picks a random action of a kind; -1 as step when there is none. */
void test_pick(test_dice *random, const test_draft *d, sl_action_kind kind,
               int *rank, int *step);

#endif

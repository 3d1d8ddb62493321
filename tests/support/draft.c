/* SPDX-License-Identifier: MIT */
#include "draft.h"

#include "support.h"

#include <string.h>

void test_draft_of(const sl_schedule *schedule, test_draft *out)
{
    out->ranks = sl_schedule_ranks(schedule);
    for (int rank = 0; rank < out->ranks; rank++) {
        out->lengths[rank] = (int)sl_schedule_length(schedule, rank);
        assert_true(out->lengths[rank] < 590);
        if (out->lengths[rank])
            memcpy(out->rows[rank], sl_schedule_row(schedule, rank),
                   (size_t)out->lengths[rank] * sizeof(sl_action));
    }
}

sl_schedule *test_draft_finish(const test_draft *from)
{
    sl_schedule *schedule;
    assert_ok(sl_schedule_create(from->ranks, &schedule));
    for (int rank = 0; rank < from->ranks; rank++)
        for (int step = 0; step < from->lengths[rank]; step++)
            assert_ok(
                sl_schedule_append(schedule, rank, from->rows[rank][step]));
    return schedule;
}

void test_draft_remove(test_draft *d, int rank, int step)
{
    d->lengths[rank]--;
    memmove(&d->rows[rank][step], &d->rows[rank][step + 1],
            (size_t)(d->lengths[rank] - step) * sizeof(sl_action));
}

void test_draft_insert(test_draft *d, int rank, int step, sl_action action)
{
    memmove(&d->rows[rank][step + 1], &d->rows[rank][step],
            (size_t)(d->lengths[rank] - step) * sizeof(sl_action));
    d->rows[rank][step] = action;
    d->lengths[rank]++;
}

bool test_draft_find(const test_draft *d, sl_action_kind kind, int stage,
                     int mb, int *out_rank, int *out_step)
{
    for (int rank = 0; rank < d->ranks; rank++)
        for (int step = 0; step < d->lengths[rank]; step++) {
            sl_action parts[2];
            int count = sl_action_parts(&d->rows[rank][step], parts);
            for (int i = 0; i < count; i++)
                if (parts[i].kind == kind && parts[i].stage == stage &&
                    parts[i].microbatch == mb) {
                    *out_rank = rank;
                    *out_step = step;
                    return true;
                }
        }
    return false;
}

void test_draw_lowered(test_dice *random, test_draft *out)
{
    test_shape shape = test_random_shape(random);
    shape.overlaps = shape.idle = false;
    if (shape.ranks == 1)
        shape.ranks = 2;
    if (shape.stages < shape.ranks)
        shape.stages = shape.ranks;
    bool own_messages = shape.messages;
    sl_schedule *drawn = test_random_schedule(random, &shape);
    sl_schedule *lowered =
        test_lower(drawn, own_messages ? "unshard,reduce-grad,wait-send"
                                       : SL_LOWER_DEFAULT_PASSES);
    test_draft_of(lowered, out);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(drawn);
}

void test_pick(test_dice *random, const test_draft *d, sl_action_kind kind,
               int *rank, int *step)
{
    int seen = 0;
    *step = -1;
    for (int r = 0; r < d->ranks; r++)
        for (int s = 0; s < d->lengths[r]; s++)
            if (d->rows[r][s].kind == kind && test_below(random, ++seen) == 0) {
                *rank = r;
                *step = s;
            }
}

/* SPDX-License-Identifier: MIT
 *
 * Damage to random schedules: every kind of it is found, with its code and
 * place. */
#include "support.h"
#include "brute_force.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole lowered schedule and one of its actions to damage, of each kind in
 * turn; false when it has none of that kind. */
static bool draw_target(test_dice *random, int turn, test_draft *d, int *rank,
                        int *step)
{
    test_draw_lowered(random, d);
    test_pick(random, d, (sl_action_kind)(1 + turn % (SL_ACTION_KINDS - 2)),
              rank, step);
    return *step >= 0;
}

static void expect(const test_draft *damaged, sl_finding_code code, int rank,
                   int step, const char *damage)
{
    sl_schedule *schedule = test_draft_finish(damaged);
    if (!test_has_finding(schedule, code, rank, step)) {
        char *csv = test_csv(schedule);
        test_is_sound(schedule);
        fail_msg("%s: no %s at rank %d, step %d in\n%s", damage,
                 sl_finding_code_text(code), rank, step, csv);
    }
    sl_schedule_destroy(schedule);
}

/* The first action of a kind and stage on a rank from a step on, or the last
 * before it if `back`; -1 when there is none. */
static int scan(const test_draft *d, int rank, int from, bool back, int stage,
                bool (*wanted)(uint8_t kind))
{
    int end = back ? -1 : d->lengths[rank];
    for (int step = back ? from - 1 : from; step != end;
         step += back ? -1 : 1) {
        const sl_action *a = &d->rows[rank][step];
        if (a->stage == stage && wanted(a->kind))
            return step;
    }
    return -1;
}

static bool is_compute(uint8_t kind)
{
    return sl_action_kind_family(kind) == SL_FAMILY_COMPUTE;
}

static bool is_unshard(uint8_t kind)
{
    return kind == SL_UNSHARD;
}

static bool is_reshard(uint8_t kind)
{
    return kind == SL_RESHARD;
}

static bool ends_gradient(uint8_t kind)
{
    return kind == SL_BACKWARD || kind == SL_BACKWARD_WEIGHT;
}

static void expect_compute_drop(const test_draft *d, sl_action gone)
{
    int r, s, stage = gone.stage, mb = gone.microbatch;
    if (gone.kind == SL_FORWARD) {
        assert_true(test_draft_find(d, SL_BACKWARD, stage, mb, &r, &s) ||
                    test_draft_find(d, SL_BACKWARD_INPUT, stage, mb, &r, &s));
        expect(d, SL_FINDING_MISSING_FORWARD, r, s, "drop F");
    } else if (gone.kind == SL_BACKWARD_WEIGHT) {
        assert_true(test_draft_find(d, SL_BACKWARD_INPUT, stage, mb, &r, &s));
        expect(d, SL_FINDING_MISSING_WEIGHT, r, s, "drop W");
    } else {
        assert_true(test_draft_find(d, SL_FORWARD, stage, mb, &r, &s));
        expect(d, SL_FINDING_MISSING_BACKWARD, r, s, "drop a backward");
    }
}

/* A lost end of a message is found at its other end. */
static void expect_message_drop(const test_draft *d, sl_action gone)
{
    static const struct {
        uint8_t gone, left;
        int stage;
        sl_finding_code code;
    } ends[] = {
        {SL_SEND_F, SL_RECV_F, 1, SL_FINDING_MISSING_SEND},
        {SL_SEND_B, SL_RECV_B, -1, SL_FINDING_MISSING_SEND},
        {SL_RECV_F, SL_SEND_F, -1, SL_FINDING_MISSING_RECEIVE},
        {SL_RECV_B, SL_SEND_B, 1, SL_FINDING_MISSING_RECEIVE},
    };
    for (int i = 0; i < 4; i++) {
        int r, s;
        if (ends[i].gone != gone.kind)
            continue;
        assert_true(test_draft_find(d, ends[i].left, gone.stage + ends[i].stage,
                                    gone.microbatch, &r, &s));
        expect(d, ends[i].code, r, s, "drop a message");
    }
}

/* A lost wait is found at what nobody waits for any more. */
static void expect_wait_drop(const test_draft *d, sl_action gone)
{
    sl_action_kind of = gone.kind == SL_WAIT_SEND_F   ? SL_SEND_F
                        : gone.kind == SL_WAIT_SEND_B ? SL_SEND_B
                                                      : SL_REDUCE_GRAD;
    int r, s;
    sl_schedule *left = test_draft_finish(d);
    sl_extent extent = sl_schedule_extent(left);
    sl_schedule_destroy(left);
    /* With the last one gone, the schedule is one without waits. */
    if (of == SL_REDUCE_GRAD ? !extent.has_reduce_waits
                             : !extent.has_send_waits)
        return;
    assert_true(test_draft_find(d, of, gone.stage, gone.microbatch, &r, &s));
    expect(d, SL_FINDING_MISSING_WAIT, r, s, "drop a wait");
}

static void expect_state_drop(const test_draft *d, sl_action gone, int rank,
                              int step)
{
    int stage = gone.stage;
    if (gone.kind == SL_UNSHARD) {
        expect(d, SL_FINDING_NOT_UNSHARDED, rank,
               scan(d, rank, step, false, stage, is_compute), "drop UNSHARD");
        expect(d, SL_FINDING_UNPAIRED_SHARD, rank,
               scan(d, rank, step, false, stage, is_reshard), "drop UNSHARD");
    } else if (gone.kind == SL_RESHARD) {
        int again = scan(d, rank, step, false, stage, is_unshard);
        if (again < 0)
            again = scan(d, rank, step, true, stage, is_unshard);
        expect(d, SL_FINDING_UNPAIRED_SHARD, rank, again, "drop RESHARD");
    } else {
        expect(d, SL_FINDING_MISSING_REDUCE_GRAD, rank,
               scan(d, rank, step, true, stage, ends_gradient),
               "drop REDUCE_GRAD");
    }
}

static void dropped_actions_are_found(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {211};
    int dropped = 0;
    for (int i = 0; i < 400; i++) {
        int rank, step;
        if (!draw_target(&random, i, &d, &rank, &step))
            continue;
        sl_action gone = d.rows[rank][step];
        test_draft_remove(&d, rank, step);
        if (is_compute(gone.kind))
            expect_compute_drop(&d, gone);
        else if (sl_action_kind_family(gone.kind) == SL_FAMILY_COMM)
            expect_message_drop(&d, gone);
        else if (sl_action_kind_family(gone.kind) == SL_FAMILY_WAIT)
            expect_wait_drop(&d, gone);
        else
            expect_state_drop(&d, gone, rank, step);
        dropped++;
    }
    assert_true(dropped > 250);
}

static void repeated_actions_are_found(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {223};
    for (int i = 0; i < 400; i++) {
        int rank, step;
        if (!draw_target(&random, i, &d, &rank, &step))
            continue;
        sl_action twice = d.rows[rank][step];
        int at = step + 1 + test_below(&random, d.lengths[rank] - step);
        bool shard = twice.kind == SL_UNSHARD || twice.kind == SL_RESHARD;
        test_draft_insert(&d, rank, at, twice);
        if (shard)
            expect(&d, SL_FINDING_UNPAIRED_SHARD, rank, -2, "repeat");
        else
            expect(&d, SL_FINDING_DUPLICATE, rank, at, "repeat");
    }
}

/* Swaps an action with one it depends on, on the same rank. */
static void swapped_actions_are_found(void **state)
{
    (void)state;
    static test_draft d;
    static const struct {
        sl_action_kind later, earlier;
        sl_finding_code code;
        bool at_earlier_step; /* where the finding is */
    } swaps[] = {
        {SL_BACKWARD, SL_FORWARD, SL_FINDING_WRONG_ORDER, true},
        {SL_BACKWARD_INPUT, SL_FORWARD, SL_FINDING_WRONG_ORDER, true},
        {SL_BACKWARD_WEIGHT, SL_BACKWARD_INPUT, SL_FINDING_WRONG_ORDER, true},
        {SL_SEND_F, SL_FORWARD, SL_FINDING_SEND_TOO_EARLY, true},
        {SL_SEND_B, SL_BACKWARD, SL_FINDING_SEND_TOO_EARLY, true},
        {SL_FORWARD, SL_RECV_F, SL_FINDING_RECEIVE_TOO_LATE, false},
        {SL_BACKWARD, SL_RECV_B, SL_FINDING_RECEIVE_TOO_LATE, false},
        {SL_WAIT_SEND_F, SL_SEND_F, SL_FINDING_WAIT_TOO_EARLY, true},
        {SL_WAIT_SEND_B, SL_SEND_B, SL_FINDING_WAIT_TOO_EARLY, true},
        {SL_WAIT_REDUCE_GRAD, SL_REDUCE_GRAD, SL_FINDING_WAIT_TOO_EARLY, true},
    };
    test_dice random = {227};
    int swapped = 0;
    for (int i = 0; i < 700; i++) {
        int rank, step, rank2, step2;
        size_t k = (size_t)i % (sizeof swaps / sizeof *swaps);
        test_draw_lowered(&random, &d);
        test_pick(&random, &d, swaps[k].later, &rank, &step);
        if (step < 0)
            continue;
        sl_action later = d.rows[rank][step];
        int mb2 = later.kind == SL_WAIT_REDUCE_GRAD ? 0 : later.microbatch;
        if (!test_draft_find(&d, swaps[k].earlier, later.stage, mb2, &rank2,
                             &step2))
            continue;
        assert_int_equal(rank, rank2);
        assert_true(step2 < step);
        d.rows[rank][step] = d.rows[rank][step2];
        d.rows[rank][step2] = later;
        expect(&d, swaps[k].code, rank, swaps[k].at_earlier_step ? step2 : step,
               "swap");
        swapped++;
    }
    assert_true(swapped > 300);
}

/* A wait for what nobody sends, or reduces; and a reduction begun before the
 * one before it was waited for. */
static void waits_without_their_pair_are_found(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {228};
    int lone = 0, pending = 0;
    for (int i = 0; i < 400; i++) {
        int rank, step, next;
        test_draw_lowered(&random, &d);
        sl_action_kind kind = i % 2 ? SL_SEND_F : SL_REDUCE_GRAD;
        test_pick(&random, &d, kind, &rank, &step);
        if (step < 0)
            continue;
        sl_action gone = d.rows[rank][step];
        sl_action_kind wait = i % 2 ? SL_WAIT_SEND_F : SL_WAIT_REDUCE_GRAD;
        int at, on;
        test_draft_remove(&d, rank, step);
        if (test_draft_find(&d, wait, gone.stage, gone.microbatch, &on, &at)) {
            expect(&d, SL_FINDING_NEEDLESS_WAIT, on, at,
                   "drop what is awaited");
            lone++;
        }
        test_draft_insert(&d, rank, step, gone);
        /* The wait of a reduction behind the rank's next one. */
        for (next = step + 1; next < d.lengths[rank]; next++)
            if (d.rows[rank][next].kind == SL_REDUCE_GRAD)
                break;
        if (i % 2 || next == d.lengths[rank])
            continue;
        assert_true(test_draft_find(&d, wait, gone.stage, 0, &on, &at));
        if (on != rank || at > next)
            continue;
        sl_action moved = d.rows[rank][at];
        test_draft_remove(&d, rank, at);
        test_draft_insert(&d, rank, next, moved);
        expect(&d, SL_FINDING_TWO_REDUCTIONS, rank, next - 1, "late wait");
        pending++;
    }
    assert_true(lone > 100 && pending > 20);
}

/* A wait moved forward, to right behind its send, where the peer's receive may
 * need what comes behind it: found at the wait, exactly where brute force says
 * that the schedule hangs. */
static void waits_that_block_a_receive_are_found(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {239};
    int blocked = 0, fine = 0;
    for (int i = 0; i < 1500; i++) {
        int rank, step, at, on;
        test_shape shape = test_random_shape(&random);
        shape.messages = shape.idle = false;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_schedule *lowered =
            test_lower(drawn, "send-recv,defer-recv,wait-send");
        test_draft_of(lowered, &d);
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(drawn);
        test_pick(&random, &d, i % 2 ? SL_SEND_F : SL_SEND_B, &rank, &step);
        if (step < 0)
            continue;
        sl_action send = d.rows[rank][step];
        assert_true(test_draft_find(&d, i % 2 ? SL_WAIT_SEND_F : SL_WAIT_SEND_B,
                                    send.stage, send.microbatch, &on, &at));
        sl_action wait = d.rows[rank][at];
        test_draft_remove(&d, rank, at);
        test_draft_insert(&d, rank, step + 1, wait);
        bool hangs = test_deadlocks_by_force(&d, SL_ASYNC);
        sl_schedule *schedule = test_draft_finish(&d);
        if (test_has_finding(schedule, SL_FINDING_WAIT_BLOCKS_RECEIVE, rank,
                             step + 1) != hangs)
            fail_msg("hangs: %d, in\n%s", hangs, test_csv(schedule));
        sl_schedule_destroy(schedule);
        blocked += hangs;
        fine += !hangs;
    }
    assert_true(blocked > 50 && fine > 50);
}

static void actions_on_another_rank_are_found(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {229};
    for (int i = 0; i < 400; i++) {
        int rank, step;
        if (!draw_target(&random, i, &d, &rank, &step))
            continue;
        sl_action moved = d.rows[rank][step];
        int other = (rank + 1 + test_below(&random, d.ranks - 1)) % d.ranks;
        int at = test_below(&random, d.lengths[other] + 1);
        test_draft_remove(&d, rank, step);
        test_draft_insert(&d, other, at, moved);
        expect(&d, SL_FINDING_WRONG_RANK, other, at, "move");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped_actions_are_found),
        cmocka_unit_test(repeated_actions_are_found),
        cmocka_unit_test(swapped_actions_are_found),
        cmocka_unit_test(waits_without_their_pair_are_found),
        cmocka_unit_test(waits_that_block_a_receive_are_found),
        cmocka_unit_test(actions_on_another_rank_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

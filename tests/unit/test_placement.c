/* SPDX-License-Identifier: MIT
 *
 * Placement by rule and as a schedule implies it. */
#include "support.h"

static void expect_ranks(const sl_placement *placement, const int *ranks,
                         int stages)
{
    assert_int_equal(sl_placement_stages(placement), stages);
    for (int stage = 0; stage < stages; stage++)
        assert_int_equal(sl_placement_rank_of(placement, stage), ranks[stage]);
}

/* Both directions agree, and a rank's stages ascend. */
static void expect_inverse(const sl_placement *placement)
{
    int seen = 0;
    for (int rank = 0; rank < sl_placement_ranks(placement); rank++) {
        int count;
        const int *stages = sl_placement_stages_of(placement, rank, &count);
        for (int i = 0; i < count; i++, seen++) {
            assert_int_equal(sl_placement_rank_of(placement, stages[i]), rank);
            assert_true(i == 0 || stages[i - 1] < stages[i]);
        }
    }
    assert_int_equal(seen, sl_placement_stages(placement));
}

static void loop_goes_around(void **state)
{
    (void)state;
    sl_placement *placement;
    assert_ok(sl_placement_create(SL_PLACEMENT_LOOP, 3, 7, &placement));
    expect_ranks(placement, (int[]){0, 1, 2, 0, 1, 2, 0}, 7);
    expect_inverse(placement);
    assert_int_equal(sl_placement_rank_of(placement, 7), -1);
    assert_int_equal(sl_placement_rank_of(placement, -1), -1);
    sl_placement_destroy(placement);
}

static void v_snakes(void **state)
{
    (void)state;
    sl_placement *placement;
    assert_ok(sl_placement_create(SL_PLACEMENT_V, 3, 9, &placement));
    expect_ranks(placement, (int[]){0, 1, 2, 2, 1, 0, 0, 1, 2}, 9);
    expect_inverse(placement);
    sl_placement_destroy(placement);
    assert_fails(sl_placement_create(SL_PLACEMENT_V, 3, 8, &placement),
                 SL_EINVAL, "multiple of ranks: 8 stages on 3 ranks");
    assert_fails(sl_placement_create(SL_PLACEMENT_LOOP, 0, 8, &placement),
                 SL_EINVAL, "1 to 4096 ranks");
}

static void a_schedule_implies_its_placement(void **state)
{
    (void)state;
    sl_placement *placement;
    sl_schedule *schedule =
        test_parse("0F0,1F0,4F0,4B0,1B0,0B0\n2F0,3F0,3B0,2B0\n");
    assert_ok(sl_placement_derive(schedule, &placement));
    expect_ranks(placement, (int[]){0, 0, 1, 1, 0}, 5);
    expect_inverse(placement);
    sl_placement_destroy(placement);
    sl_schedule_destroy(schedule);
}

static void every_generator_keeps_its_placement(void **state)
{
    (void)state;
    const sl_generator *generator;
    for (size_t i = 0; (generator = sl_generator_at(i)); i++) {
        int v = generator->default_stages_per_rank;
        sl_schedule *schedule = test_generate(generator->name, 3, v, 9);
        sl_placement *derived, *ruled;
        assert_ok(sl_placement_derive(schedule, &derived));
        assert_ok(sl_placement_create(generator->placement, 3, 3 * v, &ruled));
        for (int stage = 0; stage < 3 * v; stage++)
            assert_int_equal(sl_placement_rank_of(derived, stage),
                             sl_placement_rank_of(ruled, stage));
        sl_placement_destroy(derived);
        sl_placement_destroy(ruled);
        sl_schedule_destroy(schedule);
    }
}

static void odd_schedules_imply_none(void **state)
{
    (void)state;
    sl_placement *placement;
    sl_schedule *twice = test_parse("0F0,0B0\n,0F1\n");
    assert_fails(sl_placement_derive(twice, &placement), SL_EUNSOUND,
                 "stage 0 is on rank 0 and, at step 1, on rank 1");
    sl_schedule_destroy(twice);
    sl_schedule *hole = test_parse("0F0,2F0\n");
    assert_fails(sl_placement_derive(hole, &placement), SL_EUNSOUND,
                 "no rank computes stage 1 of 3");
    sl_schedule_destroy(hole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loop_goes_around),
        cmocka_unit_test(v_snakes),
        cmocka_unit_test(a_schedule_implies_its_placement),
        cmocka_unit_test(every_generator_keeps_its_placement),
        cmocka_unit_test(odd_schedules_imply_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The checker, one fault at a time. Random schedules with random faults are in
 * test_damage.c. */
#include "support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_finding(const char *csv, sl_finding_code code, int rank,
                           int step)
{
    sl_schedule *schedule = test_parse(csv);
    if (!test_has_finding(schedule, code, rank, step)) {
        test_is_sound(schedule); /* prints what was found */
        fail_msg("no %s at rank %d, step %d in\n%s", sl_finding_code_text(code),
                 rank, step, csv);
    }
    sl_schedule_destroy(schedule);
}

static void expect_sound(const char *csv)
{
    sl_schedule *schedule = test_parse(csv);
    if (!test_is_sound(schedule))
        fail_msg("unsound:\n%s", csv);
    sl_schedule_destroy(schedule);
}

static void whole_schedules_are_sound(void **state)
{
    (void)state;
    expect_sound("0F0,0B0\n");
    expect_sound("0F0,0I0,0W0\n");
    expect_sound("0F0,0F1\n1F0,1F1\n"); /* forward only */
    expect_sound("0F0,0F1,0B1,0I0,0W0\n,1F0,1B0,1F1,1I1,1W1\n");
    expect_sound("0F0,0B0\n\n"); /* a rank without work */
}

/* The schedules of PyTorch's own runtime tests. */
static void registry_schedules_are_sound(void **state)
{
    (void)state;
    static const char *const names[] = {"v_shaped", "unbalanced", "with_w",
                                        "reordered_b"};
    for (size_t i = 0; i < 4; i++) {
        char path[80];
        snprintf(path, sizeof path, "goldens/registry/%s.csv", names[i]);
        char *csv = test_read_file(path, NULL);
        expect_sound(csv);
        sl_schedule *schedule = test_parse(csv);
        if (!sl_schedule_extent(schedule).has_communication) {
            sl_schedule *lowered =
                test_lower(schedule, SL_LOWER_DEFAULT_PASSES);
            assert_true(test_is_sound(lowered));
            sl_schedule_destroy(lowered);
        }
        sl_schedule_destroy(schedule);
        free(csv);
    }
}

static void missing_work_is_found(void **state)
{
    (void)state;
    expect_finding("0F0,0B0,0B1\n", SL_FINDING_MISSING_FORWARD, 0, 2);
    expect_finding("0F0,0B0,0F1\n", SL_FINDING_MISSING_BACKWARD, 0, 2);
    expect_finding("0F0,0I0\n", SL_FINDING_MISSING_WEIGHT, 0, 1);
    expect_finding("0F0,0W0\n", SL_FINDING_MISSING_BACKWARD, 0, 0);
    expect_finding("0F0,2F0,2B0,0B0\n", SL_FINDING_MISSING_STAGE, -1, -1);
    expect_finding("0F0,0F1,0B0,0B1\n1F1,1B1\n", SL_FINDING_MISSING_FORWARD, 1,
                   -1);
    expect_finding("60000F1000000\n", SL_FINDING_INCOMPLETE, -1, -1);
}

static void doubled_work_is_found(void **state)
{
    (void)state;
    expect_finding("0F0,0F0,0B0\n", SL_FINDING_DUPLICATE, 0, 1);
    expect_finding("0F0,0B0,0B0\n", SL_FINDING_DUPLICATE, 0, 2);
    expect_finding("0F0,0B0,0I0,0W0\n", SL_FINDING_DUPLICATE, 0, 2);
    expect_finding("0F0,0B0,0W0\n", SL_FINDING_DUPLICATE, 0, 2);
    expect_finding("0F0,0I0,0W0,0B0\n", SL_FINDING_DUPLICATE, 0, 3);
    expect_finding("0F0,0SEND_F0,0SEND_F0\n1RECV_F0,1F0\n",
                   SL_FINDING_DUPLICATE, 0, 2);
    expect_finding("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n", SL_FINDING_DUPLICATE,
                   0, 3);
}

static void work_before_what_it_needs_is_found(void **state)
{
    (void)state;
    expect_finding("0B0,0F0\n", SL_FINDING_WRONG_ORDER, 0, 0);
    expect_finding("0F0,0W0,0I0\n", SL_FINDING_WRONG_ORDER, 0, 1);
    expect_finding("1F0,0F0,1B0,0B0\n", SL_FINDING_WRONG_ORDER, 0, 0);
    expect_finding("0F0,1F0,0B0,1B0\n", SL_FINDING_WRONG_ORDER, 0, 2);
    expect_finding("(0F0;0B0)OVERLAP_F_B\n", SL_FINDING_WRONG_ORDER, 0, 0);
}

static void a_stage_on_two_ranks_is_found(void **state)
{
    (void)state;
    /* One of two computes moved: the rest of the stage shows where it lives. */
    expect_finding("0UNSHARD,0F0,1F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,"
                   "0RESHARD\n"
                   "1UNSHARD,1RECV_F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n",
                   SL_FINDING_WRONG_RANK, 0, 2);
    expect_finding("0UNSHARD,0F0,0SEND_F0,0RESHARD,1F0\n"
                   "1UNSHARD,1RECV_F0,1RESHARD\n",
                   SL_FINDING_WRONG_RANK, 0, 4);
    expect_finding("0F0,0F1,0B0\n1F0,1B0,1F1,1B1,0B1\n", SL_FINDING_WRONG_RANK,
                   1, 4);
}

static void messages_without_their_other_end_are_found(void **state)
{
    (void)state;
    expect_finding("0F0\n1RECV_F0,1F0\n", SL_FINDING_MISSING_SEND, 1, 0);
    expect_finding("0F0,0SEND_F0\n1F0\n", SL_FINDING_MISSING_RECEIVE, 0, 1);
    expect_finding("0F0,0F1,0SEND_F1\n1F0,1RECV_F1,1F1\n",
                   SL_FINDING_MISSING_RECEIVE, 1, 0);
    expect_finding("0F0,0SEND_F0,1RECV_F0\n1F0\n", SL_FINDING_WRONG_RANK, 0, 2);
}

static void messages_that_lead_nowhere_are_found(void **state)
{
    (void)state;
    expect_finding("0F0,0SEND_F0,1RECV_F0,1F0\n", SL_FINDING_NEEDLESS_MESSAGE,
                   0, 1);
    expect_finding("0F0,0SEND_F0\n", SL_FINDING_NEEDLESS_MESSAGE, 0, 1);
    expect_finding("0RECV_F0,0F0\n", SL_FINDING_NEEDLESS_MESSAGE, 0, 0);
    expect_finding("0F0,0B0,0SEND_B0\n", SL_FINDING_NEEDLESS_MESSAGE, 0, 2);
    expect_finding("0F0,0RECV_B0,0B0\n", SL_FINDING_NEEDLESS_MESSAGE, 0, 1);
}

static void messages_on_the_wrong_side_of_compute_are_found(void **state)
{
    (void)state;
    expect_finding("0SEND_F0,0F0\n1RECV_F0,1F0\n", SL_FINDING_SEND_TOO_EARLY, 0,
                   0);
    expect_finding("0F0,0SEND_F0\n1F0,1RECV_F0\n", SL_FINDING_RECEIVE_TOO_LATE,
                   1, 1);
}

static void sharding_out_of_place_is_found(void **state)
{
    (void)state;
    expect_sound("0UNSHARD,0F0,0B0,0RESHARD\n");
    expect_finding("0F0,0UNSHARD,0B0,0RESHARD\n", SL_FINDING_NOT_UNSHARDED, 0,
                   0);
    expect_finding("0UNSHARD,0F0,0RESHARD,0B0\n", SL_FINDING_NOT_UNSHARDED, 0,
                   3);
    expect_finding("0UNSHARD,0F0,0B0\n", SL_FINDING_UNPAIRED_SHARD, 0, 0);
    expect_finding("0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD\n",
                   SL_FINDING_UNPAIRED_SHARD, 0, 1);
    expect_finding("0UNSHARD,0F0,0B0,0RESHARD,0RESHARD\n",
                   SL_FINDING_UNPAIRED_SHARD, 0, 4);
}

static void gradient_reduction_out_of_place_is_found(void **state)
{
    (void)state;
    expect_sound("0F0,0B0,0REDUCE_GRAD\n");
    expect_finding("0F0,0F1,0B0,0REDUCE_GRAD,0B1\n",
                   SL_FINDING_EARLY_REDUCE_GRAD, 0, 3);
    expect_finding("0F0,1F0,1B0,1REDUCE_GRAD,0B0\n",
                   SL_FINDING_MISSING_REDUCE_GRAD, 0, 4);
    expect_finding("0F0,0REDUCE_GRAD\n", SL_FINDING_MISSING_BACKWARD, 0, 0);
}

static void unexpected_sizes_are_found(void **state)
{
    (void)state;
    sl_check_options options = SL_CHECK_OPTIONS_INIT;
    sl_schedule *schedule = test_parse("0F0,0B0\n1F0,1B0\n");
    sl_report *report;
    static const int wrong[3][3] = {{4, 2, 1}, {2, 3, 1}, {2, 2, 5}};
    static const char *const texts[3] = {"expected 4 ranks, found 2",
                                         "expected 3 stages, found 2",
                                         "expected 5 microbatches, found 1"};
    for (int i = 0; i < 3; i++) {
        options.ranks = wrong[i][0];
        options.stages = wrong[i][1];
        options.microbatches = wrong[i][2];
        assert_ok(sl_check(schedule, &options, &report));
        size_t count;
        const sl_finding *findings = sl_report_findings(report, &count);
        assert_int_equal(count, 1);
        assert_int_equal(findings[0].code, SL_FINDING_WRONG_SIZE);
        assert_string_equal(findings[0].text, texts[i]);
        sl_report_destroy(report);
    }
    sl_schedule_destroy(schedule);
}

/* Two ranks that both send first: fine if sends are posted, not if a message
 * blocks its rank or the messages after it. */
static const char both_send_first[] =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";

static void deadlocks_depend_on_the_reading(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse(both_send_first);
    sl_check_options options = SL_CHECK_OPTIONS_INIT;
    sl_report *report;
    assert_ok(sl_check(schedule, &options, &report));
    assert_true(sl_report_is_sound(report));
    assert_null(sl_report_deadlock(report, SL_ASYNC));
    assert_non_null(sl_report_deadlock(report, SL_ORDERED));
    assert_non_null(sl_report_deadlock(report, SL_BLOCKING));
    sl_report_destroy(report);
    options.reading = SL_ORDERED;
    assert_ok(sl_check(schedule, &options, &report));
    assert_false(sl_report_is_sound(report));
    sl_report_destroy(report);
    sl_schedule_destroy(schedule);
}

/* The cycle is reported rank by rank: 0 waits at its second send for 1, which
 * waits at its first send for 0. */
static void the_cycle_of_waits_is_told(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse(both_send_first);
    sl_report *report;
    assert_ok(sl_check(schedule, NULL, &report));
    static const sl_reading readings[] = {SL_ORDERED, SL_BLOCKING};
    for (int i = 0; i < 2; i++) {
        const sl_finding *found = sl_report_deadlock(report, readings[i]);
        assert_int_equal(found->wait_count, 2);
        for (size_t k = 0; k < 2; k++) {
            const sl_wait *wait = &found->waits[k];
            const sl_wait *next = &found->waits[1 - k];
            assert_int_equal(wait->step, 3);
            assert_int_equal(wait->on_step, 4);
            assert_int_equal(wait->on_rank, 1 - wait->rank);
            assert_int_equal(next->rank, wait->on_rank);
        }
        assert_non_null(strstr(found->text, "rank 0 at step 3 (0SEND_F1) waits "
                                            "for rank 1's step 4 (1RECV_F1)"));
        assert_non_null(strstr(found->text, "rank 1 at step 3 (1SEND_B0) waits "
                                            "for rank 0's step 4 (0RECV_B0)"));
    }
    sl_report_destroy(report);
    sl_schedule_destroy(schedule);
}

static void compute_alone_can_deadlock(void **state)
{
    (void)state;
    expect_finding("0F0,0B1,0F1,0B0\n1F0,1F1,1B0,1B1\n", SL_FINDING_DEADLOCK,
                   -2, -2);
    expect_finding("0F0,2F0,0F1,2F1\n1F1,1F0\n", SL_FINDING_DEADLOCK, -2, -2);
}

/* The first findings by rank and step are kept, whichever check found them; and
 * the deadlock, wherever it is. */
static void findings_are_kept_by_place_and_all_counted(void **state)
{
    (void)state;
    sl_check_options options = SL_CHECK_OPTIONS_INIT;
    sl_schedule *schedule =
        test_parse("0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,0F7,0F7,0F7,1B0\n"
                   "1B7,1F0,1F1,1F2,1F3,1F4,1F5,1F6,1F7\n");
    sl_report *all, *some;
    size_t all_count, some_count;
    assert_ok(sl_check(schedule, &options, &all));
    const sl_finding *every = sl_report_findings(all, &all_count);
    assert_int_equal(all_count, sl_report_total(all));
    for (size_t i = 1; i < all_count; i++)
        assert_true(every[i - 1].rank < every[i].rank ||
                    (every[i - 1].rank == every[i].rank &&
                     every[i - 1].step <= every[i].step));
    for (size_t most = 1; most < all_count; most++) {
        options.max_findings = most;
        assert_ok(sl_check(schedule, &options, &some));
        const sl_finding *kept = sl_report_findings(some, &some_count);
        assert_int_equal(some_count, most);
        assert_int_equal(sl_report_total(some), all_count);
        bool deadlock = false;
        for (size_t i = 0; i < most; i++) {
            deadlock = deadlock || kept[i].code == SL_FINDING_DEADLOCK;
            if (i + 1 < most)
                assert_string_equal(kept[i].text, every[i].text);
        }
        assert_true(deadlock);
        sl_report_destroy(some);
    }
    sl_report_destroy(all);
    sl_schedule_destroy(schedule);
}

/* Large stage numbers with few actions are still analysed; with far too few
 * they are not. */
static void sparse_schedules_are_analysed_within_reason(void **state)
{
    (void)state;
    expect_finding("0F0,0B0\n1F65000,1B65000\n", SL_FINDING_INCOMPLETE, -1, -1);
    expect_finding("0F0,0B0\n1F30000,1B30000\n", SL_FINDING_MISSING_FORWARD, 0,
                   -1);
}

static void json_tells_findings_and_deadlocks(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse("0F0,0SEND_F0\n1F0\n");
    sl_report *report;
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_check(schedule, NULL, &report));
    assert_ok(sl_report_write_json(report, schedule, sl_write_string, &text));
    json_t *root = json_loadb(text.data, text.length, 0, NULL);
    assert_non_null(root);
    assert_true(json_is_false(json_object_get(root, "sound")));
    json_t *first = json_array_get(json_object_get(root, "findings"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "code")),
                        "missing-receive");
    assert_int_equal(json_integer_value(json_object_get(first, "rank")), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "step")), 1);
    assert_string_equal(json_string_value(json_object_get(first, "action")),
                        "0SEND_F0");
    json_t *deadlock = json_object_get(root, "deadlock");
    assert_true(json_is_object(json_object_get(deadlock, "async")));
    json_decref(root);
    sl_string_clear(&text);
    sl_report_destroy(report);
    sl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_schedules_are_sound),
        cmocka_unit_test(registry_schedules_are_sound),
        cmocka_unit_test(missing_work_is_found),
        cmocka_unit_test(doubled_work_is_found),
        cmocka_unit_test(work_before_what_it_needs_is_found),
        cmocka_unit_test(a_stage_on_two_ranks_is_found),
        cmocka_unit_test(messages_without_their_other_end_are_found),
        cmocka_unit_test(messages_that_lead_nowhere_are_found),
        cmocka_unit_test(messages_on_the_wrong_side_of_compute_are_found),
        cmocka_unit_test(sharding_out_of_place_is_found),
        cmocka_unit_test(gradient_reduction_out_of_place_is_found),
        cmocka_unit_test(unexpected_sizes_are_found),
        cmocka_unit_test(deadlocks_depend_on_the_reading),
        cmocka_unit_test(the_cycle_of_waits_is_told),
        cmocka_unit_test(compute_alone_can_deadlock),
        cmocka_unit_test(findings_are_kept_by_place_and_all_counted),
        cmocka_unit_test(sparse_schedules_are_analysed_within_reason),
        cmocka_unit_test(json_tells_findings_and_deadlocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

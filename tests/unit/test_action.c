/* SPDX-License-Identifier: MIT
 *
 * Actions and their text. */
#include "support.h"
#include "random_schedule.h"

#include <string.h>

static sl_action random_action(test_dice *random)
{
    int stage = test_below(random, SL_MAX_STAGES);
    int mb = test_below(random, SL_MAX_MICROBATCHES);
    int kind = 1 + test_below(random, SL_ACTION_KINDS - 1);
    if (kind != SL_OVERLAP_F_B)
        return sl_action_make((sl_action_kind)kind, stage, mb);
    sl_action f = sl_action_make(SL_FORWARD, stage, mb);
    sl_action b = sl_action_make(
        test_below(random, 2) ? SL_BACKWARD : SL_BACKWARD_INPUT,
        test_below(random, SL_MAX_STAGES), test_below(random, 1000));
    return sl_action_overlap(f, b);
}

static void text_round_trips(void **state)
{
    (void)state;
    test_dice random = {1};
    for (int i = 0; i < 20000; i++) {
        sl_action action = random_action(&random), read;
        char text[SL_ACTION_TEXT_MAX], again[SL_ACTION_TEXT_MAX];
        size_t length = sl_action_print(&action, text);
        assert_int_equal(length, strlen(text));
        assert_ok(sl_action_parse(text, length, &read));
        assert_true(sl_action_equal(&action, &read));
        sl_action_print(&read, again);
        assert_string_equal(text, again);
    }
}

static void known_texts_are_read(void **state)
{
    (void)state;
    static const char *const texts[] = {"2F0",
                                        "0I3",
                                        "1W12",
                                        "7B1",
                                        "0UNSHARD",
                                        "3RESHARD",
                                        "1SEND_F0",
                                        "1RECV_F2",
                                        "1SEND_B3",
                                        "0RECV_B4",
                                        "2REDUCE_GRAD",
                                        "(0F3;3B1)OVERLAP_F_B",
                                        "(1F1;2I0)OVERLAP_F_B"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sl_action action;
        char text[SL_ACTION_TEXT_MAX];
        assert_ok(sl_action_parse(texts[i], strlen(texts[i]), &action));
        sl_action_print(&action, text);
        assert_string_equal(text, texts[i]);
    }
}

static void blanks_around_are_skipped(void **state)
{
    (void)state;
    sl_action action, spaced, plain;
    assert_ok(sl_action_parse(" \t2F0  ", 7, &action));
    assert_int_equal(action.kind, SL_FORWARD);
    assert_int_equal(action.stage, 2);
    assert_ok(sl_action_parse("   ", 3, &action));
    assert_int_equal(action.kind, SL_IDLE);
    assert_ok(sl_action_parse("", 0, &action));
    assert_int_equal(action.kind, SL_IDLE);
    const char *a = "( 1F1 ; 2B0 )OVERLAP_F_B", *b = "(1F1;2B0)OVERLAP_F_B";
    assert_ok(sl_action_parse(a, strlen(a), &spaced));
    assert_ok(sl_action_parse(b, strlen(b), &plain));
    assert_true(sl_action_equal(&spaced, &plain));
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"F0", "a stage number"},
        {"2", "F, I, W, B"},
        {"2G0", "F, I, W, B"},
        {"2f0", "F, I, W, B"},
        {"2F", "a microbatch number"},
        {"2F0x", "nothing after"},
        {"2F0 1F0", "nothing after"},
        {"2UNSHARD0", "nothing after"},
        {"2F-1", "a microbatch number"},
        {"-2F1", "a stage number"},
        {"02F1", "a stage number"},
        {"2F01", "a microbatch number"},
        {"65536F0", "a stage number"},
        {"0F16777216", "a microbatch number"},
        {"99999999999999999999F0", "a stage number"},
        {"2SEND_F", "a microbatch number"},
        {"2SEND", "F, I, W, B"},
        {"2OVERLAP_F_B", "F, I, W, B"},
        {"(1F1)OVERLAP_F_B", "an overlap like"},
        {"(1F1;2B0)", "an overlap like"},
        {"(1F1;2B0)OVERLAP_F_BX", "an overlap like"},
        {"(1F1;2B0)OVERLAP_F_B7", "nothing after"},
        {"(1F1;2B0", "an overlap like"},
        {"(2B0;1F1)OVERLAP_F_B", "an F, then a B or an I"},
        {"(1F1;2W0)OVERLAP_F_B", "an F, then a B or an I"},
        {"(1F1;2SEND_F0)OVERLAP_F_B", "an F, then a B or an I"},
        {"(;)OVERLAP_F_B", "a stage number"},
        {"((1F1;2B0)OVERLAP_F_B;2B0)OVERLAP_F_B", "nothing after"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sl_action action = sl_action_make(SL_RESHARD, 9, 0), before = action;
        assert_fails(sl_action_parse(texts[i][0], strlen(texts[i][0]), &action),
                     SL_EPARSE, texts[i][1]);
        assert_true(sl_action_equal(&action, &before));
    }
}

static void parts_of_an_overlap_are_its_halves(void **state)
{
    (void)state;
    sl_action action, parts[2];
    const char *text = "(1F4;2B3)OVERLAP_F_B";
    assert_ok(sl_action_parse(text, strlen(text), &action));
    assert_int_equal(sl_action_parts(&action, parts), 2);
    sl_action f = sl_action_make(SL_FORWARD, 1, 4);
    sl_action b = sl_action_make(SL_BACKWARD, 2, 3);
    assert_true(sl_action_equal(&parts[0], &f));
    assert_true(sl_action_equal(&parts[1], &b));
    sl_action idle = sl_action_make(SL_IDLE, 0, 0);
    assert_int_equal(sl_action_parts(&idle, parts), 0);
}

static void what_is_out_of_range_is_no_action(void **state)
{
    (void)state;
    sl_action f = sl_action_make(SL_FORWARD, 0, 0);
    sl_action b = sl_action_make(SL_BACKWARD, 1, 0);
    sl_action odd = sl_action_make(SL_UNSHARD, 1, 0);
    odd.microbatch = 7;
    const sl_action wrong[] = {
        sl_action_make(SL_FORWARD, 65536, 0),
        sl_action_make(SL_FORWARD, -1, 0),
        sl_action_make(SL_FORWARD, 0, -1),
        sl_action_make(SL_FORWARD, 0, SL_MAX_MICROBATCHES),
        sl_action_make((sl_action_kind)99, 0, 0),
        sl_action_make(SL_OVERLAP_F_B, 0, 0),
        sl_action_overlap(b, b),
        sl_action_overlap(f, f),
        odd,
    };
    sl_schedule *schedule;
    assert_ok(sl_schedule_create(1, &schedule));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(&wrong[i], text);
        assert_fails(sl_schedule_append(schedule, 0, wrong[i]), SL_EINVAL,
                     "rank 0, step 0: not a valid action");
    }
    assert_ok(sl_schedule_append(schedule, 0, sl_action_overlap(f, b)));
    assert_fails(sl_schedule_append(schedule, 1, f), SL_EINVAL, "no rank 1");
    sl_schedule_destroy(schedule);
}

static void an_action_is_compact(void **state)
{
    (void)state;
    assert_true(sizeof(sl_action) <= 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_round_trips),
        cmocka_unit_test(known_texts_are_read),
        cmocka_unit_test(blanks_around_are_skipped),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(parts_of_an_overlap_are_its_halves),
        cmocka_unit_test(what_is_out_of_range_is_no_action),
        cmocka_unit_test(an_action_is_compact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

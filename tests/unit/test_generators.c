/* SPDX-License-Identifier: MIT
 *
 * Generators: found by name, sizes refused with reasons, schedules sound for
 * all others. That they equal PyTorch's is tested in
 * test_golden_schedules.c. */
#include "support.h"
#include "schedule/generate/generate.h"

#include <stdio.h>
#include <string.h>

static void names_are_found_in_any_case_and_form(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"gpipe", "GPipe"},
        {"GPIPE", "GPipe"},
        {"ScheduleGPipe", "GPipe"},
        {"1f1b", "1F1B"},
        {"Schedule1F1B", "1F1B"},
        {"bfs", "LoopedBFS"},
        {"loopedbfs", "LoopedBFS"},
        {"interleaved", "Interleaved1F1B"},
        {"scheduleinterleaved1f1b", "Interleaved1F1B"},
        {"zb1p", "InterleavedZeroBubble"},
        {"zbv", "ZBVZeroBubble"},
        {"ScheduleZBVZeroBubble", "ZBVZeroBubble"},
        {"DualPipeV", "DualPipeV"},
        {"dualpipev", "DualPipeV"},
        {"ForwardOnly", "ForwardOnly"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const sl_generator *found;
        assert_ok(sl_generator_find(names[i][0], &found));
        assert_string_equal(found->name, names[i][1]);
    }
}

static void an_unknown_name_lists_the_known_ones(void **state)
{
    (void)state;
    const sl_generator *found;
    assert_fails(sl_generator_find("zbw", &found), SL_ENOTFOUND,
                 "unknown schedule 'zbw'; known ones: GPipe, 1F1B, LoopedBFS");
    assert_fails(sl_generator_find("", &found), SL_ENOTFOUND, "unknown");
    assert_fails(sl_generator_find("Schedule", &found), SL_ENOTFOUND,
                 "unknown");
}

static void expect_refusal(const char *name, int p, int v, int m,
                           const char *text)
{
    sl_sizes sizes = {p, v, m};
    sl_schedule *schedule;
    assert_fails(sl_generate(name, &sizes, &schedule), SL_EINVAL, text);
}

static void unservable_sizes_are_refused_with_the_nearest(void **state)
{
    (void)state;
    expect_refusal("zbv", 4, 3, 8,
                   "exactly 2 stages per rank, not 3; the nearest that works: "
                   "2 stages per rank");
    expect_refusal("dualpipev", 4, 1, 9, "works: 2 stages per rank");
    expect_refusal(
        "dualpipev", 4, 2, 7,
        "7 are fewer than 8; the nearest that works: 8 microbatches");
    expect_refusal("dualpipev", 2, 1, 1,
                   "works: 2 stages per rank, 4 microbatches");
    expect_refusal("gpipe", 4, 2, 8, "works: 1 stage per rank");
    expect_refusal("gpipe", 5, 20000, 1, "works: 1 stage per rank");
    /* What need not change stays. */
    expect_refusal("interleaved", 5000, 2, 8,
                   "5000 ranks are too many; the nearest that works: 4096 "
                   "ranks");
    expect_refusal("interleaved", 4, 2, 9, "works: 8 or 10 microbatches");
    expect_refusal("zb1p", 5, 4, 17, "works: 15 or 18 microbatches");
    expect_refusal("interleaved", 1000, 1, 43050, "works: 43043 microbatches");
    expect_refusal("interleaved", 4, 2, 10000000,
                   "works: 5592400 microbatches");
    expect_refusal("zbv", 4, 1, 10000000,
                   "works: 2 stages per rank, 5592401 microbatches");
    expect_refusal("zbv", 4097, 2, 1, "works: 3344 ranks");
    expect_refusal("bfs", 4096, 100, 4, "on 4096 ranks; the nearest");
    expect_refusal("gpipe", 4, 1, 1000000000, "microbatches are too many");
    expect_refusal("gpipe", 1000000, 1, 4, "ranks are too many");
    expect_refusal("gpipe", INT32_MAX, INT32_MAX, INT32_MAX, "too many");
    expect_refusal("gpipe", 0, 1, 8, "ranks must be at least 1, not 0");
    expect_refusal("gpipe", 4, -1, 8, "stages per rank must be at least 1");
    expect_refusal("gpipe", 4, 1, 0, "microbatches must be at least 1, not 0");
}

/* Reads the sizes a refusal suggests over those asked for. */
static void read_suggestion(sl_sizes *sizes)
{
    const char *at = strstr(sl_error_text(), "that works: ");
    assert_non_null(at);
    at += strlen("that works: ");
    for (;;) {
        int number, used = 0;
        char what[16];
        assert_true(sscanf(at, "%d %15s%n", &number, what, &used) == 2);
        if (strncmp(what, "rank", 4) == 0)
            sizes->ranks = number;
        else if (strncmp(what, "stage", 5) == 0)
            sizes->stages_per_rank = number;
        else
            sizes->microbatches = number;
        at = strstr(at, ", ");
        if (!at)
            return;
        at += 2;
    }
}

/* Whatever is suggested is then served; `generate` is not run where it would
 * fill the memory. */
static void suggestions_work(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 5, 8, 13, 64, 2000, 3400, 4096, 9999};
    static const int stages[] = {1, 2, 3, 17, 70000};
    static const int counts[] = {1, 2, 7, 9, 50, 43050, 10000000, 2000000000};
    const sl_generator *generator;
    int refused = 0;
    for (size_t i = 0; (generator = sl_generator_at(i)); i++)
        for (int p = 0; p < 11; p++)
            for (int v = 0; v < 5; v++)
                for (int m = 0; m < 8; m++) {
                    sl_sizes sizes = {ranks[p], stages[v], counts[m]};
                    if (!sl__admit(generator, &sizes))
                        continue;
                    read_suggestion(&sizes);
                    assert_ok(sl__admit(generator, &sizes));
                    refused++;
                }
    assert_true(refused > 1000);
}

/* Every generated schedule is sound, before and after lowering, and cannot
 * deadlock under any reading of communication. */
static void expect_sound(const sl_schedule *compute)
{
    sl_schedule *lowered = test_lower(compute, SL_LOWER_DEFAULT_PASSES);
    sl_report *report;
    assert_true(test_is_sound(compute));
    assert_ok(sl_check(lowered, NULL, &report));
    assert_true(sl_report_is_sound(report));
    for (int i = 0; i < SL_READINGS; i++)
        assert_null(sl_report_deadlock(report, (sl_reading)i));
    sl_report_destroy(report);
    sl_schedule_destroy(lowered);
}

static void all_served_sizes_are_sound(void **state)
{
    (void)state;
    const sl_generator *generator;
    int served = 0;
    for (size_t i = 0; (generator = sl_generator_at(i)); i++) {
        for (int p = 1; p <= 6; p++)
            for (int v = 1; v <= 3; v++)
                for (int m = 1; m <= 14; m++) {
                    sl_sizes sizes = {p, v, m};
                    sl_schedule *schedule;
                    if (sl_generate(generator->name, &sizes, &schedule))
                        continue;
                    expect_sound(schedule);
                    sl_extent extent = sl_schedule_extent(schedule);
                    assert_int_equal(extent.stages, p * v);
                    assert_int_equal(extent.microbatches, m);
                    sl_schedule_destroy(schedule);
                    served++;
                }
    }
    assert_true(served > 800);
}

/* The sizes PyTorch's own tests go through. */
static void sizes_users_rely_on_generate_and_simulate(void **state)
{
    (void)state;
    static const int sizes[][3] = {
        {2, 2, 2},  {2, 4, 4},   {2, 8, 2},   {2, 8, 4},    {2, 8, 8},
        {4, 4, 4},  {4, 8, 4},   {4, 8, 8},   {4, 16, 4},   {4, 32, 4},
        {4, 64, 4}, {4, 16, 16}, {4, 32, 32}, {4, 128, 64}, {3, 2, 2},
        {3, 8, 2},  {3, 12, 4},  {4, 6, 3},   {4, 10, 5},   {2, 3, 4},
        {2, 10, 4}, {2, 15, 4}};
    static const char *const names[] = {"Interleaved1F1B",
                                        "InterleavedZeroBubble", "LoopedBFS"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t n = 0; n < 3; n++) {
            sl_simulation *result;
            sl_schedule *compute =
                test_generate(names[n], sizes[i][2], sizes[i][0], sizes[i][1]);
            sl_schedule *comms = test_lower(compute, "send-recv");
            size_t steps;
            assert_ok(sl_dry_run(comms, &steps));
            assert_ok(sl_simulate(comms, NULL, SL_ASYNC, &result));
            sl_simulation_destroy(result);
            sl_schedule_destroy(comms);
            sl_schedule_destroy(compute);
        }
    }
}

static void fewer_microbatches_than_ranks_are_served_by_1f1b(void **state)
{
    (void)state;
    sl_schedule *compute = test_generate("1f1b", 4, 1, 2);
    sl_schedule *order = test_lower(compute, "");
    test_assert_csv(order, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
                           "2F0,2F1,2B0,2B1\n3F0,3B0,3F1,3B1\n");
    sl_schedule_destroy(order);
    sl_schedule_destroy(compute);
}

/* The idle cells of the two schedules that the goldens have only as orders. */
static void gpipe_and_1f1b_idle_as_pytorch_draws_them(void **state)
{
    (void)state;
    sl_schedule *gpipe = test_generate("gpipe", 3, 1, 2);
    test_assert_csv(gpipe, "0F0,0F1,,,,,,,0B0,0B1\n"
                           ",1F0,1F1,,,,1B0,1B1\n"
                           ",,2F0,2F1,2B0,2B1\n");
    sl_schedule_destroy(gpipe);
    sl_schedule *one = test_generate("1f1b", 3, 1, 4);
    test_assert_csv(one, "0F0,0F1,,,,,0F2,0B0,0F3,0B1,,0B2,,0B3\n"
                         ",1F0,,,1F1,1B0,1F2,1B1,1F3,1B2,,1B3\n"
                         ",,2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
    sl_schedule_destroy(one);
}

static sl_status generate_backwards(const sl_sizes *sizes, sl_schedule *out)
{
    for (int mb = sizes->microbatches - 1; mb >= 0; mb--) {
        sl_status status =
            sl_schedule_append(out, 0, sl_action_make(SL_FORWARD, 0, mb));
        if (status)
            return status;
    }
    return SL_OK;
}

static sl_status admit_one_rank(const sl_sizes *sizes)
{
    if (sizes->ranks == 1)
        return SL_OK;
    return sl_fail(SL_EINVAL, "only 1 rank, not %d", sizes->ranks);
}

static void a_program_registers_its_own(void **state)
{
    (void)state;
    static const sl_generator mine = {.name = "CountDown",
                                      .short_name = "cd",
                                      .default_stages_per_rank = 1,
                                      .admit = admit_one_rank,
                                      .generate = generate_backwards};
    assert_ok(sl_generator_register(&mine));
    sl_schedule *schedule = test_generate("countdown", 1, 1, 3);
    test_assert_csv(schedule, "0F2,0F1,0F0\n");
    sl_schedule_destroy(schedule);
    expect_refusal("CD", 2, 1, 3, "only 1 rank, not 2");
    assert_fails(sl_generator_register(&mine), SL_EINVAL,
                 "cannot be named 'CountDown': the name is taken");
    sl_generator other = mine;
    other.name = "Other";
    other.short_name = "ZBV";
    assert_fails(sl_generator_register(&other), SL_EINVAL,
                 "cannot be named 'ZBV': the name is taken");
    other.short_name = "";
    assert_fails(sl_generator_register(&other), SL_EINVAL, "empty");
    other.short_name = NULL;
    other.name = "ScheduleGPipe";
    assert_fails(sl_generator_register(&other), SL_EINVAL, "taken");
    sl_generator empty = {.name = "Empty"};
    assert_fails(sl_generator_register(&empty), SL_EINVAL, "needs a name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_in_any_case_and_form),
        cmocka_unit_test(an_unknown_name_lists_the_known_ones),
        cmocka_unit_test(unservable_sizes_are_refused_with_the_nearest),
        cmocka_unit_test(suggestions_work),
        cmocka_unit_test(all_served_sizes_are_sound),
        cmocka_unit_test(sizes_users_rely_on_generate_and_simulate),
        cmocka_unit_test(fewer_microbatches_than_ranks_are_served_by_1f1b),
        cmocka_unit_test(gpipe_and_1f1b_idle_as_pytorch_draws_them),
        cmocka_unit_test(a_program_registers_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

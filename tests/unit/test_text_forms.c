/* SPDX-License-Identifier: MIT
 *
 * CSV, grid and JSON of whole schedules. */
#include "support.h"
#include "random_schedule.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void csv_round_trips(void **state)
{
    (void)state;
    test_dice random = {7};
    for (int i = 0; i < 200; i++) {
        test_shape shape = test_random_shape(&random);
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        char *text = test_csv(drawn);
        sl_schedule *read = test_parse(text);
        test_assert_csv(read, text);
        free(text);
        sl_schedule_destroy(drawn);
        sl_schedule_destroy(read);
    }
}

static void csv_takes_crlf_quotes_and_blanks(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse("0F0, ,\"0B0\"\r\n,1F0 ,1B0\r\n");
    test_assert_csv(schedule, "0F0,,0B0\n,1F0,1B0\n");
    sl_schedule_destroy(schedule);
    schedule = test_parse("0F0\n\"\"\n\n1F0"); /* no newline at the end */
    assert_int_equal(sl_schedule_ranks(schedule), 4);
    assert_int_equal(sl_schedule_length(schedule, 1), 1);
    assert_int_equal(sl_schedule_length(schedule, 2), 0);
    test_assert_csv(schedule, "0F0\n\"\"\n\n1F0\n");
    sl_schedule_destroy(schedule);
}

static void csv_errors_name_row_column_text_and_expectation(void **state)
{
    (void)state;
    static const struct {
        const char *csv;
        size_t length; /* 0: strlen */
        const char *text;
    } cases[] = {
        {"0F0,0B0\n1F0,1X0\n", 0,
         "row 2, column 2 (rank 1, step 1): '1X0' is not an action: expected "
         "F, I, W, B"},
        {"0F0;0B0\n", 0, "row 1, column 1 (rank 0, step 0): '0F0;0B0'"},
        {"0F0\n,,1F\n", 0,
         "row 2, column 3 (rank 1, step 2): '1F' is not an action: expected a "
         "microbatch number"},
        {"", 0, "the schedule is empty"},
        {"\n\n", 0, "the schedule has no actions"},
        {",,\n", 0, "the schedule has no actions"},
        {"\x7f"
         "ELF\0\1\2",
         8, "row 1, column 1 (rank 0, step 0): '?ELF?"},
        {"0F0\r0F1\n", 0, "'0F0?0F1'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_schedule *schedule;
        size_t length =
            cases[i].length ? cases[i].length : strlen(cases[i].csv);
        assert_fails(sl_schedule_read_csv(cases[i].csv, length, &schedule),
                     SL_EPARSE, cases[i].text);
    }
}

static void csv_with_too_many_lines_is_refused(void **state)
{
    (void)state;
    sl_string text = SL_STRING_INIT;
    sl_schedule *schedule;
    for (int i = 0; i <= SL_MAX_RANKS; i++)
        assert_ok(sl_write_string(&text, "0F0\n", 4));
    assert_fails(sl_schedule_read_csv(text.data, text.length, &schedule),
                 SL_EPARSE, "more than 4096 lines");
    sl_string_clear(&text);
}

static char *grid_of(const sl_schedule *schedule, size_t first, size_t last,
                     size_t marked)
{
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_schedule_write_grid(schedule, first, last, marked,
                                     sl_write_string, &text));
    return text.data;
}

static void grid_has_time_down_and_ranks_across(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse("0F0,,0SEND_F0\n,1F0\n");
    char *grid = grid_of(schedule, 0, SIZE_MAX, SIZE_MAX);
    assert_string_equal(grid, "        Rank 0   Rank 1\n"
                              "Step 0: 0F0\n"
                              "Step 1:          1F0\n"
                              "Step 2: 0SEND_F0\n");
    free(grid);
    sl_schedule_destroy(schedule);
}

static void grid_points_at_the_marked_step(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse("0F0,0B0\n1F0,1B0\n");
    char *grid = grid_of(schedule, 1, SIZE_MAX, 1);
    assert_string_equal(grid, "        Rank 0 Rank 1\n"
                              "Step 1: 0B0    1B0 <-- ERROR HERE\n");
    free(grid);
    sl_schedule_destroy(schedule);
}

static void json_holds_every_cell(void **state)
{
    (void)state;
    sl_schedule *schedule =
        test_parse("0F0,,(0F1;3B0)OVERLAP_F_B,3F0\n1F0,2F0\n");
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_schedule_write_json(schedule, sl_write_string, &text));
    json_t *root = json_loadb(text.data, text.length, 0, NULL);
    assert_non_null(root);
    json_t *rows = json_object_get(root, "actions");
    assert_int_equal(json_array_size(rows), 2);
    json_t *row = json_array_get(rows, 0);
    assert_int_equal(json_array_size(row), 4);
    assert_true(json_is_null(json_array_get(row, 1)));
    assert_string_equal(json_string_value(json_array_get(row, 2)),
                        "(0F1;3B0)OVERLAP_F_B");
    json_t *placement = json_object_get(root, "placement");
    static const int ranks[] = {0, 1, 1, 0};
    assert_int_equal(json_array_size(placement), 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(json_integer_value(json_array_get(placement, i)),
                         ranks[i]);
    json_decref(root);
    sl_string_clear(&text);
    sl_schedule_destroy(schedule);
}

static sl_status full_disk(void *context, const char *data, size_t length)
{
    (void)context;
    (void)data;
    (void)length;
    return sl_fail(SL_EIO, "the disk is full");
}

static void a_failing_sink_is_reported(void **state)
{
    (void)state;
    sl_schedule *schedule = test_generate("1f1b", 4, 1, 8);
    assert_fails(sl_schedule_write_csv(schedule, full_disk, NULL), SL_EIO,
                 "the disk is full");
    sl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_round_trips),
        cmocka_unit_test(csv_takes_crlf_quotes_and_blanks),
        cmocka_unit_test(csv_errors_name_row_column_text_and_expectation),
        cmocka_unit_test(csv_with_too_many_lines_is_refused),
        cmocka_unit_test(grid_has_time_down_and_ranks_across),
        cmocka_unit_test(grid_points_at_the_marked_step),
        cmocka_unit_test(json_holds_every_cell),
        cmocka_unit_test(a_failing_sink_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

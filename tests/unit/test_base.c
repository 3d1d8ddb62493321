/* SPDX-License-Identifier: MIT
 *
 * The base layer: numbers and strings as JSON, failures per thread, growth. */
#include "support.h"
#include "base/text.h"
#include "base/memory.h"
#include "base/writer.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_number(double number, const char *text)
{
    static sl__writer writer;
    sl_string out = SL_STRING_INIT;
    sl__writer_start(&writer, sl_write_string, &out);
    sl__put_number(&writer, number);
    assert_ok(sl__writer_finish(&writer));
    assert_string_equal(out.data, text);
    sl_string_clear(&out);
}

static void numbers_are_short_and_exact(void **state)
{
    (void)state;
    expect_number(0, "0");
    expect_number(-3, "-3");
    expect_number(0.1, "0.1");
    expect_number(1.0 / 3, "0.3333333333333333");
    expect_number(1e300, "1e+300");
    expect_number(123456789012345, "123456789012345");
    expect_number(INFINITY, "null");
    expect_number(NAN, "null");
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    static sl__writer writer;
    static const char text[] = "a \"quoted\" \\ back\nslash \x01 \xc3\xa9";
    sl_string out = SL_STRING_INIT;
    sl__writer_start(&writer, sl_write_string, &out);
    sl__put_json_string(&writer, text);
    assert_ok(sl__writer_finish(&writer));
    json_t *value = json_loadb(out.data, out.length, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    assert_string_equal(json_string_value(value), text);
    json_decref(value);
    sl_string_clear(&out);
}

/* More than the writer's buffer arrives whole and in order. */
static void long_text_passes_through_the_buffer(void **state)
{
    (void)state;
    static sl__writer writer;
    sl_string out = SL_STRING_INIT;
    sl__writer_start(&writer, sl_write_string, &out);
    for (int i = 0; i < 30000; i++)
        sl__printf(&writer, "%05d", i);
    assert_ok(sl__writer_finish(&writer));
    assert_int_equal(out.length, 150000);
    for (int i = 0; i < 30000; i++) {
        char expected[8];
        snprintf(expected, sizeof expected, "%05d", i);
        assert_memory_equal(out.data + 5 * i, expected, 5);
    }
    sl_string_clear(&out);
}

static void sizes_beyond_the_machine_are_refused(void **state)
{
    (void)state;
    char *data = NULL;
    size_t capacity = 0;
    assert_fails(sl__grow(&data, &capacity, SIZE_MAX / 2 + 2, 16), SL_ENOMEM,
                 "out of memory");
    assert_null(data);
    assert_int_equal(capacity, 0);
}

static void every_status_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(sl_status_text(SL_OK), "success");
    assert_string_equal(sl_status_text(SL_EUNSOUND), "unsound schedule");
    assert_string_equal(sl_status_text((sl_status)99), "unknown status");
}

/* One thread's work: everything, and a failure of its own. */
static void *work(void *argument)
{
    int ranks = *(const int *)argument;
    for (int i = 0; i < 20; i++) {
        sl_schedule *order, *lowered;
        sl_report *report;
        sl_simulation *result;
        char expected[64];
        sl_sizes sizes = {ranks, 2, 4 * ranks}, wrong = {ranks, 3, 8};
        if (sl_generate("zbv", &sizes, &order) ||
            sl_lower(order, SL_LOWER_DEFAULT_PASSES, NULL, &lowered) ||
            sl_check(lowered, NULL, &report) ||
            sl_simulate(lowered, NULL, SL_ORDERED, &result))
            return "a call failed";
        bool sound = sl_report_is_sound(report);
        sl_simulation_destroy(result);
        sl_report_destroy(report);
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(order);
        if (!sound)
            return "unsound";
        wrong.microbatches = 0;
        wrong.ranks = -ranks;
        sl_generate("zbv", &wrong, &order);
        snprintf(expected, sizeof expected, "at least 1, not -%d", ranks);
        if (!strstr(sl_error_text(), expected))
            return "another thread's error";
    }
    return NULL;
}

static void threads_do_not_disturb_one_another(void **state)
{
    (void)state;
    pthread_t threads[4];
    int ranks[4] = {2, 3, 4, 5};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &ranks[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        if (wrong)
            fail_msg("%s", (const char *)wrong);
    }
}

/* One character of UTF-8, or none: lengths of the table in the Unicode Standard
 * (well-formed byte sequences), and what is next to its borders. */
static void utf8_is_what_unicode_says(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } cases[] = {
        {"", 0},
        {"a", 1},
        {"\x7f", 1},
        {"\x80", 0},
        {"\xc1\xbf", 0},
        {"\xc2\x80", 2},
        {"\xc2", 0},
        {"\xc2z", 0},
        {"\xdf\xbf", 2},
        {"\xe0\x9f\xbf", 0},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0},
        {"\xee\x80\x80", 3},
        {"\xef\xbf", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xf9\x81\x81\x81", 0},
        {"\xff", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(sl__utf8_length(cases[i].text), cases[i].length);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_what_unicode_says),
        cmocka_unit_test(numbers_are_short_and_exact),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(long_text_passes_through_the_buffer),
        cmocka_unit_test(sizes_beyond_the_machine_are_refused),
        cmocka_unit_test(every_status_has_a_text),
        cmocka_unit_test(threads_do_not_disturb_one_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

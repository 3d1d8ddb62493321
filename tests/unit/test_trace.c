/* SPDX-License-Identifier: MIT
 *
 * The Chrome/Perfetto trace: well-formed, every action once, arrows in pairs,
 * nothing drawn over anything else. */
#include "support.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *trace_of(const sl_schedule *schedule, const sl_costs *costs,
                        sl_reading reading)
{
    sl_simulation *result;
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_simulate(schedule, costs, reading, &result));
    assert_ok(sl_view_write_trace(schedule, result, sl_write_string, &text));
    json_error_t error;
    json_t *root = json_loadb(text.data, text.length, 0, &error);
    if (!root)
        fail_msg("not JSON: line %d: %s", error.line, error.text);
    sl_simulation_destroy(result);
    sl_string_clear(&text);
    return root;
}

static const char *phase_of(const json_t *event)
{
    return json_string_value(json_object_get(event, "ph"));
}

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static size_t count_phase(const json_t *events, const char *phase)
{
    size_t count = 0, i;
    json_t *event;
    json_array_foreach((json_t *)events, i, event)
    {
        count += strcmp(phase_of(event), phase) == 0;
    }
    return count;
}

/* Every start of an arrow has one end, not earlier; both lie on a slice. */
static void expect_arrows(const json_t *events, size_t expected)
{
    size_t starts = 0, i, j;
    json_t *start, *end, *slice;
    json_array_foreach((json_t *)events, i, start)
    {
        if (strcmp(phase_of(start), "s") != 0)
            continue;
        starts++;
        int ends = 0;
        bool held = false;
        json_array_foreach((json_t *)events, j, end)
        {
            if (strcmp(phase_of(end), "f") == 0 &&
                number_of(end, "id") == number_of(start, "id")) {
                ends++;
                assert_true(number_of(end, "ts") >= number_of(start, "ts"));
                assert_true(number_of(end, "pid") != number_of(start, "pid"));
            }
        }
        json_array_foreach((json_t *)events, j, slice)
        {
            held =
                held || (strcmp(phase_of(slice), "X") == 0 &&
                         number_of(slice, "pid") == number_of(start, "pid") &&
                         number_of(slice, "tid") == number_of(start, "tid") &&
                         number_of(slice, "ts") == number_of(start, "ts"));
        }
        assert_int_equal(ends, 1);
        assert_true(held);
    }
    assert_int_equal(starts, expected);
    assert_int_equal(count_phase(events, "f"), expected);
}

/* No two slices of one track overlap. */
static void expect_apart(const json_t *events)
{
    size_t i, j;
    json_t *a, *b;
    json_array_foreach((json_t *)events, i, a)
    {
        if (strcmp(phase_of(a), "X") != 0)
            continue;
        json_array_foreach((json_t *)events, j, b)
        {
            if (j <= i || strcmp(phase_of(b), "X") != 0 ||
                number_of(a, "pid") != number_of(b, "pid") ||
                number_of(a, "tid") != number_of(b, "tid"))
                continue;
            double a_end = number_of(a, "ts") + number_of(a, "dur");
            double b_end = number_of(b, "ts") + number_of(b, "dur");
            assert_true(a_end <= number_of(b, "ts") + 1e-6 ||
                        b_end <= number_of(a, "ts") + 1e-6);
        }
    }
}

static void lowered_schedules_are_drawn_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"1f1b", "zbv", "dualpipev"};
    for (int n = 0; n < 3; n++) {
        sl_costs costs = SL_COSTS_INIT;
        costs.edge.latency = n; /* 0: messages that cost nothing */
        sl_schedule *compute = test_generate(names[n], 3, n ? 2 : 1, 6);
        sl_schedule *comms = test_lower(compute, "send-recv");
        sl_extent extent = sl_schedule_extent(comms);
        for (int r = 0; r < SL_READINGS; r++) {
            json_t *root = trace_of(comms, &costs, (sl_reading)r);
            json_t *events = json_object_get(root, "traceEvents");
            size_t computes = sl_schedule_extent(compute).actions;
            assert_int_equal(count_phase(events, "X"), extent.actions);
            expect_arrows(events, (extent.actions - computes) / 2);
            expect_apart(events);
            assert_true(count_phase(events, "C") >= computes);
            json_decref(root);
        }
        sl_schedule_destroy(comms);
        sl_schedule_destroy(compute);
    }
}

static void implied_messages_are_drawn_between_computes(void **state)
{
    (void)state;
    sl_schedule *compute = test_generate("zbv", 3, 2, 4);
    json_t *root = trace_of(compute, NULL, SL_ASYNC);
    json_t *events = json_object_get(root, "traceEvents");
    /* 5 boundaries of which the middle one is within a rank; both ways. */
    expect_arrows(events, 4 * 4 * 2);
    assert_int_equal(count_phase(events, "X"),
                     sl_schedule_extent(compute).actions);
    json_decref(root);
    sl_schedule_destroy(compute);
}

/* The counter follows the bytes held: up at F, down after B, 0 at the end. */
static void the_counter_follows_the_bytes(void **state)
{
    (void)state;
    static const double values[] = {1, 2, 2, 1, 1, 0};
    static const double times[] = {0, 1000, 2000, 4000, 4000, 6000};
    sl_schedule *schedule = test_parse("0F0,0F1,0B0,0B1\n");
    json_t *root = trace_of(schedule, NULL, SL_ASYNC), *event;
    size_t i, seen = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(phase_of(event), "C") != 0)
            continue;
        assert_true(seen < 6);
        assert_true(number_of(json_object_get(event, "args"), "bytes") ==
                    values[seen]);
        assert_true(number_of(event, "ts") == times[seen]);
        seen++;
    }
    assert_int_equal(seen, 6);
    json_decref(root);
    sl_schedule_destroy(schedule);
}

static void any_number_of_messages_is_drawn_apart(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 1000;
    sl_schedule *compute = test_generate("gpipe", 2, 1, 100);
    sl_schedule *comms = test_lower(compute, "send-recv");
    json_t *root = trace_of(comms, &costs, SL_ASYNC);
    expect_apart(json_object_get(root, "traceEvents"));
    json_decref(root);
    sl_schedule_destroy(comms);
    sl_schedule_destroy(compute);
}

/* A receive that nobody sends is unsound, yet runs under async. */
static void odd_schedules_are_drawn_too(void **state)
{
    (void)state;
    sl_schedule *odd =
        test_parse("0RECV_F0,0F0,0RECV_B0,0B0,0SEND_F0,0SEND_B0\n");
    json_t *root = trace_of(odd, NULL, SL_ASYNC);
    expect_arrows(json_object_get(root, "traceEvents"), 0);
    json_decref(root);
    sl_schedule_destroy(odd);
    static const char *const texts[] = {
        "0F0,0F1\n1F0\n", "0F0,0F0\n1F0\n",
        "0F0,0SEND_F0,0SEND_F0\n1RECV_F0,1F0\n",
        "0F0,0SEND_F0\n1RECV_F0,1RECV_F0,1F0\n"};
    for (int i = 0; i < 4; i++) {
        odd = test_parse(texts[i]);
        root = trace_of(odd, NULL, SL_ASYNC);
        expect_arrows(json_object_get(root, "traceEvents"), 1);
        json_decref(root);
        sl_schedule_destroy(odd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowered_schedules_are_drawn_whole),
        cmocka_unit_test(implied_messages_are_drawn_between_computes),
        cmocka_unit_test(the_counter_follows_the_bytes),
        cmocka_unit_test(any_number_of_messages_is_drawn_apart),
        cmocka_unit_test(odd_schedules_are_drawn_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

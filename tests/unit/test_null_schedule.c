/* SPDX-License-Identifier: MIT
 *
 * The base, schedules and pictures with NULL; see rows.h. */
#include "rows.h"

#include <stdio.h>

/* ----------------------------------------------------------------- base -- */

static void base(void **state)
{
    (void)state;
    sl_string text = SL_STRING_INIT;
    GIVES(true, sl_version, ()[0] != '\0');
    GIVES_TEXT("unknown status", sl_status_text, ((sl_status)999));
    GIVES(SL_EINVAL, sl_fail, (SL_EINVAL, test_no_text, 0));
    GIVES_TEXT(sl_status_text(SL_EINVAL), sl_error_text, ());
    REFUSES(file, sl_write_stdio, (NULL, "x", 1));
    REFUSES(data, sl_write_stdio, (stderr, NULL, 1));
    GIVES(SL_OK, sl_write_stdio, (stderr, NULL, 0));
    REFUSES(string, sl_write_string, (NULL, "x", 1));
    REFUSES(data, sl_write_string, (&text, NULL, 1));
    GIVES(SL_OK, sl_write_string, (&text, NULL, 0));
    DOES_NOTHING(sl_string_clear, (NULL));
    sl_string_clear(&text);
}

/* ------------------------------------------------------------- schedule -- */

static void actions(void **state)
{
    (void)state;
    char text[SL_ACTION_TEXT_MAX];
    sl_action made = sl_action_make(SL_FORWARD, 0, 0), halves[2];
    GIVES(SL_ACTION_KINDS, sl_action_make, (SL_FORWARD, -1, 0).kind);
    GIVES(SL_ACTION_KINDS, sl_action_overlap, (made, made).kind);
    GIVES(0, sl_action_parts, (NULL, halves));
    GIVES(0, sl_action_parts, (&made, NULL));
    GIVES(false, sl_action_equal, (NULL, &made));
    GIVES(false, sl_action_equal, (&made, NULL));
    GIVES(SL_FAMILY_NOTHING, sl_action_kind_family, ((sl_action_kind)-1));
    GIVES_TEXT("", sl_action_kind_text, ((sl_action_kind)-1));
    GIVES(0, sl_action_print, (NULL, text));
    assert_string_equal(text, "");
    GIVES(0, sl_action_print, (&made, NULL));
    REFUSES(text, sl_action_parse, (NULL, 3, &made));
    REFUSES(out, sl_action_parse, ("0F0", 3, NULL));
    GIVES(SL_OK, sl_action_parse, (NULL, 0, &made));
}

static void schedules(void **state)
{
    test_world *w = *state;
    sl_schedule *made;
    sl_action action = sl_action_make(SL_FORWARD, 0, 0);
    REFUSES(out, sl_schedule_create, (1, NULL));
    DOES_NOTHING(sl_schedule_destroy, (NULL));
    REFUSES(schedule, sl_schedule_append, (NULL, 0, action));
    GIVES(0, sl_schedule_ranks, (NULL));
    GIVES(0, sl_schedule_length, (NULL, 0));
    GIVES(NULL, sl_schedule_row, (NULL, 0));
    GIVES(0, sl_schedule_extent, (NULL).ranks);
    REFUSES(text, sl_schedule_read_csv, (NULL, 4, &made));
    REFUSES(out, sl_schedule_read_csv, ("0F0\n", 4, NULL));
    GIVES(SL_EPARSE, sl_schedule_read_csv, (NULL, 0, &made));
    REFUSES(schedule, sl_schedule_write_csv, (NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_schedule_write_csv, (w->schedule, NULL, NULL));
    REFUSES(schedule, sl_schedule_write_grid,
            (NULL, 0, SIZE_MAX, SIZE_MAX, sl_write_stdio, stderr));
    REFUSES(write, sl_schedule_write_grid,
            (w->schedule, 0, SIZE_MAX, SIZE_MAX, NULL, NULL));
    REFUSES(schedule, sl_schedule_write_json, (NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_schedule_write_json, (w->schedule, NULL, NULL));
}

static void placements(void **state)
{
    test_world *w = *state;
    sl_placement *made;
    int count = 7;
    REFUSES(out, sl_placement_create, (SL_PLACEMENT_LOOP, 2, 4, NULL));
    REFUSES(schedule, sl_placement_derive, (NULL, &made));
    REFUSES(out, sl_placement_derive, (w->schedule, NULL));
    DOES_NOTHING(sl_placement_destroy, (NULL));
    GIVES(0, sl_placement_ranks, (NULL));
    GIVES(0, sl_placement_stages, (NULL));
    GIVES(-1, sl_placement_rank_of, (NULL, 0));
    GIVES(NULL, sl_placement_stages_of, (NULL, 0, &count));
    assert_int_equal(count, 0);
    GIVES(0, *sl_placement_stages_of, (w->placement, 0, NULL));
}

static void generators_and_passes(void **state)
{
    test_world *w = *state;
    const sl_generator *generator;
    const sl_generator nameless = {.default_stages_per_rank = 1};
    const sl_sizes sizes = {1, 1, 1};
    sl_schedule *out;
    REFUSES(generator, sl_generator_register, (NULL));
    GIVES(SL_EINVAL, sl_generator_register, (&nameless));
    REFUSES(name, sl_generator_find, (NULL, &generator));
    REFUSES(out, sl_generator_find, ("GPipe", NULL));
    GIVES(NULL, sl_generator_at, (SIZE_MAX));
    REFUSES(name, sl_generate, (NULL, &sizes, &out));
    REFUSES(sizes, sl_generate, ("GPipe", NULL, &out));
    REFUSES(out, sl_generate, ("GPipe", &sizes, NULL));
    REFUSES(in, sl_lower_drop_idle, (NULL, &out));
    REFUSES(out, sl_lower_drop_idle, (w->schedule, NULL));
    REFUSES(in, sl_lower_delay_w, (NULL, 2, &out));
    REFUSES(out, sl_lower_delay_w, (w->schedule, 2, NULL));
    REFUSES(in, sl_lower_merge_bw, (NULL, &out));
    REFUSES(out, sl_lower_merge_bw, (w->schedule, NULL));
    REFUSES(in, sl_lower_unshard, (NULL, 3, NULL, &out));
    REFUSES(out, sl_lower_unshard, (w->schedule, 3, NULL, NULL));
    REFUSES(in, sl_lower_reduce_grad, (NULL, SL_REDUCE_WAIT_NOW, &out));
    REFUSES(out, sl_lower_reduce_grad, (w->schedule, SL_REDUCE_WAIT_NOW, NULL));
    REFUSES(in, sl_lower_wait_reduce, (NULL, SL_REDUCE_WAIT_NOW, &out));
    REFUSES(out, sl_lower_wait_reduce, (w->schedule, SL_REDUCE_WAIT_NOW, NULL));
    REFUSES(in, sl_lower_wait_send, (NULL, &out));
    REFUSES(out, sl_lower_wait_send, (w->schedule, NULL));
    REFUSES(in, sl_lower_defer_recv, (NULL, &out));
    REFUSES(out, sl_lower_defer_recv, (w->schedule, NULL));
    REFUSES(in, sl_lower_send_budget, (NULL, 1, &out));
    REFUSES(out, sl_lower_send_budget, (w->schedule, 1, NULL));
    REFUSES(in, sl_lower_drop_waits, (NULL, &out));
    REFUSES(out, sl_lower_drop_waits, (w->schedule, NULL));
    REFUSES(in, sl_lower_send_recv, (NULL, SL_RECV_ASAP, &out));
    REFUSES(out, sl_lower_send_recv, (w->schedule, SL_RECV_ASAP, NULL));
    REFUSES(in, sl_lower, (NULL, "", NULL, &out));
    REFUSES(passes, sl_lower, (w->schedule, NULL, NULL, &out));
    REFUSES(out, sl_lower, (w->schedule, "", NULL, NULL));
}

static void checks(void **state)
{
    test_world *w = *state;
    char text[SL_WAIT_TEXT_MAX] = "?";
    const sl_wait wait = {0, 0, 0, 1};
    sl_report *report;
    size_t count = 7;
    GIVES_TEXT("unknown", sl_reading_text, ((sl_reading)-1));
    GIVES_TEXT("unknown", sl_finding_code_text, ((sl_finding_code)-1));
    GIVES_TEXT("", sl_finding_code_meaning, ((sl_finding_code)-1));
    DOES_NOTHING(sl_wait_print, (NULL, &wait, text));
    assert_string_equal(text, "");
    DOES_NOTHING(sl_wait_print, (w->schedule, NULL, text));
    DOES_NOTHING(sl_wait_print, (w->schedule, &wait, NULL));
    REFUSES(schedule, sl_check, (NULL, NULL, &report));
    REFUSES(out, sl_check, (w->schedule, NULL, NULL));
    DOES_NOTHING(sl_report_destroy, (NULL));
    GIVES(false, sl_report_is_sound, (NULL));
    GIVES(NULL, sl_report_findings, (NULL, &count));
    assert_int_equal(count, 0);
    DOES_NOTHING(sl_report_findings, (w->report, NULL));
    GIVES(0, sl_report_total, (NULL));
    GIVES(false, sl_report_deadlock_known, (NULL));
    GIVES(NULL, sl_report_deadlock, (NULL, SL_ASYNC));
    REFUSES(report, sl_report_write_json,
            (NULL, w->schedule, sl_write_stdio, stderr));
    REFUSES(schedule, sl_report_write_json,
            (w->report, NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_report_write_json, (w->report, w->schedule, NULL, NULL));
}

static void simulations(void **state)
{
    test_world *w = *state;
    sl_costs costs = SL_COSTS_INIT;
    sl_simulation *made;
    size_t count = 7;
    REFUSES(text, sl_costs_read_json, (NULL, 2, &costs));
    REFUSES(costs, sl_costs_read_json, ("{}", 2, NULL));
    GIVES(SL_EPARSE, sl_costs_read_json, (NULL, 0, &costs));
    DOES_NOTHING(sl_costs_clear, (NULL));
    REFUSES(schedule, sl_simulate, (NULL, NULL, SL_ASYNC, &made));
    REFUSES(out, sl_simulate, (w->schedule, NULL, SL_ASYNC, NULL));
    DOES_NOTHING(sl_simulation_destroy, (NULL));
    GIVES(0, sl_simulation_makespan, (NULL));
    GIVES(SL_ASYNC, sl_simulation_reading, (NULL));
    GIVES(0, sl_simulation_bubble, (NULL));
    GIVES(0, sl_simulation_rank, (NULL, 0).busy);
    GIVES(0, sl_simulation_action, (NULL, 0, 0).end);
    GIVES(0, sl_simulation_bytes, (NULL, 0, 0).during);
    GIVES(NULL, sl_simulation_critical_path, (NULL, &count));
    assert_int_equal(count, 0);
    DOES_NOTHING(sl_simulation_critical_path, (w->simulation, NULL));
    REFUSES(simulation, sl_simulation_write_json,
            (NULL, w->schedule, 0, false, sl_write_stdio, stderr));
    REFUSES(schedule, sl_simulation_write_json,
            (w->simulation, NULL, 0, false, sl_write_stdio, stderr));
    REFUSES(write, sl_simulation_write_json,
            (w->simulation, w->schedule, 0, false, NULL, NULL));
    REFUSES(schedule, sl_dry_run, (NULL, &count));
    REFUSES(out_steps, sl_dry_run, (w->schedule, NULL));
}

/* ----------------------------------------------------------------- view -- */

static void views(void **state)
{
    test_world *w = *state;
    const sl_timeline *all[1] = {w->timeline}, *none[1] = {NULL};
    sl_timeline *made;
    sl_costs costs;
    REFUSES(schedule, sl_view_write_trace,
            (NULL, w->simulation, sl_write_stdio, stderr));
    REFUSES(simulation, sl_view_write_trace,
            (w->schedule, NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_view_write_trace,
            (w->schedule, w->simulation, NULL, NULL));
    REFUSES(run, sl_view_write_run, (NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_view_write_run, (w->trace, NULL, NULL));
    REFUSES(title, sl_timeline_simulated,
            (NULL, w->schedule, NULL, w->simulation, &made));
    REFUSES(schedule, sl_timeline_simulated,
            ("a", NULL, NULL, w->simulation, &made));
    REFUSES(simulation, sl_timeline_simulated,
            ("a", w->schedule, NULL, NULL, &made));
    REFUSES(out, sl_timeline_simulated,
            ("a", w->schedule, NULL, w->simulation, NULL));
    REFUSES(title, sl_timeline_measured, (NULL, w->trace, &made));
    REFUSES(run, sl_timeline_measured, ("a", NULL, &made));
    REFUSES(out, sl_timeline_measured, ("a", w->trace, NULL));
    REFUSES(title, sl_timeline_read, (NULL, "{}", 2, &made));
    REFUSES(text, sl_timeline_read, ("a", NULL, 2, &made));
    REFUSES(out, sl_timeline_read, ("a", "{}", 2, NULL));
    GIVES(SL_EPARSE, sl_timeline_read, ("a", NULL, 0, &made));
    REFUSES(title, sl_timeline_planned, (NULL, w->timeline, &made));
    REFUSES(run, sl_timeline_planned, ("a", NULL, &made));
    REFUSES(out, sl_timeline_planned, ("a", w->timeline, NULL));
    REFUSES(run, sl_timeline_costs, (NULL, 2, &costs));
    REFUSES(out, sl_timeline_costs, (w->timeline, 2, NULL));
    DOES_NOTHING(sl_timeline_set_seconds, (NULL));
    DOES_NOTHING(sl_timeline_set_microbatch_bytes, (NULL, 1));
    DOES_NOTHING(sl_timeline_destroy, (NULL));
    GIVES(0, sl_timeline_summarize, (NULL).ranks);
    REFUSES(timelines, sl_view_write_html, (NULL, 1, sl_write_stdio, stderr));
    REFUSES(write, sl_view_write_html, (all, 1, NULL, NULL));
    GIVES(SL_EINVAL, sl_view_write_html, (none, 1, sl_write_stdio, stderr));
    REFUSES(timelines, sl_view_write_report,
            (NULL, 1, NULL, 0, sl_write_stdio, stderr));
    REFUSES(points, sl_view_write_report,
            (all, 1, NULL, 1, sl_write_stdio, stderr));
    REFUSES(write, sl_view_write_report, (all, 1, NULL, 0, NULL, NULL));
    GIVES(SL_EINVAL, sl_view_write_report,
          (none, 1, NULL, 0, sl_write_stdio, stderr));
    REFUSES(timelines, sl_view_write_svg,
            (NULL, 1, NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_view_write_svg, (all, 1, NULL, NULL, NULL));
    GIVES(SL_EINVAL, sl_view_write_svg,
          (none, 1, NULL, sl_write_stdio, stderr));
    REFUSES(timelines, sl_view_write_png,
            (NULL, 1, NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_view_write_png, (all, 1, NULL, NULL, NULL));
    GIVES(SL_EINVAL, sl_view_write_png,
          (none, 1, NULL, sl_write_stdio, stderr));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base),
        cmocka_unit_test(actions),
        cmocka_unit_test(schedules),
        cmocka_unit_test(placements),
        cmocka_unit_test(generators_and_passes),
        cmocka_unit_test(checks),
        cmocka_unit_test(simulations),
        cmocka_unit_test(views),
    };
    return cmocka_run_group_tests(tests, test_world_set_up,
                                  test_world_tear_down);
}

/* SPDX-License-Identifier: MIT
 *
 * Numbers under a locale whose decimal point is a comma: what the library
 * writes is the same to the byte, and what it reads is the same number. */
#include "support.h"

#include "base/numbers.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------ the locale -- */

/* A machine may have no such locale, and no means to make one, so the test
 * writes the compiled form of glibc: where its six fields begin, and them. */
static void write_locale(const char *path)
{
    static const struct {
        uint32_t magic, fields, offsets[6];
        char point[2], thousands[1], grouping[1];
        uint32_t wide_point, wide_thousands;
        char codeset[6];
    } numeric = {0x20031114, 6,      {32, 34, 35, 36, 40, 44}, ",", "", "", ',',
                 0,          "UTF-8"};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(&numeric, 50, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

/* Whether this C library takes the locale. */
static bool use_commas(void)
{
    char folder[TEST_FOLDER_MAX], path[TEST_FOLDER_MAX + 40];
    assert_true(test_make_folder(folder));
    snprintf(path, sizeof path, "%s/commas", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/commas/LC_NUMERIC", folder);
    write_locale(path);
    setenv("LOCPATH", folder, 1);
    bool taken = setlocale(LC_NUMERIC, "commas") != NULL;
    unsetenv("LOCPATH");
    test_remove_folder(folder);
    return taken;
}

/* Makes a text twice, with a point and with a comma, and compares. */
static void expect_the_same(void (*make)(sl_string *out))
{
    sl_string points = SL_STRING_INIT, commas = SL_STRING_INIT;
    make(&points);
    if (!use_commas()) {
        sl_string_clear(&points);
        skip();
    }
    char text[8];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    make(&commas);
    setlocale(LC_NUMERIC, "C");
    assert_true(strpbrk(points.data, "123456789") != NULL);
    assert_string_equal(points.data, commas.data);
    sl_string_clear(&points);
    sl_string_clear(&commas);
}

/* ------------------------------------------------------------ what it writes */

typedef struct subject {
    sl_schedule *schedule;
    sl_costs costs;
    sl_simulation *simulation;
    sl_timeline *timeline;
} subject;

static subject make_subject(void)
{
    static const char costs[] =
        "{\"F\": 1.25, \"I\": 0.1, \"W\": 1e-1, \"latency\": 0.0625, "
        "\"bandwidth\": 12.5, \"stages\": [{}, {\"B\": 2.5e0}, {}, {}]}";
    subject made = {.costs = SL_COSTS_INIT};
    made.schedule = test_generate("1F1B", 4, 1, 4);
    assert_ok(sl_costs_read_json(costs, strlen(costs), &made.costs));
    assert_true(made.costs.stage.forward == 1.25);
    assert_true(made.costs.stage.backward_input == 0.1);
    assert_true(made.costs.edge.latency == 0.0625);
    assert_true(made.costs.stages[1].backward == 2.5);
    assert_ok(
        sl_simulate(made.schedule, &made.costs, SL_ASYNC, &made.simulation));
    assert_ok(sl_timeline_simulated("1F1B", made.schedule, &made.costs,
                                    made.simulation, &made.timeline));
    return made;
}

static void destroy_subject(subject *made)
{
    sl_timeline_destroy(made->timeline);
    sl_simulation_destroy(made->simulation);
    sl_costs_clear(&made->costs);
    sl_schedule_destroy(made->schedule);
}

static void write_svg(sl_string *out)
{
    subject made = make_subject();
    const sl_timeline *const timelines[] = {made.timeline};
    sl_picture_options options = SL_PICTURE_OPTIONS_INIT;
    options.memory = true;
    sl_timeline_set_seconds(made.timeline);
    assert_ok(sl_view_write_svg(timelines, 1, &options, sl_write_string, out));
    destroy_subject(&made);
}

static void write_page(sl_string *out)
{
    subject made = make_subject();
    const sl_timeline *const timelines[] = {made.timeline};
    assert_ok(sl_view_write_html(timelines, 1, sl_write_string, out));
    destroy_subject(&made);
}

static void write_simulation(sl_string *out)
{
    subject made = make_subject();
    assert_ok(sl_simulation_write_json(made.simulation, made.schedule, 7, true,
                                       sl_write_string, out));
    destroy_subject(&made);
}

static void write_trace(sl_string *out)
{
    subject made = make_subject();
    assert_ok(sl_view_write_trace(made.schedule, made.simulation,
                                  sl_write_string, out));
    destroy_subject(&made);
}

static void write_schedule(sl_string *out)
{
    subject made = make_subject();
    sl_string csv = SL_STRING_INIT;
    sl_schedule *again;
    assert_ok(sl_schedule_write_csv(made.schedule, sl_write_string, &csv));
    assert_ok(sl_schedule_read_csv(csv.data, csv.length, &again));
    assert_ok(sl_write_string(out, csv.data, csv.length));
    assert_ok(sl_schedule_write_json(again, sl_write_string, out));
    sl_schedule_destroy(again);
    sl_string_clear(&csv);
    destroy_subject(&made);
}

static void write_config(sl_string *out)
{
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT, again;
    config.epsilon = 1.5e-5;
    config.embedding_dropout = 0.1;
    config.has_tokens = true;
    config.first_token = 7;
    config.last_token = 50256;
    assert_ok(sl_gpt2_write_config(&config, sl_write_string, out));
    assert_ok(sl_gpt2_read_config(out->data, out->length, &again));
    assert_true(again.epsilon == config.epsilon);
    assert_true(again.embedding_dropout == config.embedding_dropout);
    assert_non_null(strstr(out->data, "\"embd_pdrop\": 0.1,"));
    assert_true(again.has_tokens && again.first_token == 7 &&
                again.last_token == 50256);
}

/* A run that took quarters of microseconds, as `sluice train --trace` has it. */
static void read_run(sl_string *out)
{
    static const char text[] =
        "{\"sluice\": {\"version\": 1, \"ranks\": 1}, \"traceEvents\": ["
        "{\"ph\": \"X\", \"pid\": 0, \"cat\": \"compute\", \"ts\": 0.25, "
        "\"dur\": 1.75, \"args\": {\"action\": \"0F0\"}},"
        "{\"ph\": \"X\", \"pid\": 0, \"cat\": \"compute\", \"ts\": 2.5, "
        "\"dur\": 2.25e0, \"args\": {\"action\": \"0B0\"}}]}";
    sl_timeline *run;
    assert_ok(sl_timeline_read("run", text, strlen(text), &run));
    const sl_timeline *const timelines[] = {run};
    assert_ok(sl_view_write_svg(timelines, 1, NULL, sl_write_string, out));
    sl_costs costs;
    assert_ok(sl_timeline_costs(run, 1, &costs));
    double forward =
        costs.stages ? costs.stages[0].forward : costs.stage.forward;
    assert_true(forward > 1.74e-6 && forward < 1.76e-6);
    sl_costs_clear(&costs);
    sl_timeline_destroy(run);
}

/* Sentences: of sl_fail, of a graph, of the checks of costs. */
static void write_sentences(sl_string *out)
{
    sl_graph *graph;
    sl_simulation *simulation;
    sl_costs costs = SL_COSTS_INIT;
    sl_schedule *schedule = test_generate("1F1B", 2, 1, 2);
    costs.stage.forward = -0.5;
    assert_fails(sl_simulate(schedule, &costs, SL_ASYNC, &simulation),
                 SL_EINVAL, "not -0.5");
    assert_ok(sl_write_string(out, sl_error_text(), strlen(sl_error_text())));
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 2), SL_NO_GRADIENT);
    sl_output(graph, "y", sl_dropout(x, 1.5), SL_NO_GRADIENT);
    assert_fails(sl_graph_status(graph), SL_EINVAL, "the rate is 1.5");
    assert_ok(sl_write_string(out, sl_error_text(), strlen(sl_error_text())));
    sl_graph_destroy(graph);
    sl_schedule_destroy(schedule);
}

#define TEST(name, make)                                                       \
    static void name(void **state)                                             \
    {                                                                          \
        (void)state;                                                           \
        expect_the_same(make);                                                 \
    }
TEST(pictures_are_the_same, write_svg)
TEST(pages_are_the_same, write_page)
TEST(simulations_are_the_same, write_simulation)
TEST(traces_are_the_same, write_trace)
TEST(schedules_are_the_same, write_schedule)
TEST(configs_are_the_same, write_config)
TEST(runs_are_read_the_same, read_run)
TEST(sentences_are_the_same, write_sentences)

static void numbers_are_read_with_a_point(void **state)
{
    (void)state;
    char *end;
    if (!use_commas())
        skip();
    assert_true(sl__parse_number("1.5x", &end) == 1.5);
    assert_string_equal(end, "x");
    assert_true(sl__parse_number("1,5", &end) == 1);
    assert_string_equal(end, ",5");
    /* The caller's own numbers are as they were. */
    assert_true(strtod("1,5", NULL) == 1.5);
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_the_same),
        cmocka_unit_test(pages_are_the_same),
        cmocka_unit_test(simulations_are_the_same),
        cmocka_unit_test(traces_are_the_same),
        cmocka_unit_test(schedules_are_the_same),
        cmocka_unit_test(configs_are_the_same),
        cmocka_unit_test(runs_are_read_the_same),
        cmocka_unit_test(sentences_are_the_same),
        cmocka_unit_test(numbers_are_read_with_a_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

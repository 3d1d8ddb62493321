/* SPDX-License-Identifier: MIT
 *
 * Where a model is cut: at names, at marks, around regions that stay whole; and
 * the errors where it cannot be. */
#include "staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* embed, layers.0 to layers.n-1 of two linears each, head; a loss. */
static sl_graph *build(int layers)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 4), SL_NO_GRADIENT);
    sl_scope_enter(graph, "embed");
    x = sl_linear(x, sl_parameter(graph, "weight", SL_F32, SL_SHAPE(4, 4)),
                  NULL, SL_OUT_IN);
    sl_scope_leave(graph);
    sl_scope_enter(graph, "layers");
    for (int i = 0; i < layers; i++) {
        sl_scope_enter(graph, "%d", i);
        for (int k = 0; k < 2; k++) {
            sl_scope_enter(graph, "fc%d", k);
            x = sl_relu(sl_linear(
                x, sl_parameter(graph, "weight", SL_F32, SL_SHAPE(4, 4)), NULL,
                SL_OUT_IN));
            sl_scope_leave(graph);
        }
        sl_scope_leave(graph);
    }
    sl_scope_leave(graph);
    sl_scope_enter(graph, "head");
    sl_tensor *y =
        sl_linear(x, sl_parameter(graph, "weight", SL_F32, SL_SHAPE(3, 4)),
                  NULL, SL_OUT_IN);
    sl_scope_leave(graph);
    sl_output(graph, "y", y, SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(y, SL_ALL));
    return graph;
}

static sl_status cut_at(const sl_graph *graph, const char *text, sl_model **out)
{
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_cut_point *points;
    sl_status status = sl_cut_points_read(text, &points, &options.point_count);
    if (status)
        return status;
    options.by = SL_CUT_AT_NAMES;
    options.points = points;
    status = sl_model_cut(graph, &options, out);
    free(points);
    return status;
}

static sl_status cut_by_cost(const sl_graph *graph, int stages, sl_model **out)
{
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.by = SL_CUT_BY_COST;
    options.stages = stages;
    return sl_model_cut(graph, &options, out);
}

/* The modules of all stages: "a b|c". */
static void assert_modules(const sl_model *model, const char *expected)
{
    char text[2048] = "";
    size_t used = 0;
    for (int s = 0; s < sl_model_stage_count(model); s++) {
        const sl_stage_info *info = sl_model_stage(model, s);
        for (int i = 0; i < info->module_count; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     i   ? " "
                                     : s ? "|"
                                         : "",
                                     info->modules[i]);
    }
    assert_string_equal(text, expected);
}

/* ---------------------------------------------------------------- names -- */

static void cutting_before_a_layer_gives_two_stages(void **state)
{
    (void)state;
    sl_graph *graph = build(8);
    sl_model *model;
    assert_ok(cut_at(graph, "layers.4", &model));
    assert_modules(model, "embed layers.0 layers.1 layers.2 layers.3|layers.4 "
                          "layers.5 layers.6 layers.7 head");
    test_model_is_sound(model, graph);
    int ties, crossings;
    sl_model_ties(model, &ties);
    sl_model_crossings(model, &crossings);
    assert_int_equal(ties, 0);
    assert_int_equal(crossings, 1);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

static void points_come_in_any_order_and_form(void **state)
{
    (void)state;
    sl_graph *graph = build(4);
    sl_model *model;
    assert_ok(
        cut_at(graph, "head, after layers.1 ,before layers.1.fc1", &model));
    assert_modules(model, "embed layers.0 layers.1|layers.1|layers.2 "
                          "layers.3|head");
    sl_model_destroy(model);
    /* A name that only begins others is a module too. */
    assert_ok(cut_at(graph, "before layers,after layers", &model));
    assert_modules(model, "embed|layers.0 layers.1 layers.2 layers.3|head");
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

static void dotted_scopes_are_modules_part_by_part(void **state)
{
    (void)state;
    sl_mlp_config config = {3, 4};
    sl_graph *graph;
    sl_model *model;
    assert_ok(sl_graph_create(&graph));
    sl_mlp_build(graph, &config, 2);
    /* "layers" was never entered by itself: scopes are "layers.0". */
    assert_fails(cut_at(graph, "before layers", &model), SL_EINVAL,
                 "leaves the first stage empty");
    assert_ok(cut_at(graph, "after layers.1.net1", &model));
    assert_modules(model, "layers.0 layers.1|layers.1 layers.2");
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

static void unknown_names_are_refused_with_those_there_are(void **state)
{
    (void)state;
    sl_graph *graph = build(2);
    sl_model *model;
    assert_fails(cut_at(graph, "layers.9", &model), SL_ENOTFOUND,
                 "there is no module 'layers.9' to cut at; there are embed, "
                 "layers.0, layers.1, head");
    assert_fails(cut_at(graph, "layers.", &model), SL_ENOTFOUND, "'layers.'");
    assert_fails(cut_at(graph, "layer", &model), SL_ENOTFOUND, "'layer'");
    sl_graph_destroy(graph);
    graph = build(200);
    assert_fails(cut_at(graph, "nowhere", &model), SL_ENOTFOUND, " more");
    sl_graph_destroy(graph);
}

static void empty_stages_are_refused(void **state)
{
    (void)state;
    sl_graph *graph = build(2);
    sl_model *model;
    assert_fails(cut_at(graph, "embed", &model), SL_EINVAL,
                 "cutting before 'embed' leaves the first stage empty");
    assert_fails(cut_at(graph, "layers.1,after layers.0", &model), SL_EINVAL,
                 "leaves the stage between them empty");
    assert_fails(cut_by_cost(graph, 5, &model), SL_EINVAL,
                 "5 stages of 4 modules leave some empty; there are embed, "
                 "layers.0, layers.1, head");
    assert_fails(cut_by_cost(graph, 0, &model), SL_EINVAL, "0 stages");
    sl_graph_destroy(graph);
}

static void a_module_without_ops_says_so(void **state)
{
    (void)state;
    sl_graph *graph;
    sl_model *model;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 2), SL_NO_GRADIENT);
    sl_scope_enter(graph, "lin");
    sl_tensor *w = sl_parameter(graph, "weight", SL_F32, SL_SHAPE(2, 2));
    sl_scope_leave(graph);
    sl_output(graph, "y", sl_relu(sl_matmul(x, w)), SL_NO_GRADIENT);
    assert_fails(cut_at(graph, "lin", &model), SL_EINVAL,
                 "module 'lin' has no ops in it to cut at");
    sl_graph_destroy(graph);
}

static void points_are_read_or_refused(void **state)
{
    (void)state;
    sl_cut_point *points;
    int count;
    assert_ok(
        sl_cut_points_read("a.1, after  b ,before c,after", &points, &count));
    assert_int_equal(count, 4);
    assert_string_equal(points[0].module, "a.1");
    assert_false(points[0].after);
    assert_string_equal(points[1].module, "b");
    assert_true(points[1].after);
    assert_string_equal(points[2].module, "c");
    assert_false(points[2].after);
    assert_string_equal(points[3].module, "after"); /* Nothing is after it. */
    free(points);
    const char *const bad[] = {"", ",", "a,", "a,,b", " ", "a b", "after a b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(sl_cut_points_read(bad[i], &points, &count), SL_EPARSE,
                     "is no place to cut at");
}

/* ---------------------------------------------------------------- marks -- */

static void marks_that_leave_a_stage_empty_are_refused(void **state)
{
    (void)state;
    for (int at = 0; at < 3; at++) {
        sl_graph *graph;
        sl_model *model;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x =
            sl_input(graph, "x", SL_F32, SL_SHAPE(2, 2), SL_GRADIENT);
        if (at == 0)
            sl_mark_cut(graph);
        x = sl_relu(x);
        sl_mark_cut(graph);
        x = sl_reshape(x, SL_SHAPE(4));
        if (at == 1)
            sl_mark_cut(graph);
        x = sl_relu(x);
        if (at == 2)
            sl_mark_cut(graph);
        sl_output(graph, "y", sl_reshape(x, SL_SHAPE(2, 2)), SL_GRADIENT);
        const char *const expected[] = {
            "mark 1 of 2 leaves stage 0 empty: nothing is computed before it",
            ("mark 2 of 2 leaves stage 1 empty: nothing is computed between "
             "the mark before and it"),
            "mark 2 of 2 leaves stage 2 empty: nothing is computed behind it"};
        assert_fails(sl_model_cut(graph, NULL, &model), SL_EINVAL,
                     expected[at]);
        sl_graph_destroy(graph);
    }
}

static void a_graph_without_marks_is_one_stage(void **state)
{
    (void)state;
    sl_graph *graph = build(2);
    sl_model *model;
    assert_ok(sl_model_cut(graph, NULL, &model));
    assert_int_equal(sl_model_stage_count(model), 1);
    assert_null(sl_model_stage(model, 1));
    assert_null(sl_model_stage(model, -1));
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

/* ---------------------------------------------------------------- whole -- */

static sl_graph *build_whole(void)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 4), SL_NO_GRADIENT);
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            sl_whole_enter(graph);
        sl_scope_enter(graph, "layers.%d", i);
        x = sl_relu(
            sl_linear(x, sl_parameter(graph, "weight", SL_F32, SL_SHAPE(4, 4)),
                      NULL, SL_OUT_IN));
        sl_scope_leave(graph);
        if (i == 2)
            sl_whole_leave(graph);
    }
    sl_output(graph, "y", x, SL_NO_GRADIENT);
    return graph;
}

static void what_is_whole_is_not_cut(void **state)
{
    (void)state;
    sl_graph *graph = build_whole();
    sl_model *model;
    assert_fails(cut_at(graph, "layers.2", &model), SL_EINVAL,
                 "cutting before 'layers.2' divides what is to stay whole in "
                 "one stage; modules are layers.0, layers.1, layers.3");
    assert_ok(cut_at(graph, "layers.1,layers.3", &model));
    sl_model_destroy(model);
    assert_ok(cut_by_cost(graph, 3, &model));
    assert_modules(model, "layers.0|layers.1|layers.3");
    sl_model_destroy(model);
    assert_fails(cut_by_cost(graph, 4, &model), SL_EINVAL, "of 3 modules");
    sl_cut_options inside = SL_CUT_OPTIONS_INIT;
    inside.by = SL_CUT_BY_COST;
    inside.inside = true;
    inside.stages = 5; /* Two ops before, one for all that is whole, two. */
    assert_ok(sl_model_cut(graph, &inside, &model));
    sl_model_destroy(model);
    inside.stages = 6;
    assert_fails(sl_model_cut(graph, &inside, &model), SL_EINVAL,
                 "6 stages of 5");
    sl_graph_destroy(graph);
}

static void a_mark_inside_of_what_is_whole_names_its_line(void **state)
{
    (void)state;
    sl_graph *graph;
    sl_model *model;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2), SL_GRADIENT);
    sl_whole_enter(graph);
    x = sl_relu(x);
    sl_mark_cut(graph);
    sl_whole_leave(graph);
    sl_output(graph, "y", x, SL_GRADIENT);
    assert_fails(sl_model_cut(graph, NULL, &model), SL_EINVAL,
                 "test_cut_points.c:");
    assert_fails(sl_model_cut(graph, NULL, &model), SL_EINVAL,
                 "mark_cut: inside of what is to stay whole");
    sl_graph_destroy(graph);
}

static void entering_and_leaving_must_match(void **state)
{
    (void)state;
    const char *const expected[] = {"not left", "whole: entered while inside",
                                    "whole: left without"};
    for (int i = 0; i < 3; i++) {
        sl_graph *graph;
        sl_model *model;
        sl_stage *stage;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2), SL_GRADIENT);
        if (i == 2)
            sl_whole_leave(graph);
        else
            sl_whole_enter(graph);
        if (i == 1)
            sl_whole_enter(graph);
        sl_output(graph, "y", sl_relu(x), SL_GRADIENT);
        assert_fails(sl_model_cut(graph, NULL, &model), SL_EINVAL, expected[i]);
        assert_fails(sl_stage_compile(graph, NULL, &stage), SL_EINVAL,
                     expected[i]);
        sl_graph_destroy(graph);
    }
}

/* -------------------------------------------------------------- options -- */

static void options_that_do_not_go_together_are_refused(void **state)
{
    (void)state;
    sl_graph *graph = build(2);
    sl_model *model;
    sl_cut_point point = {"layers.1", false};
    sl_module_cost cost = {"layers.1", 1};
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.points = &point;
    options.point_count = 1;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL,
                 "points go with a cut at names");
    options = (sl_cut_options)SL_CUT_OPTIONS_INIT;
    options.stages = 2;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL,
                 "go with a cut by cost");
    options.by = SL_CUT_BY_COST;
    options.inside = true;
    options.costs = &cost;
    options.cost_count = 1;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL,
                 "costs are of modules");
    options = (sl_cut_options)SL_CUT_OPTIONS_INIT;
    options.by = (sl_cut_by)7;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL, "no way 7");
    options = (sl_cut_options)SL_CUT_OPTIONS_INIT;
    options.route = (sl_route)7;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL, "route 7");
    options = (sl_cut_options)SL_CUT_OPTIONS_INIT;
    options.feed = (sl_feed)7;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL, "feed 7");
    sl_graph_destroy(graph);
}

static void nothing_to_compute_is_refused(void **state)
{
    (void)state;
    sl_graph *graph;
    sl_model *model;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2), SL_GRADIENT);
    assert_fails(sl_model_cut(graph, NULL, &model), SL_EINVAL,
                 "no output and no loss");
    sl_output(graph, "y", x, SL_GRADIENT);
    assert_fails(sl_model_cut(graph, NULL, &model), SL_EINVAL,
                 "computes nothing");
    sl_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cutting_before_a_layer_gives_two_stages),
        cmocka_unit_test(points_come_in_any_order_and_form),
        cmocka_unit_test(dotted_scopes_are_modules_part_by_part),
        cmocka_unit_test(unknown_names_are_refused_with_those_there_are),
        cmocka_unit_test(empty_stages_are_refused),
        cmocka_unit_test(a_module_without_ops_says_so),
        cmocka_unit_test(points_are_read_or_refused),
        cmocka_unit_test(marks_that_leave_a_stage_empty_are_refused),
        cmocka_unit_test(a_graph_without_marks_is_one_stage),
        cmocka_unit_test(what_is_whole_is_not_cut),
        cmocka_unit_test(a_mark_inside_of_what_is_whole_names_its_line),
        cmocka_unit_test(entering_and_leaving_must_match),
        cmocka_unit_test(options_that_do_not_go_together_are_refused),
        cmocka_unit_test(nothing_to_compute_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

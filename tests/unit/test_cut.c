/* SPDX-License-Identifier: MIT
 *
 * Cutting: the stages together compute what the whole did, wherever it is
 * cut. */
#include "pipeline/cut/model.h"
#include "random_graph.h"
#include "staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------- random graphs -- */

/* Marks some places of a graph that was built without. */
static void mark_at_random(sl_graph *graph, uint64_t *state)
{
    int cuts = test_random_int(state, 1, 4);
    graph->mark_count = 0;
    int at[4];
    for (int i = 0; i < cuts; i++)
        at[i] = test_random_int(state, 0, (int)graph->node_count);
    for (int i = 0; i < cuts; i++) {
        for (int k = i + 1; k < cuts; k++) {
            if (at[k] < at[i]) {
                int swap = at[i];
                at[i] = at[k];
                at[k] = swap;
            }
        }
    }
    size_t nodes = graph->node_count;
    for (int i = 0; i < cuts; i++) {
        graph->node_count = (size_t)at[i];
        sl_mark_cut(graph);
    }
    graph->node_count = nodes;
}

static void compare(const sl_graph *graph, const sl_model *model,
                    const sl_stage_options *options, uint64_t seed,
                    double outputs, double gradients)
{
    test_stage whole = test_compile(graph, options, 1);
    test_staged staged = test_stages(model, options, 1);
    test_fill_all(&whole, seed, 0, TEST_IDS);
    test_staged_copy(&staged, &whole, 0);
    test_run(&whole, "FB", 0);
    test_staged_forward(&staged, 0);
    test_staged_backward(&staged, seed % 2 ? "B" : "IW", 0);
    test_staged_assert(&staged, &whole, 0, outputs, gradients);
    test_staged_release(&staged);
    test_release(&whole);
}

/* A cut at marks that leave no stage empty; NULL if no try finds one. */
static sl_model *cut_at_random(sl_graph *graph, const sl_cut_options *options,
                               uint64_t *choices)
{
    for (int i = 0; i < 8; i++) {
        sl_model *model;
        mark_at_random(graph, choices);
        if (!sl_model_cut(graph, options, &model))
            return model;
        if (!strstr(sl_error_text(), "empty") &&
            !strstr(sl_error_text(), "computes nothing"))
            fail_msg("%s", sl_error_text());
    }
    return NULL;
}

static void random_cuts_compute_what_the_whole_does(void **state)
{
    (void)state;
    sl_stage_options ref = SL_STAGE_OPTIONS_INIT;
    ref.backend = "ref";
    int made = 0, crossed = 0, skipped = 0, shared = 0, hopped = 0;
    enum { SEEDS = 600 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t choices = seed * 77;
        sl_cut_options options = SL_CUT_OPTIONS_INIT;
        sl_graph *graph = test_seeded_graph(seed, SL_F64);
        options.route = seed % 3 == 0 ? SL_ROUTE_HOP : SL_ROUTE_DIRECT;
        options.feed = seed % 5 == 0 ? SL_FEED_FIRST : SL_FEED_USERS;
        sl_model *model = cut_at_random(graph, &options, &choices);
        if (!model) {
            sl_graph_destroy(graph);
            continue;
        }
        test_model_is_sound(model, graph);
        ref.recompute = seed % 7 == 0;
        compare(graph, model, &ref, seed, 0, 1e-9);
        made += model->part_count > 1;
        crossed += model->crossing_count;
        for (int i = 0; i < model->edge_count; i++)
            skipped += model->edges[i].to > model->edges[i].from + 1;
        for (int i = 0; i < model->crossing_count; i++)
            hopped += options.route == SL_ROUTE_HOP &&
                      model->crossings[i].consumers[0] >
                          model->crossings[i].producer + 1;
        shared += model->tie_count;
        sl_model_destroy(model);
        sl_graph_destroy(graph);
    }
    /* Enough was cut, and crossed, for every case to come up. */
    assert_true(made > SEEDS / 2);
    assert_true(crossed > SEEDS);
    assert_true(skipped > 50 && shared > 50 && hopped > 10);
}

/* What is fused in the whole but not in a stage, or the other way round, has
 * the same bits: in f32, whose products round, forward alone and with
 * backward. */
static void fusing_does_not_show_in_a_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        uint64_t choices = seed * 13;
        sl_dtype dtype = seed % 3 ? SL_F32 : SL_BF16;
        sl_stage_options ref = SL_STAGE_OPTIONS_INIT;
        ref.backend = "ref";
        ref.backward = seed % 2 ? SL_BACKWARD_NONE : SL_BACKWARD_ANY;
        ref.recompute = seed % 4 == 0;
        sl_graph *graph = test_seeded_graph(seed, dtype);
        sl_model *model = cut_at_random(graph, NULL, &choices);
        if (model) {
            test_stage whole = test_compile(graph, &ref, 1);
            test_staged staged = test_stages(model, &ref, 1);
            test_fill_all(&whole, seed, 0, TEST_IDS);
            test_staged_copy(&staged, &whole, 0);
            test_run(&whole, "F", 0);
            test_staged_forward(&staged, 0);
            test_staged_assert(&staged, &whole, 0, 0, 1e9);
            test_staged_release(&staged);
            test_release(&whole);
        }
        sl_model_destroy(model);
        sl_graph_destroy(graph);
    }
    /* The smallest case: the activation of a product in another stage. */
    for (int way = 0; way < 2; way++) {
        sl_stage_options ref = SL_STAGE_OPTIONS_INIT;
        sl_graph *graph;
        sl_model *model;
        ref.backend = "ref";
        ref.backward = way ? SL_BACKWARD_NONE : SL_BACKWARD_ANY;
        ref.recompute = !way;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x =
            sl_input(graph, "x", SL_F32, SL_SHAPE(9, 33), SL_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(40, 33));
        x = sl_linear(x, w, NULL, SL_OUT_IN);
        sl_mark_cut(graph);
        sl_output(graph, "y", sl_gelu_tanh(x), SL_GRADIENT);
        assert_ok(sl_model_cut(graph, NULL, &model));
        test_stage whole = test_compile(graph, &ref, 1);
        test_staged staged = test_stages(model, &ref, 1);
        test_fill_all(&whole, 3, 0, 1);
        test_staged_copy(&staged, &whole, 0);
        test_run(&whole, "F", 0);
        test_staged_forward(&staged, 0);
        test_staged_assert(&staged, &whole, 0, 0, 1e9);
        test_staged_release(&staged);
        test_release(&whole);
        sl_model_destroy(model);
        sl_graph_destroy(graph);
    }
}

static void cuts_compute_the_same_on_the_fast_backend(void **state)
{
    (void)state;
    sl_stage_options fast = SL_STAGE_OPTIONS_INIT;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t choices = seed * 91;
        bool half = seed % 2;
        fast.recompute = seed % 4 < 2;
        sl_graph *graph = test_seeded_graph(seed, half ? SL_BF16 : SL_F32);
        sl_model *model = cut_at_random(graph, NULL, &choices);
        if (model)
            compare(graph, model, &fast, seed, half ? 0 : 1e-5,
                    half ? 3e-2 : 1e-4);
        sl_model_destroy(model);
        sl_graph_destroy(graph);
    }
}

/* Every op may be an item; the parts then have one each. */
static void every_op_can_be_a_stage(void **state)
{
    (void)state;
    sl_stage_options ref = SL_STAGE_OPTIONS_INIT;
    ref.backend = "ref";
    for (uint64_t seed = 1; seed <= 60; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F64);
        sl__items items;
        if (sl__find_items(graph, true, &items)) {
            sl_graph_destroy(graph);
            continue;
        }
        sl_cut_options options = SL_CUT_OPTIONS_INIT;
        options.by = SL_CUT_BY_COST;
        options.inside = true;
        options.stages = items.count;
        options.route = seed % 2 ? SL_ROUTE_HOP : SL_ROUTE_DIRECT;
        sl__items_clear(&items);
        sl_model *model;
        assert_ok(sl_model_cut(graph, &options, &model));
        test_model_is_sound(model, graph);
        compare(graph, model, &ref, seed, 0, 1e-9);
        sl_model_destroy(model);
        sl_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cuts_compute_what_the_whole_does),
        cmocka_unit_test(fusing_does_not_show_in_a_cut),
        cmocka_unit_test(cuts_compute_the_same_on_the_fast_backend),
        cmocka_unit_test(every_op_can_be_a_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

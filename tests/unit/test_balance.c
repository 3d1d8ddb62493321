/* SPDX-License-Identifier: MIT
 *
 * Cuts by cost: they are optimal, and their report is right. */
#include "pipeline/cut/model.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The smallest largest sum of `stages` runs of costs[from..count), by trying
 * every place for the first cut. */
static double best_by_trying(const double *costs, int from, int count,
                             int stages)
{
    double first = 0, best = 1e300;
    if (stages == 1) {
        for (int i = from; i < count; i++)
            first += costs[i];
        return first;
    }
    for (int end = from + 1; end <= count - stages + 1; end++) {
        first += costs[end - 1];
        double rest = best_by_trying(costs, end, count, stages - 1);
        double most = first > rest ? first : rest;
        best = most < best ? most : best;
    }
    return best;
}

/* The fewest bytes over the boundaries of runs of at most `most`, and the least
 * sum of squares among those, by trying. */
typedef struct tried {
    double bytes, squares;
} tried;

static tried least_by_trying(const double *costs, const double *bytes, int from,
                             int count, int stages, double most)
{
    double first = 0;
    tried best = {1e300, 1e300};
    for (int end = from + 1; end <= count - stages + 1; end++) {
        first += costs[end - 1];
        if (first > most || (stages == 1 && end < count))
            continue;
        tried now = {0, 0};
        if (stages > 1) {
            now = least_by_trying(costs, bytes, end, count, stages - 1, most);
            now.bytes += bytes[end];
        }
        now.squares += first * first;
        if (now.bytes < best.bytes ||
            (now.bytes == best.bytes && now.squares < best.squares))
            best = now;
    }
    return best;
}

/* Whether runs are as good as can be, by all three measures. */
static void check_runs(const double *costs, const double *bytes, int count,
                       int stages)
{
    static const double none[12];
    int starts[12];
    double told, largest = 0;
    tried got = {0, 0};
    assert_ok(sl__balance(costs, bytes, (size_t)count, stages, starts, &told));
    assert_int_equal(starts[0], 0);
    for (int s = 0; s < stages; s++) {
        int end = s + 1 < stages ? starts[s + 1] : count;
        double sum = 0;
        assert_true(end > starts[s]);
        for (int i = starts[s]; i < end; i++)
            sum += costs[i];
        largest = sum > largest ? sum : largest;
        got.squares += sum * sum;
        got.bytes += s && bytes ? bytes[starts[s]] : 0;
    }
    double best = best_by_trying(costs, 0, count, stages);
    tried least =
        least_by_trying(costs, bytes ? bytes : none, 0, count, stages, best);
    assert_true(largest == best && told == best);
    assert_true(got.bytes == least.bytes && got.squares == least.squares);
}

static void runs_are_optimal(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (int round = 0; round < 1000; round++) {
        double costs[12], bytes[12];
        int count = test_random_int(&random, 1, 12);
        for (int i = 0; i < count; i++) {
            costs[i] = test_random_int(&random, 0, round % 3 ? 9 : 1);
            bytes[i] = test_random_int(&random, 1, 3);
        }
        for (int stages = 1; stages <= count; stages++)
            check_runs(costs, round % 2 ? bytes : NULL, count, stages);
    }
}

/* With costs times stages too many for evening out, still optimal: against the
 * needs of every smaller bound. */
static void many_runs_are_optimal_too(void **state)
{
    (void)state;
    enum { COUNT = 6000, STAGES = 500 };
    static double costs[COUNT];
    static int starts[STAGES];
    uint64_t random = 3;
    for (int way = 0; way < 4; way++) {
        double told, largest = 0, next = 0;
        for (int i = 0; i < COUNT; i++)
            costs[i] = test_random_int(&random, 0, 1000);
        /* Heavy ends, and almost nothing between. */
        for (int i = 0; i < COUNT && way % 2; i++)
            costs[i] = i < 300 || i > COUNT - 300 ? 900 : way / 2;
        assert_ok(sl__balance(costs, NULL, COUNT, STAGES, starts, &told));
        for (int s = 0; s < STAGES; s++) {
            int end = s + 1 < STAGES ? starts[s + 1] : COUNT;
            double sum = 0;
            assert_true(end > starts[s]);
            for (int i = starts[s]; i < end; i++)
                sum += costs[i];
            largest = sum > largest ? sum : largest;
        }
        assert_true(largest == told);
        /* Filling greedily up to just below needs more stages. */
        int needed = 1;
        for (int i = 0; i < COUNT; i++) {
            if (next + costs[i] > largest - 1) {
                needed++;
                next = 0;
            }
            next += costs[i];
        }
        assert_true(needed > STAGES);
    }
}

/* Where the largest is given, the rest is spread. */
static void runs_are_even_beside_the_largest(void **state)
{
    (void)state;
    const double costs[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6};
    int starts[4];
    double largest;
    assert_ok(sl__balance(costs, NULL, 13, 4, starts, &largest));
    assert_true(largest == 6);
    assert_memory_equal(starts, ((int[]){0, 4, 8, 12}), sizeof starts);
}

/* Random graphs of modules: the model's own report against trying. */
static void models_are_cut_where_trying_would(void **state)
{
    (void)state;
    uint64_t random = 9;
    for (int round = 0; round < 40; round++) {
        int layers = test_random_int(&random, 1, 8);
        double costs[8];
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x =
            sl_input(graph, "x", SL_F32, SL_SHAPE(1, 4), SL_NO_GRADIENT);
        for (int i = 0; i < layers; i++) {
            int64_t wide = test_random_int(&random, 1, 40), in = 4;
            sl_scope_enter(graph, "layers.%d", i);
            x = sl_matmul(
                x, sl_parameter(graph, "up", SL_F32, SL_SHAPE(in, wide)));
            x = sl_matmul(
                x, sl_parameter(graph, "down", SL_F32, SL_SHAPE(wide, in)));
            sl_scope_leave(graph);
            /* Forward, and two products as large for the gradients; but the
             * first layer's input needs none. */
            costs[i] = 2.0 * 4 * (double)wide * (3 + (i == 0 ? 2 : 3));
        }
        /* The loss goes with the last layer. */
        sl_loss(graph, sl_mean(x, SL_ALL));
        costs[layers - 1] += 2;
        for (int stages = 1; stages <= layers; stages++) {
            sl_cut_options options = SL_CUT_OPTIONS_INIT;
            sl_model *model;
            options.by = SL_CUT_BY_COST;
            options.stages = stages;
            assert_ok(sl_model_cut(graph, &options, &model));
            double largest = 0, sum = 0;
            for (int s = 0; s < stages; s++) {
                double cost = sl_model_stage(model, s)->cost;
                largest = cost > largest ? cost : largest;
                sum += cost;
            }
            double best = best_by_trying(costs, 0, layers, stages);
            if (largest != best)
                fail_msg("round %d: %g in %d stages, expected %g", round,
                         largest, stages, best);
            assert_true(sl_model_balance(model) == sum / stages / largest);
            sl_model_destroy(model);
        }
        sl_graph_destroy(graph);
    }
}

static void given_costs_count(void **state)
{
    (void)state;
    const sl_module_cost costs[] = {
        {"layers.3", 5}, {"layers.0", 1}, {"layers.1", 1}, {"layers.2", 1}};
    sl_mlp_config config = {4, 4};
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_model *model;
    assert_ok(sl_graph_create(&graph));
    sl_mlp_build(graph, &config, 2);
    options.by = SL_CUT_BY_COST;
    options.stages = 2;
    options.costs = costs;
    options.cost_count = 4;
    assert_ok(sl_model_cut(graph, &options, &model));
    assert_int_equal(sl_model_stage(model, 0)->module_count, 3);
    assert_true(sl_model_stage(model, 0)->cost == 3);
    assert_true(sl_model_stage(model, 1)->cost == 5);
    assert_true(sl_model_balance(model) == 0.8);
    sl_model_destroy(model);

    const sl_module_cost bad[][2] = {{{"layers.9", 1}, {"layers.0", 1}},
                                     {{"layers.0", -1}, {"layers.1", 1}},
                                     {{"layers.0", 0.0 / 0.0}, {"a", 1}},
                                     {{"layers.0", 1}, {"layers.0", 1}},
                                     {{"layers.0", 1}, {"layers.1", 1}}};
    const char *const expected[] = {
        ("there is no module 'layers.9' that costs something; there are "
         "layers.0, layers.1, layers.2, layers.3"),
        "the cost of module 'layers.0' is -1, expected 0 or more",
        "expected 0 or more", "module 'layers.0' has two costs",
        "module 'layers.2' has no cost"};
    options.cost_count = 2;
    for (int i = 0; i < 5; i++) {
        options.costs = bad[i];
        sl_status status = i == 0 ? SL_ENOTFOUND : SL_EINVAL;
        assert_fails(sl_model_cut(graph, &options, &model), status,
                     expected[i]);
    }
    /* Huge and tiny ones are as even as others; what has no sum is refused. */
    const double scales[] = {1e200, 1e-200, 1e308};
    for (int i = 0; i < 3; i++) {
        sl_module_cost scaled[4];
        for (int k = 0; k < 4; k++)
            scaled[k] =
                (sl_module_cost){costs[k].module, costs[k].cost * scales[i]};
        options.costs = scaled;
        options.cost_count = 4;
        options.stages = 3;
        if (i == 2) {
            scaled[0].cost = 1e308;
            assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL,
                         "too large to be summed up");
            continue;
        }
        assert_ok(sl_model_cut(graph, &options, &model));
        assert_int_equal(sl_model_stage(model, 2)->module_count, 1);
        assert_true(sl_model_balance(model) > 0.5);
        sl_model_destroy(model);
    }
    options.cost_count = -1;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL, "-1 costs");
    sl_graph_destroy(graph);
}

static void note_progress(void *context, int done, int count)
{
    int *seen = context;
    assert_int_equal(done, *seen + 1);
    assert_true(done <= count);
    *seen = done;
}

static void modules_can_be_measured(void **state)
{
    (void)state;
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    config.layers = 3;
    config.heads = 2;
    config.width = 32;
    config.vocabulary = 40;
    sl_graph *graph;
    sl_module_cost *costs;
    int count, seen = 0;
    assert_ok(sl_graph_create(&graph));
    sl_gpt2_build(graph, &config, NULL, 1, 16);
    assert_ok(
        sl_measure_modules(graph, NULL, note_progress, &seen, &costs, &count));
    const char *const names[] = {"transformer.wte", "transformer.wpe",
                                 "transformer.h.0", "transformer.h.1",
                                 "transformer.h.2", "transformer.ln_f",
                                 "lm_head"};
    assert_int_equal(count, 7);
    assert_int_equal(seen, 7);
    for (int i = 0; i < count; i++) {
        assert_string_equal(costs[i].module, names[i]);
        assert_true(costs[i].cost > 0 && costs[i].cost < 10);
    }
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_model *model;
    options.by = SL_CUT_BY_COST;
    options.stages = 3;
    options.costs = costs;
    options.cost_count = count;
    assert_ok(sl_model_cut(graph, &options, &model));
    sl_model_destroy(model);
    free(costs);
    sl_graph_destroy(graph);
}

/* The estimate counts what compiled stages count, and elements besides. */
static void estimated_flops_are_near_the_compiled(void **state)
{
    (void)state;
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    config.layers = 2;
    config.width = 64;
    config.heads = 4;
    config.vocabulary = 100;
    sl_graph *graph;
    sl_model *model;
    assert_ok(sl_graph_create(&graph));
    sl_gpt2_build(graph, &config, NULL, 2, 32);
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.by = SL_CUT_BY_COST;
    options.stages = 4;
    assert_ok(sl_model_cut(graph, &options, &model));
    for (int s = 0; s < 4; s++) {
        sl_stage *stage;
        assert_ok(sl_model_compile(model, s, NULL, &stage));
        double flops = sl_stage_flops(stage, SL_PROGRAM_F) +
                       sl_stage_flops(stage, SL_PROGRAM_B);
        double told = sl_model_stage(model, s)->flops;
        assert_true(told >= flops && told <= 1.2 * flops + 1e5);
        sl_stage_destroy(stage);
    }
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

static void gpt2_over_four_stages_is_within_5_percent(void **state)
{
    (void)state;
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    sl_graph *graph;
    sl_model *model;
    sl__items items;
    assert_ok(sl_graph_create(&graph));
    sl_gpt2_build(graph, &config, NULL, 1, 1024);
    assert_ok(sl__find_items(graph, false, &items));
    double sum = 0, largest_module = 0;
    for (int i = 0; i < items.count; i++) {
        sum += items.data[i].cost;
        if (items.data[i].cost > largest_module)
            largest_module = items.data[i].cost;
    }
    sl__items_clear(&items);
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.by = SL_CUT_BY_COST;
    options.stages = 4;
    assert_ok(sl_model_cut(graph, &options, &model));
    double mean = sum / 4, largest = 0;
    double excess = largest_module > mean ? largest_module - mean : 0;
    for (int s = 0; s < 4; s++) {
        double cost = sl_model_stage(model, s)->cost;
        largest = cost > largest ? cost : largest;
    }
    assert_true(largest <= 1.05 * mean + excess);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_optimal),
        cmocka_unit_test(many_runs_are_optimal_too),
        cmocka_unit_test(runs_are_even_beside_the_largest),
        cmocka_unit_test(models_are_cut_where_trying_would),
        cmocka_unit_test(given_costs_count),
        cmocka_unit_test(modules_can_be_measured),
        cmocka_unit_test(estimated_flops_are_near_the_compiled),
        cmocka_unit_test(gpt2_over_four_stages_is_within_5_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

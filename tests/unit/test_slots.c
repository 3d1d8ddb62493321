/* SPDX-License-Identifier: MIT
 *
 * Slots: a stage has as many as the simulator finds microbatches in flight, of
 * what F saves from F on, of what I hands to W from I on. */
#include "pipeline/run/runtime.h"
#include "random_schedule.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 4 };

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    const sl_mlp_config config = {*(const int *)context, WIDTH};
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    sl_mlp_build(graph, &config, rows);
    options.by = SL_CUT_BY_COST;
    options.stages = config.layers;
    options.like = like;
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

/* The most microbatches that hold memory of a kind in a stage at once, by the
 * simulator: all other stages hold nothing. */
static int64_t simulate_peak(const sl_schedule *schedule, int stages, int stage,
                             int rank, sl__slot_kind kind)
{
    sl_costs costs = SL_COSTS_INIT;
    sl_simulation *simulation;
    costs.stage.activation_bytes = 0;
    costs.stages = calloc((size_t)stages, sizeof *costs.stages);
    costs.stage_count = (size_t)stages;
    for (int s = 0; s < stages; s++)
        costs.stages[s] = costs.stage;
    *(kind == SL__SLOT_SLAB ? &costs.stages[stage].activation_bytes
                            : &costs.stages[stage].handed_bytes) = 1;
    assert_ok(sl_simulate(schedule, &costs, SL_ASYNC, &simulation));
    int64_t peak = sl_simulation_rank(simulation, rank).peak_bytes;
    sl_simulation_destroy(simulation);
    sl_costs_clear(&costs);
    return peak;
}

/* Whether a stage needs memory of the kind for as long as the simulator says: to
 * the end of the backward that the schedule has. */
static bool needs_it_all(const sl_stage *stage, sl__slot_kind kind)
{
    bool whole = stage->options.backward == SL_BACKWARD_WHOLE;
    unsigned last = stage->uses[whole ? SL_PROGRAM_B : SL_PROGRAM_W];
    unsigned first =
        stage->uses[kind == SL__SLOT_SLAB ? SL_PROGRAM_F : SL_PROGRAM_I];
    return stage->slot_bytes[kind] > 0 && (first & last) >> kind & 1 &&
           stage->options.backward != SL_BACKWARD_ANY;
}

/* How many slots were held against the simulator. */
static int compare(const sl_schedule *schedule, const char *name,
                   bool recompute)
{
    sl_extent extent = sl_schedule_extent(schedule);
    sl_comm *ends[16];
    int compared = 0;
    assert_ok(sl_threads_create(extent.ranks, ends));
    for (int r = 0; r < extent.ranks; r++) {
        sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
        sl_pipeline *pipeline;
        options.schedule = schedule;
        options.stage.backend = "ref";
        options.stage.recompute = recompute;
        assert_ok(sl_pipeline_create(ends[r], build, &extent.stages, &options,
                                     &pipeline));
        assert_ok(sl_pipeline_prepare(pipeline, extent.microbatches));
        for (int i = 0; i < pipeline->bindings->variant_count; i++) {
            const sl__variant *variant = &pipeline->bindings->variants[i];
            for (int k = SL__SLOT_SLAB; k <= SL__SLOT_HANDED; k++) {
                int64_t peak = simulate_peak(schedule, extent.stages,
                                             variant->stage, r, k);
                if (variant->slots[k] > peak ||
                    (needs_it_all(variant->program_stage, k) &&
                     variant->slots[k] < peak))
                    fail_msg("%s: stage %d has %d slots of kind %d, and %lld "
                             "in flight",
                             name, variant->stage, variant->slots[k], k,
                             (long long)peak);
                compared += needs_it_all(variant->program_stage, k);
            }
        }
        sl_pipeline_destroy(pipeline);
    }
    for (int r = 0; r < extent.ranks; r++)
        sl_comm_destroy(ends[r]);
    return compared;
}

static void slots_are_the_simulators_peak(void **state)
{
    (void)state;
    int compared[2] = {0, 0};
    for (size_t k = 0; sl_generator_at(k); k++) {
        for (int p = 1; p <= 4; p++) {
            for (int v = 1; v <= 3; v++) {
                for (int m = 1; m <= 12; m += 1 + m / 4) {
                    const sl_sizes sizes = {p, v, m};
                    const char *name = sl_generator_at(k)->name;
                    sl_schedule *schedule;
                    if (sl_generate(name, &sizes, &schedule))
                        continue;
                    bool split = sl_schedule_extent(schedule).has_backward;
                    for (int again = 0; again <= split; again++)
                        compared[again] += compare(schedule, name, again);
                    sl_schedule_destroy(schedule);
                }
            }
        }
    }
    /* With recompute F saves nothing, and I hands on what it makes again. */
    assert_true(compared[0] > 1000);
    assert_true(compared[1] > 100);
}

static void random_schedules_have_as_many(void **state)
{
    (void)state;
    test_dice random = {5};
    for (int round = 0; round < 100; round++) {
        test_shape shape = test_random_shape(&random);
        shape.stages = shape.stages > 8 ? 8 : shape.stages;
        shape.ranks = shape.ranks > shape.stages ? shape.stages : shape.ranks;
        shape.microbatches = shape.microbatches > 8 ? 8 : shape.microbatches;
        sl_schedule *schedule = test_random_schedule(&random, &shape);
        compare(schedule, "random", round % 2);
        sl_schedule_destroy(schedule);
    }
}

/* What is sent keeps its memory until its wait: as many messages as the budget
 * allows, and the one at hand. */
static void a_budget_bounds_what_is_sent(void **state)
{
    (void)state;
    const sl_sizes sizes = {4, 1, 32};
    sl_schedule *schedule;
    sl_comm *ends[4];
    int stages = 4;
    assert_ok(sl_generate("1F1B", &sizes, &schedule));
    assert_ok(sl_threads_create(4, ends));
    for (int budget = -1; budget <= 3; budget++) {
        sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
        sl_pipeline *pipeline;
        options.schedule = schedule;
        options.send_budget = budget;
        options.stage.backend = "ref";
        assert_ok(
            sl_pipeline_create(ends[2], build, &stages, &options, &pipeline));
        assert_ok(sl_pipeline_prepare(pipeline, 32));
        int slots =
            pipeline->bindings->variants[0].slots[SL__SLOT_INPUT_GRADIENTS];
        assert_int_equal(slots <= budget + 1, budget >= 0);
        sl_pipeline_destroy(pipeline);
    }
    for (int r = 0; r < 4; r++)
        sl_comm_destroy(ends[r]);
    sl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_the_simulators_peak),
        cmocka_unit_test(random_schedules_have_as_many),
        cmocka_unit_test(a_budget_bounds_what_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

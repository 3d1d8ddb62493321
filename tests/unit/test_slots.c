/* SPDX-License-Identifier: MIT
 *
 * Slots: a stage has as many as the simulator finds microbatches in flight. */
#include "pipeline/runtime.h"
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

/* The most microbatches that a stage has in flight, by the simulator: all
 * others hold nothing. */
static int64_t simulate_peak(const sl_schedule *schedule, int stages, int stage,
                             int rank)
{
    sl_costs costs = SL_COSTS_INIT;
    sl_simulation *simulation;
    costs.stage.activation_bytes = 0;
    costs.stages = calloc((size_t)stages, sizeof *costs.stages);
    costs.stage_count = (size_t)stages;
    for (int s = 0; s < stages; s++)
        costs.stages[s] = costs.stage;
    costs.stages[stage].activation_bytes = 1;
    assert_ok(sl_simulate(schedule, &costs, SL_ASYNC, &simulation));
    int64_t peak = sl_simulation_rank(simulation, rank).peak_bytes;
    sl_simulation_destroy(simulation);
    sl_costs_clear(&costs);
    return peak;
}

/* Slots beyond the peaks, over all stages. */
static int64_t compare(const sl_schedule *schedule, const char *name)
{
    sl_extent extent = sl_schedule_extent(schedule);
    sl_comm *ends[16];
    int64_t more = 0;
    assert_ok(sl_threads_create(extent.ranks, ends));
    for (int r = 0; r < extent.ranks; r++) {
        sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
        sl_pipeline *pipeline;
        options.schedule = schedule;
        options.stage.backend = "ref";
        assert_ok(sl_pipeline_create(ends[r], build, &extent.stages, &options,
                                     &pipeline));
        assert_ok(sl_pipeline_prepare(pipeline, extent.microbatches));
        for (int i = 0; i < pipeline->bounds->lane_count; i++) {
            const sl__lane *lane = &pipeline->bounds->lanes[i];
            if (!lane->memory)
                continue;
            int64_t peak =
                simulate_peak(schedule, extent.stages, lane->stage, r);
            if (lane->slots < peak)
                fail_msg("%s: stage %d has %d slots, and %lld in flight", name,
                         lane->stage, lane->slots, (long long)peak);
            more += lane->slots - peak;
        }
        sl_pipeline_destroy(pipeline);
    }
    for (int r = 0; r < extent.ranks; r++)
        sl_comm_destroy(ends[r]);
    return more;
}

static void slots_are_the_simulators_peak(void **state)
{
    (void)state;
    int runs = 0;
    for (size_t k = 0; sl_generator_at(k); k++) {
        for (int p = 1; p <= 4; p++) {
            for (int v = 1; v <= 3; v++) {
                for (int m = 1; m <= 12; m += 1 + m / 4) {
                    const sl_sizes sizes = {p, v, m};
                    const char *name = sl_generator_at(k)->name;
                    sl_schedule *schedule;
                    if (sl_generate(name, &sizes, &schedule))
                        continue;
                    if (!sl_schedule_extent(schedule).has_backward) {
                        /* What a stage of the same rank has yet to read is
                         * held, and the simulator knows nothing of that. */
                        sl_schedule_destroy(schedule);
                        continue;
                    }
                    int64_t more = compare(schedule, name);
                    if (more)
                        fail_msg("%s, %d ranks, %d stages each, %d "
                                 "microbatches: %lld slots too many",
                                 name, p, v, m, (long long)more);
                    sl_schedule_destroy(schedule);
                    runs++;
                }
            }
        }
    }
    assert_true(runs > 200);
}

/* A random one may need a slot more here and there, so that nobody waits for
 * ever; but never one less. */
static void random_schedules_have_enough(void **state)
{
    (void)state;
    test_dice random = {5};
    for (int round = 0; round < 100; round++) {
        test_shape shape = test_random_shape(&random);
        shape.stages = shape.stages > 8 ? 8 : shape.stages;
        shape.ranks = shape.ranks > shape.stages ? shape.stages : shape.ranks;
        shape.microbatches = shape.microbatches > 8 ? 8 : shape.microbatches;
        sl_schedule *schedule = test_random_schedule(&random, &shape);
        compare(schedule, "random");
        sl_schedule_destroy(schedule);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_the_simulators_peak),
        cmocka_unit_test(random_schedules_have_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

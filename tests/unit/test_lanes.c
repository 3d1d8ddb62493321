/* SPDX-License-Identifier: MIT
 *
 * Kernels of B on two streams: in any order that what they wait for allows, they
 * compute the same bits as one after the other. The kernels are those of the
 * CPU, which a table here claims to be of a device that works on by itself. */
#include "random_graph.h"
#include "tensors.h"

#include "tensor/memory.h"

#include <stdlib.h>
#include <string.h>

/* Which lane goes first where both may. */
typedef enum order { OTHERS_FIRST, BESIDE_FIRST, MIXED } order;

/* The next kernel of a lane from `from` on; the number of kernels: none. */
static size_t next_of(const sl_stage *stage, bool is_beside, size_t from)
{
    size_t count = stage->programs[SL_PROGRAM_B].count;
    while (from < count && stage->lanes[from].is_beside != is_beside)
        from++;
    return from;
}

static void run_kernel(const test_stage *s, size_t at)
{
    const microbatch *slot = &s->memory->slots[0];
    const sl__kernel *kernel = &s->stage->kernels[SL_PROGRAM_B][at];
    const sl__run run = {.stream = s->memory->stream, .block = slot->block};
    sl__resolve(kernel, slot->bases, s->memory->pointers);
    assert_ok(kernel->run(kernel, s->memory->pointers, &run));
}

/* Runs B in an order of lanes. */
static void run_lanes(const test_stage *s, order how, uint64_t *state)
{
    const sl_stage *stage = s->stage;
    size_t count = stage->programs[SL_PROGRAM_B].count, done = 0;
    size_t at[2] = {next_of(stage, false, 0), next_of(stage, true, 0)};
    while (at[0] < count || at[1] < count) {
        bool may[2];
        for (int lane = 0; lane < 2; lane++)
            may[lane] = at[lane] < count &&
                        (stage->lanes[at[lane]].after == SL__LANE_START ||
                         (size_t)stage->lanes[at[lane]].after < at[1 - lane]);
        assert_true(may[0] || may[1]);
        bool prefers =
            how == MIXED ? test_random_int(state, 0, 1) : how == BESIDE_FIRST;
        int lane = may[prefers] ? prefers : !prefers;
        run_kernel(s, at[lane]);
        at[lane] = next_of(stage, lane, at[lane] + 1);
        done++;
    }
    assert_int_equal(done, count);
}

static test_stage compile_as(const sl_graph *graph, bool has_lanes,
                             bool recompute)
{
    static const sl__graph_ops claimed;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl__backend other = sl__backend_cpu;
    other.graphs = &claimed;
    options.recompute = recompute;
    sl__backend_replace(&other, has_lanes);
    test_stage made = test_compile(graph, &options, 1);
    sl__backend_replace(NULL, 0);
    /* The stage outlives the table. */
    made.stage->backend = &sl__backend_cpu;
    return made;
}

static void any_order_gives_the_same_bits(void **state)
{
    (void)state;
    enum { GRAPHS = 120 };
    int beside = 0;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F32);
        test_stage plain = compile_as(graph, false, seed % 3 == 0);
        test_stage lanes = compile_as(graph, true, seed % 3 == 0);
        uint64_t random = seed;
        assert_null(plain.stage->lanes);
        for (int how = 0; how < 3 && lanes.stage->lanes; how++) {
            beside++;
            test_fill_all(&plain, seed, 0, TEST_IDS);
            test_fill_all(&lanes, seed, 0, TEST_IDS);
            test_run(&plain, "FB", 0);
            test_run(&lanes, "F", 0);
            run_lanes(&lanes, (order)how, &random);
            test_context("seed %d, order %d", (int)seed, how);
            test_assert_same(&lanes, &plain, SL_PORT_PARAMETER_GRADIENT, 0, 0);
            test_assert_same(&lanes, &plain, SL_PORT_INPUT_GRADIENT, 0, 0);
        }
        test_release(&plain);
        test_release(&lanes);
        sl_graph_destroy(graph);
    }
    assert_in_range(beside, GRAPHS, 3 * GRAPHS);
}

/* A kernel that others wait for is marked, and no other. */
static void what_is_awaited_is_marked(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F32);
        test_stage s = compile_as(graph, true, false);
        size_t count = s.stage->programs[SL_PROGRAM_B].count;
        for (size_t i = 0; i < count && s.stage->lanes; i++) {
            bool awaited = false;
            for (size_t k = i + 1; k < count; k++)
                awaited |= s.stage->lanes[k].after == (int)i;
            assert_int_equal(s.stage->lanes[i].is_awaited, awaited);
            assert_true(s.stage->lanes[i].after < (int)i);
        }
        test_release(&s);
        sl_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bits),
        cmocka_unit_test(what_is_awaited_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

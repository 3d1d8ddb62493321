/* SPDX-License-Identifier: MIT
 *
 * Kernels of B on several streams: in any order that what they wait for allows,
 * they compute the same bits as one after the other. The kernels are those of
 * the CPU, which a table here claims to be of a device that works on by
 * itself. */
#include "random_graph.h"
#include "tensors.h"

#include "tensor/memory.h"

#include <stdlib.h>
#include <string.h>

/* Which lane goes first where several may: one of them, or any. */
enum { MIXED = SL__LANES, ORDERS };

/* The next kernel of a lane from `from` on; the number of kernels: none. */
static size_t next_of(const sl_stage *stage, int lane, size_t from)
{
    size_t count = stage->programs[SL_PROGRAM_B].count;
    while (from < count && stage->lanes[from].lane != lane)
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

/* Whether all that kernel `k` waits for has run; `at`: the next of each
 * lane. */
static bool may_run(const sl_stage *stage, size_t k, const size_t at[SL__LANES])
{
    const sl__lane *own = &stage->lanes[k];
    for (int lane = 0; lane < SL__LANES; lane++) {
        if (own->after[lane] != SL__LANE_START &&
            (size_t)own->after[lane] >= at[lane])
            return false;
    }
    return true;
}

/* Runs B in an order of lanes. */
static void run_lanes(const test_stage *s, int how, uint64_t *state)
{
    const sl_stage *stage = s->stage;
    size_t count = stage->programs[SL_PROGRAM_B].count;
    size_t at[SL__LANES];
    for (int lane = 0; lane < SL__LANES; lane++)
        at[lane] = next_of(stage, lane, 0);
    for (size_t done = 0; done < count; done++) {
        int lane =
            how == MIXED ? test_random_int(state, 0, SL__LANES - 1) : how;
        int tries = 0;
        while (at[lane] == count || !may_run(stage, at[lane], at)) {
            assert_true(++tries < SL__LANES);
            lane = (lane + 1) % SL__LANES;
        }
        run_kernel(s, at[lane]);
        at[lane] = next_of(stage, lane, at[lane] + 1);
    }
}

/* `behind`: for how many calls memory is kept. With 0 it is reused at once. */
static test_stage compile_as(const sl_graph *graph, bool has_lanes,
                             bool recompute, int behind)
{
    static const sl__graph_ops claimed;
    const sl__behind usual = sl__lanes_behind;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl__backend other = sl__backend_cpu;
    other.graphs = &claimed;
    options.recompute = recompute;
    sl__lanes_behind = (sl__behind){behind, behind};
    sl__backend_replace(&other, has_lanes);
    test_stage made = test_compile(graph, &options, 1);
    sl__backend_replace(NULL, 0);
    sl__lanes_behind = usual;
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
        test_stage plain = compile_as(graph, false, seed % 3 == 0, 0);
        test_stage lanes =
            compile_as(graph, true, seed % 3 == 0, (int)(seed % 4) * 3);
        uint64_t random = seed;
        assert_null(plain.stage->lanes);
        for (int how = 0; how < ORDERS && lanes.stage->lanes; how++) {
            beside++;
            test_fill_all(&plain, seed, 0, TEST_IDS);
            test_fill_all(&lanes, seed, 0, TEST_IDS);
            test_run(&plain, "FB", 0);
            test_run(&lanes, "F", 0);
            run_lanes(&lanes, how, &random);
            test_context("seed %d, order %d", (int)seed, how);
            test_assert_same(&lanes, &plain, SL_PORT_PARAMETER_GRADIENT, 0, 0);
            test_assert_same(&lanes, &plain, SL_PORT_INPUT_GRADIENT, 0, 0);
        }
        test_release(&plain);
        test_release(&lanes);
        sl_graph_destroy(graph);
    }
    assert_in_range(beside, GRAPHS, ORDERS * GRAPHS);
}

/* A kernel that others wait for is marked, and no other. */
static void what_is_awaited_is_marked(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F32);
        test_stage s = compile_as(graph, true, false, 2);
        size_t count = s.stage->programs[SL_PROGRAM_B].count;
        for (size_t i = 0; i < count && s.stage->lanes; i++) {
            const sl__lane *own = &s.stage->lanes[i];
            bool awaited = false;
            for (size_t k = i + 1; k < count; k++)
                awaited |= s.stage->lanes[k].after[own->lane] == (int)i;
            assert_int_equal(own->is_awaited, awaited);
            assert_int_equal(own->after[own->lane], SL__LANE_START);
            for (int lane = 0; lane < SL__LANES; lane++)
                assert_true(own->after[lane] < (int)i);
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

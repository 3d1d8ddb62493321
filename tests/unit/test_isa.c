/* SPDX-License-Identifier: MIT
 *
 * oneDNN is kept from instruction sets that would kill the process: whatever a
 * try in a child does, the parent lives and knows. */
#include "support.h"
#include "tensor/onednn/onednn.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int comes_back(void)
{
    return 0;
}

static int finds_it_wrong(void)
{
    return 1;
}

static int dies_of_an_illegal_instruction(void)
{
    raise(SIGILL);
    return 0;
}

static int crashes(void)
{
    raise(SIGSEGV);
    return 0;
}

static int never_returns(void)
{
    pause();
    return 1;
}

static void a_try_tells_life_from_death(void **state)
{
    (void)state;
    assert_true(sl__survives_in_child(comes_back, 10));
    assert_false(sl__survives_in_child(finds_it_wrong, 10));
    assert_false(sl__survives_in_child(dies_of_an_illegal_instruction, 10));
    assert_false(sl__survives_in_child(crashes, 10));
}

static void a_try_that_hangs_is_ended(void **state)
{
    (void)state;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_false(sl__survives_in_child(never_returns, 1));
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_true(to.tv_sec - from.tv_sec < 30);
}

/* What the cap decides, for every answer of the CPU and of the try. */
static void amx_is_used_only_where_it_was_seen_to_work(void **state)
{
    (void)state;
    assert_false(sl__dnn_must_cap(false, dies_of_an_illegal_instruction));
    assert_false(sl__dnn_must_cap(true, comes_back));
    assert_true(sl__dnn_must_cap(true, dies_of_an_illegal_instruction));
    assert_true(sl__dnn_must_cap(true, finds_it_wrong));
}

/* The real try: where there is no AMX, bf16 runs without it and is right. */
static void the_try_itself_runs(void **state)
{
    (void)state;
    if (sl__survives_in_child(sl__dnn_try_amx, 20))
        print_message("products in bf16 work here\n");
    else
        print_message("products in bf16 do not work here\n");
}

/* After the first stage, oneDNN says what it is held to. */
static void the_cap_is_in_force_after_the_first_use(void **state)
{
    (void)state;
    sl_graph *graph;
    sl_stage *stage;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 2), SL_NO_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(2, 2));
    sl_output(graph, "y", sl_matmul(x, w), SL_NO_GRADIENT);
    assert_ok(sl_stage_compile(graph, NULL, &stage));
    bool amx = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) ==
               dnnl_cpu_isa_avx512_core_amx;
    bool works = sl__survives_in_child(sl__dnn_try_amx, 20);
    assert_true(!amx || works);
    sl_stage_destroy(stage);
    sl_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_try_itself_runs),
        cmocka_unit_test(the_cap_is_in_force_after_the_first_use),
        cmocka_unit_test(a_try_tells_life_from_death),
        cmocka_unit_test(a_try_that_hangs_is_ended),
        cmocka_unit_test(amx_is_used_only_where_it_was_seen_to_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * oneDNN is kept from instruction sets that would kill the process: whatever a
 * try in a child does, the parent lives and knows. */
#include "support.h"
#include "tensor/backends/cpu/cpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
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

static bool may_use_amx(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) ==
           dnnl_cpu_isa_avx512_core_amx;
}

/* Each in a process of its own: a cap is for good. */
static int cap_after_death(void)
{
    return sl__dnn_cap_unless(true, dies_of_an_illegal_instruction) ||
           may_use_amx();
}

static int cap_after_a_wrong_result(void)
{
    return sl__dnn_cap_unless(true, finds_it_wrong) || may_use_amx();
}

static int cap_too_late(void)
{
    dnnl_get_effective_cpu_isa(); /* Now it is settled. */
    return sl__dnn_cap_unless(true, finds_it_wrong) != SL_EINVAL;
}

static int no_cap_without_a_claim(void)
{
    dnnl_get_effective_cpu_isa();
    return sl__dnn_cap_unless(false, finds_it_wrong) != SL_OK;
}

static int no_cap_after_success(void)
{
    dnnl_get_effective_cpu_isa();
    return sl__dnn_cap_unless(true, comes_back) != SL_OK;
}

static void amx_is_used_only_where_it_was_seen_to_work(void **state)
{
    (void)state;
#ifndef __x86_64__
    skip(); /* oneDNN refuses a cap of another architecture. */
#endif
    assert_true(sl__survives_in_child(cap_after_death, 30));
    assert_true(sl__survives_in_child(cap_after_a_wrong_result, 30));
    assert_true(sl__survives_in_child(cap_too_late, 30));
    assert_true(sl__survives_in_child(no_cap_without_a_claim, 30));
    assert_true(sl__survives_in_child(no_cap_after_success, 30));
}

static int forbidden_by_the_environment(void)
{
    setenv("SLUICE_AMX", "never", 1);
    return sl__splits_check() || sl__splits_choose(1);
}

static int asked_for_by_the_environment(void)
{
    const sl__split_kernels *one = sl__splits_choose(1);
    bool unasked = sl__splits_choose(2);
    setenv("SLUICE_AMX", "always", 1);
    return unasked || sl__splits_check() || sl__splits_choose(2) != one;
}

static int asked_for_by_something_else(void)
{
    setenv("SLUICE_AMX", "sometimes", 1);
    return sl__splits_check() != SL_EINVAL ||
           !strstr(sl_error_text(), "'sometimes', expected always or never");
}

/* What is ours is tried by itself: oneDNN may fail where we do not. */
static void amx_is_ours_only_where_it_was_seen_to_work(void **state)
{
    (void)state;
    assert_false(sl__amx_works(dies_of_an_illegal_instruction));
    assert_false(sl__amx_works(finds_it_wrong));
    assert_true(sl__survives_in_child(forbidden_by_the_environment, 30));
    assert_true(sl__survives_in_child(asked_for_by_the_environment, 60));
    assert_true(sl__survives_in_child(asked_for_by_something_else, 30));
}

/* After the first stage, oneDNN uses AMX only if the real try survives. */
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
    assert_true(!may_use_amx() || sl__survives_in_child(sl__dnn_try_amx, 20));
    sl_stage_destroy(stage);
    sl_graph_destroy(graph);
}

int main(void)
{
    /* The last uses oneDNN, which those before must find unused. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_try_tells_life_from_death),
        cmocka_unit_test(a_try_that_hangs_is_ended),
        cmocka_unit_test(amx_is_used_only_where_it_was_seen_to_work),
        cmocka_unit_test(amx_is_ours_only_where_it_was_seen_to_work),
        cmocka_unit_test(the_cap_is_in_force_after_the_first_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

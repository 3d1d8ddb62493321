/* SPDX-License-Identifier: MIT
 *
 * AMX is used only where it works: whatever a try in a child process does, the
 * parent goes on and knows the result. */
#include "support.h"
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"

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
static int forbidden_by_the_environment(void)
{
    setenv("SLUICE_AMX", "never", 1);
    return sl__amx_check_environment() || sl__split_choose(1) ||
           sl__bf16_choose(64) == sl__bf16_amx;
}

static int asked_for_by_the_environment(void)
{
    const sl__split_kernels *one = sl__split_choose(1);
    bool unasked = sl__split_choose(2);
    setenv("SLUICE_AMX", "always", 1);
    return unasked || sl__amx_check_environment() || sl__split_choose(2) != one;
}

static int asked_for_by_something_else(void)
{
    setenv("SLUICE_AMX", "sometimes", 1);
    return sl__amx_check_environment() != SL_EINVAL ||
           !strstr(sl_error_text(), "'sometimes', expected always or never");
}

static void amx_is_used_only_where_it_was_seen_to_work(void **state)
{
    (void)state;
    assert_true(!sl__has_amx() || sl__survives_in_child(sl__try_amx, 30));
    assert_true(sl__survives_in_child(forbidden_by_the_environment, 30));
    assert_true(sl__survives_in_child(asked_for_by_the_environment, 60));
    assert_true(sl__survives_in_child(asked_for_by_something_else, 30));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_try_tells_life_from_death),
        cmocka_unit_test(a_try_that_hangs_is_ended),
        cmocka_unit_test(amx_is_used_only_where_it_was_seen_to_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

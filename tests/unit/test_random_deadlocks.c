/* SPDX-License-Identifier: MIT
 *
 * Deadlocks of random schedules: checker, simulator and a run by brute force
 * agree under every reading, and the cycle that is reported is one. */
#include "support.h"
#include "brute_force.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shuffles a few actions about: within a rank mostly, messages above all. */
static void shake(test_dice *random, test_draft *d)
{
    int shakes = 1 + test_below(random, 3);
    for (int i = 0; i < shakes; i++) {
        int rank = test_below(random, d->ranks);
        if (d->lengths[rank] < 2)
            continue;
        int step = test_below(random, d->lengths[rank]);
        sl_action action = d->rows[rank][step];
        test_draft_remove(d, rank, step);
        if (test_below(random, 8) == 0)
            continue; /* lost */
        if (test_below(random, 8) == 0)
            rank = test_below(random, d->ranks);
        test_draft_insert(d, rank, test_below(random, d->lengths[rank] + 1),
                          action);
    }
}

static void expect_agreement(const test_draft *d, int *deadlocks)
{
    sl_schedule *schedule = test_draft_finish(d);
    sl_report *report;
    assert_ok(sl_check(schedule, NULL, &report));
    for (int i = 0; i < SL_READINGS; i++) {
        sl_reading reading = (sl_reading)i;
        sl_simulation *result;
        sl_status status = sl_simulate(schedule, NULL, reading, &result);
        bool checked = sl_report_deadlock(report, reading) != NULL;
        bool simulated = status == SL_EUNSOUND;
        bool forced = test_deadlocks_by_force(d, reading);
        if (!status)
            sl_simulation_destroy(result);
        if (checked != forced || simulated != forced) {
            char *csv = test_csv(schedule);
            fail_msg("%s: checker %d, simulator %d, brute force %d in\n%s",
                     sl_reading_text(reading), checked, simulated, forced, csv);
        }
        deadlocks[i] += forced;
    }
    sl_report_destroy(report);
    sl_schedule_destroy(schedule);
}

/* Waits for what is sent, and reductions with theirs; as early as they can be if `early`. */
static void add_waits(sl_schedule **schedule, bool early)
{
    sl_schedule *made;
    sl_status status = sl_lower(*schedule,
                                early ? "reduce-grad,wait-send,send-budget=1"
                                      : "reduce-grad,wait-send",
                                NULL, &made);
    if (status == SL_EUNSOUND) /* It has no room for so few. */
        return;
    assert_ok(status);
    sl_schedule_destroy(*schedule);
    *schedule = made;
}

static void everyone_agrees_on_deadlock(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {307};
    int deadlocks[SL_READINGS] = {0};
    const int rounds = 800;
    for (int i = 0; i < rounds; i++) {
        test_shape shape = test_random_shape(&random);
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        if (shape.messages && i % 3)
            add_waits(&drawn, i % 3 == 2);
        test_draft_of(drawn, &d);
        sl_schedule_destroy(drawn);
        if (i % 4)
            shake(&random, &d);
        expect_agreement(&d, deadlocks);
    }
    for (int i = 0; i < SL_READINGS; i++)
        assert_in_range(deadlocks[i], rounds / 10, rounds - rounds / 10);
}

/* Each wait is for an action at or behind which the next wait holds its rank,
 * and nobody waits for itself without reason. */
static void expect_chain(const test_draft *d, const sl_finding *found)
{
    for (size_t k = 0; k < found->wait_count; k++) {
        const sl_wait *wait = &found->waits[k];
        const sl_wait *next = &found->waits[(k + 1) % found->wait_count];
        if (wait->on_rank < 0) {
            assert_int_equal(found->wait_count, 1);
            return;
        }
        assert_int_equal(wait->on_rank, next->rank);
        assert_true(next->step <= wait->on_step);
        if (wait->rank == wait->on_rank) {
            const sl_action *a = &d->rows[wait->rank][wait->step];
            assert_true(
                wait->on_step > wait->step ||
                (a->kind == SL_OVERLAP_F_B && wait->on_step == wait->step));
        }
    }
}

static void reported_cycles_close(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {311};
    int cycles = 0;
    for (int i = 0; i < 1500; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = true;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        if (i % 3)
            add_waits(&drawn, i % 3 == 2);
        test_draft_of(drawn, &d);
        sl_schedule_destroy(drawn);
        if (i % 2)
            shake(&random, &d);
        sl_schedule *schedule = test_draft_finish(&d);
        sl_report *report;
        assert_ok(sl_check(schedule, NULL, &report));
        for (int r = 0; r < SL_READINGS; r++) {
            const sl_finding *found = sl_report_deadlock(report, (sl_reading)r);
            if (found)
                expect_chain(&d, found);
            cycles += found != NULL;
        }
        sl_report_destroy(report);
        sl_schedule_destroy(schedule);
    }
    assert_true(cycles > 100);
}

/* Whether a cycle of waits passes over the order of two neighbours. */
static bool passes_over(const sl_finding *found, int rank, int step)
{
    for (size_t k = 0; k < found->wait_count; k++) {
        const sl_wait *wait = &found->waits[k];
        const sl_wait *next = &found->waits[(k + 1) % found->wait_count];
        if (wait->on_rank == rank && wait->on_step > step && next->step <= step)
            return true;
    }
    return false;
}

/* Neighbouring messages swapped so that a run in posted order hangs: the
 * deadlock is found, and its cycle goes through the place of the swap. */
static void reordered_messages_are_found(void **state)
{
    (void)state;
    static test_draft d;
    test_dice random = {233};
    int hung = 0;
    for (int i = 0; i < 800; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = shape.idle = false;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_schedule *lowered = test_lower(drawn, "send-recv");
        test_draft_of(lowered, &d);
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(drawn);
        int rank = test_below(&random, d.ranks);
        if (d.lengths[rank] < 2)
            continue;
        int step = test_below(&random, d.lengths[rank] - 1);
        sl_action first = d.rows[rank][step];
        if (!test_is_message(first) || !test_is_message(d.rows[rank][step + 1]))
            continue;
        d.rows[rank][step] = d.rows[rank][step + 1];
        d.rows[rank][step + 1] = first;
        if (!test_deadlocks_by_force(&d, SL_ORDERED))
            continue;
        sl_schedule *schedule = test_draft_finish(&d);
        sl_check_options options = SL_CHECK_OPTIONS_INIT;
        sl_report *report;
        size_t count;
        options.reading = SL_ORDERED;
        assert_ok(sl_check(schedule, &options, &report));
        const sl_finding *findings = sl_report_findings(report, &count);
        assert_int_equal(count, 1);
        assert_int_equal(findings[0].code, SL_FINDING_DEADLOCK);
        assert_true(passes_over(&findings[0], rank, step));
        sl_report_destroy(report);
        sl_schedule_destroy(schedule);
        hung++;
    }
    assert_true(hung > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reordered_messages_are_found),
        cmocka_unit_test(everyone_agrees_on_deadlock),
        cmocka_unit_test(reported_cycles_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * Random schedules that are valid by construction are sound and run to their
 * end. */
#include "support.h"
#include "random_schedule.h"

static void valid_schedules_are_sound_and_run(void **state)
{
    (void)state;
    test_dice random = {101};
    for (int i = 0; i < 600; i++) {
        test_shape shape = test_random_shape(&random);
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_simulation *result;
        assert_true(test_is_sound(drawn));
        assert_ok(sl_simulate(drawn, NULL, SL_ASYNC, &result));
        assert_true(sl_simulation_makespan(result) > 0);
        assert_true(sl_simulation_bubble(result) >= -1e-9);
        sl_simulation_destroy(result);
        if (!shape.messages) {
            size_t steps;
            sl_schedule *lowered = test_lower(drawn, SL_LOWER_DEFAULT_PASSES);
            assert_true(test_is_sound(lowered));
            assert_ok(sl_dry_run(drawn, &steps));
            assert_ok(sl_dry_run(lowered, &steps));
            sl_schedule_destroy(lowered);
        }
        sl_schedule_destroy(drawn);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_schedules_are_sound_and_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

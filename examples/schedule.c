/* SPDX-License-Identifier: MIT
 *
 * Generates a schedule, lowers it, checks it, and tells how long it takes.
 *
 *     cc schedule.c $(pkg-config --cflags --libs sluice) && ./a.out */
#include <sluice/sluice.h>

#include <stdio.h>

static int failed(void)
{
    fprintf(stderr, "%s\n", sl_error_text());
    return 1;
}

int main(void)
{
    sl_schedule *order, *lowered;
    sl_report *report;
    sl_simulation *simulation;
    sl_sizes sizes = {.ranks = 4, .stages_per_rank = 2, .microbatches = 8};

    if (sl_generate("ZBVZeroBubble", &sizes, &order) ||
        sl_lower(order, SL_LOWER_DEFAULT_PASSES, NULL, &lowered) ||
        sl_check(lowered, NULL, &report) ||
        sl_simulate(lowered, NULL, SL_ASYNC, &simulation))
        return failed();

    bool sound = sl_report_is_sound(report);
    printf("%s, bubble %.4f\n", sound ? "sound" : "unsound",
           sl_simulation_bubble(simulation));

    sl_simulation_destroy(simulation);
    sl_report_destroy(report);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(order);
    return sound ? 0 : 1;
}

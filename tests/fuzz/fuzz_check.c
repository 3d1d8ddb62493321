/* SPDX-License-Identifier: MIT
 *
 * Any schedule can be checked and simulated, and the two agree on what
 * deadlocks. */
#include "fuzz.h"

static void simulate(const sl_schedule *schedule, const sl_report *report,
                     sl_reading reading)
{
    sl_simulation *result;
    sl_string text = SL_STRING_INIT;
    sl_status status = sl_simulate(schedule, NULL, reading, &result);
    must(status == SL_OK || status == SL_EUNSOUND);
    if (sl_report_deadlock_known(report))
        must((status == SL_EUNSOUND) ==
             (sl_report_deadlock(report, reading) != NULL));
    if (status)
        return;
    must(sl_simulation_bubble(result) > -1e-9);
    must(!sl_simulation_write_json(result, schedule, 1, true, sl_write_string,
                                   &text));
    must(!sl_view_write_trace(schedule, result, sl_write_string, &text));
    sl_string_clear(&text);
    sl_simulation_destroy(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sl_schedule *schedule;
    sl_report *report;
    sl_string text = SL_STRING_INIT;
    size_t steps;
    if (sl_schedule_read_csv((const char *)data, size, &schedule))
        return 0;
    must(!sl_check(schedule, NULL, &report));
    must(!sl_report_write_json(report, schedule, sl_write_string, &text));
    for (int i = 0; i < SL_READINGS; i++)
        simulate(schedule, report, (sl_reading)i);
    sl_status status = sl_dry_run(schedule, &steps);
    must(status == SL_OK || status == SL_EUNSOUND);
    sl_string_clear(&text);
    sl_report_destroy(report);
    sl_schedule_destroy(schedule);
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * Any bytes may be given as costs; those that are read can be simulated with
 * or are refused. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char csv[] = "0F0,0F1,2F0,2F1,2B0,2I1,2W1,0B0,0B1\n"
                              "1F0,1F1,1B0,1B1\n";
    sl_costs costs = SL_COSTS_INIT;
    sl_schedule *schedule;
    sl_simulation *result;
    if (sl_costs_read_json((const char *)data, size, &costs)) {
        must(!costs.stages && !costs.edges);
        return 0;
    }
    must(!sl_schedule_read_csv(csv, strlen(csv), &schedule));
    sl_status status = sl_simulate(schedule, &costs, SL_ASYNC, &result);
    must(status == SL_OK || status == SL_EINVAL);
    if (!status) {
        must(!isnan(sl_simulation_makespan(result)));
        sl_simulation_destroy(result);
    }
    sl_schedule_destroy(schedule);
    sl_costs_clear(&costs);
    return 0;
}

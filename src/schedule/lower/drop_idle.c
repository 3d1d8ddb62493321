/* SPDX-License-Identifier: MIT
 *
 * drop-idle: the order of a schedule, without its idle cells.
 *
 * Requires: nothing.  Ensures: the same actions in the same order, no idle
 * cell.  Invalidates: the step numbers of its input. */
#include "schedule/lower/lower.h"

sl_status sl_lower_drop_idle(const sl_schedule *in, sl_schedule **out)
{
    sl_schedule *result;
    sl_status status = sl_schedule_create(in->ranks, &result);
    for (int rank = 0; !status && rank < in->ranks; rank++) {
        const sl__row *from = &in->rows[rank];
        sl__row *to = &result->rows[rank];
        status = sl__row_reserve(to, from->length);
        for (size_t step = 0; !status && step < from->length; step++) {
            if (from->actions[step].kind != SL_IDLE)
                to->actions[to->length++] = from->actions[step];
        }
        if (status)
            sl_schedule_destroy(result);
    }
    if (!status)
        *out = result;
    return status;
}

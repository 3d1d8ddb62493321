/* SPDX-License-Identifier: MIT
 *
 * drop-waits: gives a schedule that PyTorch up to 2.14 reads. There the runtime
 * decides when to wait for a send, and REDUCE_GRAD blocks its rank.
 *
 * Requires: nothing.  Ensures: no idle cell, no WAIT_SEND, no WAIT_REDUCE_GRAD.
 * Invalidates: step numbers. */
#include "schedule/lower/lower.h"
#include "base/arguments.h"
#include "base/try.h"

static sl_status drop_row(const sl__row *from, sl__row *to, int rank,
                          void *context)
{
    (void)rank;
    (void)context;
    for (size_t step = 0; step < from->length; step++) {
        const sl_action *action = &from->actions[step];
        if (sl_action_kind_family(action->kind) != SL_FAMILY_WAIT)
            SL__TRY(sl__row_append(to, *action));
    }
    return SL_OK;
}

sl_status sl_lower_drop_waits(const sl_schedule *in, sl_schedule **out)
{
    SL__NEED(in, out);
    return sl__lower_rows(in, drop_row, NULL, out);
}

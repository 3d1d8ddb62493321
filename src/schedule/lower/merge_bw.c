/* SPDX-License-Identifier: MIT
 *
 * merge-bw: neighbouring I and W of one stage and microbatch become B.
 *
 * Requires: nothing.  Ensures: no idle cell; no I directly before its own W.
 * Invalidates: step numbers. */
#include "schedule/lower/lower.h"
#include "base/arguments.h"
#include "base/try.h"

static bool make_a_backward(const sl_action *first, const sl_action *second)
{
    return first->kind == SL_BACKWARD_INPUT &&
           second->kind == SL_BACKWARD_WEIGHT &&
           first->stage == second->stage &&
           first->microbatch == second->microbatch;
}

static sl_status merge_row(const sl__row *from, sl__row *to, int rank,
                           void *context)
{
    (void)rank;
    (void)context;
    for (size_t step = 0; step < from->length; step++) {
        sl_action action = from->actions[step];
        if (step + 1 < from->length &&
            make_a_backward(&action, &from->actions[step + 1])) {
            action.kind = SL_BACKWARD;
            step++;
        }
        SL__TRY(sl__row_append(to, action));
    }
    return SL_OK;
}

sl_status sl_lower_merge_bw(const sl_schedule *in, sl_schedule **out)
{
    SL__NEED(in, out);
    return sl__lower_rows(in, merge_row, NULL, out);
}

/* SPDX-License-Identifier: MIT
 *
 * wait-reduce: adds a WAIT_REDUCE_GRAD for each REDUCE_GRAD, either right after
 * it, or as late as possible with at most one reduction pending on a rank:
 * before the rank's next REDUCE_GRAD, or at the end of its row.
 *
 * Requires: no WAIT_REDUCE_GRAD yet.  Ensures: no idle cell; one
 * WAIT_REDUCE_GRAD per REDUCE_GRAD, after it and before the next.
 * Invalidates: step numbers. */
#include "schedule/lower/lower.h"
#include "base/arguments.h"
#include "base/try.h"

static sl_status append_wait(sl__row *to, const sl_action *reduction)
{
    return sl__row_append(
        to, sl_action_make(SL_WAIT_REDUCE_GRAD, reduction->stage, 0));
}

static sl_status wait_row(const sl__row *from, sl__row *to, int rank,
                          void *context)
{
    (void)rank;
    const sl_reduce_wait *wait = context;
    const sl_action *pending = NULL;
    for (size_t step = 0; step < from->length; step++) {
        const sl_action *action = &from->actions[step];
        bool reduces = action->kind == SL_REDUCE_GRAD;
        if (reduces && pending)
            SL__TRY(append_wait(to, pending));
        SL__TRY(sl__row_append(to, *action));
        if (reduces && *wait == SL_REDUCE_WAIT_LATE)
            pending = action;
        else if (reduces)
            SL__TRY(append_wait(to, action));
    }
    return pending ? append_wait(to, pending) : SL_OK;
}

static bool is_reduce_wait(uint8_t kind)
{
    return kind == SL_WAIT_REDUCE_GRAD;
}

sl_status sl_lower_wait_reduce(const sl_schedule *in, sl_reduce_wait wait,
                               sl_schedule **out)
{
    SL__NEED(in, out);
    if (wait != SL_REDUCE_WAIT_NOW && wait != SL_REDUCE_WAIT_LATE)
        return sl_fail(SL_EINVAL,
                       "wait-reduce: a reduction is waited for now or late, "
                       "not %d",
                       (int)wait);
    SL__TRY(sl__refuse_kinds(in, "wait-reduce", is_reduce_wait));
    return sl__lower_rows(in, wait_row, &wait, out);
}

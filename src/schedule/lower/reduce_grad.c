/* SPDX-License-Identifier: MIT
 *
 * reduce-grad: adds a stage's REDUCE_GRAD right after the last action that
 * completes gradients of its weights, so that memory is freed as early as
 * possible. wait-reduce runs after it, unless the option asks for no waits.
 *
 * Requires: no REDUCE_GRAD yet, no WAIT_REDUCE_GRAD.  Ensures: no idle cell;
 * one REDUCE_GRAD, with its wait if that is asked for, per rank and stage that
 * has a B or W there.  Invalidates: step numbers. */
#include "schedule/lower/lower.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <string.h>

/* Walks a row backwards: the first B or W of a stage that it finds is the last
 * in the row. */
static void mark_last(const sl__row *row, uint8_t *seen, uint8_t *last)
{
    for (size_t step = row->length; step-- > 0;) {
        sl_action parts[2];
        int count = sl_action_parts(&row->actions[step], parts);
        for (int i = count; i-- > 0;) {
            if (!sl__ends_microbatch(parts[i].kind) || seen[parts[i].stage])
                continue;
            seen[parts[i].stage] = 1;
            last[step] |= (uint8_t)(1 << i);
        }
    }
}

static sl_status emit_row(const sl__row *from, const uint8_t *last, sl__row *to)
{
    for (size_t step = 0; step < from->length; step++) {
        sl_action parts[2];
        int count = sl_action_parts(&from->actions[step], parts);
        SL__TRY(sl__row_append(to, from->actions[step]));
        for (int i = 0; i < count; i++) {
            if (last[step] & (1 << i))
                SL__TRY(sl__row_append(
                    to, sl_action_make(SL_REDUCE_GRAD, parts[i].stage, 0)));
        }
    }
    return SL_OK;
}

static sl_status reduce_row(const sl__row *from, sl__row *to, int rank,
                            void *context)
{
    (void)rank;
    uint8_t *seen = context; /* by stage */
    uint8_t *last;           /* by step, one bit per half */
    SL__TRY(sl__alloc(from->length, 1, &last));
    memset(seen, 0, SL_MAX_STAGES);
    mark_last(from, seen, last);
    sl_status status = emit_row(from, last, to);
    free(last);
    return status;
}

static bool is_reduction(uint8_t kind)
{
    return kind == SL_REDUCE_GRAD || kind == SL_WAIT_REDUCE_GRAD;
}

sl_status sl_lower_reduce_grad(const sl_schedule *in, sl_reduce_wait wait,
                               sl_schedule **out)
{
    SL__NEED(in, out);
    uint8_t *seen;
    sl_schedule *reduced;
    if (wait < SL_REDUCE_WAIT_NONE || wait > SL_REDUCE_WAIT_LATE)
        return sl_fail(SL_EINVAL, "unknown wait for a reduction: %d",
                       (int)wait);
    SL__TRY(sl__refuse_kinds(in, "reduce-grad", is_reduction));
    SL__TRY(sl__alloc(SL_MAX_STAGES, 1, &seen));
    sl_status status = sl__lower_rows(in, reduce_row, seen, &reduced);
    free(seen);
    SL__TRY(status);
    if (wait == SL_REDUCE_WAIT_NONE) {
        *out = reduced;
        return SL_OK;
    }
    status = sl_lower_wait_reduce(reduced, wait, out);
    sl_schedule_destroy(reduced);
    return status;
}

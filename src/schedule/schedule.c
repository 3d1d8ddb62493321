/* SPDX-License-Identifier: MIT
 *
 * Schedules in memory: one contiguous array of fixed-size actions per rank.
 * csv.c, grid.c and json.c have the text forms. */
#include "schedule/schedule.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>

sl_status sl_schedule_create(int ranks, sl_schedule **out)
{
    SL__NEED(out);
    if (ranks < 1 || ranks > SL_MAX_RANKS)
        return sl_fail(SL_EINVAL, "a schedule has 1 to %d ranks, not %d",
                       SL_MAX_RANKS, ranks);
    sl_schedule *schedule;
    SL__TRY(sl__alloc(1,
                      sizeof *schedule + (size_t)ranks * sizeof *schedule->rows,
                      &schedule));
    schedule->ranks = ranks;
    *out = schedule;
    return SL_OK;
}

void sl_schedule_destroy(sl_schedule *schedule)
{
    if (!schedule)
        return;
    for (int rank = 0; rank < schedule->ranks; rank++)
        free(schedule->rows[rank].actions);
    free(schedule);
}

sl_status sl__row_reserve(sl__row *row, size_t more)
{
    return sl__grow(&row->actions, &row->capacity, row->length + more,
                    sizeof *row->actions);
}

sl_status sl__row_append(sl__row *row, sl_action action)
{
    if (row->length == row->capacity)
        SL__TRY(sl__row_reserve(row, 1));
    assert(action.kind < SL_ACTION_KINDS);
    row->actions[row->length++] = action;
    return SL_OK;
}

/* Whether the action is what one of the constructors makes. */
static bool is_valid(const sl_action *action)
{
    sl_action made;
    if (action->kind == SL_OVERLAP_F_B)
        made = sl_action_overlap(
            sl_action_make(SL_FORWARD, action->stage, action->microbatch),
            sl_action_make(action->b_kind, action->b_stage,
                           action->b_microbatch));
    else
        made = sl_action_make(action->kind, action->stage, action->microbatch);
    return made.kind < SL_ACTION_KINDS && sl_action_equal(&made, action);
}

sl_status sl_schedule_append(sl_schedule *schedule, int rank, sl_action action)
{
    SL__NEED(schedule);
    if (rank < 0 || rank >= schedule->ranks)
        return sl_fail(SL_EINVAL, "no rank %d in a schedule of %d ranks", rank,
                       schedule->ranks);
    if (!is_valid(&action))
        return sl_fail(SL_EINVAL,
                       "rank %d, step %zu: not a valid action: its kind, stage "
                       "or microbatch is out of range",
                       rank, schedule->rows[rank].length);
    return sl__row_append(&schedule->rows[rank], action);
}

int sl_schedule_ranks(const sl_schedule *schedule)
{
    return schedule ? schedule->ranks : 0;
}

/* The row of a rank, or NULL where there is none. */
static const sl__row *row_of(const sl_schedule *schedule, int rank)
{
    bool there = schedule && rank >= 0 && rank < schedule->ranks;
    return there ? &schedule->rows[rank] : NULL;
}

size_t sl_schedule_length(const sl_schedule *schedule, int rank)
{
    const sl__row *row = row_of(schedule, rank);
    return row ? row->length : 0;
}

const sl_action *sl_schedule_row(const sl_schedule *schedule, int rank)
{
    const sl__row *row = row_of(schedule, rank);
    return row ? row->actions : NULL;
}

static void extend(sl_extent *extent, const sl_action *part)
{
    if (part->stage >= extent->stages)
        extent->stages = part->stage + 1;
    if (part->microbatch >= extent->microbatches)
        extent->microbatches = part->microbatch + 1;
    switch (part->kind) {
    case SL_BACKWARD_INPUT:
    case SL_BACKWARD_WEIGHT:
    case SL_BACKWARD: extent->has_backward = true; break;
    case SL_UNSHARD:
    case SL_RESHARD: extent->has_sharding = true; break;
    case SL_REDUCE_GRAD: extent->has_reduce_grad = true; break;
    case SL_WAIT_SEND_F:
    case SL_WAIT_SEND_B: extent->has_send_waits = true; break;
    case SL_WAIT_REDUCE_GRAD: extent->has_reduce_waits = true; break;
    default:
        if (sl_action_kind_family(part->kind) == SL_FAMILY_COMM)
            extent->has_communication = true;
    }
}

sl_extent sl_schedule_extent(const sl_schedule *schedule)
{
    sl_extent extent = {.ranks = sl_schedule_ranks(schedule)};
    for (int rank = 0; rank < extent.ranks; rank++) {
        const sl__row *row = &schedule->rows[rank];
        extent.cells += row->length;
        if (row->length > extent.longest)
            extent.longest = row->length;
        for (size_t step = 0; step < row->length; step++) {
            sl_action parts[2];
            int count = sl_action_parts(&row->actions[step], parts);
            extent.actions += count > 0;
            for (int i = 0; i < count; i++)
                extend(&extent, &parts[i]);
        }
    }
    return extent;
}

sl_status sl__check_density(const sl_extent *extent)
{
    /* A complete schedule has at least one action per stage and microbatch. The
     * factor of four and the constant admit incomplete schedules that are still
     * worth a full analysis. */
    size_t implied = (size_t)extent->stages * (size_t)extent->microbatches;
    if (implied <= extent->actions * 4 + 65536)
        return SL_OK;
    return sl_fail(SL_EUNSOUND,
                   "%d stages and %d microbatches are named, which takes at "
                   "least %zu actions, but there are %zu",
                   extent->stages, extent->microbatches, implied,
                   extent->actions);
}

sl_status sl__refuse_kinds(const sl_schedule *in, const char *pass,
                           bool (*refused)(uint8_t kind))
{
    for (int rank = 0; rank < in->ranks; rank++) {
        const sl__row *row = &in->rows[rank];
        for (size_t step = 0; step < row->length; step++) {
            if (!refused(row->actions[step].kind))
                continue;
            char text[SL_ACTION_TEXT_MAX];
            sl_action_print(&row->actions[step], text);
            return sl_fail(SL_EINVAL,
                           "%s: rank %d, step %zu has %s already; give it a "
                           "schedule without",
                           pass, rank, step, text);
        }
    }
    return SL_OK;
}

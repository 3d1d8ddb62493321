/* SPDX-License-Identifier: MIT
 *
 * Placement: the rank of each stage and the stages of each rank. Made by rule
 * (loop, v), or derived from a schedule's compute actions. */
#include "schedule/schedule.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>

struct sl_placement {
    int ranks;
    int stages;
    int *rank_of;   /* by stage */
    int *first;     /* by rank, ranks + 1 of them: its part of `stages_of` */
    int *stages_of; /* every stage, grouped by rank, ascending within it */
    int memory[];   /* of these three */
};

void sl_placement_destroy(sl_placement *placement)
{
    free(placement);
}

static sl_status create_blank(int ranks, int stages, sl_placement **out)
{
    sl_placement *placement;
    size_t count = 2 * (size_t)stages + (size_t)ranks + 1;
    SL__TRY(sl__alloc(1, sizeof *placement + count * sizeof(int), &placement));
    placement->ranks = ranks;
    placement->stages = stages;
    placement->rank_of = placement->memory;
    placement->stages_of = placement->rank_of + stages;
    placement->first = placement->stages_of + stages;
    *out = placement;
    return SL_OK;
}

/* Fills the stages of each rank from rank_of, by counting sort. */
static void invert(sl_placement *placement)
{
    int *first = placement->first;
    assert(first[0] == 0 && first[placement->ranks] == 0);
    for (int stage = 0; stage < placement->stages; stage++)
        first[placement->rank_of[stage] + 1]++;
    for (int rank = 0; rank < placement->ranks; rank++)
        first[rank + 1] += first[rank];
    /* Stages descend so that each rank's part, filled from its end, ascends;
     * first[rank + 1] walks back to the rank's start, where it becomes the
     * next entry to the left once shifted. */
    for (int stage = placement->stages - 1; stage >= 0; stage--)
        placement->stages_of[--first[placement->rank_of[stage] + 1]] = stage;
    for (int rank = 0; rank < placement->ranks; rank++)
        first[rank] = first[rank + 1];
    first[placement->ranks] = placement->stages;
}

sl_status sl_placement_create(sl_placement_style style, int ranks, int stages,
                              sl_placement **out)
{
    SL__NEED(out);
    if (ranks < 1 || ranks > SL_MAX_RANKS || stages < 1 ||
        stages > SL_MAX_STAGES)
        return sl_fail(SL_EINVAL,
                       "a placement has 1 to %d ranks and 1 to %d stages, not "
                       "%d and %d",
                       SL_MAX_RANKS, SL_MAX_STAGES, ranks, stages);
    if (style != SL_PLACEMENT_LOOP && style != SL_PLACEMENT_V)
        return sl_fail(SL_EINVAL, "unknown placement style: %d", (int)style);
    if (style == SL_PLACEMENT_V && stages % ranks != 0)
        return sl_fail(SL_EINVAL,
                       "a v placement needs stages to be a multiple of ranks: "
                       "%d stages on %d ranks",
                       stages, ranks);
    sl_placement *placement;
    SL__TRY(create_blank(ranks, stages, &placement));
    for (int stage = 0; stage < stages; stage++) {
        int lap = stage / ranks;
        int rank = stage % ranks;
        bool back = style == SL_PLACEMENT_V && lap % 2 == 1;
        placement->rank_of[stage] = back ? ranks - 1 - rank : rank;
    }
    invert(placement);
    *out = placement;
    return SL_OK;
}

static sl_status derive_part(sl_placement *placement, const sl_action *part,
                             int rank, size_t step)
{
    if (sl_action_kind_family(part->kind) != SL_FAMILY_COMPUTE)
        return SL_OK;
    int *home = &placement->rank_of[part->stage];
    if (*home >= 0 && *home != rank)
        return sl_fail(SL_EUNSOUND,
                       "stage %d is on rank %d and, at step %zu, on rank %d",
                       part->stage, *home, step, rank);
    *home = rank;
    return SL_OK;
}

static sl_status derive_all(const sl_schedule *schedule,
                            sl_placement *placement)
{
    for (int stage = 0; stage < placement->stages; stage++)
        placement->rank_of[stage] = -1;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const sl__row *row = &schedule->rows[rank];
        for (size_t step = 0; step < row->length; step++) {
            sl_action parts[2];
            int count = sl_action_parts(&row->actions[step], parts);
            for (int i = 0; i < count; i++)
                SL__TRY(derive_part(placement, &parts[i], rank, step));
        }
    }
    for (int stage = 0; stage < placement->stages; stage++) {
        if (placement->rank_of[stage] < 0)
            return sl_fail(SL_EUNSOUND, "no rank computes stage %d of %d",
                           stage, placement->stages);
    }
    return SL_OK;
}

sl_status sl_placement_derive(const sl_schedule *schedule, sl_placement **out)
{
    SL__NEED(schedule, out);
    sl_extent extent = sl_schedule_extent(schedule);
    sl_placement *placement;
    SL__TRY(create_blank(extent.ranks, extent.stages, &placement));
    sl_status status = derive_all(schedule, placement);
    if (status) {
        sl_placement_destroy(placement);
        return status;
    }
    invert(placement);
    *out = placement;
    return SL_OK;
}

int sl_placement_ranks(const sl_placement *placement)
{
    return placement ? placement->ranks : 0;
}

int sl_placement_stages(const sl_placement *placement)
{
    return placement ? placement->stages : 0;
}

int sl_placement_rank_of(const sl_placement *placement, int stage)
{
    if (!placement || stage < 0 || stage >= placement->stages)
        return -1;
    return placement->rank_of[stage];
}

const int *sl_placement_stages_of(const sl_placement *placement, int rank,
                                  int *count)
{
    bool there = placement && rank >= 0 && rank < placement->ranks;
    const int *first = there ? &placement->first[rank] : NULL;
    if (count)
        *count = there ? first[1] - first[0] : 0;
    return there ? placement->stages_of + *first : NULL;
}

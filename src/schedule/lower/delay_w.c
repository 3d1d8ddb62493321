/* SPDX-License-Identifier: MIT
 *
 * delay-w=N: defers the W's of a stage until those of N microbatches are
 * adjacent; with N = 0, those of all. B is split into I and W for that. The
 * remaining W's of a stage come before its REDUCE_GRAD or RESHARD, or at the
 * end of the row.
 *
 * Adjacent W's are added to the gradient in one pass over it. The cost is
 * memory: what I leaves for W is held until then, for N microbatches of each
 * stage.
 *
 * Requires: nothing.  Ensures: no idle cell, no B; all but W's in the same
 * order; a stage's W's in their order, none before its I, at most N of them
 * deferred.  Invalidates: step numbers. */
#include "schedule/lower/lower.h"
#include "schedule/action.h"
#include "base/arena.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

/* The deferred W's of a stage: their microbatches, in order. */
typedef struct queue {
    int *microbatches;
    size_t count;
    size_t capacity;
} queue;

typedef struct delay {
    size_t most;   /* of a stage; 0: any number */
    queue *queues; /* by stage */
    int *order;    /* stages with deferred W's, in the order of the first */
    size_t order_count;
    uint8_t *known; /* by stage: is in `order` */
    sl__arena memory;
} delay;

static sl_status flush(delay *own, int stage, sl__row *to)
{
    queue *held = &own->queues[stage];
    for (size_t i = 0; i < held->count; i++)
        SL__TRY(sl__row_append(to, sl_action_make(SL_BACKWARD_WEIGHT, stage,
                                                  held->microbatches[i])));
    held->count = 0;
    return SL_OK;
}

static sl_status hold_back(delay *own, const sl_action *part, sl__row *to)
{
    queue *held = &own->queues[part->stage];
    SL__TRY(sl__grow(&held->microbatches, &held->capacity, held->count + 1,
                     sizeof *held->microbatches));
    held->microbatches[held->count++] = part->microbatch;
    if (!own->known[part->stage]) {
        own->known[part->stage] = 1;
        own->order[own->order_count++] = part->stage;
    }
    return held->count == own->most ? flush(own, part->stage, to) : SL_OK;
}

/* An action without its weight gradient: I for B, also in an overlap; any other
 * as it is. */
static sl_action without_weights(const sl_action *action)
{
    sl_action rest = *action;
    if (rest.kind == SL_BACKWARD)
        rest.kind = SL_BACKWARD_INPUT;
    else if (rest.kind == SL_OVERLAP_F_B && rest.b_kind == SL_BACKWARD)
        rest.b_kind = SL_BACKWARD_INPUT;
    return rest;
}

static sl_status delay_action(delay *own, const sl_action *action, sl__row *to)
{
    sl_action parts[2];
    int count = sl_action_parts(action, parts);
    if (action->kind == SL_REDUCE_GRAD || action->kind == SL_RESHARD)
        SL__TRY(flush(own, action->stage, to));
    if (action->kind != SL_BACKWARD_WEIGHT)
        SL__TRY(sl__row_append(to, without_weights(action)));
    for (int i = 0; i < count; i++) {
        if (sl__ends_microbatch(parts[i].kind))
            SL__TRY(hold_back(own, &parts[i], to));
    }
    return SL_OK;
}

static sl_status delay_row(const sl__row *from, sl__row *to, int rank,
                           void *context)
{
    (void)rank;
    delay *own = context;
    for (size_t i = 0; i < own->order_count; i++) {
        own->queues[own->order[i]].count = 0;
        own->known[own->order[i]] = 0;
    }
    own->order_count = 0;
    for (size_t step = 0; step < from->length; step++)
        SL__TRY(delay_action(own, &from->actions[step], to));
    for (size_t i = 0; i < own->order_count; i++)
        SL__TRY(flush(own, own->order[i], to));
    return SL_OK;
}

static sl_status delay_rows(delay *own, const sl_schedule *in, size_t stages,
                            sl_schedule **out)
{
    SL__TRY(SL__TAKE(&own->memory, stages, &own->queues));
    SL__TRY(SL__TAKE(&own->memory, stages, &own->order));
    SL__TRY(SL__TAKE(&own->memory, stages, &own->known));
    return sl__lower_rows(in, delay_row, own, out);
}

sl_status sl_lower_delay_w(const sl_schedule *in, int together,
                           sl_schedule **out)
{
    SL__NEED(in, out);
    if (together < 0)
        return sl_fail(SL_EINVAL,
                       "delay-w needs the number of microbatches to run "
                       "together, or 0 for all, not %d",
                       together);
    delay own = {.most = (size_t)together};
    size_t stages = (size_t)sl_schedule_extent(in).stages;
    sl_status status = delay_rows(&own, in, stages, out);
    for (size_t s = 0; own.queues && s < stages; s++)
        free(own.queues[s].microbatches);
    sl__arena_clear(&own.memory);
    return status;
}

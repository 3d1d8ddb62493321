/* SPDX-License-Identifier: MIT
 *
 * unshard: adds an UNSHARD before the compute of a stage and a RESHARD after
 * it. Before each compute, the distinct stages that the rank computes next are
 * unsharded, as many as its lookahead, and stages that are not among the next
 * `window` are resharded; the rest are resharded at the end. The two stages of
 * an overlap enter the window together.
 *
 * Requires: no UNSHARD or RESHARD yet; window at least 1, lookahead from 1 to
 * the window.  Ensures: no idle cell; every compute lies between UNSHARD and
 * RESHARD of its stages; adjacent RESHARDs are in ascending order of stage,
 * adjacent UNSHARDs in order of use.  Invalidates: step numbers.
 *
 * A linked list has the stages in order of their next use. A first walk goes
 * backwards over the row, moves each used stage to the head of the list, and
 * records where it was; the walk forwards undoes these moves one by one. So a
 * step takes time in proportion to the window, not to the stages. */
#include "schedule/lower/list.h"
#include "schedule/lower/lower.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

#define NONE UINT32_MAX

/* One use of a stage, by an action or by half an overlap. */
typedef struct use {
    uint32_t step;
    uint16_t stage;
    uint32_t stood_after; /* its predecessor in the list; unset if not in it */
    uint32_t next_step; /* of the stage's next use, or NONE: not in the list */
} use;

typedef struct window {
    int size;
    const sl_lookahead *lookahead;
    int fetched; /* stages unsharded in advance on this rank */
    use *uses;   /* of the current row */
    size_t use_count;
    size_t use_capacity;
    sl__list stages;    /* by next use */
    uint32_t *next_use; /* by stage: its step, or NONE: not in the list */
    uint8_t *active;    /* by stage: unsharded now */
    uint8_t *wanted;    /* by stage, scratch: in the window now */
    uint16_t *actives;  /* the active stages, ascending */
    size_t active_count;
    sl__arena memory;
} window;

/* Walks the uses backwards: at the end the list is in order of first use. */
static void list_build(window *w)
{
    assert(w->stages.after[w->stages.end] == w->stages.end);
    for (size_t i = w->use_count; i-- > 0;) {
        use *at = &w->uses[i];
        at->next_step = w->next_use[at->stage];
        if (at->next_step != NONE) {
            at->stood_after = w->stages.before[at->stage];
            sl__list_remove(&w->stages, at->stage);
        }
        sl__list_insert(&w->stages, at->stage, w->stages.end);
        w->next_use[at->stage] = at->step;
    }
}

/* Undoes one use: moves the stage to its position by its next use. */
static void list_advance(window *w, const use *done)
{
    sl__list_remove(&w->stages, done->stage);
    w->next_use[done->stage] = done->next_step;
    if (done->next_step != NONE)
        sl__list_insert(&w->stages, done->stage, done->stood_after);
}

/* Reshards the active stages that are not wanted. */
static sl_status evict(window *w, sl__row *to)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->active_count; i++) {
        uint16_t stage = w->actives[i];
        if (w->wanted[stage]) {
            w->actives[kept++] = stage;
            continue;
        }
        w->active[stage] = 0;
        SL__TRY(sl__row_append(to, sl_action_make(SL_RESHARD, stage, 0)));
    }
    w->active_count = kept;
    return SL_OK;
}

static sl_status fetch(window *w, uint16_t stage, sl__row *to)
{
    size_t at = w->active_count++;
    while (at > 0 && w->actives[at - 1] > stage) {
        w->actives[at] = w->actives[at - 1];
        at--;
    }
    w->actives[at] = stage;
    w->active[stage] = 1;
    return sl__row_append(to, sl_action_make(SL_UNSHARD, stage, 0));
}

/* The element of the list after the next `count` stages. */
static uint32_t end_of(const window *w, int count)
{
    const sl__list *stages = &w->stages;
    uint32_t last = stages->end, at = stages->after[last];
    for (int i = 0; i < count && at != stages->end; i++) {
        last = at;
        at = stages->after[at];
    }
    /* Include the other half of an overlap. */
    if (at != stages->end && w->next_use[at] == w->next_use[last])
        at = stages->after[at];
    return at;
}

/* Moves the window to the first use in the list. */
static sl_status slide(window *w, sl__row *to)
{
    const uint32_t *after = w->stages.after;
    uint32_t first = after[w->stages.end];
    uint32_t end = end_of(w, w->size), fetched_end = end_of(w, w->fetched);
    size_t kept = 0;
    for (uint32_t at = first; at != end; at = after[at]) {
        w->wanted[at] = 1;
        kept += w->active[at];
    }
    if (kept < w->active_count)
        SL__TRY(evict(w, to));
    for (uint32_t at = first; at != end; at = after[at])
        w->wanted[at] = 0;
    for (uint32_t at = first; at != fetched_end; at = after[at]) {
        if (!w->active[at])
            SL__TRY(fetch(w, (uint16_t)at, to));
    }
    return SL_OK;
}

static void collect_uses(const sl__row *row, window *w)
{
    w->use_count = 0;
    for (size_t step = 0; step < row->length; step++) {
        sl_action parts[2];
        if (sl_action_kind_family(row->actions[step].kind) != SL_FAMILY_COMPUTE)
            continue;
        int count = sl_action_parts(&row->actions[step], parts);
        for (int i = 0; i < count; i++)
            w->uses[w->use_count++] =
                (use){.step = (uint32_t)step, .stage = parts[i].stage};
    }
}

static sl_status emit_row(const sl__row *from, window *w, sl__row *to)
{
    size_t used = 0;
    for (size_t step = 0; step < from->length; step++) {
        if (used < w->use_count && w->uses[used].step == step)
            SL__TRY(slide(w, to));
        SL__TRY(sl__row_append(to, from->actions[step]));
        for (; used < w->use_count && w->uses[used].step == step; used++)
            list_advance(w, &w->uses[used]);
    }
    assert(used == w->use_count);
    /* No stage is wanted any more: all active ones are resharded. */
    return evict(w, to);
}

/* How many stages a rank unshards in advance. */
static int resolve(const sl_lookahead *lookahead, int rank, int window_size)
{
    if (lookahead->kind == SL_LOOKAHEAD_EACH)
        return lookahead->of_rank[rank];
    if (lookahead->kind == SL_LOOKAHEAD_AUTO && rank + 2 < window_size)
        return rank + 2;
    return window_size;
}

static sl_status unshard_row(const sl__row *from, sl__row *to, int rank,
                             void *context)
{
    window *w = context;
    w->fetched = resolve(w->lookahead, rank, w->size);
    SL__TRY(sl__grow(&w->uses, &w->use_capacity, 2 * from->length,
                     sizeof *w->uses));
    collect_uses(from, w);
    list_build(w);
    return emit_row(from, w, to);
}

static bool is_sharding(uint8_t kind)
{
    return kind == SL_UNSHARD || kind == SL_RESHARD;
}

static sl_status unshard_rows(window *w, const sl_schedule *in,
                              sl_schedule **out)
{
    size_t stages = SL_MAX_STAGES;
    SL__TRY(sl__list_open(&w->stages, stages, &w->memory));
    SL__TRY(SL__TAKE(&w->memory, stages, &w->next_use));
    SL__TRY(SL__TAKE(&w->memory, stages, &w->active));
    SL__TRY(SL__TAKE(&w->memory, stages, &w->wanted));
    SL__TRY(SL__TAKE(&w->memory, stages, &w->actives));
    memset(w->next_use, 0xff, stages * sizeof *w->next_use);
    return sl__lower_rows(in, unshard_row, w, out);
}

static sl_status check_lookahead(const sl_lookahead *lookahead, int ranks,
                                 int window_size)
{
    if (lookahead->kind < SL_LOOKAHEAD_FULL ||
        lookahead->kind > SL_LOOKAHEAD_EACH)
        return sl_fail(SL_EINVAL, "unknown kind of unshard lookahead: %d",
                       (int)lookahead->kind);
    if (lookahead->kind != SL_LOOKAHEAD_EACH)
        return SL_OK;
    if (lookahead->ranks != ranks || !lookahead->of_rank)
        return sl_fail(SL_EINVAL,
                       "the unshard lookahead has %d numbers, expected one for "
                       "each of %d ranks",
                       lookahead->of_rank ? lookahead->ranks : 0, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        int ahead = lookahead->of_rank[rank];
        if (ahead < 1 || ahead > window_size)
            return sl_fail(SL_EINVAL,
                           "the unshard lookahead of rank %d must be from 1 to "
                           "the window, %d, not %d",
                           rank, window_size, ahead);
    }
    return SL_OK;
}

sl_status sl_lower_unshard(const sl_schedule *in, int window_size,
                           const sl_lookahead *lookahead, sl_schedule **out)
{
    SL__NEED(in, out);
    static const sl_lookahead full = {SL_LOOKAHEAD_FULL, NULL, 0};
    window own = {.size = window_size,
                  .lookahead = lookahead ? lookahead : &full};
    if (window_size < 1)
        return sl_fail(SL_EINVAL,
                       "the unshard window must be at least 1, not %d",
                       window_size);
    SL__TRY(check_lookahead(own.lookahead, in->ranks, window_size));
    SL__TRY(sl__refuse_kinds(in, "unshard", is_sharding));
    sl_status status = unshard_rows(&own, in, out);
    free(own.uses);
    sl__arena_clear(&own.memory);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * unshard: fetch a stage's whole weights before its compute, drop them after.
 * Before each compute the next distinct stages the rank will compute are made
 * whole, as many as its lookahead, and stages that are not among the next
 * `window` are dropped; the rest are dropped at the end. An overlapped pair
 * enters the window whole.
 *
 * Requires: no UNSHARD or RESHARD yet; window at least 1, lookahead from 1 to
 * the window.  Ensures: no idle cell; every compute lies between UNSHARD and
 * RESHARD of its stages; at one place stages are dropped in ascending order and
 * fetched in order of use.  Invalidates: step numbers.
 *
 * The stages in order of next use are a linked list. Walking the row backwards
 * moves each used stage to the front and remembers where it stood; walking it
 * forwards undoes that, so every step costs only the window. */
#include "schedule/lower/lower.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#define NONE UINT32_MAX

/* One use of a stage: an action's, or half an overlap's. */
typedef struct use {
    uint32_t step;
    uint16_t stage;
    uint32_t stood_after; /* stage before it in the list, NONE if unlisted */
    uint32_t next_step;   /* step of the stage's use after this, NONE */
} use;

typedef struct window {
    int size;
    int lookahead; /* of the rank at hand */
    use *uses;
    size_t use_count;
    /* By stage: the list in order of next use, from `head`. */
    uint32_t *after;
    uint32_t *before;
    uint32_t *next_use; /* step of the stage's next use, NONE if unlisted */
    uint8_t *active;    /* unsharded now */
    uint8_t *wanted;    /* scratch: in the window now */
    uint32_t head;
    uint16_t *actives; /* the active stages, ascending */
    size_t active_count;
} window;

static void list_remove(window *w, uint32_t stage)
{
    uint32_t before = w->before[stage], after = w->after[stage];
    if (before == NONE)
        w->head = after;
    else
        w->after[before] = after;
    if (after != NONE)
        w->before[after] = before;
}

/* Puts `stage` after `place`, or at the head when that is NONE. */
static void list_insert(window *w, uint32_t stage, uint32_t place)
{
    uint32_t after = place == NONE ? w->head : w->after[place];
    w->before[stage] = place;
    w->after[stage] = after;
    if (after != NONE)
        w->before[after] = stage;
    if (place == NONE)
        w->head = stage;
    else
        w->after[place] = stage;
}

/* Walks the uses backwards: at the end the list is in order of first use. */
static void list_build(window *w)
{
    for (size_t i = w->use_count; i-- > 0;) {
        use *at = &w->uses[i];
        uint32_t stage = at->stage;
        at->next_step = w->next_use[stage];
        at->stood_after = NONE;
        if (at->next_step != NONE) {
            at->stood_after = w->before[stage];
            list_remove(w, stage);
        }
        list_insert(w, stage, NONE);
        w->next_use[stage] = at->step;
    }
}

/* Undoes one use: the head goes back to where its next use puts it. */
static void list_advance(window *w, const use *done)
{
    uint32_t stage = done->stage;
    list_remove(w, stage);
    w->next_use[stage] = done->next_step;
    /* `stood_after` NONE with a next use means it stood at the head. */
    if (done->next_step != NONE)
        list_insert(w, stage, done->stood_after);
}

static sl_status evict(window *w, sl__row *to)
{
    size_t kept = 0;
    sl_status status = SL_OK;
    for (size_t i = 0; i < w->active_count && !status; i++) {
        uint16_t stage = w->actives[i];
        if (w->wanted[stage]) {
            w->actives[kept++] = stage;
        } else {
            w->active[stage] = 0;
            status = sl__row_append(to, sl_action_make(SL_RESHARD, stage, 0));
        }
    }
    w->active_count = kept;
    return status;
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

/* The end in the list of the next `count` stages: one past the last. */
static uint32_t end_of(const window *w, int count)
{
    uint32_t at = w->head, last = NONE;
    for (int i = 0; i < count && at != NONE; i++) {
        last = at;
        at = w->after[at];
    }
    /* The other half of an overlap comes along. */
    if (at != NONE && last != NONE && w->next_use[at] == w->next_use[last])
        at = w->after[at];
    return at;
}

static sl_status slide(window *w, sl__row *to)
{
    uint32_t end = end_of(w, w->size), near = end_of(w, w->lookahead);
    size_t kept = 0;
    for (uint32_t at = w->head; at != end; at = w->after[at]) {
        w->wanted[at] = 1;
        kept += w->active[at];
    }
    sl_status status = SL_OK;
    if (kept < w->active_count)
        status = evict(w, to);
    for (uint32_t at = w->head; at != end; at = w->after[at])
        w->wanted[at] = 0;
    for (uint32_t at = w->head; at != near && !status; at = w->after[at]) {
        if (!w->active[at])
            status = fetch(w, (uint16_t)at, to);
    }
    return status;
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
    sl_status status = SL_OK;
    for (size_t step = 0; step < from->length && !status; step++) {
        bool computes = used < w->use_count && w->uses[used].step == step;
        if (computes)
            status = slide(w, to);
        if (!status)
            status = sl__row_append(to, from->actions[step]);
        for (; used < w->use_count && w->uses[used].step == step; used++)
            list_advance(w, &w->uses[used]);
    }
    /* Nothing is wanted any more: every active stage goes. */
    return status ? status : evict(w, to);
}

static sl_status unshard_row(const sl__row *from, sl__row *to, window *w)
{
    w->head = NONE;
    free(w->uses);
    w->uses = NULL;
    sl_status status = sl__alloc(2 * from->length, sizeof *w->uses, &w->uses);
    if (!status)
        status = sl__row_reserve(to, from->length);
    if (status)
        return status;
    collect_uses(from, w);
    list_build(w);
    return emit_row(from, w, to);
}

static bool is_sharding(uint8_t kind)
{
    return kind == SL_UNSHARD || kind == SL_RESHARD;
}

static sl_status window_open(window *w, int size)
{
    *w = (window){.size = size, .head = NONE};
    size_t stages = SL_MAX_STAGES;
    sl_status status = sl__alloc(stages, sizeof *w->after, &w->after);
    if (!status)
        status = sl__alloc(stages, sizeof *w->before, &w->before);
    if (!status)
        status = sl__alloc(stages, sizeof *w->next_use, &w->next_use);
    if (!status)
        status = sl__alloc(stages, 1, &w->active);
    if (!status)
        status = sl__alloc(stages, 1, &w->wanted);
    if (!status)
        status = sl__alloc(stages, sizeof *w->actives, &w->actives);
    for (size_t i = 0; !status && i < stages; i++)
        w->next_use[i] = NONE;
    return status;
}

static void window_close(window *w)
{
    free(w->uses);
    free(w->after);
    free(w->before);
    free(w->next_use);
    free(w->active);
    free(w->wanted);
    free(w->actives);
}

/* How far a rank looks ahead. */
static int resolve(const sl_lookahead *lookahead, int rank, int window_size)
{
    if (lookahead->kind == SL_LOOKAHEAD_EACH)
        return lookahead->of_rank[rank];
    if (lookahead->kind == SL_LOOKAHEAD_AUTO && rank + 2 < window_size)
        return rank + 2;
    return window_size;
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

typedef struct unsharding {
    window window;
    const sl_lookahead *lookahead;
} unsharding;

static sl_status unshard_rank(const sl__row *from, sl__row *to, int rank,
                              void *context)
{
    unsharding *own = context;
    own->window.lookahead = resolve(own->lookahead, rank, own->window.size);
    return unshard_row(from, to, &own->window);
}

sl_status sl_lower_unshard(const sl_schedule *in, int window_size,
                           const sl_lookahead *lookahead, sl_schedule **out)
{
    SL__NEED(in, out);
    static const sl_lookahead full = {SL_LOOKAHEAD_FULL, NULL, 0};
    unsharding own = {.lookahead = lookahead ? lookahead : &full};
    if (window_size < 1)
        return sl_fail(SL_EINVAL,
                       "the unshard window must be at least 1, not "
                       "%d",
                       window_size);
    SL__TRY(check_lookahead(own.lookahead, in->ranks, window_size));
    SL__TRY(sl__refuse_kinds(in, "unshard", is_sharding));
    sl_status status = window_open(&own.window, window_size);
    if (!status)
        status = sl__lower_rows(in, unshard_rank, &own, out);
    window_close(&own.window);
    return status;
}

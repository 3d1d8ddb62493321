/* SPDX-License-Identifier: MIT
 *
 * send-budget=N: waits moved forward so that no rank has more than N sends
 * pending. Before a send that would be one too many, the wait of a pending one
 * is moved there: the oldest whose receive must already have been posted, else
 * the oldest that may be waited for without closing a cycle. With N = 0 every
 * send is waited for right behind itself.
 *
 * Requires: each SEND has its RECV, and one WAIT_SEND behind it on its rank; no
 * cycle.  Ensures: no idle cell; all but waits in the same order; each wait
 * behind its send and no later than it was; no cycle; at most N sends pending.
 * Invalidates: step numbers.
 *
 * What must come before what is a graph: each rank's row, a receive after its
 * send, a wait after its receive. Only where an action has such an input from
 * elsewhere is there anything to follow, so the graph is a list of inputs by
 * rank and step. All that must have come before a place in a row is a prefix
 * of every row; the walk along a row keeps these prefixes, the `front`, and
 * extends them by each input it meets. A receive inside the front has been
 * posted. For another, the front is extended to it for a try: if that leads
 * back to the walk's own rank, at or behind where it stands, the receive waits
 * for this place, and waiting for it here would never end. Waits whose receive
 * was in the front add nothing to the graph; the others add an input. */
#include "schedule/lower/lower.h"
#include "schedule/action.h"
#include "schedule/events.h"
#include "schedule/visits.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

#define NONE UINT32_MAX

/* The action at `step` comes after the one at (rank, on_step). */
typedef struct input {
    uint32_t step;
    uint16_t rank;
    uint32_t on_step;
} input;

typedef struct inputs {
    input *data; /* by step, ascending; and by on_step, of each rank */
    size_t count;
    size_t capacity;
    size_t sources; /* from how many ranks they are */
} inputs;

/* How far the front goes on a rank: to before `step`, with that many of its
 * inputs taken in. */
typedef struct reach {
    uint32_t step;
    size_t given;
    size_t added;
} reach;

/* What a try changed. */
typedef struct change {
    uint16_t rank;
    reach before;
} change;

typedef struct budget {
    const sl__events *events;
    int most;
    inputs *given;   /* by rank: of the schedule as it came */
    inputs *added;   /* by rank: waits moved to before their receive */
    reach *front;    /* by rank */
    uint16_t *todo;  /* ranks of which inputs may be missing in the front */
    uint8_t *queued; /* by rank: whether it is in `todo` */
    size_t todo_count;
    change *changes; /* of the try being made, at most one per rank */
    size_t change_count;
    uint32_t *tried; /* by rank: the latest try that changed it */
    uint32_t try;
    uint64_t *met; /* by rank: the latest round that met it as a source */
    uint64_t round;
    int rank;       /* whose row is walked, */
    uint32_t step;  /* and where the walk stands; the front may be behind */
    uint32_t *told; /* by rank: how far messages received on the walk tell */
    size_t told_inputs; /* of `given`, that are in there */
    int *source_of; /* by rank: the latest that it is a source of `added` of */
    /* Of that row, by step: pending sends as a list in order. */
    uint32_t *after, *before;
    uint32_t head, tail;
    int pending;
    uint8_t *moved; /* by step of a send: its wait was */
} budget;

static uint32_t step_of(const budget *b, uint32_t node)
{
    return sl__step_of(b->events, node);
}

/* ------------------------------------------------------------ the graph -- */

static sl_status add_input(inputs *to, uint32_t step, const budget *b,
                           uint32_t on)
{
    assert(!to->count || to->data[to->count - 1].step <= step);
    SL__TRY(
        sl__grow(&to->data, &to->capacity, to->count + 1, sizeof *to->data));
    to->data[to->count++] =
        (input){step, b->events->rank_of[on], step_of(b, on)};
    return SL_OK;
}

static sl_status refuse(const budget *b, uint32_t node, const char *why)
{
    char text[SL_ACTION_TEXT_MAX];
    sl_action_print(sl__action_at(b->events, node), text);
    return sl_fail(SL_EUNSOUND, "send-budget: rank %d, step %u: %s %s",
                   b->events->rank_of[node], step_of(b, node), text, why);
}

static uint32_t wait_of(const budget *b, const sl_action *send)
{
    return sl__event(b->events,
                     send->kind == SL_SEND_F ? SL_WAIT_SEND_F : SL_WAIT_SEND_B,
                     send->stage, send->microbatch);
}

static uint32_t send_of(const budget *b, const sl_action *wait)
{
    return sl__event(b->events, sl__awaited_send(wait->kind), wait->stage,
                     wait->microbatch);
}

/* The same of the schedule as it came; not where a message from further down
 * that rank has come before. `seen` has, by rank, how far such messages tell. */
static sl_status give_input(budget *b, uint32_t node, uint32_t on,
                            uint32_t *seen)
{
    uint32_t *told = &seen[b->events->rank_of[on]];
    uint32_t end = step_of(b, on) + 1;
    inputs *to = &b->given[b->events->rank_of[node]];
    if (*told >= end)
        return SL_OK;
    to->sources += *told == 0;
    *told = end;
    return add_input(to, step_of(b, node), b, on);
}

/* Takes in what an action waits for elsewhere, and refuses what does not pair.
 */
static sl_status take_in(budget *b, uint32_t node, uint32_t *seen)
{
    const sl_action *action = sl__action_at(b->events, node);
    if (sl__is_send(action->kind)) {
        if (sl__peer(b->events, node) == SL__NOWHERE)
            return refuse(b, node, "has no receive of its own");
        if (wait_of(b, action) == SL__NOWHERE)
            return refuse(b, node, "has no wait");
        return SL_OK;
    }
    if (sl__is_communication(action->kind)) {
        uint32_t send = sl__peer(b->events, node);
        if (send == SL__NOWHERE)
            return refuse(b, node, "has no send of its own");
        return give_input(b, node, send, seen);
    }
    if (!sl__is_send_wait(action->kind))
        return SL_OK;
    uint32_t send = send_of(b, action);
    if (send == SL__NOWHERE || send > node ||
        b->events->rank_of[send] != b->events->rank_of[node])
        return refuse(b, node, "has no send before it");
    if (wait_of(b, sl__action_at(b->events, send)) != node)
        return refuse(b, node, "waits for what was waited for before");
    return give_input(b, node, sl__peer(b->events, send), seen);
}

static sl_status take_all_in(budget *b)
{
    size_t ranks = (size_t)b->events->extent.ranks;
    uint32_t *seen;
    sl_status status = SL_OK;
    SL__TRY(sl__alloc(ranks, sizeof *seen, &seen));
    for (size_t rank = 0; rank < ranks && !status; rank++) {
        memset(seen, 0, ranks * sizeof *seen);
        for (uint32_t node = b->events->first[rank];
             node < b->events->first[rank + 1] && !status; node++)
            status = take_in(b, node, seen);
    }
    free(seen);
    return status;
}

/* ---------------------------------------------------------- no cycle yet -- */

/* Lets a rank run until an input is missing, at which it is parked; `at` has
 * how many inputs each rank has met. */
static void run_rank(const budget *b, size_t *at, int rank,
                     sl__waiters *waiters, sl__visits *visits, uint64_t turn)
{
    const inputs *own = &b->given[rank];
    for (; at[rank] < own->count; at[rank]++) {
        const input *next = &own->data[at[rank]];
        const inputs *others = &b->given[next->rank];
        size_t reached = at[next->rank];
        bool done = next->rank == rank
                        ? next->on_step < next->step
                        : reached == others->count ||
                              others->data[reached].step > next->on_step;
        if (!done) {
            sl__waiters_park(
                waiters, b->events->first[next->rank] + next->on_step, rank);
            return;
        }
        /* Whoever waited for this action, or for one before the next input. */
        uint32_t end =
            at[rank] + 1 < own->count
                ? own->data[at[rank] + 1].step
                : (uint32_t)sl_schedule_length(b->events->schedule, rank);
        for (uint32_t s = next->step; s < end; s++) {
            for (int other; (other = sl__waiters_take(
                                 waiters, b->events->first[rank] + s)) >= 0;)
                sl__visits_push(visits, turn + 1, other);
        }
    }
}

static sl_status find_cycle(const budget *b, size_t *at, sl__waiters *waiters,
                            sl__visits *visits)
{
    int ranks = b->events->extent.ranks, rank;
    uint64_t turn;
    for (rank = 0; rank < ranks; rank++)
        sl__visits_push(visits, 0, rank);
    while (sl__visits_pop(visits, &turn, &rank))
        run_rank(b, at, rank, waiters, visits, turn);
    for (rank = 0; rank < ranks; rank++) {
        if (at[rank] < b->given[rank].count)
            return refuse(
                b, b->events->first[rank] + b->given[rank].data[at[rank]].step,
                "can never be reached: sends, receives and waits form a cycle");
    }
    return SL_OK;
}

static sl_status check_cycles(const budget *b)
{
    int ranks = b->events->extent.ranks;
    sl__waiters waiters = {0};
    sl__visits visits = {0};
    size_t *at = NULL;
    sl_status status = sl__alloc((size_t)ranks, sizeof *at, &at);
    if (!status)
        status = sl__waiters_open(&waiters, b->events->nodes, ranks);
    if (!status)
        status = sl__visits_open(&visits, ranks);
    if (!status)
        status = find_cycle(b, at, &waiters, &visits);
    free(at);
    sl__waiters_close(&waiters);
    sl__visits_close(&visits);
    return status;
}

/* ------------------------------------------------------------ the front -- */

/* Has the front go to before `step` on a rank; false where that is the rank of
 * the walk, which stands no further than there. */
static inline bool raise_to(budget *b, int rank, uint32_t step)
{
    reach *at = &b->front[rank];
    if (step <= at->step)
        return true;
    if (rank == b->rank)
        return false;
    if (b->tried[rank] != b->try) {
        b->tried[rank] = b->try;
        b->changes[b->change_count++] = (change){(uint16_t)rank, *at};
    }
    at->step = step;
    if (!b->queued[rank]) {
        b->queued[rank] = 1;
        b->todo[b->todo_count++] = (uint16_t)rank;
    }
    return true;
}

/* How many inputs there are before a step, of which `least` surely are. */
static size_t count_before(const inputs *from, uint32_t end, size_t least)
{
    size_t span = 1;
    while (least + span <= from->count &&
           from->data[least + span - 1].step < end) {
        least += span;
        span *= 2;
    }
    for (; span > 0; span /= 2) {
        if (least + span <= from->count &&
            from->data[least + span - 1].step < end)
            least += span;
    }
    return least;
}

/* Takes in the inputs of a rank before a step. Of many, the last of each source
 * says what the others do. */
static inline bool take_inputs(budget *b, const inputs *from, uint32_t end,
                               size_t *at)
{
    enum { FEW = 4 };
    size_t known = *at, met = 0;
    for (; *at < from->count && from->data[*at].step < end; ++*at) {
        const input *next = &from->data[*at];
        if (*at == known + FEW)
            break;
        if (!raise_to(b, next->rank, next->on_step + 1))
            return false;
    }
    if (*at < known + FEW)
        return true;
    size_t next = *at = count_before(from, end, *at);
    b->round++;
    while (next > known + FEW && met < from->sources) {
        const input *last = &from->data[--next];
        met += b->met[last->rank] != b->round;
        b->met[last->rank] = b->round;
        if (!raise_to(b, last->rank, last->on_step + 1))
            return false;
    }
    return true;
}

/* Takes in what is missing, until nothing is; false where the walk's own place
 * would be among it. */
static bool complete(budget *b, bool free_of_us)
{
    while (b->todo_count) {
        int next = b->todo[--b->todo_count];
        reach *at = &b->front[next];
        b->queued[next] = 0;
        free_of_us = free_of_us &&
                     take_inputs(b, &b->given[next], at->step, &at->given) &&
                     take_inputs(b, &b->added[next], at->step, &at->added);
    }
    return free_of_us;
}

/* Extends the front by an action and all that comes before it; false where the
 * walk's own place is among that. */
static bool extend(budget *b, int rank, uint32_t step)
{
    b->try++;
    b->change_count = 0;
    return complete(b, raise_to(b, rank, step + 1));
}

static void undo(budget *b)
{
    while (b->change_count) {
        const change *last = &b->changes[--b->change_count];
        b->front[last->rank] = last->before;
    }
}

/* Brings the front to where the walk stands, its own inputs there included. */
static void catch_up(budget *b)
{
    reach *own = &b->front[b->rank];
    b->try++;
    b->change_count = 0;
    own->step = b->step;
    bool known = complete(
        b, take_inputs(b, &b->given[b->rank], b->step + 1, &own->given));
    assert(known); /* No cycle was there, and none was made. */
    (void)known;
}

/* -------------------------------------------------------------- pending -- */

static void push_pending(budget *b, uint32_t step)
{
    b->after[step] = NONE;
    b->before[step] = b->tail;
    if (b->tail == NONE)
        b->head = step;
    else
        b->after[b->tail] = step;
    b->tail = step;
    b->pending++;
}

static void drop_pending(budget *b, uint32_t step)
{
    if (b->before[step] == NONE)
        b->head = b->after[step];
    else
        b->after[b->before[step]] = b->after[step];
    if (b->after[step] == NONE)
        b->tail = b->before[step];
    else
        b->before[b->after[step]] = b->before[step];
    b->pending--;
}

/* ------------------------------------------------------------- the walk -- */

static uint32_t receive_of(const budget *b, uint32_t send_step)
{
    return sl__peer(b->events, b->events->first[b->rank] + send_step);
}

/* Whether a send may be waited for where the walk stands, though its receive
 * need not have been posted; if so, it has been from here on. */
static sl_status try_waiting(budget *b, uint32_t send_step, bool *out)
{
    uint32_t receive = receive_of(b, send_step);
    *out = extend(b, b->events->rank_of[receive], step_of(b, receive));
    if (!*out) {
        undo(b);
        return SL_OK;
    }
    inputs *to = &b->added[b->rank];
    int source = b->events->rank_of[receive];
    to->sources += b->source_of[source] != b->rank;
    b->source_of[source] = b->rank;
    return add_input(to, b->step, b, receive);
}

/* Whether a message from the receiver tells that it has posted the receive:
 * mostly so, and found without the front. */
static bool is_told(budget *b, uint32_t send_step)
{
    uint32_t receive = receive_of(b, send_step);
    const inputs *given = &b->given[b->rank];
    for (; b->told_inputs < given->count &&
           given->data[b->told_inputs].step <= b->step;
         b->told_inputs++) {
        const input *next = &given->data[b->told_inputs];
        if (next->on_step >= b->told[next->rank])
            b->told[next->rank] = next->on_step + 1;
    }
    return b->told[b->events->rank_of[receive]] > step_of(b, receive);
}

static bool is_posted(const budget *b, uint32_t send_step)
{
    uint32_t receive = receive_of(b, send_step);
    return b->front[b->events->rank_of[receive]].step > step_of(b, receive);
}

/* The pending send to wait for where the walk stands, or NONE. */
static sl_status choose(budget *b, uint32_t *out)
{
    *out = b->head;
    if (is_told(b, b->head))
        return SL_OK;
    catch_up(b);
    *out = NONE;
    for (uint32_t at = b->head; at != NONE; at = b->after[at]) {
        if (is_posted(b, at)) {
            *out = at;
            return SL_OK;
        }
    }
    for (uint32_t at = b->head; at != NONE; at = b->after[at]) {
        bool may;
        SL__TRY(try_waiting(b, at, &may));
        if (may) {
            *out = at;
            return SL_OK;
        }
    }
    return SL_OK;
}

static sl_status refuse_budget(const budget *b, const sl__row *from,
                               uint32_t step)
{
    char next[SL_ACTION_TEXT_MAX], oldest[SL_ACTION_TEXT_MAX];
    sl_action_print(&from->actions[step], next);
    sl_action_print(&from->actions[b->head], oldest);
    return sl_fail(SL_EUNSOUND,
                   "send-budget=%d: rank %d, step %u: %s would be one pending "
                   "send too many, and none of the %d pending ones, the oldest "
                   "%s, can be waited for there without a deadlock; give it a "
                   "larger number",
                   b->most, b->rank, step, next, b->pending, oldest);
}

static sl_status append_wait(budget *b, const sl__row *from, uint32_t send_step,
                             sl__row *to)
{
    const sl_action *send = &from->actions[send_step];
    b->moved[send_step] = 1;
    drop_pending(b, send_step);
    return sl__row_append(to, *sl__action_at(b->events, wait_of(b, send)));
}

/* Waits for pending sends, at the walk's place, until fewer than `fewer` are
 * left. */
static sl_status make_room(budget *b, const sl__row *from, uint32_t step,
                           int fewer, sl__row *to)
{
    while (b->pending >= fewer) {
        uint32_t chosen;
        SL__TRY(choose(b, &chosen));
        if (chosen == NONE)
            return refuse_budget(b, from, step);
        SL__TRY(append_wait(b, from, chosen, to));
    }
    return SL_OK;
}

static sl_status walk_step(budget *b, const sl__row *from, uint32_t step,
                           sl__row *to)
{
    const sl_action *action = &from->actions[step];
    b->step = step;
    if (sl__is_send_wait(action->kind)) {
        uint32_t send = step_of(b, send_of(b, action));
        if (b->moved[send])
            return SL_OK;
        drop_pending(b, send);
    }
    if (!sl__is_send(action->kind))
        return sl__row_append(to, *action);
    if (b->most > 0)
        SL__TRY(make_room(b, from, step, b->most, to));
    SL__TRY(sl__row_append(to, *action));
    push_pending(b, step);
    b->moved[step] = 0;
    if (b->most == 0) {
        b->step = step + 1;
        SL__TRY(make_room(b, from, step, 1, to));
    }
    return SL_OK;
}

static sl_status walk_row(const sl__row *from, sl__row *to, int rank,
                          void *context)
{
    budget *b = context;
    b->rank = rank;
    b->head = b->tail = NONE;
    b->pending = 0;
    b->told_inputs = 0;
    for (int other = 0; other < b->events->extent.ranks; other++) {
        b->front[other] = (reach){0, 0, 0};
        b->told[other] = 0;
    }
    SL__TRY(sl__row_reserve(to, from->length));
    for (uint32_t step = 0; step < from->length; step++)
        SL__TRY(walk_step(b, from, step, to));
    return SL_OK;
}

/* ----------------------------------------------------------- life, call -- */

static sl_status budget_open(budget *b)
{
    size_t ranks = (size_t)b->events->extent.ranks;
    size_t longest = b->events->extent.longest;
    SL__TRY(sl__alloc(ranks, sizeof *b->given, &b->given));
    SL__TRY(sl__alloc(ranks, sizeof *b->added, &b->added));
    SL__TRY(sl__alloc(ranks, sizeof *b->front, &b->front));
    SL__TRY(sl__alloc(ranks, sizeof *b->todo, &b->todo));
    SL__TRY(sl__alloc(ranks, sizeof *b->queued, &b->queued));
    SL__TRY(sl__alloc(ranks, sizeof *b->changes, &b->changes));
    SL__TRY(sl__alloc(ranks, sizeof *b->tried, &b->tried));
    SL__TRY(sl__alloc(ranks, sizeof *b->told, &b->told));
    SL__TRY(sl__alloc(ranks, sizeof *b->met, &b->met));
    SL__TRY(sl__alloc(ranks, sizeof *b->source_of, &b->source_of));
    for (size_t rank = 0; rank < ranks; rank++)
        b->source_of[rank] = -1;
    SL__TRY(sl__alloc(longest, sizeof *b->after, &b->after));
    SL__TRY(sl__alloc(longest, sizeof *b->before, &b->before));
    SL__TRY(sl__alloc(longest, sizeof *b->moved, &b->moved));
    SL__TRY(take_all_in(b));
    return check_cycles(b);
}

static void budget_close(budget *b)
{
    for (int rank = 0; rank < b->events->extent.ranks; rank++) {
        if (b->given)
            free(b->given[rank].data);
        if (b->added)
            free(b->added[rank].data);
    }
    free(b->given);
    free(b->added);
    free(b->front);
    free(b->todo);
    free(b->queued);
    free(b->changes);
    free(b->tried);
    free(b->told);
    free(b->met);
    free(b->source_of);
    free(b->after);
    free(b->before);
    free(b->moved);
}

sl_status sl_lower_send_budget(const sl_schedule *in, int most,
                               sl_schedule **out)
{
    SL__NEED(in, out);
    if (most < 0)
        return sl_fail(SL_EINVAL, "a send budget is 0 or more, not %d", most);
    /* Steps are those of rows without idle cells, here and in the events. */
    sl_schedule *busy;
    sl__events events;
    SL__TRY(sl_lower_drop_idle(in, &busy));
    sl_status status = sl__events_open(busy, &events);
    if (!status) {
        budget own = {.events = &events, .most = most};
        status = budget_open(&own);
        if (!status)
            status = sl__lower_rows(busy, walk_row, &own, out);
        budget_close(&own);
        sl__events_close(&events);
    }
    sl_schedule_destroy(busy);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * See random_schedule.h. Deliberately naive: it looks for what can run next
 * among all actions, and knows nothing of the library's tables. */
#include "random_schedule.h"
#include "support.h"

#include <stdlib.h>

int test_below(test_dice *random, int limit)
{
    /* xorshift64* */
    uint64_t x = random->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return (int)((x * UINT64_C(0x2545F4914F6CDD1D) >> 33) % (uint64_t)limit);
}

test_shape test_random_shape(test_dice *random)
{
    test_shape shape = {
        .ranks = 1 + test_below(random, 4),
        .microbatches = 2 + test_below(random, 4),
        .messages = test_below(random, 2),
        .overlaps = test_below(random, 3) == 0,
        .idle = test_below(random, 3) == 0,
    };
    shape.stages = shape.ranks + test_below(random, 5);
    return shape;
}

/* What has happened to one stage and microbatch. */
typedef struct cell {
    bool split; /* I and W, not B */
    bool f, i, w, b;
    bool sent_f, sent_b, posted_f, posted_b;
} cell;

typedef struct drawing {
    test_shape shape;
    int *home; /* by stage */
    cell *cells;
    sl_schedule *out;
} drawing;

static cell *at(const drawing *d, int stage, int mb)
{
    return &d->cells[stage * d->shape.microbatches + mb];
}

static bool backward_done(const cell *c)
{
    return c->b || c->i;
}

/* Whether the result of `from` can be used by the cell `to` on its rank. */
static bool arrived(const drawing *d, int from, int to, bool done, bool posted,
                    bool sent)
{
    if (d->home[from] == d->home[to] || !d->shape.messages)
        return done;
    return posted && sent;
}

static bool can_forward(const drawing *d, int s, int mb)
{
    const cell *c = at(d, s, mb);
    if (c->f)
        return false;
    if (s == 0)
        return true;
    const cell *from = at(d, s - 1, mb);
    return arrived(d, s - 1, s, from->f, c->posted_f, from->sent_f);
}

static bool can_backward(const drawing *d, int s, int mb)
{
    const cell *c = at(d, s, mb);
    if (!c->f || backward_done(c))
        return false;
    if (s == d->shape.stages - 1)
        return true;
    const cell *from = at(d, s + 1, mb);
    return arrived(d, s + 1, s, backward_done(from), c->posted_b, from->sent_b);
}

static bool crosses(const drawing *d, int s, int other)
{
    return d->shape.messages && other >= 0 && other < d->shape.stages &&
           d->home[s] != d->home[other];
}

static void put(drawing *d, int rank, sl_action action)
{
    assert_ok(sl_schedule_append(d->out, rank, action));
}

static sl_action backward_action(const cell *c, int s, int mb)
{
    return sl_action_make(c->split ? SL_BACKWARD_INPUT : SL_BACKWARD, s, mb);
}

static void mark_backward(cell *c)
{
    if (c->split)
        c->i = true;
    else
        c->b = true;
}

/* Draws an overlap of this forward with any backward ready on its rank. */
static bool draw_overlap(drawing *d, int s, int mb)
{
    for (int s2 = 0; s2 < d->shape.stages; s2++) {
        for (int mb2 = 0; mb2 < d->shape.microbatches; mb2++) {
            if (d->home[s2] != d->home[s] || !can_backward(d, s2, mb2))
                continue;
            cell *c = at(d, s2, mb2);
            put(d, d->home[s],
                sl_action_overlap(sl_action_make(SL_FORWARD, s, mb),
                                  backward_action(c, s2, mb2)));
            at(d, s, mb)->f = true;
            mark_backward(c);
            return true;
        }
    }
    return false;
}

/* Does one kind of thing to one cell if it can be done. */
static bool draw(drawing *d, test_dice *random, int kind, int s, int mb)
{
    cell *c = at(d, s, mb);
    int rank = d->home[s];
    switch (kind) {
    case SL_FORWARD:
        if (!can_forward(d, s, mb))
            return false;
        if (d->shape.overlaps && test_below(random, 2) &&
            draw_overlap(d, s, mb))
            return true;
        c->f = true;
        break;
    case SL_BACKWARD:
        if (!can_backward(d, s, mb))
            return false;
        put(d, rank, backward_action(c, s, mb));
        mark_backward(c);
        return true;
    case SL_BACKWARD_WEIGHT:
        if (!c->i || c->w)
            return false;
        c->w = true;
        break;
    case SL_SEND_F:
        if (!crosses(d, s, s + 1) || !c->f || c->sent_f)
            return false;
        c->sent_f = true;
        break;
    case SL_SEND_B:
        if (!crosses(d, s, s - 1) || !backward_done(c) || c->sent_b)
            return false;
        c->sent_b = true;
        break;
    case SL_RECV_F:
        if (!crosses(d, s, s - 1) || c->posted_f)
            return false;
        c->posted_f = true;
        break;
    case SL_RECV_B:
        if (!crosses(d, s, s + 1) || c->posted_b)
            return false;
        c->posted_b = true;
        break;
    default: return false;
    }
    put(d, rank, sl_action_make((sl_action_kind)kind, s, mb));
    return true;
}

static bool is_finished(const drawing *d)
{
    for (int s = 0; s < d->shape.stages; s++) {
        for (int mb = 0; mb < d->shape.microbatches; mb++) {
            const cell *c = at(d, s, mb);
            bool sent = (!crosses(d, s, s + 1) || c->sent_f) &&
                        (!crosses(d, s, s - 1) || c->sent_b);
            if (!c->f || !backward_done(c) || (c->i && !c->w) || !sent)
                return false;
        }
    }
    return true;
}

static void place_stages(drawing *d, test_dice *random)
{
    /* Every rank gets a stage; the rest fall anywhere. */
    for (int s = 0; s < d->shape.stages; s++)
        d->home[s] =
            s < d->shape.ranks ? s : test_below(random, d->shape.ranks);
    for (int s = d->shape.stages - 1; s > 0; s--) {
        int other = test_below(random, s + 1), kept = d->home[s];
        d->home[s] = d->home[other];
        d->home[other] = kept;
    }
}

sl_schedule *test_random_schedule(test_dice *random, const test_shape *shape)
{
    static const int kinds[] = {SL_FORWARD, SL_BACKWARD, SL_BACKWARD_WEIGHT,
                                SL_SEND_F,  SL_RECV_F,   SL_SEND_B,
                                SL_RECV_B};
    drawing d = {.shape = *shape};
    size_t cells = (size_t)(shape->stages * shape->microbatches);
    d.home = calloc((size_t)shape->stages, sizeof *d.home);
    d.cells = calloc(cells, sizeof *d.cells);
    assert_ok(sl_schedule_create(shape->ranks, &d.out));
    place_stages(&d, random);
    for (size_t i = 0; i < cells; i++)
        d.cells[i].split = test_below(random, 2);
    while (!is_finished(&d)) {
        int kind = kinds[test_below(random, 7)];
        int s = test_below(random, shape->stages);
        int mb = test_below(random, shape->microbatches);
        if (draw(&d, random, kind, s, mb) && shape->idle &&
            test_below(random, 3) == 0)
            put(&d, test_below(random, shape->ranks),
                sl_action_make(SL_IDLE, 0, 0));
    }
    free(d.home);
    free(d.cells);
    return d.out;
}

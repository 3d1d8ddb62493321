/* SPDX-License-Identifier: MIT */
#include "brute_force.h"

#include "support.h"

#include <string.h>

/* A run, and how far it has come. */
typedef struct brute {
    const test_draft *d;
    sl_reading reading;
    int at[8];             /* by rank: actions passed */
    bool complete[8][600]; /* messages done (all but async) */
} brute;

static bool passed(const brute *b, int rank, int step)
{
    return step < b->at[rank];
}

/* The other end of the message at (rank, step), if it has one. */
static bool other_end(const brute *b, int rank, int step, int *r, int *s)
{
    sl_action a = b->d->rows[rank][step];
    static const struct {
        uint8_t kind, other;
        int stage;
    } ends[] = {{SL_SEND_F, SL_RECV_F, 1},
                {SL_RECV_F, SL_SEND_F, -1},
                {SL_SEND_B, SL_RECV_B, -1},
                {SL_RECV_B, SL_SEND_B, 1}};
    int first_rank, first_step;
    test_draft_find(b->d, a.kind, a.stage, a.microbatch, &first_rank,
                    &first_step);
    if (first_rank != rank || first_step != step)
        return false; /* a repetition */
    for (int i = 0; i < 4; i++)
        if (ends[i].kind == a.kind)
            return test_draft_find(b->d, ends[i].other, a.stage + ends[i].stage,
                                   a.microbatch, r, s);
    return false;
}

bool test_is_message(sl_action a)
{
    return sl_action_kind_family(a.kind) == SL_FAMILY_COMM;
}

static bool is_send(sl_action a)
{
    return a.kind == SL_SEND_F || a.kind == SL_SEND_B;
}

static bool has_messages(const test_draft *d)
{
    for (int r = 0; r < d->ranks; r++)
        for (int s = 0; s < d->lengths[r]; s++)
            if (test_is_message(d->rows[r][s]))
                return true;
    return false;
}

static int stage_count(const test_draft *d)
{
    int stages = 0;
    for (int r = 0; r < d->ranks; r++)
        for (int s = 0; s < d->lengths[r]; s++) {
            sl_action parts[2];
            int count = sl_action_parts(&d->rows[r][s], parts);
            for (int i = 0; i < count; i++)
                if (parts[i].stage >= stages)
                    stages = parts[i].stage + 1;
        }
    return stages;
}

/* Whether the message received at (rank, step) is there. */
static bool received(const brute *b, int rank, int step)
{
    int r, s;
    if (b->reading != SL_ASYNC)
        return b->complete[rank][step];
    return passed(b, rank, step) && other_end(b, rank, step, &r, &s) &&
           passed(b, r, s);
}

/* Whether a neighbour's result has come to `rank`. */
static bool have(const brute *b, int rank, bool forward, int from, int to,
                 int mb)
{
    int r, s;
    bool exists =
        forward
            ? test_draft_find(b->d, SL_FORWARD, from, mb, &r, &s)
            : test_draft_find(b->d, SL_BACKWARD, from, mb, &r, &s) ||
                  test_draft_find(b->d, SL_BACKWARD_INPUT, from, mb, &r, &s);
    if (exists && r == rank)
        return passed(b, r, s);
    if (!has_messages(b->d))
        return exists && passed(b, r, s);
    return test_draft_find(b->d, forward ? SL_RECV_F : SL_RECV_B, to, mb, &r,
                           &s) &&
           received(b, r, s);
}

/* Whether what a wait is for is complete: of a send, when its message is. */
static bool awaited(const brute *b, sl_action wait)
{
    int r, s, r2, s2;
    if (wait.kind == SL_WAIT_REDUCE_GRAD)
        return test_draft_find(b->d, SL_REDUCE_GRAD, wait.stage, 0, &r, &s) &&
               passed(b, r, s);
    if (!test_draft_find(b->d,
                         wait.kind == SL_WAIT_SEND_F ? SL_SEND_F : SL_SEND_B,
                         wait.stage, wait.microbatch, &r, &s) ||
        !other_end(b, r, s, &r2, &s2))
        return false;
    if (b->reading != SL_ASYNC)
        return b->complete[r][s];
    return passed(b, r, s) && passed(b, r2, s2);
}

static bool did(const brute *b, sl_action_kind kind, int stage, int mb)
{
    int r, s;
    return test_draft_find(b->d, kind, stage, mb, &r, &s) && passed(b, r, s);
}

static bool backward_did(const brute *b, int stage, int mb)
{
    int r, s;
    if (test_draft_find(b->d, SL_BACKWARD, stage, mb, &r, &s))
        return passed(b, r, s);
    return did(b, SL_BACKWARD_INPUT, stage, mb);
}

static bool inputs_there(const brute *b, int rank, sl_action a, int stages)
{
    sl_action parts[2];
    int count = sl_action_parts(&a, parts);
    for (int i = 0; i < count; i++) {
        int stage = parts[i].stage, mb = parts[i].microbatch;
        bool there = true;
        switch (parts[i].kind) {
        case SL_FORWARD:
            there = stage == 0 || have(b, rank, true, stage - 1, stage, mb);
            break;
        case SL_BACKWARD:
        case SL_BACKWARD_INPUT:
            there = did(b, SL_FORWARD, stage, mb) &&
                    (stage == stages - 1 ||
                     have(b, rank, false, stage + 1, stage, mb));
            break;
        case SL_BACKWARD_WEIGHT: {
            int r, s;
            there = test_draft_find(b->d, SL_BACKWARD_INPUT, stage, mb, &r, &s)
                        ? passed(b, r, s)
                        : did(b, SL_BACKWARD, stage, mb);
            break;
        }
        case SL_SEND_F: there = did(b, SL_FORWARD, stage, mb); break;
        case SL_SEND_B: there = backward_did(b, stage, mb); break;
        case SL_WAIT_SEND_F:
        case SL_WAIT_SEND_B:
        case SL_WAIT_REDUCE_GRAD: there = awaited(b, parts[i]); break;
        default: break;
        }
        if (!there)
            return false;
    }
    return true;
}

/* Whether two messages of a rank go the same way, to or from the same rank. */
static bool same_way(const brute *b, int rank, int one, int two)
{
    int r1, s1, r2, s2;
    bool sends1 = is_send(b->d->rows[rank][one]);
    bool sends2 = is_send(b->d->rows[rank][two]);
    return sends1 == sends2 && other_end(b, rank, one, &r1, &s1) &&
           other_end(b, rank, two, &r2, &s2) && r1 == r2;
}

/* Whether every message that must be before (rank, step) is complete; of all
 * where that is the row's end. */
static bool first_in_sequence(const brute *b, int rank, int step)
{
    for (int s = 0; s < step; s++) {
        bool before =
            test_is_message(b->d->rows[rank][s]) &&
            (b->reading == SL_ORDERED || step == b->d->lengths[rank] ||
             same_way(b, rank, s, step));
        if (before && !b->complete[rank][s])
            return false;
    }
    return true;
}

static bool complete_message(brute *b, int rank, int step, int stages)
{
    int r, s;
    if (b->complete[rank][step] || !other_end(b, rank, step, &r, &s))
        return false;
    bool go;
    if (b->reading != SL_BLOCKING)
        go = passed(b, rank, step) && passed(b, r, s) &&
             first_in_sequence(b, rank, step) && first_in_sequence(b, r, s);
    else
        go = b->at[rank] == step && b->at[r] == s &&
             inputs_there(b, rank, b->d->rows[rank][step], stages) &&
             inputs_there(b, r, b->d->rows[r][s], stages);
    if (!go)
        return false;
    b->complete[rank][step] = b->complete[r][s] = true;
    if (b->reading == SL_BLOCKING) {
        b->at[rank]++;
        b->at[r]++;
    }
    return true;
}

bool test_deadlocks_by_force(const test_draft *d, sl_reading reading)
{
    static brute b;
    memset(&b, 0, sizeof b);
    b.d = d;
    b.reading = reading;
    int stages = stage_count(d);
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < d->ranks; rank++) {
            for (int s = 0; reading != SL_ASYNC && s < d->lengths[rank]; s++)
                if (test_is_message(d->rows[rank][s]))
                    moved = complete_message(&b, rank, s, stages) || moved;
            int step = b.at[rank];
            if (step == d->lengths[rank])
                continue;
            sl_action a = d->rows[rank][step];
            if (test_is_message(a) && reading == SL_BLOCKING)
                continue;
            if (inputs_there(&b, rank, a, stages)) {
                b.at[rank]++;
                moved = true;
            }
        }
    }
    for (int rank = 0; rank < d->ranks; rank++)
        if (b.at[rank] < d->lengths[rank] ||
            (reading != SL_ASYNC && reading != SL_BLOCKING &&
             !first_in_sequence(&b, rank, d->lengths[rank])))
            return true;
    return false;
}

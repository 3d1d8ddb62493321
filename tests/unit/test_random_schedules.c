/* SPDX-License-Identifier: MIT
 *
 * Properties over random schedules: valid ones are sound and run to their end;
 * every kind of damage is found, with its code and place; checker, simulator
 * and a brute-force run agree on what deadlocks. */
#include "support.h"
#include "random_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ valid ones -- */

static void valid_schedules_are_sound_and_run(void **state)
{
    (void)state;
    test_dice random = {101};
    for (int i = 0; i < 600; i++) {
        test_shape shape = test_random_shape(&random);
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_simulation *result;
        assert_true(test_is_sound(drawn));
        assert_ok(sl_simulate(drawn, NULL, SL_ASYNC, &result));
        assert_true(sl_simulation_makespan(result) > 0);
        assert_true(sl_simulation_bubble(result) >= -1e-9);
        sl_simulation_destroy(result);
        if (!shape.messages) {
            size_t steps;
            sl_schedule *lowered = test_lower(drawn, SL_LOWER_DEFAULT_PASSES);
            assert_true(test_is_sound(lowered));
            assert_ok(sl_dry_run(drawn, &steps));
            assert_ok(sl_dry_run(lowered, &steps));
            sl_schedule_destroy(lowered);
        }
        sl_schedule_destroy(drawn);
    }
}

/* ---------------------------------------------------------------- damage -- */

/* A copy of a schedule that can be edited: rows of actions. */
typedef struct draft {
    int ranks;
    int lengths[8];
    sl_action rows[8][600];
} draft;

static void draft_of(const sl_schedule *schedule, draft *out)
{
    out->ranks = sl_schedule_ranks(schedule);
    for (int rank = 0; rank < out->ranks; rank++) {
        out->lengths[rank] = (int)sl_schedule_length(schedule, rank);
        assert_true(out->lengths[rank] < 590);
        if (out->lengths[rank])
            memcpy(out->rows[rank], sl_schedule_row(schedule, rank),
                   (size_t)out->lengths[rank] * sizeof(sl_action));
    }
}

static sl_schedule *draft_finish(const draft *from)
{
    sl_schedule *schedule;
    assert_ok(sl_schedule_create(from->ranks, &schedule));
    for (int rank = 0; rank < from->ranks; rank++)
        for (int step = 0; step < from->lengths[rank]; step++)
            assert_ok(
                sl_schedule_append(schedule, rank, from->rows[rank][step]));
    return schedule;
}

static void draft_remove(draft *d, int rank, int step)
{
    d->lengths[rank]--;
    memmove(&d->rows[rank][step], &d->rows[rank][step + 1],
            (size_t)(d->lengths[rank] - step) * sizeof(sl_action));
}

static void draft_insert(draft *d, int rank, int step, sl_action action)
{
    memmove(&d->rows[rank][step + 1], &d->rows[rank][step],
            (size_t)(d->lengths[rank] - step) * sizeof(sl_action));
    d->rows[rank][step] = action;
    d->lengths[rank]++;
}

static bool draft_find(const draft *d, sl_action_kind kind, int stage, int mb,
                       int *out_rank, int *out_step)
{
    for (int rank = 0; rank < d->ranks; rank++)
        for (int step = 0; step < d->lengths[rank]; step++) {
            sl_action parts[2];
            int count = sl_action_parts(&d->rows[rank][step], parts);
            for (int i = 0; i < count; i++)
                if (parts[i].kind == kind && parts[i].stage == stage &&
                    parts[i].microbatch == mb) {
                    *out_rank = rank;
                    *out_step = step;
                    return true;
                }
        }
    return false;
}

/* A whole lowered random schedule without overlaps, so that each cell is one
 * action; random messages half the time, else the passes'. */
static void draw_lowered(test_dice *random, draft *out)
{
    test_shape shape = test_random_shape(random);
    shape.overlaps = shape.idle = false;
    if (shape.ranks == 1)
        shape.ranks = 2;
    if (shape.stages < shape.ranks)
        shape.stages = shape.ranks;
    bool own_messages = shape.messages;
    sl_schedule *drawn = test_random_schedule(random, &shape);
    sl_schedule *lowered =
        test_lower(drawn, own_messages ? "unshard,reduce-grad,wait-send"
                                       : SL_LOWER_DEFAULT_PASSES);
    draft_of(lowered, out);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(drawn);
}

/* Picks a random action of a kind; -1 as step when there is none. */
static void pick(test_dice *random, const draft *d, sl_action_kind kind,
                 int *rank, int *step)
{
    int seen = 0;
    *step = -1;
    for (int r = 0; r < d->ranks; r++)
        for (int s = 0; s < d->lengths[r]; s++)
            if (d->rows[r][s].kind == kind && test_below(random, ++seen) == 0) {
                *rank = r;
                *step = s;
            }
}

/* A whole lowered schedule and one of its actions to damage, of each kind in
 * turn; false when it has none of that kind. */
static bool draw_target(test_dice *random, int turn, draft *d, int *rank,
                        int *step)
{
    draw_lowered(random, d);
    pick(random, d, (sl_action_kind)(1 + turn % (SL_ACTION_KINDS - 2)), rank,
         step);
    return *step >= 0;
}

static void expect(const draft *damaged, sl_finding_code code, int rank,
                   int step, const char *damage)
{
    sl_schedule *schedule = draft_finish(damaged);
    if (!test_has_finding(schedule, code, rank, step)) {
        char *csv = test_csv(schedule);
        test_is_sound(schedule);
        fail_msg("%s: no %s at rank %d, step %d in\n%s", damage,
                 sl_finding_code_text(code), rank, step, csv);
    }
    sl_schedule_destroy(schedule);
}

/* The first action of a kind and stage on a rank from a step on, or the last
 * before it if `back`; -1 when there is none. */
static int scan(const draft *d, int rank, int from, bool back, int stage,
                bool (*wanted)(uint8_t kind))
{
    int end = back ? -1 : d->lengths[rank];
    for (int step = back ? from - 1 : from; step != end;
         step += back ? -1 : 1) {
        const sl_action *a = &d->rows[rank][step];
        if (a->stage == stage && wanted(a->kind))
            return step;
    }
    return -1;
}

static bool brute_deadlocks(const draft *d, sl_reading reading);

static bool is_compute(uint8_t kind)
{
    return sl_action_kind_family(kind) == SL_FAMILY_COMPUTE;
}

static bool is_unshard(uint8_t kind)
{
    return kind == SL_UNSHARD;
}

static bool is_reshard(uint8_t kind)
{
    return kind == SL_RESHARD;
}

static bool ends_gradient(uint8_t kind)
{
    return kind == SL_BACKWARD || kind == SL_BACKWARD_WEIGHT;
}

static void expect_compute_drop(const draft *d, sl_action gone)
{
    int r, s, stage = gone.stage, mb = gone.microbatch;
    if (gone.kind == SL_FORWARD) {
        assert_true(draft_find(d, SL_BACKWARD, stage, mb, &r, &s) ||
                    draft_find(d, SL_BACKWARD_INPUT, stage, mb, &r, &s));
        expect(d, SL_FINDING_MISSING_FORWARD, r, s, "drop F");
    } else if (gone.kind == SL_BACKWARD_WEIGHT) {
        assert_true(draft_find(d, SL_BACKWARD_INPUT, stage, mb, &r, &s));
        expect(d, SL_FINDING_MISSING_WEIGHT, r, s, "drop W");
    } else {
        assert_true(draft_find(d, SL_FORWARD, stage, mb, &r, &s));
        expect(d, SL_FINDING_MISSING_BACKWARD, r, s, "drop a backward");
    }
}

/* A lost end of a message is found at its other end. */
static void expect_message_drop(const draft *d, sl_action gone)
{
    static const struct {
        uint8_t gone, left;
        int stage;
        sl_finding_code code;
    } ends[] = {
        {SL_SEND_F, SL_RECV_F, 1, SL_FINDING_MISSING_SEND},
        {SL_SEND_B, SL_RECV_B, -1, SL_FINDING_MISSING_SEND},
        {SL_RECV_F, SL_SEND_F, -1, SL_FINDING_MISSING_RECEIVE},
        {SL_RECV_B, SL_SEND_B, 1, SL_FINDING_MISSING_RECEIVE},
    };
    for (int i = 0; i < 4; i++) {
        int r, s;
        if (ends[i].gone != gone.kind)
            continue;
        assert_true(draft_find(d, ends[i].left, gone.stage + ends[i].stage,
                               gone.microbatch, &r, &s));
        expect(d, ends[i].code, r, s, "drop a message");
    }
}

/* A lost wait is found at what nobody waits for any more. */
static void expect_wait_drop(const draft *d, sl_action gone)
{
    sl_action_kind of = gone.kind == SL_WAIT_SEND_F   ? SL_SEND_F
                        : gone.kind == SL_WAIT_SEND_B ? SL_SEND_B
                                                      : SL_REDUCE_GRAD;
    int r, s;
    sl_schedule *left = draft_finish(d);
    sl_extent extent = sl_schedule_extent(left);
    sl_schedule_destroy(left);
    /* With the last one gone, the schedule is one without waits. */
    if (of == SL_REDUCE_GRAD ? !extent.has_reduce_waits
                             : !extent.has_send_waits)
        return;
    assert_true(draft_find(d, of, gone.stage, gone.microbatch, &r, &s));
    expect(d, SL_FINDING_MISSING_WAIT, r, s, "drop a wait");
}

static void expect_state_drop(const draft *d, sl_action gone, int rank,
                              int step)
{
    int stage = gone.stage;
    if (gone.kind == SL_UNSHARD) {
        expect(d, SL_FINDING_NOT_UNSHARDED, rank,
               scan(d, rank, step, false, stage, is_compute), "drop UNSHARD");
        expect(d, SL_FINDING_UNPAIRED_SHARD, rank,
               scan(d, rank, step, false, stage, is_reshard), "drop UNSHARD");
    } else if (gone.kind == SL_RESHARD) {
        int again = scan(d, rank, step, false, stage, is_unshard);
        if (again < 0)
            again = scan(d, rank, step, true, stage, is_unshard);
        expect(d, SL_FINDING_UNPAIRED_SHARD, rank, again, "drop RESHARD");
    } else {
        expect(d, SL_FINDING_MISSING_REDUCE_GRAD, rank,
               scan(d, rank, step, true, stage, ends_gradient),
               "drop REDUCE_GRAD");
    }
}

static void dropped_actions_are_found(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {211};
    int dropped = 0;
    for (int i = 0; i < 400; i++) {
        int rank, step;
        if (!draw_target(&random, i, &d, &rank, &step))
            continue;
        sl_action gone = d.rows[rank][step];
        draft_remove(&d, rank, step);
        if (is_compute(gone.kind))
            expect_compute_drop(&d, gone);
        else if (sl_action_kind_family(gone.kind) == SL_FAMILY_COMM)
            expect_message_drop(&d, gone);
        else if (sl_action_kind_family(gone.kind) == SL_FAMILY_WAIT)
            expect_wait_drop(&d, gone);
        else
            expect_state_drop(&d, gone, rank, step);
        dropped++;
    }
    assert_true(dropped > 250);
}

static void repeated_actions_are_found(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {223};
    for (int i = 0; i < 400; i++) {
        int rank, step;
        if (!draw_target(&random, i, &d, &rank, &step))
            continue;
        sl_action twice = d.rows[rank][step];
        int at = step + 1 + test_below(&random, d.lengths[rank] - step);
        bool shard = twice.kind == SL_UNSHARD || twice.kind == SL_RESHARD;
        draft_insert(&d, rank, at, twice);
        if (shard)
            expect(&d, SL_FINDING_UNPAIRED_SHARD, rank, -2, "repeat");
        else
            expect(&d, SL_FINDING_DUPLICATE, rank, at, "repeat");
    }
}

/* Swaps an action with one it depends on, on the same rank. */
static void swapped_actions_are_found(void **state)
{
    (void)state;
    static draft d;
    static const struct {
        sl_action_kind later, earlier;
        sl_finding_code code;
        bool at_earlier_step; /* where the finding is */
    } swaps[] = {
        {SL_BACKWARD, SL_FORWARD, SL_FINDING_WRONG_ORDER, true},
        {SL_BACKWARD_INPUT, SL_FORWARD, SL_FINDING_WRONG_ORDER, true},
        {SL_BACKWARD_WEIGHT, SL_BACKWARD_INPUT, SL_FINDING_WRONG_ORDER, true},
        {SL_SEND_F, SL_FORWARD, SL_FINDING_SEND_TOO_EARLY, true},
        {SL_SEND_B, SL_BACKWARD, SL_FINDING_SEND_TOO_EARLY, true},
        {SL_FORWARD, SL_RECV_F, SL_FINDING_RECEIVE_TOO_LATE, false},
        {SL_BACKWARD, SL_RECV_B, SL_FINDING_RECEIVE_TOO_LATE, false},
        {SL_WAIT_SEND_F, SL_SEND_F, SL_FINDING_WAIT_TOO_EARLY, true},
        {SL_WAIT_SEND_B, SL_SEND_B, SL_FINDING_WAIT_TOO_EARLY, true},
        {SL_WAIT_REDUCE_GRAD, SL_REDUCE_GRAD, SL_FINDING_WAIT_TOO_EARLY, true},
    };
    test_dice random = {227};
    int swapped = 0;
    for (int i = 0; i < 700; i++) {
        int rank, step, rank2, step2;
        size_t k = (size_t)i % (sizeof swaps / sizeof *swaps);
        draw_lowered(&random, &d);
        pick(&random, &d, swaps[k].later, &rank, &step);
        if (step < 0)
            continue;
        sl_action later = d.rows[rank][step];
        int mb2 = later.kind == SL_WAIT_REDUCE_GRAD ? 0 : later.microbatch;
        if (!draft_find(&d, swaps[k].earlier, later.stage, mb2, &rank2, &step2))
            continue;
        assert_int_equal(rank, rank2);
        assert_true(step2 < step);
        d.rows[rank][step] = d.rows[rank][step2];
        d.rows[rank][step2] = later;
        expect(&d, swaps[k].code, rank, swaps[k].at_earlier_step ? step2 : step,
               "swap");
        swapped++;
    }
    assert_true(swapped > 300);
}

/* A wait for what nobody sends, or reduces; and a reduction begun before the
 * one before it was waited for. */
static void waits_without_their_pair_are_found(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {228};
    int lone = 0, pending = 0;
    for (int i = 0; i < 400; i++) {
        int rank, step, next;
        draw_lowered(&random, &d);
        sl_action_kind kind = i % 2 ? SL_SEND_F : SL_REDUCE_GRAD;
        pick(&random, &d, kind, &rank, &step);
        if (step < 0)
            continue;
        sl_action gone = d.rows[rank][step];
        sl_action_kind wait = i % 2 ? SL_WAIT_SEND_F : SL_WAIT_REDUCE_GRAD;
        int at, on;
        draft_remove(&d, rank, step);
        if (draft_find(&d, wait, gone.stage, gone.microbatch, &on, &at)) {
            expect(&d, SL_FINDING_NEEDLESS_WAIT, on, at,
                   "drop what is awaited");
            lone++;
        }
        draft_insert(&d, rank, step, gone);
        /* The wait of a reduction behind the rank's next one. */
        for (next = step + 1; next < d.lengths[rank]; next++)
            if (d.rows[rank][next].kind == SL_REDUCE_GRAD)
                break;
        if (i % 2 || next == d.lengths[rank])
            continue;
        assert_true(draft_find(&d, wait, gone.stage, 0, &on, &at));
        if (on != rank || at > next)
            continue;
        sl_action moved = d.rows[rank][at];
        draft_remove(&d, rank, at);
        draft_insert(&d, rank, next, moved);
        expect(&d, SL_FINDING_TWO_REDUCTIONS, rank, next - 1, "late wait");
        pending++;
    }
    assert_true(lone > 100 && pending > 20);
}

/* A wait moved forward, to right behind its send, where the peer's receive may
 * need what comes behind it: found at the wait, exactly where brute force says
 * that the schedule hangs. */
static void waits_that_block_a_receive_are_found(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {239};
    int blocked = 0, fine = 0;
    for (int i = 0; i < 1500; i++) {
        int rank, step, at, on;
        test_shape shape = test_random_shape(&random);
        shape.messages = shape.idle = false;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_schedule *lowered =
            test_lower(drawn, "send-recv,defer-recv,wait-send");
        draft_of(lowered, &d);
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(drawn);
        pick(&random, &d, i % 2 ? SL_SEND_F : SL_SEND_B, &rank, &step);
        if (step < 0)
            continue;
        sl_action send = d.rows[rank][step];
        assert_true(draft_find(&d, i % 2 ? SL_WAIT_SEND_F : SL_WAIT_SEND_B,
                               send.stage, send.microbatch, &on, &at));
        sl_action wait = d.rows[rank][at];
        draft_remove(&d, rank, at);
        draft_insert(&d, rank, step + 1, wait);
        bool hangs = brute_deadlocks(&d, SL_ASYNC);
        sl_schedule *schedule = draft_finish(&d);
        if (test_has_finding(schedule, SL_FINDING_WAIT_BLOCKS_RECEIVE, rank,
                             step + 1) != hangs)
            fail_msg("hangs: %d, in\n%s", hangs, test_csv(schedule));
        sl_schedule_destroy(schedule);
        blocked += hangs;
        fine += !hangs;
    }
    assert_true(blocked > 50 && fine > 50);
}

static void actions_on_another_rank_are_found(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {229};
    for (int i = 0; i < 400; i++) {
        int rank, step;
        if (!draw_target(&random, i, &d, &rank, &step))
            continue;
        sl_action moved = d.rows[rank][step];
        int other = (rank + 1 + test_below(&random, d.ranks - 1)) % d.ranks;
        int at = test_below(&random, d.lengths[other] + 1);
        draft_remove(&d, rank, step);
        draft_insert(&d, other, at, moved);
        expect(&d, SL_FINDING_WRONG_RANK, other, at, "move");
    }
}

/* ------------------------------------------------------- who deadlocks -- */

/* Runs a schedule by brute force: anything that can happen does, until nothing
 * can. Knows the readings from their definition alone. */
typedef struct brute {
    const draft *d;
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
    draft_find(b->d, a.kind, a.stage, a.microbatch, &first_rank, &first_step);
    if (first_rank != rank || first_step != step)
        return false; /* a repetition */
    for (int i = 0; i < 4; i++)
        if (ends[i].kind == a.kind)
            return draft_find(b->d, ends[i].other, a.stage + ends[i].stage,
                              a.microbatch, r, s);
    return false;
}

static bool is_message(sl_action a)
{
    return sl_action_kind_family(a.kind) == SL_FAMILY_COMM;
}

static bool is_send(sl_action a)
{
    return a.kind == SL_SEND_F || a.kind == SL_SEND_B;
}

static bool has_messages(const draft *d)
{
    for (int r = 0; r < d->ranks; r++)
        for (int s = 0; s < d->lengths[r]; s++)
            if (is_message(d->rows[r][s]))
                return true;
    return false;
}

static int stage_count(const draft *d)
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
        forward ? draft_find(b->d, SL_FORWARD, from, mb, &r, &s)
                : draft_find(b->d, SL_BACKWARD, from, mb, &r, &s) ||
                      draft_find(b->d, SL_BACKWARD_INPUT, from, mb, &r, &s);
    if (exists && r == rank)
        return passed(b, r, s);
    if (!has_messages(b->d))
        return exists && passed(b, r, s);
    return draft_find(b->d, forward ? SL_RECV_F : SL_RECV_B, to, mb, &r, &s) &&
           received(b, r, s);
}

/* Whether what a wait is for is complete: of a send, when its message is. */
static bool awaited(const brute *b, sl_action wait)
{
    int r, s, r2, s2;
    if (wait.kind == SL_WAIT_REDUCE_GRAD)
        return draft_find(b->d, SL_REDUCE_GRAD, wait.stage, 0, &r, &s) &&
               passed(b, r, s);
    if (!draft_find(b->d, wait.kind == SL_WAIT_SEND_F ? SL_SEND_F : SL_SEND_B,
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
    return draft_find(b->d, kind, stage, mb, &r, &s) && passed(b, r, s);
}

static bool backward_did(const brute *b, int stage, int mb)
{
    int r, s;
    if (draft_find(b->d, SL_BACKWARD, stage, mb, &r, &s))
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
            there = draft_find(b->d, SL_BACKWARD_INPUT, stage, mb, &r, &s)
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
            is_message(b->d->rows[rank][s]) &&
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

static bool brute_deadlocks(const draft *d, sl_reading reading)
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
                if (is_message(d->rows[rank][s]))
                    moved = complete_message(&b, rank, s, stages) || moved;
            int step = b.at[rank];
            if (step == d->lengths[rank])
                continue;
            sl_action a = d->rows[rank][step];
            if (is_message(a) && reading == SL_BLOCKING)
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

/* Shuffles a few actions about: within a rank mostly, messages above all. */
static void shake(test_dice *random, draft *d)
{
    int shakes = 1 + test_below(random, 3);
    for (int i = 0; i < shakes; i++) {
        int rank = test_below(random, d->ranks);
        if (d->lengths[rank] < 2)
            continue;
        int step = test_below(random, d->lengths[rank]);
        sl_action action = d->rows[rank][step];
        draft_remove(d, rank, step);
        if (test_below(random, 8) == 0)
            continue; /* lost */
        if (test_below(random, 8) == 0)
            rank = test_below(random, d->ranks);
        draft_insert(d, rank, test_below(random, d->lengths[rank] + 1), action);
    }
}

static void expect_agreement(const draft *d, int *deadlocks)
{
    sl_schedule *schedule = draft_finish(d);
    sl_report *report;
    assert_ok(sl_check(schedule, NULL, &report));
    for (int i = 0; i < SL_READINGS; i++) {
        sl_reading reading = (sl_reading)i;
        sl_simulation *result;
        sl_status status = sl_simulate(schedule, NULL, reading, &result);
        bool checked = sl_report_deadlock(report, reading) != NULL;
        bool simulated = status == SL_EUNSOUND;
        bool forced = brute_deadlocks(d, reading);
        if (!status)
            sl_simulation_destroy(result);
        if (checked != forced || simulated != forced) {
            char *csv = test_csv(schedule);
            fail_msg("%s: checker %d, simulator %d, brute force %d in\n%s",
                     sl_reading_text(reading), checked, simulated, forced, csv);
        }
        deadlocks[i] += forced;
    }
    sl_report_destroy(report);
    sl_schedule_destroy(schedule);
}

/* Waits for what is sent, and reductions with theirs; as early as they can be if `early`. */
static void add_waits(sl_schedule **schedule, bool early)
{
    sl_schedule *made;
    sl_status status = sl_lower(*schedule,
                                early ? "reduce-grad,wait-send,send-budget=1"
                                      : "reduce-grad,wait-send",
                                NULL, &made);
    if (status == SL_EUNSOUND) /* It has no room for so few. */
        return;
    assert_ok(status);
    sl_schedule_destroy(*schedule);
    *schedule = made;
}

static void everyone_agrees_on_deadlock(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {307};
    int deadlocks[SL_READINGS] = {0};
    const int rounds = 800;
    for (int i = 0; i < rounds; i++) {
        test_shape shape = test_random_shape(&random);
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        if (shape.messages && i % 3)
            add_waits(&drawn, i % 3 == 2);
        draft_of(drawn, &d);
        sl_schedule_destroy(drawn);
        if (i % 4)
            shake(&random, &d);
        expect_agreement(&d, deadlocks);
    }
    for (int i = 0; i < SL_READINGS; i++)
        assert_in_range(deadlocks[i], rounds / 10, rounds - rounds / 10);
}

/* Each wait is for an action at or behind which the next wait holds its rank,
 * and nobody waits for itself without reason. */
static void expect_chain(const draft *d, const sl_finding *found)
{
    for (size_t k = 0; k < found->wait_count; k++) {
        const sl_wait *wait = &found->waits[k];
        const sl_wait *next = &found->waits[(k + 1) % found->wait_count];
        if (wait->on_rank < 0) {
            assert_int_equal(found->wait_count, 1);
            return;
        }
        assert_int_equal(wait->on_rank, next->rank);
        assert_true(next->step <= wait->on_step);
        if (wait->rank == wait->on_rank) {
            const sl_action *a = &d->rows[wait->rank][wait->step];
            assert_true(
                wait->on_step > wait->step ||
                (a->kind == SL_OVERLAP_F_B && wait->on_step == wait->step));
        }
    }
}

static void reported_cycles_close(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {311};
    int cycles = 0;
    for (int i = 0; i < 1500; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = true;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        if (i % 3)
            add_waits(&drawn, i % 3 == 2);
        draft_of(drawn, &d);
        sl_schedule_destroy(drawn);
        if (i % 2)
            shake(&random, &d);
        sl_schedule *schedule = draft_finish(&d);
        sl_report *report;
        assert_ok(sl_check(schedule, NULL, &report));
        for (int r = 0; r < SL_READINGS; r++) {
            const sl_finding *found = sl_report_deadlock(report, (sl_reading)r);
            if (found)
                expect_chain(&d, found);
            cycles += found != NULL;
        }
        sl_report_destroy(report);
        sl_schedule_destroy(schedule);
    }
    assert_true(cycles > 100);
}

/* Whether a cycle of waits passes over the order of two neighbours. */
static bool passes_over(const sl_finding *found, int rank, int step)
{
    for (size_t k = 0; k < found->wait_count; k++) {
        const sl_wait *wait = &found->waits[k];
        const sl_wait *next = &found->waits[(k + 1) % found->wait_count];
        if (wait->on_rank == rank && wait->on_step > step && next->step <= step)
            return true;
    }
    return false;
}

/* Neighbouring messages swapped so that a run in posted order hangs: the
 * deadlock is found, and its cycle goes through the place of the swap. */
static void reordered_messages_are_found(void **state)
{
    (void)state;
    static draft d;
    test_dice random = {233};
    int hung = 0;
    for (int i = 0; i < 800; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = shape.idle = false;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_schedule *lowered = test_lower(drawn, "send-recv");
        draft_of(lowered, &d);
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(drawn);
        int rank = test_below(&random, d.ranks);
        if (d.lengths[rank] < 2)
            continue;
        int step = test_below(&random, d.lengths[rank] - 1);
        sl_action first = d.rows[rank][step];
        if (!is_message(first) || !is_message(d.rows[rank][step + 1]))
            continue;
        d.rows[rank][step] = d.rows[rank][step + 1];
        d.rows[rank][step + 1] = first;
        if (!brute_deadlocks(&d, SL_ORDERED))
            continue;
        sl_schedule *schedule = draft_finish(&d);
        sl_check_options options = SL_CHECK_OPTIONS_INIT;
        sl_report *report;
        size_t count;
        options.reading = SL_ORDERED;
        assert_ok(sl_check(schedule, &options, &report));
        const sl_finding *findings = sl_report_findings(report, &count);
        assert_int_equal(count, 1);
        assert_int_equal(findings[0].code, SL_FINDING_DEADLOCK);
        assert_true(passes_over(&findings[0], rank, step));
        sl_report_destroy(report);
        sl_schedule_destroy(schedule);
        hung++;
    }
    assert_true(hung > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_schedules_are_sound_and_run),
        cmocka_unit_test(dropped_actions_are_found),
        cmocka_unit_test(repeated_actions_are_found),
        cmocka_unit_test(swapped_actions_are_found),
        cmocka_unit_test(waits_without_their_pair_are_found),
        cmocka_unit_test(waits_that_block_a_receive_are_found),
        cmocka_unit_test(actions_on_another_rank_are_found),
        cmocka_unit_test(reordered_messages_are_found),
        cmocka_unit_test(everyone_agrees_on_deadlock),
        cmocka_unit_test(reported_cycles_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The passes: what each adds and where, and that inputs stay untouched. */
#include "support.h"
#include "random_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_lowered(const char *in, const char *passes, const char *out)
{
    sl_schedule *schedule = test_parse(in);
    sl_schedule *lowered = test_lower(schedule, passes);
    test_assert_csv(lowered, out);
    test_assert_csv(schedule, in);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(schedule);
}

static void merge_bw_joins_only_neighbours_of_one_microbatch(void **state)
{
    (void)state;
    expect_lowered("0F0,0I0,,0W0,0F1,0I1,0I2,0W1,0W2,1I0,0W0\n", "merge-bw",
                   "0F0,0B0,0F1,0I1,0I2,0W1,0W2,1I0,0W0\n");
}

static void merge_bw_makes_113_steps_of_the_known_case(void **state)
{
    (void)state;
    size_t steps;
    sl_schedule *compute = test_generate("InterleavedZeroBubble", 2, 2, 8);
    sl_schedule *merged = test_lower(compute, "merge-bw,send-recv");
    assert_ok(sl_dry_run(merged, &steps));
    assert_int_equal(steps, 113);
    sl_schedule_destroy(merged);
    sl_schedule_destroy(compute);
}

static void delay_w_brings_weights_together(void **state)
{
    (void)state;
    const char *order = "0F0,0F1,0B0,,0F2,0I1,1B0,0W1,0B2\n";
    expect_lowered(order, "delay-w=2",
                   "0F0,0F1,0I0,0F2,0I1,1I0,0W0,0W1,0I2,0W2,1W0\n");
    expect_lowered(order, "delay-w=0",
                   "0F0,0F1,0I0,0F2,0I1,1I0,0I2,0W0,0W1,0W2,1W0\n");
    expect_lowered(order, "delay-w=1",
                   "0F0,0F1,0I0,0W0,0F2,0I1,1I0,1W0,0W1,0I2,0W2\n");
    expect_lowered("0F0,(1F0;0B0)OVERLAP_F_B,1B0\n", "delay-w=0",
                   "0F0,(1F0;0I0)OVERLAP_F_B,1I0,0W0,1W0\n");
    expect_lowered("0B0,1B0,0RESHARD,0REDUCE_GRAD,1REDUCE_GRAD\n", "delay-w=0",
                   "0I0,1I0,0W0,0RESHARD,0REDUCE_GRAD,1W0,1REDUCE_GRAD\n");
}

/* On random orders: only W's move, none past more than the given number of
 * others, and a sound schedule stays sound. */
static void delay_w_moves_nothing_else(void **state)
{
    (void)state;
    test_dice random = {41};
    for (int round = 0; round < 200; round++) {
        char passes[32];
        int most = round % 6;
        test_shape shape = test_random_shape(&random);
        shape.messages = false;
        sl_schedule *order = test_random_schedule(&random, &shape);
        snprintf(passes, sizeof passes, "delay-w=%d", most);
        sl_schedule *made = test_lower(order, passes);
        sl_schedule *whole = test_lower(made, SL_LOWER_DEFAULT_PASSES);
        assert_true(test_is_sound(made) && test_is_sound(whole));
        for (int r = 0; r < sl_schedule_ranks(order); r++) {
            const sl_action *a = sl_schedule_row(order, r);
            const sl_action *b = sl_schedule_row(made, r);
            size_t length = sl_schedule_length(made, r), at = 0;
            int waiting[64] = {0};
            for (size_t i = 0; i < length; i++) {
                sl_action parts[2];
                int count = sl_action_parts(&b[i], parts);
                for (int k = 0; k < count; k++) {
                    assert_int_not_equal(parts[k].kind, SL_BACKWARD);
                    waiting[parts[k].stage] +=
                        parts[k].kind == SL_BACKWARD_INPUT;
                    waiting[parts[k].stage] -=
                        parts[k].kind == SL_BACKWARD_WEIGHT;
                }
                if (b[i].kind == SL_BACKWARD_WEIGHT)
                    continue;
                while (a[at].kind == SL_BACKWARD_WEIGHT ||
                       a[at].kind == SL_IDLE)
                    at++;
                assert_int_equal(a[at].stage, b[i].stage);
                assert_int_equal(a[at].microbatch, b[i].microbatch);
                at++;
            }
            for (int s = 0; s < 64; s++)
                assert_int_equal(waiting[s], 0);
        }
        sl_schedule_destroy(whole);
        sl_schedule_destroy(made);
        sl_schedule_destroy(order);
    }
}

/* One at a time, it is undone by merge-bw. */
static void delay_w_of_one_cuts_backwards_in_two(void **state)
{
    (void)state;
    for (size_t k = 0; sl_generator_at(k); k++) {
        const sl_generator *generator = sl_generator_at(k);
        sl_schedule *order = test_generate(
            generator->name, 2, generator->default_stages_per_rank, 8);
        sl_schedule *merged = test_lower(order, "merge-bw");
        sl_schedule *back = test_lower(merged, "delay-w=1,merge-bw");
        sl_string text = SL_STRING_INIT;
        assert_ok(sl_schedule_write_csv(merged, sl_write_string, &text));
        if (!strstr(text.data, "OVERLAP"))
            test_assert_csv(back, text.data);
        sl_string_clear(&text);
        sl_schedule_destroy(back);
        sl_schedule_destroy(merged);
        sl_schedule_destroy(order);
    }
}

static void expect_reduced(const char *in, sl_reduce_wait wait, const char *out)
{
    sl_schedule *schedule = test_parse(in), *lowered;
    assert_ok(sl_lower_reduce_grad(schedule, wait, &lowered));
    test_assert_csv(lowered, out);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(schedule);
}

/* Counts the sends along each row that are posted and not yet waited for; with
 * 0, every send is waited for at once. */
static void expect_pending(const sl_schedule *schedule, int most)
{
    for (int rank = 0; rank < sl_schedule_ranks(schedule); rank++) {
        const sl_action *row = sl_schedule_row(schedule, rank);
        int pending = 0;
        for (size_t k = 0; k < sl_schedule_length(schedule, rank); k++) {
            uint8_t kind = row[k].kind;
            bool sends = kind == SL_SEND_F || kind == SL_SEND_B;
            pending += sends;
            pending -= kind == SL_WAIT_SEND_F || kind == SL_WAIT_SEND_B;
            assert_true(pending <= most || (most == 0 && sends));
        }
        assert_int_equal(pending, 0);
    }
}

static void reduce_grad_follows_the_last_backward(void **state)
{
    (void)state;
    const char *in = "0F0,0F1,0B0,,0I1,1B0,0W1,1F9\n";
    expect_reduced(in, SL_REDUCE_WAIT_NONE,
                   "0F0,0F1,0B0,0I1,1B0,1REDUCE_GRAD,0W1,0REDUCE_GRAD,1F9\n");
    expect_reduced(in, SL_REDUCE_WAIT_NOW,
                   "0F0,0F1,0B0,0I1,1B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,0W1,"
                   "0REDUCE_GRAD,0WAIT_REDUCE_GRAD,1F9\n");
    expect_reduced(in, SL_REDUCE_WAIT_LATE,
                   "0F0,0F1,0B0,0I1,1B0,1REDUCE_GRAD,0W1,1WAIT_REDUCE_GRAD,"
                   "0REDUCE_GRAD,1F9,0WAIT_REDUCE_GRAD\n");
    expect_reduced("0F0,(1F0;0B0)OVERLAP_F_B,1B0\n", SL_REDUCE_WAIT_NONE,
                   "0F0,(1F0;0B0)OVERLAP_F_B,0REDUCE_GRAD,1B0,1REDUCE_GRAD\n");
}

/* Waits can be added to reductions that are there, and dropped again. */
static void waits_come_and_go(void **state)
{
    (void)state;
    const char *without = "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n"
                          "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n";
    const char *with =
        "0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,"
        "0WAIT_REDUCE_GRAD\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,"
        "1WAIT_SEND_B0\n";
    expect_lowered(without, "wait-reduce,wait-send", with);
    expect_lowered(with, "drop-waits", without);
}

/* SEND_F is waited for after the rank's own backward, all others at the end of
 * the row, in the order of the sends. */
static void sends_are_waited_for_where_they_are_proven(void **state)
{
    (void)state;
    expect_lowered("1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,1RECV_B1,1I1,"
                   "1SEND_B1,1RECV_B0,1B0,1SEND_B0,1W1\n",
                   "wait-send",
                   "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,1RECV_B1,1I1,"
                   "1WAIT_SEND_F1,1SEND_B1,1RECV_B0,1B0,1WAIT_SEND_F0,1SEND_B0,"
                   "1W1,1WAIT_SEND_B1,1WAIT_SEND_B0\n");
    expect_lowered("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1RECV_F1,1F0,1F1\n",
                   "wait-send",
                   "0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F0,0WAIT_SEND_F1\n"
                   "1RECV_F0,1RECV_F1,1F0,1F1\n");
}

/* The lower of two ranks posts what it will receive from the other before it
 * sends to it; the higher does not. */
static void receives_are_deferred_to_their_users(void **state)
{
    (void)state;
    expect_lowered("0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0RECV_B1,0B0,0B1\n"
                   "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
                   "defer-recv",
                   "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1\n"
                   "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
}

/* With two pending sends, the wait of the first moves before the third; with 0
 * each wait comes right after its send. */
static void waits_move_to_keep_a_budget(void **state)
{
    (void)state;
    const char *in = "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0WAIT_SEND_F0,"
                     "0WAIT_SEND_F1,0WAIT_SEND_F2\n"
                     "1RECV_F0,1RECV_F1,1RECV_F2,1F0,1F1,1F2\n";
    const char *rank_1 = "1RECV_F0,1RECV_F1,1RECV_F2,1F0,1F1,1F2\n";
    static const struct {
        const char *passes, *out;
    } cases[] = {
        {"send-budget=3", "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,"
                          "0WAIT_SEND_F0,0WAIT_SEND_F1,0WAIT_SEND_F2\n"},
        {"send-budget=2", "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0WAIT_SEND_F0,"
                          "0SEND_F2,0WAIT_SEND_F1,0WAIT_SEND_F2\n"},
        {"send-budget=1", "0F0,0SEND_F0,0F1,0WAIT_SEND_F0,0SEND_F1,0F2,"
                          "0WAIT_SEND_F1,0SEND_F2,0WAIT_SEND_F2\n"},
        {"send-budget=0", "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,"
                          "0WAIT_SEND_F1,0F2,0SEND_F2,0WAIT_SEND_F2\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[400];
        snprintf(out, sizeof out, "%s%s", cases[i].out, rank_1);
        expect_lowered(in, cases[i].passes, out);
    }
}

/* Random orders under random budgets: no more sends pending than allowed, all
 * else in order, no deadlock; or a refusal, for which there is a reason:
 * without moving waits the schedule is sound. */
static void a_budget_is_kept_or_refused(void **state)
{
    (void)state;
    test_dice random = {23};
    int kept = 0, refused = 0;
    for (int i = 0; i < 600; i++) {
        test_shape shape = test_random_shape(&random);
        int most = test_below(&random, 4);
        bool defers = test_below(&random, 2);
        char passes[80];
        shape.messages = false;
        snprintf(passes, sizeof passes, "send-recv%s,wait-send",
                 defers ? ",defer-recv" : "");
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_schedule *waits = test_lower(drawn, passes), *bounded;
        sl_status status = sl_lower_send_budget(waits, most, &bounded);
        assert_true(test_is_sound(waits));
        if (status) {
            assert_int_equal(status, SL_EUNSOUND);
            /* With receives as soon as possible every budget can be kept. */
            assert_true(defers);
            refused++;
        } else {
            sl_schedule *plain = test_lower(waits, "drop-waits");
            sl_schedule *dropped = test_lower(bounded, "drop-waits");
            char *expected = test_csv(plain);
            test_assert_csv(dropped, expected);
            free(expected);
            sl_schedule_destroy(plain);
            sl_schedule_destroy(dropped);
            assert_true(test_is_sound(bounded));
            expect_pending(bounded, most);
            sl_schedule_destroy(bounded);
            kept++;
        }
        sl_schedule_destroy(waits);
        sl_schedule_destroy(drawn);
    }
    assert_true(kept > 300 && refused > 10);
}

/* Each rank looks ahead as far as its own number says, and reshards nothing
 * earlier. */
static void unshard_looks_ahead_as_told(void **state)
{
    (void)state;
    static const int each[] = {1, 3};
    const char *row = "0F0,2F0,4F0,2B0,0B0\n1F0,3F0,5F0,3B0,1B0\n";
    sl_schedule *schedule = test_parse(row), *lowered;
    sl_lookahead ahead = {SL_LOOKAHEAD_EACH, each, 2};
    assert_ok(sl_lower_unshard(schedule, 3, &ahead, &lowered));
    test_assert_csv(
        lowered, "0UNSHARD,0F0,2UNSHARD,2F0,4UNSHARD,4F0,4RESHARD,2B0,2RESHARD,"
                 "0B0,0RESHARD\n"
                 "1UNSHARD,3UNSHARD,5UNSHARD,1F0,3F0,5F0,5RESHARD,3B0,"
                 "3RESHARD,1B0,1RESHARD\n");
    sl_schedule_destroy(lowered);
    ahead.kind = SL_LOOKAHEAD_AUTO;
    assert_ok(sl_lower_unshard(schedule, 3, &ahead, &lowered));
    test_assert_csv(
        lowered, "0UNSHARD,2UNSHARD,0F0,4UNSHARD,2F0,4F0,4RESHARD,2B0,2RESHARD,"
                 "0B0,0RESHARD\n"
                 "1UNSHARD,3UNSHARD,5UNSHARD,1F0,3F0,5F0,5RESHARD,3B0,"
                 "3RESHARD,1B0,1RESHARD\n");
    sl_schedule_destroy(lowered);
    static const int wrong[] = {1, 4};
    ahead = (sl_lookahead){SL_LOOKAHEAD_EACH, wrong, 2};
    assert_fails(sl_lower_unshard(schedule, 3, &ahead, &lowered), SL_EINVAL,
                 "lookahead of rank 1 must be from 1 to the window, 3, not 4");
    ahead.ranks = 1;
    assert_fails(sl_lower_unshard(schedule, 3, &ahead, &lowered), SL_EINVAL,
                 "has 1 numbers, expected one for each of 2 ranks");
    ahead.kind = (sl_lookahead_kind)7;
    assert_fails(sl_lower_unshard(schedule, 3, &ahead, &lowered), SL_EINVAL,
                 "unknown kind of unshard lookahead");
    sl_schedule_destroy(schedule);
}

static void expect_unsharded(const char *in, int window, const char *out)
{
    sl_schedule *schedule = test_parse(in), *lowered;
    assert_ok(sl_lower_unshard(schedule, window, NULL, &lowered));
    test_assert_csv(lowered, out);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(schedule);
}

static void unshard_fetches_ahead_within_its_window(void **state)
{
    (void)state;
    const char *in = "0F0,,2F0,4F0,6F0,6B0\n";
    expect_unsharded(in, 1,
                     "0UNSHARD,0F0,0RESHARD,2UNSHARD,2F0,2RESHARD,4UNSHARD,4F0,"
                     "4RESHARD,6UNSHARD,6F0,6B0,6RESHARD\n");
    expect_unsharded(in, 3,
                     "0UNSHARD,2UNSHARD,4UNSHARD,0F0,0RESHARD,6UNSHARD,2F0,"
                     "2RESHARD,4F0,4RESHARD,6F0,6B0,6RESHARD\n");
    expect_unsharded(in, 9,
                     "0UNSHARD,2UNSHARD,4UNSHARD,6UNSHARD,0F0,0RESHARD,2F0,"
                     "2RESHARD,4F0,4RESHARD,6F0,6B0,6RESHARD\n");
}

static void unshard_takes_both_halves_of_an_overlap(void **state)
{
    (void)state;
    expect_unsharded("(0F1;3B0)OVERLAP_F_B,0B1\n", 1,
                     "0UNSHARD,3UNSHARD,(0F1;3B0)OVERLAP_F_B,3RESHARD,0B1,"
                     "0RESHARD\n");
}

/* At most `window` stages are unsharded at once, one more if the window ends in
 * an overlap. */
static void unshard_never_exceeds_its_window(void **state)
{
    (void)state;
    test_dice random = {11};
    for (int i = 0; i < 300; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = false;
        int window = 1 + test_below(&random, 4);
        sl_schedule *drawn = test_random_schedule(&random, &shape), *lowered;
        assert_ok(sl_lower_unshard(drawn, window, NULL, &lowered));
        assert_true(test_is_sound(lowered));
        for (int rank = 0; rank < shape.ranks; rank++) {
            const sl_action *row = sl_schedule_row(lowered, rank);
            int whole = 0;
            for (size_t k = 0; k < sl_schedule_length(lowered, rank); k++) {
                whole += row[k].kind == SL_UNSHARD;
                whole -= row[k].kind == SL_RESHARD;
                assert_true(whole <= window + (shape.overlaps ? 1 : 0));
            }
            assert_int_equal(whole, 0);
        }
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(drawn);
    }
}

static void send_recv_keeps_colocated_stages_silent(void **state)
{
    (void)state;
    expect_lowered("0F0,1F0,1B0,0B0\n", "send-recv", "0F0,1F0,1B0,0B0\n");
    expect_lowered("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "send-recv",
                   "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
                   "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n");
}

static void send_recv_tolerates_a_weight_after_a_whole_backward(void **state)
{
    (void)state;
    expect_lowered("0F0,0B0,0W0\n1F0,1B0,1W0\n", "send-recv",
                   "0F0,0SEND_F0,0RECV_B0,0B0,0W0\n"
                   "1RECV_F0,1F0,1B0,1SEND_B0,1W0\n");
}

static bool brings(const sl_action *receive, const sl_action *user)
{
    sl_action parts[2];
    int count = sl_action_parts(user, parts);
    for (int i = 0; i < count; i++) {
        bool same = parts[i].stage == receive->stage &&
                    parts[i].microbatch == receive->microbatch;
        bool forward = parts[i].kind == SL_FORWARD;
        if (same && forward == (receive->kind == SL_RECV_F))
            return true;
    }
    return false;
}

/* A receive stands right before its user, or before the other receive of an
 * overlap that does. */
static void late_receives_stand_before_their_users(void **state)
{
    (void)state;
    test_dice random = {13};
    int receives = 0;
    for (int i = 0; i < 300; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = false;
        sl_schedule *drawn = test_random_schedule(&random, &shape), *late;
        assert_ok(sl_lower_send_recv(drawn, SL_RECV_LATE, &late));
        assert_true(test_is_sound(late));
        for (int rank = 0; rank < shape.ranks; rank++) {
            const sl_action *row = sl_schedule_row(late, rank);
            size_t length = sl_schedule_length(late, rank);
            for (size_t k = 0; k < length; k++) {
                if (row[k].kind != SL_RECV_F && row[k].kind != SL_RECV_B)
                    continue;
                size_t user = k + 1;
                while (user < length && (row[user].kind == SL_RECV_F ||
                                         row[user].kind == SL_RECV_B))
                    user++;
                assert_true(user < length && user <= k + 2);
                assert_true(brings(&row[k], &row[user]));
                receives++;
            }
        }
        sl_schedule_destroy(late);
        sl_schedule_destroy(drawn);
    }
    assert_true(receives > 1000);
}

/* Sends stand right after what makes them, whatever the receives do. */
static void sends_stand_after_their_compute(void **state)
{
    (void)state;
    sl_schedule *compute = test_generate("dualpipev", 3, 2, 8), *lowered;
    for (int late = 0; late < 2; late++) {
        assert_ok(sl_lower_send_recv(
            compute, late ? SL_RECV_LATE : SL_RECV_ASAP, &lowered));
        for (int rank = 0; rank < 3; rank++) {
            const sl_action *row = sl_schedule_row(lowered, rank);
            for (size_t k = 0; k < sl_schedule_length(lowered, rank); k++) {
                if (row[k].kind != SL_SEND_F && row[k].kind != SL_SEND_B)
                    continue;
                assert_true(k > 0);
                size_t by = k - 1;
                if (row[by].kind == SL_SEND_F || row[by].kind == SL_SEND_B)
                    by--;
                assert_int_equal(sl_action_kind_family(row[by].kind),
                                 SL_FAMILY_COMPUTE);
            }
        }
        sl_schedule_destroy(lowered);
    }
    sl_schedule_destroy(compute);
}

/* Receives placed asap are safe however communication is read. */
static void asap_never_deadlocks(void **state)
{
    (void)state;
    test_dice random = {17};
    for (int i = 0; i < 300; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = false;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_schedule *lowered = test_lower(drawn, SL_LOWER_DEFAULT_PASSES);
        sl_report *report;
        assert_ok(sl_check(lowered, NULL, &report));
        assert_true(sl_report_is_sound(report));
        for (int r = 0; r < SL_READINGS; r++)
            assert_null(sl_report_deadlock(report, (sl_reading)r));
        sl_report_destroy(report);
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(drawn);
    }
}

static void expect_refused(const char *in, const char *passes, sl_status status,
                           const char *text)
{
    sl_schedule *schedule = test_parse(in), *lowered;
    assert_fails(sl_lower(schedule, passes, NULL, &lowered), status, text);
    sl_schedule_destroy(schedule);
}

static void what_cannot_be_lowered_is_refused(void **state)
{
    (void)state;
    expect_refused("0F0,0B0\n", "merge-bw,nope", SL_EINVAL,
                   "unknown pass 'nope'; known ones: drop-idle, merge-bw");
    expect_refused("0F0,0B0\n", ",", SL_EINVAL, "unknown pass ''");
    expect_refused("0F0,0SEND_F0\n1RECV_F0,1F0\n", "send-recv", SL_EINVAL,
                   "send-recv: rank 0, step 1 has 0SEND_F0 already");
    expect_refused("0UNSHARD,0F0\n", "unshard", SL_EINVAL,
                   "unshard: rank 0, step 0 has 0UNSHARD already");
    expect_refused("0F0,0B0,0REDUCE_GRAD\n", "reduce-grad", SL_EINVAL,
                   "rank 0, step 2 has 0REDUCE_GRAD already");
    expect_refused("1F0,0F0\n", "send-recv", SL_EUNSOUND,
                   "rank 0 stops before its step 0, 1F0");
    expect_refused("0F0,,0B0\n1B0,1F0\n", "send-recv", SL_EUNSOUND,
                   "rank 0 stops before its step 2, 0B0");
    expect_refused("1F0\n0F0,0W0,0I0\n", "send-recv", SL_EUNSOUND,
                   "rank 1 stops before its step 1, 0W0");
    expect_refused("0F0,0B0\n", "merge-bw,", SL_EINVAL, "unknown pass ''");
    expect_refused("0F0,0B0\n0F1\n", "send-recv", SL_EUNSOUND,
                   "stage 0 is on rank 0 and");
    expect_refused("60000F9999999\n", "send-recv", SL_EUNSOUND,
                   "no rank computes stage 0");
    const char *chain = "0F0,0SEND_F0,0WAIT_SEND_F0\n1RECV_F0,1F0\n";
    expect_refused(chain, "wait-send", SL_EINVAL,
                   "wait-send: rank 0, step 2 has 0WAIT_SEND_F0 already");
    expect_refused("0F0,0SEND_F0,0SEND_F0\n", "wait-send", SL_EUNSOUND,
                   "rank 0 has 0SEND_F0 twice");
    expect_refused("0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n", "wait-reduce",
                   SL_EINVAL, "rank 0, step 3 has 0WAIT_REDUCE_GRAD already");
    expect_refused("0F0\n1F0,1RECV_F0\n", "defer-recv", SL_EUNSOUND,
                   "rank 1: 1RECV_F0 is used by no action behind it");
    expect_refused("0F0,0RECV_F0\n", "defer-recv", SL_EUNSOUND,
                   "0RECV_F0 has no stage at its other end");
    expect_refused("0F0,0SEND_F0\n1RECV_F0,1F0\n", "send-budget=1", SL_EUNSOUND,
                   "rank 0, step 1: 0SEND_F0 has no wait");
    expect_refused("0F0,0SEND_F0,0WAIT_SEND_F0\n1F0\n", "send-budget=1",
                   SL_EUNSOUND, "0SEND_F0 has no receive of its own");
    expect_refused("0F0,0WAIT_SEND_F0,0SEND_F0\n1RECV_F0,1F0\n",
                   "send-budget=1", SL_EUNSOUND,
                   "0WAIT_SEND_F0 has no send before it");
    expect_refused("0F0,0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F0\n1RECV_F0,1F0\n",
                   "send-budget=1", SL_EUNSOUND, "was waited for before");
    expect_refused("0F0\n1RECV_F0,1F0\n", "send-budget=1", SL_EUNSOUND,
                   "1RECV_F0 has no send of its own");
    expect_refused("0F0,0SEND_F0,0F1,0WAIT_SEND_F0,0SEND_F1,0WAIT_SEND_F1\n"
                   "1RECV_F1,1RECV_F0,1F0,1F1\n",
                   "send-budget=1", SL_EUNSOUND,
                   "sends, receives and waits form a cycle");
    expect_refused("0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F0,0WAIT_SEND_F1\n"
                   "1RECV_F1,1RECV_F0,1F0,1F1\n",
                   "send-budget=1", SL_EUNSOUND,
                   "send-budget=1: rank 0, step 3: 0SEND_F1 would be one "
                   "pending send too many");
    expect_refused("0F0,0SEND_F0,0F1,0WAIT_SEND_F0,0SEND_F1,0WAIT_SEND_F1\n"
                   "1RECV_F0,1RECV_F1,1F1,1F0\n",
                   "defer-recv", SL_EUNSOUND,
                   "with its receives deferred the schedule deadlocks: rank 1 "
                   "at step 1 (1F1) waits for rank 0's step 4 (0SEND_F1)");
    expect_refused("0F0,0B0\n", "send-budget", SL_EINVAL,
                   "pass 'send-budget': expected a number");
    expect_refused("0F0,0B0\n", "send-budget=x", SL_EINVAL,
                   "pass 'send-budget=x': expected a number");
    expect_refused("0F0,0B0\n", "merge-bw=1", SL_EINVAL,
                   "merge-bw takes no number");
    sl_schedule *schedule = test_parse("0F0,0B0\n"), *lowered;
    assert_fails(sl_lower_send_budget(schedule, -1, &lowered), SL_EINVAL,
                 "0 or more, not -1");
    assert_fails(sl_lower_reduce_grad(schedule, (sl_reduce_wait)5, &lowered),
                 SL_EINVAL, "unknown wait for a reduction");
    assert_fails(sl_lower_wait_reduce(schedule, SL_REDUCE_WAIT_NONE, &lowered),
                 SL_EINVAL, "now or late");
    assert_fails(sl_lower_send_recv(schedule, (sl_recv)9, &lowered), SL_EINVAL,
                 "unknown placement of receives");
    assert_fails(sl_lower_unshard(schedule, 0, NULL, &lowered), SL_EINVAL,
                 "at least 1, not 0");
    sl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merge_bw_joins_only_neighbours_of_one_microbatch),
        cmocka_unit_test(delay_w_brings_weights_together),
        cmocka_unit_test(delay_w_moves_nothing_else),
        cmocka_unit_test(delay_w_of_one_cuts_backwards_in_two),
        cmocka_unit_test(merge_bw_makes_113_steps_of_the_known_case),
        cmocka_unit_test(reduce_grad_follows_the_last_backward),
        cmocka_unit_test(waits_come_and_go),
        cmocka_unit_test(sends_are_waited_for_where_they_are_proven),
        cmocka_unit_test(receives_are_deferred_to_their_users),
        cmocka_unit_test(waits_move_to_keep_a_budget),
        cmocka_unit_test(a_budget_is_kept_or_refused),
        cmocka_unit_test(unshard_looks_ahead_as_told),
        cmocka_unit_test(unshard_fetches_ahead_within_its_window),
        cmocka_unit_test(unshard_takes_both_halves_of_an_overlap),
        cmocka_unit_test(unshard_never_exceeds_its_window),
        cmocka_unit_test(send_recv_keeps_colocated_stages_silent),
        cmocka_unit_test(send_recv_tolerates_a_weight_after_a_whole_backward),
        cmocka_unit_test(late_receives_stand_before_their_users),
        cmocka_unit_test(sends_stand_after_their_compute),
        cmocka_unit_test(asap_never_deadlocks),
        cmocka_unit_test(what_cannot_be_lowered_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

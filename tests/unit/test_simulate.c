/* SPDX-License-Identifier: MIT
 *
 * The simulator against formulas, hand calculation and a brute-force oracle;
 * costs and their JSON. */
#include "support.h"
#include "random_schedule.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static sl_simulation *simulate(const sl_schedule *schedule,
                               const sl_costs *costs, sl_reading reading)
{
    sl_simulation *result;
    assert_ok(sl_simulate(schedule, costs, reading, &result));
    return result;
}

static void assert_near(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * fmax(1, fabs(expected)))
        fail_msg("%.12g, expected %.12g", found, expected);
}

/* Both schedules have p - 1 slots of idling before and after m slots of F + B.
 */
static void gpipe_and_1f1b_have_the_known_bubble(void **state)
{
    (void)state;
    for (int p = 1; p <= 6; p++)
        for (int m = p; m <= 20; m += 3)
            for (int which = 0; which < 2; which++) {
                sl_schedule *schedule =
                    test_generate(which ? "1f1b" : "gpipe", p, 1, m);
                sl_simulation *result = simulate(schedule, NULL, SL_ASYNC);
                assert_near(sl_simulation_makespan(result), 3 * (m + p - 1));
                assert_near(sl_simulation_bubble(result),
                            (p - 1) / (double)(m + p - 1));
                for (int rank = 0; rank < p; rank++) {
                    sl_rank_usage usage = sl_simulation_rank(result, rank);
                    assert_near(usage.busy, 3 * m);
                    assert_near(usage.idle, 3 * (p - 1));
                    int in_flight = p - rank < m ? p - rank : m;
                    assert_int_equal(usage.peak_bytes, which ? in_flight : m);
                }
                sl_simulation_destroy(result);
                sl_schedule_destroy(schedule);
            }
}

/* Worked by hand: 0F0 0-1, message until 3, 1F0 3-4, 1B0 4-6, message until 8,
 * 0B0 8-10. */
static void a_message_costs_latency_and_bytes_over_bandwidth(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.edge = (sl_edge_cost){.latency = 1.5, .bandwidth = 8, .bytes = 4};
    static const char *const texts[] = {
        "0F0,0B0\n1F0,1B0\n",
        "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"};
    for (int i = 0; i < 2; i++) {
        sl_schedule *schedule = test_parse(texts[i]);
        for (int r = 0; r < SL_READINGS; r++) {
            sl_simulation *result = simulate(schedule, &costs, (sl_reading)r);
            assert_near(sl_simulation_makespan(result), 10);
            assert_near(sl_simulation_bubble(result), 1 - 6 / 20.0);
            sl_simulation_destroy(result);
        }
        sl_schedule_destroy(schedule);
    }
}

/* 0F0 0-1, 0F1 1-2; messages of 3 each from rank 0 to 1. Async: they travel
 * together, arriving at 4 and 5; 1F1 ends at 6. Per-edge and ordered: one after
 * the other, at 4 and 7. Blocking: the first holds both ranks until 4, 0F1 4-5, the second
 * 5-8, and only then rank 1 computes. */
static void readings_differ_as_defined(void **state)
{
    (void)state;
    static const double ends[SL_READINGS] = {[SL_ASYNC] = 6,
                                             [SL_PER_EDGE] = 8,
                                             [SL_ORDERED] = 8,
                                             [SL_BLOCKING] = 10};
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 3;
    sl_schedule *schedule = test_parse("0F0,0SEND_F0,0F1,0SEND_F1\n"
                                       "1RECV_F0,1RECV_F1,1F0,1F1\n");
    for (int r = 0; r < SL_READINGS; r++) {
        sl_simulation *result = simulate(schedule, &costs, (sl_reading)r);
        assert_near(sl_simulation_makespan(result), ends[r]);
        sl_simulation_destroy(result);
    }
    sl_schedule_destroy(schedule);
}

/* At 17 rank 1 sends a gradient down and a result up, 3 each: at once, but for
 * ordered, where the second follows the first. */
static void edges_are_independent_but_when_ordered(void **state)
{
    (void)state;
    static const double ends[] = {
        [SL_ASYNC] = 21, [SL_PER_EDGE] = 21, [SL_ORDERED] = 24};
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 3;
    sl_schedule *schedule =
        test_parse("0F1,0SEND_F1,0F0,0SEND_F0,0RECV_B1,0B1\n"
                   "1RECV_F1,1F1,1SEND_F1,1RECV_F0,1RECV_B1,1B1,1F0,1SEND_B1,"
                   "1SEND_F0\n"
                   "2RECV_F1,2F1,2B1,2SEND_B1,2RECV_F0,2F0\n");
    for (int r = SL_ASYNC; r <= SL_ORDERED; r++) {
        sl_simulation *result = simulate(schedule, &costs, (sl_reading)r);
        assert_near(sl_simulation_action(result, 0, 5).end, 22);
        assert_near(sl_simulation_action(result, 2, 5).end, ends[r]);
        sl_simulation_destroy(result);
    }
    sl_schedule_destroy(schedule);
}

/* The message is under way from 1 to 4. */
static void a_wait_holds_its_rank_until_the_message_is_there(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 3;
    sl_schedule *schedule =
        test_parse("0F0,0SEND_F0,0WAIT_SEND_F0,0F1\n1RECV_F0,1F0\n");
    for (int r = 0; r < SL_READINGS; r++) {
        sl_simulation *result = simulate(schedule, &costs, (sl_reading)r);
        assert_near(sl_simulation_action(result, 0, 2).end, 4);
        assert_near(sl_simulation_action(result, 0, 3).end, 5);
        assert_near(sl_simulation_rank(result, 0).busy, 2);
        sl_simulation_destroy(result);
    }
    sl_schedule_destroy(schedule);
}

/* Rank 0 sends at 5, and rank 1 posts the receive at 10: until then, or, where
 * a message starts when both its ends are posted, until 13. */
static void a_wait_holds_its_rank_until_the_receive_is_posted(void **state)
{
    (void)state;
    static const double ends[] = {
        [SL_ASYNC] = 10, [SL_PER_EDGE] = 13, [SL_ORDERED] = 13};
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 3;
    sl_schedule *schedule =
        test_parse("1RECV_F0,1F0,1SEND_F0,1WAIT_SEND_F0\n"
                   "0F0,0SEND_F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,0F8,0F9,2RECV_F0,"
                   "2F0\n");
    for (int r = SL_ASYNC; r <= SL_ORDERED; r++) {
        sl_simulation *result = simulate(schedule, &costs, (sl_reading)r);
        assert_near(sl_simulation_action(result, 0, 3).end, ends[r]);
        sl_simulation_destroy(result);
    }
    sl_schedule_destroy(schedule);
}

/* Without a wait REDUCE_GRAD holds its rank; with one it runs beside compute,
 * and the wait holds the rank until it is done. */
static void a_reduction_runs_beside_until_it_is_waited_for(void **state)
{
    (void)state;
    static const struct {
        sl_reduce_wait wait;
        double makespan, busy;
    } cases[] = {{SL_REDUCE_WAIT_NONE, 16, 16},
                 {SL_REDUCE_WAIT_NOW, 16, 6},
                 {SL_REDUCE_WAIT_LATE, 14, 6}};
    sl_costs costs = SL_COSTS_INIT;
    costs.stage.reduce_grad = 5;
    sl_schedule *order = test_parse("0F0,1F0,1B0,0B0\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_schedule *lowered;
        assert_ok(sl_lower_reduce_grad(order, cases[i].wait, &lowered));
        sl_simulation *result = simulate(lowered, &costs, SL_ASYNC);
        assert_near(sl_simulation_makespan(result), cases[i].makespan);
        assert_near(sl_simulation_rank(result, 0).busy, cases[i].busy);
        sl_simulation_destroy(result);
        sl_schedule_destroy(lowered);
    }
    sl_schedule_destroy(order);
}

/* Slots are microbatches in flight at once, from F to the end of W or B; both
 * halves of an overlap count while it runs. */
static void slots_are_the_peak_in_flight(void **state)
{
    (void)state;
    test_dice random = {433};
    for (int i = 0; i < 200; i++) {
        test_shape shape = test_random_shape(&random);
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_simulation *result = simulate(drawn, NULL, SL_ASYNC);
        for (int rank = 0; rank < shape.ranks; rank++) {
            const sl_action *row = sl_schedule_row(drawn, rank);
            int live = 0, peak = 0;
            for (size_t k = 0; k < sl_schedule_length(drawn, rank); k++) {
                sl_action parts[2];
                int count = sl_action_parts(&row[k], parts), ended = 0;
                for (int p = 0; p < count; p++) {
                    live += parts[p].kind == SL_FORWARD;
                    ended += parts[p].kind == SL_BACKWARD ||
                             parts[p].kind == SL_BACKWARD_WEIGHT;
                }
                peak = live > peak ? live : peak;
                live -= ended;
            }
            sl_rank_usage usage = sl_simulation_rank(result, rank);
            assert_int_equal(usage.activation_slots, peak);
            assert_int_equal(usage.peak_bytes, peak); /* 1 for each */
        }
        sl_simulation_destroy(result);
        sl_schedule_destroy(drawn);
    }
}

static void random_costs(test_dice *random, int stages, sl_costs *out)
{
    static sl_stage_cost stage_costs[64];
    static sl_edge_cost edge_costs[64];
    *out = (sl_costs)SL_COSTS_INIT;
    for (int s = 0; s < stages; s++) {
        stage_costs[s] = (sl_stage_cost){1 + test_below(random, 50) / 7.0,
                                         1 + test_below(random, 50) / 7.0,
                                         1 + test_below(random, 50) / 7.0,
                                         1 + test_below(random, 50) / 7.0,
                                         test_below(random, 50) / 7.0,
                                         1 + test_below(random, 9),
                                         test_below(random, 2),
                                         test_below(random, 4)};
        edge_costs[s] =
            (sl_edge_cost){test_below(random, 20) / 3.0,
                           1 + test_below(random, 5), test_below(random, 9)};
    }
    out->overlap = 0.5 + test_below(random, 6) / 10.0;
    out->stages = stage_costs;
    out->stage_count = (size_t)stages;
    out->edges = edge_costs;
    out->edge_count = (size_t)stages - 1;
}

/* End times by relaxation: start from 0 and push ends later until every rule
 * holds. Knows nothing of events or queues. */
typedef struct oracle {
    const sl_schedule *schedule;
    const sl_costs *costs;
    double end[8][600];
} oracle;

static double ended(const oracle *o, int stage, int mb, bool forward,
                    int *out_rank)
{
    for (int r = 0; r < sl_schedule_ranks(o->schedule); r++)
        for (size_t k = 0; k < sl_schedule_length(o->schedule, r); k++) {
            sl_action parts[2];
            int count =
                sl_action_parts(&sl_schedule_row(o->schedule, r)[k], parts);
            for (int i = 0; i < count; i++)
                if (parts[i].stage == stage && parts[i].microbatch == mb &&
                    (forward ? parts[i].kind == SL_FORWARD
                             : parts[i].kind == SL_BACKWARD ||
                                   parts[i].kind == SL_BACKWARD_INPUT)) {
                    *out_rank = r;
                    return o->end[r][k];
                }
        }
    return 0;
}

static double edge_cost(const oracle *o, int boundary)
{
    const sl_edge_cost *e = &o->costs->edges[boundary];
    return e->latency + (double)e->bytes / e->bandwidth;
}

static double ready_at(const oracle *o, int rank, const sl_action *part)
{
    int stage = part->stage, mb = part->microbatch, from = rank;
    bool forward = part->kind == SL_FORWARD;
    if (part->kind == SL_BACKWARD_WEIGHT ||
        sl_action_kind_family(part->kind) != SL_FAMILY_COMPUTE)
        return 0; /* its I is earlier on the rank */
    int source = forward ? stage - 1 : stage + 1;
    if (source < 0 || source >= (int)o->costs->stage_count)
        return 0;
    double time = ended(o, source, mb, forward, &from);
    if (from != rank)
        time += edge_cost(o, forward ? stage - 1 : stage);
    return time;
}

static double cost_of(const oracle *o, const sl_action *part)
{
    const sl_stage_cost *c = &o->costs->stages[part->stage];
    switch (part->kind) {
    case SL_FORWARD: return c->forward;
    case SL_BACKWARD_INPUT: return c->backward_input;
    case SL_BACKWARD_WEIGHT: return c->backward_weight;
    default: return c->backward;
    }
}

static void relax(oracle *o)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < sl_schedule_ranks(o->schedule); r++)
            for (size_t k = 0; k < sl_schedule_length(o->schedule, r); k++) {
                sl_action parts[2];
                const sl_action *a = &sl_schedule_row(o->schedule, r)[k];
                int count = sl_action_parts(a, parts);
                double start = k ? o->end[r][k - 1] : 0, cost = 0;
                for (int i = 0; i < count; i++) {
                    start = fmax(start, ready_at(o, r, &parts[i]));
                    cost += cost_of(o, &parts[i]);
                }
                if (a->kind == SL_OVERLAP_F_B)
                    cost *= o->costs->overlap;
                if (start + cost > o->end[r][k] + 1e-12) {
                    o->end[r][k] = start + cost;
                    moved = true;
                }
            }
    }
}

static void times_equal_the_oracle(void **state)
{
    (void)state;
    static oracle o;
    test_dice random = {401};
    for (int i = 0; i < 120; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = false;
        sl_costs costs;
        random_costs(&random, shape.stages, &costs);
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        sl_simulation *result = simulate(drawn, &costs, SL_ASYNC);
        memset(&o, 0, sizeof o);
        o.schedule = drawn;
        o.costs = &costs;
        relax(&o);
        for (int r = 0; r < shape.ranks; r++)
            for (size_t k = 0; k < sl_schedule_length(drawn, r); k++)
                assert_near(sl_simulation_action(result, r, k).end,
                            o.end[r][k]);
        sl_simulation_destroy(result);
        sl_schedule_destroy(drawn);
    }
}

/* Under async, where receives stand and whether messages are written at all
 * changes nothing; ordered is no faster, blocking no faster than that. */
static void written_messages_equal_implied_ones(void **state)
{
    (void)state;
    test_dice random = {409};
    for (int i = 0; i < 200; i++) {
        test_shape shape = test_random_shape(&random);
        shape.messages = shape.idle = false;
        sl_costs costs;
        random_costs(&random, shape.stages, &costs);
        sl_schedule *drawn = test_random_schedule(&random, &shape), *asap,
                    *late;
        assert_ok(sl_lower_send_recv(drawn, SL_RECV_ASAP, &asap));
        assert_ok(sl_lower_send_recv(drawn, SL_RECV_LATE, &late));
        sl_simulation *results[] = {simulate(drawn, &costs, SL_ASYNC),
                                    simulate(asap, &costs, SL_ASYNC),
                                    simulate(late, &costs, SL_ASYNC),
                                    simulate(asap, &costs, SL_ORDERED),
                                    simulate(asap, &costs, SL_BLOCKING)};
        double spans[5];
        for (int k = 0; k < 5; k++) {
            spans[k] = sl_simulation_makespan(results[k]);
            sl_simulation_destroy(results[k]);
        }
        assert_near(spans[1], spans[0]);
        assert_near(spans[2], spans[0]);
        assert_true(spans[3] >= spans[1] - 1e-9);
        assert_true(spans[4] >= spans[3] - 1e-9);
        sl_schedule_destroy(drawn);
        sl_schedule_destroy(asap);
        sl_schedule_destroy(late);
    }
}

/* Each action of the path starts when the one before it ends, the first at 0
 * and the last ends last. */
static void expect_tight_path(const sl_schedule *schedule,
                              const sl_costs *costs, sl_reading reading)
{
    sl_simulation *result = simulate(schedule, costs, reading);
    size_t count;
    const sl_place *path = sl_simulation_critical_path(result, &count);
    assert_true(count > 0);
    double at = 0;
    for (size_t k = 0; k < count; k++) {
        sl_interval when =
            sl_simulation_action(result, path[k].rank, (size_t)path[k].step);
        assert_near(when.start, at);
        at = when.end;
    }
    assert_near(at, sl_simulation_makespan(result));
    sl_simulation_destroy(result);
}

static void the_critical_path_is_tight(void **state)
{
    (void)state;
    test_dice random = {419};
    sl_costs free_backward = SL_COSTS_INIT;
    free_backward.stage.backward = 0;
    free_backward.edge.latency = 1;
    sl_schedule *ends_in_message =
        test_parse("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
    for (int r = 0; r < SL_READINGS; r++)
        expect_tight_path(ends_in_message, &free_backward, (sl_reading)r);
    sl_schedule_destroy(ends_in_message);
    for (int i = 0; i < 200; i++) {
        test_shape shape = test_random_shape(&random);
        sl_costs costs;
        random_costs(&random, shape.stages, &costs);
        shape.messages = i % 2;
        sl_schedule *drawn = test_random_schedule(&random, &shape);
        if (shape.messages) {
            expect_tight_path(drawn, &costs, SL_ASYNC);
        } else {
            sl_schedule *lowered = test_lower(drawn, SL_LOWER_DEFAULT_PASSES);
            for (int r = 0; r < SL_READINGS; r++)
                expect_tight_path(lowered, &costs, (sl_reading)r);
            sl_schedule_destroy(lowered);
        }
        sl_schedule_destroy(drawn);
    }
}

/* Taken at F's start, a part given back by I, the rest by W. */
static void activations_are_held_and_given_back(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.stage.activation_bytes = 10;
    costs.stage.input_freed_bytes = 4;
    sl_schedule *schedule = test_parse("0F0,0F1,0I0,0F2,0W0,0B1,0B2\n");
    sl_simulation *result = simulate(schedule, &costs, SL_ASYNC);
    static const int during[] = {10, 20, 20, 26, 26, 20, 10};
    static const int after[] = {10, 20, 16, 26, 20, 10, 0};
    for (size_t k = 0; k < 7; k++) {
        sl_held_bytes held = sl_simulation_bytes(result, 0, k);
        assert_int_equal(held.during, during[k]);
        assert_int_equal(held.after, after[k]);
    }
    assert_int_equal(sl_simulation_rank(result, 0).peak_bytes, 26);
    sl_simulation_destroy(result);
    sl_schedule_destroy(schedule);
}

/* Messages hold what the compute before them left, however they are read. */
static void messages_hold_what_their_rank_holds(void **state)
{
    (void)state;
    sl_schedule *compute = test_generate("interleaved", 3, 2, 6);
    sl_schedule *comms = test_lower(compute, "send-recv");
    for (int r = 0; r < SL_READINGS; r++) {
        sl_simulation *result = simulate(comms, NULL, (sl_reading)r);
        for (int rank = 0; rank < 3; rank++) {
            int64_t held = 0;
            for (size_t k = 0; k < sl_schedule_length(comms, rank); k++) {
                sl_held_bytes bytes = sl_simulation_bytes(result, rank, k);
                uint8_t kind = sl_schedule_row(comms, rank)[k].kind;
                assert_int_equal(bytes.during, held + (kind == SL_FORWARD));
                held = bytes.after;
            }
            assert_int_equal(held, 0);
        }
        sl_simulation_destroy(result);
    }
    sl_schedule_destroy(comms);
    sl_schedule_destroy(compute);
}

static void forward_only_holds_nothing_afterwards(void **state)
{
    (void)state;
    sl_schedule *schedule = test_generate("forward", 4, 2, 8);
    sl_simulation *result = simulate(schedule, NULL, SL_ASYNC);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(sl_simulation_rank(result, rank).peak_bytes, 1);
    sl_simulation_destroy(result);
    sl_schedule_destroy(schedule);
}

static void overlap_costs_its_part_of_both(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.overlap = 0.75;
    sl_schedule *schedule = test_parse("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
    sl_simulation *result = simulate(schedule, &costs, SL_ASYNC);
    assert_near(sl_simulation_makespan(result), 1 + 0.75 * 3 + 2);
    sl_simulation_destroy(result);
    sl_schedule_destroy(schedule);
}

static void state_changes_may_cost(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.unshard = 5;
    costs.stage.reduce_grad = 7;
    sl_schedule *schedule =
        test_parse("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n");
    sl_simulation *result = simulate(schedule, &costs, SL_ASYNC);
    assert_near(sl_simulation_makespan(result), 15);
    sl_simulation_destroy(result);
    sl_schedule_destroy(schedule);
}

static void a_dry_run_without_messages_counts_slots(void **state)
{
    (void)state;
    size_t steps;
    sl_schedule *schedule = test_generate("1f1b", 4, 1, 8);
    assert_ok(sl_dry_run(schedule, &steps));
    assert_int_equal(steps, 2 * (8 + 3));
    sl_schedule_destroy(schedule);
}

static void what_cannot_run_is_refused(void **state)
{
    (void)state;
    sl_simulation *result;
    size_t steps;
    sl_schedule *schedule = test_parse("0F0,2F0,0F1,2F1\n1F1,1F0\n");
    assert_fails(sl_simulate(schedule, NULL, SL_ASYNC, &result), SL_EUNSOUND,
                 "deadlocks under async communication: stuck are rank 0 at "
                 "step 1 (2F0), rank 1 at step 0 (1F1)");
    assert_fails(sl_dry_run(schedule, &steps), SL_EUNSOUND,
                 "the dry run stalls: rank 0, step 1: 2F0");
    sl_schedule_destroy(schedule);
    schedule = test_parse("60000F16000000\n");
    assert_fails(sl_simulate(schedule, NULL, SL_ASYNC, &result), SL_EUNSOUND,
                 "60001 stages and 16000001 microbatches are named");
    sl_schedule_destroy(schedule);
}

static void costs_are_read_from_json(void **state)
{
    (void)state;
    static const char text[] =
        "{\"F\": 2, \"latency\": 0.5, \"overlap\": 0.8, \"UNSHARD\": 3,"
        " \"activation_bytes\": 100,"
        " \"stages\": [{\"B\": 7}, {\"F\": 4, \"activation_bytes\": 50,"
        " \"input_freed_bytes\": 20}],"
        " \"edges\": [{\"bandwidth\": 10, \"bytes\": 30}]}";
    sl_costs costs = SL_COSTS_INIT;
    assert_ok(sl_costs_read_json(text, strlen(text), &costs));
    assert_int_equal(costs.stage_count, 2);
    assert_near(costs.stages[0].forward, 2);
    assert_near(costs.stages[0].backward, 7);
    assert_int_equal(costs.stages[0].activation_bytes, 100);
    assert_near(costs.stages[1].forward, 4);
    assert_int_equal(costs.stages[1].input_freed_bytes, 20);
    assert_int_equal(costs.edge_count, 1);
    assert_near(costs.edges[0].latency, 0.5);
    assert_near(costs.edges[0].bandwidth, 10);
    assert_int_equal(costs.edges[0].bytes, 30);
    assert_near(costs.overlap, 0.8);
    assert_near(costs.unshard, 3);
    sl_costs_clear(&costs);
    assert_null(costs.stages);
}

static void bad_costs_are_refused_and_change_nothing(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", "line 1"},
        {"[]", "costs: expected an object"},
        {"{\"G\": 1}", "unknown key \"G\""},
        {"{\"F\": \"1\"}", "\"F\" must be a number"},
        {"{\"F\": -1}", "\"F\" must be a number from 0 up"},
        {"{\"stages\": {}}", "\"stages\" must be an array"},
        {"{\"stages\": [3]}", "stages[0]: expected an object"},
        {"{\"stages\": [{}, {\"X\": 3}]}", "stages[1]: unknown key \"X\""},
        {"{\"edges\": 3}", "\"edges\" must be an array"},
        {"{\"activation_bytes\": 1.5}", "must be a whole number"},
        {"{\"activation_bytes\": 1e30}", "must be a whole number"},
        {"{\"bandwidth\": 0}", "\"bandwidth\" must be above 0"},
        {"{\"a\\u001bb\": 0}", "unknown key \"a?b\""},
        {"{\"F\": 1, \"F\": 2}", "line 1"},
    };
    sl_costs costs = SL_COSTS_INIT, before = SL_COSTS_INIT;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sl_status status =
            sl_costs_read_json(texts[i][0], strlen(texts[i][0]), &costs);
        assert_true(status == SL_EPARSE || status == SL_EINVAL);
        if (!strstr(sl_error_text(), texts[i][1]))
            fail_msg("'%s', expected '%s'", sl_error_text(), texts[i][1]);
        assert_memory_equal(&costs, &before, sizeof costs);
    }
    static const char exact[] = "{\"activation_bytes\": 9007199254740993}";
    assert_ok(sl_costs_read_json(exact, strlen(exact), &costs));
    assert_true(costs.stage.activation_bytes == INT64_C(9007199254740993));
    sl_costs_clear(&costs);
    sl_simulation *result;
    sl_schedule *pair = test_parse("0F0\n1F0\n");
    assert_ok(sl_costs_read_json("{\"edges\": []}", 13, &costs));
    assert_fails(sl_simulate(pair, &costs, SL_ASYNC, &result), SL_EINVAL,
                 "the costs are of 0 edges");
    sl_schedule_destroy(pair);
    sl_schedule *schedule = test_parse("0F0,0B0\n");
    assert_ok(sl_simulate(schedule, &costs, SL_ASYNC, &result));
    sl_simulation_destroy(result);
    sl_costs_clear(&costs);
    sl_stage_cost two[2] = {{0}};
    costs.stages = two;
    costs.stage_count = 2;
    assert_fails(sl_simulate(schedule, &costs, SL_ASYNC, &result), SL_EINVAL,
                 "the costs are of 2 stages, the schedule has 1");
    costs.stages = NULL;
    costs.stage_count = 0;
    costs.stage.input_freed_bytes = 5;
    assert_fails(sl_simulate(schedule, &costs, SL_ASYNC, &result), SL_EINVAL,
                 "bytes freed by I must be from 0 to the activation bytes (1)");
    costs = before;
    costs.stage.forward = 1e200;
    assert_fails(sl_simulate(schedule, &costs, SL_ASYNC, &result), SL_EINVAL,
                 "the cost of F must be from 0 to 1e+100");
    costs = before;
    costs.stage.activation_bytes = INT64_MAX;
    assert_fails(sl_simulate(schedule, &costs, SL_ASYNC, &result), SL_EINVAL,
                 "activation bytes must be from 0 to");
    costs = before;
    costs.stage.activation_bytes = INT64_C(80) << 30;
    assert_ok(sl_simulate(schedule, &costs, SL_ASYNC, &result));
    assert_true(sl_simulation_rank(result, 0).peak_bytes == INT64_C(80) << 30);
    sl_simulation_destroy(result);
    sl_schedule_destroy(schedule);
    schedule = test_parse("0F0\n1F0\n");
    costs = before;
    costs.edge.bandwidth = 1e-320;
    assert_fails(sl_simulate(schedule, &costs, SL_ASYNC, &result), SL_EINVAL,
                 "the time of a message must be from 0 to");
    sl_schedule_destroy(schedule);
}

static void json_holds_what_was_found(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse("0F0,0B0\n1F0,1B0\n");
    sl_simulation *result = simulate(schedule, NULL, SL_ASYNC);
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_simulation_write_json(result, schedule, 5, true,
                                       sl_write_string, &text));
    json_t *root = json_loadb(text.data, text.length, 0, NULL);
    assert_non_null(root);
    assert_near(json_number_value(json_object_get(root, "makespan")), 6);
    assert_near(json_number_value(json_object_get(root, "bubble")), 0.5);
    assert_int_equal(json_integer_value(json_object_get(root, "steps")), 5);
    json_t *rank = json_array_get(json_object_get(root, "ranks"), 1);
    assert_near(json_number_value(json_object_get(rank, "busy")), 3);
    assert_near(json_number_value(json_object_get(rank, "idle")), 3);
    assert_int_equal(json_integer_value(json_object_get(rank, "peak_bytes")),
                     1);
    json_t *action = json_array_get(json_object_get(rank, "actions"), 1);
    assert_string_equal(json_string_value(json_array_get(action, 0)), "1B0");
    assert_near(json_number_value(json_array_get(action, 1)), 2);
    assert_near(json_number_value(json_array_get(action, 2)), 4);
    assert_int_equal(json_array_size(json_object_get(root, "critical_path")),
                     4);
    json_decref(root);
    sl_string_clear(&text);
    sl_simulation_destroy(result);
    sl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpipe_and_1f1b_have_the_known_bubble),
        cmocka_unit_test(a_message_costs_latency_and_bytes_over_bandwidth),
        cmocka_unit_test(edges_are_independent_but_when_ordered),
        cmocka_unit_test(a_wait_holds_its_rank_until_the_message_is_there),
        cmocka_unit_test(a_wait_holds_its_rank_until_the_receive_is_posted),
        cmocka_unit_test(a_reduction_runs_beside_until_it_is_waited_for),
        cmocka_unit_test(slots_are_the_peak_in_flight),
        cmocka_unit_test(readings_differ_as_defined),
        cmocka_unit_test(times_equal_the_oracle),
        cmocka_unit_test(written_messages_equal_implied_ones),
        cmocka_unit_test(the_critical_path_is_tight),
        cmocka_unit_test(activations_are_held_and_given_back),
        cmocka_unit_test(messages_hold_what_their_rank_holds),
        cmocka_unit_test(forward_only_holds_nothing_afterwards),
        cmocka_unit_test(overlap_costs_its_part_of_both),
        cmocka_unit_test(state_changes_may_cost),
        cmocka_unit_test(a_dry_run_without_messages_counts_slots),
        cmocka_unit_test(what_cannot_run_is_refused),
        cmocka_unit_test(costs_are_read_from_json),
        cmocka_unit_test(bad_costs_are_refused_and_change_nothing),
        cmocka_unit_test(json_holds_what_was_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * Timelines: times add up, gaps are those of the simulator, and a run that
 * happens exactly as simulated looks exactly like the simulation. */
#include "support.h"
#include "random_schedule.h"
#include "view/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A schedule, what a simulation makes of it, and that as a timeline. */
typedef struct subject {
    sl_schedule *schedule;
    sl_simulation *simulation;
    sl_timeline *timeline;
} subject;

/* Takes the schedule. */
static subject simulate(sl_schedule *schedule, const sl_costs *costs,
                        sl_reading reading)
{
    subject own = {.schedule = schedule};
    assert_ok(sl_simulate(schedule, costs, reading, &own.simulation));
    assert_ok(sl_timeline_simulated("", schedule, costs, own.simulation,
                                    &own.timeline));
    return own;
}

static void clear(subject *own)
{
    sl_timeline_destroy(own->timeline);
    sl_simulation_destroy(own->simulation);
    sl_schedule_destroy(own->schedule);
}

static sl_costs random_costs(test_dice *dice)
{
    sl_costs costs = SL_COSTS_INIT;
    costs.stage.forward = 1 + test_below(dice, 8) / 4.0;
    costs.stage.backward_input = 1 + test_below(dice, 8) / 4.0;
    costs.stage.backward_weight = test_below(dice, 8) / 4.0;
    costs.stage.backward = 1 + test_below(dice, 12) / 4.0;
    costs.edge.latency = test_below(dice, 6) / 8.0;
    costs.edge.bytes = test_below(dice, 1000);
    costs.stage.activation_bytes = test_below(dice, 100);
    return costs;
}

static void time_adds_up(void **state)
{
    (void)state;
    test_dice dice = {20261115};
    int gaps = 0;
    for (int round = 0; round < 400; round++) {
        test_shape shape = test_random_shape(&dice);
        sl_schedule *schedule = test_random_schedule(&dice, &shape);
        sl_costs costs = random_costs(&dice);
        subject own = simulate(schedule, &costs, SL_ASYNC);
        const sl_timeline *timeline = own.timeline;
        assert_int_equal(sl_timeline_summarize(timeline).blocks,
                         sl_schedule_extent(schedule).actions);
        for (int r = 0; r < timeline->ranks; r++) {
            const sl__track *track = &timeline->tracks[r];
            double sum = track->busy + track->overhead;
            for (int why = 0; why < SL__IDLE_REASONS; why++) {
                assert_true(track->idle[why] >= 0);
                sum += track->idle[why];
            }
            assert_true(fabs(sum - timeline->makespan) <
                        1e-9 * (1 + timeline->makespan));
            assert_true(
                fabs(track->busy - sl_simulation_rank(own.simulation, r).busy) <
                1e-9);
            assert_int_equal(track->peak_bytes,
                             sl_simulation_rank(own.simulation, r).peak_bytes);
            for (size_t i = 0; i < track->blocks.count; i++) {
                const sl__block *block = &track->blocks.data[i];
                if (block->by.rank < 0 || shape.messages)
                    continue;
                /* It begins as soon as what it waited for has arrived. */
                const sl__block *by = &timeline->tracks[block->by.rank]
                                           .blocks.data[block->by.step];
                gaps++;
                assert_int_not_equal(block->by.rank, r);
                assert_true(fabs(block->start - by->end - costs.edge.latency) <
                            1e-9);
            }
        }
        clear(&own);
    }
    assert_true(gaps > 200);
}

/* By hand: two ranks, two microbatches, F 1, B 2, a message 0.5. */
static void gaps_of_a_small_schedule(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 0.5;
    subject own = simulate(schedule, &costs, SL_ASYNC);
    const sl_timeline *timeline = own.timeline;
    /* Rank 1: idle to 1.5, 1F0 to 2.5, 1B0 to 4.5, 1F1 to 5.5, 1B1 to 7.5.
     * Rank 0: 0F0, 0F1 to 2; 1B0 is done at 4.5 and here at 5; 0B0 to 7; 1B1 is
     * done at 7.5 and here at 8; 0B1 to 10. */
    const double *zero = timeline->tracks[0].idle;
    const double *one = timeline->tracks[1].idle;
    assert_true(timeline->makespan == 10);
    assert_true(zero[SL__IDLE_WARM_UP] == 0 && zero[SL__IDLE_DRAIN] == 0);
    assert_true(zero[SL__IDLE_BACKWARD] == 2.5 + 0.5);
    assert_true(zero[SL__IDLE_MESSAGE] == 0.5 + 0.5);
    assert_true(one[SL__IDLE_WARM_UP] == 1.5 && one[SL__IDLE_DRAIN] == 2.5);
    assert_true(one[SL__IDLE_BACKWARD] == 0 && one[SL__IDLE_FORWARD] == 0);
    assert_true(one[SL__IDLE_MESSAGE] == 0);
    assert_int_equal(timeline->message_count, 4);
    assert_int_equal(timeline->tracks[0].sent, 2);
    clear(&own);
}

/* What was computed before the rank was free, and arrives after, is waited for
 * as a message. */
static void late_messages_are_messages(void **state)
{
    (void)state;
    sl_schedule *schedule = test_parse("0F0,0F1\n1F0,1F1\n");
    sl_stage_cost stages[2] = {{.forward = 1}, {.forward = 0.5}};
    sl_costs costs = SL_COSTS_INIT;
    costs.stages = stages;
    costs.stage_count = 2;
    costs.edge.latency = 2;
    subject own = simulate(schedule, &costs, SL_ASYNC);
    const sl_timeline *timeline = own.timeline;
    /* 1F0 from 3 to 3.5; 0F1 was done at 2 and is here at 4. */
    const sl__block *waited = &timeline->tracks[1].blocks.data[1];
    assert_true(waited->start == 4);
    assert_int_equal(waited->why, SL__IDLE_MESSAGE);
    assert_true(timeline->tracks[1].idle[SL__IDLE_MESSAGE] == 0.5);
    clear(&own);
}

/* Where messages hold the rank, its own are what it waits for. */
static void own_messages_hold_a_rank(void **state)
{
    (void)state;
    sl_schedule *order = test_generate("1F1B", 4, 1, 4);
    sl_schedule *schedule = test_lower(order, "send-recv");
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 3;
    subject own = simulate(schedule, &costs, SL_BLOCKING);
    const sl_timeline *timeline = own.timeline;
    /* Before 0B0 rank 0 still sends what 0F3 has made. */
    const sl__blocks *blocks = &timeline->tracks[0].blocks;
    for (size_t i = 0; i < blocks->count; i++) {
        char text[SL_ACTION_TEXT_MAX];
        sl__block_print(&blocks->data[i], text);
        if (strcmp(text, "0B0") == 0)
            assert_int_equal(blocks->data[i].why, SL__IDLE_MESSAGE);
    }
    clear(&own);
    sl_schedule_destroy(order);
}

/* Sums of bytes that nobody has stay at the largest. */
static void enormous_bytes_do_not_overflow(void **state)
{
    (void)state;
    sl_schedule *schedule = test_generate("1F1B", 2, 1, 8);
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.bytes = INT64_C(1) << 61;
    subject own = simulate(schedule, &costs, SL_ASYNC);
    const sl_timeline *timeline = own.timeline;
    assert_true(timeline->tracks[0].sent_bytes == INT64_MAX);
    clear(&own);
}

/* ----------------------------------------------------------------- runs -- */

/* What sl_view_write_run writes, of a run that went as simulated. */
typedef struct trace_text {
    char *data;
    size_t used;
    size_t size;
    bool some;
} trace_text;

__attribute__((format(printf, 2, 3))) static void put(trace_text *t,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (t->size - t->used < 1000) {
        t->size = 2 * t->size + 4000;
        t->data = realloc(t->data, t->size);
        assert_non_null(t->data);
    }
    t->used += (size_t)vsnprintf(t->data + t->used, t->size - t->used, format,
                                 arguments);
    va_end(arguments);
}

static void put_slice(trace_text *t, int rank, const char *kind,
                      const char *action, double start, double end,
                      const char *more)
{
    put(t,
        "%s{\"ph\": \"X\", \"pid\": %d, \"tid\": 0, \"name\": \"x\", \"cat\": "
        "\"%s\", \"ts\": %.9f, \"dur\": %.9f, \"args\": {\"action\": "
        "\"%s\"%s}}",
        t->some ? ",\n" : "\n", rank, kind, start * 1e6, (end - start) * 1e6,
        action, more);
    t->some = true;
}

static void put_rank(trace_text *t, const sl_timeline *of, int rank)
{
    double free = 0;
    const sl__blocks *blocks = &of->tracks[rank].blocks;
    for (size_t i = 0; i < blocks->count; i++) {
        const sl__block *block = &blocks->data[i];
        char action[SL_ACTION_TEXT_MAX], more[160] = ", \"bytes\": 100";
        bool forward = block->kind == SL_FORWARD;
        sl_action_print(&block->action, action);
        if (block->kind == SL_BACKWARD_INPUT) /* It hands nothing on. */
            more[0] = '\0';
        put_slice(t, rank, "compute", action, block->start, block->end, more);
        if (block->start > free && block->by.rank >= 0) {
            snprintf(more, sizeof more,
                     ", \"peer\": %d, \"peer_stage\": %d, \"edge\": %d, "
                     "\"bytes\": 8",
                     block->by.rank, block->action.stage + (forward ? -1 : 1),
                     block->action.stage);
            snprintf(action, sizeof action, "%dRECV_%c%d", block->action.stage,
                     forward ? 'F' : 'B', (int)block->action.microbatch);
            put_slice(t, rank, "wait", action, free, block->start, more);
            put_slice(t, rank, "receive", action, free, block->start, more);
        }
        free = block->end;
    }
}

static char *run_text(const sl_timeline *of)
{
    trace_text t = {0};
    put(&t,
        "{\"sluice\": {\"version\": 1, \"ranks\": %d, \"bytes\": "
        "[{\"slabs\": 400}]}, \"traceEvents\": [",
        of->ranks);
    for (int r = 0; r < of->ranks; r++)
        put_rank(&t, of, r);
    put(&t, "]}");
    return t.data;
}

static bool is_compute(const sl__block *block)
{
    return sl_action_kind_family(block->kind) == SL_FAMILY_COMPUTE;
}

static void a_run_as_simulated_looks_simulated(void **state)
{
    (void)state;
    static const char *const names[] = {"GPipe", "1F1B", "ZBVZeroBubble",
                                        "Interleaved1F1B"};
    for (int n = 0; n < 4; n++) {
        sl_schedule *schedule = test_generate(names[n], 4, n < 2 ? 1 : 2, 8);
        sl_costs costs = SL_COSTS_INIT;
        sl_timeline *run, *planned;
        costs.edge.latency = 0.375;
        subject own = simulate(schedule, &costs, SL_ASYNC);
        const sl_timeline *simulated = own.timeline;
        char *text = run_text(simulated);
        assert_ok(sl_timeline_read("", text, strlen(text), &run));
        free(text);
        assert_true(run->measured && run->seconds);
        assert_true(fabs(run->makespan - simulated->makespan) < 1e-6);
        assert_true(fabs(run->bubble - simulated->bubble) < 1e-6);
        int critical = 0;
        for (int r = 0; r < 4; r++) {
            const sl__blocks *a = &run->tracks[r].blocks;
            const sl__blocks *b = &simulated->tracks[r].blocks;
            assert_int_equal(a->count, b->count);
            for (int why = 0; why < SL__IDLE_REASONS; why++)
                assert_true(fabs(run->tracks[r].idle[why] -
                                 simulated->tracks[r].idle[why]) < 1e-6);
            for (size_t i = 0; i < a->count; i++) {
                assert_true(
                    sl_action_equal(&a->data[i].action, &b->data[i].action));
                critical += a->data[i].critical;
            }
        }
        assert_true(critical >= 4); /* all ranks, once */
        /* Its plan, with messages free, is the simulation without latency. */
        assert_ok(sl_timeline_planned("", run, &planned));
        costs.edge.latency = 0;
        sl_simulation *quick;
        assert_ok(sl_simulate(schedule, &costs, SL_ASYNC, &quick));
        assert_true(fabs(planned->makespan - sl_simulation_makespan(quick)) <
                    1e-6);
        assert_true(planned->seconds && !planned->measured);
        assert_int_equal(run->tracks[0].planned_bytes, 400);
        assert_int_equal(run->tracks[1].planned_bytes, -1);
        /* Bytes in flight: a hundred for each microbatch. */
        for (int r = 0; r < 4; r++)
            assert_int_equal(run->tracks[r].peak_bytes,
                             100 * simulated->tracks[r].peak_bytes);
        sl_simulation_destroy(quick);
        sl_timeline_destroy(planned);
        sl_timeline_destroy(run);
        clear(&own);
    }
}

/* What a run took, for a schedule with other stages: the same in all. */
static void costs_of_a_run_are_recut(void **state)
{
    (void)state;
    sl_schedule *schedule = test_generate("Interleaved1F1B", 2, 2, 4);
    sl_timeline *run;
    sl_costs costs;
    subject own = simulate(schedule, NULL, SL_ASYNC);
    const sl_timeline *simulated = own.timeline;
    char *text = run_text(simulated);
    assert_ok(sl_timeline_read("", text, strlen(text), &run));
    free(text);
    static const int stages[] = {1, 2, 4, 8, 12};
    for (int i = 0; i < 5; i++) {
        double forward = 0, backward = 0;
        int64_t bytes = 0;
        assert_ok(sl_timeline_costs(run, stages[i], &costs));
        assert_int_equal(costs.stage_count, stages[i]);
        for (int s = 0; s < stages[i]; s++) {
            forward += costs.stages[s].forward;
            backward += costs.stages[s].backward;
            bytes += costs.stages[s].activation_bytes;
        }
        assert_true(fabs(forward - 4) < 1e-6 && fabs(backward - 8) < 1e-6);
        assert_true(bytes >= 396 && bytes <= 404);
        sl_costs_clear(&costs);
    }
    assert_fails(sl_timeline_costs(run, 3, &costs), SL_EINVAL,
                 "the run has 4 stages and the schedule 3");
    sl_timeline_destroy(run);
    clear(&own);
}

/* The critical path of a run: each begins when the one before it ends, or its
 * message arrives. */
static void critical_path_of_a_run_has_no_hole(void **state)
{
    (void)state;
    sl_schedule *schedule = test_generate("1F1B", 4, 1, 8);
    sl_timeline *run;
    subject own = simulate(schedule, NULL, SL_ASYNC);
    const sl_timeline *simulated = own.timeline;
    char *text = run_text(simulated);
    assert_ok(sl_timeline_read("", text, strlen(text), &run));
    free(text);
    double length = 0;
    for (int r = 0; r < 4; r++) {
        for (size_t i = 0; i < run->tracks[r].blocks.count; i++) {
            const sl__block *block = &run->tracks[r].blocks.data[i];
            if (block->critical && is_compute(block))
                length += block->end - block->start;
        }
    }
    assert_true(fabs(length - run->makespan) < 1e-6);
    sl_timeline_destroy(run);
    clear(&own);
}

/* Forward alone holds one microbatch at a time; with backward, until that. */
static void forward_alone_holds_one(void **state)
{
    (void)state;
    static const char *const texts[2] = {"0F0,0F1,0F2\n",
                                         "0F0,0F1,0B0,0B1,0F2,0B2\n"};
    static const int64_t peaks[2] = {100, 200};
    for (int i = 0; i < 2; i++) {
        sl_schedule *schedule = test_parse(texts[i]);
        sl_timeline *run;
        subject own = simulate(schedule, NULL, SL_ASYNC);
        const sl_timeline *simulated = own.timeline;
        char *text = run_text(simulated);
        assert_ok(sl_timeline_read("", text, strlen(text), &run));
        free(text);
        assert_int_equal(run->tracks[0].peak_bytes, peaks[i]);
        sl_timeline_destroy(run);
        clear(&own);
    }
}

/* ------------------------------------------------------------- refusals -- */

static void reads(const char *events, const char *words)
{
    char whole[2000];
    sl_timeline *timeline = NULL;
    snprintf(whole, sizeof whole,
             "{\"sluice\": {\"version\": 1, \"ranks\": 2}, \"traceEvents\": "
             "[%s]}",
             events);
    sl_status status = sl_timeline_read("<b>", whole, strlen(whole), &timeline);
    if (!words) {
        assert_ok(status);
        sl_timeline_destroy(timeline);
        return;
    }
    assert_int_not_equal(status, SL_OK);
    assert_null(timeline);
    if (!strstr(sl_error_text(), words))
        fail_msg("not \"%s\": %s", words, sl_error_text());
}

#define SLICE(pid, cat, ts, dur, args)                                         \
    "{\"ph\": \"X\", \"pid\": " pid ", \"cat\": " cat ", \"ts\": " ts          \
    ", \"dur\": " dur ", \"args\": " args "}"
#define ABOUT(action) "{\"action\": \"" action "\"}"
#define F0            ABOUT("0F0")

static void hostile_traces_are_refused(void **state)
{
    (void)state;
    reads("", NULL);
    reads(SLICE("0", "\"compute\"", "0", "5", F0), NULL);
    reads("7", "no \"ph\"");
    reads("{\"ph\": 3}", "no \"ph\"");
    reads("{\"ph\": \"X\"}", "event 0: \"pid\"");
    reads(SLICE("2", "\"compute\"", "0", "5", F0), "\"pid\" must be");
    reads(SLICE("-1", "\"compute\"", "0", "5", F0), "\"pid\" must be");
    reads(SLICE("0.5", "\"compute\"", "0", "5", F0), "\"pid\" must be");
    reads(SLICE("0", "\"<script>\"", "0", "5", F0), "\"cat\" must be");
    reads(SLICE("0", "[]", "0", "5", F0), "\"cat\" must be");
    reads(SLICE("0", "\"compute\"", "\"0\"", "5", F0), "\"ts\" must be");
    reads(SLICE("0", "\"compute\"", "1e300", "5", F0), "\"ts\" must be");
    reads(SLICE("0", "\"compute\"", "0", "-5", F0), "ends before it begins");
    reads(SLICE("0", "\"compute\"", "0", "null", F0), "\"dur\" must be");
    reads(SLICE("0", "\"compute\"", "0", "5", "{}"), "no \"action\"");
    reads(SLICE("0", "\"compute\"", "0", "5", "[1]"), "no \"action\"");
    reads(SLICE("0", "\"compute\"", "0", "5", "{\"action\": \"<img src=x>\"}"),
          "its \"action\" is none");
    reads(SLICE("0", "\"compute\"", "0", "5", "{\"action\": \"99999F0\"}"),
          "its \"action\" is none");
    reads(SLICE("0", "\"compute\"", "0", "5", "{\"action\": \"0F0\\u0000\"}"),
          "not JSON");
    reads(SLICE("0", "\"compute\"", "0", "5", "{\"action\": \"0SEND_F0\"}"),
          "a compute cannot be about '0SEND_F0'");
    reads(SLICE("0", "\"send\"", "0", "5", F0), "a send cannot be about '0F0'");
    reads(SLICE("0", "\"send\"", "0", "5", "{\"action\": \"0SEND_F0\"}"),
          "no peer among the ranks");
    reads(SLICE("0", "\"send\"", "0", "5",
                "{\"action\": \"0SEND_F0\", \"peer\": 9, \"peer_stage\": 1}"),
          "\"peer\" must be");
    reads(SLICE("0", "\"compute\"", "0", "5",
                "{\"action\": \"0F0\", \"bytes\": -1}"),
          "\"bytes\" must be");
    reads(SLICE("0", "\"compute\"", "0", "5",
                "{\"action\": \"0F0\", \"bytes\": 9223372036854775807}"),
          "\"bytes\" must be");
    reads(SLICE("0", "\"compute\"", "0", "5", F0) "," SLICE(
              "0", "\"compute\"", "3", "5", "{\"action\": \"0F1\"}"),
          "rank 0: 0F1 begins before 0F0 ends");
    reads(SLICE("0", "\"state\"", "0", "5", F0), "a state cannot be about");
    reads(SLICE("0", "\"settle\"", "0", "5", F0), "\"cat\" must be");
    reads(SLICE("0", "\"state\"", "0", "5", "{\"action\": \"\"}"),
          "a state cannot be about");
    reads(SLICE("0", "\"send\"", "0", "5",
                "{\"action\": \"0RECV_F0\", \"peer\": 1, \"peer_stage\": 1}"),
          "a send cannot be about");
    /* Another rank may work at the same time. */
    reads(SLICE("0", "\"compute\"", "0", "5", F0) "," SLICE(
              "1", "\"compute\"", "3", "5", "{\"action\": \"1F1\"}"),
          NULL);
}

static void what_is_no_trace_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "no trace of a run"},
        {"{}", "no trace of a run"},
        {"{\"sluice\": {\"version\": 2}}", "no trace of a run"},
        {"{\"sluice\": {\"version\": 1}}", "\"ranks\" must be"},
        {"{\"sluice\": {\"version\": 1, \"ranks\": 0}}", "\"ranks\" must be"},
        {"{\"sluice\": {\"version\": 1, \"ranks\": 99999}}",
         "\"ranks\" must be"},
        {"{\"sluice\": {\"version\": 1, \"ranks\": 1}}", "no array"},
        {"{\"sluice\": {\"version\": 1, \"ranks\": 1}, \"traceEvents\": {}}",
         "no array"},
        {"{\"traceEvents\": []}", "no trace of a run"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_timeline *timeline = NULL;
        assert_fails(sl_timeline_read("", cases[i].text, strlen(cases[i].text),
                                      &timeline),
                     SL_EPARSE, cases[i].words);
        assert_null(timeline);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_adds_up),
        cmocka_unit_test(gaps_of_a_small_schedule),
        cmocka_unit_test(late_messages_are_messages),
        cmocka_unit_test(forward_alone_holds_one),
        cmocka_unit_test(own_messages_hold_a_rank),
        cmocka_unit_test(enormous_bytes_do_not_overflow),
        cmocka_unit_test(costs_of_a_run_are_recut),
        cmocka_unit_test(a_run_as_simulated_looks_simulated),
        cmocka_unit_test(critical_path_of_a_run_has_no_hole),
        cmocka_unit_test(hostile_traces_are_refused),
        cmocka_unit_test(what_is_no_trace_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The checker: is this schedule complete, in order and correctly connected, and
 * can it run to its end? It works on compute-only and on lowered schedules: a
 * family of actions that the schedule does not use at all (communication,
 * sharding, gradient reduction, backwards, waits) is not reported as missing.
 * check_messages.c checks messages, check_waits.c waits, and deadlock.c looks
 * for deadlocks. */
#include "schedule/check.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

/* ----------------------------------------------------------- sizes -- */

static void check_size(sl_report *report, const char *what, int expected,
                       int found)
{
    if (expected && expected != found)
        sl__report_add(report, SL_FINDING_WRONG_SIZE, -1, -1,
                       "expected %d %s, found %d", expected, what, found);
}

static void check_sizes(sl_report *report, const sl_extent *extent,
                        const sl_check_options *options)
{
    check_size(report, "ranks", options->ranks, extent->ranks);
    check_size(report, "stages", options->stages, extent->stages);
    check_size(report, "microbatches", options->microbatches,
               extent->microbatches);
}

/* ------------------------------------------------- each action by itself -- */

static void check_duplicate(sl__check *check, uint32_t node,
                            const sl_action *part)
{
    const uint32_t *table = check->events.table[part->kind];
    if (!table)
        return;
    uint32_t first =
        sl__event_of(&check->events, part->kind, part->stage, part->microbatch);
    if (first == node)
        return;
    sl__check_repeated(check, node, first);
}

static void check_rank(sl__check *check, uint32_t node, const sl_action *part)
{
    int home = check->events.home[part->stage];
    if (home >= 0 && home != check->events.rank_of[node])
        sl__check_add(check, SL_FINDING_WRONG_RANK, node,
                      "belongs to stage %d, which is on rank %d", part->stage,
                      home);
}

static void check_actions(sl__check *check)
{
    for (uint32_t node = 0; node < check->events.nodes; node++) {
        sl_action parts[2];
        int count = sl_action_parts(sl__action_at(&check->events, node), parts);
        for (int i = 0; i < count; i++) {
            check_duplicate(check, node, &parts[i]);
            check_rank(check, node, &parts[i]);
        }
    }
}

/* -------------------------------------- each stage and microbatch: work -- */

/* The nodes of one stage and microbatch. */
typedef struct work {
    int stage;
    int microbatch;
    uint32_t f, i, w, b;
} work;

/* Reports missing work at a related action where there is one, else at the rank
 * of the stage, without a step. */
static void report_missing(sl__check *check, const work *of,
                           sl_finding_code code, const char *what)
{
    uint32_t at = of->f;
    if (at == SL__NOWHERE)
        at = of->b != SL__NOWHERE ? of->b : of->i;
    if (at == SL__NOWHERE)
        at = of->w;
    if (code == SL_FINDING_MISSING_WEIGHT)
        at = of->i;
    int home = check->events.home[of->stage];
    if (at != SL__NOWHERE)
        sl__check_add(check, code, at,
                      "is not all: stage %d never runs %s of microbatch %d",
                      of->stage, what, of->microbatch);
    else
        sl__report_add(check->report, code, home, -1,
                       "rank %d: stage %d never runs %s of microbatch %d", home,
                       of->stage, what, of->microbatch);
}

static void check_whole(sl__check *check, const work *of)
{
    bool has_b = of->b != SL__NOWHERE, has_i = of->i != SL__NOWHERE;
    if (of->f == SL__NOWHERE)
        report_missing(check, of, SL_FINDING_MISSING_FORWARD, "F");
    if (!check->has_backward)
        return;
    if (!has_b && !has_i)
        report_missing(check, of, SL_FINDING_MISSING_BACKWARD, "B or I");
    if (has_i && of->w == SL__NOWHERE && !has_b)
        report_missing(check, of, SL_FINDING_MISSING_WEIGHT, "W");
    uint32_t other = has_i ? of->i : of->w;
    if (has_b && other != SL__NOWHERE) {
        /* The later one is too many. */
        uint32_t last = other > of->b ? other : of->b;
        uint32_t first = other > of->b ? of->b : other;
        sl__check_add(check, SL_FINDING_DUPLICATE, last,
                      "repeats work done on rank %d at step %u",
                      check->events.rank_of[first],
                      sl__step_of(&check->events, first));
    }
}

/* Reports `later` where it comes before `earlier` on the same rank. Order
 * across ranks is left to the search for deadlocks. */
static void check_after(sl__check *check, uint32_t later, uint32_t earlier)
{
    const sl__events *events = &check->events;
    if (later == SL__NOWHERE || earlier == SL__NOWHERE || later > earlier ||
        events->rank_of[later] != events->rank_of[earlier])
        return;
    char text[SL_ACTION_TEXT_MAX];
    sl_action_print(sl__action_at(events, earlier), text);
    if (later == earlier)
        sl__check_add(check, SL_FINDING_WRONG_ORDER, later,
                      "overlaps two halves of which one needs the other");
    else
        sl__check_add(check, SL_FINDING_WRONG_ORDER, later,
                      "comes before %s at step %u, which it needs", text,
                      sl__step_of(events, earlier));
}

static void check_order(sl__check *check, const work *of)
{
    const sl__events *events = &check->events;
    check_after(check, of->b, of->f);
    check_after(check, of->i, of->f);
    check_after(check, of->w, of->i);
    check_after(
        check, of->f,
        sl__event_of(events, SL_FORWARD, of->stage - 1, of->microbatch));
    uint32_t next = sl__backward_event(events, of->stage + 1, of->microbatch);
    check_after(check, of->b, next);
    check_after(check, of->i, next);
}

static void check_work(sl__check *check)
{
    const sl__events *events = &check->events;
    for (int stage = 0; stage < events->extent.stages; stage++) {
        if (events->home[stage] < 0) {
            sl__report_add(check->report, SL_FINDING_MISSING_STAGE, -1, -1,
                           "no rank computes stage %d of %d", stage,
                           events->extent.stages);
            continue;
        }
        for (int microbatch = 0; microbatch < events->extent.microbatches;
             microbatch++) {
            work of = {
                stage,
                microbatch,
                sl__event_of(events, SL_FORWARD, stage, microbatch),
                sl__event_of(events, SL_BACKWARD_INPUT, stage, microbatch),
                sl__event_of(events, SL_BACKWARD_WEIGHT, stage, microbatch),
                sl__event_of(events, SL_BACKWARD, stage, microbatch)};
            check_whole(check, &of);
            check_order(check, &of);
        }
    }
}

/* --------------------------------------- sharding and gradient reduction -- */

/* State of a stage during the walk over the rows. */
typedef struct stage_state {
    bool whole; /* between UNSHARD and RESHARD */
    uint32_t unshard;
    uint32_t last_backward; /* the last B or W, or SL__NOWHERE */
    uint32_t reduce;        /* REDUCE_GRAD, or SL__NOWHERE */
} stage_state;

static void check_shard_part(sl__check *check, stage_state *state,
                             uint32_t node, const sl_action *part)
{
    if (part->kind == SL_UNSHARD) {
        if (state->whole)
            sl__check_add(check, SL_FINDING_UNPAIRED_SHARD, node,
                          "unshards stage %d, which is unsharded already",
                          part->stage);
        state->whole = true;
        state->unshard = node;
    } else if (part->kind == SL_RESHARD) {
        if (!state->whole)
            sl__check_add(check, SL_FINDING_UNPAIRED_SHARD, node,
                          "reshards stage %d, which is not unsharded",
                          part->stage);
        state->whole = false;
    } else if (sl_action_kind_family(part->kind) == SL_FAMILY_COMPUTE &&
               !state->whole) {
        sl__check_add(check, SL_FINDING_NOT_UNSHARDED, node,
                      "computes on stage %d outside its UNSHARD...RESHARD",
                      part->stage);
    }
}

static void check_reduce_part(sl__check *check, stage_state *state,
                              uint32_t node, const sl_action *part)
{
    if (sl__ends_microbatch(part->kind))
        state->last_backward = node;
    if (part->kind != SL_REDUCE_GRAD)
        return;
    if (state->reduce != SL__NOWHERE)
        sl__check_repeated(check, node, state->reduce);
    else
        state->reduce = node;
}

static void check_stage_end(sl__check *check, int stage,
                            const stage_state *state)
{
    const sl__events *events = &check->events;
    if (events->extent.has_sharding && state->whole)
        sl__check_add(check, SL_FINDING_UNPAIRED_SHARD, state->unshard,
                      "unshards stage %d, which is never resharded", stage);
    if (!events->extent.has_reduce_grad || state->last_backward == SL__NOWHERE)
        return;
    if (state->reduce == SL__NOWHERE)
        sl__check_add(check, SL_FINDING_MISSING_REDUCE_GRAD,
                      state->last_backward,
                      "is the last backward of stage %d, and no REDUCE_GRAD "
                      "follows",
                      stage);
    else if (state->reduce < state->last_backward &&
             events->rank_of[state->reduce] ==
                 events->rank_of[state->last_backward])
        sl__check_add(check, SL_FINDING_EARLY_REDUCE_GRAD, state->reduce,
                      "comes before the stage's last backward, at step %u",
                      sl__step_of(events, state->last_backward));
}

static void check_states(sl__check *check, stage_state *states)
{
    const sl__events *events = &check->events;
    for (int stage = 0; stage < events->extent.stages; stage++)
        states[stage] =
            (stage_state){.last_backward = SL__NOWHERE, .reduce = SL__NOWHERE};
    for (uint32_t node = 0; node < events->nodes; node++) {
        sl_action parts[2];
        int count = sl_action_parts(sl__action_at(events, node), parts);
        for (int i = 0; i < count; i++) {
            stage_state *state = &states[parts[i].stage];
            if (events->extent.has_sharding)
                check_shard_part(check, state, node, &parts[i]);
            check_reduce_part(check, state, node, &parts[i]);
        }
    }
    for (int stage = 0; stage < events->extent.stages; stage++)
        check_stage_end(check, stage, &states[stage]);
}

static sl_status check_state_actions(sl__check *check)
{
    stage_state *states;
    SL__TRY(sl__alloc((size_t)check->events.extent.stages, sizeof *states,
                      &states));
    check_states(check, states);
    free(states);
    return SL_OK;
}

/* ----------------------------------------------------------- all of it -- */

static sl_status check_deadlocks(sl__check *check)
{
    sl_report *report = check->report;
    for (int i = 0; i < SL_READINGS; i++) {
        sl_wait *waits;
        size_t count;
        SL__TRY(
            sl__find_deadlock(&check->events, (sl_reading)i, &waits, &count));
        if (i == SL_ASYNC)
            sl__check_blocked_receives(check, waits, count);
        if (count)
            sl__report_deadlock(report, check->events.schedule, (sl_reading)i,
                                waits, count);
    }
    report->deadlock_known = true;
    return SL_OK;
}

static sl_status check_events(sl__check *check)
{
    check_actions(check);
    check_work(check);
    if (check->events.extent.has_communication)
        sl__check_messages(check);
    SL__TRY(check_state_actions(check));
    SL__TRY(sl__check_waits(check));
    return check_deadlocks(check);
}

static sl_status check_all(const sl_schedule *schedule,
                           const sl_check_options *options, sl_report *report)
{
    sl__check check = {.report = report};
    sl_extent extent = sl_schedule_extent(schedule);
    check_sizes(report, &extent, options);
    if (sl__check_density(&extent)) {
        sl__report_add(report, SL_FINDING_INCOMPLETE, -1, -1, "%s",
                       sl_error_text());
        sl__report_finish(report, options->reading);
        return report->status;
    }
    SL__TRY(sl__events_open(schedule, &check.events));
    check.has_backward = extent.has_backward || extent.has_reduce_grad;
    sl_status status = check_events(&check);
    sl__events_close(&check.events);
    sl__report_finish(report, options->reading);
    return status ? status : report->status;
}

sl_status sl_check(const sl_schedule *schedule, const sl_check_options *options,
                   sl_report **out)
{
    SL__NEED(schedule, out);
    static const sl_check_options defaults = SL_CHECK_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    if ((unsigned)options->reading >= SL_READINGS)
        return sl_fail(SL_EINVAL, "unknown reading of communication: %d",
                       (int)options->reading);
    sl_report *report;
    size_t most = options->max_findings;
    SL__TRY(
        sl__report_create(most < SIZE_MAX / 4 ? most : SIZE_MAX / 4, &report));
    sl_status status = check_all(schedule, options, report);
    if (status)
        sl_report_destroy(report);
    else
        *out = report;
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * The dry run: every action, messages included, takes one step, counted as
 * PyTorch counts. In each step, ranks in ascending order try to run their next
 * action, and see at once what ranks before them did in this step; ranks that
 * could not run theirs try again at the end of the step. Where messages are
 * implied, a result can be used on another rank from the next step on.
 *
 * A round is half a step: 2 * step for the first tries, 2 * step + 1 for the
 * second. A rank that is blocked is parked at the action that it waits for. */
#include "schedule/events.h"
#include "schedule/action.h"
#include "schedule/visits.h"
#include "base/arguments.h"
#include "base/try.h"

typedef struct dry_run {
    const sl__events *events;
    uint32_t *done; /* by node: the step it was done in, from 1; 0 not yet */
    uint32_t *at;   /* by rank */
    uint32_t last;  /* the latest step in which something was done */
    sl__visits visits;
    sl__waiters waiters;
    uint64_t round; /* of the visit being made, */
    int rank;       /* and to whom */
    sl__arena memory;
} dry_run;

static uint32_t step_of(uint64_t round)
{
    return (uint32_t)(round / 2);
}

static void skip_idle(dry_run *run, int rank)
{
    while (run->at[rank] < run->events->first[rank + 1] &&
           sl__action_at(run->events, run->at[rank])->kind == SL_IDLE)
        run->at[rank]++;
}

/* Whether all inputs of a node are done. If not, `*out` is the first that is
 * missing, SL__NOWHERE where no rank has it, and `*out_next_step` says whether
 * the node only has to wait for the step to end. */
static bool is_ready(const dry_run *run, uint32_t node, uint32_t *out,
                     bool *out_next_step)
{
    sl__input inputs[SL__MAX_INPUTS + 1];
    int count = sl__inputs(run->events, node, inputs);
    uint8_t kind = sl__action_at(run->events, node)->kind;
    if (kind == SL_RECV_F || kind == SL_RECV_B)
        inputs[count++] = (sl__input){sl__peer(run->events, node), -1};
    *out_next_step = false;
    for (int i = 0; i < count; i++) {
        *out = inputs[i].node;
        if (*out == SL__NOWHERE || !run->done[*out])
            return false;
        if (inputs[i].edge >= 0 && run->done[*out] == step_of(run->round))
            *out_next_step = true;
    }
    return !*out_next_step;
}

/* Wakes the ranks that waited for the node that was just done: in this round if
 * they come later in it, else in the next. Ranks that ran an action in this
 * step are not parked: their next visit is in the next step. */
static void wake(dry_run *run, uint32_t node)
{
    for (int rank; (rank = sl__waiters_take(&run->waiters, node)) >= 0;)
        sl__visits_push(&run->visits, run->round + (rank <= run->rank), rank);
}

/* Runs the next action of a rank if it can run, else parks the rank. */
static void visit(dry_run *run, int rank)
{
    uint32_t node = run->at[rank], waits_for, step = step_of(run->round);
    bool next_step;
    if (is_ready(run, node, &waits_for, &next_step)) {
        run->done[node] = step;
        run->last = step;
        run->at[rank]++;
        skip_idle(run, rank);
        wake(run, node);
        next_step = run->at[rank] < run->events->first[rank + 1];
    } else if (!next_step && waits_for != SL__NOWHERE) {
        sl__waiters_park(&run->waiters, waits_for, rank);
    }
    if (next_step)
        sl__visits_push(&run->visits, 2 * (uint64_t)(step + 1), rank);
}

static sl_status report_stuck(const dry_run *run)
{
    for (int rank = 0; rank < run->events->extent.ranks; rank++) {
        if (run->at[rank] == run->events->first[rank + 1])
            continue;
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(sl__action_at(run->events, run->at[rank]), text);
        return sl_fail(SL_EUNSOUND,
                       "the dry run stalls: rank %d, step %u: %s never "
                       "becomes ready",
                       rank, sl__step_of(run->events, run->at[rank]), text);
    }
    return SL_OK;
}

static sl_status run_all(dry_run *run)
{
    size_t nodes = run->events->nodes;
    int ranks = run->events->extent.ranks;
    SL__TRY(SL__TAKE(&run->memory, nodes, &run->done));
    SL__TRY(SL__TAKE(&run->memory, (size_t)ranks, &run->at));
    SL__TRY(sl__visits_open(&run->visits, ranks, &run->memory));
    SL__TRY(sl__waiters_open(&run->waiters, nodes, ranks, &run->memory));
    for (int rank = 0; rank < ranks; rank++) {
        run->at[rank] = run->events->first[rank];
        skip_idle(run, rank);
        if (run->at[rank] < run->events->first[rank + 1])
            sl__visits_push(&run->visits, 2, rank);
    }
    while (sl__visits_pop(&run->visits, &run->round, &run->rank))
        visit(run, run->rank);
    return report_stuck(run);
}

sl_status sl_dry_run(const sl_schedule *schedule, size_t *out_steps)
{
    SL__NEED(schedule, out_steps);
    sl__events events;
    SL__TRY(sl__events_open(schedule, &events));
    dry_run run = {.events = &events};
    sl_status status = run_all(&run);
    if (!status)
        *out_steps = run.last;
    sl__arena_clear(&run.memory);
    sl__events_close(&events);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * The dry run: every action, messages included, takes one step, counted as
 * PyTorch counts. In each step ranks try their next action in ascending order
 * and see at once what those before them did; ranks that could not move get a
 * second try at the end of the step. Where messages are implied, a result of
 * another rank can be used from the step after. */
#include "schedule/events.h"
#include "base/memory.h"

typedef struct dry_run {
    const sl__events *events;
    uint32_t *done; /* by node: the step it was done in, from 1; 0 not yet */
    uint32_t *at;   /* by rank */
    uint8_t *moved; /* by rank, in this step */
    uint32_t step;
} dry_run;

static void skip_idle(dry_run *run, int rank)
{
    while (run->at[rank] < run->events->first[rank + 1] &&
           sl__action_at(run->events, run->at[rank])->kind == SL_IDLE)
        run->at[rank]++;
}

static bool input_done(const dry_run *run, const sl__input *input)
{
    if (input->node == SL__NOWHERE || !run->done[input->node])
        return false;
    return input->boundary < 0 || run->done[input->node] < run->step;
}

static bool is_ready(const dry_run *run, uint32_t node)
{
    sl__input inputs[SL__MAX_INPUTS];
    int count = sl__inputs(run->events, node, inputs);
    for (int i = 0; i < count; i++) {
        if (!input_done(run, &inputs[i]))
            return false;
    }
    uint8_t kind = sl__action_at(run->events, node)->kind;
    if (kind != SL_RECV_F && kind != SL_RECV_B)
        return true;
    uint32_t send = sl__peer(run->events, node);
    return send != SL__NOWHERE && run->done[send];
}

/* Lets a rank do one action if it can. */
static bool try_rank(dry_run *run, int rank)
{
    uint32_t node = run->at[rank];
    if (node == run->events->first[rank + 1] || !is_ready(run, node))
        return false;
    run->done[node] = run->step;
    run->at[rank]++;
    skip_idle(run, rank);
    return true;
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
    int ranks = run->events->extent.ranks;
    for (int rank = 0; rank < ranks; rank++) {
        run->at[rank] = run->events->first[rank];
        skip_idle(run, rank);
    }
    for (;; run->step++) {
        bool progress = false;
        for (int rank = 0; rank < ranks; rank++) {
            run->moved[rank] = try_rank(run, rank);
            progress = progress || run->moved[rank];
        }
        if (!progress)
            return report_stuck(run);
        for (int rank = 0; rank < ranks; rank++) {
            if (!run->moved[rank])
                try_rank(run, rank);
        }
    }
}

sl_status sl_dry_run(const sl_schedule *schedule, size_t *out_steps)
{
    sl__events events;
    sl_status status = sl__events_open(schedule, &events);
    if (status)
        return status;
    dry_run run = {.events = &events, .step = 1};
    size_t ranks = (size_t)events.extent.ranks;
    status = sl__alloc(events.nodes, sizeof *run.done, &run.done);
    if (!status)
        status = sl__alloc(ranks, sizeof *run.at, &run.at);
    if (!status)
        status = sl__alloc(ranks, 1, &run.moved);
    if (!status)
        status = run_all(&run);
    free(run.done);
    free(run.at);
    free(run.moved);
    sl__events_close(&events);
    /* The loop ended in a step in which nothing was left to do. */
    if (!status)
        *out_steps = run.step - 1;
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * What a run should have looked like: a simulation of its order, or of another
 * schedule, with what its compute took in the mean. */
#include "view/timeline.h"

#include "base/memory.h"
#include "schedule/mean_costs.h"

static bool computes(const sl__block *block)
{
    return sl_action_kind_family(block->kind) == SL_FAMILY_COMPUTE;
}

/* ------------------------------------------------------------- replicas -- */

/* Whether a rank has a stage that an earlier one has; notes its own if not. */
static bool repeats(const sl__blocks *blocks, uint8_t *seen)
{
    for (size_t i = 0; i < blocks->count; i++) {
        if (computes(&blocks->data[i]) && seen[blocks->data[i].action.stage])
            return true;
    }
    for (size_t i = 0; i < blocks->count; i++) {
        if (computes(&blocks->data[i]))
            seen[blocks->data[i].action.stage] = 1;
    }
    return false;
}

/* By rank: whether it does what an earlier one does, on other data. */
static sl_status find_replicas(const sl_timeline *run, uint8_t **out)
{
    uint8_t *seen = NULL, *found = NULL;
    sl_status status = sl__alloc((size_t)run->stages, 1, &seen);
    if (!status)
        status = sl__alloc((size_t)run->ranks, 1, &found);
    for (int r = 0; r < run->ranks && !status; r++)
        found[r] = repeats(&run->tracks[r].blocks, seen);
    free(seen);
    if (!status)
        *out = found;
    return status;
}

/* ---------------------------------------------------------------- costs -- */

/* What goes forward over each boundary between neighbours, in the mean. */
static sl_status measure_bytes(const sl_timeline *run, const uint8_t *replicas,
                               sl_costs *costs)
{
    size_t count = run->stages > 1 ? (size_t)run->stages - 1 : 0;
    sl_status status = sl__alloc(count, sizeof *costs->edges, &costs->edges);
    if (status)
        return status;
    costs->edge_count = count;
    for (size_t i = 0; i < run->message_count; i++) {
        const sl__message *message = &run->messages[i];
        if (message->forward && message->to_stage == message->from_stage + 1 &&
            (size_t)message->from_stage < count &&
            !replicas[message->from_rank])
            costs->edges[message->from_stage].bytes +=
                message->bytes / run->microbatches;
    }
    return SL_OK;
}

static sl_status measure_costs(const sl_timeline *run, const uint8_t *replicas,
                               sl_costs *out)
{
    sl__means *means = NULL;
    sl_status status = sl__means_create(run->stages, &means);
    if (status)
        return status;
    for (int r = 0; r < run->ranks; r++) {
        const sl__blocks *blocks = &run->tracks[r].blocks;
        for (size_t i = 0; i < blocks->count; i++) {
            const sl__block *block = &blocks->data[i];
            if (computes(block))
                sl__means_add(means, &block->action, block->end - block->start,
                              block->bytes);
        }
    }
    status = sl__means_costs(means, out);
    sl__means_destroy(means);
    if (status)
        return status;
    status = measure_bytes(run, replicas, out);
    if (status)
        sl_costs_clear(out);
    return status;
}

/* ---------------------------------------------------------------- order -- */

/* The order of compute in a run, of its first replica. */
static sl_status order_of(const sl_timeline *run, const uint8_t *replicas,
                          sl_schedule **out)
{
    sl_schedule *made = NULL;
    int ranks = 0;
    for (int r = 0; r < run->ranks; r++)
        ranks += !replicas[r];
    sl_status status = sl_schedule_create(ranks, &made);
    for (int r = 0, row = -1; r < run->ranks && !status; r++) {
        const sl__blocks *blocks = &run->tracks[r].blocks;
        if (replicas[r])
            continue;
        row++;
        for (size_t i = 0; i < blocks->count && !status; i++) {
            if (computes(&blocks->data[i]))
                status = sl_schedule_append(made, row, blocks->data[i].action);
        }
    }
    if (status) {
        sl_schedule_destroy(made);
        return status;
    }
    *out = made;
    return SL_OK;
}

sl_status sl_timeline_planned(const char *title, const sl_timeline *run,
                              const sl_schedule *schedule,
                              const sl_costs *costs, sl_timeline **out)
{
    uint8_t *replicas = NULL;
    sl_costs own_costs = SL_COSTS_INIT;
    sl_schedule *own_order = NULL;
    sl_simulation *simulation = NULL;
    sl_timeline *made = NULL;
    sl_status status = find_replicas(run, &replicas);
    if (!status && !costs)
        status = measure_costs(run, replicas, &own_costs);
    costs = costs ? costs : &own_costs;
    if (!status && !schedule)
        status = order_of(run, replicas, &own_order);
    schedule = schedule ? schedule : own_order;
    if (!status)
        status = sl_simulate(schedule, costs, SL_ASYNC, &simulation);
    if (!status)
        status =
            sl_timeline_simulated(title, schedule, costs, simulation, &made);
    sl_simulation_destroy(simulation);
    sl_schedule_destroy(own_order);
    sl_costs_clear(&own_costs);
    free(replicas);
    if (status)
        return status;
    made->seconds = true;
    *out = made;
    return SL_OK;
}

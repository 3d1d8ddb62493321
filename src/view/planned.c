/* SPDX-License-Identifier: MIT
 *
 * The plan of a run: a simulation of the order that ran, with the mean measured
 * times of compute as costs; and these costs, for other schedules. */
#include "view/timeline.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "schedule/mean_costs.h"

#include <assert.h>
#include <math.h>

/* ------------------------------------------------------------- replicas -- */

/* Whether a rank has a stage that an earlier rank has; else marks its
 * stages. */
static bool repeats(const sl__blocks *blocks, uint8_t *seen)
{
    for (size_t i = 0; i < blocks->count; i++) {
        if (sl__block_computes(&blocks->data[i]) &&
            seen[blocks->data[i].action.stage])
            return true;
    }
    for (size_t i = 0; i < blocks->count; i++) {
        if (sl__block_computes(&blocks->data[i]))
            seen[blocks->data[i].action.stage] = 1;
    }
    return false;
}

/* Finds, by rank, whether it is a replica of an earlier rank. */
static sl_status find_replicas(const sl_timeline *run, uint8_t **out)
{
    uint8_t *seen, *found;
    sl_status status;
    SL__TRY(sl__alloc((size_t)run->stages, 1, &seen));
    SL__TRY_OR(free_seen, sl__alloc((size_t)run->ranks, 1, &found));
    for (int r = 0; r < run->ranks; r++)
        found[r] = repeats(&run->tracks[r].blocks, seen);
    *out = found;
free_seen:
    free(seen);
    return status;
}

/* ---------------------------------------------------------------- costs -- */

/* Measures the mean bytes that a microbatch sends forward over each boundary
 * between adjacent stages. */
static sl_status measure_bytes(const sl_timeline *run, const uint8_t *replicas,
                               sl_costs *costs)
{
    size_t count = run->stages > 1 ? (size_t)run->stages - 1 : 0;
    SL__TRY(sl__alloc(count, sizeof *costs->edges, &costs->edges));
    costs->edge_count = count;
    for (size_t i = 0; i < run->message_count; i++) {
        const sl__transfer *message = &run->messages[i];
        if (!message->forward || message->to_stage != message->from_stage + 1 ||
            (size_t)message->from_stage >= count ||
            replicas[message->from_rank])
            continue;
        int64_t *sum = &costs->edges[message->from_stage].bytes;
        *sum = sl__add_bytes(*sum, message->bytes);
    }
    for (size_t i = 0; i < count; i++)
        costs->edges[i].bytes /= run->microbatches;
    return SL_OK;
}

static sl_status measure_costs(const sl_timeline *run, const uint8_t *replicas,
                               sl_costs *out)
{
    sl__means *means = NULL;
    SL__TRY(sl__means_create(run->stages, &means));
    for (int r = 0; r < run->ranks; r++) {
        const sl__blocks *blocks = &run->tracks[r].blocks;
        for (size_t i = 0; i < blocks->count; i++) {
            const sl__block *block = &blocks->data[i];
            if (sl__block_computes(block))
                sl__means_add(means, &block->action, block->end - block->start,
                              block->bytes);
        }
    }
    sl_status status = sl__means_costs(means, out);
    sl__means_destroy(means);
    SL__TRY(status);
    status = measure_bytes(run, replicas, out);
    if (status)
        sl_costs_clear(out);
    return status;
}

static void add_part(sl_stage_cost *to, const sl_stage_cost *from, double part)
{
    to->forward += part * from->forward;
    to->backward_input += part * from->backward_input;
    to->backward_weight += part * from->backward_weight;
    to->backward += part * from->backward;
    to->activation_bytes +=
        (int64_t)(part * (double)from->activation_bytes + 0.5);
    to->handed_bytes += (int64_t)(part * (double)from->handed_bytes + 0.5);
}

/* Converts costs to another number of stages of the same model. One number must
 * be a multiple of the other: a stage is divided evenly, or stages are added
 * up. A new boundary within a stage carries the bytes of the boundary at its
 * end. */
static sl_status recut(const sl_costs *from, size_t stages, sl_costs *out)
{
    sl_costs made = SL_COSTS_INIT;
    size_t had = from->stage_count;
    size_t parts = stages > had ? stages / had : 1;
    size_t joins = stages > had ? 1 : had / stages;
    assert(stages % had == 0 || had % stages == 0);
    SL__TRY(sl__alloc(stages, sizeof *made.stages, &made.stages));
    sl_status status = sl__alloc(stages - 1, sizeof *made.edges, &made.edges);
    if (status) {
        sl_costs_clear(&made);
        return status;
    }
    made.stage_count = stages;
    made.edge_count = stages - 1;
    for (size_t s = 0; s < stages; s++) {
        size_t last = (s * joins + joins - 1) / parts;
        for (size_t k = 0; k < joins; k++)
            add_part(&made.stages[s], &from->stages[(s * joins + k) / parts],
                     1.0 / (double)parts);
        if (s + 1 < stages && from->edge_count)
            made.edges[s] =
                from->edges[last < from->edge_count ? last
                                                    : from->edge_count - 1];
    }
    *out = made;
    return SL_OK;
}

sl_status sl_timeline_costs(const sl_timeline *run, int stages, sl_costs *out)
{
    SL__NEED(run, out);
    uint8_t *replicas = NULL;
    sl_costs costs;
    if (run->stages < 1 || stages < 1 ||
        (stages % run->stages != 0 && run->stages % stages != 0))
        return sl_fail(SL_EINVAL,
                       "the run has %d stages and the schedule %d: the times "
                       "of one do not apply to the other",
                       run->stages, stages);
    SL__TRY(find_replicas(run, &replicas));
    sl_status status = measure_costs(run, replicas, &costs);
    free(replicas);
    SL__TRY(status);
    if (stages == run->stages) {
        *out = costs;
        return SL_OK;
    }
    status = recut(&costs, (size_t)stages, out);
    sl_costs_clear(&costs);
    return status;
}

/* ---------------------------------------------------------------- order -- */

/* Whether the cells include messages in the order of today's traces. Older
 * files have another order, and a simulation has no cells. */
static bool has_cells(const sl_schedule *ran)
{
    sl_extent extent = {0};
    if (ran)
        extent = sl_schedule_extent(ran);
    return ran && (!extent.has_communication || extent.has_send_waits);
}

/* Appends the cells that a rank ran: all of them, or only compute. */
static sl_status append_rank(const sl_timeline *run, int rank, bool cells,
                             sl_schedule *to, int row)
{
    const sl__blocks *blocks = &run->tracks[rank].blocks;
    size_t count = cells ? sl_schedule_length(run->ran, rank) : blocks->count;
    for (size_t i = 0; i < count; i++) {
        const sl__block *block = &blocks->data[i];
        if (cells)
            SL__TRY(sl_schedule_append(to, row,
                                       sl_schedule_row(run->ran, rank)[i]));
        else if (sl__block_computes(block))
            SL__TRY(sl_schedule_append(to, row, block->action));
    }
    return SL_OK;
}

/* Makes the schedule that the first replica ran. */
static sl_status order_of(const sl_timeline *run, const uint8_t *replicas,
                          sl_schedule **out)
{
    sl_schedule *made = NULL;
    int ranks = 0, row = 0;
    bool cells = has_cells(run->ran);
    for (int r = 0; r < run->ranks; r++)
        ranks += !replicas[r];
    sl_status status = sl_schedule_create(ranks, &made);
    for (int r = 0; r < run->ranks && !status; r++) {
        if (!replicas[r])
            status = append_rank(run, r, cells, made, row++);
    }
    if (status)
        sl_schedule_destroy(made);
    else
        *out = made;
    return status;
}

sl_status sl_timeline_planned(const char *title, const sl_timeline *run,
                              sl_timeline **out)
{
    SL__NEED(title, run, out);
    uint8_t *replicas;
    sl_costs costs = SL_COSTS_INIT;
    sl_schedule *order;
    sl_simulation *simulation;
    sl_status status;
    SL__TRY(find_replicas(run, &replicas));
    if (run->stages)
        SL__TRY_OR(free_replicas, measure_costs(run, replicas, &costs));
    SL__TRY_OR(clear_costs, order_of(run, replicas, &order));
    SL__TRY_OR(destroy_order,
               sl_simulate(order, &costs, SL_ASYNC, &simulation));
    SL__TRY_OR(destroy_simulation,
               sl_timeline_simulated(title, order, &costs, simulation, out));
    (*out)->seconds = (*out)->plan = true;
destroy_simulation:
    sl_simulation_destroy(simulation);
destroy_order:
    sl_schedule_destroy(order);
clear_costs:
    sl_costs_clear(&costs);
free_replicas:
    free(replicas);
    return status;
}

void sl_timeline_set_seconds(sl_timeline *timeline)
{
    if (timeline)
        timeline->seconds = true;
}

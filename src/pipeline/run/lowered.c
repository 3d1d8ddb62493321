/* SPDX-License-Identifier: MIT
 *
 * What runs: the schedule that was given, lowered by the ordinary passes as far
 * as it is not. From here on nothing adds, drops or moves a cell; instructions,
 * plans, simulations and traces are all made from these.
 *
 * Requires: nothing. Ensures: a sound schedule; a SEND and RECV for each result
 * that crosses ranks, a WAIT_SEND for each SEND; REDUCE_GRAD where there is
 * somebody to reduce with. */
#include "pipeline/run/runtime.h"

#include "base/try.h"
#include "schedule/action.h"

#include <stdio.h>

static sl_status check_schedule(const sl_schedule *schedule)
{
    sl_report *report;
    size_t count;
    sl_status status = sl_check(schedule, NULL, &report);
    if (status)
        return status;
    if (!sl_report_is_sound(report)) {
        const sl_finding *findings = sl_report_findings(report, &count);
        status = sl_fail(SL_EUNSOUND, "the schedule is not sound: %s",
                         count ? findings[0].text : "see sluice check");
    }
    sl_report_destroy(report);
    return status;
}

/* The passes that a schedule lacks. Sends that were given without waits get
 * these where they are proven to cost nothing, and otherwise at the end; those
 * that are made here are held to the budget, so that their memory is. */
static void choose_passes(const sl_pipeline *pipeline, const sl_extent *extent,
                          char *out, size_t size)
{
    bool reduces = pipeline->options.replicas > 1 ||
                   pipeline->functions[SL_REDUCE_GRAD].call ||
                   !extent->has_communication;
    int used =
        snprintf(out, size, "drop-idle%s%s%s",
                 reduces && extent->has_backward && !extent->has_reduce_grad
                     ? ",reduce-grad"
                     : "",
                 extent->has_communication ? "" : ",send-recv",
                 extent->has_send_waits ? "" : ",wait-send");
    if (!extent->has_communication && pipeline->options.send_budget >= 0)
        snprintf(out + used, size - (size_t)used, ",send-budget=%d",
                 pipeline->options.send_budget);
}

/* Appends what of an action an eval does. */
static sl_status append_forward(sl_schedule *to, int rank,
                                const sl_action *action)
{
    sl_action parts[2];
    int count = sl_action_parts(action, parts);
    for (int i = 0; i < count; i++) {
        switch (parts[i].kind) {
        case SL_FORWARD:
        case SL_SEND_F:
        case SL_RECV_F:
        case SL_WAIT_SEND_F:
        case SL_UNSHARD:
        case SL_RESHARD: SL__TRY(sl_schedule_append(to, rank, parts[i])); break;
        default: break;
        }
    }
    return SL_OK;
}

static sl_status make_forward(sl_pipeline *pipeline)
{
    const sl_schedule *lowered = pipeline->lowered;
    SL__TRY(sl_schedule_create(pipeline->ranks, &pipeline->forward));
    for (int r = 0; r < pipeline->ranks; r++) {
        const sl_action *row = sl_schedule_row(lowered, r);
        size_t length = sl_schedule_length(lowered, r);
        for (size_t i = 0; i < length; i++)
            SL__TRY(append_forward(pipeline->forward, r, &row[i]));
    }
    return SL_OK;
}

static sl_status take_placement(sl_pipeline *pipeline)
{
    sl_placement *placement;
    size_t stages = (size_t)pipeline->stages;
    SL__TRY(sl__arena_take(&pipeline->arena, stages, sizeof *pipeline->rank_of,
                           &pipeline->rank_of));
    SL__TRY(sl__arena_take(&pipeline->arena, stages,
                           sizeof *pipeline->own_stages,
                           &pipeline->own_stages));
    SL__TRY(sl_placement_derive(pipeline->lowered, &placement));
    for (int s = 0; s < pipeline->stages; s++) {
        pipeline->rank_of[s] = sl_placement_rank_of(placement, s);
        if (sl__is_own(pipeline, s))
            pipeline->own_stages[pipeline->own_count++] = s;
    }
    sl_placement_destroy(placement);
    return SL_OK;
}

/* Which backward programs the whole schedule asks for. */
static sl_backward backward_of(const sl_schedule *schedule)
{
    bool whole = false, split = false;
    for (int r = 0; r < sl_schedule_ranks(schedule); r++) {
        const sl_action *row = sl_schedule_row(schedule, r);
        for (size_t i = 0; i < sl_schedule_length(schedule, r); i++) {
            sl_action parts[2];
            int count = sl_action_parts(&row[i], parts);
            for (int k = 0; k < count; k++) {
                whole |= parts[k].kind == SL_BACKWARD;
                split |= parts[k].kind == SL_BACKWARD_INPUT;
            }
        }
    }
    if (whole && split)
        return SL_BACKWARD_ANY;
    return whole   ? SL_BACKWARD_WHOLE
           : split ? SL_BACKWARD_SPLIT
                   : SL_BACKWARD_NONE;
}

static sl_status find_place(sl_pipeline *pipeline, const sl_extent *extent)
{
    int ranks = sl_comm_size(pipeline->comm);
    int replicas = pipeline->options.replicas;
    if (replicas == 1 && extent->ranks != ranks)
        return sl_fail(SL_EINVAL, "the schedule has %d ranks, and there are %d",
                       extent->ranks, ranks);
    if ((int64_t)extent->ranks * replicas != ranks)
        return sl_fail(SL_EINVAL,
                       "%d replicas of a schedule with %d ranks, and there are "
                       "%d ranks",
                       replicas, extent->ranks, ranks);
    pipeline->ranks = extent->ranks;
    pipeline->rank = sl_comm_rank(pipeline->comm) % extent->ranks;
    pipeline->replica = sl_comm_rank(pipeline->comm) / extent->ranks;
    pipeline->shards = extent->has_sharding && replicas > 1;
    pipeline->stages = extent->stages;
    pipeline->microbatches = extent->microbatches;
    return SL_OK;
}

sl_status sl__lower_schedule(sl_pipeline *pipeline)
{
    const sl_schedule *given = pipeline->options.schedule;
    char passes[120];
    if (!given)
        return sl_fail(SL_EINVAL, "a pipeline needs a schedule");
    const sl_extent extent = sl_schedule_extent(given);
    SL__TRY(find_place(pipeline, &extent));
    SL__TRY(check_schedule(given));
    choose_passes(pipeline, &extent, passes, sizeof passes);
    SL__TRY(sl_lower(given, passes, NULL, &pipeline->lowered));
    SL__TRY(make_forward(pipeline));
    pipeline->options.schedule = NULL;
    pipeline->options.stage.backward = backward_of(pipeline->lowered);
    return take_placement(pipeline);
}

const sl_schedule *sl_pipeline_schedule(const sl_pipeline *pipeline)
{
    return pipeline ? pipeline->lowered : NULL;
}

/* SPDX-License-Identifier: MIT
 *
 * Lowers the given schedule: runs the public passes that it lacks. Nothing
 * adds, drops or moves a cell afterwards: instructions, plans, simulations and
 * traces are all made from the result.
 *
 * Requires: nothing; an unsound schedule is refused. Ensures: a sound schedule;
 * a SEND and RECV for each result that crosses ranks, a WAIT_SEND for each
 * SEND; REDUCE_GRAD if there are replicas or a custom function for it. */
#include "pipeline/run/runtime.h"

#include "base/arena.h"
#include "base/checksum.h"
#include "base/memory.h"
#include "base/try.h"
#include "schedule/action.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PASSES_MAX = 120 };

static sl_status check_schedule(const sl_schedule *schedule)
{
    sl_report *report;
    size_t count;
    sl_status status = SL_OK;
    SL__TRY(sl_check(schedule, NULL, &report));
    if (!sl_report_is_sound(report)) {
        const sl_finding *findings = sl_report_findings(report, &count);
        status = sl_fail(SL_EUNSOUND, "the schedule is not sound: %s",
                         count ? findings[0].text : "see sluice check");
    }
    sl_report_destroy(report);
    return status;
}

/* Chooses the passes that a schedule lacks. wait-send puts the WAIT_SEND of
 * given sends where they take no time, else at the end of the row. For sends
 * that send-recv adds, send-budget then bounds how many are pending, and so
 * their memory. */
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
    assert(used > 0 && (size_t)used < size);
    if (!extent->has_communication && pipeline->options.send_budget >= 0)
        snprintf(out + used, size - (size_t)used, ",send-budget=%d",
                 pipeline->options.send_budget);
}

static bool runs_in_eval(sl_action_kind kind)
{
    switch (kind) {
    case SL_FORWARD:
    case SL_SEND_F:
    case SL_RECV_F:
    case SL_WAIT_SEND_F:
    case SL_UNSHARD:
    case SL_RESHARD: return true;
    default: return false;
    }
}

static sl_status copy_row(const sl_schedule *from, int rank, bool forward_alone,
                          sl_schedule *to)
{
    const sl_action *row = sl_schedule_row(from, rank);
    size_t length = sl_schedule_length(from, rank);
    for (size_t i = 0; i < length; i++) {
        sl_action parts[2];
        int count = sl_action_parts(&row[i], parts);
        for (int k = 0; k < count; k++) {
            if (!forward_alone || runs_in_eval(parts[k].kind))
                SL__TRY(sl_schedule_append(to, rank, parts[k]));
        }
    }
    return SL_OK;
}

sl_status sl__copy_cells(const sl_schedule *from, bool forward_alone,
                         sl_schedule **out)
{
    int ranks = sl_schedule_ranks(from);
    sl_status status = sl_schedule_create(ranks, out);
    for (int r = 0; r < ranks && !status; r++)
        status = copy_row(from, r, forward_alone, *out);
    return status;
}

/* Which backward programs the schedule uses on any rank. */
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

/* Computes which replica, and which rank of the schedule, this rank is. */
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

/* --------------------------------------------------------------- sharing -- */

/* What runs, for all ranks of a process that were given the same schedule: the
 * first of them computes it, the others wait. It goes with its last user. */
struct sl__lowering {
    sl__lowering *next;
    const sl_schedule *given; /* not dereferenced: it may be gone */
    uint64_t sum;             /* of its cells, when it was given */
    char passes[PASSES_MAX];
    int users;
    bool done;
    sl_status status; /* and sentence, where it failed */
    char text[512];
    sl_schedule *lowered, *forward;
    sl_placement *placement;
    sl_backward backward;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_is_done = PTHREAD_COND_INITIALIZER;
static sl__lowering *lowerings; /* under `lock`, as their `users` and `done` */

static uint64_t sum_cells(const sl_schedule *schedule)
{
    sl__checksum sum;
    sl__checksum_start(&sum);
    for (int r = 0; r < sl_schedule_ranks(schedule); r++) {
        size_t length = sl_schedule_length(schedule, r);
        sl__checksum_add(&sum, &length, sizeof length);
        sl__checksum_add(&sum, sl_schedule_row(schedule, r),
                         length * sizeof(sl_action));
    }
    return sl__checksum_end(&sum);
}

static sl_status lower(sl__lowering *own)
{
    SL__TRY(check_schedule(own->given));
    SL__TRY(sl_lower(own->given, own->passes, NULL, &own->lowered));
    SL__TRY(sl__copy_cells(own->lowered, true, &own->forward));
    SL__TRY(sl_placement_derive(own->lowered, &own->placement));
    own->backward = backward_of(own->lowered);
    return SL_OK;
}

/* Finds the lowering of a schedule by these passes; under `lock`. */
static sl__lowering *find_lowering(const sl_schedule *given, uint64_t sum,
                                   const char *passes)
{
    sl__lowering *at = lowerings;
    while (at && (at->given != given || at->sum != sum ||
                  strcmp(at->passes, passes) != 0))
        at = at->next;
    return at;
}

static void finish(sl__lowering *own, sl_status status)
{
    pthread_mutex_lock(&lock);
    own->status = status;
    if (status)
        snprintf(own->text, sizeof own->text, "%s", sl_error_text());
    own->done = true;
    pthread_cond_broadcast(&one_is_done);
    pthread_mutex_unlock(&lock);
}

static sl_status share_lowering(const sl_schedule *given, const char *passes,
                                sl__lowering **out)
{
    uint64_t sum = sum_cells(given);
    sl__lowering *new;
    SL__TRY(sl__alloc(1, sizeof *new, &new));
    pthread_mutex_lock(&lock);
    sl__lowering *found = find_lowering(given, sum, passes);
    bool first = !found;
    if (first) {
        *new = (sl__lowering){.next = lowerings, .given = given, .sum = sum};
        snprintf(new->passes, sizeof new->passes, "%s", passes);
        lowerings = found = new;
    }
    found->users++;
    while (!first && !found->done)
        pthread_cond_wait(&one_is_done, &lock);
    pthread_mutex_unlock(&lock);
    if (first)
        finish(found, lower(found));
    else
        free(new);
    *out = found;
    return found->status ? sl_fail(found->status, "%s", found->text) : SL_OK;
}

void sl__lowering_release(sl__lowering *lowering)
{
    sl__lowering **at = &lowerings;
    if (!lowering)
        return;
    pthread_mutex_lock(&lock);
    bool last = --lowering->users == 0;
    while (last && *at != lowering)
        at = &(*at)->next;
    if (last)
        *at = lowering->next;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    sl_schedule_destroy(lowering->lowered);
    sl_schedule_destroy(lowering->forward);
    sl_placement_destroy(lowering->placement);
    free(lowering);
}

static sl_status list_stages(sl_pipeline *pipeline,
                             const sl_placement *placement)
{
    size_t stages = (size_t)pipeline->stages;
    SL__TRY(SL__TAKE(&pipeline->arena, stages, &pipeline->rank_of));
    SL__TRY(SL__TAKE(&pipeline->arena, stages, &pipeline->own_stages));
    for (int s = 0; s < pipeline->stages; s++) {
        pipeline->rank_of[s] = sl_placement_rank_of(placement, s);
        if (sl__is_own(pipeline, s))
            pipeline->own_stages[pipeline->own_count++] = s;
    }
    return SL_OK;
}

sl_status sl__lower_schedule(sl_pipeline *pipeline)
{
    const sl_schedule *given = pipeline->options.schedule;
    char passes[PASSES_MAX];
    if (!given)
        return sl_fail(SL_EINVAL, "a pipeline needs a schedule");
    const sl_extent extent = sl_schedule_extent(given);
    SL__TRY(find_place(pipeline, &extent));
    choose_passes(pipeline, &extent, passes, sizeof passes);
    SL__TRY(share_lowering(given, passes, &pipeline->lowering));
    pipeline->lowered = pipeline->lowering->lowered;
    pipeline->forward = pipeline->lowering->forward;
    pipeline->options.schedule = NULL;
    pipeline->options.stage.backward = pipeline->lowering->backward;
    return list_stages(pipeline, pipeline->lowering->placement);
}

const sl_schedule *sl_pipeline_schedule(const sl_pipeline *pipeline)
{
    return pipeline ? pipeline->lowered : NULL;
}

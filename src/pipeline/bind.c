/* SPDX-License-Identifier: MIT
 *
 * Binding: from the order of a rank's actions to a list of instructions with
 * every address, size, peer and tag in place.
 *
 * Requires: a sound order, models whose stages are those of the schedule.
 * Ensures: a slot belongs to one microbatch at a time; memory that a message
 * leaves from or arrives in is not touched before the message is complete; and
 * no rank waits for ever (slots.c). */
#include "pipeline/bind.h"

#include "base/memory.h"

#include <string.h>

/* ---------------------------------------------------------------- lanes -- */

static sl_status add_lane(sl__binder *b, int stage, int64_t rows)
{
    sl__bound *bound = b->bound;
    for (int i = 0; i < bound->lane_count; i++) {
        if (bound->lanes[i].stage == stage && bound->lanes[i].rows == rows)
            return SL_OK;
    }
    sl__lane *lane = &bound->lanes[bound->lane_count];
    *lane = (sl__lane){.stage = stage, .rows = rows};
    sl_status status = SL_OK;
    if (sl__is_here(b, stage))
        status = sl_programs_stage(b->pipeline->programs, rows, stage,
                                   &lane->program_stage);
    if (!status)
        bound->lane_count++;
    return status;
}

static sl_status make_lanes(sl__binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    size_t most = (size_t)pipeline->stages * (size_t)pipeline->microbatches;
    sl_status status = sl__arena_take(
        &b->bound->arena, most, sizeof *b->bound->lanes, &b->bound->lanes);
    for (int s = 0; s < pipeline->stages && !status; s++) {
        for (int m = 0; m < pipeline->microbatches && !status; m++)
            status = add_lane(b, s, b->bound->rows[m]);
    }
    for (int kind = 0; kind < 2 && !status; kind++) {
        size_t lanes = (size_t)b->bound->lane_count;
        status = sl__arena_take(&b->bound->arena, lanes, sizeof *b->peaks[kind],
                                &b->peaks[kind]);
        if (!status)
            status = sl__arena_take(&b->bound->arena, lanes,
                                    sizeof *b->extras[kind], &b->extras[kind]);
    }
    return status;
}

static sl_status make_memory(sl__binder *b)
{
    sl_pipeline *pipeline = b->pipeline;
    sl_status status = SL_OK;
    for (int i = 0; i < b->bound->lane_count && !status; i++) {
        sl__lane *lane = &b->bound->lanes[i];
        if (pipeline->rank_of[lane->stage] != sl__own_rank(b))
            continue;
        sl_memory **owner = &pipeline->owners[lane->stage];
        if (*owner) {
            status = sl_memory_create_beside(lane->program_stage, lane->slots,
                                             *owner, &lane->memory);
        } else {
            status = sl_memory_create(lane->program_stage, lane->slots, owner);
            if (!status) {
                lane->memory = *owner;
                pipeline->owner_stages[lane->stage] = lane->program_stage;
            }
        }
        if (!status)
            sl__memory_count_in(lane->memory, &pipeline->holding);
    }
    return status;
}

/* Counts the edges of each stage, and each edge at its stages. */
static sl_status count_edges(sl__binder *b)
{
    sl__arena *arena = &b->bound->arena;
    sl_status status = sl__arena_take(arena, (size_t)b->pipeline->stages,
                                      sizeof *b->touching, &b->touching);
    for (int side = 0; side < 2 && !status; side++)
        status = sl__arena_take(arena, (size_t)b->edge_count,
                                sizeof *b->edge_at[side], &b->edge_at[side]);
    for (int e = 0; e < b->edge_count && !status; e++) {
        b->edge_at[0][e] = b->touching[b->edges[e].from]++;
        b->edge_at[1][e] = b->touching[b->edges[e].to]++;
    }
    return status;
}

/* ------------------------------------------------------------- weighing -- */

static void weigh(const sl_pipeline *pipeline, sl__bound *bound)
{
    int64_t all = 0;
    int count = pipeline->microbatches;
    for (int m = 0; m < count; m++)
        all += bound->rows[m];
    for (int m = 0; m < count; m++) {
        bound->scales[m] =
            all ? (double)bound->rows[m] / (double)all : 1.0 / count;
        if (pipeline->options.loss == SL_LOSS_SUM)
            bound->scales[m] = 1;
        else
            bound->scales[m] /= pipeline->options.replicas;
    }
}

/* -------------------------------------------------------------- binding -- */

/* The list of this rank, in memory that is there now. */
static sl_status bind_list(sl__binder *b)
{
    b->list = b->train ? &b->bound->train : &b->bound->eval;
    sl__turn_to(b, sl__own_rank(b));
    sl__find_lasts(b);
    sl_status status = sl__deal_slots(b);
    return status ? status : sl__emit_list(b);
}

/* Room for the mails, at the start of a cache line. */
static sl_status make_mails(sl__bound *bound)
{
    char *memory;
    sl_status status = sl__arena_take(&bound->arena, bound->mail_count + 1,
                                      sizeof *bound->mails, &memory);
    if (status)
        return status;
    memory +=
        (SL__CACHE_LINE - (uintptr_t)memory % SL__CACHE_LINE) % SL__CACHE_LINE;
    bound->mails = (sl__mail *)(void *)memory;
    return SL_OK;
}

/* Slots of both lists are found first: memory is made for the larger. */
static sl_status bind_lists(sl__binder *b)
{
    bool steps = b->pipeline->options.stage.backward != SL_BACKWARD_NONE;
    sl_status status = SL_OK;
    for (int train = 0; train <= steps && !status; train++) {
        b->train = train;
        status = sl__find_slots(b);
    }
    sl__turn_to(b, sl__own_rank(b));
    if (!status)
        status = sl__make_merges(b->pipeline, b->bound, 0);
    if (status || b->bound->dry)
        return status;
    status = make_memory(b);
    if (!status) {
        b->bound->mail_count = sl__place_mails(b, false);
        status = make_mails(b->bound);
    }
    b->mails = b->bound->mails;
    for (int train = 0; train <= steps && !status; train++) {
        b->train = train;
        status = bind_list(b);
    }
    size_t train = b->bound->train.count, eval = b->bound->eval.count;
    if (!status)
        status =
            sl__arena_take(&b->bound->arena, (train > eval ? train : eval) + 1,
                           sizeof *b->bound->stamps, &b->bound->stamps);
    return status;
}

static sl_status check_sizes(const sl__binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    int count, stages = sl_model_stage_count(b->bound->model);
    const sl_model_port *outputs = sl_model_outputs(b->bound->model, &count);
    if (stages != pipeline->stages)
        return sl_fail(SL_EINVAL,
                       "the model has %d stages, and the schedule %d", stages,
                       pipeline->stages);
    if (2 * (int64_t)b->edge_count * pipeline->microbatches >=
        SL_COMM_MAX_TAG / 2)
        return sl_fail(SL_EINVAL,
                       "%d edges of %d microbatches are more messages than "
                       "there are tags for",
                       b->edge_count, pipeline->microbatches);
    for (int i = 0; i < count; i++) {
        if (outputs[i].gradient)
            return sl_fail(SL_EINVAL,
                           "output '%.60s' takes a gradient, and a pipeline "
                           "has none for it",
                           outputs[i].name);
    }
    return SL_OK;
}

static sl_status bind_all(sl__binder *b, const int64_t *rows)
{
    sl_pipeline *pipeline = b->pipeline;
    sl__bound *bound = b->bound;
    size_t microbatches = (size_t)pipeline->microbatches;
    size_t cells = (size_t)pipeline->stages * microbatches;
    sl_status status = sl__arena_take(&bound->arena, microbatches,
                                      sizeof *bound->rows, &bound->rows);
    if (!status)
        status = sl__arena_take(&bound->arena, microbatches,
                                sizeof *bound->scales, &bound->scales);
    if (!status)
        status =
            sl__arena_take(&bound->arena, cells, sizeof *b->slots, &b->slots);
    if (!status)
        status =
            sl__arena_take(&bound->arena, cells, sizeof *b->nexts, &b->nexts);
    if (!status)
        status = sl__arena_take(&bound->arena, cells, sizeof *b->follows,
                                &b->follows);
    if (!status)
        status =
            sl__arena_take(&bound->arena, cells, sizeof *b->lasts, &b->lasts);
    for (int way = 0; way < 2 && !status; way++)
        status = sl__arena_take(&bound->arena, cells, sizeof *b->placed[way],
                                &b->placed[way]);
    if (status)
        return status;
    memcpy(bound->rows, rows, microbatches * sizeof *rows);
    weigh(pipeline, bound);
    status = sl_programs_model(pipeline->programs, rows[0], &bound->model);
    if (status)
        return status;
    b->edges = sl_model_edges(bound->model, &b->edge_count);
    sl__turn_to(b, sl__own_rank(b));
    status = check_sizes(b);
    if (!status)
        status = count_edges(b);
    if (!status)
        status = make_lanes(b);
    int outputs;
    sl_model_outputs(bound->model, &outputs);
    if (!status)
        status = sl__arena_take(&bound->arena, (size_t)outputs,
                                sizeof *bound->merges, &bound->merges);
    return status ? status : bind_lists(b);
}

static sl_status bind_new(sl_pipeline *pipeline, const int64_t *rows, bool dry,
                          sl__bound **out)
{
    sl__binder b = {.pipeline = pipeline};
    sl_status status = sl__alloc(1, sizeof *b.bound, &b.bound);
    if (status)
        return status;
    b.bound->dry = dry;
    status = bind_all(&b, rows);
    if (status)
        sl__unbind(pipeline, b.bound);
    else
        *out = b.bound;
    return status;
}

sl_status sl__bind(sl_pipeline *pipeline, const int64_t *rows, sl__bound **out)
{
    size_t bytes = sizeof *rows * (size_t)pipeline->microbatches;
    for (sl__bound *known = pipeline->bounds; known; known = known->next) {
        if (memcmp(known->rows, rows, bytes) == 0) {
            *out = known;
            return SL_OK;
        }
    }
    sl_status status = bind_new(pipeline, rows, false, out);
    if (!status) {
        (*out)->next = pipeline->bounds;
        pipeline->bounds = *out;
    }
    return status;
}

sl_status sl__bind_dry(sl_pipeline *pipeline, const int64_t *rows,
                       sl__bound **out)
{
    return bind_new(pipeline, rows, true, out);
}

void sl__unbind(const sl_pipeline *pipeline, sl__bound *bound)
{
    for (int i = 0; i < bound->lane_count; i++) {
        const sl__lane *lane = &bound->lanes[i];
        if (lane->memory && lane->memory != pipeline->owners[lane->stage])
            sl_memory_destroy(lane->memory);
    }
    sl__drop_merges(bound);
    free(bound->train.data);
    free(bound->eval.data);
    sl__arena_clear(&bound->arena);
    free(bound);
}

/* SPDX-License-Identifier: MIT
 *
 * Binding: prepares one way of splitting a batch. Compiles the stages of this
 * rank for each number of rows (variants), allocates their memory, and has two
 * lists of instructions emitted, one for a step and one for an eval.
 *
 * Requires: a sound lowered schedule, models whose stages are those of the
 * schedule. Ensures: each cell has an instruction or more, in the order of the
 * cells; a slot belongs to one microbatch at a time; memory that a message is
 * sent from or received into is not used before the message is complete. */
#include "pipeline/run/bind.h"

#include "base/memory.h"
#include "base/try.h"

#include <string.h>

/* ------------------------------------------------------------- variants -- */

/* Adds the variant of a stage for a number of rows, unless it exists. */
static sl_status add_variant(sl__binder *b, int stage, int64_t rows)
{
    sl__binding *binding = b->binding;
    for (int i = 0; i < binding->variant_count; i++) {
        if (binding->variants[i].stage == stage &&
            binding->variants[i].rows == rows)
            return SL_OK;
    }
    sl__variant *variant = &binding->variants[binding->variant_count];
    bool steps = b->pipeline->options.stage.backward != SL_BACKWARD_NONE;
    *variant = (sl__variant){.stage = stage, .rows = rows};
    for (int m = 0; m < b->pipeline->microbatches; m++)
        variant->microbatches += binding->rows[m] == rows ? 1 + steps : 0;
    SL__TRY(sl__arena_take(&binding->arena, (size_t)variant->microbatches,
                           sizeof *variant->which, &variant->which));
    SL__TRY(sl_programs_stage(b->pipeline->programs, rows, stage,
                              &variant->program_stage));
    binding->variant_count++;
    return SL_OK;
}

static sl_status make_variants(sl__binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    size_t most = (size_t)pipeline->own_count * (size_t)pipeline->microbatches;
    SL__TRY(sl__arena_take(&b->binding->arena, most,
                           sizeof *b->binding->variants,
                           &b->binding->variants));
    for (int i = 0; i < pipeline->own_count; i++) {
        for (int m = 0; m < pipeline->microbatches; m++)
            SL__TRY(
                add_variant(b, pipeline->own_stages[i], b->binding->rows[m]));
    }
    return SL_OK;
}

/* Numbers the microbatches of a variant, of the list of the eval first, then of
 * the step. The number is the slot that the variant's memory has for the
 * microbatch; `of` gets its slot of each kind. Returns how many there are. */
static int place_microbatches(sl__binder *b, const sl__variant *variant,
                              bool steps, int (*of)[SL__SLOT_KINDS])
{
    int count = 0;
    for (int train = 0; train <= steps; train++) {
        for (int m = 0; m < b->pipeline->microbatches; m++) {
            size_t cell = sl__cell(b, variant->stage, m);
            if (b->binding->rows[m] != variant->rows)
                continue;
            memcpy(of[count], b->slots[train][cell], sizeof *of);
            variant->which[count] = m;
            b->places[train][cell] = count++;
        }
    }
    return count;
}

/* The first memory of a stage has its parameters and gradients; those of other
 * sizes share them. */
static sl_status make_memory_of(sl__binder *b, sl__variant *variant, bool steps,
                                int (*of)[SL__SLOT_KINDS])
{
    sl_pipeline *pipeline = b->pipeline;
    sl_memory **owner = &pipeline->owners[variant->stage];
    sl__slots slots = {.of = (const int(*)[SL__SLOT_KINDS])of};
    memcpy(slots.counts, variant->slots, sizeof slots.counts);
    slots.microbatches = place_microbatches(b, variant, steps, of);
    assert(slots.microbatches == variant->microbatches);
    SL__TRY(sl__memory_create(variant->program_stage, &slots, *owner,
                              pipeline->stream, &variant->memory));
    if (!*owner) {
        *owner = variant->memory;
        pipeline->owner_stages[variant->stage] = variant->program_stage;
    }
    sl__memory_count_in(variant->memory, &pipeline->holding);
    return SL_OK;
}

static sl_status make_memory(sl__binder *b, bool steps)
{
    int(*of)[SL__SLOT_KINDS] = NULL;
    sl_status status =
        sl__alloc(2 * (size_t)b->pipeline->microbatches, sizeof *of, &of);
    for (int i = 0; i < b->binding->variant_count && !status; i++)
        status = make_memory_of(b, &b->binding->variants[i], steps, of);
    free(of);
    return status;
}

/* Numbers the edges that leave or reach this rank. */
static sl_status number_edges(sl__binder *b)
{
    SL__TRY(sl__arena_take(&b->binding->arena, (size_t)b->edge_count,
                           sizeof *b->message_edge, &b->message_edge));
    for (int e = 0; e < b->edge_count; e++) {
        bool crosses =
            sl__is_here(b, b->edges[e].from) != sl__is_here(b, b->edges[e].to);
        b->message_edge[e] = crosses ? b->message_edges++ : -1;
    }
    return SL_OK;
}

/* Computes the scale of each microbatch's loss: for a mean, its share of the
 * rows, divided by the number of replicas. */
static void compute_scales(const sl_pipeline *pipeline, sl__binding *binding)
{
    int64_t all = 0;
    int count = pipeline->microbatches;
    for (int m = 0; m < count; m++)
        all += binding->rows[m];
    for (int m = 0; m < count; m++) {
        double share =
            all ? (double)binding->rows[m] / (double)all : 1.0 / count;
        binding->scales[m] = pipeline->options.loss == SL_LOSS_SUM
                                 ? 1
                                 : share / pipeline->options.replicas;
    }
}

/* -------------------------------------------------------------- binding -- */

/* Allocates the requests, aligned to cache lines. */
static sl_status make_requests(sl__binder *b)
{
    sl__binding *binding = b->binding;
    char *memory;
    binding->request_count =
        2 * (size_t)b->message_edges * (size_t)b->pipeline->microbatches;
    SL__TRY(sl__arena_take(&binding->arena, binding->request_count + 1,
                           sizeof *binding->requests, &memory));
    memory +=
        (SL__CACHE_LINE - (uintptr_t)memory % SL__CACHE_LINE) % SL__CACHE_LINE;
    binding->requests = (sl__padded_request *)(void *)memory;
    return SL_OK;
}

/* Emits the list without memory to find lifetimes, and assigns slots by
 * them. */
static sl_status measure_list(sl__binder *b)
{
    sl__instructions list = {0};
    size_t cells =
        (size_t)b->pipeline->own_count * (size_t)b->pipeline->microbatches;
    b->list = &list;
    b->measuring = true;
    memset(b->lifetimes, 0, cells * sizeof *b->lifetimes);
    sl_status status = sl__emit_list(b);
    if (!status)
        status = sl__assign_slots(b);
    free(list.data);
    b->measuring = false;
    return status;
}

/* Assigns the slots of both lists first, because memory is allocated for the
 * list that needs more. */
static sl_status bind_lists(sl__binder *b)
{
    bool steps = b->pipeline->options.stage.backward != SL_BACKWARD_NONE;
    for (int train = 0; train <= steps; train++) {
        b->train = train;
        SL__TRY(measure_list(b));
    }
    SL__TRY(sl__make_merges(b->pipeline, b->binding, 0));
    if (b->binding->dry)
        return SL_OK;
    SL__TRY(make_memory(b, steps));
    SL__TRY(make_requests(b));
    for (int train = 0; train <= steps; train++) {
        b->train = train;
        b->list = train ? &b->binding->train : &b->binding->eval;
        SL__TRY(sl__emit_list(b));
    }
    size_t train = b->binding->train.count, eval = b->binding->eval.count;
    SL__TRY(sl__arena_take(&b->binding->arena,
                           (train > eval ? train : eval) + 1,
                           sizeof *b->binding->stamps, &b->binding->stamps));
    return sl__make_device_side(b->pipeline, b->binding);
}

static sl_status check_sizes(const sl__binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    int count, stages = sl_model_stage_count(b->binding->model);
    const sl_model_port *outputs = sl_model_outputs(b->binding->model, &count);
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
                           "output '%.60s' needs a gradient, which a pipeline "
                           "does not supply",
                           outputs[i].name);
    }
    return SL_OK;
}

static sl_status make_tables(sl__binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    sl__arena *arena = &b->binding->arena;
    size_t microbatches = (size_t)pipeline->microbatches;
    size_t cells = (size_t)pipeline->own_count * microbatches;
    SL__TRY(sl__arena_take(arena, microbatches, sizeof *b->binding->rows,
                           &b->binding->rows));
    SL__TRY(sl__arena_take(arena, microbatches, sizeof *b->binding->scales,
                           &b->binding->scales));
    SL__TRY(sl__arena_take(arena, (size_t)pipeline->stages, sizeof *b->own,
                           &b->own));
    SL__TRY(sl__arena_take(arena, cells, sizeof *b->lifetimes, &b->lifetimes));
    SL__TRY(sl__arena_take(arena, microbatches, sizeof *b->binding->group,
                           &b->binding->group));
    SL__TRY(sl__arena_take(arena, 2 * microbatches, sizeof *b->binding->blocks,
                           &b->binding->blocks));
    for (int train = 0; train < 2; train++) {
        SL__TRY(sl__arena_take(arena, cells, sizeof *b->places[train],
                               &b->places[train]));
        SL__TRY(sl__arena_take(arena, cells, sizeof *b->slots[train],
                               &b->slots[train]));
    }
    for (int s = 0; s < pipeline->stages; s++)
        b->own[s] = -1;
    for (int i = 0; i < pipeline->own_count; i++)
        b->own[pipeline->own_stages[i]] = i;
    return SL_OK;
}

static sl_status bind_all(sl__binder *b, const int64_t *rows)
{
    sl_pipeline *pipeline = b->pipeline;
    sl__binding *binding = b->binding;
    int outputs;
    SL__TRY(make_tables(b));
    memcpy(binding->rows, rows, (size_t)pipeline->microbatches * sizeof *rows);
    compute_scales(pipeline, binding);
    SL__TRY(sl_programs_model(pipeline->programs, rows[0], &binding->model));
    b->edges = sl_model_edges(binding->model, &b->edge_count);
    SL__TRY(check_sizes(b));
    SL__TRY(number_edges(b));
    SL__TRY(make_variants(b));
    sl_model_outputs(binding->model, &outputs);
    SL__TRY(sl__arena_take(&binding->arena, (size_t)outputs,
                           sizeof *binding->merges, &binding->merges));
    return bind_lists(b);
}

static sl_status bind_new(sl_pipeline *pipeline, const int64_t *rows, bool dry,
                          sl__binding **out)
{
    sl__binder b = {.pipeline = pipeline};
    SL__TRY(sl__alloc(1, sizeof *b.binding, &b.binding));
    b.binding->dry = dry;
    sl_status status = bind_all(&b, rows);
    if (status)
        sl__unbind(pipeline, b.binding);
    else
        *out = b.binding;
    return status;
}

sl_status sl__bind(sl_pipeline *pipeline, const int64_t *rows,
                   sl__binding **out)
{
    size_t bytes = sizeof *rows * (size_t)pipeline->microbatches;
    sl__binding *known = pipeline->bindings;
    while (known && memcmp(known->rows, rows, bytes) != 0)
        known = known->next;
    if (!known) {
        SL__TRY(bind_new(pipeline, rows, false, &known));
        known->next = pipeline->bindings;
        pipeline->bindings = known;
    }
    *out = known;
    return SL_OK;
}

sl_status sl__bind_dry(sl_pipeline *pipeline, const int64_t *rows,
                       sl__binding **out)
{
    return bind_new(pipeline, rows, true, out);
}

void sl__unbind(const sl_pipeline *pipeline, sl__binding *binding)
{
    for (int i = 0; i < binding->variant_count; i++) {
        const sl__variant *variant = &binding->variants[i];
        if (variant->memory &&
            variant->memory != pipeline->owners[variant->stage])
            sl_memory_destroy(variant->memory);
    }
    sl__free_device_side(pipeline, binding);
    sl__destroy_merges(binding);
    free(binding->train.data);
    free(binding->eval.data);
    sl__arena_clear(&binding->arena);
    free(binding);
}

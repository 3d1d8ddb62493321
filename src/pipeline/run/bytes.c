/* SPDX-License-Identifier: MIT
 *
 * Bytes of a rank, by pool: planned, from the plans of its stages, and
 * measured, from what was allocated and freed. */
#include "pipeline/run/runtime.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "base/writer.h"

#include <stddef.h>
#include <string.h>

/* ----------------------------------------------------------------- sums -- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Bytes that an all-reduce of a gradient over some ranks needs. */
static int64_t sum_bytes_of(int ranks, sl_dtype dtype, int64_t bytes)
{
    size_t count = (size_t)bytes / sl_dtype_bytes(dtype);
    return ranks > 1 ? sl__comm_sum_bytes(ranks, dtype, count) : 0;
}

/* Bytes for summing the largest gradient of a stage over the replicas. */
static int64_t replica_bytes(const sl_pipeline *pipeline, const sl_graph *graph)
{
    int64_t most = 0;
    for (size_t i = 0; i < graph->parameters.count; i++) {
        const sl_tensor *tensor = graph->parameters.data[i].tensor;
        most = larger(most, sum_bytes_of(pipeline->options.replicas,
                                         tensor->dtype, sl__bytes(tensor)));
    }
    return most;
}

/* Bytes for summing a tied gradient; 0 where this rank does not have it. */
static int64_t tie_bytes(const sl_pipeline *pipeline, const sl_tie *tie)
{
    int ranks[SL_COMM_MAX_RANKS];
    int count = sl__tie_ranks(pipeline, tie, ranks);
    const sl__shard own = sl__own_shard(pipeline, tie->dtype, tie->bytes);
    for (int i = 0; i < count; i++) {
        if (ranks[i] == sl_comm_rank(pipeline->comm))
            return sum_bytes_of(count, tie->dtype, (int64_t)own.bytes);
    }
    return 0;
}

int64_t sl__sum_bytes(const sl_pipeline *pipeline, const sl_model *model)
{
    enum { FEW = 8 };
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    /* The gradient norm, and the numbers that a training loop sums. */
    int ranks = sl_comm_size(pipeline->comm);
    int64_t most = ranks > 1 ? sl__comm_sum_bytes(ranks, SL_F64, FEW) : 0;
    for (int t = 0; t < count; t++)
        most = larger(most, tie_bytes(pipeline, &ties[t]));
    for (int i = 0; i < pipeline->own_count; i++)
        most = larger(
            most, replica_bytes(pipeline,
                                model->parts[pipeline->own_stages[i]].graph));
    return most;
}

/* --------------------------------------------------------------- shards -- */

/* A stage whose parameters are sharded: its sizes, and what it holds now. */
typedef struct sharded {
    int64_t parameters, gradients; /* whole */
    int64_t others; /* of either, the part that only other replicas keep */
    int64_t packed;
    bool whole_parameters, whole_gradients, is_packed;
} sharded;

/* Adds what a stage holds to the pools; returns all of it. */
static int64_t add_held(const sharded *s, sl_rank_bytes *sum)
{
    int64_t parameters = s->parameters - (s->whole_parameters ? 0 : s->others);
    int64_t gradients = s->gradients - (s->whole_gradients ? 0 : s->others);
    int64_t packed = s->is_packed ? s->packed : 0;
    sum->parameters += parameters;
    sum->gradients += gradients;
    sum->packed += packed;
    return parameters + gradients + packed;
}

/* Updates what a stage holds after an action. */
static void act(sharded *s, sl_action_kind kind)
{
    switch (kind) {
    case SL_UNSHARD: s->whole_parameters = true; break;
    case SL_RESHARD: s->whole_parameters = s->is_packed = false; break;
    case SL_REDUCE_GRAD: s->whole_gradients = false; break;
    case SL_FORWARD: s->is_packed = true; break;
    case SL_BACKWARD_INPUT:
    case SL_BACKWARD_WEIGHT:
    case SL_BACKWARD: s->whole_gradients = true; break;
    default: break;
    }
}

static sl_status describe_stages(const sl_pipeline *pipeline,
                                 const sl__binding *binding, sharded *stages)
{
    for (int i = 0; i < binding->variant_count; i++) {
        const sl__variant *variant = &binding->variants[i];
        sharded *own = &stages[variant->stage];
        if (own->parameters)
            continue;
        const sl_plan *plan = sl_stage_plan(variant->program_stage);
        *own = (sharded){.parameters = plan->parameter_bytes,
                         .gradients = plan->gradient_bytes,
                         .packed = plan->packed_bytes};
        SL__TRY(sl__count_others(pipeline, variant->program_stage,
                                 SL_PORT_PARAMETER, &own->others));
    }
    return SL_OK;
}

/* The most that is held at once in a step. It simulates two steps, because a
 * step begins with what the one before has left. */
static sl_status plan_shards(const sl_pipeline *pipeline,
                             const sl__binding *binding, sl_rank_bytes *out)
{
    sharded *all;
    size_t stages = (size_t)pipeline->stages;
    SL__TRY(sl__alloc(stages, sizeof *all, &all));
    sl_status status = describe_stages(pipeline, binding, all);
    const sl_action *row = sl_schedule_row(pipeline->lowered, pipeline->rank);
    size_t count = sl_schedule_length(pipeline->lowered, pipeline->rank);
    int64_t most = -1;
    for (size_t i = 0; i < 2 * count && !status; i++) {
        sl_rank_bytes now = {0};
        int64_t sum = 0;
        sl_action parts[2];
        int halves = sl_action_parts(&row[i % count], parts);
        for (int k = 0; k < halves; k++)
            act(&all[parts[k].stage], parts[k].kind);
        for (size_t s = 0; s < stages; s++)
            sum += add_held(&all[s], &now);
        if (i < count || sum <= most)
            continue;
        most = sum;
        out->parameters = now.parameters;
        out->gradients = now.gradients;
        out->packed = now.packed;
    }
    free(all);
    return status;
}

/* ----------------------------------------------------------------- plan -- */

/* Adds a stage that is compiled for one number of rows. */
static void add_variant(const sl__variant *variant, bool owns,
                        sl_rank_bytes *out)
{
    const sl_stage *stage = variant->program_stage;
    const sl_plan *plan = sl_stage_plan(stage);
    out->parameters += owns ? plan->parameter_bytes : 0;
    out->gradients += owns ? plan->gradient_bytes : 0;
    out->packed += plan->packed_bytes;
    out->workspace += plan->workspace_bytes +
                      plan->control_bytes * (1 + variant->microbatches);
    for (int k = 0; k < SL__SLOT_KINDS; k++) {
        bool is_message = k >= SL__SLOT_INPUTS;
        *(is_message ? &out->messages : &out->activations) +=
            variant->slots[k] * stage->slot_bytes[k];
    }
}

static int64_t sum_pools(const sl_rank_bytes *bytes)
{
    return bytes->parameters + bytes->gradients + bytes->optimizer +
           bytes->packed + bytes->workspace + bytes->activations +
           bytes->messages + bytes->outputs + bytes->sums;
}

/* Adds a binding, or one of a dry run. */
static sl_status add_binding(const sl_pipeline *pipeline,
                             const sl__binding *binding, bool dry,
                             sl_rank_bytes *out)
{
    int owned = -1; /* Variants are in order of stages. */
    for (int i = 0; i < binding->variant_count; i++) {
        const sl__variant *variant = &binding->variants[i];
        bool owns = dry ? variant->stage != owned
                        : variant->memory == pipeline->owners[variant->stage];
        owned = variant->stage;
        add_variant(variant, owns, out);
    }
    out->outputs += binding->output_bytes;
    out->messages += binding->feed_bytes;
    return pipeline->shards ? plan_shards(pipeline, binding, out) : SL_OK;
}

sl_status sl_pipeline_plan(sl_pipeline *pipeline, int64_t rows,
                           sl_rank_bytes *out)
{
    SL__NEED(pipeline, out);
    sl__binding *binding;
    sl_rank_bytes bytes = {0};
    SL__TRY(sl__split_rows(pipeline, rows));
    SL__TRY(sl__bind_dry(pipeline, pipeline->rows, &binding));
    sl_status status = add_binding(pipeline, binding, true, &bytes);
    bytes.sums = sl__sum_bytes(pipeline, binding->model) +
                 sl__scratch_bytes(pipeline, binding->model);
    sl__unbind(pipeline, binding);
    bytes.planned = sum_pools(&bytes);
    if (!status)
        *out = bytes;
    return status;
}

void sl_pipeline_bytes(const sl_pipeline *pipeline, sl_rank_bytes *out)
{
    if (!out)
        return;
    *out = (sl_rank_bytes){0};
    if (!pipeline)
        return;
    sl_rank_bytes bytes = {.optimizer = pipeline->optimizer_bytes};
    const sl_model *model = sl_pipeline_model(pipeline);
    /* This can fail only with shards, when out of memory: then they are not
     * counted. */
    for (const sl__binding *binding = pipeline->bindings; binding;
         binding = binding->next)
        (void)add_binding(pipeline, binding, false, &bytes);
    bytes.sums = pipeline->scratch_bytes;
    if (model)
        bytes.sums += sl__sum_bytes(pipeline, model);
    bytes.planned = sum_pools(&bytes);
    /* The transport may have reserved more, for another pipeline. */
    int64_t others = pipeline->scratch_bytes + bytes.outputs;
    int64_t room = sl__comm_reserved(pipeline->comm, pipeline->stream);
    int64_t own = bytes.sums - pipeline->scratch_bytes;
    others += room < own ? room : own;
    bytes.measured = pipeline->holding.most + others;
    bytes.held = pipeline->holding.now + others;
    *out = bytes;
}

/* ---------------------------------------------------------------- text -- */

/* A table with a row per rank and a column per pool, without pools that are
 * empty on all ranks. */
sl_status sl_rank_bytes_write(const sl_rank_bytes *ranks, int count,
                              sl_write_fn write, void *context)
{
    SL__NEED(write);
    if (count > 0)
        SL__NEED(ranks);
    static const struct {
        const char *name;
        size_t offset;
    } pools[] = {
        {"parameters", offsetof(sl_rank_bytes, parameters)},
        {"gradients", offsetof(sl_rank_bytes, gradients)},
        {"optimizer", offsetof(sl_rank_bytes, optimizer)},
        {"packed", offsetof(sl_rank_bytes, packed)},
        {"workspace", offsetof(sl_rank_bytes, workspace)},
        {"activations", offsetof(sl_rank_bytes, activations)},
        {"messages", offsetof(sl_rank_bytes, messages)},
        {"outputs", offsetof(sl_rank_bytes, outputs)},
        {"sums", offsetof(sl_rank_bytes, sums)},
        {"planned", offsetof(sl_rank_bytes, planned)},
        {"measured", offsetof(sl_rank_bytes, measured)},
    };
    enum { POOLS = sizeof pools / sizeof *pools };
    bool shown[POOLS] = {false};
    int64_t most = 0;
    for (int r = 0; r < count; r++)
        most = larger(most, ranks[r].planned);
    const bool small = most < 10000000;
    sl__writer writer;
    sl__writer_start(&writer, write, context);
    sl__puts(&writer, "rank");
    for (int p = 0; p < POOLS; p++) {
        for (int r = 0; r < count; r++)
            shown[p] |=
                *(const int64_t *)((const char *)&ranks[r] + pools[p].offset);
        if (shown[p])
            sl__printf(&writer, " %8s", pools[p].name);
    }
    sl__puts(&writer, small ? " (kB)\n" : " (MB)\n");
    for (int r = 0; r < count; r++) {
        sl__printf(&writer, "%4d", r);
        for (int p = 0; p < POOLS; p++) {
            const char *own = (const char *)&ranks[r] + pools[p].offset;
            int width = (int)strlen(pools[p].name);
            if (shown[p])
                sl__printf(&writer, " %*.1f", width > 8 ? width : 8,
                           (double)*(const int64_t *)own *
                               (small ? 1e-3 : 1e-6));
        }
        sl__puts(&writer, "\n");
    }
    return sl__writer_finish(&writer);
}

/* SPDX-License-Identifier: MIT
 *
 * Optimizers over the stages of a rank. A step is one exchange between ranks,
 * for the norm of the gradient, and then everybody's own affair: stages that
 * share a tied parameter have the same gradient, and change it alike. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "pipeline/run/runtime.h"
#include "tensor/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A parameter of this rank. */
typedef struct item {
    int stage;
    sl_memory *memory;
    sl_port gradient;
    const char *name; /* in a checkpoint */
    bool first;       /* counts in the norm */
    bool decays;
    void *states[2];
} item;

struct sl_optimizer {
    sl__arena arena;
    sl_pipeline *pipeline;
    sl_optimizer_options options;
    item *items;
    int count;
    int kinds; /* states of each */
    int64_t steps;
    sl_optimizer_state *states;
};

static const char *const kind_names[2][2] = {{"exp_avg", "exp_avg_sq"},
                                             {"momentum_buffer", NULL}};

/* ----------------------------------------------------------------- life -- */

static sl_status add_item(sl_optimizer *own, int stage, sl_memory *memory,
                          const sl_port *gradient)
{
    const sl_model *model = sl_pipeline_model(own->pipeline);
    item *new = &own->items[own->count];
    bool first;
    sl__find_tie(model, stage, gradient->name, &first);
    *new = (item){.stage = stage,
                  .memory = memory,
                  .gradient = *gradient,
                  .name = sl__tied_name(model, stage, gradient->name),
                  .first = first,
                  .decays = gradient->dims > 1 || own->options.decay_all};
    for (int k = 0; k < own->kinds; k++) {
        int64_t bytes = sl__aligned(gradient->bytes);
        sl_status status = sl__memory_take(memory, bytes, &new->states[k]);
        if (status) {
            own->count++;
            return status;
        }
        own->pipeline->optimizer_bytes += bytes;
        own->states[own->kinds * own->count + k] = (sl_optimizer_state){
            .parameter = new->name,
            .kind = kind_names[own->options.kind == SL_UPDATE_SGD][k],
            .port = *gradient,
            .stage = stage,
            .first = new->first,
            .data = new->states[k]};
    }
    own->count++;
    return SL_OK;
}

/* Every parameter of this rank, or how many there are. */
static sl_status walk(sl_optimizer *own, bool add, size_t *out_count)
{
    int stages;
    const int *all = sl_pipeline_stages(own->pipeline, &stages);
    sl_status status = SL_OK;
    for (int s = 0; s < stages && !status; s++) {
        const sl_stage *stage;
        sl_memory *memory;
        status = sl_pipeline_stage(own->pipeline, all[s], &stage, &memory);
        int count =
            status ? 0 : sl_stage_port_count(stage, SL_PORT_PARAMETER_GRADIENT);
        *out_count += (size_t)count;
        for (int i = 0; i < count && !status && add; i++) {
            sl_port port;
            status =
                sl_stage_port_at(stage, SL_PORT_PARAMETER_GRADIENT, i, &port);
            if (!status)
                status = add_item(own, all[s], memory, &port);
        }
        if (!status && count && sl__is_callbacks(stage))
            status = sl_fail(SL_EINVAL,
                             "stage %d is callbacks, whose parameters an "
                             "optimizer does not reach",
                             all[s]);
    }
    return status;
}

int sl__state_kinds(const sl_optimizer_options *options)
{
    return options->kind == SL_UPDATE_ADAMW ? 2 : options->momentum != 0;
}

static sl_status check_options(const sl_optimizer_options *options)
{
    const double betas[] = {options->beta1, options->beta2, options->momentum};
    for (int i = 0; i < 3; i++) {
        if (!(betas[i] >= 0 && betas[i] < 1))
            return sl_fail(SL_EINVAL,
                           "betas and momentum are from 0 up to below 1");
    }
    if (!(options->epsilon > 0) || !(options->decay >= 0) ||
        !(options->clip >= 0) || !isfinite(options->decay))
        return sl_fail(SL_EINVAL, "epsilon is above 0; decay and clip are 0 or "
                                  "more");
    return SL_OK;
}

sl_status sl_optimizer_create(sl_pipeline *pipeline,
                              const sl_optimizer_options *options,
                              sl_optimizer **out)
{
    SL__NEED(pipeline, options, out);
    sl_optimizer *own;
    size_t count = 0;
    sl_status status = check_options(options);
    if (!status && pipeline->shards)
        status = sl_fail(SL_EINVAL, "an optimizer for parameters in parts is "
                                    "not built: leave UNSHARD out");
    if (!status)
        status = sl__alloc(1, sizeof *own, &own);
    if (status)
        return status;
    own->pipeline = pipeline;
    own->options = *options;
    own->kinds = sl__state_kinds(options);
    status = walk(own, false, &count);
    if (!status)
        status =
            sl__arena_take(&own->arena, count, sizeof *own->items, &own->items);
    if (!status)
        status = sl__arena_take(&own->arena, 2 * count, sizeof *own->states,
                                &own->states);
    if (!status)
        status = walk(own, true, &count);
    if (status)
        sl_optimizer_destroy(own);
    else
        *out = own;
    return status;
}

static void give_back(sl_optimizer *own, const item *at, int kind)
{
    int64_t bytes = sl__aligned(at->gradient.bytes);
    if (!at->states[kind])
        return;
    sl__memory_give(at->memory, bytes, at->states[kind]);
    own->pipeline->optimizer_bytes -= bytes;
}

void sl_optimizer_destroy(sl_optimizer *optimizer)
{
    if (!optimizer)
        return;
    for (int i = 0; i < optimizer->count; i++) {
        for (int k = 0; k < 2; k++)
            give_back(optimizer, &optimizer->items[i], k);
    }
    sl__arena_clear(&optimizer->arena);
    free(optimizer);
}

/* ---------------------------------------------------------------- steps -- */

/* The name of a parameter, as ranks tell each other. */
typedef struct culprit {
    char name[120];
} culprit;

/* The norm of the whole model's gradient: ranks add up what they have. Notes the
 * first gradient that is not finite. */
static sl_status find_norm(sl_optimizer *own, const sl_group *group,
                           double *out, culprit *out_culprit)
{
    sl_pipeline *pipeline = own->pipeline;
    double sum = 0;
    out_culprit->name[0] = '\0';
    for (int i = 0; i < own->count; i++) {
        double squares;
        const item *at = &own->items[i];
        if (!at->first)
            continue;
        sl_status status =
            sl_memory_square_sum(at->memory, &at->gradient, &squares);
        if (status)
            return status;
        if (!isfinite(squares) && !out_culprit->name[0])
            snprintf(out_culprit->name, sizeof out_culprit->name, "%s",
                     at->name);
        sum += squares;
    }
    sl_status status =
        sl_comm_allreduce(pipeline->comm, group, SL__TAG_END, SL_NUMBER_F64,
                          &sum, 1, pipeline->options.timeout_s);
    *out = sqrt(sum);
    return status;
}

/* All ranks know that the norm is not finite; some know why. */
static sl_status name_culprit(sl_optimizer *own, const sl_group *group,
                              const culprit *known)
{
    sl_pipeline *pipeline = own->pipeline;
    culprit *all;
    size_t count = (size_t)group->count, at = 0;
    sl_status status = sl__alloc(count, sizeof *all, &all);
    if (status)
        return status;
    all[pipeline->rank] = *known;
    status = sl_comm_allgather(pipeline->comm, group, SL__TAG_END, sizeof *all,
                               all, count, pipeline->options.timeout_s);
    while (!status && at + 1 < count && !all[at].name[0])
        at++;
    if (!status)
        status = sl_fail(SL_EFAIL,
                         "the gradient of step %lld is not finite, first that "
                         "of '%s'",
                         (long long)own->steps + 1, all[at].name);
    free(all);
    return status;
}

sl_status sl_optimizer_step(sl_optimizer *own, double rate, double *out_norm)
{
    if (!own)
        return sl_fail(SL_EINVAL, "%s: optimizer is NULL", __func__);
    const sl_optimizer_options *options = &own->options;
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group group = {ranks, own->pipeline->ranks};
    double norm = 0;
    culprit known;
    for (int r = 0; r < group.count; r++)
        ranks[r] = sl__comm_rank(own->pipeline, r);
    sl_status status = find_norm(own, &group, &norm, &known);
    if (!status && out_norm)
        *out_norm = norm;
    if (!status && !isfinite(norm))
        status = name_culprit(own, &group, &known);
    sl_update how = {.kind = options->kind,
                     .rate = rate,
                     .scale = 1,
                     .beta1 = options->beta1,
                     .beta2 = options->beta2,
                     .epsilon = options->epsilon,
                     .momentum = options->momentum,
                     .step = own->steps + 1};
    /* As PyTorch has it, who adds a millionth. */
    if (options->clip > 0 && options->clip / (norm + 1e-6) < 1)
        how.scale = options->clip / (norm + 1e-6);
    for (int i = 0; i < own->count && !status; i++) {
        item *at = &own->items[i];
        how.decay = at->decays ? options->decay : 0;
        status = sl_memory_update(at->memory, &at->gradient, &how,
                                  at->states[0], at->states[1]);
    }
    if (!status)
        own->steps++;
    return status;
}

int64_t sl_optimizer_steps(const sl_optimizer *optimizer)
{
    return optimizer ? optimizer->steps : 0;
}

void sl_optimizer_set_steps(sl_optimizer *optimizer, int64_t steps)
{
    if (!optimizer)
        return;
    optimizer->steps = steps;
}

int sl_optimizer_state_count(const sl_optimizer *optimizer)
{
    return optimizer ? optimizer->count * optimizer->kinds : 0;
}

const sl_optimizer_state *sl_optimizer_state_at(const sl_optimizer *optimizer,
                                                int index)
{
    return index >= 0 && index < sl_optimizer_state_count(optimizer)
               ? &optimizer->states[index]
               : NULL;
}

/* ---------------------------------------------------------------- rates -- */

double sl_rate_at(const sl_rate *rate, int64_t step)
{
    if (!rate || step < 1)
        return 0;
    if (step <= rate->warmup)
        return rate->rate * (double)step / (double)rate->warmup;
    double length = (double)rate->steps - (double)rate->warmup;
    if (rate->kind == SL_RATE_CONSTANT || length <= 0)
        return rate->rate;
    double way = ((double)step - (double)rate->warmup) / length;
    way = way < 1 ? way : 1;
    double left = rate->kind == SL_RATE_LINEAR
                      ? 1 - way
                      : (1 + cos(3.14159265358979323846 * way)) / 2;
    return rate->rate * (rate->last + (1 - rate->last) * left);
}

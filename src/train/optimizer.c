/* SPDX-License-Identifier: MIT
 *
 * Optimizers over the stages of a rank. The only communication in a step is an
 * all-reduce for the norm of the gradient. Tied parameters need none: all their
 * stages have the same gradient, and update them alike. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "comm/comm.h"
#include "pipeline/pipeline.h"
#include "tensor/program.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A parameter of this rank. */
typedef struct item {
    sl_memory *memory;
    sl_port gradient;
    const char *name; /* in a checkpoint */
    bool first;       /* the copy that counts in the norm */
    bool decays;
    void *states[2];
} item;

struct sl_optimizer {
    sl__arena arena;
    sl_pipeline *pipeline;
    sl__pipeline_info at; /* this rank's position in the pipeline */
    sl_optimizer_options options;
    item *items;
    int count;
    int kinds; /* how many states each parameter has */
    int64_t steps;
    sl__optimizer_state *states;
    /* In device memory: the update block, and by parameter the sum of squares
     * of its gradient. */
    char *control;
    sl_memory *control_memory; /* whose bytes include `control` */
};

static const char *const kind_names[2][2] = {{"exp_avg", "exp_avg_sq"},
                                             {"momentum_buffer", NULL}};

/* ----------------------------------------------------------------- life -- */

static sl_status add_state(sl_optimizer *own, item *of, int kind)
{
    int64_t bytes = sl__aligned(of->gradient.bytes);
    SL__TRY(sl__memory_allocate(of->memory, bytes, &of->states[kind]));
    sl__pipeline_add_optimizer_bytes(own->pipeline, bytes);
    own->states[own->kinds * (of - own->items) + kind] = (sl__optimizer_state){
        .parameter = of->name,
        .kind = kind_names[own->options.kind == SL_UPDATE_SGD][kind],
        .port = of->gradient,
        .first = of->first,
        .stream = own->at.stream,
        .data = of->states[kind]};
    return SL_OK;
}

static sl_status count_item(void *count, const sl__parameter *gradient)
{
    ++*(size_t *)count;
    if (sl__is_callbacks(gradient->program_stage))
        return sl_fail(SL_EINVAL,
                       "stage %d is callbacks, whose parameters an "
                       "optimizer does not reach",
                       gradient->stage);
    return SL_OK;
}

static sl_status add_item(void *optimizer, const sl__parameter *gradient)
{
    sl_optimizer *own = optimizer;
    const sl_model *model = sl_pipeline_model(own->pipeline);
    const sl_port *port = &gradient->port;
    item *new = &own->items[own->count++];
    bool first;
    sl__find_tie(model, gradient->stage, port->name, &first);
    *new = (item){.memory = gradient->memory,
                  .gradient = *port,
                  .name = sl__tied_name(model, gradient->stage, port->name),
                  .first = first,
                  .decays = port->dims > 1 || own->options.decay_all};
    for (int k = 0; k < own->kinds; k++)
        SL__TRY(add_state(own, new, k));
    return SL_OK;
}

static int state_kinds(const sl_optimizer_options *options)
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

/* An update block, and one cache line for the sum of all squares and for that
 * of each parameter: a device may write them concurrently. */
static int64_t control_bytes(int parameters)
{
    return SL__ALIGNMENT * (2 + (int64_t)parameters);
}

sl_status sl__optimizer_plan(const sl_pipeline *pipeline,
                             const sl_optimizer_options *options, int64_t rows,
                             int64_t *out_bytes)
{
    int64_t states = 0;
    int parameters = 0;
    const sl__pipeline_info at = sl__pipeline_describe(pipeline);
    for (int s = 0; s < at.own_count; s++) {
        const sl_stage *stage;
        SL__TRY(sl_programs_stage(at.programs, rows, at.own_stages[s], &stage));
        int ports = sl_stage_port_count(stage, SL_PORT_PARAMETER_GRADIENT);
        for (int i = 0; i < ports; i++) {
            sl_port port;
            SL__TRY(
                sl_stage_port_at(stage, SL_PORT_PARAMETER_GRADIENT, i, &port));
            states += state_kinds(options) * sl__aligned(port.bytes);
        }
        parameters += ports;
    }
    *out_bytes = states + (parameters ? control_bytes(parameters) : 0);
    return SL_OK;
}

static double *squares_of(const sl_optimizer *own, int index)
{
    return (double *)(void *)(own->control + SL__ALIGNMENT * (2 + index));
}

static sl_status fill(sl_optimizer *own)
{
    const sl_port_kind kind = SL_PORT_PARAMETER_GRADIENT;
    size_t count = 0;
    void *control;
    SL__TRY(sl__each_parameter(own->pipeline, kind, count_item, &count));
    SL__TRY(
        sl__arena_take(&own->arena, count, sizeof *own->items, &own->items));
    SL__TRY(sl__arena_take(&own->arena, 2 * count, sizeof *own->states,
                           &own->states));
    SL__TRY(sl__each_parameter(own->pipeline, kind, add_item, own));
    assert(own->count == (int)count);
    if (count == 0)
        return SL_OK;
    int64_t bytes = control_bytes((int)count);
    SL__TRY(sl__memory_allocate(own->items[0].memory, bytes, &control));
    own->control_memory = own->items[0].memory;
    own->control = control;
    sl__pipeline_add_optimizer_bytes(own->pipeline, bytes);
    return SL_OK;
}

sl_status sl_optimizer_create(sl_pipeline *pipeline,
                              const sl_optimizer_options *options,
                              sl_optimizer **out)
{
    SL__NEED(pipeline, options, out);
    sl_optimizer *own;
    SL__TRY(check_options(options));
    if (sl__pipeline_describe(pipeline).shards)
        return sl_fail(SL_EINVAL, "an optimizer does not support sharded "
                                  "parameters: leave UNSHARD out");
    SL__TRY(sl__alloc(1, sizeof *own, &own));
    own->pipeline = pipeline;
    own->at = sl__pipeline_describe(pipeline);
    own->options = *options;
    own->kinds = state_kinds(options);
    sl_status status = fill(own);
    if (status)
        sl_optimizer_destroy(own);
    else
        *out = own;
    return status;
}

static void give_back(sl_optimizer *own, sl_memory *memory, int64_t bytes,
                      void *data)
{
    if (!data)
        return;
    sl__memory_free(memory, bytes, data);
    sl__pipeline_add_optimizer_bytes(own->pipeline, -bytes);
}

void sl_optimizer_destroy(sl_optimizer *optimizer)
{
    if (!optimizer)
        return;
    for (int i = 0; i < optimizer->count; i++) {
        const item *at = &optimizer->items[i];
        for (int k = 0; k < 2; k++)
            give_back(optimizer, at->memory, sl__aligned(at->gradient.bytes),
                      at->states[k]);
    }
    give_back(optimizer, optimizer->control_memory,
              control_bytes(optimizer->count), optimizer->control);
    sl__arena_clear(&optimizer->arena);
    free(optimizer);
}

/* ---------------------------------------------------------------- steps -- */

/* The name of a parameter, as ranks exchange it. */
typedef struct culprit {
    char name[120];
} culprit;

/* Sums the squares of each gradient of this rank, and of all of them. */
static sl_status sum_squares(const sl_optimizer *own)
{
    sl__stream *stream = own->at.stream;
    double *all = squares_of(own, -1);
    SL__TRY(sl__device_clear(stream, all, sizeof *all));
    for (int i = 0; i < own->count; i++) {
        const item *at = &own->items[i];
        if (!at->first)
            continue;
        SL__TRY(sl__memory_square_sum(at->memory, &at->gradient,
                                      squares_of(own, i)));
        SL__TRY(sl__device_add(stream, SL_F64, all, squares_of(own, i), 1));
    }
    return SL_OK;
}

/* Finds the first gradient of this rank that is not finite. */
static sl_status find_culprit(const sl_optimizer *own, culprit *out)
{
    out->name[0] = '\0';
    for (int i = 0; i < own->count && !out->name[0]; i++) {
        double squares = 0;
        if (own->items[i].first)
            SL__TRY(sl__device_read(own->at.stream, &squares,
                                    squares_of(own, i), sizeof squares));
        if (!isfinite(squares))
            snprintf(out->name, sizeof out->name, "%s", own->items[i].name);
    }
    return SL_OK;
}

/* Fails with the name of a gradient that is not finite. All ranks know that the
 * norm is not, but only some have such a gradient. */
static sl_status name_culprit(sl_optimizer *own, const sl_group *group)
{
    culprit *all;
    size_t count = (size_t)group->count, at = 0;
    sl_status status;
    SL__TRY(sl__alloc(count, sizeof *all, &all));
    SL__TRY_OR(free_all, find_culprit(own, &all[own->at.rank]));
    SL__TRY_OR(free_all,
               sl_comm_allgather(own->at.comm, group, SL__TAG_END, sizeof *all,
                                 all, count, own->at.timeout_s));
    while (at + 1 < count && !all[at].name[0])
        at++;
    status = sl_fail(SL_EFAIL,
                     "the gradient of step %lld is not finite, first that of "
                     "'%s'",
                     (long long)own->steps + 1, all[at].name);
free_all:
    free(all);
    return status;
}

/* Enqueues a step: the norm of the whole model's gradient, all-reduced over the
 * ranks; clipping; and the update of every parameter. A rank without parameters
 * takes part in the all-reduce only. */
static sl_status enqueue_step(sl_optimizer *own, const sl_group *group,
                              double rate, sl__update_block *block)
{
    const sl_optimizer_options *options = &own->options;
    sl__stream *stream = own->at.stream;
    char *there = own->control;
    if (!own->control)
        return sl_comm_allreduce(own->at.comm, group, SL__TAG_END, SL_F64,
                                 &block->squares, 1, own->at.timeout_s);
    sl__update_block *device_block = (sl__update_block *)(void *)there;
    double *squares =
        (double *)(void *)(there + offsetof(sl__update_block, squares));
    *block = (sl__update_block){.rate = rate, .step = own->steps + 1};
    SL__TRY(sl__device_write(stream, there, block, sizeof *block));
    SL__TRY(sum_squares(own));
    SL__TRY(sl__comm_allreduce(own->at.comm, stream, group, SL__TAG_END, SL_F64,
                               squares_of(own, -1), 1, own->at.timeout_s));
    SL__TRY(
        sl__device_copy(stream, squares, squares_of(own, -1), sizeof *squares));
    SL__TRY(own->at.backend->kernels.clip(stream, device_block, options->clip));
    for (int i = 0; i < own->count; i++) {
        const item *at = &own->items[i];
        const sl__update how = {.kind = options->kind,
                                .decay = at->decays ? options->decay : 0,
                                .beta1 = options->beta1,
                                .beta2 = options->beta2,
                                .epsilon = options->epsilon,
                                .momentum = options->momentum};
        size_t count =
            (size_t)at->gradient.bytes / sl_dtype_bytes(at->gradient.dtype);
        SL__TRY(sl__memory_update(at->memory, &at->gradient, 0, count, &how,
                                  device_block, (void **)at->states));
    }
    SL__TRY(own->at.backend->device.finish(stream));
    return sl__device_read(stream, block, there, sizeof *block);
}

sl_status sl_optimizer_step(sl_optimizer *own, double rate, double *out_norm)
{
    if (!own)
        return sl_fail(SL_EINVAL, "%s: optimizer is NULL", __func__);
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group group = sl__pipeline_group(own->pipeline, ranks);
    sl__update_block block = {0};
    SL__TRY(enqueue_step(own, &group, rate, &block));
    if (out_norm)
        *out_norm = sqrt(block.squares);
    if (!isfinite(block.squares))
        return name_culprit(own, &group);
    own->steps++;
    return SL_OK;
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

int sl__optimizer_state_count(const sl_optimizer *optimizer)
{
    return optimizer ? optimizer->count * optimizer->kinds : 0;
}

const sl__optimizer_state *sl__optimizer_state_at(const sl_optimizer *optimizer,
                                                  int index)
{
    assert(index >= 0 && index < sl__optimizer_state_count(optimizer));
    return &optimizer->states[index];
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

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
    void *states[2];
} item;

struct sl_optimizer {
    sl__arena arena;
    sl_pipeline *pipeline;
    sl__pipeline_info at; /* this rank's position in the pipeline */
    sl_optimizer_options options;
    item *items;
    /* By item: how it is updated, what it lies in, and where the sum of squares
     * of its gradient goes: NULL for a copy that does not count. */
    sl__update *hows;
    sl__update_args *args;
    double **squares;
    int count;
    int kinds; /* how many states each parameter has */
    int64_t steps;
    sl__optimizer_state *states;
    /* In device memory: the update block, by parameter the sum of squares of
     * its gradient, and scratch for these sums. */
    char *control;
    int64_t control_bytes;
    sl_memory *control_memory; /* whose bytes include `control` */
    sl__recording recording;
};

static const char *const kind_names[2][2] = {{"exp_avg", "exp_avg_sq"},
                                             {"momentum_buffer", NULL}};

/* ----------------------------------------------------------------- life -- */

static sl_status add_state(sl_optimizer *own, item *of, int kind)
{
    int64_t bytes = sl__aligned(of->gradient.bytes);
    SL__TRY(sl__memory_allocate(of->memory, "optimizer state", bytes,
                                &of->states[kind]));
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
                  .first = first};
    for (int k = 0; k < own->kinds; k++)
        SL__TRY(add_state(own, new, k));
    const sl_optimizer_options *options = &own->options;
    size_t count = (size_t)port->bytes / sl_dtype_bytes(port->dtype);
    bool decays = port->dims > 1 || options->decay_all;
    own->hows[new - own->items] =
        (sl__update){.kind = options->kind,
                     .decay = decays ? options->decay : 0,
                     .beta1 = options->beta1,
                     .beta2 = options->beta2,
                     .epsilon = options->epsilon,
                     .momentum = options->momentum};
    own->args[new - own->items] =
        sl__memory_update_args(new->memory, port, 0, count, new->states);
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

/* Scratch in which the squares of a gradient are summed. */
static int64_t squares_bytes(const sl__pipeline_info *at, const sl_port *port)
{
    int64_t count = port->bytes / (int64_t)sl_dtype_bytes(port->dtype);
    return at->backend->kernels.squares_bytes
               ? at->backend->kernels.squares_bytes(count)
               : 0;
}

sl_status sl__optimizer_plan(const sl_pipeline *pipeline,
                             const sl_optimizer_options *options, int64_t rows,
                             int64_t *out_bytes)
{
    int64_t states = 0, squares = 0;
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
            squares += squares_bytes(&at, &port);
        }
        parameters += ports;
    }
    *out_bytes = states + control_bytes(parameters) + sl__aligned(squares);
    return SL_OK;
}

static double *squares_of(const sl_optimizer *own, int index)
{
    return (double *)(void *)(own->control + SL__ALIGNMENT * (2 + index));
}

/* The memory of a stage of this rank. */
static sl_memory *any_memory(const sl_optimizer *own)
{
    const sl_stage *stage;
    sl_memory *memory = NULL;
    (void)sl_pipeline_stage(own->pipeline, own->at.own_stages[0], &stage,
                            &memory);
    return memory;
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
    SL__TRY(SL__TAKE(&own->arena, count, &own->hows));
    SL__TRY(SL__TAKE(&own->arena, count, &own->args));
    SL__TRY(SL__TAKE(&own->arena, count, &own->squares));
    SL__TRY(sl__each_parameter(own->pipeline, kind, add_item, own));
    assert(own->count == (int)count);
    int64_t squares = 0;
    for (int i = 0; i < own->count; i++)
        squares += squares_bytes(&own->at, &own->items[i].gradient);
    int64_t bytes = control_bytes((int)count) + sl__aligned(squares);
    SL__TRY(sl__memory_allocate(any_memory(own), "optimizer state", bytes,
                                &control));
    own->control_memory = any_memory(own);
    own->control = control;
    own->control_bytes = bytes;
    for (int i = 0; i < own->count; i++)
        own->squares[i] = own->items[i].first ? squares_of(own, i) : NULL;
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
              optimizer->control_bytes, optimizer->control);
    sl__forget_recording(optimizer->at.backend, &optimizer->recording);
    sl__arena_clear(&optimizer->arena);
    free(optimizer);
}

/* ---------------------------------------------------------------- steps -- */

/* The name of a parameter, as ranks exchange it. */
typedef struct culprit {
    char name[120];
} culprit;

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
 * ranks; clipping; and the update of every parameter. What changes from step to
 * step is in the block. */
static sl_status enqueue(void *context)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_optimizer *own = context;
    const sl_group group = sl__pipeline_group(own->pipeline, ranks);
    const sl__backend *backend = own->at.backend;
    sl__stream *stream = own->at.stream;
    double *all = squares_of(own, -1);
    sl__update_block *block = (sl__update_block *)(void *)own->control;
    char *squares = own->control + offsetof(sl__update_block, squares);
    SL__TRY(backend->kernels.squares(stream, own->args, own->squares,
                                     own->count, all,
                                     own->control + control_bytes(own->count)));
    SL__TRY(sl__comm_allreduce(own->at.comm, stream, &group, SL__TAG_END,
                               SL_F64, all, 1, own->at.timeout_s));
    SL__TRY(sl__device_copy(stream, squares, all, sizeof *all));
    SL__TRY(backend->kernels.clip(stream, block, own->options.clip));
    SL__TRY(backend->device.begin(stream));
    sl_status status = backend->kernels.update(stream, own->hows, block,
                                               own->args, own->count);
    SL__TRY(backend->device.end(stream));
    return status;
}

static sl_status run_step(sl_optimizer *own, double rate,
                          sl__update_block *block)
{
    sl__stream *stream = own->at.stream;
    *block = (sl__update_block){.rate = rate, .step = own->steps + 1};
    SL__TRY(sl__device_write(stream, own->control, block, sizeof *block));
    SL__TRY(sl__run_recorded(&own->at, &own->recording, enqueue, own));
    for (int i = 0; i < own->count; i++)
        sl__memory_mark_updated(own->items[i].memory);
    return sl__device_read(stream, block, own->control, sizeof *block);
}

sl_status sl_optimizer_step(sl_optimizer *own, double rate, double *out_norm)
{
    if (!own)
        return sl_fail(SL_EINVAL, "%s: optimizer is NULL", __func__);
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group group = sl__pipeline_group(own->pipeline, ranks);
    sl__update_block block;
    SL__TRY(run_step(own, rate, &block));
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

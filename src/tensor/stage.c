/* SPDX-License-Identifier: MIT
 *
 * Compiling a graph into a stage: a straight list of passes over a copy of it.
 * Running is in run.c. */
#include "tensor/program.h"

#include "base/arguments.h"
#include "base/cores.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------- messages -- */

/* Whether a tensor can be computed directly into the memory of its message: it
 * is the whole of a result that is not in another message yet. */
static bool can_be_message(const sl_tensor *tensor, const bool *taken)
{
    const sl_tensor *base = tensor->base;
    return base->leaf == SL__RESULT && !taken[base->id] &&
           sl__is_dense(tensor) && sl__count(tensor) == sl__count(base);
}

static sl_tensor *as_message(sl_tensor *tensor, bool *taken)
{
    if (can_be_message(tensor, taken)) {
        taken[tensor->base->id] = true;
        return tensor;
    }
    /* The copy is a new tensor, beyond the end of `taken`. */
    return sl__emit_like(tensor->graph, SL__COPY, (sl__attributes){0}, 1,
                         &tensor, tensor);
}

static sl_status bind_outputs(sl_graph *graph)
{
    bool *taken;
    SL__TRY(SL__TAKE(&graph->arena, graph->tensor_count, &taken));
    for (size_t i = 0; i < graph->outputs.count; i++) {
        sl__named *output = &graph->outputs.data[i];
        if (output->gradient_only)
            continue;
        bool is_loss = output->tensor == graph->loss;
        output->tensor = as_message(output->tensor, taken);
        if (is_loss)
            graph->loss = output->tensor;
    }
    return sl_graph_status(graph);
}

static sl_status bind_input_gradients(sl_graph *graph, sl__diff *diff)
{
    bool *taken;
    SL__TRY(SL__TAKE(&graph->arena, graph->tensor_count, &taken));
    for (size_t i = 0; i < graph->inputs.count; i++) {
        if (diff->inputs[i])
            diff->inputs[i] = as_message(diff->inputs[i], taken);
    }
    return sl_graph_status(graph);
}

const sl_tensor *sl__message_tensor(const sl_stage *stage, sl_port_kind kind,
                                    int index)
{
    const sl_graph *graph = stage->graph;
    const sl__diff *diff = &stage->diff;
    switch (kind) {
    case SL_PORT_INPUT: return graph->inputs.data[index].tensor;
    case SL_PORT_INPUT_GRADIENT:
        return diff->inputs ? diff->inputs[index] : NULL;
    case SL_PORT_OUTPUT:
        return graph->outputs.data[index].gradient_only
                   ? NULL
                   : graph->outputs.data[index].tensor;
    case SL_PORT_OUTPUT_GRADIENT:
        return diff->outputs ? diff->outputs[index] : NULL;
    default: return NULL;
    }
}

static void list_messages_of(sl_stage *stage, sl_port_kind kind, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const sl_tensor *tensor = sl__message_tensor(stage, kind, (int)i);
        if (tensor)
            stage->messages[stage->message_count++] =
                (sl__message){kind, (int)i, sl__bytes(tensor), 0};
    }
}

sl_status sl__list_messages(sl_stage *stage)
{
    size_t inputs = stage->graph->inputs.count;
    size_t outputs = stage->graph->outputs.count;
    SL__TRY(SL__TAKE(&stage->graph->arena, 2 * (inputs + outputs),
                     &stage->messages));
    list_messages_of(stage, SL_PORT_INPUT, inputs);
    list_messages_of(stage, SL_PORT_OUTPUT, outputs);
    list_messages_of(stage, SL_PORT_INPUT_GRADIENT, inputs);
    list_messages_of(stage, SL_PORT_OUTPUT_GRADIENT, outputs);
    return SL_OK;
}

/* -------------------------------------------------------------- kernels -- */

static void describe(sl__arg *arg, const sl_tensor *tensor)
{
    arg->pool = SL__POOL_NONE;
    if (!tensor)
        return;
    arg->pool = SL__POOL_WORKSPACE; /* Preliminary: the plan decides where. */
    arg->dtype = tensor->dtype;
    arg->dims = tensor->dims;
    memcpy(arg->shape, tensor->shape, sizeof arg->shape);
    memcpy(arg->stride, tensor->stride, sizeof arg->stride);
}

/* Builds the kernel of a call, with geometry but without addresses, and lets
 * the backend prepare it. */
static sl_status make_kernel(sl_stage *stage, sl__kernel_call *call,
                             bool groups, sl__kernel *kernel)
{
    const sl__node *node = call->node;
    const sl_tensor *result = node->results[0];
    int results = sl__ops[node->op].results;
    int count = node->operand_count + results + 1; /* scratch */
    sl__arg *args;
    SL__TRY(SL__TAKE(&stage->graph->arena, count, &args));
    for (int i = 0; i < node->operand_count; i++)
        describe(&args[i], node->operands[i]);
    for (int i = 0; i < results; i++)
        describe(&args[node->operand_count + i], node->results[i]);
    *kernel = (sl__kernel){
        .number = ++stage->kernel_count,
        .args = args,
        .arg_count = count - 1,
        .operand_count = node->operand_count,
        .node = node,
        .activation = call->activation ? call->activation->op : SL__OP_COUNT,
        .adds = node->adds,
        .is_alone = result && stage->writers[result->base->id] == 1,
        .group_max = groups ? stage->options.group : 1,
        .packs = {-1, -1, -1},
    };
    call->kernel = kernel;
    SL__TRY(
        stage->backend->kernels.prepare(stage->device, &stage->packs, kernel));
    if (kernel->scratch_bytes) {
        args[kernel->arg_count].dtype = SL_BOOL;
        kernel->arg_count++;
    }
    if (kernel->scratch_bytes > stage->plan.scratch_bytes)
        stage->plan.scratch_bytes = kernel->scratch_bytes;
    if (kernel->arg_count > stage->arg_count_max)
        stage->arg_count_max = kernel->arg_count;
    return SL_OK;
}

static sl_status make_kernels(sl_stage *stage)
{
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        sl__kernel_calls *calls = &stage->programs[p];
        sl__kernel *kernels;
        SL__TRY(SL__TAKE(&stage->graph->arena, calls->count, &kernels));
        for (size_t i = 0; i < calls->count; i++)
            SL__TRY(make_kernel(stage, &calls->data[i], p == SL_PROGRAM_W,
                                &kernels[i]));
    }
    return SL_OK;
}

static void locate(const sl_stage *stage, int p, const sl_tensor *tensor,
                   sl__arg *arg)
{
    if (!tensor)
        return;
    const sl__place *place = &stage->places[p][tensor->base->id];
    assert(place->pool != SL__POOL_NONE);
    arg->pool = place->pool;
    arg->offset =
        place->offset + tensor->offset * (int64_t)sl_dtype_bytes(tensor->dtype);
}

/* Whether a kernel of W may run for several microbatches after everything else:
 * it reads nothing that W computes, and adds to memory that no other kernel
 * adds to. */
static bool may_group(const sl__kernel *kernel)
{
    bool may = kernel->adds && kernel->is_alone;
    for (int i = 0; i < kernel->operand_count; i++)
        may = may && kernel->args[i].pool != SL__POOL_WORKSPACE;
    return may;
}

/* Writes the plan's pools and offsets into the args. */
static void locate_call(sl_stage *stage, int p, const sl__kernel_call *call)
{
    const sl__node *node = call->node;
    sl__kernel *kernel = call->kernel;
    sl__arg *args = (sl__arg *)kernel->args;
    int results = sl__ops[node->op].results;
    for (int i = 0; i < node->operand_count; i++)
        locate(stage, p, node->operands[i], &args[i]);
    for (int i = 0; i < results; i++)
        locate(stage, p, sl__last_node(call)->results[i],
               &args[node->operand_count + i]);
    if (kernel->scratch_bytes) {
        args[kernel->arg_count - 1].pool = SL__POOL_WORKSPACE;
        args[kernel->arg_count - 1].offset = call->scratch_offset;
    }
    for (int i = 0; i < SL__PACKED_MAX; i++) {
        if (kernel->packs[i] < 0)
            continue;
        args[i].pool = SL__POOL_PACKED;
        args[i].offset = stage->packs.data[kernel->packs[i]]->args[1].offset +
                         kernel->pack_offsets[i];
    }
    kernel->groups = kernel->groups && may_group(kernel);
}

static void locate_packs(sl_stage *stage)
{
    for (size_t i = 0; i < stage->packs.count; i++) {
        sl__pack *pack = stage->packs.data[i];
        locate(stage, SL_PROGRAM_F, pack->tensor, &pack->args[0]);
    }
}

/* Puts the kernels of each program in the order they run, and locates them. */
static sl_status lay_out(sl_stage *stage)
{
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        sl__kernel_calls *calls = &stage->programs[p];
        SL__TRY(
            SL__TAKE(&stage->graph->arena, calls->count, &stage->kernels[p]));
        for (size_t i = 0; i < calls->count; i++) {
            stage->kernels[p][i] = *calls->data[i].kernel;
            calls->data[i].kernel = &stage->kernels[p][i];
            locate_call(stage, p, &calls->data[i]);
        }
    }
    locate_packs(stage);
    return SL_OK;
}

/* ------------------------------------------------------------- backends -- */

/* The default comes first. */
static const sl__backend *const backends[] = {
    &sl__backend_cpu, &sl__backend_cuda, &sl__backend_ref};
enum { BACKEND_COUNT = sizeof backends / sizeof *backends };
static const sl__backend *replaced;
static int replaced_count;

void sl__backend_replace(const sl__backend *others, int count)
{
    replaced = others;
    replaced_count = count;
}

sl_status sl__backend_find(const char *name, const sl__backend **out)
{
    char quoted[SL__QUOTED_MAX], known[80] = "";
    if (!name)
        name = backends[0]->name;
    const sl__backend *found = NULL;
    for (int i = 0; i < BACKEND_COUNT; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 backends[i]->name);
        if (strcmp(backends[i]->name, name) == 0)
            found = backends[i];
    }
    for (int i = 0; i < replaced_count; i++) {
        if (strcmp(replaced[i].name, name) == 0)
            found = &replaced[i];
    }
    *out = found;
    if (found)
        return SL_OK;
    return sl_fail(SL_ENOTFOUND, "unknown backend '%s'; known ones: %s",
                   sl__quoted(name, strlen(name), quoted), known);
}

sl_status sl_backend_describe(const char *backend, int device,
                              sl_dtype precision, char *out, size_t size)
{
    SL__NEED(out);
    const sl__backend *found;
    SL__TRY(sl__backend_find(backend, &found));
    if (precision != SL_F32 && precision != SL_BF16)
        return sl__refuse_precision(precision);
    found->kernels.describe(device, precision, out, size);
    return SL_OK;
}

sl_status sl_devices(const char *backend, sl_device *out, int most,
                     int *out_count)
{
    SL__NEED(out_count);
    const sl__backend *found;
    if (most > 0)
        SL__NEED(out);
    SL__TRY(sl__backend_find(backend, &found));
    if (found->list)
        return found->list(out, most, out_count);
    *out_count = 1;
    if (most > 0) {
        *out = (sl_device){.processors = sl__cores()};
        snprintf(out->name, sizeof out->name, "%s", found->name);
    }
    return SL_OK;
}

/* ------------------------------------------------------------ compiling -- */

static sl_status open_device(sl_stage *stage)
{
    int threads = stage->options.threads;
    SL__TRY(sl__backend_find(stage->options.backend, &stage->backend));
    /* The backend's name outlives the caller's options. */
    stage->options.backend = stage->backend->name;
    if (threads < 1 || threads > stage->backend->device.threads_max)
        return sl_fail(SL_EINVAL, "%d threads, expected 1 to %d on %s", threads,
                       stage->backend->device.threads_max,
                       stage->backend->name);
    return stage->backend->device.open(threads, stage->options.device,
                                       stage->options.deterministic,
                                       &stage->device);
}

static sl_status check_options(const sl_stage_options *options)
{
    if (options->backward < SL_BACKWARD_ANY ||
        options->backward > SL_BACKWARD_NONE)
        return sl_fail(SL_EINVAL, "unknown kind of backward %d",
                       (int)options->backward);
    if (options->recompute && options->backward == SL_BACKWARD_NONE)
        return sl_fail(SL_EINVAL,
                       "recompute asks for a backward, and none is wanted");
    return SL_OK;
}

static sl_status check_graph(const sl_graph *graph)
{
    SL__TRY(sl_graph_status(graph));
    if (graph->outputs.count == 0)
        return sl_fail(SL_EINVAL, "the graph has no output and no loss");
    return sl__check_left(graph);
}

static sl_status run_passes(sl_stage *stage, const sl_graph *graph)
{
    bool backward = stage->options.backward != SL_BACKWARD_NONE;
    SL__TRY(sl__graph_clone(graph, NULL, &stage->graph));
    SL__TRY(bind_outputs(stage->graph));
    if (backward) {
        SL__TRY(sl__differentiate(stage->graph, &stage->diff));
        SL__TRY(bind_input_gradients(stage->graph, &stage->diff));
    }
    SL__TRY(sl__merge_sums_into_norms(stage->graph));
    SL__TRY(sl__place_concat_parts(stage));
    SL__TRY(sl__split(stage));
    SL__TRY(sl__compute_touches(stage));
    for (int p = 0; p < SL_PROGRAM_COUNT; p++)
        sl__fuse_activations(stage, (sl_program)p);
    SL__TRY(sl__compute_touches(stage));
    SL__TRY(sl__list_messages(stage));
    SL__TRY(make_kernels(stage));
    SL__TRY(sl__plan_memory(stage));
    SL__TRY(lay_out(stage));
    SL__TRY(sl__assign_lanes(stage));
    sl__note_uses(stage);
    return SL_OK;
}

sl_status sl_stage_compile(const sl_graph *graph,
                           const sl_stage_options *options, sl_stage **out)
{
    SL__NEED(graph, out);
    static const sl_stage_options defaults = SL_STAGE_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    sl_stage *stage;
    SL__TRY(check_options(options));
    SL__TRY(check_graph(graph));
    SL__TRY(sl__alloc(1, sizeof *stage, &stage));
    stage->options = *options;
    sl_status status = open_device(stage);
    if (!status)
        status = run_passes(stage, graph);
    if (status)
        sl_stage_destroy(stage);
    else
        *out = stage;
    return status;
}

void sl_stage_destroy(sl_stage *stage)
{
    if (!stage)
        return;
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        for (size_t i = 0; i < stage->programs[p].count; i++) {
            if (stage->programs[p].data[i].kernel)
                stage->backend->kernels.forget(
                    stage->programs[p].data[i].kernel);
        }
    }
    for (size_t i = 0; i < stage->packs.count; i++) {
        stage->backend->kernels.forget(&stage->packs.data[i]->kernel);
        free(stage->packs.data[i]);
    }
    free(stage->packs.data);
    if (stage->device)
        stage->backend->device.close(stage->device);
    sl_graph_destroy(stage->graph);
    free(stage);
}

/* -------------------------------------------------------------- reading -- */

const sl_plan *sl_stage_plan(const sl_stage *stage)
{
    return stage ? &stage->plan : NULL;
}

int64_t sl_plan_bytes(const sl_stage *stage, int slots)
{
    if (!stage || slots < 0)
        return 0;
    const sl_plan *plan = &stage->plan;
    int64_t once = plan->parameter_bytes + plan->gradient_bytes +
                   plan->packed_bytes + plan->workspace_bytes +
                   plan->control_bytes;
    int64_t bytes;
    if (__builtin_mul_overflow(plan->slab_bytes + plan->handed_bytes +
                                   plan->message_bytes + plan->control_bytes,
                               slots, &bytes) ||
        __builtin_add_overflow(bytes, once, &bytes))
        return INT64_MAX;
    return bytes;
}

double sl_stage_flops(const sl_stage *stage, sl_program program)
{
    double flops = 0;
    if (!stage || program < 0 || program >= SL_PROGRAM_COUNT)
        return 0;
    for (size_t i = 0; i < stage->programs[program].count; i++)
        flops += sl__product_flops(stage->programs[program].data[i].node);
    return flops;
}

/* SPDX-License-Identifier: MIT
 *
 * Stages whose programs are callbacks. Such a stage has a graph of leaves only,
 * so that ports and memory treat its names, shapes and messages like those of a
 * compiled stage; its programs call callbacks rather than kernels. */
#include "tensor/memory.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <string.h>

static bool has_backward(const sl_callbacks *calls)
{
    return calls->backward || calls->backward_input;
}

static sl_status check_callbacks(const sl_stage_description *given)
{
    const sl_callbacks *calls = &given->callbacks;
    if (!calls->forward)
        return sl_fail(SL_EINVAL, "a stage of callbacks needs a forward");
    if (!calls->backward_input != !calls->backward_weight)
        return sl_fail(SL_EINVAL,
                       "backward_input and backward_weight go together");
    if (given->parameter_count && (!calls->read || !calls->write))
        return sl_fail(SL_EINVAL,
                       "%d parameters, and no callbacks to read and "
                       "write them",
                       given->parameter_count);
    if (given->parameter_count && has_backward(calls) && !calls->zero_gradients)
        return sl_fail(SL_EINVAL,
                       "%d parameters with gradients, and no "
                       "callback to zero these",
                       given->parameter_count);
    if (given->output_count < 1)
        return sl_fail(SL_EINVAL, "a stage of callbacks needs an output");
    if (given->input_count < 0 || given->parameter_count < 0)
        return sl_fail(SL_EINVAL, "%d inputs and %d parameters",
                       given->input_count, given->parameter_count);
    if ((given->input_count && !given->inputs) || !given->outputs ||
        (given->parameter_count && !given->parameters))
        return sl_fail(SL_EINVAL, "a stage of callbacks counts inputs, outputs "
                                  "or parameters that are not there");
    return SL_OK;
}

/* An output: a leaf that forward writes. */
static void add_output(sl_graph *graph, const sl_value *value,
                       sl_gradient gradient)
{
    sl_tensor *tensor = sl__loose_leaf(graph, "output", value->name,
                                       value->dtype, value->dims, value->shape);
    if (!tensor)
        return;
    tensor->needs_gradient = gradient == SL_GRADIENT;
    if (strcmp(value->name, "loss") == 0)
        sl_loss(graph, tensor);
    else
        sl_output(graph, value->name, tensor, gradient);
}

/* Builds the graph. Without a backward, no gradient flows, whatever the values
 * say. */
static sl_status build(const sl_stage_description *given, sl_graph *graph)
{
    bool backward = has_backward(&given->callbacks);
    for (int i = 0; i < given->input_count; i++) {
        const sl_value *value = &given->inputs[i];
        sl_input(graph, value->name, value->dtype, value->dims, value->shape,
                 backward ? value->gradient : SL_NO_GRADIENT);
    }
    for (int i = 0; i < given->output_count; i++) {
        const sl_value *value = &given->outputs[i];
        add_output(graph, value, backward ? value->gradient : SL_NO_GRADIENT);
    }
    for (int i = 0; i < given->parameter_count; i++) {
        const sl_value *value = &given->parameters[i];
        sl_parameter(graph, value->name, value->dtype, value->dims,
                     value->shape);
    }
    return sl_graph_status(graph);
}

sl_status sl__describe(const sl_stage_description *given, sl_graph **out)
{
    sl_graph *graph;
    SL__TRY(check_callbacks(given));
    SL__TRY(sl_graph_create(&graph));
    sl_status status = build(given, graph);
    if (status)
        sl_graph_destroy(graph);
    else
        *out = graph;
    return status;
}

static void offer_programs(sl_stage *stage)
{
    bool split = stage->callbacks.backward_input;
    stage->programs[SL_PROGRAM_F].exists = true;
    stage->programs[SL_PROGRAM_I].exists = split;
    stage->programs[SL_PROGRAM_W].exists = split;
    stage->programs[SL_PROGRAM_B].exists = has_backward(&stage->callbacks);
}

/* Marks where gradients flow. A tensor stands for its own gradient here. */
static sl_status find_gradients(sl_stage *stage)
{
    sl_graph *graph = stage->graph;
    sl__diff *diff = &stage->diff;
    SL__TRY(SL__TAKE(&graph->arena, graph->inputs.count, &diff->inputs));
    SL__TRY(SL__TAKE(&graph->arena, graph->outputs.count, &diff->outputs));
    if (!stage->programs[SL_PROGRAM_B].exists)
        return SL_OK;
    for (size_t i = 0; i < graph->inputs.count; i++) {
        if (graph->inputs.data[i].gradient)
            diff->inputs[i] = graph->inputs.data[i].tensor;
    }
    for (size_t i = 0; i < graph->outputs.count; i++) {
        if (graph->outputs.data[i].gradient)
            diff->outputs[i] = graph->outputs.data[i].tensor;
    }
    return SL_OK;
}

/* Finds the message that each pointer of a call points to: inputs, outputs,
 * gradients of outputs, gradients of inputs; -1 if there is none. */
static sl_status find_messages(sl_stage *stage)
{
    const sl_graph *graph = stage->graph;
    size_t inputs = graph->inputs.count, outputs = graph->outputs.count;
    int *at;
    SL__TRY(SL__TAKE(&stage->graph->arena, 2 * (inputs + outputs), &at));
    stage->callback_messages = at;
    for (size_t i = 0; i < inputs; i++)
        *at++ = sl__find_message(stage, SL_PORT_INPUT, (int)i);
    for (size_t i = 0; i < outputs; i++)
        *at++ = sl__find_message(stage, SL_PORT_OUTPUT, (int)i);
    for (size_t i = 0; i < outputs; i++)
        *at++ = sl__find_message(stage, SL_PORT_OUTPUT_GRADIENT, (int)i);
    for (size_t i = 0; i < inputs; i++)
        *at++ = sl__find_message(stage, SL_PORT_INPUT_GRADIENT, (int)i);
    return SL_OK;
}

/* Plans workspace for summing the gradients of outputs that several stages
 * receive: an offset per output, or -1 if it has one gradient only. */
static sl_status plan_sums(sl_stage *stage)
{
    const sl__names *outputs = &stage->graph->outputs;
    int64_t *sums, bytes = 0;
    SL__TRY(SL__TAKE(&stage->graph->arena, outputs->count, &sums));
    for (size_t i = 0; i < outputs->count; i++)
        sums[i] = -1;
    for (size_t i = 0; i < outputs->count; i++) {
        size_t first = 0;
        while (outputs->data[first].tensor != outputs->data[i].tensor)
            first++;
        if (!outputs->data[i].gradient_only || sums[first] >= 0)
            continue;
        sums[first] = bytes;
        bytes += sl__aligned(sl__bytes(outputs->data[i].tensor));
    }
    stage->callback_sums = sums;
    stage->plan.workspace_bytes = bytes;
    return SL_OK;
}

static sl_status fill(sl_stage *stage, const sl_graph *graph,
                      const char *backend)
{
    SL__TRY(sl__backend_find(backend, &stage->backend));
    SL__TRY(stage->backend->device.open(1, SL_DEVICE_BY_RANK, false,
                                         &stage->device));
    SL__TRY(sl__graph_clone(graph, NULL, &stage->graph));
    offer_programs(stage);
    if (!stage->programs[SL_PROGRAM_B].exists)
        stage->options.backward = SL_BACKWARD_NONE;
    SL__TRY(find_gradients(stage));
    SL__TRY(sl__list_messages(stage));
    SL__TRY(find_messages(stage));
    SL__TRY(plan_sums(stage));
    sl__plan_messages(stage);
    /* What a callback reads is unknown, so assume everything. */
    for (int p = 0; p < SL_PROGRAM_COUNT; p++)
        stage->uses[p] = ~0u;
    return SL_OK;
}

sl_status sl__stage_from_callbacks(const sl_stage_description *given,
                                   const sl_graph *graph, const char *backend,
                                   sl_stage **out)
{
    sl_stage *stage;
    SL__TRY(sl__alloc(1, sizeof *stage, &stage));
    stage->options = (sl_stage_options)SL_STAGE_OPTIONS_INIT;
    stage->callbacks = given->callbacks;
    stage->callback_context = given->context;
    sl_status status = fill(stage, graph, backend);
    if (status)
        sl_stage_destroy(stage);
    else
        *out = stage;
    return status;
}

sl_status sl_stage_from_callbacks(const sl_stage_description *description,
                                  sl_stage **out)
{
    SL__NEED(description, out);
    sl_graph *graph;
    SL__TRY(sl__describe(description, &graph));
    sl_status status = sl__stage_from_callbacks(description, graph, NULL, out);
    sl_graph_destroy(graph);
    return status;
}

/* -------------------------------------------------------------- running -- */

/* Where several stages sent gradients of one output, points to their sum
 * instead; what was sent stays as it is. */
static sl_status sum_gradients(const sl_memory *memory, void **gradients)
{
    const sl_stage *stage = memory->stage;
    const sl__names *outputs = &stage->graph->outputs;
    for (size_t i = 0; i < outputs->count; i++) {
        if (stage->callback_sums[i] < 0)
            continue;
        const sl_tensor *tensor = outputs->data[i].tensor;
        void *sum = (char *)memory->workspace + stage->callback_sums[i];
        SL__TRY(sl__device_copy(memory->stream, sum, gradients[i],
                                (size_t)sl__bytes(tensor)));
        for (size_t k = i + 1; k < outputs->count; k++) {
            if (outputs->data[k].gradient_only &&
                outputs->data[k].tensor == tensor)
                SL__TRY(sl__device_add(memory->stream, tensor->dtype, sum,
                                       gradients[k], sl__count(tensor)));
        }
        gradients[i] = sum;
    }
    return SL_OK;
}

static sl_status call_program(const sl_stage *stage, sl_program program,
                              const sl_call *call)
{
    const sl_callbacks *calls = &stage->callbacks;
    void *context = stage->callback_context;
    if (program == SL_PROGRAM_F)
        return calls->forward(context, call);
    if (program == SL_PROGRAM_B && calls->backward)
        return calls->backward(context, call);
    if (program != SL_PROGRAM_W)
        SL__TRY(calls->backward_input(context, call));
    return program == SL_PROGRAM_I ? SL_OK
                                   : calls->backward_weight(context, call);
}

/* The message of the i-th pointer of a call; NULL where there is none. */
static const sl__message *message_of(const sl_stage *stage, size_t i)
{
    int found = stage->callback_messages[i];
    return found < 0 ? NULL : &stage->messages[found];
}

/* Copies messages from..to of a call between the device and host memory:
 * `staged` is each one's host address, `there` its device address. */
static sl_status stage_messages(const sl_memory *memory, bool in,
                                void *const *staged, void *const *there,
                                size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const sl__message *message = message_of(memory->stage, i);
        if (!message || !there[i])
            continue;
        size_t bytes = (size_t)message->bytes;
        if (in)
            SL__TRY(
                sl__device_read(memory->stream, staged[i], there[i], bytes));
        else
            SL__TRY(
                sl__device_write(memory->stream, there[i], staged[i], bytes));
    }
    return SL_OK;
}

static sl_call make_call(const sl_memory *memory, int slot, void **p)
{
    const sl_graph *graph = memory->stage->graph;
    size_t inputs = graph->inputs.count, outputs = graph->outputs.count;
    const sl__step_block *block = &memory->blocks[slot].block;
    /* Outputs that only receive a gradient follow those of the description. */
    return (sl_call){slot,
                     (const void *const *)p,
                     p + inputs,
                     (const void *const *)(p + inputs + outputs),
                     p + inputs + 2 * outputs,
                     block->seed,
                     block->loss_scale};
}

/* Calls callbacks on host copies of the messages. */
static sl_status call_staged(sl_memory *memory, sl_program program, int slot,
                             void *const *there, void **staged)
{
    const sl_stage *stage = memory->stage;
    const sl_graph *graph = stage->graph;
    size_t inputs = graph->inputs.count, outputs = graph->outputs.count;
    size_t all = 2 * (inputs + outputs);
    bool forward = program == SL_PROGRAM_F;
    char *at = memory->staging;
    for (size_t i = 0; i < all; i++) {
        const sl__message *message = message_of(stage, i);
        staged[i] = message && there[i] ? at : NULL;
        at += message ? sl__aligned(message->bytes) : 0;
    }
    const sl_call call = make_call(memory, slot, staged);
    SL__TRY(stage_messages(memory, true, staged, there, 0,
                           forward ? inputs : all - inputs));
    SL__TRY(call_program(stage, program, &call));
    return forward ? stage_messages(memory, false, staged, there, inputs,
                                    inputs + outputs)
                   : stage_messages(memory, false, staged, there, all - inputs,
                                    program == SL_PROGRAM_W ? 0 : all);
}

sl_status sl__run_callbacks(sl_memory *memory, sl_program program, int slot)
{
    const sl_stage *stage = memory->stage;
    const sl_graph *graph = stage->graph;
    size_t inputs = graph->inputs.count, outputs = graph->outputs.count;
    size_t all = 2 * (inputs + outputs);
    void **pointers = memory->pointers;
    for (size_t i = 0; i < all; i++) {
        int found = stage->callback_messages[i];
        pointers[i] =
            found < 0 ? NULL
                      : memory->slots[slot].bases[SL__POOL_MESSAGES + found];
    }
    if (program != SL_PROGRAM_F)
        SL__TRY(sum_gradients(memory, pointers + inputs + outputs));
    if (memory->staging)
        return call_staged(memory, program, slot, pointers, pointers + all);
    const sl_call call = make_call(memory, slot, pointers);
    return call_program(stage, program, &call);
}

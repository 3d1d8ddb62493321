/* SPDX-License-Identifier: MIT
 *
 * Stages whose compute is somebody else's. Such a stage has a graph of leaves
 * alone, so that ports and memory see names, shapes and messages as of any
 * other; where a compiled one walks its kernels, it calls. */
#include "tensor/program.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

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
    if (given->output_count < 1)
        return sl_fail(SL_EINVAL, "a stage of callbacks needs an output");
    return SL_OK;
}

/* An output: a leaf that forward writes. */
static void add_output(sl_graph *graph, const sl_value *value)
{
    /* An input is checked the same way. */
    sl_tensor *tensor = sl_input(graph, value->name, value->dtype, value->dims,
                                 value->shape, value->gradient);
    if (!tensor)
        return;
    tensor->leaf = SL__RESULT;
    if (strcmp(value->name, "loss") == 0)
        sl_loss(graph, tensor);
    else
        sl_output(graph, value->name, tensor, value->gradient);
}

/* Outputs come first: they were inputs for a moment. */
static sl_status build(const sl_stage_description *given, sl_graph *graph)
{
    for (int i = 0; i < given->output_count; i++)
        add_output(graph, &given->outputs[i]);
    sl__names_clear(&graph->inputs);
    for (int i = 0; i < given->input_count; i++) {
        const sl_value *value = &given->inputs[i];
        sl_input(graph, value->name, value->dtype, value->dims, value->shape,
                 value->gradient);
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
    sl_graph *graph = NULL;
    sl_status status = check_callbacks(given);
    if (!status)
        status = sl_graph_create(&graph);
    if (!status)
        status = build(given, graph);
    if (status)
        sl_graph_destroy(graph);
    else
        *out = graph;
    return status;
}

static void offer_programs(sl_stage *stage)
{
    const sl_callbacks *calls = &stage->callbacks;
    bool split = calls->backward_input;
    stage->programs[SL_PROGRAM_F].exists = true;
    stage->programs[SL_PROGRAM_I].exists = split;
    stage->programs[SL_PROGRAM_W].exists = split;
    stage->programs[SL_PROGRAM_B].exists = split || calls->backward;
}

/* Marks where gradients flow; the tensors stand for themselves. */
static sl_status find_gradients(sl_stage *stage)
{
    sl_graph *graph = stage->graph;
    sl__diff *diff = &stage->diff;
    sl_status status = sl__arena_take(&graph->arena, graph->inputs.count,
                                      sizeof *diff->inputs, &diff->inputs);
    if (!status)
        status = sl__arena_take(&graph->arena, graph->outputs.count,
                                sizeof *diff->outputs, &diff->outputs);
    if (status || !stage->programs[SL_PROGRAM_B].exists)
        return status;
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

sl_status sl__stage_from_callbacks(const sl_stage_description *given,
                                   const sl_graph *graph, sl_stage **out)
{
    sl_stage *stage;
    sl_status status = sl__alloc(1, sizeof *stage, &stage);
    if (status)
        return status;
    stage->options = (sl_stage_options)SL_STAGE_OPTIONS_INIT;
    stage->backend = &sl__backend_ref;
    stage->callbacks = given->callbacks;
    stage->callback_context = given->context;
    status = sl__graph_clone(graph, &stage->graph);
    if (!status) {
        offer_programs(stage);
        if (!stage->programs[SL_PROGRAM_B].exists)
            stage->options.backward = SL_BACKWARD_NONE;
        status = find_gradients(stage);
    }
    if (!status)
        status = sl__list_messages(stage);
    if (!status) {
        sl__plan_messages(stage);
        *out = stage;
    } else {
        sl_stage_destroy(stage);
    }
    return status;
}

sl_status sl_stage_from_callbacks(const sl_stage_description *given,
                                  sl_stage **out)
{
    sl_graph *graph;
    sl_status status = sl__describe(given, &graph);
    if (status)
        return status;
    status = sl__stage_from_callbacks(given, graph, out);
    sl_graph_destroy(graph);
    return status;
}

/* -------------------------------------------------------------- running -- */

/* The memory of a message in the slot at hand; NULL where there is none. */
static void *message(const sl_stage *stage, void *const *bases,
                     sl_port_kind kind, size_t index)
{
    int found = sl__find_message(stage, kind, (int)index);
    return found < 0 ? NULL : bases[SL__POOL_MESSAGES + found];
}

static void add_to(sl_dtype dtype, int64_t count, const void *from, void *to)
{
    for (int64_t i = 0; i < count && dtype == SL_F32; i++)
        ((float *)to)[i] += ((const float *)from)[i];
    for (int64_t i = 0; i < count && dtype == SL_F64; i++)
        ((double *)to)[i] += ((const double *)from)[i];
}

/* Adds the gradients of further consumers of an output to that of its first,
 * once per microbatch: before I or B. */
static void sum_gradients(const sl_stage *stage, void *const *bases)
{
    const sl__names *outputs = &stage->graph->outputs;
    for (size_t i = 0; i < outputs->count; i++) {
        const sl_tensor *tensor = outputs->data[i].tensor;
        if (!outputs->data[i].gradient_only)
            continue;
        size_t first = 0;
        while (outputs->data[first].tensor != tensor)
            first++;
        add_to(tensor->dtype, sl__count(tensor),
               message(stage, bases, SL_PORT_OUTPUT_GRADIENT, i),
               message(stage, bases, SL_PORT_OUTPUT_GRADIENT, first));
    }
}

sl_status sl__run_callbacks(const sl_stage *stage, sl_program program,
                            void *const *bases, void **pointers, int slot,
                            const sl__run *run)
{
    const sl_callbacks *calls = &stage->callbacks;
    const sl_graph *graph = stage->graph;
    size_t inputs = graph->inputs.count, outputs = graph->outputs.count;
    void **in = pointers, **out = in + inputs, **dout = out + outputs;
    void **din = dout + outputs;
    size_t given = 0;
    for (size_t i = 0; i < inputs; i++) {
        in[i] = message(stage, bases, SL_PORT_INPUT, i);
        din[i] = message(stage, bases, SL_PORT_INPUT_GRADIENT, i);
    }
    for (size_t i = 0; i < outputs; i++) {
        if (graph->outputs.data[i].gradient_only)
            continue;
        out[given] = message(stage, bases, SL_PORT_OUTPUT, i);
        dout[given] = message(stage, bases, SL_PORT_OUTPUT_GRADIENT, i);
        given++;
    }
    sl_call call = {
        slot,      (const void *const *)in, out, (const void *const *)dout, din,
        run->seed, run->loss_scale};
    void *context = stage->callback_context;
    if (program == SL_PROGRAM_I || program == SL_PROGRAM_B)
        sum_gradients(stage, bases);
    if (program == SL_PROGRAM_F)
        return calls->forward(context, &call);
    if (program == SL_PROGRAM_B && calls->backward)
        return calls->backward(context, &call);
    sl_status status = SL_OK;
    if (program != SL_PROGRAM_W)
        status = calls->backward_input(context, &call);
    if (!status && program != SL_PROGRAM_I)
        status = calls->backward_weight(context, &call);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Linking stages: where gradients flow, what crosses, who gets which input.
 *
 * Requires: stages whose inputs know their sources. Ensures: a gradient flows
 * along an edge exactly where the producer needs one and the consumer has one
 * to give; where an output has several that give, each has a gradient of its
 * own, and the producer's backward sums them. */
#include "pipeline/cut/model.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Inputs and outputs are counted through all stages. */
typedef struct linker {
    sl_model *model;
    const sl__names *fed;
    int *input_base; /* the number of each stage's first input */
    int *output_base;
    int *consumers;  /* by output: how many inputs receive it */
    int *gradients;  /* how many of these give a gradient */
    int *crossing;   /* by output: -1 where none receives it */
    bool *used;      /* by input: for more than handing it on */
    sl__names names; /* of the inputs, or outputs, listed so far */
} linker;

static sl__part *part_of(const linker *l, size_t stage)
{
    return &l->model->parts[stage];
}

static sl__named *input_of(const linker *l, size_t stage, size_t i)
{
    return &part_of(l, stage)->graph->inputs.data[i];
}

/* The output that an input receives, and its number; NULL where it is an input
 * of the model. */
static sl__named *source_of(const linker *l, size_t stage, size_t i,
                            int *out_number)
{
    const sl__source *source = &part_of(l, stage)->sources[i];
    if (source->stage < 0)
        return NULL;
    *out_number = l->output_base[source->stage] + source->output;
    return &part_of(l, source->stage)->graph->outputs.data[source->output];
}

/* Whether an output hands an input of its stage on under the same name. */
static bool hands_on(const sl__named *output)
{
    return output->tensor->leaf == SL__INPUT &&
           strcmp(output->tensor->name, output->name) == 0;
}

/* ------------------------------------------------------------ gradients -- */

sl_status sl__compute_reached(const sl_graph *graph, bool **out)
{
    bool *reached;
    sl_status status =
        sl__alloc(graph->tensor_count, sizeof *reached, &reached);
    if (status)
        return status;
    for (size_t i = 0; i < graph->outputs.count; i++) {
        const sl__named *output = &graph->outputs.data[i];
        if (output->gradient || output->tensor == graph->loss)
            reached[output->tensor->id] = true;
    }
    for (size_t i = graph->node_count; i-- > 0;) {
        const sl__node *node = graph->nodes[i];
        if (!reached[node->results[0]->id])
            continue;
        for (int k = 0; k < node->operand_count; k++)
            reached[node->operands[k]->id] = true;
    }
    *out = reached;
    return SL_OK;
}

/* From the first stage on: who needs a gradient of what it receives. */
static void settle_needs(linker *l)
{
    for (size_t s = 0; s < l->model->part_count; s++) {
        sl_graph *graph = part_of(l, s)->graph;
        bool changed = false;
        for (size_t i = 0; i < graph->inputs.count; i++) {
            int number;
            sl__named *input = &graph->inputs.data[i];
            const sl__named *source = source_of(l, s, i, &number);
            if (!source || source->gradient || !input->gradient)
                continue;
            input->gradient = SL_NO_GRADIENT;
            changed = true;
        }
        if (changed)
            sl__refresh_gradients(graph);
        for (size_t i = 0; i < graph->outputs.count; i++) {
            sl__named *output = &graph->outputs.data[i];
            bool crosses = l->consumers[l->output_base[s] + i] > 0;
            if (crosses && !output->tensor->needs_gradient)
                output->gradient = SL_NO_GRADIENT;
        }
    }
}

/* Whether the backward of callbacks has anything to begin from. */
static bool begins_backward(const sl_graph *graph)
{
    for (size_t i = 0; i < graph->outputs.count; i++) {
        if (graph->outputs.data[i].gradient)
            return true;
    }
    return graph->loss != NULL;
}

/* What a stage has and costs. */
static void fill_info(sl__part *part, const bool *reached)
{
    const sl_graph *graph = part->graph;
    sl_stage_info *info = &part->info;
    info->graph = part->is_callbacks ? NULL : graph;
    for (size_t i = 0; i < graph->node_count; i++) {
        const sl__node *node = graph->nodes[i];
        info->flops += sl__training_flops(node, reached[node->results[0]->id]);
    }
    for (size_t i = 0; i < graph->parameters.count; i++) {
        const sl__named *named = &graph->parameters.data[i];
        if (strcmp(named->name, named->tensor->name) != 0)
            continue; /* An alias. */
        info->parameters += sl__count(named->tensor);
        info->parameter_bytes += sl__bytes(named->tensor);
    }
    info->cost = info->flops;
}

/* From the last stage back: who has a gradient to give. */
static sl_status settle_gifts(linker *l)
{
    for (size_t s = l->model->part_count; s-- > 0;) {
        sl_graph *graph = part_of(l, s)->graph;
        for (size_t i = 0; i < graph->outputs.count; i++) {
            int number = l->output_base[s] + (int)i;
            if (l->consumers[number] > 0 && l->gradients[number] == 0)
                graph->outputs.data[i].gradient = SL_NO_GRADIENT;
        }
        bool *reached, changed = false;
        sl_status status = sl__compute_reached(graph, &reached);
        if (status)
            return status;
        bool calls = part_of(l, s)->is_callbacks;
        for (size_t i = 0; i < graph->inputs.count; i++) {
            int number;
            sl__named *input = &graph->inputs.data[i];
            const sl__named *source = source_of(l, s, i, &number);
            bool gives =
                calls ? begins_backward(graph) : reached[input->tensor->id];
            if (source && input->gradient && !gives) {
                input->gradient = SL_NO_GRADIENT;
                changed = true;
            }
            if (source && input->gradient)
                l->gradients[number]++;
        }
        if (changed)
            sl__refresh_gradients(graph);
        fill_info(part_of(l, s), reached);
        free(reached);
    }
    return SL_OK;
}

/* ------------------------------------------------------------ crossings -- */

static void count_consumers(linker *l)
{
    for (size_t s = 0; s < l->model->part_count; s++) {
        size_t inputs = part_of(l, s)->graph->inputs.count;
        for (size_t i = 0; i < inputs; i++) {
            int number;
            if (source_of(l, s, i, &number))
                l->consumers[number]++;
        }
    }
}

static void find_used(linker *l, size_t s)
{
    const sl_graph *graph = part_of(l, s)->graph;
    bool *used = &l->used[l->input_base[s]];
    bool calls = part_of(l, s)->is_callbacks;
    for (size_t i = 0; i < graph->inputs.count; i++)
        used[i] = true;
    /* Those handed on to another stage may be for nothing else. */
    for (size_t i = 0; i < graph->outputs.count && !calls; i++) {
        if (hands_on(&graph->outputs.data[i]) &&
            l->consumers[l->output_base[s] + i] > 0)
            used[graph->outputs.data[i].tensor->leaf_index] = false;
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        const sl__node *node = graph->nodes[i];
        for (int k = 0; k < node->operand_count; k++) {
            const sl_tensor *base = node->operands[k]->base;
            if (base->leaf == SL__INPUT)
                used[base->leaf_index] = true;
        }
    }
    for (size_t i = 0; i < graph->outputs.count; i++) {
        const sl__named *output = &graph->outputs.data[i];
        if (output->tensor->leaf == SL__INPUT && !hands_on(output))
            used[output->tensor->leaf_index] = true;
    }
}

/* The crossing that an output carries on, where it hands one on; else -1. */
static int handed_on(const linker *l, size_t s, const sl__named *output)
{
    int number;
    if (!hands_on(output) ||
        !source_of(l, s, (size_t)output->tensor->leaf_index, &number))
        return -1;
    return l->crossing[number];
}

static void fill_shape(const sl_tensor *tensor, sl_dtype *dtype, int *dims,
                       int64_t *shape)
{
    *dtype = tensor->dtype;
    *dims = tensor->dims;
    memcpy(shape, tensor->shape, sizeof *shape * (size_t)tensor->dims);
}

static sl_status list_crossings(linker *l, int outputs)
{
    sl_model *model = l->model;
    sl_status status =
        sl__arena_take(&model->arena, (size_t)outputs, sizeof *model->crossings,
                       &model->crossings);
    if (status)
        return status;
    for (size_t s = 0; s < model->part_count; s++) {
        const sl__names *given = &part_of(l, s)->graph->outputs;
        for (size_t i = 0; i < given->count; i++) {
            const sl__named *output = &given->data[i];
            int number = l->output_base[s] + (int)i;
            l->crossing[number] = -1;
            if (l->consumers[number] == 0)
                continue;
            l->crossing[number] = handed_on(l, s, output);
            if (l->crossing[number] >= 0)
                continue;
            l->crossing[number] = model->crossing_count;
            sl_crossing *crossing = &model->crossings[model->crossing_count++];
            *crossing = (sl_crossing){.name = output->name,
                                      .producer = (int)s,
                                      .bytes = sl__bytes(output->tensor),
                                      .gradient = output->gradient};
            fill_shape(output->tensor, &crossing->dtype, &crossing->dims,
                       crossing->shape);
        }
    }
    return SL_OK;
}

/* Lists the consumers of every crossing: counts them, then fills them in. */
static sl_status list_consumers(linker *l)
{
    sl_model *model = l->model;
    int *taken = NULL;
    sl_status status = SL_OK;
    for (int pass = 0; pass < 2 && !status; pass++) {
        for (size_t s = 0; s < model->part_count; s++) {
            size_t inputs = part_of(l, s)->graph->inputs.count;
            for (size_t i = 0; i < inputs; i++) {
                int number;
                if (!source_of(l, s, i, &number) ||
                    !l->used[l->input_base[s] + i])
                    continue;
                sl_crossing *crossing = &model->crossings[l->crossing[number]];
                if (pass == 1)
                    ((int *)crossing->consumers)[crossing->consumer_count] =
                        (int)s;
                crossing->consumer_count++;
            }
        }
        for (int c = 0; c < model->crossing_count && pass == 0 && !status;
             c++) {
            sl_crossing *crossing = &model->crossings[c];
            status =
                sl__arena_take(&model->arena, (size_t)crossing->consumer_count,
                               sizeof *taken, &taken);
            crossing->consumers = taken;
            crossing->consumer_count = 0;
        }
    }
    return status;
}

/* ---------------------------------------------------------------- edges -- */

/* A further gradient for an output: "name@stage", or with more @ until it is
 * new. */
static sl_status add_gradient(sl_graph *graph, int output, size_t stage,
                              const char **out)
{
    sl__names *outputs = &graph->outputs;
    char text[1200];
    int length = snprintf(text, sizeof text - 16, "%.1000s@%zu",
                          outputs->data[output].name, stage);
    while (sl__find_name(outputs, text) && length < 1180)
        text[length++] = '@', text[length] = '\0';
    sl_status status = sl__arena_text(&graph->arena, text, (size_t)length, out);
    if (!status)
        status = sl__add_name(outputs, *out, outputs->data[output].tensor,
                              SL_GRADIENT);
    if (!status)
        outputs->data[outputs->count - 1].gradient_only = true;
    return status;
}

static int by_sender(const void *left, const void *right)
{
    const sl_edge *a = left, *b = right;
    return a->from != b->from
               ? (a->from > b->from) - (a->from < b->from)
               : (a->crossing > b->crossing) - (a->crossing < b->crossing);
}

static sl_status add_edge(linker *l, size_t s, size_t i, bool *has_gradient)
{
    sl_model *model = l->model;
    int number;
    if (!source_of(l, s, i, &number))
        return SL_OK;
    const sl__source *source = &part_of(l, s)->sources[i];
    sl__part *from = part_of(l, source->stage);
    const sl__named *input = input_of(l, s, i);
    sl_edge edge = {.crossing = l->crossing[number],
                    .from = source->stage,
                    .to = (int)s,
                    .name = input->name};
    sl_status status = SL_OK;
    if (input->gradient && has_gradient[number])
        status =
            add_gradient(from->graph, source->output, s, &edge.gradient_name);
    else if (input->gradient)
        edge.gradient_name = from->graph->outputs.data[source->output].name;
    has_gradient[number] |= input->gradient == SL_GRADIENT;
    model->edges[model->edge_count++] = edge;
    return status;
}

static sl_status list_edges(linker *l, int inputs, int outputs)
{
    sl_model *model = l->model;
    bool *has_gradient;
    sl_status status = sl__arena_take(&model->arena, (size_t)inputs,
                                      sizeof *model->edges, &model->edges);
    if (!status)
        status =
            sl__alloc((size_t)outputs, sizeof *has_gradient, &has_gradient);
    if (status)
        return status;
    for (size_t s = 0; s < model->part_count && !status; s++) {
        int first = model->edge_count;
        size_t count = part_of(l, s)->graph->inputs.count;
        for (size_t i = 0; i < count && !status; i++)
            status = add_edge(l, s, i, has_gradient);
        qsort(model->edges + first, (size_t)(model->edge_count - first),
              sizeof *model->edges, by_sender);
    }
    free(has_gradient);
    return status;
}

/* --------------------------------------------- inputs and outputs of all -- */

static sl_status refuse_input(const sl_model_port *port, size_t s,
                              const sl_tensor *tensor)
{
    char found[SL__SHAPE_TEXT], expected[SL__SHAPE_TEXT];
    return sl_fail(SL_EINVAL,
                   "stage %zu: input '%.100s' is %s %s, expected %s %s as "
                   "stage %d has it",
                   s, port->name, sl_dtype_text(tensor->dtype),
                   sl__shape_text(tensor->dims, tensor->shape, found),
                   sl_dtype_text(port->dtype),
                   sl__shape_text(port->dims, port->shape, expected),
                   port->stages[0]);
}

/* Finds or makes the port of an input of the model. */
static sl_status find_input(linker *l, const sl__named *named,
                            sl_model_port **out)
{
    sl_model *model = l->model;
    const sl__named *known = sl__find_name(&l->names, named->name);
    if (known) {
        *out = &model->inputs[known - l->names.data];
        return SL_OK;
    }
    const char *name;
    sl_status status =
        sl__arena_text(&model->arena, named->name, strlen(named->name), &name);
    if (!status)
        status = sl__add_name(&l->names, name, NULL, SL_NO_GRADIENT);
    if (status)
        return status;
    sl_model_port *port = &model->inputs[model->input_count++];
    port->name = name;
    port->gradient = named->gradient;
    fill_shape(named->tensor, &port->dtype, &port->dims, port->shape);
    *out = port;
    return SL_OK;
}

static sl_status add_user(linker *l, const sl__named *named, size_t s)
{
    sl_model_port *port;
    const sl_tensor *tensor = named->tensor;
    sl_status status = find_input(l, named, &port);
    if (status)
        return status;
    if (port->dtype != tensor->dtype || port->dims != tensor->dims ||
        memcmp(port->shape, tensor->shape,
               sizeof *port->shape * (size_t)port->dims) != 0)
        return refuse_input(port, s, tensor);
    if (named->gradient)
        port->gradient = SL_GRADIENT;
    /* Room doubles: at 1, 2, 4 there is none left. */
    if ((port->stage_count & (port->stage_count - 1)) == 0) {
        int *wider;
        size_t room = port->stage_count ? 2 * (size_t)port->stage_count : 1;
        status = sl__arena_take(&l->model->arena, room, sizeof *wider, &wider);
        if (status)
            return status;
        if (port->stage_count)
            memcpy(wider, port->stages,
                   sizeof *wider * (size_t)port->stage_count);
        port->stages = wider;
    }
    ((int *)port->stages)[port->stage_count++] = (int)s;
    return SL_OK;
}

static sl_status list_inputs(linker *l, int inputs)
{
    sl_model *model = l->model;
    size_t fed = l->fed ? l->fed->count : 0;
    sl_status status = sl__arena_take(&model->arena, (size_t)inputs + fed,
                                      sizeof *model->inputs, &model->inputs);
    for (size_t i = 0; i < fed && !status; i++) {
        sl_model_port *port;
        status = find_input(l, &l->fed->data[i], &port);
    }
    for (size_t s = 0; s < model->part_count && !status; s++) {
        const sl__part *part = part_of(l, s);
        for (size_t i = 0; i < part->graph->inputs.count && !status; i++) {
            if (part->sources[i].stage < 0)
                status = add_user(l, &part->graph->inputs.data[i], s);
        }
    }
    sl__names_clear(&l->names);
    return status;
}

static sl_status add_output(linker *l, const sl__named *output, size_t s)
{
    sl_model *model = l->model;
    if (sl__find_name(&l->names, output->name))
        return sl_fail(SL_EINVAL,
                       "stage %zu: output '%.100s' is one of an earlier stage "
                       "already",
                       s, output->name);
    int *stage;
    sl_status status =
        sl__add_name(&l->names, output->name, NULL, SL_NO_GRADIENT);
    if (!status)
        status = sl__arena_take(&model->arena, 1, sizeof *stage, &stage);
    if (status)
        return status;
    *stage = (int)s;
    sl_model_port *port = &model->outputs[model->output_count++];
    *port = (sl_model_port){.name = output->name,
                            .gradient = output->gradient,
                            .stages = stage,
                            .stage_count = 1};
    port->is_loss = part_of(l, s)->graph->loss == output->tensor &&
                    strcmp(output->name, "loss") == 0;
    fill_shape(output->tensor, &port->dtype, &port->dims, port->shape);
    return SL_OK;
}

static sl_status list_outputs(linker *l, int outputs)
{
    sl_model *model = l->model;
    sl_status status = sl__arena_take(&model->arena, (size_t)outputs,
                                      sizeof *model->outputs, &model->outputs);
    for (size_t s = 0; s < model->part_count && !status; s++) {
        const sl__names *given = &part_of(l, s)->graph->outputs;
        for (size_t i = 0; i < given->count && !status; i++) {
            if (!given->data[i].gradient_only &&
                l->consumers[l->output_base[s] + i] == 0)
                status = add_output(l, &given->data[i], s);
        }
    }
    sl__names_clear(&l->names);
    return status;
}

/* -------------------------------------------------------------- linking -- */

static sl_status count_ports(linker *l, int *inputs, int *outputs)
{
    size_t stages = l->model->part_count;
    sl_status status = sl__alloc(stages, sizeof *l->input_base, &l->input_base);
    if (!status)
        status = sl__alloc(stages, sizeof *l->output_base, &l->output_base);
    for (size_t s = 0; s < stages && !status; s++) {
        const sl_graph *graph = part_of(l, s)->graph;
        l->input_base[s] = *inputs;
        l->output_base[s] = *outputs;
        *inputs += (int)graph->inputs.count;
        *outputs += (int)graph->outputs.count;
    }
    size_t all = (size_t)*outputs;
    if (!status)
        status = sl__alloc(all, sizeof *l->consumers, &l->consumers);
    if (!status)
        status = sl__alloc(all, sizeof *l->gradients, &l->gradients);
    if (!status)
        status = sl__alloc(all, sizeof *l->crossing, &l->crossing);
    if (!status)
        status = sl__alloc((size_t)*inputs, sizeof *l->used, &l->used);
    return status;
}

static sl_status link_all(linker *l)
{
    int inputs = 0, outputs = 0;
    sl_status status = count_ports(l, &inputs, &outputs);
    if (status)
        return status;
    count_consumers(l);
    settle_needs(l);
    status = settle_gifts(l);
    for (size_t s = 0; s < l->model->part_count && !status; s++)
        find_used(l, s);
    if (!status)
        status = list_crossings(l, outputs);
    if (!status)
        status = list_consumers(l);
    if (!status)
        status = list_inputs(l, inputs);
    if (!status)
        status = list_outputs(l, outputs);
    if (!status)
        status = sl__find_ties(l->model);
    /* Last: it adds outputs, which only take gradients in. */
    if (!status)
        status = list_edges(l, inputs, outputs);
    return status;
}

sl_status sl__link(sl_model *model, const sl__names *fed)
{
    linker l = {.model = model, .fed = fed};
    sl_status status = link_all(&l);
    model->linked = !status;
    if (status) {
        model->broken = true;
        model->crossing_count = model->edge_count = model->tie_count = 0;
        model->input_count = model->output_count = 0;
    }
    free(l.input_base);
    free(l.output_base);
    free(l.consumers);
    free(l.gradients);
    free(l.crossing);
    free(l.used);
    sl__names_clear(&l.names);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Links stages: decides where gradients flow, which tensors cross, and which
 * stages get which inputs of the model.
 *
 * Requires: the sources of all inputs are known. Ensures: a gradient flows
 * along an edge exactly where the producer needs one and the consumer computes
 * one; where several consumers of an output compute one, each has an output
 * gradient of its own, and the producer's backward sums them. */
#include "pipeline/cut/model.h"

#include "base/try.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inputs and outputs are numbered over all stages. */
typedef struct linker {
    sl__arena arena; /* freed when linking is done */
    sl_model *model;
    const sl__names *fed;
    int inputs, outputs; /* of all stages */
    int *input_base;     /* the number of each stage's first input */
    int *output_base;
    int *consumers; /* by output: how many inputs receive it */
    int *gradients; /* how many of these have a gradient for it */
    int *crossing;  /* by output: its crossing; -1 where no stage receives it */
    bool *used;     /* by input: whether its stage does more than forward it */
    bool *has_gradient; /* by output: an edge with its gradient is listed */
    sl__names names;    /* of the inputs, or outputs, listed so far */
} linker;

static sl__part *part_of(const linker *l, size_t stage)
{
    return &l->model->parts[stage];
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

/* Whether an output forwards an input of its stage under the same name. */
static bool is_forwarded(const sl__named *output)
{
    return output->tensor->leaf == SL__INPUT &&
           strcmp(output->tensor->name, output->name) == 0;
}

/* ------------------------------------------------------------ gradients -- */

sl_status sl__compute_reached(const sl_graph *graph, sl__arena *arena,
                              bool **out)
{
    bool *reached;
    SL__TRY(
        sl__arena_take(arena, graph->tensor_count, sizeof *reached, &reached));
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

/* Drops gradients, from the first stage on, that the producer does not need. */
static void drop_unneeded_gradients(linker *l)
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

/* Whether the backward of callbacks has an output gradient or a loss to start
 * from. */
static bool begins_backward(const sl_graph *graph)
{
    for (size_t i = 0; i < graph->outputs.count; i++) {
        if (graph->outputs.data[i].gradient)
            return true;
    }
    return graph->loss != NULL;
}

/* Fills in the parameters and the cost of a stage. */
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

/* Drops gradients, from the last stage back, that no consumer computes. */
static sl_status drop_missing_gradients(linker *l)
{
    for (size_t s = l->model->part_count; s-- > 0;) {
        sl_graph *graph = part_of(l, s)->graph;
        for (size_t i = 0; i < graph->outputs.count; i++) {
            int number = l->output_base[s] + (int)i;
            if (l->consumers[number] > 0 && l->gradients[number] == 0)
                graph->outputs.data[i].gradient = SL_NO_GRADIENT;
        }
        bool *reached, changed = false;
        SL__TRY(sl__compute_reached(graph, &l->arena, &reached));
        bool calls = part_of(l, s)->is_callbacks;
        for (size_t i = 0; i < graph->inputs.count; i++) {
            int number;
            sl__named *input = &graph->inputs.data[i];
            if (!source_of(l, s, i, &number) || !input->gradient)
                continue;
            if (calls ? begins_backward(graph) : reached[input->tensor->id]) {
                l->gradients[number]++;
            } else {
                input->gradient = SL_NO_GRADIENT;
                changed = true;
            }
        }
        if (changed)
            sl__refresh_gradients(graph);
        fill_info(part_of(l, s), reached);
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
    /* A stage may receive an input only to forward it to another one. */
    for (size_t i = 0; i < graph->outputs.count && !calls; i++) {
        if (is_forwarded(&graph->outputs.data[i]) &&
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
        if (output->tensor->leaf == SL__INPUT && !is_forwarded(output))
            used[output->tensor->leaf_index] = true;
    }
}

/* The crossing that an output forwards; -1 where it forwards none. */
static int forwarded_crossing(const linker *l, size_t s,
                              const sl__named *output)
{
    int number;
    if (!is_forwarded(output) ||
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

static sl_status list_crossings(linker *l)
{
    sl_model *model = l->model;
    for (size_t s = 0; s < model->part_count; s++) {
        const sl__names *outputs = &part_of(l, s)->graph->outputs;
        for (size_t i = 0; i < outputs->count; i++) {
            const sl__named *output = &outputs->data[i];
            int number = l->output_base[s] + (int)i;
            l->crossing[number] = -1;
            if (l->consumers[number] == 0)
                continue;
            l->crossing[number] = forwarded_crossing(l, s, output);
            if (l->crossing[number] >= 0)
                continue;
            sl_crossing crossing = {.name = output->name,
                                    .producer = (int)s,
                                    .bytes = sl__bytes(output->tensor),
                                    .gradient = output->gradient};
            fill_shape(output->tensor, &crossing.dtype, &crossing.dims,
                       crossing.shape);
            l->crossing[number] = model->crossing_count;
            SL__TRY(sl__append(&model->arena, &model->crossings,
                               &model->crossing_count, sizeof crossing,
                               &crossing));
        }
    }
    return SL_OK;
}

static sl_status list_consumers(linker *l)
{
    sl_model *model = l->model;
    for (size_t s = 0; s < model->part_count; s++) {
        size_t inputs = part_of(l, s)->graph->inputs.count;
        const bool *used = &l->used[l->input_base[s]];
        int number, stage = (int)s;
        for (size_t i = 0; i < inputs; i++) {
            if (!source_of(l, s, i, &number) || !used[i])
                continue;
            sl_crossing *crossing = &model->crossings[l->crossing[number]];
            assert(crossing->producer < stage);
            SL__TRY(sl__append(&model->arena, &crossing->consumers,
                               &crossing->consumer_count, sizeof stage,
                               &stage));
        }
    }
    return SL_OK;
}

/* ---------------------------------------------------------------- edges -- */

/* Adds a gradient for an output, named "name@stage", with more @ until the name
 * is new. */
static sl_status add_gradient(sl_graph *graph, int output, size_t stage,
                              const char **out)
{
    sl__names *outputs = &graph->outputs;
    char text[1200];
    int length = snprintf(text, sizeof text - 16, "%.1000s@%zu",
                          outputs->data[output].name, stage);
    while (sl__find_name(outputs, text) && length < 1180)
        text[length++] = '@', text[length] = '\0';
    SL__TRY(sl__arena_text(&graph->arena, text, (size_t)length, out));
    SL__TRY(
        sl__add_name(outputs, *out, outputs->data[output].tensor, SL_GRADIENT));
    outputs->data[outputs->count - 1].gradient_only = true;
    return SL_OK;
}

static int by_sender(const void *left, const void *right)
{
    const sl_edge *a = left, *b = right;
    return a->from != b->from
               ? (a->from > b->from) - (a->from < b->from)
               : (a->crossing > b->crossing) - (a->crossing < b->crossing);
}

static sl_status add_edge(linker *l, size_t s, size_t i)
{
    sl_model *model = l->model;
    int number;
    if (!source_of(l, s, i, &number))
        return SL_OK;
    const sl__source *source = &part_of(l, s)->sources[i];
    sl_graph *from = part_of(l, (size_t)source->stage)->graph;
    const sl__named *input = &part_of(l, s)->graph->inputs.data[i];
    sl_edge edge = {.crossing = l->crossing[number],
                    .from = source->stage,
                    .to = (int)s,
                    .name = input->name};
    if (input->gradient && l->has_gradient[number])
        SL__TRY(add_gradient(from, source->output, s, &edge.gradient_name));
    else if (input->gradient)
        edge.gradient_name = from->outputs.data[source->output].name;
    l->has_gradient[number] |= input->gradient == SL_GRADIENT;
    return sl__append(&model->arena, &model->edges, &model->edge_count,
                      sizeof edge, &edge);
}

static sl_status list_edges(linker *l)
{
    sl_model *model = l->model;
    for (size_t s = 0; s < model->part_count; s++) {
        int first = model->edge_count;
        size_t inputs = part_of(l, s)->graph->inputs.count;
        for (size_t i = 0; i < inputs; i++)
            SL__TRY(add_edge(l, s, i));
        if (model->edge_count > first)
            qsort(model->edges + first, (size_t)(model->edge_count - first),
                  sizeof *model->edges, by_sender);
    }
    return SL_OK;
}

/* --------------------------------------------- inputs and outputs of all -- */

/* Finds or makes the port of an input of the model. */
static sl_status find_input(linker *l, const sl__named *named,
                            sl_model_port **out)
{
    sl_model *model = l->model;
    const sl__named *known = sl__find_name(&l->names, named->name);
    if (!known) {
        sl_model_port port = {.gradient = named->gradient};
        SL__TRY(sl__arena_text(&model->arena, named->name, strlen(named->name),
                               &port.name));
        SL__TRY(
            sl__add_name(&l->names, port.name, named->tensor, SL_NO_GRADIENT));
        fill_shape(named->tensor, &port.dtype, &port.dims, port.shape);
        SL__TRY(sl__append(&model->arena, &model->inputs, &model->input_count,
                           sizeof port, &port));
    }
    *out =
        &model->inputs[known ? known - l->names.data : model->input_count - 1];
    return SL_OK;
}

static sl_status add_user(linker *l, const sl__named *named, size_t s)
{
    sl_model_port *port;
    int stage = (int)s;
    SL__TRY(find_input(l, named, &port));
    const sl__named *first = sl__find_same(&l->names, named);
    SL__TRY(sl__check_alike(s, "input", named->name, named->tensor,
                            first->tensor,
                            port->stage_count ? port->stages[0] : 0, "has it"));
    if (named->gradient)
        port->gradient = SL_GRADIENT;
    return sl__append(&l->model->arena, &port->stages, &port->stage_count,
                      sizeof stage, &stage);
}

static sl_status list_inputs(linker *l)
{
    sl_model_port *port;
    for (size_t i = 0; l->fed && i < l->fed->count; i++)
        SL__TRY(find_input(l, &l->fed->data[i], &port));
    for (size_t s = 0; s < l->model->part_count; s++) {
        const sl__part *part = part_of(l, s);
        for (size_t i = 0; i < part->graph->inputs.count; i++) {
            if (part->sources[i].stage < 0)
                SL__TRY(add_user(l, &part->graph->inputs.data[i], s));
        }
    }
    sl__names_clear(&l->names);
    return SL_OK;
}

static sl_status add_output(linker *l, const sl__named *output, size_t s)
{
    sl_model *model = l->model;
    int stage = (int)s;
    if (sl__find_same(&l->names, output))
        return sl_fail(SL_EINVAL,
                       "stage %zu: output '%.100s' is one of an earlier stage "
                       "already",
                       s, output->name);
    SL__TRY(sl__add_name(&l->names, output->name, NULL, SL_NO_GRADIENT));
    sl_model_port port = {.name = output->name, .gradient = output->gradient};
    port.is_loss = part_of(l, s)->graph->loss == output->tensor &&
                   strcmp(output->name, "loss") == 0;
    fill_shape(output->tensor, &port.dtype, &port.dims, port.shape);
    SL__TRY(sl__append(&model->arena, &port.stages, &port.stage_count,
                       sizeof stage, &stage));
    return sl__append(&model->arena, &model->outputs, &model->output_count,
                      sizeof port, &port);
}

static sl_status list_outputs(linker *l)
{
    for (size_t s = 0; s < l->model->part_count; s++) {
        const sl__names *outputs = &part_of(l, s)->graph->outputs;
        for (size_t i = 0; i < outputs->count; i++) {
            if (!outputs->data[i].gradient_only &&
                l->consumers[l->output_base[s] + (int)i] == 0)
                SL__TRY(add_output(l, &outputs->data[i], s));
        }
    }
    sl__names_clear(&l->names);
    return SL_OK;
}

/* -------------------------------------------------------------- linking -- */

static sl_status make_room(linker *l)
{
    size_t stages = l->model->part_count;
    sl__arena *arena = &l->arena;
    SL__TRY(sl__arena_take(arena, stages, sizeof(int), &l->input_base));
    SL__TRY(sl__arena_take(arena, stages, sizeof(int), &l->output_base));
    for (size_t s = 0; s < stages; s++) {
        const sl_graph *graph = part_of(l, s)->graph;
        l->input_base[s] = l->inputs;
        l->output_base[s] = l->outputs;
        l->inputs += (int)graph->inputs.count;
        l->outputs += (int)graph->outputs.count;
    }
    size_t inputs = (size_t)l->inputs, outputs = (size_t)l->outputs;
    SL__TRY(sl__arena_take(arena, outputs, sizeof(int), &l->consumers));
    SL__TRY(sl__arena_take(arena, outputs, sizeof(int), &l->gradients));
    SL__TRY(sl__arena_take(arena, outputs, sizeof(int), &l->crossing));
    SL__TRY(sl__arena_take(arena, inputs, sizeof(bool), &l->used));
    return sl__arena_take(arena, outputs, sizeof(bool), &l->has_gradient);
}

static sl_status link_all(linker *l)
{
    SL__TRY(make_room(l));
    count_consumers(l);
    drop_unneeded_gradients(l);
    SL__TRY(drop_missing_gradients(l));
    for (size_t s = 0; s < l->model->part_count; s++)
        find_used(l, s);
    SL__TRY(list_crossings(l));
    SL__TRY(list_consumers(l));
    SL__TRY(list_inputs(l));
    SL__TRY(list_outputs(l));
    SL__TRY(sl__find_ties(l->model));
    /* Comes last: it adds outputs that exist only to receive gradients. */
    return list_edges(l);
}

sl_status sl__link(sl_model *model, const sl__names *fed)
{
    assert(!model->linked && !model->broken && model->part_count > 0);
    linker l = {.model = model, .fed = fed};
    sl_status status = link_all(&l);
    model->linked = !status;
    if (status) {
        model->broken = true;
        model->crossing_count = model->edge_count = model->tie_count = 0;
        model->input_count = model->output_count = 0;
    }
    sl__arena_clear(&l.arena);
    sl__names_clear(&l.names);
    return status;
}

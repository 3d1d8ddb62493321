/* SPDX-License-Identifier: MIT
 *
 * Models in stages: creation, adding stages by hand, and access. */
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"
#include "tensor/program.h"

#include <assert.h>
#include <string.h>

/* ----------------------------------------------------------------- life -- */

sl_status sl_model_create(sl_model **out)
{
    SL__NEED(out);
    return sl__alloc(1, sizeof **out, out);
}

void sl_model_destroy(sl_model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->part_count; i++)
        sl_graph_destroy(model->parts[i].graph);
    sl__arena_clear(&model->arena);
    sl__names_clear(&model->produced);
    free(model->producers);
    free(model->parts);
    free(model);
}

/* --------------------------------------------------------------- adding -- */

sl_status sl__check_alike(size_t stage, const char *kind, const char *name,
                          const sl_tensor *tensor, const sl_tensor *other,
                          int other_stage, const char *other_does)
{
    char found[SL__SHAPE_TEXT], expected[SL__SHAPE_TEXT];
    if (tensor->dtype == other->dtype && sl__same_shape(tensor, other))
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "stage %zu: %s '%.100s' is %s %s, expected %s %s as stage "
                   "%d %s",
                   stage, kind, name, sl_dtype_text(tensor->dtype),
                   sl__shape_text(tensor->dims, tensor->shape, found),
                   sl_dtype_text(other->dtype),
                   sl__shape_text(other->dims, other->shape, expected),
                   other_stage, other_does);
}

/* Finds which outputs the inputs of the next stage receive. */
static sl_status find_sources(sl_model *model, sl__part *part,
                              const sl__names *fed)
{
    const sl__names *inputs = &part->graph->inputs;
    SL__TRY(sl__arena_take(&model->arena, inputs->count, sizeof *part->sources,
                           &part->sources));
    for (size_t i = 0; i < inputs->count; i++) {
        const sl__named *input = &inputs->data[i];
        bool is_fed = fed && sl__find_name(fed, input->name);
        const sl__named *output =
            is_fed ? NULL : sl__find_name(&model->produced, input->name);
        part->sources[i] = (sl__source){-1, -1};
        if (!output || !output->tensor)
            continue;
        part->sources[i] = model->producers[output - model->produced.data];
        SL__TRY(sl__check_alike(model->part_count, "input", input->name,
                                input->tensor, output->tensor,
                                part->sources[i].stage, "gives"));
    }
    return SL_OK;
}

/* Reserves room for the outputs of a stage, under names that the model owns. A
 * name without a tensor has no producer yet. */
static sl_status make_room(sl_model *model, const sl__part *part)
{
    const sl__names *outputs = &part->graph->outputs;
    for (size_t i = 0; i < outputs->count; i++) {
        const char *name = outputs->data[i].name;
        if (sl__find_name(&model->produced, name))
            continue;
        SL__TRY(sl__grow(&model->producers, &model->producer_capacity,
                         model->produced.count + 1, sizeof *model->producers));
        SL__TRY(sl__arena_text(&model->arena, name, strlen(name), &name));
        SL__TRY(sl__add_name(&model->produced, name, NULL, SL_NO_GRADIENT));
    }
    return SL_OK;
}

/* Adds the outputs of this stage to those that later stages can receive. */
static void publish_outputs(sl_model *model, const sl__part *part)
{
    const sl__names *outputs = &part->graph->outputs;
    for (size_t i = 0; i < outputs->count; i++) {
        sl__named *output = sl__find_same(&model->produced, &outputs->data[i]);
        assert(output);
        output->tensor = outputs->data[i].tensor;
        model->producers[output - model->produced.data] =
            (sl__source){(int)model->part_count, (int)i};
    }
}

sl_status sl__model_add(sl_model *model, const sl__part *part,
                        const sl__names *fed)
{
    sl__part added = *part;
    assert(added.graph);
    if (model->linked || model->broken)
        return sl_fail(SL_EINVAL, "the model is linked: nothing can be added");
    SL__TRY(find_sources(model, &added, fed));
    SL__TRY(sl__grow(&model->parts, &model->part_capacity,
                     model->part_count + 1, sizeof *model->parts));
    SL__TRY(make_room(model, &added));
    publish_outputs(model, &added);
    model->parts[model->part_count++] = added;
    return SL_OK;
}

sl_tensor *sl_model_receive(const sl_model *model, sl_graph *graph,
                            const char *name)
{
    char quoted[SL__QUOTED_MAX];
    if (!graph || graph->status)
        return NULL;
    const sl__named *output =
        model && name ? sl__find_name(&model->produced, name) : NULL;
    if (!output || !output->tensor)
        return sl__refuse(graph, "receive", "no stage before gives '%s'",
                          name ? sl__quoted(name, strlen(name), quoted) : "");
    const sl_tensor *tensor = output->tensor;
    return sl_input(graph, name, tensor->dtype, tensor->dims, tensor->shape,
                    sl__is_float(tensor->dtype) ? SL_GRADIENT : SL_NO_GRADIENT);
}

sl_status sl_model_add_graph(sl_model *model, sl_graph *graph)
{
    SL__NEED(model, graph);
    SL__TRY(sl_graph_status(graph));
    if (graph->outputs.count == 0)
        return sl_fail(SL_EINVAL,
                       "stage %zu: the graph has no output and no loss",
                       model->part_count);
    SL__TRY(sl__check_left(graph));
    for (size_t i = 0; i < model->part_count; i++) {
        if (model->parts[i].graph == graph)
            return sl_fail(SL_EINVAL, "the graph is stage %zu already", i);
    }
    return sl__model_add(model, &(sl__part){.graph = graph}, NULL);
}

sl_status sl_model_add_callbacks(sl_model *model,
                                 const sl_stage_description *description)
{
    SL__NEED(model, description);
    sl__part part = {.is_callbacks = true,
                     .callbacks = description->callbacks,
                     .context = description->context};
    sl_status status = sl__describe(description, &part.graph);
    if (status)
        return sl_fail(status, "stage %zu: %s", model->part_count,
                       sl_error_text());
    status = sl__model_add(model, &part, NULL);
    if (status)
        sl_graph_destroy(part.graph);
    return status;
}

sl_status sl_model_link(sl_model *model)
{
    SL__NEED(model);
    if (model->linked)
        return SL_OK;
    if (model->broken)
        return sl_fail(SL_EINVAL,
                       "linking has failed; the model must be made anew");
    if (model->part_count == 0)
        return sl_fail(SL_EINVAL, "the model has no stage");
    return sl__link(model, NULL);
}

/* -------------------------------------------------------------- reading -- */

int sl_model_stage_count(const sl_model *model)
{
    return model ? (int)model->part_count : 0;
}

const sl_stage_info *sl_model_stage(const sl_model *model, int stage)
{
    if (!model || stage < 0 || (size_t)stage >= model->part_count ||
        !model->linked)
        return NULL;
    return &model->parts[stage].info;
}

double sl_model_balance(const sl_model *model)
{
    double largest = 0, sum = 0;
    if (!model)
        return 0;
    for (size_t i = 0; i < model->part_count; i++) {
        double cost = model->parts[i].info.cost;
        sum += cost;
        largest = cost > largest ? cost : largest;
    }
    return largest > 0 ? sum / (double)model->part_count / largest : 1;
}

const sl_crossing *sl_model_crossings(const sl_model *model, int *count)
{
    if (count)
        *count = model ? model->crossing_count : 0;
    return model ? model->crossings : NULL;
}

const sl_edge *sl_model_edges(const sl_model *model, int *count)
{
    if (count)
        *count = model ? model->edge_count : 0;
    return model ? model->edges : NULL;
}

const sl_tie *sl_model_ties(const sl_model *model, int *count)
{
    if (count)
        *count = model ? model->tie_count : 0;
    return model ? model->ties : NULL;
}

const sl_model_port *sl_model_inputs(const sl_model *model, int *count)
{
    if (count)
        *count = model ? model->input_count : 0;
    return model ? model->inputs : NULL;
}

const sl_model_port *sl_model_outputs(const sl_model *model, int *count)
{
    if (count)
        *count = model ? model->output_count : 0;
    return model ? model->outputs : NULL;
}

/* Marks in `seen` every name of `known` that a parameter of the stages has. */
static sl_status note_parameters(const sl_model *model, const sl__names *known,
                                 bool *seen)
{
    char quoted[SL__QUOTED_MAX];
    for (size_t s = 0; s < model->part_count; s++) {
        const sl__names *own = &model->parts[s].graph->parameters;
        for (size_t i = 0; i < own->count; i++) {
            const char *name = own->data[i].name;
            const sl__named *found = sl__find_same(known, &own->data[i]);
            if (!found)
                return sl_fail(SL_EINVAL,
                               "stage %zu has a parameter '%s', which is none "
                               "of the model's",
                               s, sl__quoted(name, strlen(name), quoted));
            seen[found - known->data] = true;
        }
    }
    return SL_OK;
}

sl_status sl__check_parameters(const sl_model *model, const sl__names *known)
{
    char quoted[SL__QUOTED_MAX];
    bool *seen;
    SL__TRY(sl__alloc(known->count, sizeof *seen, &seen));
    sl_status status = note_parameters(model, known, seen);
    for (size_t i = 0; i < known->count && !status; i++) {
        const char *name = known->data[i].name;
        if (!seen[i])
            status = sl_fail(SL_EINVAL, "no stage has the parameter '%s'",
                             sl__quoted(name, strlen(name), quoted));
    }
    free(seen);
    return status;
}

sl_status sl_model_check_parameters(const sl_model *model,
                                    const char *const *names, int count)
{
    SL__NEED(model);
    if (count > 0)
        SL__NEED(names);
    sl__names known = {0};
    sl_status status = SL_OK;
    for (int i = 0; i < count && !status; i++) {
        size_t place;
        status = names[i]
                     ? sl__intern(&known, names[i], &place)
                     : sl_fail(SL_EINVAL, "name %d of %d is NULL", i, count);
    }
    if (!status)
        status = sl__check_parameters(model, &known);
    sl__names_clear(&known);
    return status;
}

/* Whether an output of a stage is sent, or receives a gradient. */
static bool is_on_edge(const sl_model *model, int stage, const char *name)
{
    for (int i = 0; i < model->edge_count; i++) {
        const sl_edge *edge = &model->edges[i];
        if (edge->from == stage &&
            (strcmp(edge->name, name) == 0 ||
             (edge->gradient_name && strcmp(edge->gradient_name, name) == 0)))
            return true;
    }
    return false;
}

/* Compiles the graph of a stage without the outputs that nothing reads. If
 * there are no others, all are kept: a stage must compute something. */
static sl_status compile_loss_alone(const sl_model *model, int stage,
                                    const sl_stage_options *options,
                                    sl_stage **out)
{
    const sl_graph *graph = model->parts[stage].graph;
    const sl__names *outputs = &graph->outputs;
    sl_graph *copy = NULL;
    bool *left_out, keeps = false;
    SL__TRY(sl__alloc(outputs->count, sizeof *left_out, &left_out));
    for (size_t i = 0; i < outputs->count; i++) {
        left_out[i] = outputs->data[i].tensor != graph->loss &&
                      !is_on_edge(model, stage, outputs->data[i].name);
        keeps |= !left_out[i];
    }
    sl_status status = sl__graph_clone(graph, keeps ? left_out : NULL, &copy);
    if (!status)
        status = sl_stage_compile(copy, options, out);
    sl_graph_destroy(copy);
    free(left_out);
    return status;
}

sl_status sl__model_compile(const sl_model *model, int stage, bool loss_alone,
                            const sl_stage_options *options, sl_stage **out)
{
    if (!model->linked)
        return sl_fail(SL_EINVAL, "the model is not linked yet");
    if (stage < 0 || (size_t)stage >= model->part_count)
        return sl_fail(SL_EINVAL, "stage %d, expected 0 to %zu", stage,
                       model->part_count - 1);
    const sl__part *part = &model->parts[stage];
    if (!part->is_callbacks)
        return loss_alone ? compile_loss_alone(model, stage, options, out)
                          : sl_stage_compile(part->graph, options, out);
    sl_stage_description given = {.callbacks = part->callbacks,
                                  .context = part->context};
    return sl__stage_from_callbacks(&given, part->graph,
                                    options ? options->backend : NULL, out);
}

sl_status sl_model_compile(const sl_model *model, int stage,
                           const sl_stage_options *options, sl_stage **out)
{
    SL__NEED(model, out);
    return sl__model_compile(model, stage, false, options, out);
}

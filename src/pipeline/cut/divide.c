/* SPDX-License-Identifier: MIT
 *
 * From a graph and the first node of each stage to a graph per stage.
 *
 * Stages follow the order of the graph, so tensors only ever cross forward.
 * What crosses is the result of an op that computes, once, however many stages
 * read it and through whatever views: these make the views again, and the
 * copies that kernels need of some. Where all later stages read a part of it
 * alone, that part crosses. Gradients are left for linking to
 * settle: here every float that crosses may carry one. */
#include "pipeline/cut/model.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* What a stage is made of. */
typedef struct piece {
    sl__ints inputs;   /* of the model, by index */
    sl__ints leaves;   /* parameters and buffers, by id */
    sl__ints received; /* crossings */
    sl__ints sent;
    sl__ints outputs; /* of the model, by index */
} piece;

/* A result, or an input that entered at the first stage, and who reads it. */
typedef struct crossing {
    const sl_tensor *root;
    const sl_tensor *part; /* of the root, that crosses: all readers have it */
    const char *name;
    int producer;
    sl__ints consumers; /* ascending */
} crossing;

typedef struct divider {
    sl_model *model;
    const sl__items *items;
    const sl_graph *graph;
    const int *starts;
    int stages;
    sl_route route;
    sl_feed feed;
    piece *pieces;
    crossing *crossings;
    size_t crossing_count, crossing_capacity;
    int *roots;       /* by id: the tensor that it shows, itself mostly */
    int *seen;        /* by id of a root: the stage that used it last, +1 */
    int *crossing_of; /* by id of a root: +1 */
    int *views_of;    /* by id of a view: the stage being made needs it, +1 */
    int *next_name;   /* by name of a parameter: the next of the same, +1 */
    int *first_name;  /* by parameter, +1 */
    sl__names taken;  /* what no crossing may be called */
    sl__ints far;     /* views of the stage at hand from outside its nodes */
    sl__excerpt excerpt;
} divider;

/* The stage that a node belongs to: the last that starts at or before it. */
static int stage_at(const divider *d, int node)
{
    int low = 0, high = d->stages;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (d->starts[middle] <= node)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int end_of(const divider *d, int stage)
{
    return stage + 1 < d->stages ? d->starts[stage + 1] : d->items->live_end;
}

/* Whether a tensor shows another one: a view, or a copy of one. */
static bool is_view(const sl_tensor *tensor)
{
    return tensor->node && !sl__computes(tensor->node);
}

static const sl_tensor *above(const sl_tensor *view)
{
    return view->node->operands[0];
}

static void find_roots(divider *d)
{
    for (size_t i = 0; i < d->graph->tensor_count; i++) {
        const sl_tensor *tensor = d->graph->tensors[i];
        d->roots[i] = is_view(tensor) ? d->roots[above(tensor)->id] : (int)i;
    }
}

static const sl_tensor *root_of(const divider *d, const sl_tensor *tensor)
{
    return d->graph->tensors[d->roots[tensor->id]];
}

/* ------------------------------------------------------------- crossing -- */

/* The nearest view, or the root itself, that both are views of. */
static const sl_tensor *common(const sl_tensor *a, const sl_tensor *b)
{
    /* A view is made after what it is a view of. */
    while (a != b) {
        if (a->id > b->id)
            a = above(a);
        else
            b = above(b);
    }
    return a;
}

static sl_status add_reader(divider *d, const sl_tensor *tensor, int producer,
                            int stage)
{
    const sl_tensor *root = root_of(d, tensor);
    if (!d->crossing_of[root->id]) {
        sl_status status =
            sl__grow(&d->crossings, &d->crossing_capacity,
                     d->crossing_count + 1, sizeof *d->crossings);
        if (status)
            return status;
        d->crossings[d->crossing_count++] =
            (crossing){.root = root, .part = tensor, .producer = producer};
        d->crossing_of[root->id] = (int)d->crossing_count;
    }
    crossing *found = &d->crossings[d->crossing_of[root->id] - 1];
    found->part = common(found->part, tensor);
    sl__ints *consumers = &found->consumers;
    if (consumers->count && consumers->data[consumers->count - 1] == stage)
        return SL_OK;
    return sl__push(consumers, stage);
}

/* Notes that a stage reads a tensor. */
static sl_status note_use(divider *d, const sl_tensor *tensor, int stage)
{
    const sl_tensor *root = root_of(d, tensor);
    piece *own = &d->pieces[stage];
    bool is_new = d->seen[root->id] != stage + 1;
    d->seen[root->id] = stage + 1;
    switch (root->leaf) {
    case SL__PARAMETER:
    case SL__BUFFER: return is_new ? sl__push(&own->leaves, root->id) : SL_OK;
    case SL__INPUT:
        if (d->feed == SL_FEED_FIRST && stage > 0)
            return add_reader(d, root, 0, stage);
        return is_new ? sl__push(&own->inputs, root->leaf_index) : SL_OK;
    default: break;
    }
    int producer = stage_at(d, root->node->index);
    return producer == stage ? SL_OK : add_reader(d, tensor, producer, stage);
}

/* The stage that an output of the model leaves from. */
static int home_of(const divider *d, const sl_tensor *tensor)
{
    const sl_tensor *root = root_of(d, tensor);
    if (root->node)
        return stage_at(d, root->node->index);
    return root->leaf == SL__INPUT ? 0 : stage_at(d, root->born);
}

static sl_status note_outputs(divider *d)
{
    sl_status status = SL_OK;
    for (size_t i = 0; i < d->graph->outputs.count && !status; i++) {
        int home = home_of(d, d->graph->outputs.data[i].tensor);
        status = sl__push(&d->pieces[home].outputs, (int)i);
    }
    return status;
}

static sl_status note_uses(divider *d)
{
    sl_status status = note_outputs(d);
    for (int s = 0; s < d->stages && !status; s++) {
        for (int i = d->starts[s]; i < end_of(d, s) && !status; i++) {
            const sl__node *node = d->graph->nodes[i];
            for (int k = 0; k < node->operand_count && !status; k++) {
                if (d->items->live[i])
                    status = note_use(d, node->operands[k], s);
            }
        }
        const sl__ints *outputs = &d->pieces[s].outputs;
        for (size_t i = 0; i < outputs->count && !status; i++)
            status =
                note_use(d, d->graph->outputs.data[outputs->data[i]].tensor, s);
    }
    return status;
}

/* Parameters and buffers that nothing uses stay where they were made. */
static sl_status note_unused(divider *d, const sl__names *names)
{
    sl_status status = SL_OK;
    for (size_t i = 0; i < names->count && !status; i++) {
        const sl_tensor *tensor = names->data[i].tensor;
        if (d->seen[tensor->id])
            continue;
        d->seen[tensor->id] = 1;
        status =
            sl__push(&d->pieces[stage_at(d, tensor->born)].leaves, tensor->id);
    }
    return status;
}

/* What of the root crosses: on the way to the view that all readers share, the
 * smallest there is, and the first of these. */
static const sl_tensor *narrowest(const crossing *c)
{
    const sl_tensor *best = c->part;
    for (const sl_tensor *at = c->part; is_view(at);) {
        at = above(at);
        if (sl__count(at) <= sl__count(best))
            best = at;
    }
    return best;
}

/* A name for a crossing that is no input's and no output's of the model. */
static sl_status name_crossing(divider *d, crossing *c)
{
    sl__arena *arena = &d->model->arena;
    sl_status status = SL_OK;
    if (c->root->node)
        status = sl__name_op(d->items, arena, c->root->node, &c->name);
    else
        c->name = c->root->name;
    while (!status && sl__find_name(&d->taken, c->name)) {
        char text[1200];
        int length = snprintf(text, sizeof text, "%.1000s~", c->name);
        status = sl__arena_text(arena, text, (size_t)length, &c->name);
    }
    if (!status)
        status = sl__add_name(&d->taken, c->name, NULL, SL_NO_GRADIENT);
    return status;
}

static sl_status take_names(divider *d, const sl__names *names)
{
    sl_status status = SL_OK;
    for (size_t i = 0; i < names->count && !status; i++) {
        if (!sl__find_name(&d->taken, names->data[i].name))
            status = sl__add_name(&d->taken, names->data[i].name, NULL,
                                  SL_NO_GRADIENT);
    }
    return status;
}

/* Says which stages send and receive a crossing. */
static sl_status route(divider *d, int number)
{
    const crossing *c = &d->crossings[number];
    int last = c->consumers.data[c->consumers.count - 1];
    sl_status status = SL_OK;
    if (d->route == SL_ROUTE_DIRECT) {
        status = sl__push(&d->pieces[c->producer].sent, number);
        for (size_t i = 0; i < c->consumers.count && !status; i++)
            status =
                sl__push(&d->pieces[c->consumers.data[i]].received, number);
        return status;
    }
    for (int s = c->producer; s < last && !status; s++) {
        status = sl__push(&d->pieces[s].sent, number);
        if (!status)
            status = sl__push(&d->pieces[s + 1].received, number);
    }
    return status;
}

static int by_root(const void *left, const void *right)
{
    const crossing *a = left, *b = right;
    return (a->root->id > b->root->id) - (a->root->id < b->root->id);
}

/* Makes sure that the first stage has an input. */
static sl_status enter_first(divider *d, const sl_tensor *input)
{
    sl__ints *inputs = &d->pieces[0].inputs;
    for (size_t i = 0; i < inputs->count; i++) {
        if (inputs->data[i] == input->leaf_index)
            return SL_OK;
    }
    return sl__push(inputs, input->leaf_index);
}

static sl_status settle_crossings(divider *d)
{
    sl_status status = take_names(d, &d->graph->inputs);
    if (!status)
        status = take_names(d, &d->graph->outputs);
    if (d->crossing_count)
        qsort(d->crossings, d->crossing_count, sizeof *d->crossings, by_root);
    for (size_t i = 0; i < d->crossing_count && !status; i++) {
        crossing *c = &d->crossings[i];
        c->part = narrowest(c);
        status = name_crossing(d, c);
        if (!status)
            status = route(d, (int)i);
        if (!status && c->root->leaf == SL__INPUT)
            status = enter_first(d, c->root);
    }
    return status;
}

/* --------------------------------------------------------------- making -- */

static int ascending(const void *left, const void *right)
{
    const int *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void sort(sl__ints *ints)
{
    if (ints->count)
        qsort(ints->data, ints->count, sizeof *ints->data, ascending);
}

static sl_gradient may_carry(const sl_tensor *tensor)
{
    return sl__is_float(tensor->dtype) ? SL_GRADIENT : SL_NO_GRADIENT;
}

static sl_status make_inputs(divider *d, piece *own)
{
    const sl__names *inputs = &d->graph->inputs;
    sort(&own->inputs);
    for (size_t i = 0; i < own->inputs.count; i++) {
        const sl__named *input = &inputs->data[own->inputs.data[i]];
        sl__excerpt_input(&d->excerpt, input->tensor, input->name,
                          input->gradient);
    }
    for (size_t i = 0; i < own->received.count; i++) {
        const crossing *c = &d->crossings[own->received.data[i]];
        sl__excerpt_input(&d->excerpt, c->part, c->name, may_carry(c->part));
    }
    return sl_graph_status(d->excerpt.to);
}

static sl_status make_leaves(divider *d, piece *own)
{
    const sl_graph *graph = d->graph;
    sl_status status = SL_OK;
    sort(&own->leaves);
    for (size_t i = 0; i < own->leaves.count && !status; i++) {
        const sl_tensor *tensor = graph->tensors[own->leaves.data[i]];
        if (tensor->leaf == SL__BUFFER) {
            status = sl__excerpt_leaf(&d->excerpt,
                                      &graph->buffers.data[tensor->leaf_index]);
            continue;
        }
        int name = d->first_name[tensor->leaf_index];
        for (; name && !status; name = d->next_name[name - 1])
            status = sl__excerpt_leaf(&d->excerpt,
                                      &graph->parameters.data[name - 1]);
    }
    return status;
}

/* Marks the views between a tensor and what the stage has already. */
static sl_status want_views(divider *d, const sl_tensor *tensor, int stage)
{
    int first = d->starts[stage], end = end_of(d, stage);
    while (is_view(tensor) && !sl__find_twin(&d->excerpt, tensor) &&
           d->views_of[tensor->id] != stage + 1) {
        int node = tensor->node->index;
        d->views_of[tensor->id] = stage + 1;
        sl_status status =
            node < first || node >= end ? sl__push(&d->far, node) : SL_OK;
        if (status)
            return status;
        tensor = above(tensor);
    }
    return SL_OK;
}

static sl_status want_all_views(divider *d, const piece *own, int stage)
{
    sl_status status = SL_OK;
    d->far.count = 0;
    for (int i = d->starts[stage]; i < end_of(d, stage) && !status; i++) {
        const sl__node *node = d->graph->nodes[i];
        for (int k = 0; k < node->operand_count && !status; k++) {
            if (d->items->live[i])
                status = want_views(d, node->operands[k], stage);
        }
    }
    for (size_t i = 0; i < own->outputs.count && !status; i++)
        status = want_views(
            d, d->graph->outputs.data[own->outputs.data[i]].tensor, stage);
    for (size_t i = 0; i < own->sent.count && !status; i++)
        status = want_views(d, d->crossings[own->sent.data[i]].part, stage);
    sort(&d->far);
    return status;
}

static sl_status make_nodes(divider *d, const piece *own, int stage)
{
    const sl_graph *graph = d->graph;
    int end = end_of(d, stage);
    size_t far = 0;
    sl_status status = want_all_views(d, own, stage);
    while (!status && far < d->far.count && d->far.data[far] < end)
        status =
            sl__excerpt_node(&d->excerpt, graph->nodes[d->far.data[far++]]);
    for (int i = d->starts[stage]; i < end && !status; i++) {
        const sl__node *node = graph->nodes[i];
        bool wanted =
            d->items->live[i] || d->views_of[node->results[0]->id] == stage + 1;
        if (wanted)
            status = sl__excerpt_node(&d->excerpt, node);
    }
    while (!status && far < d->far.count)
        status =
            sl__excerpt_node(&d->excerpt, graph->nodes[d->far.data[far++]]);
    return status;
}

static sl_status make_outputs(divider *d, const piece *own)
{
    const sl_graph *graph = d->graph;
    sl_status status = SL_OK;
    for (size_t i = 0; i < own->outputs.count && !status; i++) {
        const sl__named *output = &graph->outputs.data[own->outputs.data[i]];
        bool is_loss =
            output->tensor == graph->loss && strcmp(output->name, "loss") == 0;
        status = sl__excerpt_output(&d->excerpt, output->tensor, output->name,
                                    output->gradient, is_loss);
    }
    for (size_t i = 0; i < own->sent.count && !status; i++) {
        const crossing *c = &d->crossings[own->sent.data[i]];
        status = sl__excerpt_output(&d->excerpt, c->part, c->name,
                                    may_carry(c->part), false);
    }
    return status;
}

static sl_status make_stage(divider *d, int stage)
{
    piece *own = &d->pieces[stage];
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    d->excerpt.to = graph;
    status = make_inputs(d, own);
    if (!status)
        status = make_leaves(d, own);
    if (!status)
        status = make_nodes(d, own, stage);
    if (!status)
        status = make_outputs(d, own);
    if (!status)
        status = sl__model_add(d->model, &(sl__part){.graph = graph},
                               &d->graph->inputs);
    if (status)
        sl_graph_destroy(graph);
    return status;
}

/* Chains the names of each parameter. */
static void chain_names(divider *d)
{
    const sl__names *names = &d->graph->parameters;
    for (size_t i = names->count; i-- > 0;) {
        int *first = &d->first_name[names->data[i].tensor->leaf_index];
        d->next_name[i] = *first;
        *first = (int)i + 1;
    }
}

static sl_status make_room(divider *d)
{
    const sl_graph *graph = d->graph;
    size_t tensors = graph->tensor_count;
    const struct {
        void *out;
        size_t count, size;
    } arrays[] = {
        {&d->pieces, (size_t)d->stages, sizeof *d->pieces},
        {&d->roots, tensors, sizeof *d->roots},
        {&d->seen, tensors, sizeof *d->seen},
        {&d->crossing_of, tensors, sizeof *d->crossing_of},
        {&d->views_of, tensors, sizeof *d->views_of},
        {&d->excerpt.twins, tensors, sizeof *d->excerpt.twins},
        {&d->next_name, graph->parameters.count, sizeof *d->next_name},
        {&d->first_name, (size_t)graph->parameter_count, sizeof *d->first_name},
    };
    sl_status status = SL_OK;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !status; i++)
        status = sl__alloc(arrays[i].count, arrays[i].size, arrays[i].out);
    d->excerpt.from = graph;
    return status;
}

static void clear(divider *d)
{
    for (int s = 0; s < d->stages && d->pieces; s++) {
        piece *own = &d->pieces[s];
        free(own->inputs.data);
        free(own->leaves.data);
        free(own->received.data);
        free(own->sent.data);
        free(own->outputs.data);
    }
    for (size_t i = 0; i < d->crossing_count; i++)
        free(d->crossings[i].consumers.data);
    free(d->pieces);
    free(d->crossings);
    free(d->roots);
    free(d->seen);
    free(d->crossing_of);
    free(d->views_of);
    free(d->excerpt.twins);
    free(d->next_name);
    free(d->first_name);
    free(d->far.data);
    sl__names_clear(&d->taken);
}

sl_status sl__divide(sl_model *model, const sl__items *items, const int *starts,
                     int stages, sl_route how, sl_feed feed)
{
    divider d = {.model = model,
                 .items = items,
                 .graph = items->graph,
                 .starts = starts,
                 .stages = stages,
                 .route = how,
                 .feed = feed};
    sl_status status = make_room(&d);
    if (!status) {
        chain_names(&d);
        find_roots(&d);
        status = note_uses(&d);
    }
    if (!status)
        status = note_unused(&d, &d.graph->parameters);
    if (!status)
        status = note_unused(&d, &d.graph->buffers);
    if (!status)
        status = settle_crossings(&d);
    for (int s = 0; s < stages && !status; s++)
        status = make_stage(&d, s);
    clear(&d);
    return status;
}

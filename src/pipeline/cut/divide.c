/* SPDX-License-Identifier: MIT
 *
 * Makes a graph per stage from a graph and the first node of each stage.
 *
 * Stages follow the order of the graph, so tensors only cross forward. The
 * result of an op that computes crosses once, however many stages read it and
 * through whatever views: the reading stages make the views again, and the
 * copies and casts of some. Where all later stages read only a part of
 * a result, only that part crosses. link.c decides where gradients flow: here
 * every float that crosses may carry one. */
#include "pipeline/cut/model.h"

#include "base/try.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of a stage. */
typedef struct piece {
    sl__ints inputs;   /* of the model, by index */
    sl__ints leaves;   /* parameters and buffers, by id */
    sl__ints received; /* crossings */
    sl__ints sent;
    sl__ints outputs; /* of the model, by index */
} piece;

/* A result of an op, or an input that enters at the first stage, and its
 * readers. */
typedef struct crossing {
    const sl_tensor *root;
    const sl_tensor *part; /* the view of root that crosses: all read it */
    const char *name;
    int producer;
    sl__ints consumers; /* ascending */
} crossing;

typedef struct divider {
    sl__arena arena; /* freed when dividing is done */
    sl_model *model;
    const sl__items *items;
    const sl_graph *graph;
    const int *starts;
    int stages;
    sl_route route;
    sl_feed feed;
    piece *pieces;
    crossing *crossings;
    int crossing_count;
    int *roots;       /* by id: the tensor that it is a view of, or itself */
    int *seen;        /* by id of a root: the stage that used it last, +1 */
    int *crossing_of; /* by id of a root: +1 */
    int *views_of;    /* by id of a view: the last stage that needs it, +1 */
    int *next_name;   /* by parameter name: the next of that parameter, +1 */
    int *first_name;  /* by parameter, +1 */
    sl__names taken;  /* names that a crossing must not have */
    sl__ints outside; /* views that the stage needs and does not contain */
    sl__excerpt excerpt;
} divider;

/* The stage of a node: the last that starts at or before it. */
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

/* Whether a tensor is a view of another one, or a copy or cast of such. */
static bool is_view(const sl_tensor *tensor)
{
    return tensor->node && !sl__computes(tensor->node);
}

static const sl_tensor *viewed_by(const sl_tensor *view)
{
    return view->node->operands[0];
}

static void find_roots(divider *d)
{
    for (size_t i = 0; i < d->graph->tensor_count; i++) {
        const sl_tensor *tensor = d->graph->tensors[i];
        d->roots[i] =
            is_view(tensor) ? d->roots[viewed_by(tensor)->id] : (int)i;
    }
}

static const sl_tensor *root_of(const divider *d, const sl_tensor *tensor)
{
    return d->graph->tensors[d->roots[tensor->id]];
}

/* ------------------------------------------------------------- crossing -- */

/* The nearest common ancestor of two tensors: a view, or their root. */
static const sl_tensor *common(const sl_tensor *a, const sl_tensor *b)
{
    /* The id of a view is larger than that of its operand. */
    while (a != b) {
        if (a->id > b->id)
            a = viewed_by(a);
        else
            b = viewed_by(b);
    }
    return a;
}

static sl_status add_reader(divider *d, const sl_tensor *tensor, int producer,
                            int stage)
{
    const sl_tensor *root = root_of(d, tensor);
    assert(producer < stage);
    if (!d->crossing_of[root->id]) {
        const crossing new_one = {
            .root = root, .part = tensor, .producer = producer};
        SL__TRY(sl__append(&d->arena, &d->crossings, &d->crossing_count,
                           sizeof new_one, &new_one));
        d->crossing_of[root->id] = d->crossing_count;
    }
    crossing *found = &d->crossings[d->crossing_of[root->id] - 1];
    found->part = common(found->part, tensor);
    sl__ints *consumers = &found->consumers;
    if (consumers->count && consumers->data[consumers->count - 1] == stage)
        return SL_OK;
    return sl__push(&d->arena, consumers, stage);
}

/* Records that a stage reads a tensor. */
static sl_status note_use(divider *d, const sl_tensor *tensor, int stage)
{
    const sl_tensor *root = root_of(d, tensor);
    piece *own = &d->pieces[stage];
    bool is_new = d->seen[root->id] != stage + 1;
    d->seen[root->id] = stage + 1;
    switch (root->leaf) {
    case SL__PARAMETER:
    case SL__BUFFER:
        return is_new ? sl__push(&d->arena, &own->leaves, root->id) : SL_OK;
    case SL__INPUT:
        if (d->feed == SL_FEED_FIRST && stage > 0)
            return add_reader(d, root, 0, stage);
        return is_new ? sl__push(&d->arena, &own->inputs, root->leaf_index)
                      : SL_OK;
    default: break;
    }
    int producer = stage_at(d, root->node->index);
    return producer == stage ? SL_OK : add_reader(d, tensor, producer, stage);
}

/* The stage that produces an output of the model. */
static int home_of(const divider *d, const sl_tensor *tensor)
{
    const sl_tensor *root = root_of(d, tensor);
    if (root->node)
        return stage_at(d, root->node->index);
    return root->leaf == SL__INPUT ? 0 : stage_at(d, root->born);
}

static sl_status note_uses(divider *d)
{
    const sl__names *outputs = &d->graph->outputs;
    for (size_t i = 0; i < outputs->count; i++) {
        int home = home_of(d, outputs->data[i].tensor);
        SL__TRY(sl__push(&d->arena, &d->pieces[home].outputs, (int)i));
    }
    for (int s = 0; s < d->stages; s++) {
        for (int i = d->starts[s]; i < end_of(d, s); i++) {
            const sl__node *node = d->graph->nodes[i];
            for (int k = 0; k < node->operand_count && d->items->live[i]; k++)
                SL__TRY(note_use(d, node->operands[k], s));
        }
        const sl__ints *own = &d->pieces[s].outputs;
        for (int i = 0; i < own->count; i++)
            SL__TRY(note_use(d, outputs->data[own->data[i]].tensor, s));
    }
    return SL_OK;
}

/* Parameters and buffers that nothing uses go to the stage in whose nodes they
 * were made. */
static sl_status note_unused(divider *d, const sl__names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        const sl_tensor *tensor = names->data[i].tensor;
        if (d->seen[tensor->id])
            continue;
        piece *home = &d->pieces[stage_at(d, tensor->born)];
        d->seen[tensor->id] = 1;
        SL__TRY(sl__push(&d->arena, &home->leaves, tensor->id));
    }
    return SL_OK;
}

/* The part of the root that crosses: of the views from the root to the nearest
 * that all readers share, the one of the fewest bytes, and of equal ones the
 * nearest to the root. */
static const sl_tensor *narrowest(const crossing *c)
{
    const sl_tensor *best = c->part;
    for (const sl_tensor *at = c->part; is_view(at);) {
        at = viewed_by(at);
        if (sl__bytes(at) <= sl__bytes(best))
            best = at;
    }
    return best;
}

/* Names a crossing so that no input or output of the model has that name. */
static sl_status name_crossing(divider *d, crossing *c)
{
    sl__arena *arena = &d->model->arena;
    c->name = c->root->name;
    if (c->root->node)
        SL__TRY(sl__name_op(d->items, arena, c->root->node, &c->name));
    while (sl__find_name(&d->taken, c->name)) {
        char text[1200];
        int length = snprintf(text, sizeof text, "%.1000s~", c->name);
        SL__TRY(sl__arena_text(arena, text, (size_t)length, &c->name));
    }
    return sl__add_name(&d->taken, c->name, NULL, SL_NO_GRADIENT);
}

static sl_status take_names(divider *d, const sl__names *names)
{
    size_t place;
    for (size_t i = 0; i < names->count; i++)
        SL__TRY(sl__intern(&d->taken, names->data[i].name, &place));
    return SL_OK;
}

static sl_status add_edge(divider *d, int number, int from, int to)
{
    piece *sender = &d->pieces[from];
    const sl__ints *sent = &sender->sent;
    if (sent->count == 0 || sent->data[sent->count - 1] != number)
        SL__TRY(sl__push(&d->arena, &sender->sent, number));
    return sl__push(&d->arena, &d->pieces[to].received, number);
}

/* Lists a crossing with the stages that send and receive it. */
static sl_status route(divider *d, int number)
{
    const crossing *c = &d->crossings[number];
    const sl__ints *consumers = &c->consumers;
    int last = consumers->data[consumers->count - 1];
    if (d->route == SL_ROUTE_DIRECT) {
        for (int i = 0; i < consumers->count; i++)
            SL__TRY(add_edge(d, number, c->producer, consumers->data[i]));
        return SL_OK;
    }
    for (int s = c->producer; s < last; s++)
        SL__TRY(add_edge(d, number, s, s + 1));
    return SL_OK;
}

static int by_root(const void *left, const void *right)
{
    const crossing *a = left, *b = right;
    return (a->root->id > b->root->id) - (a->root->id < b->root->id);
}

/* Adds an input to the first stage, if it does not have it. */
static sl_status enter_first(divider *d, const sl_tensor *input)
{
    sl__ints *inputs = &d->pieces[0].inputs;
    for (int i = 0; i < inputs->count; i++) {
        if (inputs->data[i] == input->leaf_index)
            return SL_OK;
    }
    return sl__push(&d->arena, inputs, input->leaf_index);
}

static sl_status finish_crossings(divider *d)
{
    SL__TRY(take_names(d, &d->graph->inputs));
    SL__TRY(take_names(d, &d->graph->outputs));
    if (d->crossing_count)
        qsort(d->crossings, (size_t)d->crossing_count, sizeof *d->crossings,
              by_root);
    for (int i = 0; i < d->crossing_count; i++) {
        crossing *c = &d->crossings[i];
        c->part = narrowest(c);
        SL__TRY(name_crossing(d, c));
        SL__TRY(route(d, i));
        if (c->root->leaf == SL__INPUT)
            SL__TRY(enter_first(d, c->root));
    }
    return SL_OK;
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
        qsort(ints->data, (size_t)ints->count, sizeof *ints->data, ascending);
}

static sl_gradient may_carry(const sl_tensor *tensor)
{
    return sl__is_float(tensor->dtype) ? SL_GRADIENT : SL_NO_GRADIENT;
}

static sl_status make_inputs(divider *d, piece *own)
{
    const sl__names *inputs = &d->graph->inputs;
    sort(&own->inputs);
    for (int i = 0; i < own->inputs.count; i++) {
        const sl__named *input = &inputs->data[own->inputs.data[i]];
        sl__excerpt_input(&d->excerpt, input->tensor, input->name,
                          input->gradient);
    }
    for (int i = 0; i < own->received.count; i++) {
        const crossing *c = &d->crossings[own->received.data[i]];
        sl__excerpt_input(&d->excerpt, c->part, c->name, may_carry(c->part));
    }
    return sl_graph_status(d->excerpt.to);
}

static sl_status make_leaves(divider *d, piece *own)
{
    const sl_graph *graph = d->graph;
    sort(&own->leaves);
    for (int i = 0; i < own->leaves.count; i++) {
        const sl_tensor *tensor = graph->tensors[own->leaves.data[i]];
        if (tensor->leaf == SL__BUFFER) {
            SL__TRY(sl__excerpt_leaf(&d->excerpt,
                                     &graph->buffers.data[tensor->leaf_index]));
            continue;
        }
        int name = d->first_name[tensor->leaf_index];
        for (; name; name = d->next_name[name - 1])
            SL__TRY(sl__excerpt_leaf(&d->excerpt,
                                     &graph->parameters.data[name - 1]));
    }
    return SL_OK;
}

/* Marks the views from a tensor back to one that the stage has already. */
static sl_status want_views(divider *d, const sl_tensor *tensor, int stage)
{
    int first = d->starts[stage], end = end_of(d, stage);
    while (is_view(tensor) && !sl__find_twin(&d->excerpt, tensor) &&
           d->views_of[tensor->id] != stage + 1) {
        int node = tensor->node->index;
        d->views_of[tensor->id] = stage + 1;
        if (node < first || node >= end)
            SL__TRY(sl__push(&d->arena, &d->outside, node));
        tensor = viewed_by(tensor);
    }
    return SL_OK;
}

static sl_status want_all_views(divider *d, const piece *own, int stage)
{
    const sl__named *outputs = d->graph->outputs.data;
    d->outside = (sl__ints){0};
    for (int i = d->starts[stage]; i < end_of(d, stage); i++) {
        const sl__node *node = d->graph->nodes[i];
        for (int k = 0; k < node->operand_count && d->items->live[i]; k++)
            SL__TRY(want_views(d, node->operands[k], stage));
    }
    for (int i = 0; i < own->outputs.count; i++)
        SL__TRY(want_views(d, outputs[own->outputs.data[i]].tensor, stage));
    for (int i = 0; i < own->sent.count; i++)
        SL__TRY(want_views(d, d->crossings[own->sent.data[i]].part, stage));
    sort(&d->outside);
    return SL_OK;
}

/* Copies the views from outside the stage that come before node `end`. */
static sl_status make_outside(divider *d, int end, int *at)
{
    for (; *at < d->outside.count && d->outside.data[*at] < end; ++*at)
        SL__TRY(sl__excerpt_node(&d->excerpt,
                                 d->graph->nodes[d->outside.data[*at]]));
    return SL_OK;
}

static sl_status make_nodes(divider *d, const piece *own, int stage)
{
    int end = end_of(d, stage), outside = 0;
    SL__TRY(want_all_views(d, own, stage));
    SL__TRY(make_outside(d, end, &outside));
    for (int i = d->starts[stage]; i < end; i++) {
        const sl__node *node = d->graph->nodes[i];
        if (d->items->live[i] || d->views_of[node->results[0]->id] == stage + 1)
            SL__TRY(sl__excerpt_node(&d->excerpt, node));
    }
    return make_outside(d, INT32_MAX, &outside);
}

static sl_status make_outputs(divider *d, const piece *own)
{
    const sl_graph *graph = d->graph;
    for (int i = 0; i < own->outputs.count; i++) {
        const sl__named *output = &graph->outputs.data[own->outputs.data[i]];
        bool is_loss =
            output->tensor == graph->loss && strcmp(output->name, "loss") == 0;
        SL__TRY(sl__excerpt_output(&d->excerpt, output->tensor, output->name,
                                   output->gradient, is_loss));
    }
    for (int i = 0; i < own->sent.count; i++) {
        const crossing *c = &d->crossings[own->sent.data[i]];
        SL__TRY(sl__excerpt_output(&d->excerpt, c->part, c->name,
                                   may_carry(c->part), false));
    }
    return SL_OK;
}

static sl_status fill_stage(divider *d, int stage)
{
    piece *own = &d->pieces[stage];
    SL__TRY(make_inputs(d, own));
    SL__TRY(make_leaves(d, own));
    SL__TRY(make_nodes(d, own, stage));
    SL__TRY(make_outputs(d, own));
    return sl__model_add(d->model, &(sl__part){.graph = d->excerpt.to},
                         &d->graph->inputs);
}

static sl_status make_stage(divider *d, int stage)
{
    SL__TRY(sl_graph_create(&d->excerpt.to));
    sl_status status = fill_stage(d, stage);
    if (status)
        sl_graph_destroy(d->excerpt.to);
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
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        SL__TRY(sl__arena_take(&d->arena, arrays[i].count, arrays[i].size,
                               arrays[i].out));
    return SL_OK;
}

static sl_status divide(divider *d)
{
    SL__TRY(make_room(d));
    chain_names(d);
    find_roots(d);
    SL__TRY(note_uses(d));
    SL__TRY(note_unused(d, &d->graph->parameters));
    SL__TRY(note_unused(d, &d->graph->buffers));
    SL__TRY(finish_crossings(d));
    for (int s = 0; s < d->stages; s++)
        SL__TRY(make_stage(d, s));
    return SL_OK;
}

sl_status sl__divide(sl_model *model, const sl__items *items,
                     const sl__ints *starts, sl_route how, sl_feed feed)
{
    divider d = {.model = model,
                 .items = items,
                 .graph = items->graph,
                 .starts = starts->data,
                 .stages = starts->count,
                 .route = how,
                 .feed = feed,
                 .excerpt = {.from = items->graph}};
    for (int s = 1; s < starts->count; s++)
        assert(starts->data[s - 1] < starts->data[s]);
    sl_status status = divide(&d);
    sl__arena_clear(&d.arena);
    sl__names_clear(&d.taken);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Items: the units that a cut goes between. Model code nests modules in
 * modules; a model is usually cut between the members of its numbered lists,
 * `h.0` to `h.11`, and the modules next to such a list. So a module that
 * contains such a list is opened; one that does not, or that is in a list
 * itself, is kept as one item. A matrix product outside all kept modules is an
 * item of its own; any other op there, such as a loss, belongs to the item
 * before it.
 *
 * Only live nodes count: those that compute, and that an output depends on.
 * Views, and the copies that kernels need of some, are repeated in each stage
 * that needs them. They depend on sizes; which ops compute does not. */
#include "pipeline/cut/model.h"

#include "base/try.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool sl__computes(const sl__node *node)
{
    return !(sl__ops[node->op].traits & SL__VIEW) && node->op != SL__COPY &&
           node->op != SL__CAST;
}

static void find_live(sl__items *items, bool *wanted)
{
    const sl_graph *graph = items->graph;
    for (size_t i = 0; i < graph->outputs.count; i++)
        wanted[graph->outputs.data[i].tensor->id] = true;
    items->first_live = items->live_end = (int)graph->node_count;
    for (size_t i = graph->node_count; i-- > 0;) {
        const sl__node *node = graph->nodes[i];
        if (!wanted[node->results[0]->id])
            continue;
        for (int k = 0; k < node->operand_count; k++)
            wanted[node->operands[k]->id] = true;
        items->live[i] = sl__computes(node);
        if (items->live[i])
            items->first_live = (int)i;
    }
    int number = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        items->numbers[i] = number;
        number += items->live[i];
    }
    items->live_count = number;
}

/* -------------------------------------------------------------- modules -- */

/* Whether the last part of a name is a number. */
static bool is_numbered(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *at = dot ? dot + 1 : name;
    for (; *at; at++) {
        if (!isdigit((unsigned char)*at))
            return false;
    }
    return true;
}

/* For every module, the first of the same name: a scope can be entered several
 * times. */
static sl_status find_firsts(sl__items *items, sl__names *names, int *firsts)
{
    const sl_graph *graph = items->graph;
    sl__ints modules = {0}; /* by place in `names` */
    for (size_t m = 1; m <= graph->module_count; m++) {
        size_t place;
        SL__TRY(sl__intern(names, graph->modules[m - 1].name, &place));
        if (place == (size_t)modules.count)
            SL__TRY(sl__push(&items->arena, &modules, (int)m));
        firsts[m] = modules.data[place];
    }
    return SL_OK;
}

/* For every module, the kept module that it is or is in; 0 where it and all
 * modules around it are opened. */
static sl_status find_kept(sl__items *items, int **out)
{
    const sl_graph *graph = items->graph;
    size_t count = graph->module_count + 1;
    int *kept, *firsts;
    bool *opened, *in_list;
    sl__names names = {0};
    SL__TRY(sl__arena_take(&items->arena, count, sizeof *kept, &kept));
    SL__TRY(sl__arena_take(&items->arena, count, sizeof *firsts, &firsts));
    SL__TRY(sl__arena_take(&items->arena, count, sizeof *opened, &opened));
    SL__TRY(sl__arena_take(&items->arena, count, sizeof *in_list, &in_list));
    sl_status status = find_firsts(items, &names, firsts);
    sl__names_clear(&names);
    if (status)
        return status;
    /* A module comes after the one that contains it. */
    for (size_t m = count; m-- > 1;) {
        const sl__module *module = &graph->modules[m - 1];
        if (opened[firsts[m]] || is_numbered(module->name))
            opened[firsts[module->parent]] = true;
    }
    for (size_t m = 1; m < count; m++) {
        const sl__module *module = &graph->modules[m - 1];
        in_list[m] = in_list[module->parent] || is_numbered(module->name);
        kept[m] = kept[module->parent];
        if (!kept[m] && (!opened[firsts[m]] || in_list[m]))
            kept[m] = (int)m;
    }
    *out = kept;
    return SL_OK;
}

sl_status sl__name_op(const sl__items *items, sl__arena *arena,
                      const sl__node *node, const char **out)
{
    const sl_graph *graph = items->graph;
    char text[SL__SCOPE_MAX + 64];
    const char *module =
        node->module ? graph->modules[node->module - 1].name : "";
    int length =
        snprintf(text, sizeof text, "%s%s%s.%d", module, *module ? "." : "",
                 sl__ops[node->op].name, items->numbers[node->index]);
    return sl__arena_text(arena, text, (size_t)length, out);
}

/* Whether a node belongs to the item before it: because it is in the same
 * module, even if its scope was left and entered again; because it is in a
 * region that must stay whole; or because it is outside of modules and no
 * matrix product. */
static bool continues(const sl__items *items, const sl__node *node,
                      const sl__module *module, bool inside)
{
    if (items->count == 0)
        return false;
    if (sl__is_divided(items, node->index))
        return true;
    if (!module)
        return !inside && sl__product_flops(node) == 0;
    const sl__item *before = &items->data[items->count - 1];
    return before->is_module && (before->name == module->name ||
                                 strcmp(before->name, module->name) == 0);
}

static sl_status list_items(sl__items *items, const int *kept,
                            const bool *reached)
{
    const sl_graph *graph = items->graph;
    for (size_t i = 0; i < graph->node_count; i++) {
        const sl__node *node = graph->nodes[i];
        if (!items->live[i])
            continue;
        int m = kept ? kept[node->module] : 0;
        const sl__module *module = m ? &graph->modules[m - 1] : NULL;
        if (!continues(items, node, module, !kept)) {
            sl__item item = {.first = (int)i, .is_module = module};
            if (module)
                item.name = module->name;
            else
                SL__TRY(sl__name_op(items, &items->arena, node, &item.name));
            SL__TRY(sl__append(&items->arena, &items->data, &items->count,
                               sizeof item, &item));
        }
        items->data[items->count - 1].cost +=
            sl__training_flops(node, reached[node->results[0]->id]);
    }
    return SL_OK;
}

/* The node whose result a tensor is, or is a view of; NULL for a leaf. */
static const sl__node *maker_of(const sl_tensor *tensor)
{
    while (tensor->node && !sl__computes(tensor->node))
        tensor = tensor->node->operands[0];
    return tensor->node;
}

/* Sums the bytes that cross the boundary before each item: results of nodes
 * before it that a later node reads. */
static sl_status measure_boundaries(sl__items *items)
{
    const sl_graph *graph = items->graph;
    int *last_use; /* by node: the last that reads a result of it */
    double *bytes; /* by node: what begins to cross after it, less what ends */
    SL__TRY(sl__arena_take(&items->arena, graph->node_count, sizeof *last_use,
                           &last_use));
    SL__TRY(sl__arena_take(&items->arena, graph->node_count + 1, sizeof *bytes,
                           &bytes));
    for (size_t i = 0; i < graph->node_count; i++) {
        const sl__node *node = graph->nodes[i];
        for (int k = 0; k < node->operand_count && items->live[i]; k++) {
            const sl__node *maker = maker_of(node->operands[k]);
            if (maker)
                last_use[maker->index] = (int)i;
        }
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        if (!items->live[i] || !last_use[i])
            continue;
        double own = (double)sl__bytes(graph->nodes[i]->results[0]);
        bytes[i + 1] += own;
        bytes[last_use[i] + 1] -= own;
    }
    double crossing = 0;
    int at = 0;
    for (int k = 0; k < items->count; k++) {
        for (; at <= items->data[k].first; at++)
            crossing += bytes[at];
        items->data[k].bytes = crossing;
    }
    return SL_OK;
}

/* -------------------------------------------------------------- reading -- */

int sl__next_live(const sl__items *items, int node)
{
    while (node < items->live_end && !items->live[node])
        node++;
    return node;
}

bool sl__is_divided(const sl__items *items, int node)
{
    const sl_graph *graph = items->graph;
    /* Regions do not overlap: finds the last that begins before the node. */
    size_t low = 0, high = graph->region_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (graph->regions[middle].first < node)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    const sl__region *region = &graph->regions[low - 1];
    return node < region->end && sl__next_live(items, region->first) < node;
}

const char *sl__list_items(const sl__items *items, char out[SL__LIST_TEXT])
{
    size_t used = 0;
    int shown = 0;
    out[0] = '\0';
    while (shown < items->count) {
        const char *name = items->data[shown].name;
        if (used + strlen(name) + 40 > SL__LIST_TEXT)
            break;
        used += (size_t)snprintf(out + used, SL__LIST_TEXT - used, "%s%s",
                                 shown ? ", " : "", name);
        shown++;
    }
    if (shown < items->count)
        snprintf(out + used, SL__LIST_TEXT - used, "%s%d more",
                 shown ? " and " : "", items->count - shown);
    return out;
}

/* -------------------------------------------------------------- finding -- */

static sl_status find_items(sl__items *items, bool inside)
{
    const sl_graph *graph = items->graph;
    bool *wanted, *reached;
    int *kept = NULL;
    SL__TRY(sl__arena_take(&items->arena, graph->node_count,
                           sizeof *items->live, &items->live));
    SL__TRY(sl__arena_take(&items->arena, graph->node_count,
                           sizeof *items->numbers, &items->numbers));
    SL__TRY(sl__arena_take(&items->arena, graph->tensor_count, sizeof *wanted,
                           &wanted));
    find_live(items, wanted);
    if (items->first_live == items->live_end)
        return sl_fail(SL_EINVAL, "the graph computes nothing to be cut");
    if (!inside)
        SL__TRY(find_kept(items, &kept));
    SL__TRY(sl__compute_reached(graph, &items->arena, &reached));
    SL__TRY(list_items(items, kept, reached));
    assert(items->data[0].first == items->first_live);
    return measure_boundaries(items);
}

sl_status sl__find_items(const sl_graph *graph, bool inside, sl__items *out)
{
    *out = (sl__items){.graph = graph};
    sl_status status = find_items(out, inside);
    if (status)
        sl__items_clear(out);
    return status;
}

void sl__items_clear(sl__items *items)
{
    sl__arena_clear(&items->arena);
}

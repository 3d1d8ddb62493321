/* SPDX-License-Identifier: MIT
 *
 * What a cut goes between. Model code nests modules in modules; those between
 * which people cut are the members of its numbered lists, `h.0` to `h.11`, and
 * what stands beside these: a module that holds such a list is opened, one that
 * does not, or that is in a list itself, is kept. A product of matrices in no
 * kept module is an item of its own; smaller ops, a loss say, go with what is
 * before them.
 *
 * Only nodes that compute, and that something depends on, count. Views, and the
 * copies that kernels need of some, are made wherever they are needed; which
 * there are depends on sizes, the ops that compute do not. */
#include "pipeline/cut/model.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool sl__computes(const sl__node *node)
{
    return !(sl__ops[node->op].traits & SL__VIEW) && node->op != SL__COPY;
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

/* For every module the first of its name: scopes are entered more than once. */
static sl_status find_firsts(const sl_graph *graph, int *firsts)
{
    sl__names names = {0};
    sl__ints modules = {0};
    sl_status status = SL_OK;
    for (size_t m = 1; m <= graph->module_count && !status; m++) {
        const char *name = graph->modules[m - 1].name;
        const sl__named *known = sl__find_name(&names, name);
        if (!known) {
            status = sl__add_name(&names, name, NULL, SL_NO_GRADIENT);
            if (!status)
                status = sl__push(&modules, (int)m);
        }
        if (!status)
            firsts[m] = known ? modules.data[known - names.data] : (int)m;
    }
    sl__names_clear(&names);
    free(modules.data);
    return status;
}

/* For every module, itself or the module around it that is kept; 0: both it and
 * those around it are opened. */
static sl_status find_kept(sl__items *items, int **out)
{
    const sl_graph *graph = items->graph;
    size_t count = graph->module_count + 1;
    int *kept, *firsts;
    bool *opened, *in_list;
    const struct {
        void *out;
        size_t size;
    } arrays[] = {{&kept, sizeof *kept},
                  {&firsts, sizeof *firsts},
                  {&opened, sizeof *opened},
                  {&in_list, sizeof *in_list}};
    sl_status status = SL_OK;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !status; i++)
        status =
            sl__arena_take(&items->arena, count, arrays[i].size, arrays[i].out);
    if (!status)
        status = find_firsts(graph, firsts);
    if (status)
        return status;
    /* A module comes after the one it is in. */
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

static sl_status add_item(sl__items *items, const char *name, int first,
                          bool is_module)
{
    sl_status status = sl__grow(&items->data, &items->capacity,
                                items->count + 1, sizeof *items->data);
    if (!status)
        items->data[items->count++] =
            (sl__item){.name = name, .first = first, .is_module = is_module};
    return status;
}

/* Whether a node belongs to the item before it: to the same module, also where
 * its scope was left and entered again; to what is to stay whole; or for being
 * too small. */
static bool continues(const sl__items *items, const sl__node *node,
                      const sl__module *module, bool inside)
{
    if (items->count == 0)
        return false;
    if (sl__divided(items, node->index))
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
    sl_status status = SL_OK;
    for (size_t i = 0; i < graph->node_count && !status; i++) {
        const sl__node *node = graph->nodes[i];
        if (!items->live[i])
            continue;
        int m = kept ? kept[node->module] : 0;
        const sl__module *module = m ? &graph->modules[m - 1] : NULL;
        if (!continues(items, node, module, !kept)) {
            const char *name = module ? module->name : NULL;
            if (!module)
                status = sl__name_op(items, &items->arena, node, &name);
            if (!status)
                status = add_item(items, name, (int)i, module != NULL);
        }
        if (!status)
            items->data[items->count - 1].cost +=
                sl__training_flops(node, reached[node->results[0]->id]);
    }
    return status;
}

/* The node whose result a tensor shows, itself or through views; NULL where it
 * is a leaf. */
static const sl__node *maker_of(const sl_tensor *tensor)
{
    while (tensor->node && !sl__computes(tensor->node))
        tensor = tensor->node->operands[0];
    return tensor->node;
}

/* Adds up what crosses the boundary before each item: the results of nodes
 * before it that a node behind it reads. */
static sl_status measure_boundaries(sl__items *items)
{
    const sl_graph *graph = items->graph;
    int *last_use; /* by node: of the last that reads a result of it */
    double *bytes = NULL;
    sl_status status =
        sl__alloc(graph->node_count, sizeof *last_use, &last_use);
    if (status)
        return status;
    /* By node: what begins to cross behind it, less what ends there. */
    status = sl__alloc(graph->node_count + 1, sizeof *bytes, &bytes);
    for (size_t i = 0; i < graph->node_count && !status; i++) {
        const sl__node *node = graph->nodes[i];
        for (int k = 0; k < node->operand_count && items->live[i]; k++) {
            const sl__node *maker = maker_of(node->operands[k]);
            if (maker)
                last_use[maker->index] = (int)i;
        }
    }
    for (size_t i = 0; i < graph->node_count && !status; i++) {
        if (!items->live[i] || !last_use[i])
            continue;
        double own = (double)sl__bytes(graph->nodes[i]->results[0]);
        bytes[i + 1] += own;
        bytes[last_use[i] + 1] -= own;
    }
    double crossing = 0;
    size_t at = 0;
    for (size_t k = 0; k < items->count && !status; k++) {
        for (; at <= (size_t)items->data[k].first; at++)
            crossing += bytes[at];
        items->data[k].bytes = crossing;
    }
    free(last_use);
    free(bytes);
    return status;
}

/* -------------------------------------------------------------- reading -- */

int sl__next_live(const sl__items *items, int node)
{
    while (node < items->live_end && !items->live[node])
        node++;
    return node;
}

const sl__region *sl__divided(const sl__items *items, int node)
{
    const sl_graph *graph = items->graph;
    /* Regions follow one another: the last that begins before the node. */
    size_t low = 0, high = graph->region_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (graph->regions[middle].first < node)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const sl__region *region = &graph->regions[low - 1];
    bool inside =
        node < region->end && sl__next_live(items, region->first) < node;
    return inside ? region : NULL;
}

const char *sl__list_items(const sl__items *items, char out[SL__LIST_TEXT])
{
    size_t used = 0, shown = 0;
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
        snprintf(out + used, SL__LIST_TEXT - used, "%s%zu more",
                 shown ? " and " : "", items->count - shown);
    return out;
}

/* -------------------------------------------------------------- finding -- */

static sl_status find_items(sl__items *items, bool inside)
{
    const sl_graph *graph = items->graph;
    bool *wanted, *reached;
    int *kept = NULL;
    sl_status status = sl__arena_take(&items->arena, graph->node_count,
                                      sizeof *items->live, &items->live);
    if (!status)
        status = sl__arena_take(&items->arena, graph->node_count,
                                sizeof *items->numbers, &items->numbers);
    if (!status)
        status = sl__arena_take(&items->arena, graph->tensor_count,
                                sizeof *wanted, &wanted);
    if (status)
        return status;
    find_live(items, wanted);
    if (items->first_live == items->live_end)
        return sl_fail(SL_EINVAL, "the graph computes nothing to be cut");
    if (!inside)
        status = find_kept(items, &kept);
    if (!status)
        status = sl__compute_reached(graph, &reached);
    if (status)
        return status;
    status = list_items(items, kept, reached);
    free(reached);
    return status ? status : measure_boundaries(items);
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
    free(items->data);
    items->data = NULL;
}

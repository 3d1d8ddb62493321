/* SPDX-License-Identifier: MIT
 *
 * What model code says beside its ops: scopes, regions that stay whole, and
 * marks where the model may be cut. */
#include "tensor/graph.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *sl__open_scope(const sl_graph *graph)
{
    return graph->module ? graph->modules[graph->module - 1].name : "";
}

static void enter(sl_graph *graph, const char *part)
{
    char name[SL__SCOPE_MAX + 258];
    const char *around = sl__open_scope(graph), *kept;
    int length =
        snprintf(name, sizeof name, "%s%s%s", around, *around ? "." : "", part);
    if (length > SL__SCOPE_MAX) {
        sl__refuse(graph, "scope", "'%.32s' makes a name of more than %d bytes",
                   part, SL__SCOPE_MAX);
        return;
    }
    kept = sl__keep_text(graph, name);
    if (!kept || sl__grow(&graph->modules, &graph->module_capacity,
                          graph->module_count + 1, sizeof *graph->modules)) {
        sl__no_memory(graph);
        return;
    }
    int first = (int)graph->node_count;
    graph->modules[graph->module_count++] =
        (sl__module){kept, graph->module, first, first};
    graph->module = (int)graph->module_count;
}

void(sl_scope_enter)(sl_graph *graph, const char *format, ...)
{
    char part[256];
    va_list arguments;
    if (!graph || graph->status)
        return;
    if (!format) {
        sl__refuse(graph, "scope", "a name is needed");
        return;
    }
    va_start(arguments, format);
    int length = sl__vformat(part, sizeof part, format, arguments);
    va_end(arguments);
    if (length < 1 || (size_t)length >= sizeof part || strchr(part, '/')) {
        sl__refuse(graph, "scope",
                   "'%.32s' is empty, too long, or has a slash in it", part);
        return;
    }
    enter(graph, part);
}

void(sl_scope_leave)(sl_graph *graph)
{
    if (!graph || graph->status)
        return;
    if (graph->module == 0) {
        sl__refuse(graph, "scope", "left without having been entered");
        return;
    }
    sl__module *module = &graph->modules[graph->module - 1];
    module->end = (int)graph->node_count;
    graph->module = module->parent;
}

void(sl_whole_enter)(sl_graph *graph)
{
    if (!graph || graph->status)
        return;
    if (graph->in_region) {
        sl__refuse(graph, "whole", "entered while inside of one");
        return;
    }
    if (sl__grow(&graph->regions, &graph->region_capacity,
                 graph->region_count + 1, sizeof *graph->regions)) {
        sl__no_memory(graph);
        return;
    }
    int first = (int)graph->node_count;
    graph->regions[graph->region_count++] = (sl__region){first, first};
    graph->in_region = true;
}

void(sl_whole_leave)(sl_graph *graph)
{
    if (!graph || graph->status)
        return;
    if (!graph->in_region) {
        sl__refuse(graph, "whole", "left without having been entered");
        return;
    }
    graph->regions[graph->region_count - 1].end = (int)graph->node_count;
    graph->in_region = false;
}

void(sl_mark_cut)(sl_graph *graph)
{
    if (!graph || graph->status)
        return;
    if (graph->in_region) {
        sl__refuse(graph, "mark_cut",
                   "inside of what is to stay whole in one stage");
        return;
    }
    if (sl__grow(&graph->marks, &graph->mark_capacity, graph->mark_count + 1,
                 sizeof *graph->marks)) {
        sl__no_memory(graph);
        return;
    }
    graph->marks[graph->mark_count++] = (int)graph->node_count;
}

sl_status sl__check_left(const sl_graph *graph)
{
    if (graph->module)
        return sl_fail(SL_EINVAL, "scope '%.64s' was not left",
                       sl__open_scope(graph));
    if (graph->in_region)
        return sl_fail(SL_EINVAL,
                       "what is to stay whole was entered and not left");
    return SL_OK;
}

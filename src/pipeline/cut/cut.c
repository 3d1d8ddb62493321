/* SPDX-License-Identifier: MIT
 *
 * Cutting a graph: finds where each stage starts (items.c, points.c,
 * balance.c), makes a graph for each stage (divide.c), and links these
 * (link.c). */
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- costs -- */

/* Checks the given costs, and lists their modules. */
static sl_status list_costs(const sl_cut_options *options, sl__names *known)
{
    for (size_t i = 0; i < (size_t)options->cost_count; i++) {
        const sl_module_cost *given = &options->costs[i];
        size_t place;
        if (!given->module || !(given->cost >= 0) || !isfinite(given->cost))
            return sl_fail(SL_EINVAL,
                           "the cost of module '%.40s' is %g, expected 0 or "
                           "more",
                           given->module ? given->module : "", given->cost);
        SL__TRY(sl__intern(known, given->module, &place));
        if (place != i)
            return sl_fail(SL_EINVAL, "module '%.40s' has two costs",
                           given->module);
    }
    return SL_OK;
}

/* Gives every item the cost of its name. Fails unless every cost is used and
 * every item has one. */
static sl_status assign_costs(const sl_cut_options *options,
                              const sl__names *known, sl__items *items)
{
    char quoted[SL__QUOTED_MAX], list[SL__LIST_TEXT];
    bool *used;
    SL__TRY(sl__arena_take(&items->arena, known->count, sizeof *used, &used));
    for (int i = 0; i < items->count; i++) {
        const sl__named *named = sl__find_name(known, items->data[i].name);
        items->data[i].cost = -1;
        if (named) {
            items->data[i].cost = options->costs[named - known->data].cost;
            used[named - known->data] = true;
        }
    }
    for (size_t i = 0; i < known->count; i++) {
        const char *name = known->data[i].name;
        if (!used[i])
            return sl_fail(SL_ENOTFOUND,
                           "there is no module '%s' that costs something; "
                           "there are %s",
                           sl__quoted(name, strlen(name), quoted),
                           sl__list_items(items, list));
    }
    for (int i = 0; i < items->count; i++) {
        if (items->data[i].cost < 0)
            return sl_fail(SL_EINVAL, "module '%.100s' has no cost",
                           items->data[i].name);
    }
    return SL_OK;
}

/* Replaces the estimated costs of items by those given. */
static sl_status take_costs(const sl_cut_options *options, sl__items *items)
{
    sl__names known = {0};
    sl_status status = list_costs(options, &known);
    if (!status)
        status = assign_costs(options, &known, items);
    sl__names_clear(&known);
    return status;
}

static sl_status check_stages(const sl__items *items, int stages)
{
    char list[SL__LIST_TEXT];
    if (stages < 1)
        return sl_fail(SL_EINVAL, "%d stages, expected at least 1", stages);
    if (stages > items->count)
        return sl_fail(SL_EINVAL,
                       "%d stages of %d modules leave some empty; there are "
                       "%s",
                       stages, items->count, sl__list_items(items, list));
    return SL_OK;
}

/* Finds where the stages start so that the costliest costs as little as
 * possible; `*out_largest` gets its cost. */
static sl_status starts_by_cost(sl__items *items, int stages, sl__ints *starts,
                                double *out_largest)
{
    double *costs, *bytes, largest, sum = 0;
    int *firsts, exponent;
    size_t count = (size_t)items->count;
    SL__TRY(check_stages(items, stages));
    for (size_t i = 0; i < count; i++)
        sum += items->data[i].cost;
    if (!isfinite(sum))
        return sl_fail(SL_EINVAL, "the costs are too large to be summed up");
    /* Scaled to at most 1 by a power of two, which is exact: squares stay
     * finite. */
    frexp(sum, &exponent);
    SL__TRY(sl__arena_take(&items->arena, count, sizeof *costs, &costs));
    SL__TRY(sl__arena_take(&items->arena, count, sizeof *bytes, &bytes));
    SL__TRY(
        sl__arena_take(&items->arena, (size_t)stages, sizeof *firsts, &firsts));
    for (size_t i = 0; i < count; i++) {
        costs[i] = ldexp(items->data[i].cost, -exponent);
        bytes[i] = items->data[i].bytes;
    }
    SL__TRY(sl__balance(costs, bytes, count, stages, firsts, &largest));
    for (int i = 0; i < stages; i++)
        SL__TRY(sl__push(&items->arena, starts, items->data[firsts[i]].first));
    *out_largest = ldexp(largest, exponent);
    return SL_OK;
}

/* Replaces a cut between modules by one between any two ops, if that makes the
 * costliest stage so much cheaper that it pays for the additional messages that
 * it often needs. */
static sl_status cut_inside(const sl_graph *graph, int stages, sl__items *items,
                            sl__ints *starts, double largest)
{
    static const double GAIN = 0.03;
    sl__items ops;
    sl__ints finer = {0};
    double finer_largest;
    SL__TRY(sl__find_items(graph, true, &ops));
    sl_status status = starts_by_cost(&ops, stages, &finer, &finer_largest);
    if (!status && finer_largest < (1 - GAIN) * largest) {
        sl__items_clear(items);
        *items = ops;
        *starts = finer;
    } else {
        sl__items_clear(&ops);
    }
    return status;
}

static sl_status cut_by_cost(const sl_graph *graph,
                             const sl_cut_options *options, sl__items *items,
                             sl__ints *starts)
{
    double largest = INFINITY;
    if (options->cost_count)
        SL__TRY(take_costs(options, items));
    /* With more stages than modules, some modules must be cut inside. */
    if (!options->inside || options->stages <= items->count)
        SL__TRY(starts_by_cost(items, options->stages, starts, &largest));
    if (options->inside && options->stages > 1)
        return cut_inside(graph, options->stages, items, starts, largest);
    return SL_OK;
}

/* ---------------------------------------------------------------- like -- */

static sl_status remember_cut(sl_model *model, const sl__items *items,
                              const sl__ints *starts,
                              const sl_cut_options *options)
{
    sl__cut *cut = &model->cut;
    SL__TRY(sl__arena_take(&model->arena, (size_t)starts->count,
                           sizeof *cut->starts, &cut->starts));
    SL__TRY(sl__arena_take(&model->arena, (size_t)items->live_count,
                           sizeof *cut->ops, &cut->ops));
    for (int i = 0; i < starts->count; i++)
        cut->starts[i] = items->numbers[starts->data[i]];
    for (int i = 0; i < items->live_end; i++) {
        if (items->live[i])
            cut->ops[items->numbers[i]] = (uint8_t)items->graph->nodes[i]->op;
    }
    cut->stages = starts->count;
    cut->op_count = items->live_count;
    cut->route = options->route;
    cut->feed = options->feed;
    return SL_OK;
}

static sl_status starts_like(sl__items *items, const sl_model *like,
                             sl__ints *starts)
{
    const sl__cut *cut = &like->cut;
    if (cut->stages == 0)
        return sl_fail(SL_EINVAL, "the model to cut like was not cut itself");
    bool same = cut->op_count == items->live_count;
    for (int i = 0; i < items->live_end && same; i++) {
        int number = items->numbers[i];
        if (!items->live[i])
            continue;
        same = cut->ops[number] == items->graph->nodes[i]->op;
        if (starts->count == cut->stages ||
            cut->starts[starts->count] != number)
            continue;
        if (sl__is_divided(items, i))
            return sl_fail(
                SL_EINVAL,
                "the cut of the model `like` divides what is to stay "
                "whole in one stage");
        SL__TRY(sl__push(&items->arena, starts, i));
    }
    if (!same)
        return sl_fail(SL_EINVAL,
                       "the graph has other ops than the model that it is to "
                       "be cut like");
    return SL_OK;
}

/* -------------------------------------------------------------- cutting -- */

static sl_status check_options(const sl_cut_options *options)
{
    if (options->by < SL_CUT_AT_MARKS || options->by > SL_CUT_BY_COST)
        return sl_fail(SL_EINVAL, "there is no way %d to cut",
                       (int)options->by);
    if (options->route < SL_ROUTE_DIRECT || options->route > SL_ROUTE_HOP)
        return sl_fail(SL_EINVAL, "unknown route %d", (int)options->route);
    if (options->feed < SL_FEED_USERS || options->feed > SL_FEED_FIRST)
        return sl_fail(SL_EINVAL, "unknown feed %d", (int)options->feed);
    if (options->point_count < 0 || options->cost_count < 0)
        return sl_fail(SL_EINVAL, "%d points and %d costs",
                       options->point_count, options->cost_count);
    if ((options->point_count && !options->points) ||
        (options->cost_count && !options->costs))
        return sl_fail(SL_EINVAL, "points or costs are NULL");
    bool by_cost = options->by == SL_CUT_BY_COST;
    if (options->by != SL_CUT_AT_NAMES && options->point_count)
        return sl_fail(SL_EINVAL, "points go with a cut at names");
    if (!by_cost && (options->cost_count || options->inside || options->stages))
        return sl_fail(SL_EINVAL,
                       "stages, costs and inside go with a cut by cost");
    if (options->inside && options->cost_count)
        return sl_fail(SL_EINVAL,
                       "costs are of modules, and these are to be cut inside");
    return SL_OK;
}

static sl_status find_starts(const sl_graph *graph, sl__items *items,
                             const sl_cut_options *options, sl__ints *starts)
{
    if (options->like)
        return starts_like(items, options->like, starts);
    if (options->by == SL_CUT_AT_NAMES)
        return sl__starts_at_points(items, options, starts);
    if (options->by == SL_CUT_AT_MARKS)
        return sl__starts_at_marks(items, starts);
    return cut_by_cost(graph, options, items, starts);
}

/* Lists the items of each stage and sums their costs. An item that is cut
 * inside is listed in both stages. */
static sl_status list_modules(sl_model *model, const sl__items *items,
                              const sl__ints *starts, bool costs_given)
{
    const char **names;
    int item = 0;
    SL__TRY(sl__arena_take(&model->arena,
                           (size_t)items->count + (size_t)starts->count,
                           sizeof *names, &names));
    for (int s = 0; s < starts->count; s++) {
        sl_stage_info *info = &model->parts[s].info;
        bool last = s + 1 == starts->count;
        int end = last ? items->live_end : starts->data[s + 1];
        double cost = 0;
        info->modules = names;
        for (; item < items->count && items->data[item].first < end; item++) {
            const char *name = items->data[item].name;
            cost += items->data[item].cost;
            SL__TRY(sl__arena_text(&model->arena, name, strlen(name), names++));
            info->module_count++;
        }
        bool divided =
            !last && (item == items->count || items->data[item].first > end);
        item -= divided;
        if (costs_given)
            info->cost = cost;
    }
    return SL_OK;
}

static sl_status cut(sl_model *model, const sl_graph *graph, sl__items *items,
                     const sl_cut_options *options)
{
    sl__ints starts = {0};
    sl_cut_options asked = *options;
    if (asked.like) {
        asked.route = asked.like->cut.route;
        asked.feed = asked.like->cut.feed;
    }
    SL__TRY(find_starts(graph, items, options, &starts));
    assert(starts.count > 0 && starts.data[0] == items->first_live);
    SL__TRY(remember_cut(model, items, &starts, &asked));
    SL__TRY(sl__divide(model, items, &starts, asked.route, asked.feed));
    SL__TRY(sl__link(model, &graph->inputs));
    SL__TRY(list_modules(model, items, &starts, options->cost_count > 0));
    return sl__check_parameters(model, &graph->parameters);
}

static sl_status check_graph(const sl_graph *graph)
{
    SL__TRY(sl_graph_status(graph));
    if (graph->outputs.count == 0)
        return sl_fail(SL_EINVAL, "the graph has no output and no loss");
    return sl__check_left(graph);
}

sl_status sl_model_cut(const sl_graph *graph, const sl_cut_options *options,
                       sl_model **out)
{
    SL__NEED(graph, out);
    static const sl_cut_options defaults = SL_CUT_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    sl_model *model = NULL;
    sl__items items;
    SL__TRY(check_options(options));
    SL__TRY(check_graph(graph));
    SL__TRY(sl__find_items(graph, false, &items));
    sl_status status = sl_model_create(&model);
    if (!status)
        status = cut(model, graph, &items, options);
    sl__items_clear(&items);
    if (status)
        sl_model_destroy(model);
    else
        *out = model;
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Cutting a graph: where each stage starts, then the stages, then what runs
 * between them. */
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- costs -- */

/* Replaces the estimated costs of items by those given. */
static sl_status take_costs(const sl_cut_options *options, sl__items *items)
{
    char quoted[SL__QUOTED_MAX], list[SL__LIST_TEXT];
    size_t count = (size_t)options->cost_count;
    sl__names known = {0};
    bool *used;
    sl_status status = sl__alloc(count, sizeof *used, &used);
    if (status)
        return status;
    for (size_t i = 0; i < count && !status; i++) {
        const sl_module_cost *given = &options->costs[i];
        if (!given->module || !(given->cost >= 0) || !isfinite(given->cost))
            status = sl_fail(SL_EINVAL,
                             "the cost of module '%.40s' is %g, expected 0 or "
                             "more",
                             given->module ? given->module : "", given->cost);
        else if (sl__find_name(&known, given->module))
            status = sl_fail(SL_EINVAL, "module '%.40s' has two costs",
                             given->module);
        else
            status = sl__add_name(&known, given->module, NULL, SL_NO_GRADIENT);
    }
    for (size_t i = 0; i < items->count && !status; i++) {
        const sl__named *named = sl__find_name(&known, items->data[i].name);
        size_t at = named ? (size_t)(named - known.data) : 0;
        items->data[i].cost = named ? options->costs[at].cost : -1;
        if (named)
            used[at] = true;
    }
    for (size_t i = 0; i < count && !status; i++) {
        const char *name = options->costs[i].module;
        if (!used[i])
            status = sl_fail(SL_ENOTFOUND,
                             "there is no module '%s' that costs something; "
                             "there are %s",
                             sl__quoted(name, strlen(name), quoted),
                             sl__list_items(items, list));
    }
    for (size_t i = 0; i < items->count && !status; i++) {
        if (items->data[i].cost < 0)
            status = sl_fail(SL_EINVAL, "module '%.100s' has no cost",
                             items->data[i].name);
    }
    sl__names_clear(&known);
    free(used);
    return status;
}

static sl_status check_stages(const sl__items *items, int stages)
{
    char list[SL__LIST_TEXT];
    if (stages < 1)
        return sl_fail(SL_EINVAL, "%d stages, expected at least 1", stages);
    if ((size_t)stages > items->count)
        return sl_fail(SL_EINVAL,
                       "%d stages of %zu modules leave some empty; there are "
                       "%s",
                       stages, items->count, sl__list_items(items, list));
    return SL_OK;
}

/* Where the stages start so that the largest, which `*out_largest` gets, costs
 * as little as can be. */
static sl_status starts_by_cost(const sl__items *items, int stages,
                                sl__ints *starts, double *out_largest)
{
    sl_status status = check_stages(items, stages);
    if (status)
        return status;
    double *costs, *bytes = NULL, largest, sum = 0;
    int *firsts = NULL, exponent = 0;
    for (size_t i = 0; i < items->count; i++)
        sum += items->data[i].cost;
    if (!isfinite(sum))
        return sl_fail(SL_EINVAL, "the costs are too large to be summed up");
    /* To within 1, by a power of two: exact, and squares stay finite. */
    frexp(sum, &exponent);
    status = sl__alloc(2 * items->count, sizeof *costs, &costs);
    if (status)
        return status;
    status = sl__alloc((size_t)stages, sizeof *firsts, &firsts);
    bytes = costs + items->count;
    for (size_t i = 0; i < items->count && !status; i++) {
        costs[i] = ldexp(items->data[i].cost, -exponent);
        bytes[i] = items->data[i].bytes;
    }
    if (!status)
        status =
            sl__balance(costs, bytes, items->count, stages, firsts, &largest);
    for (int i = 0; i < stages && !status; i++)
        status = sl__push(starts, items->data[firsts[i]].first);
    if (!status)
        *out_largest = ldexp(largest, exponent);
    free(costs);
    free(firsts);
    return status;
}

/* Replaces a cut between modules by one between any two ops, where that makes
 * the largest stage smaller by enough to be worth the further messages that it
 * often costs. */
static sl_status cut_inside(const sl_graph *graph, int stages, sl__items *items,
                            sl__ints *starts, double largest)
{
    static const double GAIN = 0.03;
    sl__items ops = {0};
    sl__ints finer = {0};
    double finer_largest = INFINITY;
    sl_status status = sl__find_items(graph, true, &ops);
    if (!status)
        status = starts_by_cost(&ops, stages, &finer, &finer_largest);
    if (!status && finer_largest < (1 - GAIN) * largest) {
        sl__items items_before = *items;
        sl__ints starts_before = *starts;
        *items = ops;
        *starts = finer;
        ops = items_before;
        finer = starts_before;
    }
    sl__items_clear(&ops);
    free(finer.data);
    return status;
}

static sl_status cut_by_cost(const sl_graph *graph,
                             const sl_cut_options *options, sl__items *items,
                             sl__ints *starts)
{
    double largest = INFINITY;
    sl_status status = options->cost_count ? take_costs(options, items) : SL_OK;
    /* More stages than modules have to go inside of some. */
    bool between = !options->inside || options->stages <= (int)items->count;
    if (!status && between)
        status = starts_by_cost(items, options->stages, starts, &largest);
    if (!status && options->inside && options->stages > 1)
        status = cut_inside(graph, options->stages, items, starts, largest);
    return status;
}

/* ---------------------------------------------------------------- like -- */

static sl_status remember_cut(sl_model *model, const sl__items *items,
                              const sl__ints *starts,
                              const sl_cut_options *options)
{
    sl__cut *cut = &model->cut;
    sl_status status = sl__arena_take(&model->arena, starts->count,
                                      sizeof *cut->starts, &cut->starts);
    if (!status)
        status = sl__arena_take(&model->arena, (size_t)items->live_count,
                                sizeof *cut->ops, &cut->ops);
    if (status)
        return status;
    for (size_t i = 0; i < starts->count; i++)
        cut->starts[i] = items->numbers[starts->data[i]];
    for (int i = 0; i < items->live_end; i++) {
        if (items->live[i])
            cut->ops[items->numbers[i]] = (uint8_t)items->graph->nodes[i]->op;
    }
    cut->stages = (int)starts->count;
    cut->op_count = items->live_count;
    cut->route = options->route;
    cut->feed = options->feed;
    return SL_OK;
}

static sl_status starts_like(const sl__items *items, const sl_model *like,
                             sl__ints *starts)
{
    const sl__cut *cut = &like->cut;
    if (cut->stages == 0)
        return sl_fail(SL_EINVAL, "the model to cut like was not cut itself");
    sl_status status = SL_OK;
    bool same = cut->op_count == items->live_count;
    size_t stage = 0;
    for (int i = 0; i < items->live_end && same && !status; i++) {
        if (!items->live[i])
            continue;
        int number = items->numbers[i];
        same = cut->ops[number] == items->graph->nodes[i]->op;
        if (stage < (size_t)cut->stages && cut->starts[stage] == number) {
            if (sl__divided(items, i))
                return sl_fail(SL_EINVAL,
                               "a cut like the other model's divides what is "
                               "to stay whole in one stage");
            status = sl__push(starts, i);
            stage++;
        }
    }
    if (!same)
        return sl_fail(SL_EINVAL,
                       "the graph has other ops than the model that it is to "
                       "be cut like");
    return status;
}

/* -------------------------------------------------------------- cutting -- */

static sl_status check_options(const sl_cut_options *options)
{
    if (options->by < SL_CUT_AT_MARKS || options->by > SL_CUT_BY_COST)
        return sl_fail(SL_EINVAL, "there is no way %d to cut",
                       (int)options->by);
    if (options->route < SL_ROUTE_DIRECT || options->route > SL_ROUTE_HOP)
        return sl_fail(SL_EINVAL, "there is no route %d", (int)options->route);
    if (options->feed < SL_FEED_USERS || options->feed > SL_FEED_FIRST)
        return sl_fail(SL_EINVAL, "there is no feed %d", (int)options->feed);
    if (options->point_count < 0 || options->cost_count < 0)
        return sl_fail(SL_EINVAL, "%d points and %d costs",
                       options->point_count, options->cost_count);
    if ((options->point_count && !options->points) ||
        (options->cost_count && !options->costs))
        return sl_fail(SL_EINVAL, "points or costs that are not there");
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

/* Lists the items of each stage and what they cost together. An item that is
 * cut itself is listed on both sides. */
static sl_status list_modules(sl_model *model, const sl__items *items,
                              const sl__ints *starts, bool costs_given)
{
    const char **names;
    size_t stages = starts->count;
    sl_status status = sl__arena_take(&model->arena, items->count + stages,
                                      sizeof *names, &names);
    size_t item = 0;
    for (size_t s = 0; s < stages && !status; s++) {
        sl_stage_info *info = &model->parts[s].info;
        int end = s + 1 < stages ? starts->data[s + 1] : items->live_end;
        double cost = 0;
        info->modules = names;
        while (item < items->count && items->data[item].first < end &&
               !status) {
            cost += items->data[item].cost;
            status = sl__arena_text(&model->arena, items->data[item].name,
                                    strlen(items->data[item].name), names++);
            info->module_count++;
            item++;
        }
        bool divided = item > 0 && item <= items->count && s + 1 < stages &&
                       (item == items->count || items->data[item].first > end);
        if (divided)
            item--;
        if (costs_given)
            info->cost = cost;
    }
    return status;
}

static sl_status cut(sl_model *model, const sl_graph *graph, sl__items *items,
                     const sl_cut_options *options, sl__ints *starts)
{
    sl_cut_options asked = *options;
    if (asked.like) {
        asked.route = asked.like->cut.route;
        asked.feed = asked.like->cut.feed;
    }
    sl_status status = find_starts(graph, items, options, starts);
    if (!status)
        status = remember_cut(model, items, starts, &asked);
    if (!status)
        status = sl__divide(model, items, starts->data, (int)starts->count,
                            asked.route, asked.feed);
    if (!status)
        status = sl__link(model, &graph->inputs);
    if (!status)
        status = list_modules(model, items, starts, options->cost_count > 0);
    if (!status)
        status = sl__check_parameters(model, &graph->parameters);
    return status;
}

static sl_status check_graph(const sl_graph *graph)
{
    sl_status status = sl_graph_status(graph);
    if (!status && graph->outputs.count == 0)
        status = sl_fail(SL_EINVAL, "the graph has no output and no loss");
    return status ? status : sl__check_left(graph);
}

sl_status sl_model_cut(const sl_graph *graph, const sl_cut_options *options,
                       sl_model **out)
{
    SL__NEED(graph, out);
    static const sl_cut_options defaults = SL_CUT_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    sl_model *model = NULL;
    sl__items items = {0};
    sl__ints starts = {0};
    sl_status status = check_options(options);
    if (!status)
        status = check_graph(graph);
    if (!status)
        status = sl__find_items(graph, false, &items);
    if (!status)
        status = sl_model_create(&model);
    if (!status)
        status = cut(model, graph, &items, options, &starts);
    sl__items_clear(&items);
    free(starts.data);
    if (status)
        sl_model_destroy(model);
    else
        *out = model;
    return status;
}

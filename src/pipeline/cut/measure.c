/* SPDX-License-Identifier: MIT
 *
 * What modules cost on this machine: a stage of each, run alone. */
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

/* Runs F and B on zeros, and takes the best time: noise only adds. */
static sl_status time_stage(const sl_stage *stage, double *out_seconds)
{
    enum { TRIES = 5 };
    const double enough = 0.05;
    sl_memory *memory;
    sl_status status = sl_memory_create(stage, 1, &memory);
    if (status)
        return status;
    double best = 0, start = sl__seconds();
    /* The first try packs weights and warms up. */
    for (int i = 0; i <= TRIES && !status; i++) {
        double from = sl__seconds();
        status = sl_stage_run(stage, SL_PROGRAM_F, memory, 0, NULL);
        if (!status)
            status = sl_stage_run(stage, SL_PROGRAM_B, memory, 0, NULL);
        double now = sl__seconds(), took = now - from;
        if (i == 0 || took < best)
            best = took;
        if (i > 1 && now - start > enough)
            break;
    }
    sl_memory_destroy(memory);
    *out_seconds = best;
    return status;
}

static sl_status measure_stage(const sl_model *model, int stage,
                               const sl_stage_options *options, double *out)
{
    sl_stage *compiled;
    sl_status status = sl_model_compile(model, stage, options, &compiled);
    if (status)
        return status;
    status = time_stage(compiled, out);
    sl_stage_destroy(compiled);
    return status;
}

/* What has been measured; a module that comes up again is one cost, the mean of
 * its times. */
typedef struct measured {
    sl__names names;
    double *sums; /* by place in `names` */
    int *counts;
} measured;

static sl_status note(measured *m, const char *module, double seconds)
{
    const sl__named *known = sl__find_name(&m->names, module);
    size_t at = known ? (size_t)(known - m->names.data) : m->names.count;
    sl_status status =
        known ? SL_OK : sl__add_name(&m->names, module, NULL, SL_NO_GRADIENT);
    if (!status) {
        m->sums[at] += seconds;
        m->counts[at]++;
    }
    return status;
}

/* The costs, and behind them copies of their names. */
static sl_status give(const measured *m, sl_module_cost **out)
{
    size_t count = m->names.count, head = count * sizeof **out, text = 0;
    for (size_t i = 0; i < count; i++)
        text += strlen(m->names.data[i].name) + 1;
    char *memory;
    sl_status status = sl__alloc(head + text, 1, &memory);
    if (status)
        return status;
    sl_module_cost *costs = (sl_module_cost *)(void *)memory;
    char *at = memory + head;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(m->names.data[i].name) + 1;
        costs[i].module = memcpy(at, m->names.data[i].name, bytes);
        costs[i].cost = m->sums[i] / m->counts[i];
        at += bytes;
    }
    *out = costs;
    return SL_OK;
}

sl_status
sl_measure_modules(const sl_graph *graph, const sl_stage_options *options,
                   void (*progress)(void *context, int done, int count),
                   void *context, sl_module_cost **out_costs, int *out_count)
{
    SL__NEED(graph, out_costs, out_count);
    sl_stage_options compile = SL_STAGE_OPTIONS_INIT;
    sl_cut_options asked = SL_CUT_OPTIONS_INIT;
    sl__items items = {0};
    measured m = {0};
    sl_model *model = NULL;
    if (options)
        compile = *options;
    compile.backward = SL_BACKWARD_WHOLE;
    sl_status status = sl_graph_status(graph);
    if (!status)
        status = sl__find_items(graph, false, &items);
    int count = status ? 0 : (int)items.count;
    asked.by = SL_CUT_BY_COST;
    asked.stages = count;
    if (!status)
        status = sl_model_cut(graph, &asked, &model);
    if (!status)
        status = sl__alloc((size_t)count, sizeof *m.sums, &m.sums);
    if (!status)
        status = sl__alloc((size_t)count, sizeof *m.counts, &m.counts);
    for (int i = 0; i < count && !status; i++) {
        double seconds;
        status = measure_stage(model, i, &compile, &seconds);
        if (!status)
            status = note(&m, items.data[i].name, seconds);
        if (!status && progress)
            progress(context, i + 1, count);
    }
    if (!status)
        status = give(&m, out_costs);
    if (!status)
        *out_count = (int)m.names.count;
    sl_model_destroy(model);
    sl__items_clear(&items);
    sl__names_clear(&m.names);
    free(m.sums);
    free(m.counts);
    return status;
}

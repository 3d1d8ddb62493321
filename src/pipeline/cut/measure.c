/* SPDX-License-Identifier: MIT
 *
 * Measures modules on this machine: compiles each as a stage, and runs it
 * alone. */
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/try.h"

#include <string.h>

/* Runs F and B on zeros, and takes the best time, because noise only adds
 * time. */
static sl_status time_stage(const sl_stage *stage, double *out_seconds)
{
    enum { TRIES = 5 };
    const double enough = 0.05;
    sl_memory *memory;
    SL__TRY(sl_memory_create(stage, 1, &memory));
    sl_status status = SL_OK;
    double best = 0, start = sl__seconds();
    /* The first run packs weights and warms up; its time is not used. */
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
    SL__TRY(sl_model_compile(model, stage, options, &compiled));
    sl_status status = time_stage(compiled, out);
    sl_stage_destroy(compiled);
    return status;
}

/* Measured times. A module that occurs more than once costs the mean of its
 * times. */
typedef struct measured {
    sl__items items;
    sl_model *model; /* a stage for each item */
    sl__names names;
    double *sums; /* by index in `names` */
    int *counts;
} measured;

/* Returns the costs, followed in memory by copies of their names. */
static sl_status list_costs(const measured *m, sl_module_cost **out)
{
    size_t count = m->names.count, head = count * sizeof **out, text = 0;
    for (size_t i = 0; i < count; i++)
        text += strlen(m->names.data[i].name) + 1;
    char *memory;
    SL__TRY(sl__alloc(head + text, 1, &memory));
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

static sl_status measure(const sl_graph *graph, const sl_stage_options *options,
                         void (*progress)(void *context, int done, int count),
                         void *context, measured *m)
{
    sl__arena *arena = &m->items.arena;
    sl_cut_options cut = SL_CUT_OPTIONS_INIT;
    SL__TRY(sl__find_items(graph, false, &m->items));
    int count = m->items.count;
    cut.by = SL_CUT_BY_COST;
    cut.stages = count;
    SL__TRY(sl_model_cut(graph, &cut, &m->model));
    SL__TRY(sl__arena_take(arena, (size_t)count, sizeof *m->sums, &m->sums));
    SL__TRY(
        sl__arena_take(arena, (size_t)count, sizeof *m->counts, &m->counts));
    for (int i = 0; i < count; i++) {
        double seconds;
        size_t place;
        SL__TRY(measure_stage(m->model, i, options, &seconds));
        SL__TRY(sl__intern(&m->names, m->items.data[i].name, &place));
        m->sums[place] += seconds;
        m->counts[place]++;
        if (progress)
            progress(context, i + 1, count);
    }
    return SL_OK;
}

sl_status
sl_measure_modules(const sl_graph *graph, const sl_stage_options *options,
                   void (*progress)(void *context, int done, int count),
                   void *context, sl_module_cost **out_costs, int *out_count)
{
    SL__NEED(graph, out_costs, out_count);
    sl_stage_options compile = SL_STAGE_OPTIONS_INIT;
    if (options)
        compile = *options;
    compile.backward = SL_BACKWARD_WHOLE;
    SL__TRY(sl_graph_status(graph));
    measured m = {0};
    sl_status status = measure(graph, &compile, progress, context, &m);
    if (!status)
        status = list_costs(&m, out_costs);
    if (!status)
        *out_count = (int)m.names.count;
    sl_model_destroy(m.model);
    sl__items_clear(&m.items);
    sl__names_clear(&m.names);
    return status;
}

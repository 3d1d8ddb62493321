/* SPDX-License-Identifier: MIT
 *
 * The stages of a model compiled for every size of microbatch that turns up,
 * once each. Sizes may change shapes, and nothing else: all of them have the
 * same stages, parameters and edges, so that they can share parameters and
 * take each other's place from microbatch to microbatch. */
#include "pipeline/model.h"

#include "base/memory.h"

#include <string.h>

typedef struct set {
    sl_program_set shown; /* the first member: sets are found by it */
    sl_model *model;
    sl_stage **stages;
    struct set *next;
} set;

struct sl_programs {
    sl_model_fn build;
    void *context;
    sl_stage_options options;
    set *first;
    int count;
};

sl_status sl_programs_create(sl_model_fn build, void *context,
                             const sl_stage_options *options, sl_programs **out)
{
    sl_programs *programs;
    sl_status status = sl__alloc(1, sizeof *programs, &programs);
    if (status)
        return status;
    programs->build = build;
    programs->context = context;
    programs->options = (sl_stage_options)SL_STAGE_OPTIONS_INIT;
    if (options)
        programs->options = *options;
    *out = programs;
    return SL_OK;
}

static void destroy_set(set *old)
{
    int stages = old->model ? sl_model_stage_count(old->model) : 0;
    for (int i = 0; i < stages && old->stages; i++)
        sl_stage_destroy(old->stages[i]);
    sl_model_destroy(old->model);
    free(old->stages);
    free(old);
}

void sl_programs_destroy(sl_programs *programs)
{
    if (!programs)
        return;
    while (programs->first) {
        set *next = programs->first->next;
        destroy_set(programs->first);
        programs->first = next;
    }
    free(programs);
}

int sl_programs_count(const sl_programs *programs)
{
    return programs->count;
}

/* ------------------------------------------------------------- sameness -- */

static sl_status refuse(int64_t rows, int64_t other, const char *what,
                        int stage)
{
    return sl_fail(SL_EINVAL,
                   "the model for %lld rows differs from that for %lld: %s of "
                   "stage %d",
                   (long long)rows, (long long)other, what, stage);
}

static bool same_names(const sl__names *a, const sl__names *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++)
        same = strcmp(a->data[i].name, b->data[i].name) == 0;
    return same;
}

static bool same_parameters(const sl__names *a, const sl__names *b)
{
    bool same = same_names(a, b);
    for (size_t i = 0; same && i < a->count; i++) {
        const sl_tensor *x = a->data[i].tensor, *y = b->data[i].tensor;
        same = x->dtype == y->dtype && sl__same_shape(x, y);
    }
    return same;
}

static bool same_edges(const sl_model *a, const sl_model *b)
{
    bool same = a->edge_count == b->edge_count;
    for (int i = 0; same && i < a->edge_count; i++) {
        const sl_edge *x = &a->edges[i], *y = &b->edges[i];
        same = x->from == y->from && x->to == y->to &&
               !x->gradient_name == !y->gradient_name &&
               strcmp(x->name, y->name) == 0;
    }
    return same;
}

static sl_status check_same(const set *own, const set *other)
{
    int64_t rows = own->shown.rows, before = other->shown.rows;
    const sl_model *a = own->model, *b = other->model;
    if (a->part_count != b->part_count)
        return sl_fail(SL_EINVAL,
                       "the model for %lld rows has %zu stages, expected %zu "
                       "as that for %lld rows",
                       (long long)rows, a->part_count, b->part_count,
                       (long long)before);
    for (size_t s = 0; s < a->part_count; s++) {
        const sl_graph *x = a->parts[s].graph, *y = b->parts[s].graph;
        if (!same_parameters(&x->parameters, &y->parameters))
            return refuse(rows, before, "the parameters", (int)s);
        if (!same_parameters(&x->buffers, &y->buffers))
            return refuse(rows, before, "the buffers", (int)s);
        if (!same_names(&x->inputs, &y->inputs))
            return refuse(rows, before, "the inputs", (int)s);
        if (!same_names(&x->outputs, &y->outputs))
            return refuse(rows, before, "the outputs", (int)s);
    }
    if (!same_edges(a, b))
        return sl_fail(SL_EINVAL,
                       "other tensors cross between the stages for %lld rows "
                       "than for %lld",
                       (long long)rows, (long long)before);
    return SL_OK;
}

/* ------------------------------------------------------------ compiling -- */

static sl_status fill_set(sl_programs *programs, set *own)
{
    const set *other = programs->first;
    sl_status status =
        programs->build(programs->context, own->shown.rows,
                        other ? other->model : NULL, &own->model);
    if (!status && !own->model->linked)
        status = sl_fail(SL_EINVAL, "the model for %lld rows is not linked",
                         (long long)own->shown.rows);
    if (!status && other)
        status = check_same(own, other);
    if (status)
        return status;
    int count = sl_model_stage_count(own->model);
    status = sl__alloc((size_t)count, sizeof(sl_stage *), &own->stages);
    for (int i = 0; i < count && !status; i++)
        status = sl_model_compile(own->model, i, &programs->options,
                                  &own->stages[i]);
    own->shown.model = own->model;
    own->shown.stages = own->stages;
    return status;
}

sl_status sl_programs_get(sl_programs *programs, int64_t rows,
                          const sl_program_set **out)
{
    for (const set *known = programs->first; known; known = known->next) {
        if (known->shown.rows == rows) {
            *out = &known->shown;
            return SL_OK;
        }
    }
    set *made;
    sl_status status = sl__alloc(1, sizeof *made, &made);
    if (status)
        return status;
    made->shown.rows = rows;
    status = fill_set(programs, made);
    if (status) {
        destroy_set(made);
        return status;
    }
    made->next = programs->first;
    programs->first = made;
    programs->count++;
    *out = &made->shown;
    return SL_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * The stages of a model, compiled once for each size of microbatch that occurs.
 * Models of different sizes may differ only in shapes: they have the same
 * stages, parameters and edges, so that they can share parameters, and each
 * microbatch can use the one for its size. */
#include "pipeline/cut/model.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <stdio.h>
#include <string.h>

typedef struct set {
    int64_t rows;
    sl_model *model;
    sl_stage **stages; /* compiled ones; else NULL */
    struct set *next;
} set;

struct sl_programs {
    sl_model_fn build;
    void *context;
    sl_stage_options options;
    char backend[32]; /* the name in the options */
    bool loss_alone;  /* no other output of the model is kept */
    set *first;
    int count;
};

sl_status sl_programs_create(sl_model_fn build, void *context,
                             const sl_stage_options *options, sl_programs **out)
{
    SL__NEED(build, out);
    sl_programs *programs;
    SL__TRY(sl__alloc(1, sizeof *programs, &programs));
    programs->build = build;
    programs->context = context;
    programs->options = (sl_stage_options)SL_STAGE_OPTIONS_INIT;
    if (options)
        programs->options = *options;
    if (programs->options.backend)
        snprintf(programs->backend, sizeof programs->backend, "%s",
                 programs->options.backend);
    programs->options.backend = programs->backend;
    *out = programs;
    return SL_OK;
}

void sl__programs_keep_loss_alone(sl_programs *programs)
{
    programs->loss_alone = true;
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
    return programs ? programs->count : 0;
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
        same =
            x->dtype == y->dtype && sl__same_shape(x, y) &&
            !x->data == !y->data &&
            (!x->data || memcmp(x->data, y->data, (size_t)sl__bytes(x)) == 0);
    }
    return same;
}

/* Inputs or outputs: shapes may differ. */
static bool same_values(const sl__names *a, const sl__names *b)
{
    bool same = same_names(a, b);
    for (size_t i = 0; same && i < a->count; i++)
        same = a->data[i].gradient == b->data[i].gradient &&
               a->data[i].tensor->dtype == b->data[i].tensor->dtype;
    return same;
}

static sl_status check_same(const set *own, const set *other)
{
    int64_t rows = own->rows, before = other->rows;
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
        if (!same_values(&x->inputs, &y->inputs))
            return refuse(rows, before, "the inputs", (int)s);
        if (!same_values(&x->outputs, &y->outputs))
            return refuse(rows, before, "the outputs", (int)s);
    }
    /* Edges follow from these. */
    return SL_OK;
}

/* ------------------------------------------------------------- building -- */

static sl_status fill_set(sl_programs *programs, set *own)
{
    const set *other = programs->first;
    SL__TRY(programs->build(programs->context, own->rows,
                            other ? other->model : NULL, &own->model));
    const sl_model *model = own->model;
    if (!model || !model->linked)
        return sl_fail(SL_EINVAL,
                       "the model for %lld rows is not there, or not linked",
                       (long long)own->rows);
    if (other)
        SL__TRY(check_same(own, other));
    return sl__alloc(model->part_count, sizeof(sl_stage *), &own->stages);
}

static sl_status find_set(sl_programs *programs, int64_t rows, set **out)
{
    for (set *known = programs->first; known; known = known->next) {
        if (known->rows == rows) {
            *out = known;
            return SL_OK;
        }
    }
    set *made;
    SL__TRY(sl__alloc(1, sizeof *made, &made));
    made->rows = rows;
    sl_status status = fill_set(programs, made);
    if (status) {
        destroy_set(made);
        return status;
    }
    made->next = programs->first;
    programs->first = made;
    programs->count++;
    *out = made;
    return SL_OK;
}

sl_status sl_programs_model(sl_programs *programs, int64_t rows,
                            const sl_model **out)
{
    SL__NEED(programs, out);
    set *found;
    SL__TRY(find_set(programs, rows, &found));
    *out = found->model;
    return SL_OK;
}

sl_status sl_programs_stage(sl_programs *programs, int64_t rows, int stage,
                            const sl_stage **out)
{
    SL__NEED(programs, out);
    set *found;
    SL__TRY(find_set(programs, rows, &found));
    if (stage < 0 || (size_t)stage >= found->model->part_count)
        return sl_fail(SL_EINVAL, "stage %d, expected 0 to %zu", stage,
                       found->model->part_count - 1);
    if (!found->stages[stage])
        SL__TRY(sl__model_compile(found->model, stage, programs->loss_alone,
                                  &programs->options, &found->stages[stage]));
    *out = found->stages[stage];
    return SL_OK;
}

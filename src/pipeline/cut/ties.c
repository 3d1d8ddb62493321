/* SPDX-License-Identifier: MIT
 *
 * Tied parameters: parameters of different stages that share a name, directly
 * or through a third that shares a name with each, are one parameter of the
 * model. */
#include "pipeline/cut/model.h"

#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

/* A parameter of one stage. */
typedef struct instance {
    const sl_tensor *tensor;
    int stage;
    int group;  /* union-find: an instance of the same tie; a root is its own */
    int listed; /* of a root: the tie it became, +1 */
} instance;

typedef struct finder {
    sl__arena arena; /* freed when ties have been found */
    sl_model *model;
    instance *instances; /* by stage, then by parameter */
    int count;
    sl__names names; /* every name once */
    sl__ints owners; /* by name: the first instance that has it */
} finder;

static int root_of(finder *f, int i)
{
    while (f->instances[i].group != i) {
        int above = f->instances[i].group;
        f->instances[i].group = f->instances[above].group;
        i = above;
    }
    return i;
}

/* Joins an instance with the first that has the same name. */
static sl_status note_name(finder *f, const sl__named *named, int i)
{
    const sl__named *known = sl__find_same(&f->names, named);
    if (!known) {
        SL__TRY(sl__push(&f->arena, &f->owners, i));
        return sl__add_name(&f->names, named->name, NULL, SL_NO_GRADIENT);
    }
    int owner = f->owners.data[known - f->names.data];
    const instance *first = &f->instances[owner], *own = &f->instances[i];
    SL__TRY(sl__check_alike((size_t)own->stage, "parameter", named->name,
                            own->tensor, first->tensor, first->stage,
                            "has it"));
    int a = root_of(f, owner), b = root_of(f, i);
    /* The smaller number is the root. */
    f->instances[a > b ? a : b].group = a > b ? b : a;
    return SL_OK;
}

static sl_status note_stage(finder *f, int stage)
{
    const sl_graph *graph = f->model->parts[stage].graph;
    int base = f->count;
    for (size_t i = 0; i < graph->parameters.count; i++) {
        const sl__named *named = &graph->parameters.data[i];
        int number = base + named->tensor->leaf_index;
        instance *own = &f->instances[number];
        if (!own->tensor) {
            *own = (instance){named->tensor, stage, number, 0};
            f->count++;
        }
        SL__TRY(note_name(f, named, number));
    }
    assert(f->count == base + graph->parameter_count);
    return SL_OK;
}

static sl_status append_stage(finder *f, sl_tie *tie, const instance *own)
{
    sl__arena *arena = &f->model->arena;
    int stages = tie->stage_count;
    SL__TRY(sl__append(arena, &tie->stage_names, &stages,
                       sizeof own->tensor->name, &own->tensor->name));
    return sl__append(arena, &tie->stages, &tie->stage_count, sizeof own->stage,
                      &own->stage);
}

/* Adds a stage to the tie of its root. Fails where two parameters of one stage
 * would be one. */
static sl_status add_member(finder *f, int i)
{
    sl_model *model = f->model;
    int root = root_of(f, i);
    instance *first = &f->instances[root];
    const instance *own = &f->instances[i];
    if (root == i)
        return SL_OK;
    if (!first->listed) {
        const sl_tensor *tensor = first->tensor;
        sl_tie tie = {.dtype = tensor->dtype,
                      .dims = tensor->dims,
                      .bytes = sl__bytes(tensor)};
        memcpy(tie.shape, tensor->shape, sizeof tie.shape);
        SL__TRY(append_stage(f, &tie, first));
        SL__TRY(sl__append(&model->arena, &model->ties, &model->tie_count,
                           sizeof tie, &tie));
        first->listed = model->tie_count;
    }
    sl_tie *tie = &model->ties[first->listed - 1];
    if (tie->stages[tie->stage_count - 1] == own->stage)
        return sl_fail(SL_EINVAL,
                       "stage %d: parameters '%.100s' and '%.100s' are one in "
                       "another stage",
                       own->stage, tie->stage_names[tie->stage_count - 1],
                       own->tensor->name);
    return append_stage(f, tie, own);
}

static sl_status list_names(finder *f)
{
    for (int i = 0; i < f->owners.count; i++) {
        int listed = f->instances[root_of(f, f->owners.data[i])].listed;
        sl_tie *tie = listed ? &f->model->ties[listed - 1] : NULL;
        const char *name = f->names.data[i].name;
        if (tie)
            SL__TRY(sl__append(&f->model->arena, &tie->names, &tie->name_count,
                               sizeof name, &name));
    }
    return SL_OK;
}

/* Fails where a buffer has the name of a parameter of another stage. */
static sl_status check_buffers(const finder *f)
{
    char quoted[SL__QUOTED_MAX];
    for (size_t s = 0; s < f->model->part_count; s++) {
        const sl__names *buffers = &f->model->parts[s].graph->buffers;
        for (size_t i = 0; i < buffers->count; i++) {
            const char *name = buffers->data[i].name;
            if (sl__find_name(&f->names, name))
                return sl_fail(SL_EINVAL,
                               "stage %zu: buffer '%s' is a parameter in "
                               "another stage",
                               s, sl__quoted(name, strlen(name), quoted));
        }
    }
    return SL_OK;
}

static sl_status find_ties(finder *f)
{
    const sl_model *model = f->model;
    size_t parameters = 0;
    for (size_t s = 0; s < model->part_count; s++)
        parameters += (size_t)model->parts[s].graph->parameter_count;
    SL__TRY(sl__arena_take(&f->arena, parameters, sizeof *f->instances,
                           &f->instances));
    for (size_t s = 0; s < model->part_count; s++)
        SL__TRY(note_stage(f, (int)s));
    SL__TRY(check_buffers(f));
    for (int i = 0; i < f->count; i++)
        SL__TRY(add_member(f, i));
    return list_names(f);
}

sl_status sl__find_ties(sl_model *model)
{
    finder f = {.model = model};
    sl_status status = find_ties(&f);
    sl__arena_clear(&f.arena);
    sl__names_clear(&f.names);
    return status;
}

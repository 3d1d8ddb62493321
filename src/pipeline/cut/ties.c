/* SPDX-License-Identifier: MIT
 *
 * Tied parameters: those of different stages that share a name, directly or
 * through the names of a third, are one parameter of the model. */
#include "pipeline/cut/model.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

/* A parameter of one stage. */
typedef struct instance {
    const sl_tensor *tensor;
    int stage;
    int group;  /* an instance of the same tie; its own root, at last */
    int listed; /* of a root: the tie it became, +1 */
} instance;

typedef struct finder {
    sl_model *model;
    instance *instances; /* by stage, then by parameter */
    size_t count;
    sl__names names; /* every name once; `tensor` is its first one */
    int *owners;     /* by name: an instance that has it */
    size_t owner_capacity;
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

static sl_status check_alike(const finder *f, const char *name, int a, int b)
{
    const instance *first = &f->instances[a], *second = &f->instances[b];
    const sl_tensor *x = first->tensor, *y = second->tensor;
    char quoted[SL__QUOTED_MAX], found[SL__SHAPE_TEXT],
        expected[SL__SHAPE_TEXT];
    if (x->dtype == y->dtype && sl__same_shape(x, y))
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "stage %d: parameter '%s' is %s %s, expected %s %s as "
                   "stage %d has it",
                   second->stage, sl__quoted(name, strlen(name), quoted),
                   sl_dtype_text(y->dtype),
                   sl__shape_text(y->dims, y->shape, found),
                   sl_dtype_text(x->dtype),
                   sl__shape_text(x->dims, x->shape, expected), first->stage);
}

/* Joins an instance with whoever had its name before. */
static sl_status note_name(finder *f, const sl__named *named, int i)
{
    const char *name = named->name;
    const sl__named *known = sl__find_same(&f->names, named);
    if (!known) {
        sl_status status = sl__grow(&f->owners, &f->owner_capacity,
                                    f->names.count + 1, sizeof *f->owners);
        if (!status)
            status = sl__add_name(&f->names, name, NULL, SL_NO_GRADIENT);
        if (!status)
            f->owners[f->names.count - 1] = i;
        return status;
    }
    int other = f->owners[known - f->names.data];
    sl_status status = check_alike(f, name, other, i);
    int a = root_of(f, other), b = root_of(f, i);
    /* The smaller number is the root. */
    f->instances[a > b ? a : b].group = a > b ? b : a;
    return status;
}

static sl_status note_stage(finder *f, size_t s)
{
    const sl_graph *graph = f->model->parts[s].graph;
    size_t base = f->count;
    sl_status status = SL_OK;
    for (size_t i = 0; i < graph->parameters.count && !status; i++) {
        const sl__named *named = &graph->parameters.data[i];
        int number = (int)base + named->tensor->leaf_index;
        instance *own = &f->instances[number];
        if (!own->tensor) {
            *own = (instance){named->tensor, (int)s, number, 0};
            f->count++;
        }
        status = note_name(f, named, number);
    }
    return status;
}

/* Adds a stage to the tie of its root; two of one stage cannot be one. */
static sl_status add_member(finder *f, int i)
{
    sl_model *model = f->model;
    int root = root_of(f, i);
    if (root == i)
        return SL_OK;
    instance *first = &f->instances[root];
    if (!first->listed) {
        first->listed = ++model->tie_count;
        sl_tie *tie = &model->ties[first->listed - 1];
        tie->dtype = first->tensor->dtype;
        tie->dims = first->tensor->dims;
        memcpy(tie->shape, first->tensor->shape, sizeof tie->shape);
        tie->bytes = sl__bytes(first->tensor);
        ((int *)tie->stages)[tie->stage_count] = first->stage;
        ((const char **)tie->stage_names)[tie->stage_count++] =
            first->tensor->name;
    }
    sl_tie *tie = &model->ties[first->listed - 1];
    const instance *own = &f->instances[i];
    if (tie->stages[tie->stage_count - 1] == own->stage)
        return sl_fail(SL_EINVAL,
                       "stage %d: parameters '%.100s' and '%.100s' are one in "
                       "another stage",
                       own->stage, tie->stage_names[tie->stage_count - 1],
                       own->tensor->name);
    ((int *)tie->stages)[tie->stage_count] = own->stage;
    ((const char **)tie->stage_names)[tie->stage_count++] = own->tensor->name;
    return SL_OK;
}

/* Room for the members of every tie, as many as there could be. */
static sl_status make_room(finder *f)
{
    sl_model *model = f->model;
    int *members = NULL;
    sl_status status = sl__alloc(f->count, sizeof *members, &members);
    size_t ties = 0;
    for (size_t i = 0; i < f->count && !status; i++) {
        int root = root_of(f, (int)i);
        ties += root != (int)i && members[root]++ == 0;
    }
    if (!status)
        status = sl__arena_take(&model->arena, ties, sizeof *model->ties,
                                &model->ties);
    /* They are listed by their second member. */
    int listed = 0;
    for (size_t i = 0; i < f->count && !status; i++) {
        int root = root_of(f, (int)i);
        if (root == (int)i || members[root] == 0)
            continue;
        sl_tie *tie = &model->ties[listed++];
        size_t room = (size_t)members[root] + 1;
        int *stages = NULL;
        const char **names = NULL;
        status = sl__arena_take(&model->arena, room, sizeof *stages, &stages);
        if (!status)
            status = sl__arena_take(&model->arena, room, sizeof *names, &names);
        tie->stages = stages;
        tie->stage_names = names;
        members[root] = 0;
    }
    free(members);
    return status;
}

/* Lists the names of every tie: counts them, then fills them in. */
static sl_status list_names(finder *f)
{
    sl_model *model = f->model;
    sl_status status = SL_OK;
    for (int pass = 0; pass < 2 && !status; pass++) {
        for (size_t i = 0; i < f->names.count; i++) {
            int root = root_of(f, f->owners[i]);
            int listed = f->instances[root].listed;
            if (!listed)
                continue;
            sl_tie *tie = &model->ties[listed - 1];
            if (pass == 1)
                ((const char **)tie->names)[tie->name_count] =
                    f->names.data[i].name;
            tie->name_count++;
        }
        for (int t = 0; t < model->tie_count && pass == 0 && !status; t++) {
            sl_tie *tie = &model->ties[t];
            const char **names = NULL;
            status = sl__arena_take(&model->arena, (size_t)tie->name_count,
                                    sizeof *names, &names);
            tie->names = names;
            tie->name_count = 0;
        }
    }
    return status;
}

/* One name is one thing, in all stages. */
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

sl_status sl__find_ties(sl_model *model)
{
    finder f = {.model = model};
    size_t most = 0;
    for (size_t s = 0; s < model->part_count; s++)
        most += (size_t)model->parts[s].graph->parameter_count;
    sl_status status = sl__alloc(most, sizeof *f.instances, &f.instances);
    for (size_t s = 0; s < model->part_count && !status; s++)
        status = note_stage(&f, s);
    if (!status)
        status = check_buffers(&f);
    if (!status)
        status = make_room(&f);
    for (size_t i = 0; i < f.count && !status; i++)
        status = add_member(&f, (int)i);
    if (!status)
        status = list_names(&f);
    free(f.instances);
    free(f.owners);
    sl__names_clear(&f.names);
    return status;
}

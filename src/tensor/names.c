/* SPDX-License-Identifier: MIT
 *
 * Lists of names, in the order they came, found by hash: models have tens of
 * thousands. */
#include "tensor/graph.h"

#include "base/memory.h"

#include <string.h>

/* FNV-1a. */
static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

/* The place of a name in the index, or the free one where it would go. */
static uint32_t *find_place(const sl__names *names, const char *name)
{
    size_t mask = names->index_size - 1, at = hash(name) & mask;
    while (names->index[at] &&
           strcmp(names->data[names->index[at] - 1].name, name) != 0)
        at = (at + 1) & mask;
    return &names->index[at];
}

/* Keeps the index at most half full. */
static sl_status widen(sl__names *names)
{
    if (2 * (names->count + 1) <= names->index_size)
        return SL_OK;
    sl__names wider = *names;
    wider.index_size = names->index_size ? 2 * names->index_size : 16;
    sl_status status =
        sl__alloc(wider.index_size, sizeof *wider.index, &wider.index);
    if (status)
        return status;
    for (size_t i = 0; i < names->count; i++)
        *find_place(&wider, names->data[i].name) = (uint32_t)i + 1;
    free(names->index);
    *names = wider;
    return SL_OK;
}

sl_status sl__add_name(sl__names *names, const char *name, sl_tensor *tensor,
                       sl_gradient gradient)
{
    sl_status status = widen(names);
    if (!status)
        status = sl__grow(&names->data, &names->capacity, names->count + 1,
                          sizeof *names->data);
    if (status)
        return status;
    names->data[names->count++] =
        (sl__named){.name = name, .tensor = tensor, .gradient = gradient};
    *find_place(names, name) = (uint32_t)names->count;
    return SL_OK;
}

sl__named *sl__find_name(const sl__names *names, const char *name)
{
    uint32_t at = names->index_size ? *find_place(names, name) : 0;
    return at ? &names->data[at - 1] : NULL;
}

void sl__names_clear(sl__names *names)
{
    free(names->data);
    free(names->index);
    *names = (sl__names){0};
}

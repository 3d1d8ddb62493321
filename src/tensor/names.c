/* SPDX-License-Identifier: MIT
 *
 * Lists of names in the order of insertion, with a hash index: models have tens
 * of thousands of names. */
#include "tensor/graph.h"

#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

/* FNV-1a. */
static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

/* The index entry of a name, or the free one for it. */
static uint32_t *find_place(const sl__names *names, const char *name,
                            uint32_t hashed)
{
    size_t mask = names->index_size - 1, at = hashed & mask;
    for (; names->index[at]; at = (at + 1) & mask) {
        const sl__named *named = &names->data[names->index[at] - 1];
        if (named->hash == hashed && strcmp(named->name, name) == 0)
            break;
    }
    return &names->index[at];
}

/* Keeps the index at most half full. */
static sl_status widen(sl__names *names)
{
    if (2 * (names->count + 1) <= names->index_size)
        return SL_OK;
    size_t size = names->index_size ? 2 * names->index_size : 16;
    uint32_t *index;
    SL__TRY(sl__alloc(size, sizeof *index, &index));
    for (size_t i = 0; i < names->count; i++) {
        size_t at = names->data[i].hash & (size - 1);
        while (index[at])
            at = (at + 1) & (size - 1);
        index[at] = (uint32_t)i + 1;
    }
    free(names->index);
    names->index = index;
    names->index_size = size;
    return SL_OK;
}

sl_status sl__add_name(sl__names *names, const char *name, sl_tensor *tensor,
                       sl_gradient gradient)
{
    SL__TRY(widen(names));
    SL__TRY(sl__grow(&names->data, &names->capacity, names->count + 1,
                     sizeof *names->data));
    assert(2 * (names->count + 1) <= names->index_size);
    uint32_t hashed = hash(name);
    names->data[names->count++] = (sl__named){
        .name = name, .tensor = tensor, .gradient = gradient, .hash = hashed};
    *find_place(names, name, hashed) = (uint32_t)names->count;
    return SL_OK;
}

sl_tensor *sl__name_tensor(sl__names *names, const char *name,
                           sl_tensor *tensor, sl_gradient gradient)
{
    return sl__add_name(names, name, tensor, gradient)
               ? sl__no_memory(tensor->graph)
               : tensor;
}

static sl__named *find(const sl__names *names, const char *name,
                       uint32_t hashed)
{
    uint32_t at = names->index_size ? *find_place(names, name, hashed) : 0;
    return at ? &names->data[at - 1] : NULL;
}

sl__named *sl__find_name(const sl__names *names, const char *name)
{
    return find(names, name, hash(name));
}

sl__named *sl__find_same(const sl__names *names, const sl__named *other)
{
    return find(names, other->name, other->hash);
}

void sl__names_clear(sl__names *names)
{
    free(names->data);
    free(names->index);
    *names = (sl__names){0};
}

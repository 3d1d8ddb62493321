/* SPDX-License-Identifier: MIT
 *
 * Lists that grow in an arena, and names numbered in order of first use. */
#include "pipeline/cut/model.h"

#include "base/try.h"

#include <assert.h>
#include <string.h>

sl_status sl__append(sl__arena *arena, void *array_pointer, int *count,
                     size_t size, const void *element)
{
    char *array;
    memcpy(&array, array_pointer, sizeof array);
    assert(*count == 0 || (*count > 0 && array));
    size_t used = (size_t)*count * size;
    /* Capacity doubles, so it is used up when the count is 1, 2, 4, ... */
    if ((*count & (*count - 1)) == 0) {
        char *wider;
        size_t room = *count ? 2 * (size_t)*count : 1;
        SL__TRY(sl__arena_take(arena, room, size, &wider));
        if (*count)
            memcpy(wider, array, used);
        array = wider;
        memcpy(array_pointer, &array, sizeof array);
    }
    memcpy(array + used, element, size);
    ++*count;
    return SL_OK;
}

sl_status sl__push(sl__arena *arena, sl__ints *ints, int value)
{
    return sl__append(arena, &ints->data, &ints->count, sizeof value, &value);
}

sl_status sl__intern(sl__names *names, const char *name, size_t *out_place)
{
    const sl__named *known = sl__find_name(names, name);
    *out_place = known ? (size_t)(known - names->data) : names->count;
    return known ? SL_OK : sl__add_name(names, name, NULL, SL_NO_GRADIENT);
}

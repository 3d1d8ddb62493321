/* SPDX-License-Identifier: MIT
 *
 * Allocation whose sizes cannot overflow and whose failure is a status. */
#include "base/memory.h"

#include <stdint.h>
#include <string.h>

static sl_status out_of_memory(size_t count, size_t size)
{
    return sl_fail(SL_ENOMEM, "out of memory: %zu elements of %zu bytes", count,
                   size);
}

sl_status sl__alloc(size_t count, size_t size, void *out_pointer)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        return out_of_memory(count, size);
    memcpy(out_pointer, &memory, sizeof memory);
    return SL_OK;
}

sl_status sl__grow(void *data, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return SL_OK;
    size_t grown = *capacity < 8 ? 8 : *capacity;
    while (grown < need) {
        if (grown > SIZE_MAX / 2)
            return out_of_memory(need, size);
        grown *= 2;
    }
    if (grown > SIZE_MAX / size)
        return out_of_memory(need, size);
    void *memory;
    memcpy(&memory, data, sizeof memory);
    memory = realloc(memory, grown * size);
    if (!memory)
        return out_of_memory(grown, size);
    memcpy(data, &memory, sizeof memory);
    *capacity = grown;
    return SL_OK;
}

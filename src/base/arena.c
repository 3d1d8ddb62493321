/* SPDX-License-Identifier: MIT
 *
 * An arena is a list of chunks, each filled from its start. An allocation
 * larger than a chunk gets a chunk of its own. */
#include "base/arena.h"

#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* Chunks double in size, from small to large: many arenas stay small. */
enum {
    SMALLEST_BYTES = 1 << 12,
    LARGEST_BYTES = 1 << 18,
    ALIGNMENT = _Alignof(max_align_t)
};

struct sl__arena_chunk {
    struct sl__arena_chunk *next;
    size_t used;
    size_t size;
    max_align_t data[];
};

static sl_status add_chunk(sl__arena *arena, size_t bytes)
{
    struct sl__arena_chunk *chunk;
    size_t size = arena->chunk ? 2 * arena->chunk->size : SMALLEST_BYTES;
    size = size < LARGEST_BYTES ? size : LARGEST_BYTES;
    size = bytes > size ? bytes : size;
    if (size > SIZE_MAX - sizeof *chunk)
        return sl_fail(SL_ENOMEM, "out of memory: %zu bytes", bytes);
    SL__TRY(sl__alloc(1, sizeof *chunk + size, &chunk));
    chunk->size = size;
    chunk->next = arena->chunk;
    arena->chunk = chunk;
    return SL_OK;
}

sl_status sl__arena_take(sl__arena *arena, size_t count, size_t size,
                         void *out_pointer)
{
    if (size && count > (SIZE_MAX - ALIGNMENT) / size)
        return sl_fail(SL_ENOMEM, "out of memory: %zu elements of %zu bytes",
                       count, size);
    size_t bytes = (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!arena->chunk || arena->chunk->size - arena->chunk->used < bytes)
        SL__TRY(add_chunk(arena, bytes));
    assert(arena->chunk->size - arena->chunk->used >= bytes);
    void *memory = (char *)arena->chunk->data + arena->chunk->used;
    arena->chunk->used += bytes;
    memcpy(out_pointer, &memory, sizeof memory);
    return SL_OK;
}

sl_status sl__arena_text(sl__arena *arena, const char *text, size_t length,
                         const char **out)
{
    char *copy;
    SL__TRY(sl__arena_take(arena, length + 1, 1, &copy));
    memcpy(copy, text, length);
    *out = copy;
    return SL_OK;
}

void sl__arena_clear(sl__arena *arena)
{
    while (arena->chunk) {
        struct sl__arena_chunk *next = arena->chunk->next;
        free(arena->chunk);
        arena->chunk = next;
    }
}

/* SPDX-License-Identifier: MIT
 *
 * An arena: memory for things that live and die together. Allocations are
 * zeroed, aligned for any type, never move, and are all freed at once. */
#ifndef SL_BASE_ARENA_H
#define SL_BASE_ARENA_H

#include "sluice/base.h"

typedef struct sl__arena {
    struct sl__arena_chunk *chunk; /* the one being filled */
} sl__arena;

/* Takes `count` zeroed elements of `size` bytes. */
sl_status sl__arena_take(sl__arena *arena, size_t count, size_t size,
                         void *out_pointer);

/* Takes `count` zeroed elements of the type that `*out` points to. */
#define SL__TAKE(arena, count, out)                                            \
    sl__arena_take(arena, count, sizeof **(out), out)

/* Copies a string of `length` bytes and ends it. */
sl_status sl__arena_text(sl__arena *arena, const char *text, size_t length,
                         const char **out);

/* Frees everything; the arena is empty and usable again. */
void sl__arena_clear(sl__arena *arena);

#endif

/* SPDX-License-Identifier: MIT
 *
 * A doubly linked list of distinct numbers below a limit, which inserts and
 * removes anywhere without a search. It is circular: `end` is before the first
 * number and after the last. */
#ifndef SL_SCHEDULE_LIST_H
#define SL_SCHEDULE_LIST_H

#include "base/arena.h"
#include "base/try.h"

#include <stdint.h>

typedef struct sl__list {
    uint32_t *after; /* by number, and at `end` */
    uint32_t *before;
    uint32_t end; /* the limit */
} sl__list;

static inline void sl__list_clear(sl__list *list)
{
    list->after[list->end] = list->before[list->end] = list->end;
}

static inline sl_status sl__list_open(sl__list *list, size_t limit,
                                      sl__arena *memory)
{
    SL__TRY(SL__TAKE(memory, limit + 1, &list->after));
    SL__TRY(SL__TAKE(memory, limit + 1, &list->before));
    list->end = (uint32_t)limit;
    sl__list_clear(list);
    return SL_OK;
}

/* Inserts `number` after `place`: after `end` it is the first, after
 * before[end] the last. */
static inline void sl__list_insert(sl__list *list, uint32_t number,
                                   uint32_t place)
{
    uint32_t next = list->after[place];
    list->before[number] = place;
    list->after[number] = next;
    list->after[place] = list->before[next] = number;
}

static inline void sl__list_remove(sl__list *list, uint32_t number)
{
    list->after[list->before[number]] = list->after[number];
    list->before[list->after[number]] = list->before[number];
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * Whether all ranks were given the same options. They compare one hash of all
 * options, in as many rounds as a barrier; only if it differs do they look for
 * the option, and report the value of each. */
#include "comm/comm.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"

#include <stdio.h>
#include <string.h>

/* FNV-1a, including the terminating zero: "ab", "c" differs from "a", "bc". */
static uint64_t add_text(uint64_t sum, const char *text)
{
    do {
        sum = (sum ^ (unsigned char)*text) * 0x100000001b3u;
    } while (*text++);
    return sum;
}

static uint64_t hash_item(const sl_comm_item *item)
{
    return add_text(add_text(0xcbf29ce484222325u, item->name), item->value);
}

/* A rank's value, as the error sentence shows it. */
typedef struct shown {
    char value[120];
} shown;

/* Fails with a sentence that names two ranks with different values; all ranks
 * call it. `all` has room for each rank of the group. */
static sl_status state_difference(sl_comm *comm, const sl_group *group, int tag,
                                  const sl_comm_item *item, double timeout_s,
                                  shown *all)
{
    int own = 0, k = 1;
    /* Of a long value the end is shown, because that is where paths differ. */
    size_t length = strlen(item->value), room = sizeof all->value - 1;
    const char *end = item->value + (length > room ? length - room : 0);
    while (group->ranks[own] != comm->rank)
        own++;
    snprintf(all[own].value, sizeof all->value, "%s", end);
    SL__TRY(sl_comm_allgather(comm, group, tag, sizeof *all, all,
                              (size_t)group->count, timeout_s));
    while (k < group->count - 1 && strcmp(all[0].value, all[k].value) == 0)
        k++;
    return sl_fail(SL_EINVAL,
                   "ranks were told different things: %.60s is '%s' on rank %d "
                   "and '%s' on rank %d",
                   item->name, all[0].value, group->ranks[0], all[k].value,
                   group->ranks[k]);
}

/* Fails on all ranks if they have different values of an item. */
static sl_status compare_item(sl_comm *comm, const sl_group *group, int tag,
                              const sl_comm_item *item, double timeout_s)
{
    uint64_t least, most;
    shown *all;
    SL__TRY(sl__comm_range(comm, group, tag, hash_item(item), timeout_s, &least,
                           &most));
    if (least == most)
        return SL_OK;
    SL__TRY(sl__alloc((size_t)group->count, sizeof *all, &all));
    sl_status status = state_difference(comm, group, tag, item, timeout_s, all);
    free(all);
    return status;
}

sl_status sl_comm_agree(sl_comm *comm, const sl_group *group, int tag,
                        const sl_comm_item *items, int count, double timeout_s)
{
    SL__NEED(comm, group);
    if (count > 0)
        SL__NEED(items);
    char number[32];
    snprintf(number, sizeof number, "%d", count);
    const sl_comm_item how_many = {"the number of options", number};
    uint64_t all = hash_item(&how_many), least, most;
    for (int i = 0; i < count; i++) {
        if (!items[i].name || !items[i].value)
            return sl_fail(SL_EINVAL, "option %d of %d has no name or value", i,
                           count);
        all = (all ^ hash_item(&items[i])) * 0x9e3779b97f4a7c15u;
    }
    SL__TRY(sl__comm_range(comm, group, tag, all, timeout_s, &least, &most));
    if (least == most)
        return SL_OK;
    /* All ranks know by now that something differs, and look for it
     * together. */
    SL__TRY(compare_item(comm, group, tag, &how_many, timeout_s));
    for (int i = 0; i < count; i++)
        SL__TRY(compare_item(comm, group, tag, &items[i], timeout_s));
    return sl_fail(SL_EINVAL, "ranks were told different things");
}

/* SPDX-License-Identifier: MIT
 *
 * Whether all ranks were told the same. A number that stands for everything is
 * compared in as many rounds as a barrier has; only where it differs do ranks
 * look for the item, and say what each has. */
#include "comm/comm.h"

#include "base/arguments.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* FNV-1a, over the terminating zero as well: "ab", "c" is not "a", "bc". */
static uint64_t add_text(uint64_t sum, const char *text)
{
    do {
        sum = (sum ^ (unsigned char)*text) * 0x100000001b3u;
    } while (*text++);
    return sum;
}

static uint64_t number_of(const sl_comm_item *item)
{
    return add_text(add_text(0xcbf29ce484222325u, item->name), item->value);
}

/* What a rank was told, as it is shown. */
typedef struct told {
    char value[120];
} told;

/* Says what two ranks have that differ; all ranks call it. */
static sl_status say_difference(sl_comm *comm, const sl_group *group, int tag,
                                const sl_comm_item *item, double timeout_s)
{
    told *all;
    int own = 0, k = 1;
    /* Of what is too long, the end: paths differ there. */
    size_t length = strlen(item->value), room = sizeof all->value - 1;
    const char *shown = item->value + (length > room ? length - room : 0);
    while (group->ranks[own] != comm->rank)
        own++;
    sl_status status = sl__alloc((size_t)group->count, sizeof *all, &all);
    if (status)
        return status;
    snprintf(all[own].value, sizeof all->value, "%s", shown);
    status = sl_comm_allgather(comm, group, tag, sizeof *all, all,
                               (size_t)group->count, timeout_s);
    while (!status && k < group->count - 1 &&
           strcmp(all[0].value, all[k].value) == 0)
        k++;
    if (!status)
        status = sl_fail(SL_EINVAL,
                         "ranks were told different things: %.60s is '%s' on "
                         "rank %d and '%s' on rank %d",
                         item->name, all[0].value, group->ranks[0],
                         all[k].value, group->ranks[k]);
    free(all);
    return status;
}

sl_status sl_comm_agree(sl_comm *comm, const sl_group *group, int tag,
                        const sl_comm_item *items, int count, double timeout_s)
{
    SL__NEED(comm, group);
    if (count > 0)
        SL__NEED(items);
    for (int i = 0; i < count; i++) {
        if (!items[i].name || !items[i].value)
            return sl_fail(SL_EINVAL, "option %d of %d has no name or value", i,
                           count);
    }
    char number[32];
    uint64_t all = 0, least, most;
    snprintf(number, sizeof number, "%d", count);
    const sl_comm_item how_many = {"the number of options", number};
    all = number_of(&how_many);
    for (int i = 0; i < count; i++)
        all = (all ^ number_of(&items[i])) * 0x9e3779b97f4a7c15u;
    sl_status status =
        sl__comm_range(comm, group, tag, all, timeout_s, &least, &most);
    if (status || least == most)
        return status;
    /* From here on ranks know that they differ, and do the same. */
    status = sl__comm_range(comm, group, tag, (uint64_t)count, timeout_s,
                            &least, &most);
    if (status)
        return status;
    if (least != most)
        return say_difference(comm, group, tag, &how_many, timeout_s);
    for (int i = 0; i < count; i++) {
        status = sl__comm_range(comm, group, tag, number_of(&items[i]),
                                timeout_s, &least, &most);
        if (status)
            return status;
        if (least != most)
            return say_difference(comm, group, tag, &items[i], timeout_s);
    }
    return sl_fail(SL_EINVAL, "ranks were told different things");
}

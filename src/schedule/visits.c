/* SPDX-License-Identifier: MIT
 *
 * A heap of visits and lists of waiters. Both are allocated when they are
 * opened, for all ranks and nodes, so that nothing fails afterwards. */
#include "schedule/visits.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

sl_status sl__visits_open(sl__visits *visits, int ranks, sl__arena *memory)
{
    *visits = (sl__visits){.ranks = (uint64_t)ranks};
    SL__TRY(SL__TAKE(memory, visits->ranks, &visits->heap));
    return SL__TAKE(memory, visits->ranks, &visits->queued);
}

void sl__visits_push(sl__visits *visits, uint64_t round, int rank)
{
    assert(!visits->queued[rank]);
    visits->queued[rank] = 1;
    uint64_t visit = round * visits->ranks + (uint64_t)rank;
    size_t at = visits->count++;
    while (at > 0 && visits->heap[(at - 1) / 2] > visit) {
        visits->heap[at] = visits->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    visits->heap[at] = visit;
}

bool sl__visits_pop(sl__visits *visits, uint64_t *round, int *rank)
{
    if (visits->count == 0)
        return false;
    *round = visits->heap[0] / visits->ranks;
    *rank = (int)(visits->heap[0] % visits->ranks);
    visits->queued[*rank] = 0;
    uint64_t moved = visits->heap[--visits->count];
    size_t at = 0;
    for (size_t child = 1; child < visits->count; child = 2 * at + 1) {
        if (child + 1 < visits->count &&
            visits->heap[child + 1] < visits->heap[child])
            child++;
        if (visits->heap[child] >= moved)
            break;
        visits->heap[at] = visits->heap[child];
        at = child;
    }
    visits->heap[at] = moved;
    return true;
}

sl_status sl__waiters_open(sl__waiters *waiters, size_t nodes, int ranks,
                           sl__arena *memory)
{
    SL__TRY(SL__TAKE(memory, nodes, &waiters->first));
    SL__TRY(SL__TAKE(memory, (size_t)ranks, &waiters->next));
    memset(waiters->first, 0xff, nodes * sizeof *waiters->first);
    return SL_OK;
}

void sl__waiters_park(sl__waiters *waiters, uint32_t node, int rank)
{
    waiters->next[rank] = waiters->first[node];
    waiters->first[node] = (int16_t)rank;
}

int sl__waiters_take(sl__waiters *waiters, uint32_t node)
{
    int rank = waiters->first[node];
    if (rank != SL__NOBODY)
        waiters->first[node] = waiters->next[rank];
    return rank;
}

/* SPDX-License-Identifier: MIT
 *
 * Slots: decides which microbatch has which slot, and how many slots there are.
 * A slot belongs to a microbatch for its lifetime, and then to the next one. */
#include "pipeline/run/bind.h"

#include "base/memory.h"
#include "base/try.h"

void sl__note_use(sl__binder *b, int stage, int microbatch, sl__slot_kind kind,
                  size_t index)
{
    sl__lifetime *lifetime =
        &b->lifetimes[sl__cell(b, stage, microbatch)][kind];
    if (!b->measuring)
        return;
    if (lifetime->end == 0)
        lifetime->first = index;
    assert(index + 1 >= lifetime->end);
    lifetime->end = index + 1;
}

typedef struct candidate {
    sl__lifetime lifetime;
    int microbatch;
} candidate;

static int compare_candidates(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->lifetime.first != b->lifetime.first)
        return a->lifetime.first < b->lifetime.first ? -1 : 1;
    return a->microbatch - b->microbatch;
}

/* Assigns the slots of a kind to the microbatches of a variant. `free_at` is,
 * by slot, where the lifetime of its latest microbatch ends. */
static void assign(sl__binder *b, sl__variant *variant, int kind,
                   candidate *candidates, size_t *free_at)
{
    int used = 0;
    size_t count = 0;
    for (int m = 0; m < b->pipeline->microbatches; m++) {
        const sl__lifetime lifetime =
            b->lifetimes[sl__cell(b, variant->stage, m)][kind];
        if (b->binding->rows[m] == variant->rows && lifetime.end > 0)
            candidates[count++] = (candidate){lifetime, m};
    }
    if (count)
        qsort(candidates, count, sizeof *candidates, compare_candidates);
    for (size_t i = 0; i < count; i++) {
        const candidate *next = &candidates[i];
        int slot = 0;
        while (slot < used && free_at[slot] > next->lifetime.first)
            slot++;
        used += slot == used;
        free_at[slot] = next->lifetime.end;
        b->slots[b->train][sl__cell(b, variant->stage, next->microbatch)]
                [kind] = slot;
    }
    assert((size_t)used <= count);
    if (used > variant->slots[kind])
        variant->slots[kind] = used;
}

sl_status sl__assign_slots(sl__binder *b)
{
    size_t most = (size_t)b->pipeline->microbatches;
    candidate *candidates;
    size_t *free_at = NULL;
    SL__TRY(sl__alloc(most, sizeof *candidates, &candidates));
    sl_status status = sl__alloc(most, sizeof *free_at, &free_at);
    for (int i = 0; i < b->binding->variant_count && !status; i++) {
        for (int k = 0; k < SL__SLOT_KINDS; k++)
            assign(b, &b->binding->variants[i], k, candidates, free_at);
    }
    free(free_at);
    free(candidates);
    return status;
}

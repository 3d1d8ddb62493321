/* SPDX-License-Identifier: MIT
 *
 * Slots: which microbatch has which, and how many there must be. An instruction
 * that needs memory says so; a slot is a microbatch's from the first that does
 * to the last, and then the next one's. */
#include "pipeline/run/bind.h"

#include "base/memory.h"
#include "base/try.h"

#include <assert.h>

void sl__note_use(sl__binder *b, int stage, int microbatch, sl__slot_kind kind,
                  size_t index)
{
    sl__lifetime *span = &b->needs[sl__cell(b, stage, microbatch)].spans[kind];
    if (!b->measuring)
        return;
    if (span->last == 0)
        span->first = index;
    assert(index + 1 >= span->last);
    span->last = index + 1;
}

typedef struct wish {
    sl__lifetime span;
    int microbatch;
} wish;

static int compare_wishes(const void *left, const void *right)
{
    const wish *a = left, *b = right;
    if (a->span.first != b->span.first)
        return a->span.first < b->span.first ? -1 : 1;
    return a->microbatch - b->microbatch;
}

/* Deals the slots of a kind out to the microbatches of a variant. */
static void deal(sl__binder *b, sl__variant *variant, int kind, wish *wishes,
                 size_t *free_at)
{
    int microbatches = b->pipeline->microbatches, used = 0;
    size_t count = 0;
    for (int m = 0; m < microbatches; m++) {
        const sl__lifetime span =
            b->needs[sl__cell(b, variant->stage, m)].spans[kind];
        if (b->binding->rows[m] == variant->rows && span.last > 0)
            wishes[count++] = (wish){span, m};
    }
    if (count)
        qsort(wishes, count, sizeof *wishes, compare_wishes);
    for (size_t i = 0; i < count; i++) {
        int slot = 0;
        while (slot < used && free_at[slot] > wishes[i].span.first)
            slot++;
        used += slot == used;
        free_at[slot] = wishes[i].span.last;
        b->slots[b->train][sl__cell(b, variant->stage, wishes[i].microbatch)]
                [kind] = slot;
    }
    if (used > variant->slots[kind])
        variant->slots[kind] = used;
}

sl_status sl__assign_slots(sl__binder *b)
{
    size_t most = (size_t)b->pipeline->microbatches;
    wish *wishes;
    size_t *free_at = NULL;
    SL__TRY(sl__alloc(most, sizeof *wishes, &wishes));
    sl_status status = sl__alloc(most, sizeof *free_at, &free_at);
    for (int i = 0; i < b->binding->variant_count && !status; i++) {
        for (int k = 0; k < SL__SLOT_KINDS; k++)
            deal(b, &b->binding->variants[i], k, wishes, free_at);
    }
    free(free_at);
    free(wishes);
    return status;
}

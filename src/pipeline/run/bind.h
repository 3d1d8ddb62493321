/* SPDX-License-Identifier: MIT
 *
 * Shared by the files that make a binding: bind.c, its slots (slots.c) and its
 * instructions (instructions.c).
 *
 * Each list is emitted twice: first without memory, to record which
 * instructions use which memory (lifetimes); then, once slots are assigned by
 * lifetimes, with it. */
#ifndef SL_PIPELINE_BIND_H
#define SL_PIPELINE_BIND_H

#include "pipeline/run/runtime.h"

#include <assert.h>

/* The instructions of a list that use a microbatch's memory of one kind: from
 * `first` to before `end`; `end` is 0 where none does. */
typedef struct sl__lifetime {
    size_t first;
    size_t end;
} sl__lifetime;

/* Tables "by cell" have an entry for each own stage and microbatch, at
 * sl__cell; this is not the cell of a schedule. */
typedef struct sl__binder {
    sl_pipeline *pipeline;
    sl__binding *binding;
    const sl_edge *edges;
    int edge_count;
    int *message_edge; /* by edge: its number among those that leave or reach
                          this rank; -1 for all others */
    int message_edges; /* how many leave or reach this rank */
    bool train;        /* the list of a step, else of an eval */
    bool measuring;    /* the first pass, without memory */
    sl__instructions *list;
    int64_t fed; /* bytes of the list's feeds so far */
    int *own;    /* by stage: its index on this rank, or -1 */
    sl__lifetime (*lifetimes)[SL__SLOT_KINDS]; /* by cell, of `list` */
    /* By list (eval, train) and cell: the slot of the microbatch in its
     * variant's memory, and the slot of each kind that belongs to it. */
    int *places[2];
    int (*slots[2])[SL__SLOT_KINDS];
} sl__binder;

static inline size_t sl__cell(const sl__binder *b, int stage, int microbatch)
{
    assert(b->own[stage] >= 0);
    assert(microbatch >= 0 && microbatch < b->pipeline->microbatches);
    return (size_t)b->own[stage] * (size_t)b->pipeline->microbatches +
           (size_t)microbatch;
}

static inline bool sl__is_here(const sl__binder *b, int stage)
{
    return sl__is_own(b->pipeline, stage);
}

/* Records that the instruction at `index` uses memory of a microbatch. Within a
 * list, `index` must not decrease. */
void sl__note_use(sl__binder *b, int stage, int microbatch, sl__slot_kind kind,
                  size_t index);

/* Assigns slots in the order in which lifetimes begin, each time the lowest
 * free one. No assignment needs fewer slots. */
sl_status sl__assign_slots(sl__binder *b);

/* Emits the instructions of this rank's cells into b->list. */
sl_status sl__emit_list(sl__binder *b);

#endif

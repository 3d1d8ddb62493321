/* SPDX-License-Identifier: MIT
 *
 * What the files of binding share: a binding that is being made (bind.c), its
 * slots (slots.c) and its instructions (instructions.c).
 *
 * Each list is made twice: first without memory, to note which instructions use
 * which memory (lifetimes); then, when slots are assigned by these, in full. */
#ifndef SL_PIPELINE_BIND_H
#define SL_PIPELINE_BIND_H

#include "pipeline/run/runtime.h"

#include <assert.h>

/* The instructions of a list that use some memory: from `first` to before
 * `end`; end is 0 where none does. */
typedef struct sl__lifetime {
    size_t first;
    size_t end;
} sl__lifetime;

/* Tables by cell have an entry for each own stage and microbatch: sl__cell. */
typedef struct sl__binder {
    sl_pipeline *pipeline;
    sl__binding *binding;
    const sl_edge *edges;
    int edge_count;
    int *message_edge; /* by edge: its number among those whose messages leave
                          or reach this rank; -1: it is none of them */
    int message_edges; /* how many */
    bool train;        /* the list of a step, else of an eval */
    bool measuring;    /* the first time, without memory */
    sl__instructions *list;
    int *own; /* by stage: its index among the own ones; -1 */
    sl__lifetime (*lifetimes)[SL__SLOT_KINDS]; /* by cell, of `list` */
    /* By list (eval, train) and cell: the slot of the microbatch in the memory
     * of its variant, and the slot of each kind that this stands for. */
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

/* Notes that the instruction at `index` uses memory of a microbatch. Indices of
 * one list never go down. */
void sl__note_use(sl__binder *b, int stage, int microbatch, sl__slot_kind kind,
                  size_t index);

/* Assigns slots in the order in which lifetimes begin, each time the lowest
 * that is free: the fewest slots for these lifetimes. */
sl_status sl__assign_slots(sl__binder *b);

/* Emits the instructions of this rank's cells into b->list. */
sl_status sl__emit_list(sl__binder *b);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What the files of binding share: a batch being bound (bind.c), its slots
 * (slots.c) and its instructions (instructions.c).
 *
 * Each list is made twice: first without memory, to note which instructions
 * need which memory (spans), then, when slots are dealt by these, in full. */
#ifndef SL_PIPELINE_BIND_H
#define SL_PIPELINE_BIND_H

#include "pipeline/run/runtime.h"

/* The first and the last instruction that need some memory; last is one past
 * it, and 0 where none does. */
typedef struct sl__lifetime {
    size_t first;
    size_t last;
} sl__lifetime;

/* What a microbatch needs in a stage of this rank, by kind of slot: when, in the
 * list at hand, and which slots that gets it. */
typedef struct sl__needs {
    sl__lifetime spans[SL__SLOT_KINDS];
} sl__needs;

typedef struct sl__binder {
    sl_pipeline *pipeline;
    sl__binding *binding;
    const sl_edge *edges;
    int edge_count;
    int *crossing; /* by edge: its number among those from or to other ranks;
                      -1 within a rank, or between others */
    int crossings;
    bool train;     /* the list of a step, else of an eval */
    bool measuring; /* without memory */
    sl__instructions *list;
    sl__needs *needs; /* by own stage and microbatch */
    int *own;         /* by stage: which of the own ones it is; -1 */
    /* By kind of list, own stage and microbatch: its place among the
     * microbatches of its memory, and its slots there. */
    int *places[2];
    int (*slots[2])[SL__SLOT_KINDS];
} sl__binder;

static inline size_t sl__cell(const sl__binder *b, int stage, int microbatch)
{
    return (size_t)b->own[stage] * (size_t)b->pipeline->microbatches +
           (size_t)microbatch;
}

static inline bool sl__is_here(const sl__binder *b, int stage)
{
    return sl__is_own(b->pipeline, stage);
}

/* Notes that the instruction at `index` needs memory of a microbatch. */
void sl__note_use(sl__binder *b, int stage, int microbatch, sl__slot_kind kind,
                  size_t index);

/* Deals slots out in the order in which they are first needed, the lowest that
 * is free each time. */
sl_status sl__assign_slots(sl__binder *b);

/* The list at hand, of this rank's cells. */
sl_status sl__emit_list(sl__binder *b);

#endif

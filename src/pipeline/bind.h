/* SPDX-License-Identifier: MIT
 *
 * What the files of binding share: a batch being bound (bind.c), its slots
 * (slots.c) and its instructions (instructions.c). */
#ifndef SL_PIPELINE_BIND_H
#define SL_PIPELINE_BIND_H

#include "pipeline/runtime.h"

/* Where a message waits: by slot of a lane, edge and direction. */
typedef enum sl__way {
    SL__RECV_F,
    SL__SEND_F,
    SL__RECV_B,
    SL__SEND_B,
    SL__WAYS
} sl__way;

typedef struct sl__binder {
    sl_pipeline *pipeline;
    sl__bound *bound;
    const sl_edge *edges;
    int edge_count;
    /* Of the rank and the list at hand. */
    int rank;
    bool train;    /* of a step, else of an eval */
    bool on_paper; /* without memory */
    const sl_action *order;
    const bool *joins;
    size_t order_count;
    sl__instructions *list;
    sl__mail *mails;
    /* By stage and microbatch, of all ranks, in the kind of list at hand. */
    int *slots;
    int *nexts;    /* who has the slot next; -1: nobody */
    bool *follows; /* somebody had it before */
    size_t *lasts; /* the action that frees it */
    /* Of the rank at hand, by stage and microbatch: whether what F, or the
     * backward, sends has a place of its own in the order. */
    bool *placed[2];
    /* By stage: I is the whole backward, and W nothing. */
    bool *wholes;
    /* Edges at each stage, and the number of each at its producer and its
     * consumer. */
    int *touching;
    int *edge_at[2];
    /* By kind of list and lane: microbatches in flight, and slots besides. */
    int *peaks[2];
    int *extras[2];
} sl__binder;

static inline int sl__cell(const sl__binder *b, int stage, int microbatch)
{
    return stage * b->pipeline->microbatches + microbatch;
}

static inline bool sl__is_here(const sl__binder *b, int stage)
{
    return b->pipeline->rank_of[stage] == b->rank;
}

static inline int sl__own_rank(const sl__binder *b)
{
    return b->pipeline->rank;
}

/* Turns to the list of a rank. */
static inline void sl__turn_to(sl__binder *b, int rank)
{
    b->rank = rank;
    b->order = b->pipeline->orders[rank];
    b->joins = b->pipeline->joins[rank];
    b->order_count = b->pipeline->order_counts[rank];
}

static inline sl__lane *sl__lane_of(const sl__binder *b, int stage,
                                    int microbatch)
{
    sl__lane *lane = b->bound->lanes;
    while (lane->stage != stage || lane->rows != b->bound->rows[microbatch])
        lane++;
    return lane;
}

/* ----------------------------------------------------------- slots.c -- */

/* Finds which action frees each slot of the rank at hand. */
void sl__find_lasts(sl__binder *b);

/* Deals slots out in the order of F: that which has been free longest, so that
 * receives are posted early. */
sl_status sl__deal_slots(sl__binder *b);

/* How many mails the lanes need as they are, each where its first will lie: two
 * for every slot and edge of the stage. Without `all`, those of the rank at
 * hand alone. */
size_t sl__place_mails(sl__binder *b, bool all);

/* How many slots each lane needs, in the kind of list at hand. */
sl_status sl__find_slots(sl__binder *b);

/* ---------------------------------------------------- instructions.c -- */

/* The list of the rank at hand, whose slots are dealt. */
sl_status sl__emit_list(sl__binder *b);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The representation of a timeline: what every rank did and when, in a
 * simulation or in a run. simulated.c and measured.c fill it, idle.c explains
 * the gaps, and html.c and picture.c show it.
 *
 * Invariant: once sl__timeline_finish has run, the blocks of a rank are in
 * order of time and do not overlap, its messages are in order of their start,
 * and no time is before `begin` or after `end`. */
#ifndef SL_VIEW_TIMELINE_H
#define SL_VIEW_TIMELINE_H

#include "sluice/view.h"

#include "base/try.h"

/* Kinds of blocks: those of actions, and those that only runs have. */
enum {
    SL__BLOCK_COPY = SL_ACTION_KINDS,
    SL__BLOCK_PACK,
    SL__BLOCK_TIES,
    SL__BLOCK_DATA,
    SL__BLOCK_KINDS
};

/* Why a rank was idle. */
typedef enum sl__idle_reason {
#define SL_IDLE_REASON(name, text, when, light, dark) SL__IDLE_##name,
#include "view/idle.def"
#undef SL_IDLE_REASON
    SL__IDLE_REASONS
} sl__idle_reason;

typedef struct sl__block {
    sl_action action; /* idle where it has none */
    uint32_t order;   /* in which it was added to its list */
    uint8_t kind;     /* an sl_action_kind, or one of those above */
    uint8_t why;      /* an sl__idle_reason, of the gap before it */
    bool critical;    /* on the critical path */
    double start;
    double end;
    /* Where `why` is FORWARD or BACKWARD: when the compute that it waited for
     * was done. From then on it waited only for the message. */
    double ready;
    sl_place by; /* that compute: rank and block; rank -1 where unknown */
    sl_held_bytes held;
    /* Of a message: */
    int peer; /* rank */
    int peer_stage;
    int edge; /* -1 where unknown */
    int64_t bytes;
} sl__block;

typedef struct sl__blocks {
    sl__block *data;
    size_t count;
    size_t capacity;
} sl__blocks;

/* From the end of its compute, or when it was posted, to its arrival. */
typedef struct sl__transfer {
    bool forward;
    int from_rank;
    int to_rank;
    int from_stage;
    int to_stage;
    int microbatch;
    int edge; /* -1 where unknown */
    double sent;
    double arrived;
    int64_t bytes;
} sl__transfer;

typedef struct sl__track {
    sl__blocks blocks; /* compute, state, and those that only runs have */
    sl__blocks comms;  /* sends and receives */
    sl__blocks waits;  /* of a run, as measured: what the rank waited for */
    double busy;
    double overhead; /* neither compute nor idle */
    double idle[SL__IDLE_REASONS];
    int64_t peak_bytes;
    int64_t planned_bytes; /* -1 where unknown */
    int64_t sent_bytes;
    size_t sent;
} sl__track;

typedef struct sl__range {
    double least;
    double most;
} sl__range;

/* The costs of a simulation, as ranges over all stages and all boundaries. */
typedef struct sl__given {
    sl_reading reading;
    sl__range cost[SL_ACTION_KINDS]; /* by kind, for kinds that have a cost */
    double overlap;
    sl__range message; /* time of a message */
    sl__range message_bytes;
    sl__range activation_bytes; /* per stage and microbatch */
} sl__given;

struct sl_timeline {
    char *title;
    bool measured;
    bool seconds; /* times are in seconds, and bytes are bytes */
    bool sized;   /* messages have given bytes, not the default of 1 */
    bool plan;    /* a simulation of a run's own order */
    int64_t microbatch_bytes; /* that mean one microbatch; 0: bytes are bytes */
    sl__given given;          /* unless measured */
    sl_schedule *ran;         /* the cells of a run; else NULL */
    int ranks;
    int stages;
    int microbatches;
    double begin; /* 0, or the first event before the first compute */
    double end;
    double makespan; /* to the end of the last compute, or of the simulation */
    double bubble;
    sl__track *tracks; /* by rank */
    sl__transfer *messages;
    size_t message_count;
    size_t message_capacity;
};

sl_status sl__timeline_create(const char *title, int ranks, sl_timeline **out);

/* Adds a block, which is zero except for fields that are -1 where unknown. */
sl_status sl__blocks_add(sl__blocks *blocks, sl__block **out);
sl_status sl__messages_add(sl_timeline *timeline, const sl__transfer *message);

/* Puts the blocks of each rank in order of time. */
void sl__timeline_sort(sl_timeline *timeline);

/* Completes a timeline. Requires: blocks, messages, makespan, and all fields of
 * ranks that are not zero. Ensures: order, extents, reasons of gaps, sums. */
sl_status sl__timeline_finish(sl_timeline *timeline);

/* Whether a block is F, I, W, B or an overlap. */
static inline bool sl__block_computes(const sl__block *block)
{
    return block->kind < SL_ACTION_KINDS &&
           sl_action_kind_family((sl_action_kind)block->kind) ==
               SL_FAMILY_COMPUTE;
}

/* The text of a kind of block; and of a block, which is that of its action if
 * it has one. */
const char *sl__block_kind_text(int kind);
void sl__block_print(const sl__block *block, char *text);

/* Adds with saturation: a file may contain any number of bytes. */
static inline int64_t sl__add_bytes(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* --------------------------------------------------------------- lookup -- */

/* Classes by which compute is looked up. Other compute waits only for the first
 * two. */
typedef enum sl__class {
    SL__BACKWARD_CLASS, /* B or I */
    SL__FORWARD_CLASS,
    SL__WEIGHT_CLASS
} sl__class;

/* Finds compute by class, stage and microbatch. */
typedef struct sl__lookup {
    struct sl__entry *entries;
    size_t count;
} sl__lookup;

sl_status sl__lookup_create(const sl_timeline *timeline, sl__lookup *out);
void sl__lookup_clear(sl__lookup *lookup);

/* Finds the block that computes a stage's microbatch, on a rank or, for -1, on
 * any; `*out` gets its rank and index. NULL where there is none. */
const sl__block *sl__lookup_find(const sl__lookup *lookup,
                                 const sl_timeline *timeline, sl__class class,
                                 int stage, int microbatch, int rank,
                                 sl_place *out);

static inline sl__class sl__class_of(uint8_t kind)
{
    return kind == SL_FORWARD           ? SL__FORWARD_CLASS
           : kind == SL_BACKWARD_WEIGHT ? SL__WEIGHT_CLASS
                                        : SL__BACKWARD_CLASS;
}

/* Finds a run among timelines, and the timeline to compare it with: its own
 * plan, else a simulation in seconds of the same stages and microbatches. NULL
 * where there is none. */
void sl__find_plan(const sl_timeline *const *timelines, size_t count,
                   const sl_timeline **out_run, const sl_timeline **out_plan);

/* Fails where one of them is NULL. */
sl_status sl__check_given(const sl_timeline *const *timelines, size_t count);

/* Finds why ranks were idle before each block, and sums that up (idle.c). */
sl_status sl__explain_idle(sl_timeline *timeline);

/* Marks the critical path of a run (idle.c). */
void sl__mark_critical(sl_timeline *timeline);

#endif

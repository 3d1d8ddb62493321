/* SPDX-License-Identifier: MIT
 *
 * From a differentiated graph to programs: which program runs which node
 * (split.c), where every tensor lies (plan.c), and the flat kernel calls
 * (stage.c). */
#ifndef SL_TENSOR_PROGRAM_H
#define SL_TENSOR_PROGRAM_H

#include "tensor/autodiff.h"
#include "tensor/backend.h"

/* A kernel call of a program: the node it computes. An activation that the
 * kernel of a product applies itself belongs to the call of the product. */
typedef struct sl__kernel_call {
    const sl__node *node;
    const sl__node *activation; /* fused into this call; NULL: none */
    sl__kernel *kernel;
    int64_t scratch_offset; /* in the workspace */
} sl__kernel_call;

typedef struct sl__kernel_calls {
    sl__kernel_call *data;
    size_t count;
    bool exists; /* was asked for */
} sl__kernel_calls;

/* The node that computes the results of a call. */
static inline const sl__node *sl__last_node(const sl__kernel_call *call)
{
    return call->activation ? call->activation : call->node;
}

/* Which calls of a program touch the memory of a base tensor. */
typedef struct sl__touch {
    int first; /* index of the call; -1: never */
    int last;
    int writers; /* nodes that write it */
} sl__touch;

/* Where a base tensor lies while a program runs. */
typedef struct sl__place {
    int pool; /* SL__POOL_NONE while unknown */
    int64_t offset;
    bool shared; /* takes the memory of an operand, which is not read again */
} sl__place;

/* A message of a microbatch: an input, an output or a gradient of one. */
typedef struct sl__message {
    sl_port_kind kind;
    int index; /* of the input or output */
    int64_t bytes;
    int64_t offset; /* in a slot of its kind */
} sl__message;

/* The memory of a microbatch, by when it is needed. Each kind has slots of its
 * own, as many as there are microbatches that need them at once. */
typedef enum sl__slot_kind {
    SL__SLOT_SLAB,   /* from F to the end of the backward */
    SL__SLOT_HANDED, /* from I to W */
    SL__SLOT_INPUTS,
    SL__SLOT_OUTPUTS,
    SL__SLOT_INPUT_GRADIENTS,
    SL__SLOT_OUTPUT_GRADIENTS,
    SL__SLOT_KINDS
} sl__slot_kind;

/* The kind of slot that has a port's message. */
static inline sl__slot_kind sl__slot_kind_of(sl_port_kind kind)
{
    switch (kind) {
    case SL_PORT_INPUT: return SL__SLOT_INPUTS;
    case SL_PORT_OUTPUT: return SL__SLOT_OUTPUTS;
    case SL_PORT_INPUT_GRADIENT: return SL__SLOT_INPUT_GRADIENTS;
    default: return SL__SLOT_OUTPUT_GRADIENTS;
    }
}

/* Whether a port is a parameter or the gradient of one. */
static inline bool sl__is_parameter_kind(sl_port_kind kind)
{
    return kind == SL_PORT_PARAMETER || kind == SL_PORT_PARAMETER_GRADIENT;
}

/* How many slots of each kind a memory has, and which ones each microbatch
 * uses: of[i] for the i-th. This i is what all functions call `slot`. */
typedef struct sl__slots {
    int counts[SL__SLOT_KINDS];
    const int (*of)[SL__SLOT_KINDS];
    int microbatches;
} sl__slots;

/* Where a tensor lies in its pool. */
typedef struct sl__piece_of {
    sl_dtype dtype;
    int64_t offset;
    int64_t bytes;
} sl__piece_of;

/* How a kernel of B runs on a device that works on by itself: in which lane,
 * and after which kernel of each other lane; SL__LANE_START: only after what
 * came before B. */
enum { SL__LANE_MAIN, SL__LANE_PRODUCTS, SL__LANE_SUMS, SL__LANES };
enum { SL__LANE_START = -1 };
typedef struct sl__lane {
    int lane;
    bool is_awaited; /* a kernel of another lane comes after it */
    int after[SL__LANES];
} sl__lane;

struct sl_stage {
    sl_stage_options options;
    const sl__backend *backend;
    sl__device *device;
    sl_graph *graph; /* with backward nodes */
    sl__diff diff;
    sl__kernel_calls programs[SL_PROGRAM_COUNT];
    bool *in_w; /* by node: it belongs to W, compiled or not */
    sl__touch *touches[SL_PROGRAM_COUNT]; /* by id of a base tensor */
    int *writers;                         /* in all programs */
    sl__message *messages;
    int message_count;
    sl__place *places[SL_PROGRAM_COUNT]; /* by id of a base tensor */
    sl__piece_of *parameters;            /* in their pool, by leaf index */
    sl__piece_of *gradients;             /* likewise */
    int64_t *buffer_offsets; /* in the parameter pool, after the parameters */
    sl__kernel *kernels[SL_PROGRAM_COUNT]; /* flat, in the order they run */
    sl__lane *lanes; /* by kernel of B; NULL: all in one */
    sl__packs packs;
    int64_t kernel_count;
    int arg_count_max;
    sl_callbacks callbacks; /* of a stage without kernels */
    void *callback_context;
    int *callback_messages;
    int64_t *callback_sums;
    int64_t slot_bytes[SL__SLOT_KINDS];
    /* By program: a bit for each kind of slot that it uses. */
    unsigned uses[SL_PROGRAM_COUNT];
    sl_plan plan;
};

/* Whether a stage runs callbacks. */
static inline bool sl__is_callbacks(const sl_stage *stage)
{
    return stage->callbacks.forward;
}

/* The message of a kind and index; -1 where there is none. */
int sl__find_message(const sl_stage *stage, sl_port_kind kind, int index);

/* ---------------------------------------------- memory.c, memory_ports.c -- */

/* For tests: the memory of a pool as a slot sees it, and its bytes. */
void *sl__memory_pool(const sl_memory *memory, int pool, int slot,
                      int64_t *out_bytes);

/* The device address of a port in a slot. NULL if it is elsewhere, as the
 * parameters of callbacks are. */
void *sl__port_memory(const sl_memory *memory, const sl_port *port, int slot);

/* Refuses a port of another stage, or one with other bytes; outputs the dtype
 * that it has in memory. */
sl_status sl__check_port(const sl_stage *stage, const sl_port *port,
                         size_t bytes, sl_dtype *out_dtype);

/* The stream that does all work on a memory. */
sl__stream *sl__memory_stream(const sl_memory *memory);

/* Bytes that several memories hold together: now, and the most since that was
 * last set. Discarded memory, whose pages the system has back, is not held. */
typedef struct sl__holding {
    int64_t now;
    int64_t most;
} sl__holding;

/* Counts what a memory holds, now and from now on, in `holding`, which must
 * outlive it. */
void sl__memory_count_in(sl_memory *memory, sl__holding *holding);

/* sl_memory_create, or with an owner sl_memory_create_shared, with a number of
 * slots for each kind. `stream` does all work on it; NULL: a stream of its
 * own. */
sl_status sl__memory_create(const sl_stage *stage, const sl__slots *slots,
                            sl_memory *owner, sl__stream *stream,
                            sl_memory **out);

/* After sl__memory_discard: sets how many bytes of parameters or gradients are
 * not held from now on; 0 if all are. Gradients count as held again from the
 * next backward on, packed weights from the next run on. */
void sl__memory_set_discarded(sl_memory *memory, sl_port_kind kind,
                              int64_t bytes);

/* Device memory, counted; `what` it is for, where there is not enough.
 * Optimizers take theirs here: it is not in the plan. */
sl_status sl__memory_allocate(sl_memory *memory, const char *what,
                              int64_t bytes, void **out);
void sl__memory_free(sl_memory *memory, int64_t bytes, void *data);

/* Read, write or zero a part of a parameter or gradient, from byte `first` on.
 * Require: it lies in memory of the device. */
sl_status sl__memory_write_piece(sl_memory *memory, const sl_port *port,
                                 size_t first, const void *data, size_t bytes);
sl_status sl__memory_read_piece(const sl_memory *memory, const sl_port *port,
                                size_t first, void *data, size_t bytes);
sl_status sl__memory_clear(sl_memory *memory, const sl_port *port, size_t first,
                           size_t bytes);

/* Gives the pages of a parameter or gradient back to the system, except for a
 * part, in bytes; what is discarded reads as zeros. Packed weights go too. */
sl_status sl__memory_discard(sl_memory *memory, const sl_port *port,
                             size_t first, size_t length);

/* Notes that parameters were written otherwise than by sl_memory_write, so that
 * the next run packs them again. */
void sl__memory_mark_written(sl_memory *memory);

/* The same after updates of all parameters, which have also written the weights
 * that are packed as casts. */
void sl__memory_mark_updated(sl_memory *memory);

/* What an optimizer's step on a part of a parameter, in elements, works on.
 * Takes the port of its gradient. */
sl__update_args sl__memory_update_args(const sl_memory *memory,
                                       const sl_port *gradient, size_t first,
                                       size_t count, void *const states[2]);

/* sl_memory_descend on a part of one parameter, in elements. */
sl_status sl__memory_descend_part(sl_memory *memory, const sl_port *gradient,
                                  size_t first, size_t count, double rate);

/* --------------------------------------------------------------- run.c -- */

/* Sets seeds and scales of all slots for the next step, and clears faults. */
sl_status sl__memory_begin_step(sl_memory *memory,
                                const sl__step_block *blocks);

/* Enqueue what sl_stage_run and sl_stage_run_group run, with the seeds and
 * scales of sl__memory_begin_step. Faults are recorded, for
 * sl__memory_check. */
sl_status sl__stage_enqueue(const sl_stage *stage, sl_program program,
                            sl_memory *memory, int slot);
/* The same on another stream of the device, which must have been made to wait
 * for that of the memory, and be waited for. */
sl_status sl__stage_enqueue_on(sl__stream *stream, const sl_stage *stage,
                               sl_program program, sl_memory *memory, int slot);
sl_status sl__stage_enqueue_group(const sl_stage *stage, sl_memory *memory,
                                  const int *slots, int count);

/* Reads the faults of all slots. Fails with the first, and outputs its slot and
 * program. */
sl_status sl__memory_check(const sl_memory *memory, int *out_slot,
                           sl_program *out_program);

/* Whether weights have changed since they were packed; packs them now, so that
 * the next run need not. */
bool sl__memory_needs_packing(const sl_memory *memory);
sl_status sl__memory_pack(sl_memory *memory);

/* The tensor that is sent or received as a message; NULL if the stage has no
 * such message. (stage.c) */
const sl_tensor *sl__message_tensor(const sl_stage *stage, sl_port_kind kind,
                                    int index);

/* Lists the messages of a stage, in the order of its ports. (stage.c) */
sl_status sl__list_messages(sl_stage *stage);

/* -------------------------------------------------------- callbacks.c -- */

/* Makes a graph of leaves from a description; no node makes its outputs. */
sl_status sl__describe(const sl_stage_description *given, sl_graph **out);

/* Makes the stage of such a graph, in which the caller may have changed where
 * gradients flow. Its messages are in memory of the backend. */
sl_status sl__stage_from_callbacks(const sl_stage_description *given,
                                   const sl_graph *graph, const char *backend,
                                   sl_stage **out);

/* Runs the callbacks that make up `program`, on a slot. */
sl_status sl__run_callbacks(sl_memory *memory, sl_program program, int slot);

/* ------------------------------------------------------------ split.c -- */

/* Decides which nodes each program runs, in which order.
 *
 * Requires: a differentiated graph. Ensures: I has exactly the backward nodes
 * that some input gradient needs, W the other backward nodes that some
 * parameter gradient needs, B both; F what outputs need and, unless it is to
 * be recomputed, what backward reads. With recompute every forward node that
 * backward needs is in I where I needs it, else in W, once. */
sl_status sl__split(sl_stage *stage);

/* ------------------------------------------------------------- fuse.c -- */

/* Merges the gradients of one attention that share a program, and sums with the
 * norms of them; lets parts of a concat be written in place, and gives
 * activations to the products before them. The first three change the graph:
 * sums and parts of a concat before sl__split, attention within it. */
sl_status sl__merge_sums_into_norms(sl_graph *graph);
void sl__merge_attention_grads(sl_graph *graph, uint8_t *sets);
sl_status sl__place_concat_parts(sl_stage *stage);
void sl__fuse_activations(sl_stage *stage, sl_program program);

/* Whether a base tensor is an output or the gradient of an input. */
bool sl__is_message(const sl_stage *stage, const sl_tensor *base);

/* ------------------------------------------------------------ lanes.c -- */

/* The lane of a call of a program. */
int sl__lane_of(const sl_stage *stage, int p, const sl__kernel_call *call);

/* For how many calls the memory of one that runs beside them is kept, by how
 * much it is. Tests set it. */
typedef struct sl__behind {
    int much, little;
} sl__behind;
extern sl__behind sl__lanes_behind;

/* Finds what waits for what. Requires: kernels whose args have places. */
sl_status sl__assign_lanes(sl_stage *stage);

/* ------------------------------------------------------------ order.c -- */

/* Proposes orders for the calls of B, each a permutation of their indices, from
 * which the planner chooses. Requires: sl__compute_touches. */
enum { SL__ORDER_COUNT = 3 };
sl_status sl__propose_orders(const sl_stage *stage, sl__arena *scratch,
                             int *orders[SL__ORDER_COUNT]);

/* ------------------------------------------------------------- plan.c -- */

/* Gives every base tensor of every program its place, the plan its bytes, and
 * the calls of B their order.
 *
 * Requires: calls with prepared kernels, whose scratch is known. Ensures: what
 * is alive at the same time does not overlap; what a program hands to a later
 * one lies in the slab at one place for both. */
sl_status sl__plan_memory(sl_stage *stage);

/* Lays the messages of a slot out, and plans their bytes. */
void sl__plan_messages(sl_stage *stage);

/* Records which program uses which kinds of slots. Requires: kernels whose args
 * have places. */
void sl__note_uses(sl_stage *stage);

/* Records which call touches what; to be repeated whenever calls change. */
sl_status sl__compute_touches(sl_stage *stage);

/* Whether `program` reads memory of `base` that an earlier program of the same
 * microbatch wrote. */
bool sl__is_carried_in(const sl_stage *stage, sl_program program,
                       const sl_tensor *base);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The memory of one user of a stage: created in memory.c, read and written by
 * port in memory_ports.c, used by programs in run.c. */
#ifndef SL_TENSOR_MEMORY_H
#define SL_TENSOR_MEMORY_H

#include "tensor/program.h"

/* Bytes of a block in the control pool. On the device each has a cache line of
 * its own: one may be written while another is read. */
enum { SL__BLOCK_BYTES = SL__ALIGNMENT };
_Static_assert(sizeof(sl__step_block) <= SL__BLOCK_BYTES &&
                   sizeof(sl__update_block) <= SL__BLOCK_BYTES,
               "a block fits");
typedef union padded_block {
    sl__step_block block;
    char bytes[SL__BLOCK_BYTES];
} padded_block;

/* The last program that ran on a slot, if another one must follow. */
typedef enum slot_state { SLOT_EMPTY, SLOT_F, SLOT_I } slot_state;

/* The state of a microbatch, and where its slots are. */
typedef struct microbatch {
    slot_state state;
    sl__step_block *block; /* in device memory */
    void **bases;          /* address of each pool */
} microbatch;

struct sl_memory {
    const sl_stage *stage;
    sl__stream *stream;
    bool owns_stream;
    void *control; /* an update block, then a step block for each slot */
    void *parameters;
    void *gradients;
    void *packed;
    void *workspace;
    void *pools[SL__SLOT_KINDS]; /* all slots of a kind */
    microbatch *slots;
    int slot_count;
    void **bases;       /* of all microbatches */
    void **pointers;    /* to the args of the current kernel, by microbatch */
    sl_memory *owner;   /* has the parameters and gradients; usually itself */
    uint64_t written;   /* how often the owner's parameters have been written */
    uint64_t packed_at; /* what `written` was when weights were last packed */
    int64_t bytes;      /* of tensor memory allocated here */
    /* How many of these are discarded, of parameters, gradients and packed
     * weights. */
    int64_t discarded[3];
    sl__mark **marks; /* by kernel of B, while it is enqueued; or NULL */
    sl__holding *holding; /* counts several memories; or NULL */
    char *staging; /* for callbacks: the messages of a slot, in host memory */
    padded_block *blocks; /* the step blocks, in host memory */
};

/* The most microbatches that one call of a kernel runs. */
enum { SL__GROUP_MAX = 64 };

enum { DISCARDED_PARAMETERS, DISCARDED_GRADIENTS, DISCARDED_PACKED };

/* Sets how many bytes of a pool are discarded, and no longer held. */
void sl__memory_count_discarded(sl_memory *memory, int which, int64_t bytes);

/* Computes the addresses of a kernel's args. */
static inline void sl__resolve(const sl__kernel *kernel, void *const *bases,
                               void **pointers)
{
    for (int i = 0; i < kernel->arg_count; i++) {
        const sl__arg *arg = &kernel->args[i];
        pointers[i] = arg->pool == SL__POOL_NONE
                          ? NULL
                          : (char *)bases[arg->pool] + arg->offset;
    }
}

#endif

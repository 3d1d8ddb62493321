/* SPDX-License-Identifier: MIT
 *
 * The memory of one user of a stage: made in memory.c, read and written by port
 * in memory_ports.c, computed on in run.c. */
#ifndef SL_TENSOR_MEMORY_H
#define SL_TENSOR_MEMORY_H

#include "tensor/program.h"

/* The last program that ran on a slot, if another is due. */
typedef enum slot_state { SLOT_EMPTY, SLOT_F, SLOT_I } slot_state;

/* A microbatch: what is in its slots, and where these are. */
typedef struct microbatch {
    slot_state state;
    sl__step_block *block; /* of the device */
    void **bases;          /* of the pools */
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
    void **bases;       /* of all slots */
    void **pointers;    /* of the args of the kernel at hand, by microbatch */
    sl_memory *owner;   /* of parameters and gradients; itself, mostly */
    uint64_t written;   /* how often the owner's parameters were */
    uint64_t packed_at; /* what `written` was when they were packed */
    int64_t bytes;      /* of tensor memory allocated here */
    /* Of these, what was discarded: parameters, gradients, packed weights. */
    int64_t discarded[3];
    sl__holding *holding; /* where they are counted; NULL: nowhere */
    char *staging; /* for callbacks: messages of a slot, in ordinary memory */
    sl__step_block *blocks; /* as read or to be written, in ordinary memory */
};

/* Bytes of a block in the pool of control. */
enum { SL__BLOCK_BYTES = SL__ALIGNMENT };
_Static_assert(sizeof(sl__step_block) <= SL__BLOCK_BYTES &&
                   sizeof(sl__update_block) <= SL__BLOCK_BYTES,
               "a block fits");

/* Microbatches that a kernel is run for in one call, at most. */
enum { SL__GROUP_MAX = 64 };

enum { DISCARDED_PARAMETERS, DISCARDED_GRADIENTS, DISCARDED_PACKED };

/* Sets how many bytes of a pool are discarded, and not held from now on. */
void sl__memory_count_discarded(sl_memory *memory, int which, int64_t bytes);

/* Finds where the args of a kernel lie. */
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

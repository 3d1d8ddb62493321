/* SPDX-License-Identifier: MIT
 *
 * The `cpu` backend: vector kernels of three instruction sets for all ops,
 * matrix products among them (gemm/gemm.h), on threads that ranks share
 * (runtime/). This header is what its parts need of each other. */
#ifndef SL_TENSOR_CPU_H
#define SL_TENSOR_CPU_H

#include "tensor/backend.h"

/* --------------------------------------------------------------- amx.c -- */

/* Whether the CPU claims AMX and `attempt`, in a child process, returns 0: some
 * machines claim it and kill the process that uses it. */
bool sl__amx_works(int (*attempt)(void));

/* Whether `attempt`, run in a child process, leaves with 0 in time. */
bool sl__survives_in_child(int (*attempt)(void), int seconds);

/* ----------------------------------------------------------- threads.c -- */

/* The threads that a run has; without a stream one. */
int sl__threads_of(const sl__run *run);

/* The most threads that the environment allows (OMP_THREAD_LIMIT). */
int sl__thread_limit(void);

/* Calls `body` with parts of 0..count on all threads, several on each, and on
 * those of others who wait; or with all of it where that is less than two
 * grains. Each thread begins with a share of its own, the same every time.
 * `worker` counts threads from 0; thieves come after. */
typedef void (*sl__parallel_fn)(void *data, int worker, int64_t from,
                                int64_t to);
void sl__parallel(int threads, int64_t count, int64_t grain,
                  sl__parallel_fn body, void *data);

/* The same for work with memory for so many workers. */
void sl__parallel_few(int threads, int workers, int64_t count, int64_t grain,
                      sl__parallel_fn body, void *data);

/* -------------------------------------------------------------- vector -- */

/* Kernels for one instruction set, by op; NULL where there is none. */
typedef struct sl__vector_kernels {
    const char *name;
    sl__kernel_fn table[SL__OP_COUNT];
    int lanes;                     /* floats in a vector */
    sl__kernel_fn multiply_panels; /* of an sl__panel_product */
    sl__kernel_fn multiply_dots;   /* of an sl__dot_product */
    sl__kernel_fn add_rank_update; /* of an sl__rank_update */
    sl__kernel_fn pack_panels;     /* of an sl__panel_pack */
} sl__vector_kernels;

extern const sl__vector_kernels sl__vector_avx512;
extern const sl__vector_kernels sl__vector_avx2;
extern const sl__vector_kernels sl__vector_portable;

/* ----------------------------------------------------------- attention -- */

/* Queries whose scores are kept at a time, and the floats of scratch that one
 * worker needs for a head; there is as much for as many thieves. */
enum { SL__ATTENTION_BLOCK = 32, SL__ATTENTION_WORKERS = 2 };
int64_t sl__attention_scratch(sl__op op, int64_t length, int64_t size);

/* The best that this CPU runs. */
const sl__vector_kernels *sl__vector_choose(void);

/* For tests: stages compiled from now on use these kernels, NULL the best.
 * False where this CPU does not run them. */
bool sl__vector_force(const char *name);

/* Whether a reduction is over the last dimension alone, which it keeps as 1. */
bool sl__reduces_last(const sl__arg *in, const sl__arg *out);

/* Whether the vector kernels take this geometry; sets kernel->scratch_bytes. */
bool sl__vector_accepts(sl__kernel *kernel, int threads);

#endif

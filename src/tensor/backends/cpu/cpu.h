/* SPDX-License-Identifier: MIT
 *
 * The `cpu` backend: vector kernels for three instruction sets, matrix products
 * (gemm/gemm.h), and the threads that run them (runtime/). This header is what
 * these parts need of each other. */
#ifndef SL_TENSOR_CPU_H
#define SL_TENSOR_CPU_H

#include "tensor/backend.h"

/* --------------------------------------------------------------- amx.c -- */

/* Whether AMX works here, and SLUICE_AMX in the environment is not `never`. */
bool sl__has_amx(void);

/* Whether SLUICE_AMX has this value. */
bool sl__amx_is_asked(const char *value);

/* Refuses values of SLUICE_AMX other than `always` and `never`. */
sl_status sl__amx_check_environment(void);

/* Asks for AMX's tiles and multiplies with them; returns 0 if that is right. On
 * some machines it does not return. (bf16_amx.c) */
int sl__try_amx(void);

/* Whether `attempt`, run in a child process, exits with 0 in time. */
bool sl__survives_in_child(int (*attempt)(void), int seconds);

/* ----------------------------------------------------------- threads.c -- */

/* How many threads a run has; 1 without a stream. */
int sl__threads_of(const sl__run *run);

/* The most threads that the environment allows (OMP_THREAD_LIMIT). */
int sl__thread_limit(void);

/* Calls `body` with parts of 0..count: several parts on each thread of the run,
 * and some on waiting threads that steal; or with all of it, if that is less
 * than two grains. Each thread begins with a share of its own, the same every
 * time. `worker` is the number of the thread, from 0; threads that steal come
 * after the run's own. */
typedef void (*sl__parallel_fn)(void *data, int worker, int64_t from,
                                int64_t to);
void sl__parallel(int threads, int64_t count, int64_t grain,
                  sl__parallel_fn body, void *data);

/* The same for a body with memory for at most this many workers. */
void sl__parallel_few(int threads, int workers, int64_t count, int64_t grain,
                      sl__parallel_fn body, void *data);

/* -------------------------------------------------------------- vector -- */

/* Kernels for one instruction set, by op; NULL for an op that has none. */
typedef struct sl__vector_kernels {
    const char *name;
    sl__kernel_fn table[SL__OP_COUNT];
    int lanes;                     /* floats in a vector */
    sl__kernel_fn multiply_panels; /* its `private` is an sl__panel_product */
    sl__kernel_fn multiply_dots;   /* an sl__dot_product */
    sl__kernel_fn add_rank_update; /* an sl__rank_update */
    sl__kernel_fn pack_panels;     /* an sl__panel_pack */
} sl__vector_kernels;

extern const sl__vector_kernels sl__vector_avx512;
extern const sl__vector_kernels sl__vector_avx2;
extern const sl__vector_kernels sl__vector_portable;
/* On bf16, without products. */
extern const sl__vector_kernels sl__vector_avx512_bf16;
extern const sl__vector_kernels sl__vector_avx2_bf16;
extern const sl__vector_kernels sl__vector_portable_bf16;

/* ----------------------------------------------------------- attention -- */

/* BLOCK: the queries whose scores are in scratch at a time. WORKERS: for how
 * many workers per thread there is scratch: the thread itself, and one that
 * steals. The function: the floats of scratch that one worker needs for a
 * head. */
enum { SL__ATTENTION_BLOCK = 32, SL__ATTENTION_WORKERS = 2 };
int64_t sl__attention_scratch(sl__op op, int64_t length, int64_t size,
                              bool is_bf16);

/* The fastest ones that this CPU supports. */
const sl__vector_kernels *sl__vector_choose(void);

/* The same on bf16. */
const sl__vector_kernels *sl__vector_choose_bf16(void);

/* Whether this CPU has AVX-512's instructions for bf16, and they were
 * compiled. */
bool sl__has_avx512_bf16(void);

/* For tests: stages compiled from now on use the kernels of this name; NULL:
 * the fastest. False if this CPU does not support them. */
bool sl__vector_force(const char *name);

/* Whether a reduction is over the last dimension alone, which it keeps as 1. */
bool sl__reduces_last(const sl__arg *in, const sl__arg *out);

/* Whether the vector kernels on bf16 take operands and results of these
 * dtypes. */
bool sl__vector_takes_bf16(const sl__kernel *kernel);

/* Whether the vector kernels take this geometry; sets kernel->scratch_bytes. */
bool sl__vector_accepts(sl__kernel *kernel, int threads);

#endif

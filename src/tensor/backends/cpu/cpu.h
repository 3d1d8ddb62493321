/* SPDX-License-Identifier: MIT
 *
 * The `onednn` backend: products by oneDNN with weights packed once per
 * optimizer step, everything else by our own vector kernels. */
#ifndef SL_TENSOR_ONEDNN_H
#define SL_TENSOR_ONEDNN_H

#include "tensor/backend.h"

#include <dnnl.h>

typedef struct sl__dnn_context {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads;
} sl__dnn_context;

/* Names the oneDNN call that failed. */
sl_status sl__dnn_fail(const char *call, dnnl_status_t status);

/* --------------------------------------------------------------- isa.c -- */

/* Keeps oneDNN from instruction sets that kill the process: caps it at
 * AVX512_CORE_BF16 where the CPU claims AMX, unless a try in a child process
 * comes back alive. Once per process, before oneDNN is first used. */
sl_status sl__dnn_cap_isa(void);

/* Whether AMX is claimed and `attempt` survives in a child. */
bool sl__amx_works(int (*attempt)(void));

/* Caps where AMX is claimed and an attempt to use it, in a child, fails. */
sl_status sl__dnn_cap_unless(bool claims, int (*attempt)(void));
int sl__dnn_try_amx(void);

/* Whether `attempt`, run in a child process, leaves with 0 in time. */
bool sl__survives_in_child(int (*attempt)(void), int seconds);

/* ------------------------------------------------------------ matmul.c -- */

/* Prepares a product; leaves kernel->run alone where oneDNN has no fast way. */
sl_status sl__dnn_prepare_matmul(sl__dnn_context *context, sl__packs *packs,
                                 sl__kernel *kernel);
void sl__dnn_forget(sl__kernel *kernel);
sl_status sl__dnn_bind(sl__device *device, const sl__kernel *kernel,
                       void *const *p, void **out_state);
void sl__dnn_unbind(void *state);

/* ----------------------------------------------------------- threads.c -- */

/* The threads of oneDNN's own runtime, OpenMP, so that its kernels and ours
 * take turns on one team. */
typedef struct sl__team {
    int threads;
    int dynamic; /* whether fewer may be granted */
} sl__team;

/* The threads that a run has; without a stream one. */
int sl__threads_of(const sl__run *run);

/* Sets the team of this thread; returns what it was. */
sl__team sl__set_team(sl__team team);
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
    sl__kernel_fn add_product;     /* of an sl__flat_product */
    int lanes;                     /* floats of a vector */
    int tall_rows;                 /* that panels of one vector are for */
    sl__kernel_fn multiply_panels; /* of an sl__panel_product */
    sl__kernel_fn multiply_turned; /* of an sl__turned_product */
    sl__kernel_fn multiply_dots;   /* of an sl__dot_product */
    sl__kernel_fn pack_panels;     /* of an sl__panel_pack */
} sl__vector_kernels;

/* A matrix (k, n) as it lies, to be packed into panels of so many vectors'
 * columns, k after k: in the order in which it is read. */
enum { SL__PANEL_VECTORS_MAX = 3 };
typedef struct sl__panel_pack {
    int64_t k, n;
    int64_t row, column;
    int64_t vectors; /* 0: split into pieces instead */
    int64_t is_far;  /* does not stay near: goes past the caches */
    int64_t room;    /* k's that a panel has room for: this may be a part */
} sl__panel_pack;

/* A product with a weight in panels: out (m, n) = a (m, k) b (k, n) + bias, or,
 * without bias, out += a b; rows of out contiguous. Where b is no weight, it is
 * packed first, into scratch; so is a, into panels of its rows, a vector wide,
 * where that is worth it. */
typedef struct sl__panel_product {
    int64_t m, n, k;
    int64_t a_row, a_column, out_row;
    int vectors;
    bool adds;
    bool is_far;   /* the weight does not stay near */
    bool adds_far; /* nor does what it adds to */
    int64_t piece; /* of the depth: such pieces lie apart; 0: it is in one */
    int64_t b_row; /* of a b that is read where it lies; 0: in panels */
    bool packs_a, packs_b;
    sl__panel_pack a_pack, b_pack; /* of one that packs them */
    int a, b, bias;                /* which operands; -1: none */
} sl__panel_product;

/* A product of a few rows with a weight that is in panels for its transpose:
 * out (m, n) = a (m, k) b (k, n), where b' (n, k) is in panels; rows of a and
 * of out contiguous, m a multiple of a vector's lanes. */
typedef struct sl__turned_product {
    int64_t m, n, k;
    int64_t a_row, out_row;
    int vectors; /* 2 or 3 */
    int a, b;    /* which operands */
} sl__turned_product;

/* A product of a few rows with a weight that is near, where it lies: out (m, n)
 * = a (m, k) b (k, n) + bias; columns of b and rows of a and out contiguous, n
 * and k multiples of a vector's lanes. */
typedef struct sl__dot_product {
    int64_t m, n, k;
    int64_t a_row, b_column, out_row;
    int a, b, bias; /* which operands; -1: none */
} sl__dot_product;

/* The gradient of a weight from a few rows: out (m, n) += a (m, k) b (k, n),
 * with small k, rows of b and out contiguous. Bound by memory, not by
 * arithmetic, so it walks `out` in order and asks for it ahead of time, and adds
 * several microbatches in one walk where they come in one call. */
enum { SL__FLAT_PRODUCT_DEPTH_MAX = 64 };

typedef struct sl__flat_product {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, out_row;
    int a, b;     /* which operands */
    bool is_far;  /* too large to stay near from one microbatch to the next */
    int together; /* microbatches in a walk, packed in scratch; 1: as they lie */
    int per_piece;                 /* microbatches of a piece */
    int64_t a_piece, b_piece;      /* numbers of one */
    sl__panel_pack a_pack, b_pack; /* of one microbatch */
} sl__flat_product;

/* For tests: gradients of so many numbers are far, and walked once for several
 * microbatches; 0: what is best. */
void sl__group_from(int64_t numbers);

/* For tests: vectors take two turns, so that tiles are tall where they can be
 * (1), or one (0), or as many as here (-1). */
void sl__tall_force(int tall);

extern const sl__vector_kernels sl__vector_avx512;
extern const sl__vector_kernels sl__vector_avx2;
extern const sl__vector_kernels sl__vector_portable;

/* -------------------------------------------------------------- splits -- */

/* Split factors lie in blocks of so many rows or columns, as deep, each number
 * in so many pieces of bf16. */
enum { SL__SPLIT_BLOCK = 32, SL__SPLIT_PIECES = 3 };

/* Products of many rows, each number of which is split in three of bf16. Where
 * b is a weight it was split when it was packed; a always is in scratch. */
typedef struct sl__split_kernels {
    const char *name;
    bool (*begin)(void);    /* once per process; false: cannot be had */
    sl__kernel_fn multiply; /* of an sl__panel_product */
    sl__kernel_fn pack;     /* of an sl__panel_pack without vectors */
} sl__split_kernels;
extern const sl__split_kernels *const sl__splits_amx; /* NULL: not compiled */
extern const sl__split_kernels sl__splits_portable;

/* What this CPU multiplies faster so; NULL: nothing. Threads of a team are
 * often two of a core, which has one unit for tiles: there vectors are faster,
 * so only one thread has tiles, unless SLUICE_AMX in the environment says
 * `always` or `never`. */
const sl__split_kernels *sl__splits_choose(int threads);

/* Refuses anything else that it says. */
sl_status sl__splits_check(void);

/* Returns 0 where AMX computes what it should, if it returns. */
int sl__splits_try_amx(void);

/* For tests: stages compiled from now on use these, "none", or NULL what is
 * best. False where this CPU does not run them. */
bool sl__splits_force(const char *name);

/* Bytes of a split factor of so many rows or columns. */
int64_t sl__split_bytes(int64_t size, int64_t depth);

/* ----------------------------------------------------------- attention -- */

/* Queries whose scores are kept at a time, and the floats of scratch that one
 * worker needs for a head; there is as much for as many thieves. */
enum { SL__ATTENTION_BLOCK = 32, SL__ATTENTION_WORKERS = 2 };
int64_t sl__attention_scratch(sl__op op, int64_t length, int64_t size);

/* The best that this CPU runs. */
const sl__vector_kernels *sl__vector_choose(void);

/* Whether a vector is multiplied in two turns (Zen 4). A tile of one vector,
 * which loads a number for every multiplication, is as fast as a wide one then,
 * and sums over lanes are dear. */
bool sl__takes_two_turns(void);

/* For tests: stages compiled from now on use these kernels, NULL the best.
 * False where this CPU does not run them. */
bool sl__vector_force(const char *name);

/* Whether a reduction is over the last dimension alone, which it keeps as 1. */
bool sl__reduces_last(const sl__arg *in, const sl__arg *out);

/* Whether the vector kernels take this geometry; sets kernel->scratch_bytes. */
bool sl__vector_accepts(sl__kernel *kernel, int threads);

#endif

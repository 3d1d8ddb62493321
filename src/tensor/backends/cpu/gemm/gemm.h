/* SPDX-License-Identifier: MIT
 *
 * Matrix products in f32. Four kernels do all of them: panels of vectors
 * (panels.h), weight gradients of a few rows (rank_update.h), a few rows by a
 * small weight (dot_product.h), and, where AMX pays, f32 split into bf16
 * (split_product.h). gemm.c decides which one a node
 * of the graph gets; here is what it prepares for each. */
#ifndef SL_TENSOR_CPU_GEMM_H
#define SL_TENSOR_CPU_GEMM_H

#include "tensor/backend.h"

/* A matrix (k, n) to be packed into panels, each of so many vectors' columns,
 * row after row of the panel: the order in which a product reads them. */
enum { SL__PANEL_VECTORS_MAX = 3 };
typedef struct sl__panel_pack {
    int64_t k, n;
    int64_t row, column; /* steps in the matrix */
    int64_t vectors;     /* 0: split into pieces of bf16 instead */
    int64_t streamed;    /* written past the caches, which it would flood */
    int64_t depth;       /* rows that a panel has room for, k or more */
} sl__panel_pack;

/* out (batch, m, n) = a (batch, m, k) b (batch, k, n) + bias or, without bias,
 * out += a b. Rows of `out` are contiguous. A weight b is packed already, or is
 * read in place; any other b is packed into scratch first, and so is a where
 * that pays, into panels of its rows, a vector wide. */
typedef struct sl__panel_product {
    int64_t batch, m, n, k;
    int64_t a_batch, b_batch, out_batch; /* steps to the next of the batch */
    int64_t a_row, a_column, out_row;
    int vectors;
    bool adds;
    bool b_streamed;   /* b does not stay in cache from call to call */
    bool out_streamed; /* nor does what is added to */
    int64_t piece;     /* the depth lies in pieces of so many; 0: in one */
    int64_t b_row;     /* of a b that is read in place; 0: b is in panels */
    bool packs_a, packs_b;
    sl__panel_pack a_pack, b_pack;
    int a, b, bias; /* which operands of the kernel; -1: none */
} sl__panel_product;

/* The gradient of a weight from a few rows: out (m, n) += a (m, k) b (k, n), an
 * update of small rank k. Bound by memory, not by arithmetic: so `out` is read
 * in order and prefetched; and where several microbatches come in one call, all
 * are added in one pass over `out`. Rows of b and of out are contiguous. */
enum { SL__RANK_MAX = 64 };
typedef struct sl__rank_update {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, out_row;
    int a, b;          /* which operands */
    bool out_streamed; /* `out` does not stay in cache */
    int grouped;       /* microbatches in a pass, packed in scratch; 1: as they
                        * lie */
    int per_piece;     /* microbatches in a piece of the scratch */
    int64_t a_piece, b_piece;      /* numbers in one */
    sl__panel_pack a_pack, b_pack; /* of one microbatch */
} sl__rank_update;

/* A few rows by a weight that stays in cache and whose columns are contiguous,
 * which is read in place: out (m, n) = a (m, k) b (k, n) + bias, as dot products
 * along its columns. Rows of a and of out are contiguous, n and k multiples of a
 * vector's lanes. */
typedef struct sl__dot_product {
    int64_t m, n, k;
    int64_t a_row, b_column, out_row;
    int a, b, bias; /* which operands; -1: none */
} sl__dot_product;

/* Prepares a product, or leaves kernel->run alone: then it is one that the plain
 * C of `ref` does. */
sl_status sl__gemm_prepare(int threads, sl__packs *packs, sl__kernel *kernel);

/* For tests: weights and gradients of so many numbers do not stay in cache, and
 * gradients are grouped from there on; 0: what is best. */
void sl__gemm_streamed_from(int64_t numbers);

/* ------------------------------------------------------- specialities -- */

/* What makes some products faster, and can be left out to measure what it is
 * worth (bench/specialities): SLUICE_CPU_WITHOUT is a list of these names. */
typedef enum sl__speciality {
    SL__USE_PACKED_WEIGHTS, /* weights are packed once per optimizer step */
    SL__USE_RANK_UPDATES, /* weight gradients of a few rows by their own kernel */
    SL__USE_GROUPED,      /* of several microbatches in one pass */
    SL__USE_WIDE_PANELS,  /* three vectors wide where that fits, not two */
    SL__USE_DOT_PRODUCTS, /* a few rows by a weight as it lies, by its columns */
    SL__USE_IN_PLACE,     /* weights that stay in cache are not packed */
    SL__USE_PREFETCH,     /* what does not stay in cache is prefetched */
    SL__SPECIALITIES
} sl__speciality;
bool sl__gemm_uses(sl__speciality speciality);

/* Refuses a list with any other name in it. */
sl_status sl__gemm_check_environment(void);

/* ----------------------------------------------------- split products -- */

/* Split operands lie in blocks of so many rows or columns, as deep, each number
 * in so many pieces of bf16. */
enum { SL__SPLIT_BLOCK = 32, SL__SPLIT_PIECES = 3 };

/* Products each number of whose operands is split into three of bf16. A weight
 * is split when it is packed; a always is split into scratch. */
typedef struct sl__split_kernels {
    const char *name;
    bool (*begin)(void);    /* once per process; false: cannot be had */
    sl__kernel_fn multiply; /* of an sl__panel_product */
    sl__kernel_fn pack;     /* of an sl__panel_pack without vectors */
} sl__split_kernels;
extern const sl__split_kernels *const sl__split_amx; /* NULL: not compiled */
extern const sl__split_kernels sl__split_portable;

/* What this CPU multiplies faster so; NULL: nothing. Two threads of a stage are
 * often the two of one core, which has one unit for tiles: there vectors are
 * faster. So only a stage with one thread has tiles, unless SLUICE_AMX in the
 * environment says `always` or `never`. */
const sl__split_kernels *sl__split_choose(int threads);

/* Refuses anything else that SLUICE_AMX says. */
sl_status sl__split_check_environment(void);

/* Returns 0 where AMX computes what it should, if it returns. */
int sl__split_try_amx(void);

/* For tests: stages compiled from now on use these, "none", or NULL what is
 * best. False where this CPU does not run them. */
bool sl__split_force(const char *name);

/* Bytes of a split operand of so many rows or columns. */
int64_t sl__split_bytes(int64_t size, int64_t depth);

#endif

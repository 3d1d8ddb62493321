/* SPDX-License-Identifier: MIT
 *
 * Matrix products in f32. Four kernels do all of them: panels of vectors
 * (panels.h), weight gradients of a few rows (rank_update.h), a few rows by a
 * small weight (dot_product.h), and, where AMX pays, f32 split into bf16
 * (split_product.h). gemm.c decides which one a node of the graph gets; this
 * header has what it prepares for each. */
#ifndef SL_TENSOR_CPU_GEMM_H
#define SL_TENSOR_CPU_GEMM_H

#include "tensor/backend.h"

/* A matrix (k, n) to be packed into panels of `vectors` vectors' columns, row
 * after row of the panel: the order in which a product reads them. */
enum { SL__PANEL_VECTORS_MAX = 3 };
typedef struct sl__panel_pack {
    int64_t k, n;
    int64_t row, column; /* strides in the matrix */
    int64_t vectors;     /* 0: split into pieces of bf16 instead; -1: bf16 */
    int64_t streamed;    /* written by non-temporal stores */
    int64_t depth;       /* rows that a panel has room for, k or more */
} sl__panel_pack;

/* out (batch, m, n) = a (batch, m, k) b (batch, k, n) + bias or, without bias,
 * out += a b. Rows of `out` are contiguous. If b is a weight, it is packed
 * already or read in place; any other b is packed into scratch first. So is a
 * where that pays, into panels of its rows, one vector wide. */
typedef struct sl__panel_product {
    int64_t batch, m, n, k;
    /* Of a batch that is large enough to be divided among threads: how many of
     * them, those that steal included, and the numbers of scratch for each. 0:
     * threads divide every product. */
    int workers;
    int64_t worker_scratch;
    int64_t a_batch, b_batch, out_batch; /* strides of the batch */
    int64_t a_row, a_column, out_row;
    int vectors;
    bool adds;
    bool b_streamed;   /* b is not cache-resident from call to call */
    bool out_streamed; /* nor is `out`, which is added to */
    int64_t piece;     /* k is stored in pieces of this many; 0: in one */
    int64_t b_row;     /* row stride of a b read in place; 0: b is in panels */
    bool packs_a, packs_b;
    sl__panel_pack a_pack, b_pack;
    int a, b, bias; /* which operands of the kernel; -1: none */
} sl__panel_product;

/* The gradient of a weight from a few rows: out (m, n) += a (m, k) b (k, n), an
 * update of small rank k. It is bound by memory bandwidth, so `out` is read in
 * order and prefetched, and several microbatches that come in one call are
 * added in one pass over `out`. Rows of b and of out are contiguous. */
enum { SL__RANK_MAX = 64 };
typedef struct sl__rank_update {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, out_row;
    int a, b;          /* which operands */
    bool out_streamed; /* `out` is not cache-resident */
    int grouped; /* microbatches in a pass, packed in scratch; 1: not packed */
    int per_piece;                 /* microbatches in a piece of the scratch */
    int64_t a_piece, b_piece;      /* elements of a piece */
    sl__panel_pack a_pack, b_pack; /* of one microbatch */
} sl__rank_update;

/* A few rows by a weight that stays in cache and has contiguous columns, and is
 * read in place: out (m, n) = a (m, k) b (k, n) + bias, as dot products along
 * the columns. Rows of a and of out are contiguous; n and k are multiples of a
 * vector's lanes. */
typedef struct sl__dot_product {
    int64_t m, n, k;
    int64_t a_row, b_column, out_row;
    int a, b, bias; /* which operands; -1: none */
} sl__dot_product;

/* A product whose operands are packed as bf16 and that sums in f32. If b is a
 * weight, it is packed already. */
typedef struct sl__bf16_product {
    int64_t batch, m, n, k;
    int64_t a_batch, b_batch, out_batch; /* strides of the batch */
    int64_t a_row, a_column, b_row, b_column, out_row;
    bool a_is_float, b_is_float; /* f32, to be rounded */
    bool out_is_float, adds, packs_b;
    int a, b, bias; /* which operands of the kernel; -1: none */
    int grouped;    /* the most microbatches that are packed at once */
} sl__bf16_product;

/* Prepares a product, or leaves kernel->run as it is: the plain C of `ref`. */
sl_status sl__gemm_prepare(int threads, sl__packs *packs, sl__kernel *kernel);

/* The same for one that has bf16 among its operands and results. */
sl_status sl__gemm_prepare_bf16(sl__packs *packs, sl__kernel *kernel);

/* For tests: weights and gradients of this many elements are streamed, and
 * gradients are grouped from there on; 0: the defaults. */
void sl__gemm_streamed_from(int64_t numbers);

/* ------------------------------------------------------- specialities -- */

/* Optimisations of some products. Each can be switched off to measure what it
 * is worth (bench/specialities): SLUICE_CPU_WITHOUT is a list of their
 * names. */
typedef enum sl__speciality {
    SL__USE_PACKED_WEIGHTS, /* weights are packed once per optimizer step */
    SL__USE_RANK_UPDATES,   /* weight gradients of a few rows have a kernel */
    SL__USE_GROUPED,        /* of several microbatches in one pass */
    SL__USE_WIDE_PANELS,    /* three vectors wide where that fits, not two */
    SL__USE_DOT_PRODUCTS,   /* a few rows by a weight read along its columns */
    SL__USE_IN_PLACE,       /* weights that stay in cache are not packed */
    SL__USE_PREFETCH,       /* streamed operands are prefetched */
    SL__SPECIALITIES
} sl__speciality;
bool sl__gemm_uses(sl__speciality speciality);

/* Refuses a list with an unknown name. */
sl_status sl__gemm_check_environment(void);

/* ----------------------------------------------------- bf16 products -- */

/* Operands are packed in blocks of this many rows or columns, and as deep. */
enum { SL__BF16_BLOCK = 32 };

typedef struct sl__bf16_kernels {
    const char *name;
    sl__kernel_fn multiply; /* its `private` is an sl__bf16_product */
    sl__kernel_fn pack;     /* of a weight: an sl__panel_pack */
} sl__bf16_kernels;
/* NULL: not compiled. */
extern const sl__bf16_kernels *const sl__bf16_amx;
extern const sl__bf16_kernels *const sl__bf16_avx512;
extern const sl__bf16_kernels *const sl__bf16_avx2;
extern const sl__bf16_kernels *const sl__bf16_portable;

/* The fastest on this CPU for a product of so many rows. All pack alike. */
const sl__bf16_kernels *sl__bf16_choose(int64_t rows);

/* For tests: "none" for no tiles from now on, "amx" or NULL for those that
 * there are. False if there are none. */
bool sl__bf16_force(const char *name);

/* Bytes of a packed operand of `size` rows or columns. */
int64_t sl__bf16_bytes(int64_t size, int64_t depth);

/* Applies the activation after a product, unless the product has done that. */
sl_status sl__bf16_activate(const sl__kernel *kernel, void *const *p,
                            const sl__run *run);

/* ----------------------------------------------------- split products -- */

/* Split operands are stored in blocks of this many rows or columns, and as
 * deep; each number is this many pieces of bf16. */
enum { SL__SPLIT_BLOCK = 32, SL__SPLIT_PIECES = 3 };

/* Kernels for products whose operands are split into three pieces of bf16. A
 * weight is split when it is packed; a is always split into scratch. */
typedef struct sl__split_kernels {
    const char *name;
    sl__kernel_fn multiply; /* its `private` is an sl__panel_product */
    sl__kernel_fn pack;     /* an sl__panel_pack without vectors */
} sl__split_kernels;
extern const sl__split_kernels *const sl__split_amx; /* NULL: not compiled */
extern const sl__split_kernels sl__split_portable;

/* The split kernels, if they are the fastest on this CPU; else NULL. Two
 * threads of a stage often share a core, which has one unit for tiles, and
 * vectors are faster there. So only a stage with one thread uses tiles, unless
 * SLUICE_AMX in the environment says `always` or `never`. */
const sl__split_kernels *sl__split_choose(int threads);

/* For tests: stages compiled from now on use the kernels of this name, or
 * "none"; NULL: the fastest. False if this CPU does not support them. */
bool sl__split_force(const char *name);

/* Bytes of a split operand of `size` rows or columns. */
int64_t sl__split_bytes(int64_t size, int64_t depth);

#endif

/* SPDX-License-Identifier: MIT
 *
 * What the host passes to kernels: one struct per kernel, by value. Read by C
 * and by CUDA C. Pointers are to device memory; strides and offsets count
 * elements; dtypes are those of sl_dtype. */
#ifndef SL_CUDA_PARAMS_H
#define SL_CUDA_PARAMS_H

#include <stdint.h>

enum { CUDA_DIMS = 6, CUDA_PARTS = 24, CUDA_WARP = 32 };

/* As sl_dtype (checked in launch.c). */
enum {
    DT_F32,
    DT_F64,
    DT_I32,
    DT_I64,
    DT_BOOL,
    DT_BF16,
};

enum {
    MAP_COPY,
    MAP_ADD,
    MAP_SUB,
    MAP_MUL,
    MAP_SCALE,
    MAP_RELU,
    MAP_GELU_TANH,
    MAP_GELU_ERF,
    MAP_SILU,
    MAP_RELU_GRAD,
    MAP_GELU_TANH_GRAD,
    MAP_GELU_ERF_GRAD,
    MAP_SILU_GRAD,
    MAP_DROPOUT,
};

/* out = f(a, b), element by element. */
typedef struct map_params {
    const void *a, *b;
    void *out;
    const void *block; /* of the microbatch; of a dropout */
    int op;
    int dtype[3]; /* of a, b, out */
    int adds;     /* to what is in `out` */
    int dims;
    int64_t count;
    int64_t shape[CUDA_DIMS];
    int64_t stride[3][CUDA_DIMS];
    double number;   /* factor; or 1 / (1 - rate) */
    int64_t integer; /* key of a dropout */
    uint64_t threshold;
} map_params;

/* Elements of 1, 2, 4 or 8 bytes, from one geometry to another. */
typedef struct move_params {
    const void *from;
    void *to;
    int bytes;
    int dims;
    int64_t count;
    int64_t shape[CUDA_DIMS];
    int64_t stride[2][CUDA_DIMS];
} move_params;

/* out[o] = number * the sum of in over the dims that `out` does not have. */
typedef struct reduce_params {
    const void *in;
    void *out;
    int dtype[2];
    int adds;
    int kept_dims, summed_dims;
    int64_t kept, summed; /* counts */
    int64_t kept_shape[CUDA_DIMS], kept_stride[CUDA_DIMS];
    int64_t out_stride[CUDA_DIMS];
    int64_t summed_shape[CUDA_DIMS], summed_stride[CUDA_DIMS];
    double number;
} reduce_params;

/* Sums over the rows of a matrix: of dy, or with `x` of dy times the normed x,
 * and then `plain` is the sum of dy, or NULL. */
typedef struct columns_params {
    const void *dy, *x, *saved;
    void *out, *plain;
    void *partial; /* (1 or 2, parts, columns) in f32 */
    int dtype[4];  /* of dy, x, saved, out */
    int adds;
    int parts;
    int64_t rows, columns;
    double number;
} columns_params;

/* Of x; or with `b` of x + b, which is written to `sum`. */
typedef struct norm_params {
    const void *x, *b, *weight, *bias;
    void *sum, *y, *saved;
    int dtype[5]; /* of x, weight, bias, y, saved */
    int centred;
    int64_t rows, columns;
    double epsilon;
} norm_params;

typedef struct norm_grad_params {
    const void *dy, *x, *weight, *saved;
    const void *further; /* another gradient of x, of dx's dtype; or NULL */
    void *dx;
    int dtype[5]; /* of dy, x, weight, saved, dx */
    int centred;
    int64_t rows, columns;
} norm_grad_params;

typedef struct softmax_params {
    const void *x, *dy; /* backward: x is the result of forward */
    void *out;
    int dtype[3];
    int64_t rows, columns;
} softmax_params;

typedef struct loss_params {
    const void *logits, *labels, *dloss;
    void *saved;
    void *out;      /* the loss, or the gradient of the logits */
    double *terms;  /* by row: its loss; or at 0 the factor of all rows */
    void *block;    /* for faults */
    int64_t kernel; /* its number */
    int dtype[5];   /* of logits, labels, dloss, saved, out */
    int64_t rows, columns, ignore;
} loss_params;

typedef struct mse_params {
    const void *x, *target, *dloss;
    void *out;
    int dtype[4];
    int64_t count;
    double sign;
} mse_params;

typedef struct embedding_params {
    const void *table, *ids, *dy;
    void *out;
    void *block;
    int64_t kernel;
    int dtype[3]; /* of the table or dy, ids, out */
    int adds;
    int64_t count, columns, rows;
    /* Backward: by position its id's first position, its number among those of
     * its id; by first position where its group begins; positions, grouped. */
    int *first, *place, *start, *order;
} embedding_params;

typedef struct attention_params {
    const void *q, *k, *v, *out, *dy;
    void *result[3]; /* out; or dq, dk, dv, NULL where not wanted */
    void *saved;     /* largest score, 1 / sum of exponentials */
    int dtype;
    int saved_dtype;
    int heads, size;
    int64_t batch, length;
    int64_t stride[8][2]; /* of q, k, v, out, dy, result */
    float *base;          /* (batch, heads, length): dy . out */
    double scale;
} attention_params;

/* A product of any geometry; `op` is applied to the result. */
typedef struct product_params {
    const void *a, *b, *bias;
    void *out;
    int dtype[4];
    int rounds; /* operands in f32 to bf16 */
    int adds;
    int op; /* MAP_COPY: none */
    int64_t batch, m, n, k;
    int64_t sa[3], sb[3], so[3];
} product_params;

/* A few parameters that one launch of an optimizer updates. */
typedef struct update_part {
    void *value, *gradient, *first, *second;
    void *half; /* the value as bf16, which is written too; or NULL */
    int64_t count;
    float decay;
    int kind; /* of dtypes: 0 f32, 1 f64, 2 f32 with gradients in f64 */
} update_part;

typedef struct update_params {
    const void *block;
    int is_sgd;
    int count;
    double beta1, beta2, epsilon, momentum;
    int64_t start[CUDA_PARTS + 1]; /* the first block of each part */
    update_part parts[CUDA_PARTS];
} update_params;

/* Sums of squares: of each part into *each[i], if that is not NULL. */
typedef struct squares_params {
    double *partial; /* by block */
    int count;
    int64_t start[CUDA_PARTS + 1];
    const void *data[CUDA_PARTS];
    int64_t counts[CUDA_PARTS];
    double *each[CUDA_PARTS];
    int dtype[CUDA_PARTS];
    double *all; /* added to; or NULL */
} squares_params;

typedef struct clip_params {
    void *block;
    double clip;
} clip_params;

typedef struct stamp_params {
    uint64_t *out;
} stamp_params;

#endif

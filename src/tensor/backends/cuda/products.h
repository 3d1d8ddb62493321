/* SPDX-License-Identifier: MIT
 *
 * cuBLASLt, and which of its algorithms is the fastest for a product
 * (algorithms.c). */
#ifndef SL_CUDA_PRODUCTS_H
#define SL_CUDA_PRODUCTS_H

#include "tensor/backends/cuda/gpu.h"

typedef struct sl__cublas_functions {
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtGetVersion) *version;
    __typeof__(cublasLtMatmul) *multiply;
    __typeof__(cublasLtMatmulDescInit_internal) *init_product;
    __typeof__(cublasLtMatmulDescSetAttribute) *set_product;
    __typeof__(cublasLtMatrixLayoutInit_internal) *init_layout;
    __typeof__(cublasLtMatrixLayoutSetAttribute) *set_layout;
    __typeof__(cublasLtMatmulPreferenceInit_internal) *init_preference;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *set_preference;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *candidates;
    __typeof__(cublasLtMatmulAlgoCheck) *check;
} sl__cublas_functions;

/* An algorithm that was chosen, by the text that describes the product. */
typedef struct sl__choice {
    char key[200];
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} sl__choice;

struct sl__cublas {
    sl__cublas_functions f;
    cublasLtHandle_t handle;
    pthread_mutex_t lock; /* guards the choices; held while one is made */
    sl__choice *choices;
    size_t count, capacity;
    char *path; /* where choices are kept; NULL: nowhere */
};

/* A product as cuBLASLt takes it: column-major, D (rows, columns) = A B. */
typedef struct sl__cuda_product {
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    bool fits;  /* cuBLASLt takes it */
    bool swaps; /* its A is our second operand */
    bool has_bias;
    int64_t bytes[3]; /* that A, B and D reach over */
    uint32_t alignment[3];
    float beta;
    double multiplies;
    char key[200];
} sl__cuda_product;

/* Loads cuBLASLt and opens it on a GPU, once. */
sl_status sl__cublas_open(sl__gpu *gpu, sl__cublas **out);

/* Sets the algorithm and its workspace; or that there is none. */
sl_status sl__cublas_choose(sl__gpu *gpu, sl__cublas *cublas,
                            sl__cuda_product *product);

sl_status sl__cublas_check(cublasStatus_t result, const char *what);

#endif

/* SPDX-License-Identifier: MIT
 * Products of bf16 by AVX2. */
#include "tensor/backends/cpu/gemm/gemm.h"

#ifdef __AVX2__
#include "tensor/backends/cpu/gemm/bf16_pairs.h"

static const sl__bf16_kernels kernels = {"avx2", multiply_bf16, pack_bf16};
const sl__bf16_kernels *const sl__bf16_avx2 = &kernels;
#else
const sl__bf16_kernels *const sl__bf16_avx2 = NULL;
#endif

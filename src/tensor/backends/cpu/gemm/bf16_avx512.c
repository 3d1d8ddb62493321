/* SPDX-License-Identifier: MIT
 * Products of bf16 by AVX-512 with its instruction for bf16. */
#include "tensor/backends/cpu/gemm/gemm.h"

#ifdef __AVX512BF16__
#include "tensor/backends/cpu/gemm/bf16_pairs.h"

static const sl__bf16_kernels kernels = {"avx512-bf16", multiply_bf16,
                                         pack_bf16};
const sl__bf16_kernels *const sl__bf16_avx512 = &kernels;
#else
const sl__bf16_kernels *const sl__bf16_avx512 = NULL;
#endif

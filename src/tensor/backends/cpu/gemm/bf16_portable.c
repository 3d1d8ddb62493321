/* SPDX-License-Identifier: MIT
 * Products of bf16 by whatever the compiler's flags allow. */
#include "tensor/backends/cpu/gemm/gemm.h"

#include "tensor/backends/cpu/gemm/bf16_pairs.h"

static const sl__bf16_kernels kernels = {"portable", multiply_bf16, pack_bf16};
const sl__bf16_kernels *const sl__bf16_portable = &kernels;

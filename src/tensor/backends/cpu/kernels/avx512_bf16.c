/* SPDX-License-Identifier: MIT
 *
 * The vector kernels on bf16 for AVX-512, with its instructions for it. */
#ifdef __AVX512BF16__
#define ELEMENT_IS_BF16
#define VECTOR(name) name##_avx512_bf16
#define VECTOR_NAME  "avx512"
#include "tensor/backends/cpu/kernels/all.h"
#elif defined(__x86_64__)
#include "tensor/backends/cpu/cpu.h"

const sl__vector_kernels sl__vector_avx512_bf16 = {0};
#endif

/* SPDX-License-Identifier: MIT
 *
 * The vector kernels on bf16 for AVX2. */
#ifdef __AVX2__
#define ELEMENT_IS_BF16
#define VECTOR(name) name##_avx2_bf16
#define VECTOR_NAME  "avx2"
#include "tensor/backends/cpu/kernels/all.h"
#endif

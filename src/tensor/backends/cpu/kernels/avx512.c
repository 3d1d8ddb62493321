/* SPDX-License-Identifier: MIT
 *
 * The vector kernels for AVX-512. */
#ifdef __AVX512F__
#define VECTOR(name) name##_avx512
#define VECTOR_NAME  "avx512"
#include "tensor/backends/cpu/kernels/all.h"
#endif

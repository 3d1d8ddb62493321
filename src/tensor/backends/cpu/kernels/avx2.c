/* SPDX-License-Identifier: MIT
 *
 * The vector kernels for AVX2 with FMA. */
#ifdef __AVX2__
#define VECTOR(name) name##_avx2
#define VECTOR_NAME  "avx2"
#include "tensor/backends/cpu/kernels/all.h"
#endif

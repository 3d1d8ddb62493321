/* SPDX-License-Identifier: MIT
 *
 * The vector kernels on bf16, in plain C. */
#define ELEMENT_IS_BF16
#define VECTOR(name) name##_portable_bf16
#define VECTOR_NAME  "portable"
#include "tensor/backends/cpu/kernels/all.h"

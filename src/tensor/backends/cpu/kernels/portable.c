/* SPDX-License-Identifier: MIT
 *
 * The vector kernels for any CPU. */
#define VECTOR(name) name##_portable
#define VECTOR_NAME  "portable"
#include "tensor/backends/cpu/kernels/all.h"

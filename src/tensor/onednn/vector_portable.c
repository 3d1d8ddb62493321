/* SPDX-License-Identifier: MIT
 * Our kernels for any CPU. */
#define VECTOR(name) name##_portable
#define VECTOR_NAME  "portable"
#include "tensor/onednn/vector_kernels.h"

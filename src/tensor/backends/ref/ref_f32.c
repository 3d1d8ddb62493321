/* SPDX-License-Identifier: MIT
 * The plain kernels for 32-bit floats. */
#include "tensor/backends/ref/ref.h"

#define REAL         float
#define KERNEL(name) sl__ref_f32_##name
#include "tensor/backends/ref/kernels.h"

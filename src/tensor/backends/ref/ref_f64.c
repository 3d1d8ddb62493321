/* SPDX-License-Identifier: MIT
 * The plain kernels for 64-bit floats. */
#include "tensor/backends/ref/ref.h"

#define REAL         double
#define KERNEL(name) sl__ref_f64_##name
#include "tensor/backends/ref/kernels.h"

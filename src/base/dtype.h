/* SPDX-License-Identifier: MIT
 *
 * What element types are, beyond their text and size. */
#ifndef SL_BASE_DTYPE_H
#define SL_BASE_DTYPE_H

#include "sluice/base.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether it has gradients; false for what is no dtype. */
bool sl__is_float(sl_dtype dtype);

/* The dtype that sums of it are kept in: gradients of parameters,
 * reductions. */
sl_dtype sl__accumulator(sl_dtype dtype);

/* Whether tensors of a graph may have it: kernels compute in it. */
bool sl__is_computed(sl_dtype dtype);

/* Converts floats to the nearest, ties to even: any to f32 and f64, and f32 to
 * any. Refuses what is not a float. */
sl_status sl__convert_floats(sl_dtype to_dtype, void *to, sl_dtype from_dtype,
                             const void *from, int64_t count);

/* "there is no dtype 9", or what `what` cannot do with one that there is. */
sl_status sl__refuse_dtype(const char *what, sl_dtype dtype);

#endif

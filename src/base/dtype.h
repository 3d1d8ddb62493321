/* SPDX-License-Identifier: MIT
 *
 * What element types are, beyond their text and size. */
#ifndef SL_BASE_DTYPE_H
#define SL_BASE_DTYPE_H

#include "sluice/base.h"

#include <stdbool.h>

/* Whether it has gradients; false for what is no dtype. */
bool sl__is_float(sl_dtype dtype);

/* The dtype that sums of it are kept in: gradients of parameters,
 * reductions. */
sl_dtype sl__accumulator(sl_dtype dtype);

/* "there is no dtype 9", or what `what` cannot do with one that there is. */
sl_status sl__refuse_dtype(const char *what, sl_dtype dtype);

#endif

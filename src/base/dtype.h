/* SPDX-License-Identifier: MIT
 *
 * Properties of element types, beyond their text and size. */
#ifndef SL_BASE_DTYPE_H
#define SL_BASE_DTYPE_H

#include "sluice/base.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Whether it is a float; false if there is no such dtype. */
bool sl__is_float(sl_dtype dtype);

/* The dtype in which its values are summed: gradients of parameters,
 * reductions. */
sl_dtype sl__accumulator(sl_dtype dtype);

/* Whether tensors of a graph may have it, because kernels compute in it. */
bool sl__is_computed(sl_dtype dtype);

/* Converts any floats to any, rounding to the nearest, ties to even. Refuses
 * dtypes that are not floats. */
sl_status sl__convert_floats(sl_dtype to_dtype, void *to, sl_dtype from_dtype,
                             const void *from, int64_t count);

/* bf16 is the upper half of an f32. To bf16: rounded to the nearest, ties to
 * even. */
static inline float sl__from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t sl__to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40); /* stays NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Element i of an array of any float dtype. */
double sl__float_at(sl_dtype dtype, const void *data, int64_t i);
void sl__set_float(sl_dtype dtype, void *data, int64_t i, double x);

/* Fails because there is no such dtype, or because `what` does not support
 * it. */
sl_status sl__refuse_dtype(const char *what, sl_dtype dtype);

#endif

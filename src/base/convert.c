/* SPDX-License-Identifier: MIT
 *
 * Conversions between float dtypes. f16 has 5 bits of exponent and 10 of
 * mantissa, as IEEE 754's binary16. */
#include "base/dtype.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) {
        float x = ldexpf((float)mantissa, -24);
        return sign ? -x : x;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static uint16_t to_f16(float x)
{
    uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000;
    float size = fabsf(x);
    if (x != x)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 65520) /* halfway from the largest to what would come next */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f) /* in units of the smallest; rint: ties to even */
        return (uint16_t)(sign | (uint32_t)rintf(size * 0x1p24f));
    bits &= 0x7fffffff;
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}

#define CONVERT(name, from_type, to_type, function)                            \
    static void name(const void *from, void *to, int64_t count)                \
    {                                                                          \
        const from_type *x = from;                                             \
        to_type *y = to;                                                       \
        for (int64_t i = 0; i < count; i++)                                    \
            y[i] = (to_type)function(x[i]);                                    \
    }
#define SAME(x) (x)
CONVERT(double_to_float, double, float, SAME)
CONVERT(float_to_double, float, double, SAME)
CONVERT(bf16_to_float, uint16_t, float, sl__from_bf16)
CONVERT(bf16_to_double, uint16_t, double, sl__from_bf16)
CONVERT(f16_to_float, uint16_t, float, from_f16)
CONVERT(f16_to_double, uint16_t, double, from_f16)
CONVERT(float_to_bf16, float, uint16_t, sl__to_bf16)
CONVERT(float_to_f16, float, uint16_t, to_f16)

static const struct {
    sl_dtype from, to;
    void (*convert)(const void *from, void *to, int64_t count);
} table[] = {
    {SL_F64, SL_F32, double_to_float}, {SL_F32, SL_F64, float_to_double},
    {SL_BF16, SL_F32, bf16_to_float},  {SL_BF16, SL_F64, bf16_to_double},
    {SL_F16, SL_F32, f16_to_float},    {SL_F16, SL_F64, f16_to_double},
    {SL_F32, SL_BF16, float_to_bf16},  {SL_F32, SL_F16, float_to_f16},
};

/* To the nearest float towards zero, but with its last bit set unless it is
 * exact: rounded once more, it gives what rounding once would have. */
static float to_odd_float(double x)
{
    float near = (float)x;
    if ((double)near == x || x != x)
        return near;
    if (fabs((double)near) > fabs(x))
        near = nextafterf(near, 0);
    return float_of_bits(bits_of_float(near) | 1);
}

double sl__float_at(sl_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case SL_F64: return ((const double *)data)[i];
    case SL_BF16: return sl__from_bf16(((const uint16_t *)data)[i]);
    case SL_F16: return from_f16(((const uint16_t *)data)[i]);
    default: assert(dtype == SL_F32); return ((const float *)data)[i];
    }
}

void sl__set_float(sl_dtype dtype, void *data, int64_t i, double x)
{
    switch (dtype) {
    case SL_F64: ((double *)data)[i] = x; return;
    case SL_BF16: ((uint16_t *)data)[i] = sl__to_bf16(to_odd_float(x)); return;
    case SL_F16: ((uint16_t *)data)[i] = to_f16(to_odd_float(x)); return;
    default: assert(dtype == SL_F32); ((float *)data)[i] = (float)x;
    }
}

sl_status sl__convert_floats(sl_dtype to_dtype, void *to, sl_dtype from_dtype,
                             const void *from, int64_t count)
{
    if (to_dtype == from_dtype && sl__is_float(to_dtype)) {
        memmove(to, from, (size_t)count * sl_dtype_bytes(to_dtype));
        return SL_OK;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].from == from_dtype && table[i].to == to_dtype) {
            table[i].convert(from, to, count);
            return SL_OK;
        }
    }
    if (!sl__is_float(to_dtype) || !sl__is_float(from_dtype))
        return sl__refuse_dtype("a conversion between floats",
                                sl__is_float(to_dtype) ? from_dtype : to_dtype);
    for (int64_t i = 0; i < count; i++)
        sl__set_float(to_dtype, to, i, sl__float_at(from_dtype, from, i));
    return SL_OK;
}

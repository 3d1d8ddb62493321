/* SPDX-License-Identifier: MIT
 *
 * Products of any geometry and dtypes, for what cuBLASLt does not take: a
 * thread for each element of the result. */
#include "device.cuh"

__device__ double operand(const void *data, int dtype, int64_t i, int rounds)
{
    double x = get<double>(data, dtype, i);
    return rounds && dtype == DT_F32
               ? (double)__bfloat162float(__float2bfloat16((float)x))
               : x;
}

/* Rounded as if the product had been stored and read again. */
__device__ double rounded(double x, int dtype)
{
    switch (dtype) {
    case DT_F32: return (float)x;
    case DT_BF16: return __bfloat162float(__float2bfloat16((float)x));
    default: return x;
    }
}

KERNEL(product, product_params)
{
    int64_t count = p.batch * p.m * p.n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * (int64_t)blockDim.x) {
        int64_t n = i % p.n, m = i / p.n % p.m, g = i / p.n / p.m;
        int64_t a = g * p.sa[0] + m * p.sa[1];
        int64_t b = g * p.sb[0] + n * p.sb[2];
        int64_t out = g * p.so[0] + m * p.so[1] + n * p.so[2];
        double sum = p.bias ? get<double>(p.bias, p.dtype[2], n) : 0;
        for (int64_t k = 0; k < p.k; k++)
            sum += operand(p.a, p.dtype[0], a + k * p.sa[2], p.rounds) *
                   operand(p.b, p.dtype[1], b + k * p.sb[1], p.rounds);
        if (p.op != MAP_COPY)
            sum = activate(p.op, rounded(sum, p.dtype[3]), 1.0);
        if (p.adds)
            sum += get<double>(p.out, p.dtype[3], out);
        put(p.out, p.dtype[3], out, sum);
    }
}

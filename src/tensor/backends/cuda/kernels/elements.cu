/* SPDX-License-Identifier: MIT
 *
 * Element by element: arithmetic, activations and their gradients, dropout,
 * copies and casts. */
#include "device.cuh"

#include "../../../random.h"

template <class C>
__device__ __forceinline__ C compute(const map_params &p, C a, C b)
{
    switch (p.op) {
    case MAP_COPY: return a;
    case MAP_ADD: return a + b;
    case MAP_SUB: return a - b;
    case MAP_MUL: return a * b;
    case MAP_RELU_GRAD: return b > 0 ? a : (C)0;
    case MAP_GELU_TANH_GRAD:
    case MAP_GELU_ERF_GRAD:
    case MAP_SILU_GRAD: return a * slope(p.op, b);
    default: return activate(p.op, a, (C)p.number);
    }
}

/* Whether a dropout keeps element i. */
__device__ __forceinline__ bool keeps(const map_params &p, int64_t i)
{
    const step_block *block = (const step_block *)p.block;
    uint64_t key = sl__dropout_key(block->seed, p.integer);
    return sl__dropout_keeps(key, (uint64_t)i, p.threshold);
}

template <class C> __device__ void map_one(const map_params &p, int64_t i)
{
    int64_t at[3];
    place<3>(i, p.dims, p.shape, p.stride, at);
    C a = get<C>(p.a, p.dtype[0], at[0]);
    C value;
    if (p.op == MAP_DROPOUT)
        value = keeps(p, i) ? (C)(a * (C)p.number) : (C)0;
    else
        value = compute(p, a, p.b ? get<C>(p.b, p.dtype[1], at[1]) : (C)0);
    if (p.adds)
        value += get<C>(p.out, p.dtype[2], at[2]);
    put(p.out, p.dtype[2], at[2], value);
}

#define EACH(i, count)                                                         \
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;           \
         i < (count); i += gridDim.x * (int64_t)blockDim.x)

KERNEL(map_f32, map_params)
{
    EACH(i, p.count)
    map_one<float>(p, i);
}

KERNEL(map_f64, map_params)
{
    EACH(i, p.count)
    map_one<double>(p, i);
}

/* GELU and its slope for results in bf16. */
__device__ __forceinline__ float quick_gelu(float x)
{
    return 0.5f * x * (1 + quick_tanh(gelu_inner(x)));
}

__device__ __forceinline__ float quick_slope(float x)
{
    if (x > 100 || x < -100)
        return x > 0;
    float t = quick_tanh(gelu_inner(x));
    float inner = 0.79788456f * (1 + 3 * 0.044715f * x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner;
}

KERNEL(gelu_half, map_params)
{
    EACH(n, p.count / 8)
    {
        eight x = get8(p.a, DT_BF16, 8 * n);
#pragma unroll
        for (int k = 0; k < 8; k++)
            x.at[k] = quick_gelu(x.at[k]);
        put8(p.out, DT_BF16, 8 * n, x);
    }
}

KERNEL(gelu_half_grad, map_params)
{
    EACH(n, p.count / 8)
    {
        eight dy = get8(p.a, DT_BF16, 8 * n), x = get8(p.b, DT_BF16, 8 * n);
#pragma unroll
        for (int k = 0; k < 8; k++)
            x.at[k] = dy.at[k] * quick_slope(x.at[k]);
        put8(p.out, DT_BF16, 8 * n, x);
    }
}

/* Two of the same dtype, of which the second is repeated: positions that are
 * added to every sequence. `shape[0]` has its count. */
KERNEL(map_repeated, map_params)
{
    const int64_t period = p.shape[0] / 8;
    EACH(n, p.count / 8)
    {
        eight a = get8(p.a, p.dtype[0], 8 * n);
        eight b = get8(p.b, p.dtype[1], 8 * (n % period));
#pragma unroll
        for (int k = 0; k < 8; k++)
            a.at[k] = compute(p, a.at[k], b.at[k]);
        put8(p.out, p.dtype[2], 8 * n, a);
    }
}

/* Dense, aligned, in f32 and bf16; a multiple of eight elements. */
KERNEL(map_eights, map_params)
{
    EACH(n, p.count / 8)
    {
        int64_t i = 8 * n;
        eight a = get8(p.a, p.dtype[0], i), b, out;
        if (p.b)
            b = get8(p.b, p.dtype[1], i);
        if (p.adds)
            out = get8(p.out, p.dtype[2], i);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float value;
            if (p.op == MAP_DROPOUT)
                value = keeps(p, i + k) ? a.at[k] * (float)p.number : 0;
            else
                value = compute(p, a.at[k], p.b ? b.at[k] : 0.f);
            out.at[k] = p.adds ? out.at[k] + value : value;
        }
        put8(p.out, p.dtype[2], i, out);
    }
}

template <class T> __device__ void move_one(const move_params &p, int64_t i)
{
    int64_t at[2];
    place<2>(i, p.dims, p.shape, p.stride, at);
    ((T *)p.to)[at[1]] = ((const T *)p.from)[at[0]];
}

KERNEL(move, move_params)
{
    EACH(i, p.count)
    {
        switch (p.bytes) {
        case 1: move_one<uint8_t>(p, i); break;
        case 2: move_one<uint16_t>(p, i); break;
        case 4: move_one<uint32_t>(p, i); break;
        case 8: move_one<uint64_t>(p, i); break;
        default: move_one<uint4>(p, i);
        }
    }
}

/* The loss scale of the microbatch. */
KERNEL(seed, map_params)
{
    put(p.out, p.dtype[2], 0, ((const step_block *)p.block)->loss_scale);
}

/* When the work before it is done, on the clock of the GPU. */
KERNEL(stamp, stamp_params)
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    *(volatile unsigned long long *)p.out = now;
}

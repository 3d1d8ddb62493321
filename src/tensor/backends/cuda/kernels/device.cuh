/* SPDX-License-Identifier: MIT
 *
 * What kernels share: elements of any dtype, vectors of eight, sums over warps
 * and blocks in a fixed order. */
#ifndef SL_CUDA_DEVICE_CUH
#define SL_CUDA_DEVICE_CUH

#include "params.h"

#include <cuda_bf16.h>

/* Blocks until what was enqueued before on the stream is done and can be seen.
 * Kernels are launched before that, so that they need not start then. */
__device__ __forceinline__ void await_earlier()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A kernel: KERNEL(name, the struct it is given) { ... } with its parameters in
 * `p`; KERNEL_OF also says the most threads of a block. */
#define KERNEL_AS(bound, name, params)                                         \
    static __device__ __forceinline__ void name##_body(const params &p);       \
    extern "C" __global__ void bound name(const __grid_constant__ params p)    \
    {                                                                          \
        await_earlier();                                                       \
        name##_body(p);                                                        \
    }                                                                          \
    static __device__ __forceinline__ void name##_body(const params &p)
#define KERNEL(name, params) KERNEL_AS(, name, params)
#define KERNEL_OF(threads, name, params)                                       \
    KERNEL_AS(__launch_bounds__(threads), name, params)

/* As sl__step_block and sl__update_block (checked in choose.c). */
struct step_block {
    unsigned long long seed;
    double loss_scale;
    long long kernel, value, place;
};
struct update_block {
    double rate;
    long long step;
    double squares;
    double scale;
};

template <class C>
__device__ __forceinline__ C get(const void *data, int dtype, int64_t i)
{
    switch (dtype) {
    case DT_F32: return (C)((const float *)data)[i];
    case DT_F64: return (C)((const double *)data)[i];
    case DT_BF16: return (C)__bfloat162float(((const __nv_bfloat16 *)data)[i]);
    case DT_BOOL: return (C)(((const uint8_t *)data)[i] != 0);
    default: return 0;
    }
}

template <class C>
__device__ __forceinline__ void put(void *data, int dtype, int64_t i, C value)
{
    switch (dtype) {
    case DT_F32: ((float *)data)[i] = (float)value; break;
    case DT_F64: ((double *)data)[i] = (double)value; break;
    default: ((__nv_bfloat16 *)data)[i] = __float2bfloat16((float)value);
    }
}

__device__ __forceinline__ int64_t integer(const void *data, int dtype,
                                           int64_t i)
{
    return dtype == DT_I32 ? ((const int32_t *)data)[i]
                           : ((const int64_t *)data)[i];
}

/* Eight elements in f32 or bf16 from `i`, a multiple of 8, on. */
struct eight {
    float at[8];
};

__device__ __forceinline__ eight get8(const void *data, int dtype, int64_t i)
{
    eight out;
    if (dtype == DT_BF16) {
        const uint4 raw = *(const uint4 *)((const __nv_bfloat16 *)data + i);
        const __nv_bfloat162 *pairs = (const __nv_bfloat162 *)&raw;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 two = __bfloat1622float2(pairs[k]);
            out.at[2 * k] = two.x;
            out.at[2 * k + 1] = two.y;
        }
        return out;
    }
    const float4 *from = (const float4 *)((const float *)data + i);
    const float4 low = from[0], high = from[1];
    out.at[0] = low.x, out.at[1] = low.y, out.at[2] = low.z, out.at[3] = low.w;
    out.at[4] = high.x, out.at[5] = high.y;
    out.at[6] = high.z, out.at[7] = high.w;
    return out;
}

__device__ __forceinline__ void put8(void *data, int dtype, int64_t i,
                                     const eight &v)
{
    if (dtype == DT_BF16) {
        uint4 raw;
        __nv_bfloat162 *pairs = (__nv_bfloat162 *)&raw;
#pragma unroll
        for (int k = 0; k < 4; k++)
            pairs[k] = __floats2bfloat162_rn(v.at[2 * k], v.at[2 * k + 1]);
        *(uint4 *)((__nv_bfloat16 *)data + i) = raw;
        return;
    }
    float4 *to = (float4 *)((float *)data + i);
    to[0] = make_float4(v.at[0], v.at[1], v.at[2], v.at[3]);
    to[1] = make_float4(v.at[4], v.at[5], v.at[6], v.at[7]);
}

/* Rounds as storing them would. */
__device__ __forceinline__ void round8(int dtype, eight &v)
{
    if (dtype != DT_BF16)
        return;
#pragma unroll
    for (int k = 0; k < 8; k++)
        v.at[k] = __bfloat162float(__float2bfloat16(v.at[k]));
}

template <class C> __device__ __forceinline__ C warp_sum(C x)
{
#pragma unroll
    for (int by = 16; by; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

template <class C> __device__ __forceinline__ C warp_max(C x)
{
#pragma unroll
    for (int by = 16; by; by /= 2) {
        C other = __shfl_xor_sync(0xffffffffu, x, by);
        x = other > x ? other : x;
    }
    return x;
}

/* Over all threads of a block, which is whole warps; every thread gets it. */
template <class C> __device__ C block_sum(C x)
{
    __shared__ C sums[32];
    int warps = (int)blockDim.x / CUDA_WARP;
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0)
        sums[threadIdx.x / CUDA_WARP] = x;
    __syncthreads();
    C all = 0;
    for (int i = 0; i < warps; i++)
        all += sums[i];
    return all;
}

template <class C> __device__ C block_max(C x)
{
    __shared__ C most[32];
    int warps = (int)blockDim.x / CUDA_WARP;
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0)
        most[threadIdx.x / CUDA_WARP] = x;
    __syncthreads();
    C all = most[0];
    for (int i = 1; i < warps; i++)
        all = most[i] > all ? most[i] : all;
    return all;
}

/* Where element `i` of a shape lies, for each of N strides. */
template <int N>
__device__ __forceinline__ void place(int64_t i, int dims, const int64_t *shape,
                                      const int64_t (*stride)[CUDA_DIMS],
                                      int64_t out[N])
{
    for (int n = 0; n < N; n++)
        out[n] = 0;
    for (int d = dims - 1; d > 0; d--) {
        int64_t rest, at;
        if (i >> 32) {
            rest = i / shape[d];
            at = i - rest * shape[d];
        } else {
            uint32_t size = (uint32_t)shape[d], low = (uint32_t)i;
            uint32_t whole = low / size;
            rest = whole;
            at = low - whole * size;
        }
        for (int n = 0; n < N; n++)
            out[n] += at * stride[n][d];
        i = rest;
    }
    for (int n = 0; n < N && dims; n++)
        out[n] += i * stride[n][0];
}

/* Records a fault, unless there already is one. */
__device__ inline void note_fault(void *block, int64_t kernel, int64_t value,
                                  int64_t place)
{
    step_block *own = (step_block *)block;
    if (atomicCAS((unsigned long long *)&own->kernel, 0ull,
                  (unsigned long long)kernel) == 0) {
        own->value = value;
        own->place = place;
    }
}

/* To a few units in the last place, by the quick exponential. */
__device__ __forceinline__ float quick_tanh(float x)
{
    return 1 - __fdividef(2, 1 + __expf(2 * x));
}

/* Both GELUs and SiLU, with their slopes. */
template <class C> __device__ __forceinline__ C gelu_inner(C x)
{
    return (C)0.79788456080286535588 * (x + (C)0.044715 * x * x * x);
}

template <class C> __device__ __forceinline__ C activate(int op, C x, C number)
{
    switch (op) {
    case MAP_SCALE: return x * number;
    case MAP_RELU: return x > 0 || x != x ? x : (C)0;
    case MAP_GELU_TANH: return (C)0.5 * x * (1 + tanh(gelu_inner(x)));
    case MAP_GELU_ERF:
        return (C)0.5 * x * (1 + erf(x * (C)0.70710678118654752440));
    case MAP_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}

template <class C> __device__ __forceinline__ C slope(int op, C x)
{
    switch (op) {
    case MAP_RELU_GRAD: return x > 0 ? (C)1 : (C)0;
    case MAP_GELU_TANH_GRAD: {
        /* Beyond, its cube overflows. */
        if (x > 100 || x < -100)
            return x > 0;
        C t = tanh(gelu_inner(x));
        C inner = (C)0.79788456080286535588 * (1 + 3 * (C)0.044715 * x * x);
        return (C)0.5 * (1 + t) + (C)0.5 * x * (1 - t * t) * inner;
    }
    case MAP_GELU_ERF_GRAD:
        return (C)0.5 * (1 + erf(x * (C)0.70710678118654752440)) +
               x * exp(-(C)0.5 * x * x) * (C)0.39894228040143267794;
    default: {
        C s = 1 / (1 + exp(-x));
        return s * (1 + x * (1 - s));
    }
    }
}

#endif

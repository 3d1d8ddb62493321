/* SPDX-License-Identifier: MIT
 *
 * Steps of optimizers, which also zero the gradients: several parameters in one
 * launch. */
#include "device.cuh"

enum { UPDATE_BLOCK = 1 << 12 };

/* What does not depend on the element. */
template <class T> struct step {
    T keep, scale, rate, b1, b2, c1, c2, by, root, epsilon, momentum;
};

template <class T>
__device__ step<T> make_step(const update_params &p, const update_part &part,
                             const update_block &block, double whole1,
                             double whole2)
{
    return {(T)(1 - block.rate * (double)part.decay),
            (T)block.scale,
            (T)block.rate,
            (T)p.beta1,
            (T)p.beta2,
            (T)(1 - p.beta1),
            (T)(1 - p.beta2),
            (T)(block.rate / whole1),
            (T)whole2,
            (T)p.epsilon,
            (T)p.momentum};
}

/* X of the parameter, T of its gradient and states, in which it is computed. */
template <class X, class T>
__device__ __forceinline__ void adamw(const step<T> &s, X &x, T g, T &m, T &v)
{
    T slope = g * s.scale;
    m = s.b1 * m + s.c1 * slope;
    v = s.b2 * v + s.c2 * slope * slope;
    x = (X)((T)x * s.keep - s.by * m / (sqrt(v) / s.root + s.epsilon));
}

template <class X, class T>
__device__ void update_one(const update_params &p, const update_part &part,
                           const step<T> &s, int64_t i)
{
    X *x = (X *)part.value;
    T *g = (T *)part.gradient, *m = (T *)part.first, *v = (T *)part.second;
    if (p.is_sgd) {
        T slope = g[i] * s.scale;
        if (m)
            m[i] = slope = s.momentum * m[i] + slope;
        x[i] = (X)((T)x[i] * s.keep - s.rate * slope);
    } else {
        adamw<X, T>(s, x[i], g[i], m[i], v[i]);
    }
    if (part.half)
        ((__nv_bfloat16 *)part.half)[i] = __float2bfloat16((float)x[i]);
    g[i] = 0;
}

/* Four at once, of AdamW in f32. */
__device__ __forceinline__ void update_four(const update_part &part,
                                            const step<float> &s, int64_t i)
{
    float4 x = *(float4 *)((float *)part.value + i);
    const float4 g = *(float4 *)((float *)part.gradient + i);
    float4 m = *(float4 *)((float *)part.first + i);
    float4 v = *(float4 *)((float *)part.second + i);
    adamw<float, float>(s, x.x, g.x, m.x, v.x);
    adamw<float, float>(s, x.y, g.y, m.y, v.y);
    adamw<float, float>(s, x.z, g.z, m.z, v.z);
    adamw<float, float>(s, x.w, g.w, m.w, v.w);
    *(float4 *)((float *)part.value + i) = x;
    if (part.half) {
        __nv_bfloat162 pairs[] = {__floats2bfloat162_rn(x.x, x.y),
                                  __floats2bfloat162_rn(x.z, x.w)};
        *(uint2 *)((__nv_bfloat16 *)part.half + i) = *(const uint2 *)pairs;
    }
    *(float4 *)((float *)part.gradient + i) = make_float4(0, 0, 0, 0);
    *(float4 *)((float *)part.first + i) = m;
    *(float4 *)((float *)part.second + i) = v;
}

template <class X, class T>
__device__ void update_range(const update_params &p, const update_part &part,
                             const step<T> &s, int64_t first, int64_t end)
{
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
        update_one<X, T>(p, part, s, i);
}

KERNEL(update, update_params)
{
    const update_block block = *(const update_block *)p.block;
    __shared__ double whole[2];
    if (isnan(block.scale))
        return;
    if (threadIdx.x == 0 && !p.is_sgd) {
        whole[0] = 1 - pow(p.beta1, (double)block.step);
        whole[1] = sqrt(1 - pow(p.beta2, (double)block.step));
    }
    __syncthreads();
    double whole1 = whole[0], whole2 = whole[1];
    int at = 0;
    while (at + 1 < p.count && p.start[at + 1] <= blockIdx.x)
        at++;
    const update_part &part = p.parts[at];
    int64_t first = (blockIdx.x - p.start[at]) * (int64_t)UPDATE_BLOCK;
    int64_t end = first + UPDATE_BLOCK;
    end = end < part.count ? end : part.count;
    if (part.kind == 0) {
        const step<float> s = make_step<float>(p, part, block, whole1, whole2);
        bool aligned = ((uint64_t)part.value | (uint64_t)part.gradient |
                        (uint64_t)part.first | (uint64_t)part.second |
                        2 * (uint64_t)part.half) %
                           16 ==
                       0;
        int64_t fours = p.is_sgd || !aligned ? first : end - (end - first) % 4;
        for (int64_t i = first + 4 * threadIdx.x; i < fours;
             i += 4 * blockDim.x)
            update_four(part, s, i);
        update_range<float, float>(p, part, s, fours, end);
    } else if (part.kind == 1) {
        update_range<double, double>(
            p, part, make_step<double>(p, part, block, whole1, whole2), first,
            end);
    } else {
        update_range<float, double>(
            p, part, make_step<double>(p, part, block, whole1, whole2), first,
            end);
    }
}

/* As in PyTorch, which adds 1e-6 to the norm. */
KERNEL(clip, clip_params)
{
    update_block *block = (update_block *)p.block;
    double norm = sqrt(block->squares);
    double scale = p.clip / (norm + 1e-6);
    block->scale = !isfinite(norm)           ? (double)NAN
                   : p.clip > 0 && scale < 1 ? scale
                                             : 1;
}

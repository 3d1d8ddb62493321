/* SPDX-License-Identifier: MIT
 *
 * Steps of optimizers, which also zero the gradients: several parameters in one
 * launch. */
#include "device.cuh"

enum { UPDATE_BLOCK = 1 << 12 };

/* X of the parameter, T of its gradient and states, in which it is computed. */
template <class X, class T>
__device__ void update_one(const update_params &p, const update_part &part,
                           const update_block &block, int64_t i, double whole1,
                           double whole2)
{
    X *x = (X *)part.value;
    T *g = (T *)part.gradient, *m = (T *)part.first, *v = (T *)part.second;
    const T keep = (T)(1 - block.rate * (double)part.decay);
    T slope = g[i] * (T)block.scale;
    if (p.is_sgd) {
        if (m)
            m[i] = slope = (T)p.momentum * m[i] + slope;
        x[i] = (X)((T)x[i] * keep - (T)block.rate * slope);
    } else {
        T mean = (T)p.beta1 * m[i] + (T)(1 - p.beta1) * slope;
        T square = (T)p.beta2 * v[i] + (T)(1 - p.beta2) * slope * slope;
        m[i] = mean;
        v[i] = square;
        x[i] = (X)((T)x[i] * keep -
                   (T)(block.rate / whole1) * mean /
                       (sqrt(square) / (T)whole2 + (T)p.epsilon));
    }
    g[i] = 0;
}

KERNEL update(const update_params p)
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
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        if (part.kind == 0)
            update_one<float, float>(p, part, block, i, whole1, whole2);
        else if (part.kind == 1)
            update_one<double, double>(p, part, block, i, whole1, whole2);
        else
            update_one<float, double>(p, part, block, i, whole1, whole2);
    }
}

/* As in PyTorch, which adds 1e-6 to the norm. */
KERNEL clip(const clip_params p)
{
    update_block *block = (update_block *)p.block;
    double norm = sqrt(block->squares);
    double scale = p.clip / (norm + 1e-6);
    block->scale = !isfinite(norm)               ? (double)NAN
                   : p.clip > 0 && scale < 1 ? scale
                                                 : 1;
}

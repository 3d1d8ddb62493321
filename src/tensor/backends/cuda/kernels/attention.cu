/* SPDX-License-Identifier: MIT
 *
 * Causal attention of any dtype and size, a block for each query or key. What
 * the others do not take comes here. Nothing of (length, length) is kept:
 * scores are computed again where they are needed.
 *
 * In bf16, all kernels save the log of the sum of exponentials of each row, so
 * that any may follow any; else the largest score and 1 / sum. */
#include "device.cuh"

enum { QUERY_THREADS = 128 };

struct rows {
    int64_t b, h, i;
};

__device__ rows row_of(const attention_params &p)
{
    rows at;
    at.i = blockIdx.x % p.length;
    at.h = blockIdx.x / p.length % p.heads;
    at.b = blockIdx.x / p.length / p.heads;
    return at;
}

enum { Q, K, V, OUT, DY, R0, R1, R2 };

__device__ int64_t start(const attention_params &p, int which, const rows &at,
                         int64_t i)
{
    return at.b * p.stride[which][0] + i * p.stride[which][1] + at.h * p.size;
}

template <class C>
__device__ C dot(const attention_params &p, const void *a, int64_t from,
                 const void *b, int64_t other)
{
    C sum = 0;
    for (int c = 0; c < p.size; c++)
        sum += get<C>(a, p.dtype, from + c) * get<C>(b, p.dtype, other + c);
    return sum;
}

__device__ int64_t saved_at(const attention_params &p, const rows &at,
                            int64_t i)
{
    int64_t row = (at.b * p.heads + at.h) * p.length + i;
    return p.dtype == DT_BF16 ? row : 2 * row;
}

template <class C> __device__ void forward(const attention_params &p)
{
    __shared__ C weights[QUERY_THREADS];
    rows at = row_of(p);
    int64_t q = start(p, Q, at, at.i), out = start(p, R0, at, at.i);
    C scale = (C)p.scale, most = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x; j <= at.i; j += blockDim.x) {
        C score = scale * dot<C>(p, p.q, q, p.k, start(p, K, at, j));
        most = score > most ? score : most;
    }
    most = block_max(most);
    for (int64_t j = threadIdx.x; j <= at.i; j += blockDim.x)
        sum += exp(scale * dot<C>(p, p.q, q, p.k, start(p, K, at, j)) - most);
    sum = block_sum(sum);
    for (int64_t c0 = 0; c0 < p.size; c0 += blockDim.x) {
        int64_t c = c0 + threadIdx.x;
        C value = 0;
        for (int64_t from = 0; from <= at.i; from += QUERY_THREADS) {
            int64_t j = from + threadIdx.x;
            __syncthreads();
            weights[threadIdx.x] =
                j <= at.i
                    ? exp(scale * dot<C>(p, p.q, q, p.k, start(p, K, at, j)) -
                          most) /
                          sum
                    : (C)0;
            __syncthreads();
            for (int n = 0; n < QUERY_THREADS && from + n <= at.i; n++) {
                if (c < p.size)
                    value += weights[n] * get<C>(p.v, p.dtype,
                                                 start(p, V, at, from + n) + c);
            }
        }
        if (c < p.size)
            put(p.result[0], p.dtype, out + c, value);
    }
    if (threadIdx.x)
        return;
    int64_t saved = saved_at(p, at, at.i);
    if (p.dtype == DT_BF16) {
        put(p.saved, p.saved_dtype, saved, most + log(sum));
        return;
    }
    put(p.saved, p.saved_dtype, saved, most);
    put(p.saved, p.saved_dtype, saved + 1, 1 / sum);
}

/* The weight of key j for query i, and the slope of its score. */
template <class C>
__device__ void slope_of(const attention_params &p, const rows &at, int64_t i,
                         int64_t j, C *weight, C *slope)
{
    int64_t q = start(p, Q, at, i), dy = start(p, DY, at, i);
    int64_t saved = saved_at(p, at, i);
    C score = (C)p.scale * dot<C>(p, p.q, q, p.k, start(p, K, at, j));
    *weight = exp(score - get<C>(p.saved, p.saved_dtype, saved));
    if (p.dtype != DT_BF16)
        *weight *= get<C>(p.saved, p.saved_dtype, saved + 1);
    C base = dot<C>(p, p.dy, dy, p.out, start(p, OUT, at, i));
    *slope = *weight * (dot<C>(p, p.dy, dy, p.v, start(p, V, at, j)) - base) *
             (C)p.scale;
}

/* dq of one query. */
template <class C> __device__ void backward_query(const attention_params &p)
{
    __shared__ C slopes[QUERY_THREADS];
    rows at = row_of(p);
    for (int64_t c0 = 0; c0 < p.size; c0 += blockDim.x) {
        int64_t c = c0 + threadIdx.x;
        C value = 0;
        for (int64_t from = 0; from <= at.i; from += QUERY_THREADS) {
            C weight = 0, slope = 0;
            int64_t j = from + threadIdx.x;
            if (j <= at.i)
                slope_of(p, at, at.i, j, &weight, &slope);
            __syncthreads();
            slopes[threadIdx.x] = slope;
            __syncthreads();
            for (int n = 0; n < QUERY_THREADS && from + n <= at.i; n++) {
                if (c < p.size)
                    value += slopes[n] * get<C>(p.k, p.dtype,
                                                start(p, K, at, from + n) + c);
            }
        }
        if (c < p.size)
            put(p.result[0], p.dtype, start(p, R0, at, at.i) + c, value);
    }
}

/* dk and dv of one key. */
template <class C> __device__ void backward_key(const attention_params &p)
{
    __shared__ C slopes[QUERY_THREADS], weights[QUERY_THREADS];
    rows at = row_of(p);
    int64_t j = at.i;
    for (int64_t c0 = 0; c0 < p.size; c0 += blockDim.x) {
        int64_t c = c0 + threadIdx.x;
        C dk = 0, dv = 0;
        for (int64_t from = j; from < p.length; from += QUERY_THREADS) {
            C weight = 0, slope = 0;
            int64_t i = from + threadIdx.x;
            if (i < p.length)
                slope_of(p, at, i, j, &weight, &slope);
            __syncthreads();
            slopes[threadIdx.x] = slope;
            weights[threadIdx.x] = weight;
            __syncthreads();
            for (int n = 0; n < QUERY_THREADS && from + n < p.length; n++) {
                if (c >= p.size)
                    break;
                dk += slopes[n] *
                      get<C>(p.q, p.dtype, start(p, Q, at, from + n) + c);
                dv += weights[n] *
                      get<C>(p.dy, p.dtype, start(p, DY, at, from + n) + c);
            }
        }
        if (c < p.size && p.result[1])
            put(p.result[1], p.dtype, start(p, R1, at, j) + c, dk);
        if (c < p.size && p.result[2])
            put(p.result[2], p.dtype, start(p, R2, at, j) + c, dv);
    }
}

KERNEL(attention_f32, attention_params)
{
    forward<float>(p);
}

KERNEL(attention_f64, attention_params)
{
    forward<double>(p);
}

KERNEL(attention_query_f32, attention_params)
{
    backward_query<float>(p);
}

KERNEL(attention_query_f64, attention_params)
{
    backward_query<double>(p);
}

KERNEL(attention_key_f32, attention_params)
{
    backward_key<float>(p);
}

KERNEL(attention_key_f64, attention_params)
{
    backward_key<double>(p);
}

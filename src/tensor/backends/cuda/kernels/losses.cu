/* SPDX-License-Identifier: MIT
 *
 * Losses and their gradients. */
#include "device.cuh"

/* ------------------------------------------------------- cross entropy -- */

/* The largest of some numbers, and the sum of exp(number - largest). */
template <class C> struct soft {
    C most, sum;
};

template <class C> __device__ __forceinline__ C exponential(C x);
template <> __device__ __forceinline__ float exponential(float x)
{
    return __expf(x);
}
template <> __device__ __forceinline__ double exponential(double x)
{
    return exp(x);
}

template <class C>
__device__ __forceinline__ soft<C> join(const soft<C> &a, const soft<C> &b)
{
    soft<C> out;
    out.most = a.most > b.most ? a.most : b.most;
    if (out.most == -INFINITY)
        return {out.most, a.sum + b.sum};
    out.sum = a.sum * exponential(a.most - out.most) +
              b.sum * exponential(b.most - out.most);
    return out;
}

template <class C> __device__ soft<C> block_soft(soft<C> own)
{
    __shared__ soft<C> each[32];
#pragma unroll
    for (int by = 16; by; by /= 2) {
        soft<C> other = {__shfl_xor_sync(0xffffffffu, own.most, by),
                         __shfl_xor_sync(0xffffffffu, own.sum, by)};
        own = join(own, other);
    }
    if (threadIdx.x % 32 == 0)
        each[threadIdx.x / 32] = own;
    __syncthreads();
    own = each[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++)
        own = join(own, each[i]);
    return own;
}

/* The loss of a row; thread 0. */
template <class C>
__device__ void end_row(const loss_params &p, int64_t row, double most,
                        double log_sum)
{
    put(p.saved, p.dtype[3], 2 * row, most);
    put(p.saved, p.dtype[3], 2 * row + 1, log_sum);
    int64_t label = integer(p.labels, p.dtype[1], row);
    double term = 0;
    if (label != p.ignore && (label < 0 || label >= p.columns))
        note_fault(p.block, p.kernel, label, row);
    else if (label != p.ignore)
        term = most + log_sum -
               get<double>(p.logits, p.dtype[0], row * p.columns + label);
    p.terms[row] = term;
}

KERNEL(loss_any, loss_params)
{
    int64_t at = blockIdx.x * p.columns;
    double most = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        most = fmax(most, get<double>(p.logits, p.dtype[0], at + c));
    most = block_max(most);
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        sum += exp(get<double>(p.logits, p.dtype[0], at + c) - most);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        end_row<double>(p, blockIdx.x, most, log(sum));
}

/* Reads the logits once. */
KERNEL(loss_eights, loss_params)
{
    int64_t at = blockIdx.x * p.columns;
    soft<float> own = {-INFINITY, 0};
    for (int64_t c = threadIdx.x * 8; c < p.columns; c += blockDim.x * 8) {
        eight x = get8(p.logits, p.dtype[0], at + c);
        soft<float> some = {x.at[0], 0};
#pragma unroll
        for (int k = 1; k < 8; k++)
            some.most = fmaxf(some.most, x.at[k]);
        /* Of eight that are -inf, none counts. */
        float base = some.most == -INFINITY ? 0 : some.most;
#pragma unroll
        for (int k = 0; k < 8; k++)
            some.sum += __expf(x.at[k] - base);
        own = join(own, some);
    }
    own = block_soft(own);
    if (threadIdx.x == 0)
        end_row<float>(p, blockIdx.x, own.most, log((double)own.sum));
}

/* How many labels are not to be ignored. One block. */
__device__ int64_t count_labels(const loss_params &p)
{
    double counted = 0;
    for (int64_t r = threadIdx.x; r < p.rows; r += blockDim.x)
        counted += integer(p.labels, p.dtype[1], r) != p.ignore;
    return (int64_t)block_sum(counted);
}

/* The mean over the rows that count. Labels out of range do not, as in the
 * specification. One block. */
KERNEL(loss_end, loss_params)
{
    double sum = 0, counted = 0;
    for (int64_t r = threadIdx.x; r < p.rows; r += blockDim.x) {
        int64_t label = integer(p.labels, p.dtype[1], r);
        sum += p.terms[r];
        counted += label != p.ignore && label >= 0 && label < p.columns;
    }
    sum = block_sum(sum);
    counted = block_sum(counted);
    if (threadIdx.x == 0)
        put(p.out, p.dtype[4], 0, sum / counted);
}

/* Before the gradient: what all rows are multiplied by. One block. */
KERNEL(loss_factor, loss_params)
{
    int64_t counted = count_labels(p);
    if (threadIdx.x == 0)
        p.terms[0] = get<double>(p.dloss, p.dtype[2], 0) / (double)counted;
}

/* The label of a row; the one to be ignored, if it is out of range. */
__device__ int64_t label_of(const loss_params &p, int64_t row)
{
    int64_t label = integer(p.labels, p.dtype[1], row);
    if (label == p.ignore || (label >= 0 && label < p.columns))
        return label;
    if (threadIdx.x == 0)
        note_fault(p.block, p.kernel, label, row);
    return p.ignore;
}

KERNEL(loss_grad_any, loss_params)
{
    int64_t row = blockIdx.x, at = row * p.columns, label = label_of(p, row);
    double most = get<double>(p.saved, p.dtype[3], 2 * row);
    double log_sum = get<double>(p.saved, p.dtype[3], 2 * row + 1);
    double factor = p.terms[0];
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x) {
        double x = get<double>(p.logits, p.dtype[0], at + c);
        double slope = factor * (exp(x - most - log_sum) - (c == label));
        put(p.out, p.dtype[4], at + c, label == p.ignore ? 0 : slope);
    }
}

KERNEL(loss_grad_eights, loss_params)
{
    int64_t row = blockIdx.x, at = row * p.columns, label = label_of(p, row);
    const float2 saved = ((const float2 *)p.saved)[row];
    float factor = label == p.ignore ? 0 : (float)p.terms[0];
    for (int64_t c = threadIdx.x * 8; c < p.columns; c += blockDim.x * 8) {
        eight x = get8(p.logits, p.dtype[0], at + c);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float weight = __expf(x.at[k] - saved.x - saved.y);
            x.at[k] = factor * (weight - (c + k == label ? 1.f : 0.f));
        }
        if (label == p.ignore)
            x = {};
        put8(p.out, p.dtype[4], at + c, x);
    }
}

/* ------------------------------------------------- mean squared error -- */

/* One block. */
KERNEL(mse, mse_params)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) {
        double by = get<double>(p.x, p.dtype[0], i) -
                    get<double>(p.target, p.dtype[1], i);
        sum += by * by;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        put(p.out, p.dtype[3], 0, sum / (double)p.count);
}

KERNEL(mse_grad, mse_params)
{
    double factor =
        p.sign * 2.0 * get<double>(p.dloss, p.dtype[2], 0) / (double)p.count;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
         i < p.count; i += gridDim.x * (int64_t)blockDim.x)
        put(p.out, p.dtype[3], i,
            factor * (get<double>(p.x, p.dtype[0], i) -
                      get<double>(p.target, p.dtype[1], i)));
}

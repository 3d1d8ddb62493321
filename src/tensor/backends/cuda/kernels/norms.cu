/* SPDX-License-Identifier: MIT
 *
 * Norms of rows, and softmax. */
#include "device.cuh"

/* ---------------------------------------------------------------- norms -- */

/* A row for each warp, held in registers: eights of columns, up to 8 for each
 * lane. */
enum { EIGHTS = 8 };

template <int N> __device__ void norm_row(const norm_params &p, int64_t row)
{
    int lane = threadIdx.x % 32;
    eight x[N], weight[N], bias[N];
    float sum = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        int64_t c = (n * 32 + lane) * 8;
        if (c >= p.columns)
            break;
        x[n] = get8(p.x, p.dtype[0], row * p.columns + c);
        weight[n] = get8(p.weight, p.dtype[1], c);
        if (p.bias)
            bias[n] = get8(p.bias, p.dtype[2], c);
        if (p.b) {
            const eight b = get8(p.b, p.dtype[0], row * p.columns + c);
#pragma unroll
            for (int k = 0; k < 8; k++)
                x[n].at[k] += b.at[k];
            put8(p.sum, p.dtype[0], row * p.columns + c, x[n]);
            round8(p.dtype[0], x[n]);
        }
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum += x[n].at[k];
    }
    float mean = p.centred ? warp_sum(sum) / (float)p.columns : 0;
    float square = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if ((n * 32 + lane) * 8 >= p.columns)
            break;
#pragma unroll
        for (int k = 0; k < 8; k++)
            square += (x[n].at[k] - mean) * (x[n].at[k] - mean);
    }
    float scale =
        1 / sqrtf(warp_sum(square) / (float)p.columns + (float)p.epsilon);
#pragma unroll
    for (int n = 0; n < N; n++) {
        int64_t c = (n * 32 + lane) * 8;
        if (c >= p.columns)
            break;
        eight y;
#pragma unroll
        for (int k = 0; k < 8; k++)
            y.at[k] = (x[n].at[k] - mean) * scale * weight[n].at[k] +
                      (p.bias ? bias[n].at[k] : 0);
        put8(p.y, p.dtype[3], row * p.columns + c, y);
    }
    if (lane == 0)
        ((float2 *)p.saved)[row] = make_float2(mean, scale);
}

#define WARP_ROW                                                               \
    int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32;  \
    if (row >= p.rows)                                                         \
    return

KERNEL(norm_3, norm_params)
{
    WARP_ROW;
    norm_row<3>(p, row);
}

KERNEL(norm_8, norm_params)
{
    WARP_ROW;
    norm_row<EIGHTS>(p, row);
}

/* Any dtypes and sizes: a block for each row. */
KERNEL(norm_any, norm_params)
{
    int64_t at = blockIdx.x * p.columns;
    double sum = 0, square = 0;
    const void *from = p.b ? p.sum : p.x;
    for (int64_t c = threadIdx.x; c < p.columns && p.b; c += blockDim.x)
        put(p.sum, p.dtype[0], at + c,
            get<double>(p.x, p.dtype[0], at + c) +
                get<double>(p.b, p.dtype[0], at + c));
    /* Each thread reads what it has written. */
    for (int64_t c = threadIdx.x; c < p.columns && p.centred; c += blockDim.x)
        sum += get<double>(from, p.dtype[0], at + c);
    double mean = block_sum(sum) / (double)p.columns;
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x) {
        double x = get<double>(from, p.dtype[0], at + c) - mean;
        square += x * x;
    }
    double scale = 1 / sqrt(block_sum(square) / (double)p.columns + p.epsilon);
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x) {
        double x = get<double>(from, p.dtype[0], at + c) - mean;
        double y = x * scale * get<double>(p.weight, p.dtype[1], c);
        put(p.y, p.dtype[3], at + c,
            y + (p.bias ? get<double>(p.bias, p.dtype[2], c) : 0));
    }
    if (threadIdx.x == 0) {
        put(p.saved, p.dtype[4], 2 * (int64_t)blockIdx.x, mean);
        put(p.saved, p.dtype[4], 2 * (int64_t)blockIdx.x + 1, scale);
    }
}

/* With g = dy * weight and n the normed x:
 * dx = scale * (g - mean(g) - n * mean(g * n)) [+ further]. */
template <int N>
__device__ void norm_grad_row(const norm_grad_params &p, int64_t row)
{
    int lane = threadIdx.x % 32;
    const float2 saved = ((const float2 *)p.saved)[row];
    eight g[N], n[N], further[N];
    float sum = 0, product = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int64_t c = (i * 32 + lane) * 8;
        if (c >= p.columns)
            break;
        g[i] = get8(p.dy, p.dtype[0], row * p.columns + c);
        n[i] = get8(p.x, p.dtype[1], row * p.columns + c);
        eight weight = get8(p.weight, p.dtype[2], c);
        if (p.further)
            further[i] = get8(p.further, p.dtype[4], row * p.columns + c);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            g[i].at[k] *= weight.at[k];
            n[i].at[k] = (n[i].at[k] - saved.x) * saved.y;
            sum += g[i].at[k];
            product += g[i].at[k] * n[i].at[k];
        }
    }
    sum = p.centred ? warp_sum(sum) / (float)p.columns : 0;
    product = warp_sum(product) / (float)p.columns;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int64_t c = (i * 32 + lane) * 8;
        if (c >= p.columns)
            break;
        eight dx;
#pragma unroll
        for (int k = 0; k < 8; k++)
            dx.at[k] = saved.y * (g[i].at[k] - sum - n[i].at[k] * product);
#pragma unroll
        for (int k = 0; k < 8 && p.further; k++)
            dx.at[k] += further[i].at[k];
        put8(p.dx, p.dtype[4], row * p.columns + c, dx);
    }
}

KERNEL(norm_grad_3, norm_grad_params)
{
    WARP_ROW;
    norm_grad_row<3>(p, row);
}

KERNEL(norm_grad_8, norm_grad_params)
{
    WARP_ROW;
    norm_grad_row<EIGHTS>(p, row);
}

KERNEL(norm_grad_any, norm_grad_params)
{
    int64_t at = blockIdx.x * p.columns;
    double mean = get<double>(p.saved, p.dtype[3], 2 * (int64_t)blockIdx.x);
    double scale =
        get<double>(p.saved, p.dtype[3], 2 * (int64_t)blockIdx.x + 1);
    double sum = 0, product = 0;
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x) {
        double g = get<double>(p.dy, p.dtype[0], at + c) *
                   get<double>(p.weight, p.dtype[2], c);
        sum += p.centred ? g : 0;
        product += g * (get<double>(p.x, p.dtype[1], at + c) - mean) * scale;
    }
    sum = block_sum(sum) / (double)p.columns;
    product = block_sum(product) / (double)p.columns;
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x) {
        double g = get<double>(p.dy, p.dtype[0], at + c) *
                   get<double>(p.weight, p.dtype[2], c);
        double n = (get<double>(p.x, p.dtype[1], at + c) - mean) * scale;
        double further =
            p.further ? get<double>(p.further, p.dtype[4], at + c) : 0;
        put(p.dx, p.dtype[4], at + c,
            scale * (g - sum - n * product) + further);
    }
}

/* -------------------------------------------------------------- softmax -- */

KERNEL(softmax, softmax_params)
{
    int64_t at = blockIdx.x * p.columns;
    double most = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        most = fmax(most, get<double>(p.x, p.dtype[0], at + c));
    most = block_max(most);
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        sum += exp(get<double>(p.x, p.dtype[0], at + c) - most);
    sum = block_sum(sum);
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        put(p.out, p.dtype[2], at + c,
            exp(get<double>(p.x, p.dtype[0], at + c) - most) / sum);
}

KERNEL(softmax_grad, softmax_params)
{
    int64_t at = blockIdx.x * p.columns;
    double sum = 0;
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        sum += get<double>(p.dy, p.dtype[1], at + c) *
               get<double>(p.x, p.dtype[0], at + c);
    sum = block_sum(sum);
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        put(p.out, p.dtype[2], at + c,
            get<double>(p.x, p.dtype[0], at + c) *
                (get<double>(p.dy, p.dtype[1], at + c) - sum));
}

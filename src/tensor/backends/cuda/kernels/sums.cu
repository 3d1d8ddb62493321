/* SPDX-License-Identifier: MIT
 *
 * Sums over dimensions, in an order that depends on the geometry alone. */
#include "device.cuh"

/* One block for each sum. */
template <class C> __device__ void reduce_one(const reduce_params &p)
{
    for (int64_t o = blockIdx.x; o < p.kept; o += gridDim.x) {
        int64_t start[1], to[1], from[1];
        place<1>(o, p.kept_dims, p.kept_shape, &p.kept_stride, start);
        place<1>(o, p.kept_dims, p.kept_shape, &p.out_stride, to);
        C sum = 0;
        for (int64_t i = threadIdx.x; i < p.summed; i += blockDim.x) {
            place<1>(i, p.summed_dims, p.summed_shape, &p.summed_stride, from);
            sum += get<C>(p.in, p.dtype[0], start[0] + from[0]);
        }
        sum = block_sum(sum) * (C)p.number;
        if (threadIdx.x == 0) {
            if (p.adds)
                sum += get<C>(p.out, p.dtype[1], to[0]);
            put(p.out, p.dtype[1], to[0], sum);
        }
    }
}

KERNEL(reduce, reduce_params)
{
    reduce_one<double>(p);
}

/* One thread for each sum, where there are many short ones. */
template <class C> __device__ void reduce_some(const reduce_params &p)
{
    for (int64_t o = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; o < p.kept;
         o += gridDim.x * (int64_t)blockDim.x) {
        int64_t start[1], to[1], from[1];
        place<1>(o, p.kept_dims, p.kept_shape, &p.kept_stride, start);
        place<1>(o, p.kept_dims, p.kept_shape, &p.out_stride, to);
        C sum = 0;
        for (int64_t i = 0; i < p.summed; i++) {
            place<1>(i, p.summed_dims, p.summed_shape, &p.summed_stride, from);
            sum += get<C>(p.in, p.dtype[0], start[0] + from[0]);
        }
        sum *= (C)p.number;
        if (p.adds)
            sum += get<C>(p.out, p.dtype[1], to[0]);
        put(p.out, p.dtype[1], to[0], sum);
    }
}

KERNEL(reduce_each, reduce_params)
{
    reduce_some<double>(p);
}

/* ------------------------------------------------- over the rows alone -- */

/* What row `r` adds to eight columns; OF_NORM: of both sums, first that of the
 * normed x. */
template <bool OF_NORM>
__device__ __forceinline__ void add_row(const columns_params &p, int64_t r,
                                        int64_t column,
                                        float sum[1 + OF_NORM][8])
{
    eight dy = get8(p.dy, p.dtype[0], r * p.columns + column);
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum[OF_NORM][k] += dy.at[k];
    if (!OF_NORM)
        return;
    eight x = get8(p.x, p.dtype[1], r * p.columns + column);
    const float2 saved = ((const float2 *)p.saved)[r];
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum[0][k] += dy.at[k] * (x.at[k] - saved.x) * saved.y;
}

/* Writes a sum of a column, or adds it. */
__device__ __forceinline__ void put_sum(const columns_params &p, int which,
                                        int64_t column, float sum)
{
    void *out = which ? p.plain : p.out;
    if (!out)
        return;
    sum *= (float)p.number;
    if (p.adds)
        sum += get<float>(out, p.dtype[3], column);
    put(out, p.dtype[3], column, sum);
}

/* For a few rows: blocks of 2 x 128 threads, each with 16 columns and all
 * rows. */
template <bool OF_NORM> __device__ void sum_short(const columns_params &p)
{
    enum { LINES = 128, COLUMNS = 16 };
    __shared__ float sums[1 + OF_NORM][LINES][COLUMNS + 1];
    int lane = threadIdx.x % 2, line = threadIdx.x / 2;
    int64_t column = ((int64_t)blockIdx.x * 2 + lane) * 8;
    float sum[1 + OF_NORM][8] = {};
    if (column < p.columns) {
#pragma unroll 4
        for (int64_t r = line; r < p.rows; r += LINES)
            add_row<OF_NORM>(p, r, column, sum);
    }
#pragma unroll
    for (int which = 0; which <= OF_NORM; which++) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            sums[which][line][lane * 8 + k] = sum[which][k];
    }
    __syncthreads();
    /* Each warp sums two of the columns. */
    for (int c = threadIdx.x / 32; c < COLUMNS; c += 8) {
        int i = threadIdx.x % 32;
        int64_t own = (int64_t)blockIdx.x * COLUMNS + c;
#pragma unroll
        for (int which = 0; which <= OF_NORM; which++) {
            float all = warp_sum(sums[which][i][c] + sums[which][i + 32][c] +
                                 sums[which][i + 64][c] +
                                 sums[which][i + 96][c]);
            if (i == 0 && own < p.columns)
                put_sum(p, which, own, all);
        }
    }
}

KERNEL(columns_short, columns_params)
{
    sum_short<false>(p);
}

KERNEL(columns_short_norm, columns_params)
{
    sum_short<true>(p);
}

/* Blocks of 32 x 8 threads. Each thread sums eight columns of every eighth row
 * of its part; then the block sums the eight. */
template <bool OF_NORM> __device__ void sum_eights(const columns_params &p)
{
    __shared__ float sums[8][32][8 + 1];
    int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    int64_t column = ((int64_t)blockIdx.x * 32 + lane) * 8;
    int64_t each = (p.rows + p.parts - 1) / p.parts;
    int64_t first = blockIdx.y * each, end = first + each;
    float sum[1 + OF_NORM][8] = {};
    end = end < p.rows ? end : p.rows;
    if (column < p.columns) {
#pragma unroll 4
        for (int64_t r = first + line; r < end; r += 8)
            add_row<OF_NORM>(p, r, column, sum);
    }
#pragma unroll
    for (int which = 0; which <= OF_NORM; which++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 8; k++)
            sums[line][lane][k] = sum[which][k];
        __syncthreads();
        /* Thread t sums column t of the 256 of this block. */
        float all = 0;
        for (int i = 0; i < 8; i++)
            all += sums[i][threadIdx.x / 8][threadIdx.x % 8];
        int64_t own = (int64_t)blockIdx.x * 256 + threadIdx.x;
        int64_t part = (int64_t)which * p.parts + blockIdx.y;
        if (own < p.columns)
            ((float *)p.partial)[part * p.columns + own] = all;
    }
}

KERNEL(columns_eights, columns_params)
{
    sum_eights<false>(p);
}

KERNEL(columns_eights_norm, columns_params)
{
    sum_eights<true>(p);
}

/* Blocks of 32 x 8 threads, a row of blocks for each sum: each of the eight
 * sums every eighth part. */
KERNEL(columns_end, columns_params)
{
    __shared__ float sums[8][32 + 1];
    int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    int64_t c = blockIdx.x * (int64_t)32 + lane;
    const float *partial = (const float *)p.partial +
                           (int64_t)blockIdx.y * p.parts * p.columns;
    float sum = 0;
#pragma unroll 4
    for (int i = line; i < p.parts && c < p.columns; i += 8)
        sum += partial[i * p.columns + c];
    sums[line][lane] = sum;
    __syncthreads();
    if (line || c >= p.columns)
        return;
    for (int i = 1; i < 8; i++)
        sum += sums[i][lane];
    put_sum(p, (int)blockIdx.y, c, sum);
}

/* The same for any dtypes and sizes: one block for each column. */
KERNEL(columns_any, columns_params)
{
    int64_t c = blockIdx.x;
    double sum = 0, plain = 0;
    for (int64_t r = threadIdx.x; r < p.rows; r += blockDim.x) {
        double dy = get<double>(p.dy, p.dtype[0], r * p.columns + c);
        plain += dy;
        if (p.x) {
            double x = get<double>(p.x, p.dtype[1], r * p.columns + c);
            dy *= (x - get<double>(p.saved, p.dtype[2], 2 * r)) *
                  get<double>(p.saved, p.dtype[2], 2 * r + 1);
        }
        sum += dy;
    }
    sum = block_sum(sum) * p.number;
    if (p.plain)
        plain = block_sum(plain);
    if (threadIdx.x)
        return;
    if (p.adds)
        sum += get<double>(p.out, p.dtype[3], c);
    put(p.out, p.dtype[3], c, sum);
    if (!p.plain)
        return;
    if (p.adds)
        plain += get<double>(p.plain, p.dtype[3], c);
    put(p.plain, p.dtype[3], c, plain);
}

/* ------------------------------------------------------ of squares -- */

enum { SQUARES_BLOCK = 1 << 15 };

/* The part that a block belongs to. */
template <class P> __device__ int part_of(const P &p, int64_t block)
{
    int part = 0;
    while (part + 1 < p.count && p.start[part + 1] <= block)
        part++;
    return part;
}

/* Blocks of 256 threads, each with SQUARES_BLOCK elements. */
KERNEL(squares_begin, squares_params)
{
    int part = part_of(p, blockIdx.x);
    int64_t first = (blockIdx.x - p.start[part]) * (int64_t)SQUARES_BLOCK;
    int64_t end = first + SQUARES_BLOCK;
    end = end < p.counts[part] ? end : p.counts[part];
    double sum = 0;
    if (p.dtype[part] == DT_F32) {
        const float *data = (const float *)p.data[part];
        for (int64_t i = first + threadIdx.x * 4; i < end;
             i += blockDim.x * 4) {
            if (i + 4 <= end) {
                const float4 x = *(const float4 *)(data + i);
                sum += (double)x.x * x.x + (double)x.y * x.y +
                       (double)x.z * x.z + (double)x.w * x.w;
            } else {
                for (int64_t k = i; k < end; k++)
                    sum += (double)data[k] * data[k];
            }
        }
    } else {
        const double *data = (const double *)p.data[part];
        for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
            sum += data[i] * data[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        p.partial[blockIdx.x] = sum;
}

/* One block. */
KERNEL(squares_end, squares_params)
{
    double all = 0;
    for (int part = 0; part < p.count; part++) {
        double sum = 0;
        for (int64_t i = p.start[part] + threadIdx.x; i < p.start[part + 1];
             i += blockDim.x)
            sum += p.partial[i];
        sum = block_sum(sum);
        if (threadIdx.x == 0 && p.each[part])
            *p.each[part] = sum;
        all += sum;
    }
    if (threadIdx.x == 0 && p.all)
        *p.all += all;
}

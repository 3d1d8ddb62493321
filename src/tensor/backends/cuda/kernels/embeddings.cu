/* SPDX-License-Identifier: MIT
 *
 * Rows of a table, and their gradients: the positions of each id are grouped
 * first, so that every row is summed in the order of positions. */
#include "device.cuh"

/* A block for each position. */
KERNEL(embedding, embedding_params)
{
    int64_t i = blockIdx.x, id = integer(p.ids, p.dtype[1], i);
    bool is_known = id >= 0 && id < p.rows;
    if (!is_known && threadIdx.x == 0)
        note_fault(p.block, p.kernel, id, i);
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x)
        put(p.out, p.dtype[2], i * p.columns + c,
            is_known ? get<double>(p.table, p.dtype[0], id * p.columns + c)
                     : 0.0);
}

KERNEL(embedding_eights, embedding_params)
{
    int64_t i = blockIdx.x, id = integer(p.ids, p.dtype[1], i);
    bool is_known = id >= 0 && id < p.rows;
    if (!is_known && threadIdx.x == 0)
        note_fault(p.block, p.kernel, id, i);
    for (int64_t c = threadIdx.x * 8; c < p.columns; c += blockDim.x * 8) {
        eight row = {};
        if (is_known)
            row = get8(p.table, p.dtype[0], id * p.columns + c);
        put8(p.out, p.dtype[2], i * p.columns + c, row);
    }
}

/* Grouping: for each position the first with the same id, how many come before
 * it, and at a first one how many there are; then where each group starts; then
 * the positions in order. All ids are compared with all. */

/* An id, or -1 if there is no such row. */
__device__ __forceinline__ int known_id(const embedding_params &p, int64_t i)
{
    int64_t id = integer(p.ids, p.dtype[1], i);
    if (id >= 0 && id < p.rows)
        return (int)id;
    note_fault(p.block, p.kernel, id, i);
    return -1;
}

KERNEL(group_begin, embedding_params)
{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= p.count)
        return;
    p.first[i] = INT32_MAX;
    p.place[i] = p.start[i] = 0;
    /* Ids out of range leave places of the order unwritten. */
    p.order[i] = 0;
}

/* Blocks of 128 threads, one for each position, and rows of blocks that each
 * compare with a part of all. */
KERNEL(group_count, embedding_params)
{
    enum { TILE = 1024 };
    __shared__ int4 tile[TILE / 4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int count = (int)p.count, own = i < count ? known_id(p, i) : -1;
    int first = INT32_MAX, before = 0, all = 0;
    for (int from = blockIdx.y * TILE; from < count;
         from += gridDim.y * TILE) {
        int fours = min(TILE, count - from + 3) / 4;
        __syncthreads();
        for (int k = threadIdx.x; k < 4 * fours; k += blockDim.x) {
            int64_t id =
                from + k < count ? integer(p.ids, p.dtype[1], from + k) : -2;
            ((int *)tile)[k] = id >= 0 && id < p.rows ? (int)id : -2;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < fours; k++) {
            const int4 four = tile[k];
            int at = from + 4 * k;
            if (four.x == own)
                first = min(first, at), before += at < i, all++;
            if (four.y == own)
                first = min(first, at + 1), before += at + 1 < i, all++;
            if (four.z == own)
                first = min(first, at + 2), before += at + 2 < i, all++;
            if (four.w == own)
                first = min(first, at + 3), before += at + 3 < i, all++;
        }
    }
    if (own < 0 || !all)
        return;
    /* Of whole numbers, in any order. */
    atomicMin(&p.first[i], first);
    atomicAdd(&p.place[i], before);
    atomicAdd(&p.start[i], all);
}

/* What a position adds to the starts of the groups after its own. */
__device__ __forceinline__ int size_at(const embedding_params &p, int64_t i)
{
    return p.first[i] == i ? p.start[i] : 0;
}

/* One block. */
KERNEL(group_start, embedding_params)
{
    __shared__ int sums[1024];
    int64_t each = (p.count + blockDim.x - 1) / blockDim.x;
    int64_t from = threadIdx.x * each, end = from + each;
    int sum = 0;
    end = end < p.count ? end : p.count;
    for (int64_t i = from; i < end; i++)
        sum += size_at(p, i);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int by = 1; by < (int)blockDim.x; by *= 2) {
        int left = (int)threadIdx.x >= by ? sums[threadIdx.x - by] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
        __syncthreads();
    }
    int at = threadIdx.x ? sums[threadIdx.x - 1] : 0;
    for (int64_t i = from; i < end; i++) {
        int size = size_at(p, i);
        p.start[i] = at;
        at += size;
    }
}

KERNEL(group_order, embedding_params)
{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < p.count && p.first[i] != INT32_MAX)
        p.order[p.start[p.first[i]] + p.place[i]] = (int)i;
}

/* A block for each position; those that are the first of their id sum the rows
 * of all its positions. */
template <class C> __device__ void sum_group(const embedding_params &p)
{
    int i = blockIdx.x;
    if (p.first[i] != i)
        return;
    int64_t id = integer(p.ids, p.dtype[1], i);
    int from = p.start[i], count = 0;
    /* Its size: places are numbered, and the group ends where they restart. */
    while (from + count < (int)p.count && p.first[p.order[from + count]] == i &&
           p.place[p.order[from + count]] == count)
        count++;
    for (int64_t c = threadIdx.x; c < p.columns; c += blockDim.x) {
        C sum = 0;
        for (int n = 0; n < count; n++)
            sum += get<C>(p.dy, p.dtype[0], p.order[from + n] * p.columns + c);
        if (p.adds)
            sum += get<C>(p.out, p.dtype[2], id * p.columns + c);
        put(p.out, p.dtype[2], id * p.columns + c, sum);
    }
}

KERNEL(embedding_grad_f32, embedding_params)
{
    sum_group<float>(p);
}

KERNEL(embedding_grad_f64, embedding_params)
{
    sum_group<double>(p);
}

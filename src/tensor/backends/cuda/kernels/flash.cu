/* SPDX-License-Identifier: MIT
 *
 * Causal attention in bf16 on tensor cores, for heads of up to 64: tiles of 64
 * queries and 64 keys, a warp for each 16 rows of a tile. Scores stay in
 * registers, and are computed again in backward: once by query, for dq, and
 * once by key, for dk and dv, so that every sum has one order. */
#include "device.cuh"

enum {
    TILE = 64,
    SIZE = 64, /* of a head, padded with zeros */
    THREADS = 128,
    ROW_BYTES = SIZE * 2,
    TILE_BYTES = TILE * ROW_BYTES,
    STEPS = SIZE / 16, /* of a product over a head */
};
#define LOG2E 1.4426950408889634f

/* Tiles lie in rows of 128 bytes, whose pieces of 16 are permuted so that no
 * eight rows of a column meet in a bank. */
__device__ __forceinline__ uint32_t piece_at(uint32_t tile, int row, int piece)
{
    return tile + row * ROW_BYTES + ((piece ^ (row & 7)) << 4);
}

__device__ __forceinline__ uint32_t shared_address(const void *memory)
{
    return (uint32_t)__cvta_generic_to_shared(memory);
}

/* Copies rows of a head from row `first` on; what is beyond is 0. By the warps
 * of a group. */
__device__ __forceinline__ void load_tile(uint32_t tile,
                                          const __nv_bfloat16 *head,
                                          int64_t stride, int first, int length,
                                          int size)
{
#pragma unroll
    for (int i = 0; i < TILE * 8 / THREADS; i++) {
        int n = i * THREADS + threadIdx.x % THREADS, row = n / 8, piece = n % 8;
        bool there = first + row < length && piece * 8 < size;
        const void *from =
            head + (there ? (first + row) * stride + piece * 8 : 0);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                         piece_at(tile, row, piece)),
                     "l"(from), "r"(there ? 16 : 0));
    }
}

__device__ __forceinline__ void end_loads()
{
    asm volatile("cp.async.commit_group;\n");
}

template <int LEFT> __device__ __forceinline__ void wait_loads()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT));
}

struct four {
    uint32_t at[4];
};

__device__ __forceinline__ four load_four(uint32_t address)
{
    four out;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, "
                 "[%4];\n"
                 : "=r"(out.at[0]), "=r"(out.at[1]), "=r"(out.at[2]),
                   "=r"(out.at[3])
                 : "r"(address));
    return out;
}

__device__ __forceinline__ four load_four_turned(uint32_t address)
{
    four out;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0,%1,%2,%3}, [%4];\n"
                 : "=r"(out.at[0]), "=r"(out.at[1]), "=r"(out.at[2]),
                   "=r"(out.at[3])
                 : "r"(address));
    return out;
}

/* 16 rows from `row` on and 16 columns from 16 * step on, as the left operand
 * of a product. */
__device__ __forceinline__ four left_of(uint32_t tile, int row, int step)
{
    int lane = threadIdx.x % 32;
    return load_four(piece_at(tile, row + lane % 16, 2 * step + lane / 16));
}

/* 16 rows from `row` on, which are the columns of a right operand, and 16 of
 * what is summed over: two blocks of 8 columns. */
__device__ __forceinline__ four right_of(uint32_t tile, int row, int step)
{
    int lane = threadIdx.x % 32;
    return load_four(piece_at(tile, row + lane % 8 + lane / 16 * 8,
                              2 * step + lane / 8 % 2));
}

/* 16 rows from `row` on, which are summed over, and 16 columns from 16 * step
 * on. */
__device__ __forceinline__ four right_turned(uint32_t tile, int row, int step)
{
    int lane = threadIdx.x % 32;
    return load_four_turned(
        piece_at(tile, row + lane % 16, 2 * step + lane / 16));
}

/* sum (16, 8) += left (16, 16) right (16, 8) */
__device__ __forceinline__ void multiply(float sum[4], const four &left,
                                         uint32_t right0, uint32_t right1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]),
                   "r"(left.at[3]), "r"(right0), "r"(right1));
}

__device__ __forceinline__ uint32_t pack(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&two;
}

/* A result of (16, 16), in two blocks of 8 columns, as a left operand. */
__device__ __forceinline__ four as_left(const float sum[2][4])
{
    return {{pack(sum[0][0], sum[0][1]), pack(sum[0][2], sum[0][3]),
             pack(sum[1][0], sum[1][1]), pack(sum[1][2], sum[1][3])}};
}

__device__ __forceinline__ float power(float x)
{
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

enum { Q, K, V, OUT, DY, R0, R1, R2 };

/* Which head of which sequence, and which tile of it; long ones first. */
struct place_of {
    int tile;
    int64_t head; /* over all sequences */
    int64_t b, h;
};

__device__ __forceinline__ place_of find_place(const attention_params &p,
                                               int64_t block, bool last_first)
{
    place_of at;
    int64_t heads = p.batch * p.heads;
    int tiles = (int)((p.length + TILE - 1) / TILE);
    int order = (int)(block / heads);
    at.tile = last_first ? tiles - 1 - order : order;
    at.head = block % heads;
    at.b = at.head / p.heads;
    at.h = at.head % p.heads;
    return at;
}

__device__ __forceinline__ const __nv_bfloat16 *
head_of(const attention_params &p, int which, const void *data,
        const place_of &at)
{
    return (const __nv_bfloat16 *)data + at.b * p.stride[which][0] +
           at.h * p.size;
}

/* Writes the sums of a warp: 16 rows of a head. */
__device__ __forceinline__ void store_rows(const attention_params &p, int which,
                                           void *data, const place_of &at,
                                           int first, float (*sum)[4])
{
    int lane = threadIdx.x % 32, column = lane % 4 * 2;
    __nv_bfloat16 *head = (__nv_bfloat16 *)head_of(p, which, data, at);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = first + lane / 4 + half * 8;
        if (row >= p.length)
            continue;
        __nv_bfloat16 *to = head + row * p.stride[which][1] + column;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
            if (n * 8 < p.size)
                *(uint32_t *)(to + n * 8) =
                    pack(sum[n][2 * half], sum[n][2 * half + 1]);
        }
    }
}

/* ------------------------------------------------------------- forward -- */

KERNEL_OF(THREADS, flash_forward, attention_params)
{
    __shared__ __align__(128) char memory[5][TILE_BYTES];
    const place_of at = find_place(p, blockIdx.x, true);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int length = (int)p.length, first = at.tile * TILE;
    const uint32_t q_tile = shared_address(memory[0]);
    const __nv_bfloat16 *k = head_of(p, K, p.k, at),
                        *v = head_of(p, V, p.v, at);
    const float scale = (float)p.scale * LOG2E;
    float sum[SIZE / 8][4] = {}, most[2] = {-INFINITY, -INFINITY};
    float total[2] = {0, 0};
    four q[STEPS];

    load_tile(q_tile, head_of(p, Q, p.q, at), p.stride[Q][1], first, length,
              p.size);
    load_tile(shared_address(memory[1]), k, p.stride[K][1], 0, length, p.size);
    end_loads();
    load_tile(shared_address(memory[2]), v, p.stride[V][1], 0, length, p.size);
    end_loads();
    for (int tile = 0; tile <= at.tile; tile++) {
        const int which = 1 + tile % 2 * 2;
        const uint32_t k_tile = shared_address(memory[which]);
        const uint32_t v_tile = shared_address(memory[which + 1]);
        const int other = 1 + (tile + 1) % 2 * 2;
        __syncthreads();
        if (tile < at.tile) {
            load_tile(shared_address(memory[other]), k, p.stride[K][1],
                      (tile + 1) * TILE, length, p.size);
            end_loads();
            load_tile(shared_address(memory[other + 1]), v, p.stride[V][1],
                      (tile + 1) * TILE, length, p.size);
            end_loads();
            wait_loads<2>();
        } else {
            wait_loads<0>();
        }
        __syncthreads();
        if (tile == 0) {
#pragma unroll
            for (int s = 0; s < STEPS; s++)
                q[s] = left_of(q_tile, warp * 16, s);
        }
        float score[TILE / 8][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
#pragma unroll
            for (int n = 0; n < TILE / 16; n++) {
                four right = right_of(k_tile, n * 16, s);
                multiply(score[2 * n], q[s], right.at[0], right.at[1]);
                multiply(score[2 * n + 1], q[s], right.at[2], right.at[3]);
            }
        }
        if (tile == at.tile) {
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int row = warp * 16 + lane / 4 + i / 2 * 8;
                    if (n * 8 + lane % 4 * 2 + i % 2 > row)
                        score[n][i] = -INFINITY;
                }
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float now = most[half];
#pragma unroll
            for (int n = 0; n < TILE / 8; n++)
                now = fmaxf(now,
                            fmaxf(score[n][2 * half], score[n][2 * half + 1]));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            float by = power((most[half] - now) * scale);
            float bias = now * scale, added = 0;
            most[half] = now;
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    score[n][i] = power(score[n][i] * scale - bias);
                    added += score[n][i];
                }
            }
            total[half] = total[half] * by + added;
#pragma unroll
            for (int n = 0; n < SIZE / 8; n++) {
                sum[n][2 * half] *= by;
                sum[n][2 * half + 1] *= by;
            }
        }
        /* The values of the first tile may still be on their way. */
#pragma unroll
        for (int s = 0; s < TILE / 16; s++) {
            four weights = as_left(&score[2 * s]);
#pragma unroll
            for (int n = 0; n < SIZE / 16; n++) {
                four right = right_turned(v_tile, s * 16, n);
                multiply(sum[2 * n], weights, right.at[0], right.at[1]);
                multiply(sum[2 * n + 1], weights, right.at[2], right.at[3]);
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float all = total[half];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        int row = first + warp * 16 + lane / 4 + half * 8;
        float by = 1 / all;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
            sum[n][2 * half] *= by;
            sum[n][2 * half + 1] *= by;
        }
        if (lane % 4 == 0 && row < length)
            ((float *)p.saved)[at.head * p.length + row] =
                most[half] * (float)p.scale + logf(all);
    }
    store_rows(p, R0, p.result[0], at, first + warp * 16, sum);
}

/* ------------------------------------------------------------ backward -- */

/* Pairs of numbers in bf16, multiplied and summed. */
__device__ __forceinline__ float dot_pairs(uint32_t a, uint32_t b)
{
    float2 x = __bfloat1622float2(*(const __nv_bfloat162 *)&a);
    float2 y = __bfloat1622float2(*(const __nv_bfloat162 *)&b);
    return x.x * y.x + x.y * y.y;
}

/* What a tile of queries brings beside its rows: by query, log2 of the sum of
 * exponentials, and dy . out. */
struct beside {
    float bias[TILE], base[TILE];
};

/* What a block of backward shares: tiles, and what is beside two of them. One
 * group of four warps has two pairs of tiles in turn; of two groups, which take
 * every second tile and then add what they have, each has one pair. */
struct shared_tiles {
    __align__(128) char tiles[4][TILE_BYTES];
    beside besides[2];
};

/* Waits for the warps of this group. */
template <int GROUPS> __device__ __forceinline__ void await_group()
{
    if (GROUPS == 1)
        __syncthreads();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(1 + (int)threadIdx.x / THREADS),
                     "n"((int)THREADS)
                     : "memory");
}

/* Adds the sums of the second group to those of the first. All call it; ensures
 * that the memory can be used again. */
template <int GROUPS>
__device__ __forceinline__ void add_groups(shared_tiles &shared,
                                           float (*sum)[4])
{
    float *room = (float *)shared.tiles[2] + threadIdx.x % THREADS;
    if (GROUPS == 1)
        return;
    __syncthreads();
    if (threadIdx.x >= THREADS) {
#pragma unroll
        for (int n = 0; n < SIZE / 8 * 4; n++)
            room[n * THREADS] = sum[n / 4][n % 4];
    }
    __syncthreads();
    if (threadIdx.x < THREADS) {
#pragma unroll
        for (int n = 0; n < SIZE / 8 * 4; n++)
            sum[n / 4][n % 4] += room[n * THREADS];
    }
    __syncthreads();
}

/* dq of a tile of queries, if it is wanted, and their dy . out, for by_key. */
template <int GROUPS>
__device__ __forceinline__ void by_query(const attention_params &p,
                                         int64_t block, shared_tiles &shared)
{
    char(*memory)[TILE_BYTES] = shared.tiles;
    const place_of at = find_place(p, block, true);
    const int group = threadIdx.x / THREADS;
    const int warp = threadIdx.x % THREADS / 32, lane = threadIdx.x % 32;
    const int length = (int)p.length, first = at.tile * TILE;
    const __nv_bfloat16 *k = head_of(p, K, p.k, at),
                        *v = head_of(p, V, p.v, at);
    const float scale = (float)p.scale * LOG2E;
    float sum[SIZE / 8][4] = {}, bias[2], base[2];
    four q[STEPS], dy[STEPS];

    if (group == 0) {
        load_tile(shared_address(memory[0]), head_of(p, Q, p.q, at),
                  p.stride[Q][1], first, length, p.size);
        load_tile(shared_address(memory[1]), head_of(p, DY, p.dy, at),
                  p.stride[DY][1], first, length, p.size);
        load_tile(shared_address(memory[2]), head_of(p, OUT, p.out, at),
                  p.stride[OUT][1], first, length, p.size);
    }
    end_loads();
    wait_loads<0>();
    __syncthreads();
    base[0] = base[1] = 0;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        q[s] = left_of(shared_address(memory[0]), warp * 16, s);
        dy[s] = left_of(shared_address(memory[1]), warp * 16, s);
        const four out = left_of(shared_address(memory[2]), warp * 16, s);
        base[0] += dot_pairs(dy[s].at[0], out.at[0]) +
                   dot_pairs(dy[s].at[2], out.at[2]);
        base[1] += dot_pairs(dy[s].at[1], out.at[1]) +
                   dot_pairs(dy[s].at[3], out.at[3]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        base[half] += __shfl_xor_sync(0xffffffffu, base[half], 1);
        base[half] += __shfl_xor_sync(0xffffffffu, base[half], 2);
        int row = first + warp * 16 + lane / 4 + half * 8;
        bool there = row < length;
        bias[half] =
            there ? ((const float *)p.saved)[at.head * p.length + row] * LOG2E
                  : INFINITY;
        if (there && lane % 4 == 0 && p.base && group == 0)
            p.base[at.head * p.length + row] = base[half];
    }
    if (!p.result[0])
        return;
    __syncthreads();
    if (GROUPS == 1) {
        load_tile(shared_address(memory[0]), k, p.stride[K][1], 0, length,
                  p.size);
        load_tile(shared_address(memory[1]), v, p.stride[V][1], 0, length,
                  p.size);
        end_loads();
    }
    for (int tile = group; tile <= at.tile; tile += GROUPS) {
        const int which = GROUPS == 1 ? tile % 2 * 2 : group * 2;
        const int next = GROUPS == 1 ? tile + 1 : tile;
        const int into = GROUPS == 1 ? 2 - which : which;
        const uint32_t k_tile = shared_address(memory[which]);
        const uint32_t v_tile = shared_address(memory[which + 1]);
        if (next <= at.tile) {
            load_tile(shared_address(memory[into]), k, p.stride[K][1],
                      next * TILE, length, p.size);
            load_tile(shared_address(memory[into + 1]), v, p.stride[V][1],
                      next * TILE, length, p.size);
            end_loads();
        }
        if (GROUPS == 1 && next <= at.tile)
            wait_loads<1>();
        else
            wait_loads<0>();
        await_group<GROUPS>();
#pragma unroll
        for (int n = 0; n < TILE / 16; n++) {
            float score[2][4] = {}, slope[2][4] = {};
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                four right = right_of(k_tile, n * 16, s);
                multiply(score[0], q[s], right.at[0], right.at[1]);
                multiply(score[1], q[s], right.at[2], right.at[3]);
                right = right_of(v_tile, n * 16, s);
                multiply(slope[0], dy[s], right.at[0], right.at[1]);
                multiply(slope[1], dy[s], right.at[2], right.at[3]);
            }
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int row = warp * 16 + lane / 4 + i / 2 * 8;
                    int column = n * 16 + m * 8 + lane % 4 * 2 + i % 2;
                    bool hidden = tile == at.tile && column > row;
                    float weight = power(score[m][i] * scale - bias[i / 2]);
                    slope[m][i] = hidden
                                      ? 0
                                      : weight * (slope[m][i] - base[i / 2]) *
                                            (float)p.scale;
                }
            }
            four left = as_left(slope);
#pragma unroll
            for (int c = 0; c < SIZE / 16; c++) {
                four right = right_turned(k_tile, n * 16, c);
                multiply(sum[2 * c], left, right.at[0], right.at[1]);
                multiply(sum[2 * c + 1], left, right.at[2], right.at[3]);
            }
        }
        await_group<GROUPS>();
    }
    add_groups<GROUPS>(shared, sum);
    if (group == 0)
        store_rows(p, R0, p.result[0], at, first + warp * 16, sum);
}

/* dy . out of a row; two threads for each. */
__device__ __forceinline__ float base_of(const attention_params &p,
                                         const place_of &at, int row)
{
    const uint4 *dy = (const uint4 *)(head_of(p, DY, p.dy, at) +
                                      row * p.stride[DY][1]);
    const uint4 *out = (const uint4 *)(head_of(p, OUT, p.out, at) +
                                       row * p.stride[OUT][1]);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < SIZE / 16; i++) {
        int piece = 2 * i + (int)threadIdx.x % 2;
        if (piece * 8 >= p.size || row >= p.length)
            continue;
        const uint4 a = dy[piece], b = out[piece];
        sum += dot_pairs(a.x, b.x) + dot_pairs(a.y, b.y) +
               dot_pairs(a.z, b.z) + dot_pairs(a.w, b.w);
    }
    return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
}

/* OWN: dy . out is computed here; else by_query has done so before. */
template <bool OWN>
__device__ __forceinline__ void load_beside(const attention_params &p,
                                            const place_of &at, int first,
                                            beside *out)
{
    int i = threadIdx.x % THREADS / 2, row = first + i;
    bool there = row < p.length;
    float base = OWN     ? base_of(p, at, row)
                 : there ? p.base[at.head * p.length + row]
                         : 0;
    if (threadIdx.x % 2)
        return;
    out->bias[i] =
        there ? ((const float *)p.saved)[at.head * p.length + row] * LOG2E
              : INFINITY;
    out->base[i] = base;
}

/* dk and dv of a tile of keys. */
template <int GROUPS, bool OWN>
__device__ __forceinline__ void by_key(const attention_params &p, int64_t block,
                                       shared_tiles &shared)
{
    static_assert(THREADS == 2 * TILE, "two threads for each row of a tile");
    char(*memory)[TILE_BYTES] = shared.tiles;
    beside *besides = shared.besides;
    const place_of at = find_place(p, block, false);
    const int group = threadIdx.x / THREADS;
    const int warp = threadIdx.x % THREADS / 32, lane = threadIdx.x % 32;
    const int length = (int)p.length, first = at.tile * TILE;
    const int tiles = (length + TILE - 1) / TILE;
    const __nv_bfloat16 *q = head_of(p, Q, p.q, at),
                        *dy = head_of(p, DY, p.dy, at);
    const float scale = (float)p.scale * LOG2E;
    float dk[SIZE / 8][4] = {}, dv[SIZE / 8][4] = {};
    four k[STEPS], v[STEPS];

    if (group == 0) {
        load_tile(shared_address(memory[0]), head_of(p, K, p.k, at),
                  p.stride[K][1], first, length, p.size);
        load_tile(shared_address(memory[1]), head_of(p, V, p.v, at),
                  p.stride[V][1], first, length, p.size);
    }
    end_loads();
    wait_loads<0>();
    __syncthreads();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        k[s] = left_of(shared_address(memory[0]), warp * 16, s);
        v[s] = left_of(shared_address(memory[1]), warp * 16, s);
    }
    __syncthreads();
    if (GROUPS == 1) {
        load_tile(shared_address(memory[0]), q, p.stride[Q][1], first, length,
                  p.size);
        load_tile(shared_address(memory[1]), dy, p.stride[DY][1], first, length,
                  p.size);
        end_loads();
        load_beside<OWN>(p, at, first, &besides[0]);
    }
    for (int tile = at.tile + group; tile < tiles; tile += GROUPS) {
        const int turn = GROUPS == 1 ? (tile - at.tile) % 2 : group;
        const int next = GROUPS == 1 ? tile + 1 : tile;
        const int into = GROUPS == 1 ? 1 - turn : turn;
        const uint32_t q_tile = shared_address(memory[2 * turn]);
        const uint32_t dy_tile = shared_address(memory[2 * turn + 1]);
        const beside &own = besides[turn];
        if (next < tiles) {
            load_tile(shared_address(memory[2 * into]), q, p.stride[Q][1],
                      next * TILE, length, p.size);
            load_tile(shared_address(memory[2 * into + 1]), dy,
                      p.stride[DY][1], next * TILE, length, p.size);
            end_loads();
            load_beside<OWN>(p, at, next * TILE, &besides[into]);
        }
        if (GROUPS == 1 && next < tiles)
            wait_loads<1>();
        else
            wait_loads<0>();
        await_group<GROUPS>();
#pragma unroll
        for (int n = 0; n < TILE / 16; n++) {
            float score[2][4] = {}, slope[2][4] = {};
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                four right = right_of(q_tile, n * 16, s);
                multiply(score[0], k[s], right.at[0], right.at[1]);
                multiply(score[1], k[s], right.at[2], right.at[3]);
                right = right_of(dy_tile, n * 16, s);
                multiply(slope[0], v[s], right.at[0], right.at[1]);
                multiply(slope[1], v[s], right.at[2], right.at[3]);
            }
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int row = warp * 16 + lane / 4 + i / 2 * 8;
                    int query = n * 16 + m * 8 + lane % 4 * 2 + i % 2;
                    bool hidden = tile == at.tile && row > query;
                    float weight =
                        hidden ? 0
                               : power(score[m][i] * scale - own.bias[query]);
                    score[m][i] = weight;
                    slope[m][i] = weight * (slope[m][i] - own.base[query]) *
                                  (float)p.scale;
                }
            }
            four weights = as_left(score), slopes = as_left(slope);
#pragma unroll
            for (int c = 0; c < SIZE / 16; c++) {
                four right = right_turned(dy_tile, n * 16, c);
                multiply(dv[2 * c], weights, right.at[0], right.at[1]);
                multiply(dv[2 * c + 1], weights, right.at[2], right.at[3]);
                right = right_turned(q_tile, n * 16, c);
                multiply(dk[2 * c], slopes, right.at[0], right.at[1]);
                multiply(dk[2 * c + 1], slopes, right.at[2], right.at[3]);
            }
        }
        await_group<GROUPS>();
    }
    add_groups<GROUPS>(shared, dk);
    add_groups<GROUPS>(shared, dv);
    if (p.result[1] && group == 0)
        store_rows(p, R1, p.result[1], at, first + warp * 16, dk);
    if (p.result[2] && group == 0)
        store_rows(p, R2, p.result[2], at, first + warp * 16, dv);
}

KERNEL_OF(THREADS, flash_query, attention_params)
{
    __shared__ shared_tiles shared;
    by_query<1>(p, blockIdx.x, shared);
}

KERNEL_OF(THREADS, flash_key, attention_params)
{
    __shared__ shared_tiles shared;
    by_key<1, false>(p, blockIdx.x, shared);
}

/* Both at once, where there are too few tiles to fill the GPU: keys by the
 * second half of the blocks, which have two groups each. */
KERNEL_OF(2 * THREADS, flash_both, attention_params)
{
    __shared__ shared_tiles shared;
    int64_t half = gridDim.x / 2, block = blockIdx.x;
    if (block < half)
        by_query<2>(p, block, shared);
    else
        by_key<2, true>(p, block - half, shared);
}

/* SPDX-License-Identifier: MIT
 *
 * Counter-based random bits: what dropout zeroes is a function of the seed, the
 * op and the position alone, so backward and every backend agree with
 * forward. */
#ifndef SL_TENSOR_RANDOM_H
#define SL_TENSOR_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* CUDA's compiler also reads this. */
#ifdef __CUDACC__
#define SL__EVERYWHERE static __host__ __device__ inline
#else
#define SL__EVERYWHERE static inline
#endif

/* The finaliser of splitmix64. */
SL__EVERYWHERE uint64_t sl__mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Where the counter of one dropout in one run starts. */
SL__EVERYWHERE uint64_t sl__dropout_key(uint64_t seed, int64_t op)
{
    return sl__mix(sl__mix(seed + 0x9e3779b97f4a7c15u) + (uint64_t)op);
}

/* The fraction kept, of 2^32, to compare with a position's random bits. */
SL__EVERYWHERE uint64_t sl__dropout_threshold(double rate)
{
    return (uint64_t)((1 - rate) * 4294967296.0);
}

SL__EVERYWHERE bool sl__dropout_keeps(uint64_t key, uint64_t place,
                                     uint64_t threshold)
{
    return sl__mix(key + place * 0x9e3779b97f4a7c15u) >> 32 < threshold;
}

#undef SL__EVERYWHERE
#endif

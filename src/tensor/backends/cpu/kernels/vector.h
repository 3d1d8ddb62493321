/* SPDX-License-Identifier: MIT
 *
 * Vectors of floats through the compilers' vector extension, as wide as the
 * instruction set that a file is compiled for: one source serves all. Memory
 * has elements of f32 or, where ELEMENT_IS_BF16 is defined, of bf16; arithmetic
 * is in f32. */
#ifndef SL_TENSOR_CPU_VECTOR_H
#define SL_TENSOR_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16, TILE_ROWS = 6, TILE_VECTORS = 4 };
#elif defined(__AVX2__)
enum { LANES = 8, TILE_ROWS = 6, TILE_VECTORS = 2 };
#else
enum { LANES = 4, TILE_ROWS = 4, TILE_VECTORS = 2 };
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));
/* With the alignment of an element. */
typedef float vf_loose
    __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t vh_loose
    __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

typedef struct bf16 {
    uint16_t bits;
} bf16;
#ifdef ELEMENT_IS_BF16
typedef bf16 element;
#else
typedef float element;
#endif

#define INLINE static inline __attribute__((always_inline, unused))

/* bf16 is the upper half of an f32. */
INLINE vf widen(vh halves)
{
    return (vf)(__builtin_convertvector(halves, vu) << 16);
}

/* To the nearest, ties to even; NaN stays NaN. */
INLINE vh narrow(vf v)
{
#ifdef __AVX512BF16__
    return (vh)_mm512_cvtneps_pbh((__m512)v);
#else
    vu bits = (vu)v, is_nan = (vu)(v != v);
    vu rounded = bits + 0x7fff + (bits >> 16 & 1);
    rounded = (is_nan & (bits | 0x400000)) | (~is_nan & rounded);
    return __builtin_convertvector(rounded >> 16, vh);
#endif
}

/* load, store and the like take pointers to either type of elements. */
#define BY_TYPE(p, name)                                                       \
    _Generic((p),                                                              \
        bf16 *: name##_bf16,                                                   \
        const bf16 *: name##_bf16,                                             \
        float *: name##_f32,                                                   \
        const float *: name##_f32)
#define load(p)                 BY_TYPE(p, load)(p)
#define store(p, v)             BY_TYPE(p, store)(p, v)
#define load_part(p, count)     BY_TYPE(p, load_part)(p, count)
#define store_part(p, v, count) BY_TYPE(p, store_part)(p, v, count)
#define get(p)                  BY_TYPE(p, get)(p)
#define put(p, x)               BY_TYPE(p, put)(p, x)

INLINE vf load_f32(const float *p)
{
    return *(const vf_loose *)p;
}

INLINE vf load_bf16(const bf16 *p)
{
    return widen(*(const vh_loose *)p);
}

INLINE void store_f32(float *p, vf v)
{
    *(vf_loose *)p = v;
}

INLINE void store_bf16(bf16 *p, vf v)
{
    *(vh_loose *)p = narrow(v);
}

/* One number. */
INLINE float get_f32(const float *p)
{
    return *p;
}

INLINE float get_bf16(const bf16 *p)
{
    uint32_t bits = (uint32_t)p->bits << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE void put_f32(float *p, float x)
{
    *p = x;
}

INLINE void put_bf16(bf16 *p, float x)
{
    p->bits = narrow(x - (vf){0})[0];
}

/* Stores to an aligned address that is not read soon, past the caches where the
 * instruction set can. Other threads see it after stream_end(). */
INLINE void stream(float *p, vf v)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX2__)
    _mm256_stream_ps(p, (__m256)v);
#else
    store_f32(p, v);
#endif
}

INLINE void stream_end(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

/* The first `count` lanes; the others are 0. */
INLINE vf load_part_f32(const float *p, int64_t count)
{
    vf v = {0};
    memcpy(&v, p, sizeof *p * (size_t)count);
    return v;
}

INLINE vf load_part_bf16(const bf16 *p, int64_t count)
{
    vh halves = {0};
    memcpy(&halves, p, sizeof *p * (size_t)count);
    return widen(halves);
}

INLINE void store_part_f32(float *p, vf v, int64_t count)
{
    memcpy(p, &v, sizeof *p * (size_t)count);
}

INLINE void store_part_bf16(bf16 *p, vf v, int64_t count)
{
    vh halves = narrow(v);
    memcpy(p, &halves, sizeof *p * (size_t)count);
}

INLINE vf splat(float x)
{
    return x - (vf){0};
}

INLINE vf choose(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

INLINE vf larger(vf a, vf b)
{
    return choose(a > b, a, b);
}

INLINE float sum_lanes(vf v)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += v[i];
    return sum;
}

INLINE float max_lanes(vf v)
{
    float most = v[0];
    for (int i = 1; i < LANES; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

/* e^x to about 2 units in the last place: x = n ln 2 + r, a polynomial for e^r
 * on |r| <= ln 2 / 2 (its Taylor series to degree 7), and n into the exponent.
 * Below e^-87 the result stays at that; NaN stays NaN. */
INLINE vf exp_lanes(vf x)
{
    x = choose(x < splat(-87.0f), splat(-87.0f), x);
    x = choose(x > splat(88.7f), splat(88.7f), x);
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds */
    vf shifted = x * 1.44269504088896f + magic;
    vf n = shifted - magic;
    vf r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf y = splat(1.0f / 5040);
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    /* The low bits of `shifted` are n; 2^n in two halves, so that n = 128 does
     * not overflow before the product does. */
    vi power = (vi)shifted - (vi)splat(magic);
    vi half = power >> 1;
    return y * (vf)((half + 127) << 23) * (vf)((power - half + 127) << 23);
}

/* 1 - 2 / (e^2x + 1). */
INLINE vf tanh_lanes(vf x)
{
    x = choose(x > splat(20.0f), splat(20.0f), x);
    return 1.0f - 2.0f / (exp_lanes(2.0f * x) + 1.0f);
}

/* Abramowitz and Stegun, 7.1.26: within 1.5e-7. */
INLINE vf erf_lanes(vf x)
{
    vf a = choose(x < splat(0), -x, x);
    vf t = 1.0f / (1.0f + 0.3275911f * a);
    vf y = splat(1.061405429f);
    y = y * t - 1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t - 0.284496736f;
    y = y * t + 0.254829592f;
    y = 1.0f - y * t * exp_lanes(-a * a);
    return choose(x < splat(0), -y, y);
}

#endif

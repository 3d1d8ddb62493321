/* SPDX-License-Identifier: MIT
 *
 * Transposes, a square of vectors at a time. */

/* a0 b0 a1 b1 ..., of the lower and of the upper halves of two vectors. */
#if defined(__AVX512F__)
#define INTERLEAVE_LOW(a, b)                                                   \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, \
                            22, 7, 23)
#define INTERLEAVE_HIGH(a, b)                                                  \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,    \
                            29, 14, 30, 15, 31)
#elif defined(__AVX2__)
#define INTERLEAVE_LOW(a, b)                                                   \
    __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH(a, b)                                                  \
    __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define INTERLEAVE_LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

INLINE void set_vector(float *p, vf v, bool streamed)
{
    if (streamed)
        stream(p, v);
    else
        store(p, v);
}

/* LANES columns, each contiguous, by LANES rows: interleaving the halves of the
 * list log2(LANES) times transposes it. */
INLINE void transpose_square(const float *in, int64_t column, float *out,
                             int64_t width, bool streamed)
{
    vf now[LANES], next[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        now[i] = load(in + i * column);
#pragma GCC unroll 4
    for (int round = 1; round < LANES; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = INTERLEAVE_LOW(now[i], now[i + LANES / 2]);
            next[2 * i + 1] = INTERLEAVE_HIGH(now[i], now[i + LANES / 2]);
        }
        memcpy(now, next, sizeof now);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        set_vector(out + i * width, now[i], streamed);
}

/* out (columns, rows) = in (rows, columns), both with contiguous rows. */
static void transpose(const float *in, int64_t in_row, int64_t rows,
                      int64_t columns, float *out, int64_t out_row)
{
    int64_t r = 0, whole = columns / LANES * LANES;
    for (; r + LANES <= rows; r += LANES) {
        for (int64_t c = 0; c < whole; c += LANES)
            transpose_square(in + r * in_row + c, in_row, out + c * out_row + r,
                             out_row, false);
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = i < r ? whole : 0; c < columns; c++)
            out[c * out_row + i] = in[i * in_row + c];
    }
}

/* SPDX-License-Identifier: MIT
 *
 * Memory of this process, as the memory of a device. */
#include "base/device.h"
#include "base/dtype.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

static sl_status allocate(sl__stream *stream, int64_t bytes, void **out)
{
    size_t size = (size_t)(bytes ? sl__aligned(bytes) : SL__ALIGNMENT);
    bool large = size >= HUGE_PAGE_BYTES;
    void *memory;
    (void)stream;
    if (posix_memalign(&memory, large ? HUGE_PAGE_BYTES : SL__ALIGNMENT, size))
        return sl_fail(SL_ENOMEM, "out of memory: a pool of %lld bytes",
                       (long long)bytes);
    /* Weights and gradients are read end to end at every microbatch: larger
     * pages cost fewer TLB misses. The last page is left out unless it is full,
     * or the process would take more memory than was planned. */
    if (large)
        madvise(memory, size - size % HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    memset(memory, 0, size);
    *out = memory;
    return SL_OK;
}

static void release(sl__stream *stream, void *memory)
{
    (void)stream;
    free(memory);
}

static sl_status copy(sl__stream *stream, void *to, const void *from,
                      size_t bytes)
{
    (void)stream;
    memcpy(to, from, bytes);
    return SL_OK;
}

static sl_status clear(sl__stream *stream, void *memory, size_t bytes)
{
    (void)stream;
    memset(memory, 0, bytes);
    return SL_OK;
}

static sl_status discard(sl__stream *stream, void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)memory, end = start + bytes;
    uintptr_t first = (start + page - 1) / page * page,
              last = end / page * page;
    (void)stream;
    /* Whole pages are given back, and read as zeros when next touched. */
    if (first >= last || madvise((void *)first, last - first, MADV_DONTNEED))
        first = last = end;
    memset(memory, 0, first - start);
    memset((void *)last, 0, end - last);
    return SL_OK;
}

/* Defined once for both float types. */
#define FLOATS(T)                                                              \
    static void add_##T(T *to, const T *from, int64_t count)                   \
    {                                                                          \
        for (int64_t i = 0; i < count; i++)                                    \
            to[i] += from[i];                                                  \
    }                                                                          \
    static double squares_##T(const T *from, int64_t count)                    \
    {                                                                          \
        enum { LANES = 8 };                                                    \
        double sums[LANES] = {0};                                              \
        int64_t i = 0;                                                         \
        for (; i + LANES <= count; i += LANES) {                               \
            for (int k = 0; k < LANES; k++)                                    \
                sums[k] += (double)from[i + k] * (double)from[i + k];          \
        }                                                                      \
        for (; i < count; i++)                                                 \
            sums[0] += (double)from[i] * (double)from[i];                      \
        for (int k = 1; k < LANES; k++)                                        \
            sums[0] += sums[k];                                                \
        return sums[0];                                                        \
    }
FLOATS(float)
FLOATS(double)

static void add_bf16(uint16_t *to, const uint16_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = sl__to_bf16(sl__from_bf16(to[i]) + sl__from_bf16(from[i]));
}

static sl_status add(sl__stream *stream, sl_dtype dtype, void *to,
                     const void *from, int64_t count)
{
    (void)stream;
    switch (dtype) {
    case SL_F32: add_float(to, from, count); return SL_OK;
    case SL_F64: add_double(to, from, count); return SL_OK;
    case SL_BF16: add_bf16(to, from, count); return SL_OK;
    default: return sl__refuse_dtype("a sum", dtype);
    }
}

static sl_status square_sum(sl__stream *stream, sl_dtype dtype,
                            const void *from, int64_t count, void *to)
{
    double *sum = to;
    (void)stream;
    switch (dtype) {
    case SL_F32: *sum = squares_float(from, count); return SL_OK;
    case SL_F64: *sum = squares_double(from, count); return SL_OK;
    default: return sl__refuse_dtype("a sum of squares", dtype);
    }
}

static sl_status convert(sl__stream *stream, sl_dtype to_dtype, void *to,
                         sl_dtype from_dtype, const void *from, int64_t count)
{
    if (to_dtype == from_dtype)
        return copy(stream, to, from, (size_t)count * sl_dtype_bytes(to_dtype));
    return sl__convert_floats(to_dtype, to, from_dtype, from, count);
}

const sl__buffer_ops sl__host_buffers = {
    .kind = "host",
    .is_host = true,
    .allocate = allocate,
    .release = release,
    .write = copy,
    .read = copy,
    .copy = copy,
    .clear = clear,
    .discard = discard,
    .add = add,
    .convert = convert,
    .square_sum = square_sum,
};

sl__stream sl__host = {&sl__host_buffers};

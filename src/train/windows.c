/* SPDX-License-Identifier: MIT
 *
 * Decides which tokens a step reads: windows in an order that depends on the
 * seed alone. The order of an epoch is a keyed permutation, computed index by
 * index: nothing is stored, and a run can resume at any index. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "tensor/random.h"

#include <assert.h>

static int64_t stride_of(const sl_windows *windows)
{
    return windows->stride ? windows->stride : windows->length;
}

int64_t sl_windows_count(const sl_windows *windows)
{
    if (!windows || windows->length < 1 || stride_of(windows) < 1 ||
        windows->count <= windows->length)
        return 0;
    return (windows->count - windows->length - 1) / stride_of(windows) + 1;
}

/* Fails unless the range is valid; then no sum below overflows. */
static sl_status check_range(const sl_windows *windows)
{
    if (windows->first < 0 || windows->count < 0 ||
        windows->first > INT64_MAX - windows->count)
        return sl_fail(SL_EINVAL,
                       "windows over %lld tokens from place %lld on, expected "
                       "both from 0 up",
                       (long long)windows->count, (long long)windows->first);
    return SL_OK;
}

sl_status sl__check_windows(const sl_windows *windows)
{
    SL__TRY(check_range(windows));
    if (sl_windows_count(windows) == 0)
        return sl_fail(SL_EINVAL,
                       "%lld tokens are fewer than the %llu of a sequence and "
                       "its last label",
                       (long long)windows->count,
                       (unsigned long long)windows->length + 1);
    return SL_OK;
}

/* A permutation of 0..count-1: a Feistel network over the next power of four,
 * applied again until the number is in range (cycle walking). */
static int64_t permute(uint64_t key, int64_t count, int64_t place)
{
    enum { ROUNDS = 6 };
    int half = 1;
    while (half < 31 && ((int64_t)1 << (2 * half)) < count)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)place;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t mixed =
                sl__mix(key + right * 0x9e3779b97f4a7c15u + (uint64_t)round);
            uint64_t next = left ^ (mixed & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)count);
    return (int64_t)x;
}

static sl_status refuse_token(const sl_windows *windows, const char *what,
                              int64_t token, int64_t place)
{
    return sl_fail(SL_EINVAL,
                   "token %lld near place %lld of the %s is past the "
                   "vocabulary of %d",
                   (long long)token, (long long)place, what,
                   windows->vocabulary);
}

sl_status sl__check_vocabulary(const sl_windows *windows, const char *what)
{
    enum { PIECE = 1 << 11, MOST = 1 << 24 };
    int64_t count = windows->count < MOST ? windows->count : MOST;
    int64_t ids[PIECE];
    if (sl_tokens_are_bytes(windows->tokens) && windows->vocabulary >= 256)
        return SL_OK;
    SL__TRY(check_range(windows));
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t some = count - at < PIECE ? count - at : PIECE;
        int64_t place = windows->first + at;
        SL__TRY(sl_tokens_read(windows->tokens, place, some, ids));
        for (int64_t i = 0; i < some; i++) {
            if (ids[i] >= windows->vocabulary)
                return refuse_token(windows, what, ids[i], place + i);
        }
    }
    return SL_OK;
}

static sl_status read_one(const sl_windows *windows, int64_t number,
                          int64_t *ids, int64_t *labels)
{
    int64_t count = sl_windows_count(windows), length = windows->length;
    assert(count > 0 && number >= 0);
    int64_t epoch = number / count, place = number % count;
    if (windows->shuffled)
        place = permute(sl__mix(windows->seed) + sl__mix((uint64_t)epoch + 1),
                        count, place);
    int64_t first = windows->first + place * stride_of(windows);
    SL__TRY(sl_tokens_read(windows->tokens, first, length, ids));
    SL__TRY(sl_tokens_read(windows->tokens, first + 1, length, labels));
    for (int64_t i = 0; i < length; i++) {
        int64_t token = ids[i] < windows->vocabulary ? labels[i] : ids[i];
        if (token >= windows->vocabulary)
            return refuse_token(windows, "data", token, first + i);
    }
    return SL_OK;
}

sl_status sl_windows_read(const sl_windows *windows, int64_t number,
                          int64_t rows, int64_t *ids, int64_t *labels)
{
    SL__NEED(windows, windows->tokens);
    if (rows > 0)
        SL__NEED(ids, labels);
    SL__TRY(sl__check_windows(windows));
    if (number < 0 || rows < 0 || number > INT64_MAX - rows)
        return sl_fail(SL_EINVAL, "there is no window %lld", (long long)number);
    for (int64_t i = 0; i < rows; i++)
        SL__TRY(read_one(windows, number + i, ids + i * windows->length,
                         labels + i * windows->length));
    return SL_OK;
}

/* -------------------------------------------------------------- batches -- */

sl_status sl__create_batch(int64_t rows, int64_t length, sl__batch *out)
{
    static const char *const names[] = {"input_ids", "labels"};
    int64_t **const data[] = {&out->ids, &out->labels};
    int64_t tokens;
    *out = (sl__batch){0};
    if (__builtin_mul_overflow(rows, length, &tokens))
        return sl_fail(SL_ENOMEM,
                       "out of memory: %lld sequences of %lld tokens",
                       (long long)rows, (long long)length);
    for (int i = 0; i < 2; i++) {
        SL__TRY(sl__alloc((size_t)tokens, sizeof **data[i], data[i]));
        out->arrays[i] = (sl_array){SL_I64, 2, {rows, length}, *data[i]};
        out->arguments[i] =
            (sl_argument){names[i], SL_SPREAD_SPLIT, 0, &out->arrays[i], 1};
    }
    return SL_OK;
}

void sl__clear_batch(sl__batch *batch)
{
    free(batch->ids);
    free(batch->labels);
}

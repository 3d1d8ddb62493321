/* SPDX-License-Identifier: MIT
 *
 * A compact binary form of blocks and messages, for the page; decode.js reads
 * it.
 *
 * Numbers are LEB128. Times are in ticks, a power of two, since the timeline's
 * beginning. Of times and bytes only differences are written, each as its index
 * in a table of all differences that occur: a simulation has few.
 *
 *     times: count, then the values, each as the step from the one before
 *     bytes: the same, zigzag
 *     ranks, each:
 *       blocks: count, then each:
 *         kind | 32 critical | 64 gap | 128 holds other bytes than before
 *         stage, microbatch; of an overlap also kind, stage, microbatch
 *         gap: time, why, time until ready
 *         length: time
 *         other bytes: bytes while it runs, bytes after
 *       messages' ends: count, then each:
 *         kind | 32 critical, stage, microbatch, peer + 1, peer's stage + 1,
 *         edge + 1, bytes, time since the one before began, length
 *     messages: count, then each:
 *       forward, from rank, to rank, from stage, to stage, microbatch,
 *       edge + 1, bytes, time since the one before was sent, length */
#ifndef SL_VIEW_ENCODE_H
#define SL_VIEW_ENCODE_H

#include "view/timeline.h"

/* A timeline in this form. A time is (offset + ticks) * tick. */
typedef struct sl__packed {
    uint8_t *data; /* freed by the caller */
    size_t length;
    double tick;
    int64_t offset;
} sl__packed;

sl_status sl__timeline_encode(const sl_timeline *timeline, sl__packed *out);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Blocks and messages in few bytes, for the page; decode.js reads them.
 *
 * Numbers are LEB128. Times are ticks, a power of two, since the timeline's
 * beginning; of times and bytes only differences are written, each as its place
 * in a table of those that occur: a simulation has few.
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

/* A timeline in few bytes. A time is (offset + ticks) * tick. */
typedef struct sl__packed {
    uint8_t *data; /* to be freed */
    size_t length;
    double tick;
    int64_t offset;
} sl__packed;

sl_status sl__timeline_encode(const sl_timeline *timeline, sl__packed *out);

#endif

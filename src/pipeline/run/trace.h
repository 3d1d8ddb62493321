/* SPDX-License-Identifier: MIT
 *
 * A trace as rank 0 has it: what each rank did, how much memory it has, and
 * what was planned. */
#ifndef SL_PIPELINE_TRACE_H
#define SL_PIPELINE_TRACE_H

#include "pipeline/run/runtime.h"

typedef struct sl__rank_trace {
    sl_event *events; /* in the order in which they began */
    size_t count;
    double helped_s;
    sl_rank_bytes bytes;
} sl__rank_trace;

struct sl_trace {
    sl__rank_trace *ranks;
    int rank_count;
    sl_schedule *plan; /* what ran, of one replica */
};

#endif

/* SPDX-License-Identifier: MIT
 *
 * A trace as rank 0 has it: what each rank did, how much memory it has, and
 * what was planned. */
#ifndef SL_PIPELINE_TRACE_H
#define SL_PIPELINE_TRACE_H

#include "pipeline/runtime.h"

typedef struct sl__rank_trace {
    sl_event *events; /* in the order they ended in, messages where they were
                         waited for */
    size_t count;
    double lent_s;
    sl_rank_bytes bytes;
} sl__rank_trace;

struct sl_trace {
    sl__rank_trace *ranks;
    int rank_count;
    sl_schedule *plan; /* compute alone, of one replica */
};

#endif

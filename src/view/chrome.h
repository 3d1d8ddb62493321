/* SPDX-License-Identifier: MIT
 *
 * Traces for Chrome and Perfetto, shared by those of simulations (trace.c) and
 * of runs (run_trace.c). Each rank is a process. Its track 0 shows what the
 * rank does, the tracks after it its messages: as many tracks as messages were
 * in transit at once. */
#ifndef SL_VIEW_CHROME_H
#define SL_VIEW_CHROME_H

#include "base/writer.h"

#include <stdbool.h>

typedef struct sl__chrome {
    sl__writer writer;
    double *lanes; /* by message track of a rank: when it is free */
    size_t lane_count;
    size_t lane_capacity;
    bool some; /* an event was written */
} sl__chrome;

/* Begins an event, which the caller ends with "}". A track of -1 is left
 * out. */
void sl__chrome_open(sl__chrome *trace, const char *phase, int rank, int track);

/* The first begins a rank and names it and its main track; the second names the
 * message tracks that were used since. */
void sl__chrome_begin_rank(sl__chrome *trace, int rank, const char *main);
void sl__chrome_end_rank(sl__chrome *trace, int rank, const char *messages);

/* The first track, from 1, that is free for a message from `start` to `end`. */
int sl__chrome_lane(sl__chrome *trace, double start, double end);

#endif

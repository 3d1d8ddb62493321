/* SPDX-License-Identifier: MIT
 *
 * Traces for Chrome and Perfetto: what those of simulations (trace.c) and of
 * runs (run_trace.c) have in common. A process per rank; in it track 0 is what
 * the rank does, and the tracks after it are its messages, as many as were
 * under way at once. */
#ifndef SL_VIEW_CHROME_H
#define SL_VIEW_CHROME_H

#include "base/writer.h"

#include <stdbool.h>

typedef struct sl__chrome {
    sl__writer writer;
    double *lanes; /* by track of messages of a rank: when it is free */
    size_t lane_count;
    size_t lane_capacity;
    bool some; /* whether an event was written */
} sl__chrome;

/* Opens an event, to be closed with "}"; a track of -1 is none. */
void sl__chrome_open(sl__chrome *trace, const char *phase, int rank, int track);

/* Names a rank, and its tracks: `main` first, then, of the messages since,
 * `messages`. */
void sl__chrome_begin_rank(sl__chrome *trace, int rank, const char *main);
void sl__chrome_end_rank(sl__chrome *trace, int rank, const char *messages);

/* The track, from 1, on which a message fits after those before it. */
int sl__chrome_lane(sl__chrome *trace, double start, double end);

#endif

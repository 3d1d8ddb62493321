/* SPDX-License-Identifier: MIT
 *
 * The events of a run, for its timeline, from memory (measured.c) or from a
 * file (read_trace.c). */
#ifndef SL_VIEW_MEASURED_H
#define SL_VIEW_MEASURED_H

#include "view/timeline.h"

/* The events of one rank, and the planned bytes of its microbatches in
 * flight. */
typedef struct sl__rank_events {
    const sl_event *events;
    size_t count;
    int64_t slabs; /* -1 where unknown */
} sl__rank_events;

/* Refuses impossible events: times that decrease, peers that do not exist, a
 * rank that does two things at once. */
sl_status sl__timeline_from_events(const char *title,
                                   const sl__rank_events *ranks, int count,
                                   sl_timeline **out);

#endif

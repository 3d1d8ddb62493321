/* SPDX-License-Identifier: MIT
 *
 * Pictures of schedules and of runs.
 *
 *     FILE *file = fopen("zbv.json", "w");
 *     sl_view_write_trace(schedule, simulation, sl_write_stdio, file);
 *     fclose(file);
 *
 * Open the file in Perfetto or chrome://tracing. Functions here read what they
 * are given and keep nothing; any thread may call them. */
#ifndef SLUICE_VIEW_H
#define SLUICE_VIEW_H

#include "sluice/pipeline.h"
#include "sluice/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a Chrome/Perfetto trace of a simulation of `schedule`: per rank one
 * track of compute and one of communication, an arrow from each send to its
 * receive, and a counter of activation bytes. One unit of simulated time is
 * shown as one millisecond. */
SL_API sl_status sl_view_write_trace(const sl_schedule *schedule,
                                     const sl_simulation *simulation,
                                     sl_write_fn write, void *context);

/* Writes a Chrome/Perfetto trace of a measured run: per rank one track of what
 * it did, tracks of messages, and an arrow from each send to its receive; under
 * "sluice" a summary, planned and measured. */
SL_API sl_status sl_view_write_run(const sl_trace *run, sl_write_fn write,
                                   void *context);

#ifdef __cplusplus
}
#endif
#endif

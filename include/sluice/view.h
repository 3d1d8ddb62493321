/* SPDX-License-Identifier: MIT
 *
 * Pictures of schedules and of runs.
 *
 *     sl_timeline *timeline;
 *     FILE *file = fopen("zbv.html", "w");
 *     sl_timeline_simulated("ZB-V", schedule, NULL, simulation, &timeline);
 *     sl_view_write_html((const sl_timeline *[]){timeline}, 1, sl_write_stdio,
 *                        file);
 *     sl_timeline_destroy(timeline);
 *     fclose(file);
 *
 * The page opens in any browser. Traces open in Perfetto or chrome://tracing.
 * Functions here read what they are given and keep nothing; any thread may call
 * them. */
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

/* ------------------------------------------------------------- timelines -- */

/* What every rank did and when, in a simulation or in a run. It does not refer
 * to what it was made from. The title is any text. */
typedef struct sl_timeline sl_timeline;

/* The timeline of a simulation of `schedule` with `costs`; NULL is
 * SL_COSTS_INIT. */
SL_API sl_status sl_timeline_simulated(const char *title,
                                       const sl_schedule *schedule,
                                       const sl_costs *costs,
                                       const sl_simulation *simulation,
                                       sl_timeline **out);

/* The timeline of a measured run. */
SL_API sl_status sl_timeline_measured(const char *title, const sl_trace *run,
                                      sl_timeline **out);

/* The timeline of a run, from the text that sl_view_write_run wrote. SL_EPARSE
 * for other text, SL_EINVAL for a run that is impossible. */
SL_API sl_status sl_timeline_read(const char *title, const char *text,
                                  size_t length, sl_timeline **out);

/* The plan of a run: a simulation of its order with the mean times of its
 * stages, in which messages take no time. */
SL_API sl_status sl_timeline_planned(const char *title, const sl_timeline *run,
                                     sl_timeline **out);

/* Those means in seconds, to be cleared, for a schedule with as many stages as
 * the run, or a multiple or divisor of that; SL_EINVAL for others. */
SL_API sl_status sl_timeline_costs(const sl_timeline *run, int stages,
                                   sl_costs *out);

/* Declares that a simulation's costs were seconds and bytes. Otherwise times
 * are shown in units, those of the costs. */
SL_API void sl_timeline_set_seconds(sl_timeline *timeline);

/* Declares that the activation bytes of a simulation count microbatches, of so
 * many bytes each; 0: they are bytes. By default 1 is a microbatch where every
 * stage has 1, as in SL_COSTS_INIT. */
SL_API void sl_timeline_set_microbatch_bytes(sl_timeline *timeline,
                                             int64_t bytes);

SL_API void sl_timeline_destroy(sl_timeline *timeline);

typedef struct sl_timeline_summary {
    int ranks;
    int stages;
    int microbatches;
    size_t blocks; /* actions that are shown, sends and receives too */
    size_t messages;
    double makespan;
    double bubble;
} sl_timeline_summary;
SL_API sl_timeline_summary sl_timeline_summarize(const sl_timeline *timeline);

/* -------------------------------------------------------------- pictures -- */

/* How many timelines a page or picture may compare. */
#define SL_VIEW_MAX_TIMELINES 4

/* One self-contained page: to zoom into, to search, to compare. */
SL_API sl_status sl_view_write_html(const sl_timeline *const *timelines,
                                    size_t count, sl_write_fn write,
                                    void *context);

/* The losses of a step of training: means over tokens, in nats. */
typedef struct sl_view_point {
    int64_t step;
    double loss;       /* of its batch */
    double validation; /* NaN where it was not measured */
} sl_view_point;

/* The page of a training run: timelines as above, and a curve of the losses,
 * from points in order of their steps; where there are very many, the curve has
 * means of neighbours. */
SL_API sl_status sl_view_write_report(const sl_timeline *const *timelines,
                                      size_t count, const sl_view_point *points,
                                      size_t point_count, sl_write_fn write,
                                      void *context);

typedef struct sl_picture_options {
    int width;   /* of the whole picture, in pixels */
    bool beside; /* side by side, not one above the other */
    bool dark;
    bool memory; /* a curve under each rank */
} sl_picture_options;
#define SL_PICTURE_OPTIONS_INIT                                                \
    {                                                                          \
        1200, false, false, false                                              \
    }

/* A picture for papers, in which text stays text; `options` may be NULL. */
SL_API sl_status sl_view_write_svg(const sl_timeline *const *timelines,
                                   size_t count,
                                   const sl_picture_options *options,
                                   sl_write_fn write, void *context);

/* The same as PNG, with two pixels to each of the width. SL_EINVAL where it
 * would be larger than images can be, or Sluice was built without cairo. */
SL_API sl_status sl_view_write_png(const sl_timeline *const *timelines,
                                   size_t count,
                                   const sl_picture_options *options,
                                   sl_write_fn write, void *context);

#ifdef __cplusplus
}
#endif
#endif

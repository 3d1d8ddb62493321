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
 * Functions here keep no reference to their arguments, and any thread may call
 * them. */
#ifndef SLUICE_VIEW_H
#define SLUICE_VIEW_H

#include "sluice/pipeline.h"
#include "sluice/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a Chrome/Perfetto trace of a simulation of `schedule`. Each rank has
 * tracks of compute and communication, with an arrow from each send to its
 * receive, and a counter of activation bytes. One unit of simulated time is
 * shown as one millisecond. */
SL_API sl_status sl_view_write_trace(const sl_schedule *schedule,
                                     const sl_simulation *simulation,
                                     sl_write_fn write, void *context);

/* Writes a Chrome/Perfetto trace of a measured run. Each rank has a track of
 * what it did and tracks of messages, with an arrow from each send to its
 * receive. The key "sluice" has a summary, planned and measured. */
SL_API sl_status sl_view_write_run(const sl_trace *run, sl_write_fn write,
                                   void *context);

/* ------------------------------------------------------------- timelines -- */

/* What every rank did and when, in a simulation or in a run. It keeps no
 * reference to what it was made from. Titles may be any text. */
typedef struct sl_timeline sl_timeline;

/* Makes the timeline of a simulation of `schedule` with `costs`; NULL stands
 * for SL_COSTS_INIT. */
SL_API sl_status sl_timeline_simulated(const char *title,
                                       const sl_schedule *schedule,
                                       const sl_costs *costs,
                                       const sl_simulation *simulation,
                                       sl_timeline **out);

/* Makes the timeline of a measured run. */
SL_API sl_status sl_timeline_measured(const char *title, const sl_trace *run,
                                      sl_timeline **out);

/* Makes the timeline of a run from the text that sl_view_write_run wrote. Fails
 * with SL_EPARSE for other text, and with SL_EINVAL for an impossible run. */
SL_API sl_status sl_timeline_read(const char *title, const char *text,
                                  size_t length, sl_timeline **out);

/* Makes the plan of a run: the timeline of a simulation of its order of
 * actions, with the mean measured times of its stages, and messages that take
 * no time. */
SL_API sl_status sl_timeline_planned(const char *title, const sl_timeline *run,
                                     sl_timeline **out);

/* Returns the mean measured times of a run, in seconds, as costs for a schedule
 * of `stages`; the caller clears them. Fails with SL_EINVAL unless `stages` is
 * the run's number of stages, or a multiple or divisor of it. */
SL_API sl_status sl_timeline_costs(const sl_timeline *run, int stages,
                                   sl_costs *out);

/* Declares that a simulation's costs were seconds and bytes. Otherwise times
 * are shown in units of the costs. */
SL_API void sl_timeline_set_seconds(sl_timeline *timeline);

/* Declares that a simulation's activation bytes stand for microbatches, and how
 * many bytes stand for one; 0: they are bytes. By default, they stand for
 * microbatches if every stage has 1 activation byte, as in SL_COSTS_INIT. */
SL_API void sl_timeline_set_microbatch_bytes(sl_timeline *timeline,
                                             int64_t bytes);

SL_API void sl_timeline_destroy(sl_timeline *timeline);

typedef struct sl_timeline_summary {
    int ranks;
    int stages;
    int microbatches;
    size_t blocks; /* actions shown, including sends and receives */
    size_t messages;
    double makespan;
    double bubble;
} sl_timeline_summary;
SL_API sl_timeline_summary sl_timeline_summarize(const sl_timeline *timeline);

/* -------------------------------------------------------------- pictures -- */

/* How many timelines a page or picture may show. */
#define SL_VIEW_MAX_TIMELINES 4

/* Writes one self-contained page, in which readers can zoom and search. */
SL_API sl_status sl_view_write_html(const sl_timeline *const *timelines,
                                    size_t count, sl_write_fn write,
                                    void *context);

/* The losses of a training step: means over tokens, in nats. */
typedef struct sl_view_point {
    int64_t step;
    double loss;       /* of its batch */
    double validation; /* NaN if it was not measured */
} sl_view_point;

/* Writes the page of a training run: timelines as above, and a curve of the
 * losses. Points are in order of their steps; if there are many, the curve
 * shows means of neighbouring points. */
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

/* Writes a picture for papers, in which text stays text; `options` may be NULL.
 */
SL_API sl_status sl_view_write_svg(const sl_timeline *const *timelines,
                                   size_t count,
                                   const sl_picture_options *options,
                                   sl_write_fn write, void *context);

/* Writes the same as PNG, with two pixels for each pixel of `width`. Fails with
 * SL_EINVAL if the image would be too large, or if Sluice was built without
 * cairo. */
SL_API sl_status sl_view_write_png(const sl_timeline *const *timelines,
                                   size_t count,
                                   const sl_picture_options *options,
                                   sl_write_fn write, void *context);

#ifdef __cplusplus
}
#endif
#endif

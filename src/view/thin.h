/* SPDX-License-Identifier: MIT
 *
 * Blocks too thin to be seen one by one. Side by side their colours would mix
 * to one that no kind has, so where kinds alternate each gets a part of the
 * row's height, by its share of the time within a few pixels. draw.js does the
 * same on the page. */
#ifndef SL_VIEW_THIN_H
#define SL_VIEW_THIN_H

#include "view/palette.h"

/* So many pixels of a row are one window. */
#define SL__WINDOW 4

/* What covers a window, in pixels: thin blocks by their look, and others. */
typedef struct sl__window {
    double looks[SL__LOOKS];
    double thick;
} sl__window;

/* Of one row; without windows where no block is thin. */
typedef struct sl__thin {
    const sl__blocks *blocks;
    double begin; /* the time at pixel 0 */
    double scale; /* pixels of a unit of time */
    sl__window *windows;
    size_t count;
} sl__thin;

sl_status sl__thin_find(const sl__blocks *blocks, double begin, double scale,
                        double width, sl__thin *out);
void sl__thin_clear(sl__thin *thin);

/* Whether a block is thin, or one of few pixels beside a thin one. */
bool sl__is_thin(const sl__thin *thin, size_t block);

/* Where a look is in the window at a pixel, as parts of the row's height. False
 * where there is none of it, or it alone beside idle time. */
bool sl__thin_place(const sl__thin *thin, double x, sl__look look,
                    double *out_top, double *out_height);

#endif

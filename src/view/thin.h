/* SPDX-License-Identifier: MIT
 *
 * Blocks too thin to be seen one by one. If they were drawn side by side, their
 * colours would mix to one that no kind has. So where kinds alternate, each
 * gets a part of the row's height, in proportion to its time within a few
 * pixels. draw.js does the same on the page. */
#ifndef SL_VIEW_THIN_H
#define SL_VIEW_THIN_H

#include "view/palette.h"

/* The width of a window in a row, in pixels. */
#define SL__WINDOW 4

/* How many pixels of a window are covered: by thin blocks of each look, and by
 * others. */
typedef struct sl__window {
    double looks[SL__LOOKS];
    double thick;
} sl__window;

/* The windows of one row; none where no block is thin. */
typedef struct sl__thin {
    const sl__blocks *blocks;
    double begin; /* the time at pixel 0 */
    double scale; /* pixels per unit of time */
    sl__window *windows;
    size_t count;
} sl__thin;

sl_status sl__thin_find(const sl__blocks *blocks, double begin, double scale,
                        double width, sl__thin *out);
void sl__thin_clear(sl__thin *thin);

/* Whether a block is thin, or one of few pixels beside a thin one. */
bool sl__is_thin(const sl__thin *thin, size_t block);

/* Computes where a look is drawn in the window at a pixel, as fractions of the
 * row's height. False where the window has no thin block of this look, or this
 * look alone and idle time. */
bool sl__thin_place(const sl__thin *thin, double x, sl__look look,
                    double *out_top, double *out_height);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The surface that picture.c draws on: a few shapes, which svg.c writes as text
 * and png.c paints. */
#ifndef SL_VIEW_CANVAS_H
#define SL_VIEW_CANVAS_H

#include "view/palette.h"

typedef enum sl__anchor { SL__LEFT, SL__MIDDLE, SL__RIGHT } sl__anchor;

typedef struct sl__box {
    double x;
    double y;
    double width;
    double height;
} sl__box;

typedef struct sl__canvas sl__canvas;

typedef struct sl__canvas_ops {
    /* `class` and `name`, which may be NULL, let programs find the shape. */
    void (*box)(sl__canvas *canvas, const sl__box *box, sl__colour colour,
                const char *class, const char *name);
    /* UTF-8 without control characters; the baseline begins at x, y. */
    void (*text)(sl__canvas *canvas, double x, double y, double size, bool bold,
                 sl__anchor anchor, sl__colour colour, const char *text);
    void (*line)(sl__canvas *canvas, double x0, double y0, double x1, double y1,
                 sl__colour colour, bool dashed);
    /* The area under a step function: from xs[i] to xs[i + 1] it is ys[i] high;
     * there are `count` + 1 xs. */
    void (*area)(sl__canvas *canvas, double bottom, const double *xs,
                 const double *ys, size_t count, sl__colour colour);
} sl__canvas_ops;

struct sl__canvas {
    const sl__canvas_ops *ops;
};

/* An upper bound on the width of text in any of the fonts (text_width.c). */
double sl__text_width(const char *text, double size, bool bold);

/* Computes the size of the picture of these timelines. Fails with SL_EINVAL for
 * timelines or options that cannot be drawn. */
sl_status sl__picture_size(const sl_timeline *const *timelines, size_t count,
                           const sl_picture_options *options, double *out_width,
                           double *out_height);
sl_status sl__picture_draw(const sl_timeline *const *timelines, size_t count,
                           const sl_picture_options *options,
                           sl__canvas *canvas);

#endif

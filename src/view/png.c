/* SPDX-License-Identifier: MIT
 *
 * Pictures as PNG, painted by cairo, with two pixels per unit of the picture in
 * each direction. */
#include "view/canvas.h"

#include "base/arguments.h"

#ifdef SLUICE_HAS_CAIRO

#include "base/memory.h"

#include <cairo.h>

enum { FINER = 2, LARGEST = 32767 };

typedef struct png {
    sl__canvas canvas;
    cairo_t *cairo;
    sl_write_fn write;
    void *context;
    sl_status status; /* of writing */
} png;

static void set_colour(cairo_t *cairo, sl__colour colour)
{
    cairo_set_source_rgb(cairo, colour.red / 255.0, colour.green / 255.0,
                         colour.blue / 255.0);
}

static void put_box(sl__canvas *canvas, const sl__box *box, sl__colour colour,
                    const char *class, const char *name)
{
    cairo_t *cairo = ((png *)canvas)->cairo;
    (void)class;
    (void)name;
    set_colour(cairo, colour);
    cairo_rectangle(cairo, box->x, box->y, box->width, box->height);
    cairo_fill(cairo);
}

static void put_text(sl__canvas *canvas, double x, double y, double size,
                     bool bold, sl__anchor anchor, sl__colour colour,
                     const char *text)
{
    cairo_t *cairo = ((png *)canvas)->cairo;
    cairo_text_extents_t extents;
    cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD
                                : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, size);
    cairo_text_extents(cairo, text, &extents);
    static const double parts[] = {0, 0.5, 1};
    set_colour(cairo, colour);
    cairo_move_to(cairo, x - parts[anchor] * extents.x_advance, y);
    cairo_show_text(cairo, text);
}

static void put_line(sl__canvas *canvas, double x0, double y0, double x1,
                     double y1, sl__colour colour, bool dashed)
{
    cairo_t *cairo = ((png *)canvas)->cairo;
    static const double dashes[] = {3, 3};
    set_colour(cairo, colour);
    cairo_set_line_width(cairo, 1);
    cairo_set_dash(cairo, dashes, dashed ? 2 : 0, 0);
    cairo_move_to(cairo, x0, y0);
    cairo_line_to(cairo, x1, y1);
    cairo_stroke(cairo);
}

static void put_area(sl__canvas *canvas, double bottom, const double *xs,
                     const double *ys, size_t count, sl__colour colour)
{
    cairo_t *cairo = ((png *)canvas)->cairo;
    set_colour(cairo, colour);
    cairo_move_to(cairo, xs[0], bottom);
    for (size_t i = 0; i < count; i++) {
        cairo_line_to(cairo, xs[i], bottom - ys[i]);
        cairo_line_to(cairo, xs[i + 1], bottom - ys[i]);
    }
    cairo_line_to(cairo, xs[count], bottom);
    cairo_fill(cairo);
}

static const sl__canvas_ops ops = {put_box, put_text, put_line, put_area};

static cairo_status_t write_bytes(void *closure, const unsigned char *data,
                                  unsigned length)
{
    png *own = closure;
    own->status = own->write(own->context, (const char *)data, length);
    return own->status ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

static sl_status finish(png *own, cairo_surface_t *surface)
{
    cairo_status_t made = cairo_status(own->cairo);
    if (!made)
        made = cairo_surface_write_to_png_stream(surface, write_bytes, own);
    if (own->status)
        return own->status;
    if (made == CAIRO_STATUS_NO_MEMORY)
        return sl_fail(SL_ENOMEM, "the picture does not fit memory");
    if (made)
        return sl_fail(SL_EINVAL, "cairo does not paint it: %s",
                       cairo_status_to_string(made));
    return SL_OK;
}

sl_status sl_view_write_png(const sl_timeline *const *timelines, size_t count,
                            const sl_picture_options *options,
                            sl_write_fn write, void *context)
{
    SL__NEED(timelines, write);
    double width, height;
    png own = {.canvas = {&ops}, .write = write, .context = context};
    SL__TRY(sl__picture_size(timelines, count, options, &width, &height));
    if (width * FINER > LARGEST || height * FINER > LARGEST)
        return sl_fail(SL_EINVAL,
                       "a PNG is at most %d pixels wide and high, and this "
                       "would be %.0f by %.0f; an SVG may be larger",
                       LARGEST, width * FINER, height * FINER);
    cairo_surface_t *surface = cairo_image_surface_create(
        CAIRO_FORMAT_RGB24, (int)width * FINER, (int)height * FINER);
    own.cairo = cairo_create(surface);
    cairo_scale(own.cairo, FINER, FINER);
    sl_status status = sl__picture_draw(timelines, count, options, &own.canvas);
    if (!status)
        status = finish(&own, surface);
    cairo_destroy(own.cairo);
    cairo_surface_destroy(surface);
    return status;
}

#else

sl_status sl_view_write_png(const sl_timeline *const *timelines, size_t count,
                            const sl_picture_options *options,
                            sl_write_fn write, void *context)
{
    SL__NEED(timelines, write);
    (void)count;
    (void)options;
    (void)context;
    return sl_fail(SL_EINVAL, "this Sluice was built without cairo, which "
                              "paints PNG; an SVG needs none");
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * Pictures as SVG: shapes as shapes and text as text, so that papers can
 * restyle and search them. A block is a rect of class `block` whose data-action
 * is its action. */
#include "view/canvas.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/writer.h"
#include "view/markup.h"

#include <string.h>

typedef struct svg {
    sl__canvas canvas;
    sl__writer writer;
} svg;

static void put_colour(sl__writer *writer, const char *key, sl__colour colour)
{
    sl__printf(writer, " %s=\"#%02x%02x%02x\"", key, colour.red, colour.green,
               colour.blue);
}

static void put_box(sl__canvas *canvas, const sl__box *box, sl__colour colour,
                    const char *class, const char *name)
{
    sl__writer *writer = &((svg *)canvas)->writer;
    sl__printf(writer,
               "<rect x=\"%.3f\" y=\"%.1f\" width=\"%.3f\" height=\"%.1f\"",
               box->x, box->y, box->width, box->height);
    put_colour(writer, "fill", colour);
    if (class)
        sl__printf(writer, " class=\"%s\"", class);
    if (name) {
        sl__puts(writer, " data-action=\"");
        sl__put_markup(writer, name);
        sl__putc(writer, '"');
    }
    sl__puts(writer, "/>\n");
}

static void put_text(sl__canvas *canvas, double x, double y, double size,
                     bool bold, sl__anchor anchor, sl__colour colour,
                     const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    sl__writer *writer = &((svg *)canvas)->writer;
    sl__printf(writer, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.4g\"", x, y,
               size);
    if (anchor != SL__LEFT)
        sl__printf(writer, " text-anchor=\"%s\"", anchors[anchor]);
    if (bold)
        sl__puts(writer, " font-weight=\"bold\"");
    put_colour(writer, "fill", colour);
    sl__putc(writer, '>');
    sl__put_markup(writer, text);
    sl__puts(writer, "</text>\n");
}

static void put_line(sl__canvas *canvas, double x0, double y0, double x1,
                     double y1, sl__colour colour, bool dashed)
{
    sl__writer *writer = &((svg *)canvas)->writer;
    sl__printf(writer, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"",
               x0, y0, x1, y1);
    put_colour(writer, "stroke", colour);
    sl__puts(writer, dashed ? " stroke-dasharray=\"3 3\"/>\n" : "/>\n");
}

static void put_area(sl__canvas *canvas, double bottom, const double *xs,
                     const double *ys, size_t count, sl__colour colour)
{
    sl__writer *writer = &((svg *)canvas)->writer;
    sl__printf(writer, "<path d=\"M%.2f %.2f", xs[0], bottom);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || ys[i] != ys[i - 1])
            sl__printf(writer, "V%.2f", bottom - ys[i]);
        if (i + 1 == count || ys[i] != ys[i + 1])
            sl__printf(writer, "H%.2f", xs[i + 1]);
    }
    sl__printf(writer, "V%.2fZ\"", bottom);
    put_colour(writer, "fill", colour);
    sl__puts(writer, "/>\n");
}

static const sl__canvas_ops ops = {put_box, put_text, put_line, put_area};

sl_status sl_view_write_svg(const sl_timeline *const *timelines, size_t count,
                            const sl_picture_options *options,
                            sl_write_fn write, void *context)
{
    SL__NEED(timelines, write);
    double width, height;
    svg *own;
    SL__TRY(sl__picture_size(timelines, count, options, &width, &height));
    SL__TRY(sl__alloc(1, sizeof *own, &own));
    own->canvas.ops = &ops;
    sl__writer_start(&own->writer, write, context);
    sl__printf(&own->writer,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
               "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
               "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n",
               width, height, width, height);
    sl_status status =
        sl__picture_draw(timelines, count, options, &own->canvas);
    sl__puts(&own->writer, "</svg>\n");
    sl_status written = sl__writer_finish(&own->writer);
    free(own);
    return status ? status : written;
}

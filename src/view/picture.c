/* SPDX-License-Identifier: MIT
 *
 * A picture of timelines: ranks as rows, time across, on one scale; colours and
 * labels are the page's. */
#include "view/canvas.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"
#include "view/thin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GUTTER = 56, /* for the ranks' names */
    RIGHT = 14,
    HEAD = 42, /* for a title and the time axis */
    LANE = 24,
    COMM = 6,
    MEMORY = 14,
    BETWEEN = 4, /* space between rows, and between panels */
    LEGEND = 20, /* a line of the legend */
    LETTER = 11  /* the size of most text */
};

/* One timeline of the picture. */
typedef struct panel {
    const sl_timeline *timeline;
    double x;
    double y;
    double width;
    int comm;
    int memory;
} panel;

typedef struct picture {
    const sl_timeline *const *timelines;
    size_t count;
    const sl_picture_options *options;
    sl__canvas *canvas; /* NULL while only the size is computed */
    panel panels[SL_VIEW_MAX_TIMELINES];
    double height;
    double begin; /* of all panels */
    double end;
    double most_bytes;
    const sl_timeline *run; /* the run to compare with its plan, or NULL */
    const sl_timeline *plan;
    sl__lookup lookup; /* in `plan` */
} picture;

static const sl_picture_options usual = SL_PICTURE_OPTIONS_INIT;
static const sl__colour shorter = {0x7f, 0xe0, 0xff};
static const sl__colour curve = {0x9f, 0xb8, 0xcd};

static sl__colour grey(const picture *own, int light, int dark)
{
    uint8_t level = (uint8_t)(own->options->dark ? dark : light);
    return (sl__colour){level, level, level};
}

static sl__colour text_colour(const picture *own)
{
    return grey(own, 0x1b, 0xe6);
}

static sl__colour soft_colour(const picture *own)
{
    return grey(own, 0x55, 0xa5);
}

/* ---------------------------------------------------------------- layout -- */

static int row_height(const panel *one)
{
    return LANE + one->comm + one->memory + BETWEEN;
}

static bool has_comms(const sl_timeline *timeline)
{
    for (int r = 0; r < timeline->ranks; r++) {
        if (timeline->tracks[r].comms.count)
            return true;
    }
    return false;
}

static void lay_out(picture *own)
{
    size_t across = own->options->beside && own->count > 1 ? 2 : 1;
    double width = (double)own->options->width / (double)across, y = 0;
    for (size_t i = 0; i < own->count; i += across) {
        double tallest = 0;
        for (size_t k = i; k < i + across && k < own->count; k++) {
            panel *one = &own->panels[k];
            *one = (panel){.timeline = own->timelines[k],
                           .x = (double)(k - i) * width + GUTTER,
                           .y = y,
                           .width = width - GUTTER - RIGHT,
                           .comm = has_comms(own->timelines[k]) ? COMM : 0,
                           .memory = own->options->memory ? MEMORY : 0};
            tallest = fmax(tallest, HEAD + one->timeline->ranks *
                                               (double)row_height(one));
        }
        y += tallest + BETWEEN;
    }
    own->height = y;
}

static void span_all(picture *own)
{
    for (size_t i = 0; i < own->count; i++) {
        const sl_timeline *timeline = own->timelines[i];
        own->begin = fmin(own->begin, timeline->begin);
        own->end = fmax(own->end, timeline->end);
        for (int r = 0; r < timeline->ranks; r++) {
            const sl__track *track = &timeline->tracks[r];
            own->most_bytes = fmax(own->most_bytes, (double)track->peak_bytes);
            own->most_bytes =
                fmax(own->most_bytes, (double)track->planned_bytes);
        }
    }
    if (!(own->end > own->begin))
        own->end = own->begin + 1;
}

static double x_of(const picture *own, const panel *one, double time)
{
    return one->x + (time - own->begin) / (own->end - own->begin) * one->width;
}

/* ----------------------------------------------------------------- words -- */

/* Copies text for a picture: as UTF-8, without control characters and without
 * characters that XML does not allow. */
static void clean(const char *text, char *out, size_t size)
{
    size_t used = 0;
    while (*text && used + 5 < size) {
        size_t length = sl__utf8_length(text);
        unsigned char byte = (unsigned char)*text;
        bool no_character = strncmp(text, "\xef\xbf\xbe", 3) == 0 ||
                            strncmp(text, "\xef\xbf\xbf", 3) == 0;
        if (length == 0 || byte < 0x20 || byte == 0x7f || no_character) {
            out[used++] = '?';
            text += length ? length : 1;
            continue;
        }
        memcpy(out + used, text, length);
        used += length;
        text += length;
    }
    out[used] = '\0';
}

/* Three digits, or as many as are left of the point. */
static void print_short(double number, char text[32])
{
    double size = fabs(number);
    sl__format(text, 32, size >= 1e3 && size < 1e7 ? "%.0f" : "%.3g", number);
}

/* The unit (s, ms, ...) that fits a time. */
static const char *seconds_unit(double scale, double *out_size)
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "\xc2\xb5s"}, {1e-9, "ns"}};
    size_t unit = 0;
    while (unit < 3 && scale < 0.9995 * units[unit].size)
        unit++;
    *out_size = units[unit].size;
    return units[unit].name;
}

/* Prints a duration as the page does. */
static void print_time(const sl_timeline *timeline, double time, char text[48])
{
    char number[32];
    double size;
    if (timeline->seconds) {
        const char *name = seconds_unit(fabs(time), &size);
        print_short(time / size, number);
        sl__format(text, 48, "%s %s", number, name);
    } else {
        print_short(time, number);
        sl__format(text, 48, "%s unit%s", number,
                   strcmp(number, "1") == 0 ? "" : "s");
    }
}

/* Prints a time on the axis, where the unit of costs has no name. */
static void print_point(const sl_timeline *timeline, double time, double scale,
                        char text[48])
{
    double size;
    if (!timeline->seconds) {
        sl__format(text, 48, "%.6g", time);
        return;
    }
    const char *name = seconds_unit(scale, &size);
    sl__format(text, 48, "%.6g %s", time / size, name);
}

static void print_percent(double part, char text[32])
{
    double percent = 100 * part;
    if (percent < 0.005)
        sl__format(text, 32, percent < 1e-5 ? "0 %%" : "< 0.01 %%");
    else
        sl__format(text, 32, "%.3g %%", round(100 * percent) / 100);
}

/* Prints a title, cut short so that it fits with what follows it. */
static void print_head(const panel *one, char *text, size_t size)
{
    enum { LEAST = 8, SIZE = 13 };
    char title[400], time[48], part[32], rest[120];
    const sl_timeline *timeline = one->timeline;
    clean(timeline->title, title, sizeof title);
    print_time(timeline, timeline->makespan, time);
    print_percent(timeline->bubble, part);
    sl__format(rest, sizeof rest, ": makespan %s, bubble %s", time, part);
    for (int with_rest = 1; with_rest >= 0; with_rest--) {
        size_t length = strlen(title);
        bool cut = false;
        for (;;) {
            sl__format(text, size, "%.*s%s%s", (int)length, title,
                       cut ? "\xe2\x80\xa6" : "", with_rest ? rest : "");
            if (sl__text_width(text, SIZE, true) <= one->width + RIGHT)
                return;
            if (length <= LEAST)
                break;
            cut = true;
            do
                length--;
            while (length && ((unsigned char)title[length] & 0xc0) == 0x80);
        }
    }
}

/* 1, 2 or 5 times a power of ten. */
static double nice_step(double least)
{
    double power = pow(10, floor(log10(least)));
    static const double factors[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        if (factors[i] * power >= least * (1 - 1e-9))
            return factors[i] * power;
    }
    return 10 * power;
}

/* ---------------------------------------------------------------- shapes -- */

static void put_box(const picture *own, double x0, double x1, double y,
                    double height, sl__colour colour, const char *class,
                    const char *name)
{
    const sl__box box = {x0, y, fmax(0, x1 - x0), height};
    own->canvas->ops->box(own->canvas, &box, colour, class, name);
}

static void put_text(const picture *own, double x, double y, double size,
                     sl__anchor anchor, sl__colour colour, const char *text)
{
    own->canvas->ops->text(own->canvas, x, y, size, false, anchor, colour,
                           text);
}

static void draw_head(const picture *own, const panel *one)
{
    char text[560];
    const sl_timeline *timeline = one->timeline;
    print_head(one, text, sizeof text);
    own->canvas->ops->text(own->canvas, one->x, one->y + 16, 13, true, SL__LEFT,
                           text_colour(own), text);
    double span = own->end - own->begin;
    double step = nice_step(span / fmax(2, one->width / 90));
    double scale = fmax(fabs(own->begin), fabs(own->end));
    for (double n = ceil(own->begin / step); n * step <= own->end; n++) {
        double x = x_of(own, one, n * step);
        print_point(timeline, n * step, scale, text);
        put_text(own, x, one->y + HEAD - 10, LETTER - 1, SL__MIDDLE,
                 soft_colour(own), n == 0 ? "0" : text);
        own->canvas->ops->line(own->canvas, x, one->y + HEAD - 6, x,
                               one->y + HEAD - 1, soft_colour(own), false);
    }
    if (!timeline->seconds)
        put_text(own, one->x - 14, one->y + HEAD - 10, LETTER - 1, SL__RIGHT,
                 soft_colour(own), "units");
}

/* Draws the label that fits: the action, else its microbatch, else none. */
static void draw_label(const picture *own, const sl_action *part,
                       const sl__box *box, sl__colour colour)
{
    char text[SL_ACTION_TEXT_MAX];
    double size = fmin(LETTER, box->height - 2), room = box->width - 3;
    sl_action_print(part, text);
    if (sl__text_width(text, size, false) > room &&
        sl_action_kind_family(part->kind) == SL_FAMILY_COMPUTE)
        sl__format(text, sizeof text, "%d", (int)part->microbatch);
    if (size < 7 || sl__text_width(text, size, false) > room)
        return;
    static const sl__colour white = {255, 255, 255}, black = {16, 16, 16};
    put_text(own, box->x + box->width / 2,
             box->y + box->height / 2 + size * 0.36, size, SL__MIDDLE,
             sl__wants_white(colour) ? white : black, text);
}

/* ---------------------------------------------------------------- blocks -- */

/* Draws the shares of thin blocks in a row's height, beneath the blocks. */
static void draw_shares(const picture *own, const panel *one, double y,
                        const sl__thin *thin)
{
    for (size_t i = 0; i < thin->count; i++) {
        double x = (double)i * SL__WINDOW, top, height;
        for (int look = 0; look < SL__LOOKS; look++) {
            if (!sl__thin_place(thin, x, (sl__look)look, &top, &height))
                continue;
            put_box(own, one->x + x, one->x + fmin(x + SL__WINDOW, one->width),
                    y + top * LANE, height * LANE,
                    sl__look_colour((sl__look)look, 0), "share", NULL);
        }
    }
}

/* The box of a block, or of one of its halves. */
static sl__box box_of(const picture *own, const panel *one, size_t block,
                      double y, int half, int halves, sl__look look,
                      const sl__thin *thin)
{
    const sl__block *shown = &thin->blocks->data[block];
    double x0 = x_of(own, one, shown->start), x1 = x_of(own, one, shown->end);
    double gap = x1 - x0 > 3 ? 0.6 : 0, top = (double)half / halves;
    double height = 1.0 / halves;
    if (sl__is_thin(thin, block)) {
        gap = 0;
        sl__thin_place(thin, (x0 + x1) / 2 - one->x, look, &top, &height);
    }
    return (sl__box){x0, y + top * LANE, fmax(0, x1 - x0 - gap), height * LANE};
}

static void draw_block(const picture *own, const panel *one, size_t at,
                       double y, const sl__thin *thin)
{
    char name[SL_ACTION_TEXT_MAX];
    const sl__block *block = &thin->blocks->data[at];
    sl_action parts[2] = {block->action};
    int count = block->kind == SL_OVERLAP_F_B
                    ? sl_action_parts(&block->action, parts)
                    : 1;
    sl__block_print(block, name);
    for (int i = 0; i < count; i++) {
        sl__look look = sl__look_of(count == 2 ? parts[i].kind : block->kind);
        sl__colour colour = sl__look_colour(look, parts[i].microbatch);
        const sl__box box = box_of(own, one, at, y, i, count, look, thin);
        own->canvas->ops->box(own->canvas, &box, colour, i ? "half" : "block",
                              i ? NULL : name);
        if (block->kind < SL_ACTION_KINDS)
            draw_label(own, &parts[i], &box, colour);
    }
}

/* Marks blocks of a run that is shown with its plan: one that took over a tenth
 * longer has a thick edge where it was planned to end, one that took as much
 * less a thin edge. */
static void mark_difference(const picture *own, const panel *one,
                            const sl__block *block, double y)
{
    sl_place place;
    sl_action parts[2];
    double x0 = x_of(own, one, block->start), x1 = x_of(own, one, block->end);
    if (!own->plan || one->timeline != own->run || x1 - x0 < 3 ||
        !sl__block_computes(block) || !sl_action_parts(&block->action, parts))
        return;
    const sl__block *planned =
        sl__lookup_find(&own->lookup, own->plan, sl__class_of(parts[0].kind),
                        parts[0].stage, parts[0].microbatch, -1, &place);
    if (!planned || planned->kind != block->kind)
        return;
    double took = block->end - block->start;
    double expected = planned->end - planned->start;
    if (took > 1.1 * expected)
        put_box(own, x_of(own, one, block->start + expected), x1, y, 4,
                text_colour(own), "longer", NULL);
    else if (took < 0.9 * expected)
        put_box(own, x0, x1, y, 2, shorter, "shorter", NULL);
}

static void draw_gap(const picture *own, const panel *one, double from,
                     double to, sl__idle_reason why, double y)
{
    double x0 = x_of(own, one, from), x1 = x_of(own, one, to);
    if (x1 - x0 >= 0.5)
        put_box(own, x0, x1, y, LANE, sl__idle_colour(why, own->options->dark),
                "idle", sl__idle_texts[why].text);
}

static void draw_gaps(const picture *own, const panel *one, int rank, double y)
{
    const sl_timeline *timeline = one->timeline;
    const sl__blocks *blocks = &timeline->tracks[rank].blocks;
    double since = 0;
    for (size_t i = 0; i < blocks->count; i++) {
        const sl__block *block = &blocks->data[i];
        bool waits =
            block->why == SL__IDLE_FORWARD || block->why == SL__IDLE_BACKWARD;
        if (block->why && block->start > since) {
            double ready = waits ? block->ready : block->start;
            draw_gap(own, one, since, ready, (sl__idle_reason)block->why, y);
            draw_gap(own, one, ready, block->start, SL__IDLE_MESSAGE, y);
        }
        since = fmax(since, block->end);
    }
    draw_gap(own, one, since, timeline->makespan, SL__IDLE_DRAIN, y);
}

static void draw_comms(const picture *own, const panel *one, int rank, double y)
{
    const sl__blocks *comms = &one->timeline->tracks[rank].comms;
    for (size_t i = 0; i < comms->count; i++) {
        const sl__block *comm = &comms->data[i];
        char name[SL_ACTION_TEXT_MAX];
        bool sends = comm->kind == SL_SEND_F || comm->kind == SL_SEND_B;
        double x0 = x_of(own, one, comm->start);
        double x1 = fmax(x_of(own, one, comm->end), x0 + 0.6);
        sl__block_print(comm, name);
        put_box(
            own, x0, x1, y + (sends ? 0.5 : COMM / 2.0), COMM / 2.0 - 0.5,
            sl__look_colour(sl__look_of(comm->kind), comm->action.microbatch),
            "block", name);
    }
}

static sl_status draw_memory(const picture *own, const panel *one, int rank,
                             double y)
{
    const sl__track *track = &one->timeline->tracks[rank];
    size_t count = 2 * track->blocks.count;
    double *xs, *ys, scale = (MEMORY - 1) / own->most_bytes;
    SL__TRY(sl__alloc(2 * (count + 1), sizeof *xs, &xs));
    ys = xs + count + 1;
    for (size_t i = 0; i < track->blocks.count; i++) {
        const sl__block *block = &track->blocks.data[i];
        xs[2 * i] = x_of(own, one, block->start);
        ys[2 * i] = (double)block->held.during * scale;
        xs[2 * i + 1] = x_of(own, one, block->end);
        ys[2 * i + 1] = (double)block->held.after * scale;
        xs[2 * i + 2] = xs[2 * i + 1];
    }
    if (count)
        own->canvas->ops->area(own->canvas, y + MEMORY, xs, ys, count, curve);
    if (track->planned_bytes > 0) {
        double top = y + MEMORY - (double)track->planned_bytes * scale;
        own->canvas->ops->line(own->canvas, one->x, top, one->x + one->width,
                               top, soft_colour(own), true);
    }
    free(xs);
    return SL_OK;
}

static sl_status draw_rank(const picture *own, const panel *one, int rank)
{
    double y = one->y + HEAD + rank * (double)row_height(one);
    const sl__blocks *blocks = &one->timeline->tracks[rank].blocks;
    enum { FEW = 1000 }; /* below this, there is room for "rank" */
    char name[24];
    sl__format(name, sizeof name, rank < FEW ? "rank %d" : "%d", rank);
    put_text(own, one->x - 6, y + LANE / 2.0 + 4, LETTER, SL__RIGHT,
             soft_colour(own), name);
    put_box(own, one->x, one->x + one->width, y, LANE, grey(own, 0xf7, 0x1c),
            "row", NULL);
    draw_gaps(own, one, rank, y);
    sl__thin thin;
    SL__TRY(sl__thin_find(blocks, own->begin,
                          one->width / (own->end - own->begin), one->width,
                          &thin));
    draw_shares(own, one, y, &thin);
    for (size_t i = 0; i < blocks->count; i++) {
        draw_block(own, one, i, y, &thin);
        mark_difference(own, one, &blocks->data[i], y);
    }
    sl__thin_clear(&thin);
    if (one->comm)
        draw_comms(own, one, rank, y + LANE);
    return one->memory && own->most_bytes > 0
               ? draw_memory(own, one, rank, y + LANE + one->comm)
               : SL_OK;
}

/* ---------------------------------------------------------------- legend -- */

typedef struct legend {
    bool looks[SL__LOOKS];
    bool idle[SL__IDLE_REASONS];
} legend;

static void note_block(legend *seen, const sl__block *block)
{
    sl_action parts[2];
    if (block->kind == SL_OVERLAP_F_B && sl_action_parts(&block->action, parts))
        seen->looks[sl__look_of(parts[0].kind)] =
            seen->looks[sl__look_of(parts[1].kind)] = true;
    else
        seen->looks[sl__look_of(block->kind)] = true;
}

static legend find_legend(const picture *own)
{
    legend seen = {0};
    for (size_t i = 0; i < own->count; i++) {
        for (int r = 0; r < own->timelines[i]->ranks; r++) {
            const sl__track *track = &own->timelines[i]->tracks[r];
            for (size_t k = 0; k < track->blocks.count; k++)
                note_block(&seen, &track->blocks.data[k]);
            if (track->comms.count)
                seen.looks[SL__LOOK_MESSAGE] = true;
            for (int why = 0; why < SL__IDLE_REASONS; why++)
                seen.idle[why] = seen.idle[why] || track->idle[why] > 0;
        }
    }
    return seen;
}

/* Adds an entry to the legend, on the next line if it does not fit. */
static void put_entry(picture *own, double *x, sl__colour colour,
                      const char *text)
{
    double width = 18 + sl__text_width(text, LETTER, false) + 12;
    if (*x > GUTTER && *x + width > own->options->width - RIGHT) {
        *x = GUTTER;
        own->height += LEGEND;
    }
    if (own->canvas) {
        double y = own->height - LEGEND;
        put_box(own, *x, *x + 11, y + 4, 11, colour, "key", NULL);
        put_text(own, *x + 16, y + 13.5, LETTER, SL__LEFT, soft_colour(own),
                 text);
    }
    *x += width;
}

static void put_legend(picture *own)
{
    legend seen = find_legend(own);
    double x = GUTTER;
    own->height += LEGEND + BETWEEN;
    for (int look = 0; look < SL__LOOKS; look++) {
        if (seen.looks[look])
            put_entry(own, &x, sl__look_colour((sl__look)look, 0),
                      sl__look_text((sl__look)look));
    }
    for (int why = 0; why < SL__IDLE_REASONS; why++) {
        char text[120];
        sl__format(text, sizeof text, "idle: %s, %s", sl__idle_texts[why].text,
                   sl__idle_texts[why].when);
        if (seen.idle[why])
            put_entry(own, &x,
                      sl__idle_colour((sl__idle_reason)why, own->options->dark),
                      text);
    }
    if (own->plan) {
        put_entry(own, &x, text_colour(own),
                  "thick edge: more than a tenth longer than planned");
        put_entry(own, &x, shorter,
                  "thin edge: more than a tenth shorter than planned");
    }
    if (own->options->memory && own->most_bytes > 0)
        put_entry(own, &x, curve,
                  own->run ? "curve: memory held; dashed line: planned peak"
                           : "curve: memory held; dashed line: peak");
    own->height += BETWEEN;
}

/* ------------------------------------------------------------------ all -- */

static sl_status start(picture *own, const sl_timeline *const *timelines,
                       size_t count, const sl_picture_options *options)
{
    enum { NARROWEST = 200, WIDEST = 100000 };
    *own = (picture){.timelines = timelines,
                     .count = count,
                     .options = options ? options : &usual};
    if (count < 1 || count > SL_VIEW_MAX_TIMELINES)
        return sl_fail(SL_EINVAL,
                       "a picture shows from 1 to %d timelines, not %zu",
                       SL_VIEW_MAX_TIMELINES, count);
    SL__TRY(sl__check_given(timelines, count));
    if (own->options->width < NARROWEST || own->options->width > WIDEST)
        return sl_fail(SL_EINVAL,
                       "a picture is from %d to %d pixels wide, not %d",
                       NARROWEST, WIDEST, own->options->width);
    span_all(own);
    lay_out(own);
    sl__find_plan(timelines, count, &own->run, &own->plan);
    return SL_OK;
}

sl_status sl__picture_size(const sl_timeline *const *timelines, size_t count,
                           const sl_picture_options *options, double *out_width,
                           double *out_height)
{
    picture own;
    SL__TRY(start(&own, timelines, count, options));
    put_legend(&own);
    *out_width = own.options->width;
    *out_height = ceil(own.height);
    return SL_OK;
}

sl_status sl__picture_draw(const sl_timeline *const *timelines, size_t count,
                           const sl_picture_options *options,
                           sl__canvas *canvas)
{
    picture own;
    double width, height;
    sl_status status = SL_OK;
    SL__TRY(sl__picture_size(timelines, count, options, &width, &height));
    SL__TRY(start(&own, timelines, count, options));
    own.canvas = canvas;
    if (own.plan)
        SL__TRY(sl__lookup_create(own.plan, &own.lookup));
    const sl__colour back = own.options->dark ? (sl__colour){0x14, 0x17, 0x1b}
                                              : (sl__colour){255, 255, 255};
    put_box(&own, 0, width, 0, height, back, "back", NULL);
    for (size_t i = 0; i < count && !status; i++) {
        const panel *one = &own.panels[i];
        draw_head(&own, one);
        for (int r = 0; r < one->timeline->ranks && !status; r++)
            status = draw_rank(&own, one, r);
    }
    put_legend(&own);
    sl__lookup_clear(&own.lookup);
    return status;
}

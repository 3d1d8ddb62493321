/* SPDX-License-Identifier: MIT
 *
 * A picture of timelines: ranks as rows, time across, on one scale; colours and
 * labels are the page's. */
#include "view/canvas.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GUTTER = 56, /* for the ranks' names */
    RIGHT = 14,
    HEAD = 42, /* for a title and the axis */
    LANE = 24,
    COMM = 6,
    MEMORY = 14,
    BETWEEN = 4, /* rows, and panels */
    LEGEND = 20, /* a line of it */
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
    sl__canvas *canvas; /* NULL while it is only measured */
    panel panels[SL_VIEW_MAX_TIMELINES];
    double height;
    double begin; /* of all */
    double end;
    double most_bytes;
    const sl_timeline *run; /* that is compared with its plan; or NULL */
    const sl_timeline *plan;
    sl__lookup lookup; /* in it */
} picture;

static const sl_picture_options usual = SL_PICTURE_OPTIONS_INIT;
static const sl__colour shorter = {0x7f, 0xe0, 0xff};

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

/* Text as it may stand in a picture: UTF-8, no control characters, nothing that
 * XML has no room for. */
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

static void print_time(const sl_timeline *timeline, double time, double scale,
                       char text[48])
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{1, " s"}, {1e-3, " ms"}, {1e-6, " us"}, {1e-9, " ns"}};
    size_t unit = 0;
    if (!timeline->seconds) {
        sl__format(text, 48, "%.6g", time);
        return;
    }
    while (unit < 3 && scale < units[unit].size)
        unit++;
    sl__format(text, 48, "%.5g%s", time / units[unit].size, units[unit].name);
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
    char title[400], time[48], text[480];
    const sl_timeline *timeline = one->timeline;
    clean(timeline->title, title, sizeof title);
    print_time(timeline, timeline->makespan, timeline->makespan, time);
    sl__format(text, sizeof text, "%s: %s, bubble %.1f %%", title, time,
               100 * timeline->bubble);
    own->canvas->ops->text(own->canvas, one->x, one->y + 16, 13, true, SL__LEFT,
                           text_colour(own), text);
    double span = own->end - own->begin;
    double step = nice_step(span / fmax(2, one->width / 90));
    double scale = fmax(fabs(own->begin), fabs(own->end));
    for (double n = ceil(own->begin / step); n * step <= own->end; n++) {
        double x = x_of(own, one, n * step);
        print_time(timeline, n * step, scale, text);
        put_text(own, x, one->y + HEAD - 10, LETTER - 1, SL__MIDDLE,
                 soft_colour(own), n == 0 ? "0" : text);
        own->canvas->ops->line(own->canvas, x, one->y + HEAD - 6, x,
                               one->y + HEAD - 1, soft_colour(own), false);
    }
}

/* The label that fits: the action, else its microbatch, else none. */
static void draw_label(const picture *own, const sl_action *part,
                       const sl__box *box, sl__colour colour)
{
    char text[SL_ACTION_TEXT_MAX];
    double size = fmin(LETTER, box->height - 2), letter = size * 0.62;
    size_t length = sl_action_print(part, text);
    if ((double)length * letter > box->width - 2 &&
        sl_action_kind_family(part->kind) == SL_FAMILY_COMPUTE)
        length =
            (size_t)snprintf(text, sizeof text, "%d", (int)part->microbatch);
    if (size < 7 || (double)length * letter > box->width - 2)
        return;
    static const sl__colour white = {255, 255, 255}, black = {16, 16, 16};
    put_text(own, box->x + box->width / 2,
             box->y + box->height / 2 + size * 0.36, size, SL__MIDDLE,
             sl__wants_white(colour) ? white : black, text);
}

static void draw_block(const picture *own, const panel *one,
                       const sl__block *block, double y)
{
    char name[SL_ACTION_TEXT_MAX];
    sl_action parts[2] = {block->action};
    int count = block->kind == SL_OVERLAP_F_B
                    ? sl_action_parts(&block->action, parts)
                    : 1;
    double x0 = x_of(own, one, block->start), x1 = x_of(own, one, block->end);
    double gap = x1 - x0 > 3 ? 0.6 : 0, height = (double)LANE / count;
    sl__block_print(block, name);
    for (int i = 0; i < count; i++) {
        int kind = count == 2 ? parts[i].kind : block->kind;
        sl__colour colour =
            sl__look_colour(sl__look_of(kind), parts[i].microbatch);
        const sl__box box = {x0, y + i * height, fmax(0, x1 - x0 - gap),
                             height};
        own->canvas->ops->box(own->canvas, &box, colour, i ? "half" : "block",
                              i ? NULL : name);
        if (block->kind < SL_ACTION_KINDS)
            draw_label(own, &parts[i], &box, colour);
    }
}

/* Of a run beside its plan: what took more than a tenth longer has a thick edge
 * where it should have been over, what took as much less a thin one. */
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
                     double to, sl__why why, double y)
{
    double x0 = x_of(own, one, from), x1 = x_of(own, one, to);
    if (x1 - x0 >= 0.5)
        put_box(own, x0, x1, y, LANE, sl__why_colour(why, own->options->dark),
                "idle", sl__why_text(why));
}

static void draw_gaps(const picture *own, const panel *one, int rank, double y)
{
    const sl_timeline *timeline = one->timeline;
    const sl__blocks *blocks = &timeline->tracks[rank].blocks;
    double since = 0;
    for (size_t i = 0; i < blocks->count; i++) {
        const sl__block *block = &blocks->data[i];
        bool waits =
            block->why == SL__WHY_FORWARD || block->why == SL__WHY_BACKWARD;
        if (block->why && block->start > since) {
            double ready = waits ? block->ready : block->start;
            draw_gap(own, one, since, ready, (sl__why)block->why, y);
            draw_gap(own, one, ready, block->start, SL__WHY_MESSAGE, y);
        }
        since = fmax(since, block->end);
    }
    draw_gap(own, one, since, timeline->makespan, SL__WHY_DRAIN, y);
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
        put_box(own, x0, x1, y + (sends ? 0.5 : COMM / 2.0), COMM / 2.0 - 0.5,
                sl__look_colour(SL__LOOK_MESSAGE, comm->action.microbatch),
                "block", name);
    }
}

static sl_status draw_memory(const picture *own, const panel *one, int rank,
                             double y)
{
    const sl__track *track = &one->timeline->tracks[rank];
    size_t count = 2 * track->blocks.count;
    double *xs = NULL, *ys = NULL, scale = (MEMORY - 1) / own->most_bytes;
    sl_status status = sl__alloc(count + 1, sizeof *xs, &xs);
    if (!status)
        status = sl__alloc(count + 1, sizeof *ys, &ys);
    for (size_t i = 0; i < track->blocks.count && !status; i++) {
        const sl__block *block = &track->blocks.data[i];
        xs[2 * i] = x_of(own, one, block->start);
        ys[2 * i] = (double)block->held.during * scale;
        xs[2 * i + 1] = x_of(own, one, block->end);
        ys[2 * i + 1] = (double)block->held.after * scale;
        xs[2 * i + 2] = xs[2 * i + 1];
    }
    if (!status && count)
        own->canvas->ops->area(own->canvas, y + MEMORY, xs, ys, count,
                               (sl__colour){0x9f, 0xb8, 0xcd});
    if (!status && track->planned_bytes > 0) {
        double top = y + MEMORY - (double)track->planned_bytes * scale;
        own->canvas->ops->line(own->canvas, one->x, top, one->x + one->width,
                               top, soft_colour(own), true);
    }
    free(xs);
    free(ys);
    return status;
}

static sl_status draw_rank(const picture *own, const panel *one, int rank)
{
    double y = one->y + HEAD + rank * (double)row_height(one);
    const sl__blocks *blocks = &one->timeline->tracks[rank].blocks;
    char name[24];
    snprintf(name, sizeof name, "rank %d", rank);
    put_text(own, one->x - 6, y + LANE / 2.0 + 4, LETTER, SL__RIGHT,
             soft_colour(own), name);
    put_box(own, one->x, one->x + one->width, y, LANE, grey(own, 0xf7, 0x1c),
            "row", NULL);
    draw_gaps(own, one, rank, y);
    for (size_t i = 0; i < blocks->count; i++) {
        draw_block(own, one, &blocks->data[i], y);
        mark_difference(own, one, &blocks->data[i], y);
    }
    if (one->comm)
        draw_comms(own, one, rank, y + LANE);
    return one->memory && own->most_bytes > 0
               ? draw_memory(own, one, rank, y + LANE + one->comm)
               : SL_OK;
}

/* ---------------------------------------------------------------- legend -- */

typedef struct legend {
    bool looks[SL__LOOKS];
    bool whys[SL__WHYS];
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
            for (int why = 0; why < SL__WHYS; why++)
                seen.whys[why] = seen.whys[why] || track->idle[why] > 0;
        }
    }
    return seen;
}

/* Puts one entry after the others, on the next line where it must. */
static void put_entry(picture *own, double *x, sl__colour colour,
                      const char *before, const char *text)
{
    char words[80];
    snprintf(words, sizeof words, "%s%s", before, text);
    double width = 18 + (double)strlen(words) * LETTER * 0.56 + 14;
    if (*x > GUTTER && *x + width > own->options->width - RIGHT) {
        *x = GUTTER;
        own->height += LEGEND;
    }
    if (own->canvas) {
        double y = own->height - LEGEND;
        put_box(own, *x, *x + 11, y + 4, 11, colour, "key", NULL);
        put_text(own, *x + 16, y + 13.5, LETTER, SL__LEFT, soft_colour(own),
                 words);
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
            put_entry(own, &x, sl__look_colour((sl__look)look, 0), "",
                      sl__look_text((sl__look)look));
    }
    for (int why = 0; why < SL__WHYS; why++) {
        if (seen.whys[why])
            put_entry(own, &x, sl__why_colour((sl__why)why, own->options->dark),
                      "idle: ", sl__why_text((sl__why)why));
    }
    if (own->plan) {
        put_entry(own, &x, text_colour(own), "",
                  "thick edge: took longer than planned");
        put_entry(own, &x, shorter, "", "thin edge: took less");
    }
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
    sl_status status = start(&own, timelines, count, options);
    if (status)
        return status;
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
    sl_status status =
        sl__picture_size(timelines, count, options, &width, &height);
    if (!status)
        status = start(&own, timelines, count, options);
    if (status)
        return status;
    own.canvas = canvas;
    if (own.plan)
        status = sl__lookup_create(own.plan, &own.lookup);
    if (status)
        return status;
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

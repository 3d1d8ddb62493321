/* SPDX-License-Identifier: MIT
 *
 * Pictures of every golden schedule: in the SVG each block is where its
 * simulation says, and the PNG has the SVG's colour where the block is. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef SLUICE_HAS_CAIRO
#include <cairo.h>
#endif

typedef struct rect {
    double x;
    double y;
    double width;
    double height;
    unsigned colour;
    char action[SL_ACTION_TEXT_MAX];
} rect;

/* The blocks of an SVG, in its order. */
static size_t read_blocks(const char *svg, rect **out)
{
    size_t count = 0, capacity = 0;
    *out = NULL;
    for (const char *at = svg; (at = strstr(at, "<rect ")); at++) {
        rect one;
        if (count == capacity) {
            capacity = 2 * capacity + 64;
            *out = realloc(*out, capacity * sizeof **out);
            assert_non_null(*out);
        }
        if (sscanf(at,
                   "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\" "
                   "fill=\"#%x\" class=\"block\" data-action=\"%63[^\"]\"/>",
                   &one.x, &one.y, &one.width, &one.height, &one.colour,
                   one.action) == 6)
            (*out)[count++] = one;
    }
    return count;
}

static size_t count_text(const char *text, const char *what)
{
    size_t count = 0;
    for (; (text = strstr(text, what)); text++)
        count++;
    return count;
}

/* A timeline to draw, with what it came from. */
typedef struct drawn {
    sl_schedule *schedule;
    sl_simulation *simulation;
    sl_timeline *timeline;
} drawn;

static drawn draw(const char *name, sl_schedule *schedule)
{
    drawn own = {.schedule = schedule};
    assert_ok(sl_simulate(own.schedule, NULL, SL_ASYNC, &own.simulation));
    assert_ok(sl_timeline_simulated(name, own.schedule, NULL, own.simulation,
                                    &own.timeline));
    return own;
}

static void clear(drawn *own)
{
    sl_timeline_destroy(own->timeline);
    sl_simulation_destroy(own->simulation);
    sl_schedule_destroy(own->schedule);
}

/* Looks for the block of an action, and takes it away. */
static bool take(rect *blocks, size_t count, const char *action, double start,
                 double end, double makespan)
{
    enum { GUTTER = 56, RIGHT = 14, WIDTH = 1200 };
    double scale = (WIDTH - GUTTER - RIGHT) / makespan;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(blocks[i].action, action) != 0 ||
            fabs(blocks[i].x - GUTTER - start * scale) > 2e-3)
            continue;
        double width = (end - start) * scale;
        bool right =
            blocks[i].width <= width + 0.7 && blocks[i].width >= width - 0.7;
        blocks[i].action[0] = '\0';
        return right;
    }
    return false;
}

static void compare_svg(const drawn *own, rect *blocks, size_t count)
{
    double makespan = sl_simulation_makespan(own->simulation);
    assert_int_equal(count, sl_schedule_extent(own->schedule).actions);
    for (int r = 0; r < sl_schedule_ranks(own->schedule); r++) {
        const sl_action *row = sl_schedule_row(own->schedule, r);
        for (size_t i = 0; i < sl_schedule_length(own->schedule, r); i++) {
            char action[SL_ACTION_TEXT_MAX];
            if (row[i].kind == SL_IDLE)
                continue;
            sl_interval when = sl_simulation_action(own->simulation, r, i);
            sl_action_print(&row[i], action);
            if (!take(blocks, count, action, when.start, when.end, makespan))
                fail_msg("rank %d: %s is not at %g", r, action, when.start);
        }
    }
}

#ifdef SLUICE_HAS_CAIRO
typedef struct bytes {
    const sl_string *text;
    size_t taken;
} bytes;

static cairo_status_t read_bytes(void *closure, unsigned char *data,
                                 unsigned length)
{
    bytes *from = closure;
    if (from->text->length - from->taken < length)
        return CAIRO_STATUS_READ_ERROR;
    memcpy(data, from->text->data + from->taken, length);
    from->taken += length;
    return CAIRO_STATUS_SUCCESS;
}

static size_t compare_png(const sl_timeline *timeline, const rect *blocks,
                          size_t count)
{
    sl_string png = SL_STRING_INIT;
    size_t compared = 0;
    assert_ok(sl_view_write_png(&timeline, 1, NULL, sl_write_string, &png));
    bytes from = {&png, 0};
    cairo_surface_t *image =
        cairo_image_surface_create_from_png_stream(read_bytes, &from);
    assert_int_equal(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
    assert_int_equal(cairo_image_surface_get_width(image), 2400);
    cairo_surface_flush(image);
    const unsigned char *data = cairo_image_surface_get_data(image);
    int stride = cairo_image_surface_get_stride(image);
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].width < 3 || blocks[i].height < 6)
            continue;
        int x = (int)(2 * (blocks[i].x + 1)), y = (int)(2 * (blocks[i].y + 1));
        uint32_t pixel;
        memcpy(&pixel, data + y * stride + 4 * x, sizeof pixel);
        assert_int_equal(pixel & 0xffffff, blocks[i].colour);
        compared++;
    }
    cairo_surface_destroy(image);
    sl_string_clear(&png);
    return compared;
}
#endif

/* Adds to the context how many blocks' colours were looked at. */
static void compare_golden(const char *name, sl_schedule *schedule,
                           void *context)
{
    rect *blocks;
    sl_string svg = SL_STRING_INIT;
    drawn own = draw(name, schedule);
    const sl_timeline *timeline = own.timeline;
    assert_ok(sl_view_write_svg(&timeline, 1, NULL, sl_write_string, &svg));
    size_t count = read_blocks(svg.data, &blocks);
    size_t overlaps = 0;
    for (int r = 0; r < sl_schedule_ranks(schedule); r++) {
        const sl_action *row = sl_schedule_row(schedule, r);
        for (size_t i = 0; i < sl_schedule_length(schedule, r); i++)
            overlaps += row[i].kind == SL_OVERLAP_F_B;
    }
    assert_int_equal(count_text(svg.data, "class=\"half\""), overlaps);
#ifdef SLUICE_HAS_CAIRO
    *(size_t *)context += compare_png(timeline, blocks, count);
#else
    (void)context;
#endif
    compare_svg(&own, blocks, count);
    free(blocks);
    sl_string_clear(&svg);
    clear(&own);
}

static void pictures_of_every_golden_show_its_blocks(void **state)
{
    (void)state;
    size_t compared = 0;
    assert_true(test_each_golden(compare_golden, &compared) >= 60);
#ifdef SLUICE_HAS_CAIRO
    assert_true(compared > 2000);
#endif
}

/* A run of one rank, one compute after the other: action, microseconds. */
typedef struct timed {
    const char *action;
    int took_us;
} timed;

static sl_timeline *run_of(const timed *computes, size_t count)
{
    char text[4000];
    int used = snprintf(text, sizeof text,
                        "{\"sluice\": {\"version\": 1, \"ranks\": 1}, "
                        "\"traceEvents\": [");
    for (size_t i = 0, at = 0; i < count; at += computes[i++].took_us)
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "%s{\"ph\": \"X\", \"pid\": 0, \"cat\": \"compute\", "
                         "\"ts\": %zu, \"dur\": %d, \"args\": {\"action\": "
                         "\"%s\"}}",
                         i ? ", " : "", at, computes[i].took_us,
                         computes[i].action);
    snprintf(text + used, sizeof text - (size_t)used, "]}");
    sl_timeline *run;
    assert_ok(sl_timeline_read("run", text, strlen(text), &run));
    return run;
}

/* Against means of 200, 100 is less and 300 is more; what always takes 100, or is
 * one of its kind, is as planned. */
static void differences_are_marked(void **state)
{
    (void)state;
    static const timed computes[] = {
        {"0F0", 100}, {"0F1", 100}, {"0I0", 100}, {"0I1", 300},
        {"0W0", 300}, {"0W1", 100}, {"0F2", 100}, {"(0F3;0B2)OVERLAP_F_B", 200},
        {"0B3", 100},
    };
    sl_timeline *both[2];
    sl_string svg = SL_STRING_INIT;
    both[1] = run_of(computes, sizeof computes / sizeof *computes);
    assert_ok(sl_timeline_planned("plan", both[1], &both[0]));
    assert_ok(sl_view_write_svg((const sl_timeline *const *)both, 2, NULL,
                                sl_write_string, &svg));
    assert_int_equal(count_text(svg.data, "class=\"longer\""), 2);
    assert_int_equal(count_text(svg.data, "class=\"shorter\""), 2);
    /* Alone there is nothing to compare with. */
    sl_string_clear(&svg);
    assert_ok(sl_view_write_svg((const sl_timeline *const *)&both[1], 1, NULL,
                                sl_write_string, &svg));
    assert_int_equal(count_text(svg.data, "class=\"longer\""), 0);
    sl_string_clear(&svg);
    sl_timeline_destroy(both[0]);
    sl_timeline_destroy(both[1]);
}

static sl_string picture_of(const char *name, int ranks, int stages_per_rank,
                            int microbatches, const sl_picture_options *options)
{
    sl_string svg = SL_STRING_INIT;
    drawn own =
        draw(name, test_generate(name, ranks, stages_per_rank, microbatches));
    const sl_timeline *timeline = own.timeline;
    assert_ok(sl_view_write_svg(&timeline, 1, options, sl_write_string, &svg));
    clear(&own);
    return svg;
}

static void numbers_have_units_and_few_digits(void **state)
{
    (void)state;
    sl_string svg = picture_of("1F1B", 4, 1, 8, NULL);
    assert_non_null(
        strstr(svg.data, ">1F1B: makespan 33 units, bubble 27.3 %</text>"));
    assert_non_null(strstr(svg.data, ">units</text>"));
    assert_non_null(
        strstr(svg.data, ">idle: drain, after the rank's last compute</text>"));
    sl_string_clear(&svg);
    static const timed computes[] = {{"0F0", 12345}, {"0B0", 53000}};
    const sl_timeline *run = run_of(computes, 2);
    assert_ok(sl_view_write_svg(&run, 1, NULL, sl_write_string, &svg));
    assert_non_null(
        strstr(svg.data, ">run: makespan 65.3 ms, bubble 0 %</text>"));
    assert_null(strstr(svg.data, ">units</text>"));
    assert_non_null(strstr(svg.data, ">10 ms</text>"));
    sl_string_clear(&svg);
    sl_timeline_destroy((sl_timeline *)run);
}

/* A title that is too long is cut, what is said of it is not. */
static void titles_fit_their_panel(void **state)
{
    (void)state;
    sl_picture_options options = SL_PICTURE_OPTIONS_INIT;
    drawn own = draw("A title that is so long that it does not fit",
                     test_generate("1F1B", 4, 1, 8));
    const sl_timeline *both[2] = {own.timeline, own.timeline};
    sl_string svg = SL_STRING_INIT;
    options.beside = true;
    options.width = 840;
    assert_ok(sl_view_write_svg(both, 2, &options, sl_write_string, &svg));
    assert_null(strstr(svg.data, "does not fit"));
    assert_non_null(
        strstr(svg.data, "\xe2\x80\xa6: makespan 33 units, bubble 27.3 %<"));
    sl_string_clear(&svg);
    clear(&own);
}

#ifdef SLUICE_HAS_CAIRO
/* Whether a label that is centred at x, y lies in one of these blocks. */
static bool is_inside(const rect *blocks, size_t count, double x, double y,
                      double width)
{
    for (size_t i = 0; i < count; i++) {
        const rect *one = &blocks[i];
        if (y > one->y && y < one->y + one->height &&
            x - width / 2 >= one->x - 0.01 &&
            x + width / 2 <= one->x + one->width + 0.01)
            return true;
    }
    return false;
}

/* In the widest of the fonts that a picture asks for. */
static void labels_fit_their_blocks(void **state)
{
    (void)state;
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_ARGB32, 8, 8);
    cairo_t *cairo = cairo_create(surface);
    int seen = 0;
    cairo_select_font_face(cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           CAIRO_FONT_WEIGHT_NORMAL);
    for (int width = 400; width < 6000; width = width * 4 / 3) {
        sl_picture_options options = SL_PICTURE_OPTIONS_INIT;
        rect *blocks;
        options.width = width;
        sl_string svg = picture_of("ZBVZeroBubble", 4, 2, 14, &options);
        size_t count = read_blocks(svg.data, &blocks);
        for (const char *at = svg.data; (at = strstr(at, "<text ")); at++) {
            double x, y, size;
            char text[40];
            cairo_text_extents_t extents;
            if (sscanf(at,
                       "<text x=\"%lf\" y=\"%lf\" font-size=\"%lf\" "
                       "text-anchor=\"middle\" fill=\"#%*x\">%39[^<]<",
                       &x, &y, &size, text) != 4 ||
                y < 42)
                continue;
            cairo_set_font_size(cairo, size);
            cairo_text_extents(cairo, text, &extents);
            if (!is_inside(blocks, count, x, y - 2, extents.x_advance))
                fail_msg("at %d pixels %s does not fit", width, text);
            seen++;
        }
        free(blocks);
        sl_string_clear(&svg);
    }
    assert_true(seen > 500);
    cairo_destroy(cairo);
    cairo_surface_destroy(surface);
}
#endif

/* Where F and B alternate in too few pixels, they lie one above the other. */
static void thin_blocks_share_the_height(void **state)
{
    (void)state;
    rect *blocks;
    sl_string svg = picture_of("1F1B", 8, 1, 512, NULL);
    size_t count = read_blocks(svg.data, &blocks);
    double bottom = 0, top = INFINITY;
    for (size_t i = 0; i < count; i++) {
        const rect *one = &blocks[i];
        const char *kind = one->action + strspn(one->action, "0123456789");
        /* The first rank's, in the middle of the step. */
        if (one->y > 66 || one->x < 500 || one->x > 700)
            continue;
        assert_true(one->width < 4);
        if (*kind == 'F')
            bottom = fmax(bottom, one->y + one->height);
        else
            top = fmin(top, one->y);
    }
    assert_true(bottom > 42 + 5 && top < 42 + 14);
    assert_true(bottom < top + 3); /* Shares differ a little along the row. */
    assert_true(count_text(svg.data, "class=\"share\"") > 8 * 2 * 150);
    sl_string_clear(&svg);
    free(blocks);
    /* Wide ones are as high as their row. */
    svg = picture_of("1F1B", 4, 1, 8, NULL);
    assert_int_equal(count_text(svg.data, "class=\"share\""), 0);
    sl_string_clear(&svg);
}

static void text_is_text_and_cannot_escape(void **state)
{
    (void)state;
    sl_schedule *schedule = test_generate("1F1B", 2, 1, 2);
    sl_simulation *simulation;
    sl_timeline *timeline;
    sl_string svg = SL_STRING_INIT;
    assert_ok(sl_simulate(schedule, NULL, SL_ASYNC, &simulation));
    assert_ok(
        sl_timeline_simulated("</svg><script>x</script>\x01\xff&\"\xef\xbf\xbe"
                              "\xf9\x81\x81\x81",
                              schedule, NULL, simulation, &timeline));
    const sl_timeline *one = timeline;
    assert_ok(sl_view_write_svg(&one, 1, NULL, sl_write_string, &svg));
    assert_null(strstr(svg.data, "<script"));
    assert_null(strchr(svg.data, '\x01'));
    assert_null(strchr(svg.data, '\xff'));
    assert_null(strchr(svg.data, '\xf9'));
    assert_null(strstr(svg.data, "\xef\xbf\xbe"));
    assert_non_null(strstr(svg.data, "&lt;/svg&gt;&lt;script&gt;x"));
    assert_non_null(strstr(svg.data, ">0F1</text>"));
    sl_string_clear(&svg);
    sl_timeline_destroy(timeline);
    sl_simulation_destroy(simulation);
    sl_schedule_destroy(schedule);
}

static void impossible_pictures_are_refused(void **state)
{
    (void)state;
    sl_schedule *schedule = test_generate("1F1B", 2, 1, 2);
    sl_simulation *simulation;
    sl_timeline *timeline;
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_simulate(schedule, NULL, SL_ASYNC, &simulation));
    assert_ok(sl_timeline_simulated("", schedule, NULL, simulation, &timeline));
    const sl_timeline *five[5] = {timeline, timeline, timeline, timeline,
                                  timeline};
    sl_picture_options options = SL_PICTURE_OPTIONS_INIT;
    assert_fails(sl_view_write_svg(five, 5, NULL, sl_write_string, &text),
                 SL_EINVAL, "from 1 to 4 timelines, not 5");
    assert_fails(sl_view_write_html(five, 0, sl_write_string, &text), SL_EINVAL,
                 "from 1 to 4 timelines, not 0");
    options.width = 10;
    assert_fails(sl_view_write_svg(five, 1, &options, sl_write_string, &text),
                 SL_EINVAL, "200 to 100000 pixels wide, not 10");
    options.width = 60000;
    assert_ok(sl_view_write_svg(five, 1, &options, sl_write_string, &text));
#ifdef SLUICE_HAS_CAIRO
    assert_fails(sl_view_write_png(five, 1, &options, sl_write_string, &text),
                 SL_EINVAL, "at most 32767 pixels");
#else
    assert_fails(sl_view_write_png(five, 1, NULL, sl_write_string, &text),
                 SL_EINVAL, "without cairo");
#endif
    sl_string_clear(&text);
    sl_timeline_destroy(timeline);
    sl_simulation_destroy(simulation);
    sl_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_of_every_golden_show_its_blocks),
        cmocka_unit_test(differences_are_marked),
        cmocka_unit_test(numbers_have_units_and_few_digits),
        cmocka_unit_test(titles_fit_their_panel),
#ifdef SLUICE_HAS_CAIRO
        cmocka_unit_test(labels_fit_their_blocks),
#endif
        cmocka_unit_test(thin_blocks_share_the_height),
        cmocka_unit_test(text_is_text_and_cannot_escape),
        cmocka_unit_test(impossible_pictures_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * The page of `sluice view` in a browser: what it shows is what was simulated,
 * and mouse, keys, search and address do what they say. */
#include "page.h"
#include "view/palette.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static browser *chromium;

static page shown; /* of the test that runs; cleared after it */

static int clear_page(void **state)
{
    (void)state;
    page_clear(&shown);
    return 0;
}

static char *tip_text(void)
{
    return browser_text(chromium, "document.getElementById('tip').hidden ? '' "
                                  ": document.getElementById('tip').innerText");
}

static void tip_says(const char *words)
{
    char *text = tip_text();
    if (!strstr(text, words))
        fail_msg("the tip does not say \"%s\": %s", words, text);
    free(text);
}

#define assert_page(expression)                                                \
    do {                                                                       \
        if (!browser_true(chromium, expression))                               \
            fail_msg("not so: %s", expression);                                \
    } while (0)

/* ------------------------------------------------------ what it shows -- */

/* Every block, with the colour that is on the screen where it begins. */
static const char blocks_script[] =
    "(() => { const c = document.getElementById('blocks'), box = "
    "document.getElementById('host').getBoundingClientRect(), d = "
    "c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
    "const seen = p => { const x = Math.round(p.x - box.left) + 1, y = "
    "Math.round(p.y - box.top) + 2; if (p.w < 4 || y < 0 || y >= c.height) "
    "return -1; const o = 4 * (y * c.width + x); return d[o] << 16 | d[o + 1] "
    "<< 8 | d[o + 2]; };"
    "return sluice.timelines.map((t, n) => { const out = [], b = t.blocks, k = "
    "t.comms; for (let i = 0; i < b.count; i++) { const p = "
    "sluice.placeOf(n, i); out.push([sluice.blockText(t, i), b.rank[i], "
    "b.start[i], b.end[i], b.microbatch[i], seen(p), p.x - box.left, p.w]); }"
    "for (let i = 0; i < k.count; i++) out.push([sluice.commText(t, i), "
    "k.rank[i], k.start[i], k.end[i], 0, -1, 0, 0]); return out; }); })()";

static const char *text_at(const json_t *row, size_t at)
{
    return json_string_value(json_array_get(row, at));
}

static double number_at(const json_t *row, size_t at)
{
    return json_number_value(json_array_get(row, at));
}

static int compare_rows(const void *a, const void *b)
{
    const json_t *first = *(json_t *const *)a, *second = *(json_t *const *)b;
    int order = strcmp(text_at(first, 0), text_at(second, 0));
    return order ? order : number_at(first, 1) < number_at(second, 1) ? -1 : 1;
}

/* The simulation's own JSON, as rows of text, rank, start, end. */
static size_t rows_of(const page *p, size_t n, json_t ***out, json_t **holder)
{
    sl_string text = SL_STRING_INIT;
    size_t count = 0, rank, i;
    json_t *one, *action, *ranks;
    assert_ok(sl_simulation_write_json(p->simulations[n], p->schedules[n], 0,
                                       true, sl_write_string, &text));
    json_t *root = json_loadb(text.data, text.length, 0, NULL);
    assert_non_null(root);
    ranks = json_object_get(root, "ranks");
    *holder = json_array();
    json_array_foreach(ranks, rank, one)
    {
        json_array_foreach(json_object_get(one, "actions"), i, action)
        {
            json_array_append_new(
                *holder, json_pack("[O, i, O, O]", json_array_get(action, 0),
                                   (int)rank, json_array_get(action, 1),
                                   json_array_get(action, 2)));
            count++;
        }
    }
    json_decref(root);
    sl_string_clear(&text);
    *out = calloc(count + 1, sizeof **out);
    json_array_foreach(*holder, i, one)
    {
        (*out)[i] = one;
    }
    qsort(*out, count, sizeof **out, compare_rows);
    return count;
}

/* What colour the beginning of an action is to have. */
static int expected_colour(const char *text)
{
    sl_action action, parts[2];
    assert_ok(sl_action_parse(text, strlen(text), &action));
    assert_true(sl_action_parts(&action, parts) > 0);
    sl__colour colour =
        sl__look_colour(sl__look_of(parts[0].kind), parts[0].microbatch);
    return colour.red << 16 | colour.green << 8 | colour.blue;
}

/* Returns whether its colour was looked at. */
static bool compare_block(const json_t *found, const json_t *expected,
                          double makespan, double longest, double width)
{
    assert_string_equal(text_at(found, 0), text_at(expected, 0));
    assert_int_equal(number_at(found, 1), number_at(expected, 1));
    for (size_t at = 2; at <= 3; at++) {
        if (fabs(number_at(found, at) - number_at(expected, at)) >
            1e-11 * makespan)
            fail_msg("%s: %.17g instead of %.17g", text_at(found, 0),
                     number_at(found, at), number_at(expected, at));
    }
    if (number_at(found, 7) == 0 && number_at(found, 6) == 0)
        return false; /* a message's end */
    /* Left of the blocks ranks have 60 pixels, right of them there are 10. */
    double x = number_at(found, 6) - 60;
    assert_true(fabs(x / (width - 70) - number_at(expected, 2) / longest) <
                1e-6);
    int colour = (int)number_at(found, 5);
    if (colour >= 0 && colour != expected_colour(text_at(found, 0)))
        fail_msg("%s is #%06x, not #%06x", text_at(found, 0), (unsigned)colour,
                 (unsigned)expected_colour(text_at(found, 0)));
    return colour >= 0;
}

/* All that is shown is all that was simulated. Returns how many blocks' colours
 * were looked at. */
static size_t compare_page(void)
{
    size_t compared = 0, n;
    double width;
    json_t *timelines, *rows;
    double longest = 0;
    page_write(&shown);
    browser_load(chromium, shown.path, "show=&layout=stack", 1600, 1400);
    page_is_content(chromium);
    width =
        browser_number(chromium, "document.getElementById('host').clientWidth");
    timelines = browser_value(chromium, blocks_script);
    for (size_t i = 0; i < shown.count; i++)
        longest = fmax(longest, sl_simulation_makespan(shown.simulations[i]));
    json_array_foreach(timelines, n, rows)
    {
        json_t **expected, *holder, **found;
        size_t count = rows_of(&shown, n, &expected, &holder), i;
        json_t *row;
        assert_int_equal(json_array_size(rows), count);
        found = calloc(count + 1, sizeof *found);
        json_array_foreach(rows, i, row)
        {
            found[i] = row;
        }
        qsort(found, count, sizeof *found, compare_rows);
        for (i = 0; i < count; i++)
            compared += compare_block(
                found[i], expected[i],
                sl_simulation_makespan(shown.simulations[n]), longest, width);
        free(found);
        free(expected);
        json_decref(holder);
    }
    assert_int_equal(n, shown.count);
    json_decref(timelines);
    page_clear(&shown);
    return compared;
}

static void page_shows_what_was_simulated(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    const sl_generator *generator;
    size_t compared = 0;
    costs.stage = (sl_stage_cost){1, 1.3, 0.9, 2.1, 7, 3};
    costs.edge.latency = 0.15;
    costs.overlap = 0.8;
    for (size_t i = 0; (generator = sl_generator_at(i)); i++) {
        int v = generator->default_stages_per_rank;
        page_add(&shown, generator->name,
                 test_generate(generator->name, 4, v, 8), NULL);
        page_add(&shown, generator->name,
                 test_generate(generator->name, 4, v, 8), &costs);
        sl_schedule *order = test_generate(generator->name, 2, v, 4);
        page_add(&shown, generator->name,
                 test_lower(order, SL_LOWER_DEFAULT_PASSES), &costs);
        sl_schedule_destroy(order);
        compared += compare_page();
    }
    assert_true(compared > 1200);
}

static void add_golden(const char *name, sl_schedule *schedule, void *context)
{
    page_add(&shown, name, schedule, NULL);
    if (shown.count == SL_VIEW_MAX_TIMELINES)
        *(size_t *)context += compare_page();
}

static void page_shows_every_golden_schedule(void **state)
{
    (void)state;
    size_t compared = 0;
    assert_true(test_each_golden(add_golden, &compared) >= 60);
    if (shown.count)
        compared += compare_page();
    assert_true(compared > 1500);
}

/* --------------------------------------------------------------- hover -- */

static void hover_tells_what_why_and_from_whom(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    spot at = page_spot(chromium, 0, "1B0");
    browser_move(chromium, at.x, at.y);
    tip_says("1B0 on rank 1");
    tip_says("backward of stage 1, microbatch 0");
    tip_says("for 2B0 on rank 2, then 0.25 for its message");
    tip_says("message from rank 2 (gradient of stage 2): 4 MB");
    tip_says("sends to rank 0");
    tip_says("in flight 4.5 MB");
    /* What it depends on is lit: its neighbours' blocks have an outline. */
    assert_page("(() => { const c = document.getElementById('marks'), d = "
                "c.getContext('2d').getImageData(0, 0, c.width, "
                "c.height).data; let n = 0; for (let i = 3; i < d.length; i += "
                "4) n += d[i] > 0; return n > 300; })()");
    at = page_spot(chromium, 0, "3F0");
    browser_move(chromium, at.x - at.width, at.y);
    tip_says("rank 3 is idle");
    tip_says("warm-up");
    at = page_spot(chromium, 0, "2B7");
    browser_move(chromium, at.x + at.width, at.y);
    tip_says("drain");
    browser_move(chromium, 5, 5);
    char *gone = tip_text();
    assert_string_equal(gone, "");
    free(gone);
    page_is_content(chromium);
}

/* ---------------------------------------------------------------- zoom -- */

static void wheel_zooms_around_the_pointer(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    spot before = page_spot(chromium, 0, "2F4");
    double span = browser_number(chromium, "sluice.view.to - sluice.view.from");
    double x = floor(before.x), y = floor(before.y);
    browser_wheel(chromium, x, y, -400, 0);
    spot after = page_spot(chromium, 0, "2F4");
    double factor = after.width / before.width;
    assert_true(factor > 1.5);
    assert_true(fabs(after.x - x - factor * (before.x - x)) < 0.01);
    /* A pinch on a touchpad is a wheel with Ctrl, and finer. */
    browser_wheel(chromium, x, y, -40, 2);
    spot closer = page_spot(chromium, 0, "2F4");
    factor = closer.width / before.width;
    assert_true(closer.width > 1.3 * after.width);
    assert_true(fabs(closer.x - x - factor * (before.x - x)) < 0.01);
    /* Never out of what there is. */
    for (int i = 0; i < 8; i++)
        browser_wheel(chromium, before.x, before.y, 900, 0);
    double out = browser_number(chromium, "sluice.view.to - sluice.view.from");
    assert_true(out >= span && out < 1.1 * span);
    for (int i = 0; i < 30; i++)
        browser_wheel(chromium, before.x, before.y, -2000, 0);
    double in = browser_number(chromium, "sluice.view.to - sluice.view.from");
    assert_true(in > 0 && in < 1e-6 * span);
    page_is_content(chromium);
}

static void fingers_pinch_and_drag_pans(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    spot before = page_spot(chromium, 0, "2F4");
    browser_pinch(chromium, before.x, before.y, 100, 300);
    spot after = page_spot(chromium, 0, "2F4");
    assert_true(after.width > 2.5 * before.width &&
                after.width < 3.5 * before.width);
    assert_true(fabs(after.x - before.x) < 3);
    browser_press(chromium, after.x, after.y);
    browser_release(chromium, after.x + 120, after.y);
    spot moved = page_spot(chromium, 0, "2F4");
    assert_true(fabs(moved.x - after.x - 120) < 1.5);
    assert_page("sluice.view.follow === null && sluice.view.at === null");
    page_is_content(chromium);
}

/* -------------------------------------------------------------- search -- */

static void search_finds_and_goes_there(void **state)
{
    (void)state;
    page_show(&shown, chromium, "Interleaved1F1B", 8, 2, 64);
    browser_key(chromium, "/", 0);
    assert_page("document.activeElement.id === 'find'");
    browser_type(chromium, "9f37");
    assert_page("document.getElementById('found').textContent === '1 found'");
    browser_key(chromium, "Enter", 0);
    assert_page("document.getElementById('found').textContent === '1 of 1'");
    spot at = page_spot(chromium, 0, "9F37");
    assert_true(at.width >= 20);
    assert_true(at.x > 60 && at.x < 1366 && at.y > 60 && at.y < 768);
    tip_says("9F37 on rank 1");
    browser_value(chromium, "document.getElementById('find').select()");
    browser_type(chromium, "B5");
    assert_page("document.getElementById('found').textContent === '16 found'");
    browser_key(chromium, "Enter", 0);
    browser_key(chromium, "Enter", 8);
    assert_page("document.getElementById('found').textContent === '16 of 16'");
    browser_key(chromium, "Escape", 0);
    browser_key(chromium, "n", 0);
    assert_page("document.getElementById('found').textContent === '1 of 16'");
    browser_key(chromium, "/", 0);
    browser_type(chromium, "UNSHARD3");
    assert_page("document.getElementById('found').textContent === 'nothing'");
    browser_value(chromium, "document.getElementById('find').select()");
    browser_type(chromium, "<b>2F");
    assert_page("document.getElementById('found').textContent === 'nothing'");
    page_is_content(chromium);
}

static void found(const char *text, const char *expected)
{
    char script[200];
    json_decref(
        browser_value(chromium, "document.getElementById('find').select()"));
    browser_type(chromium, text);
    snprintf(script, sizeof script,
             "document.getElementById('found').textContent === '%s'", expected);
    if (!browser_true(chromium, script))
        fail_msg("%s: not '%s'", text, expected);
}

static void search_finds_overlaps(void **state)
{
    (void)state;
    page_show(&shown, chromium, "DualPipeV", 4, 2, 10);
    char *text = browser_text(
        chromium, "(() => { const t = sluice.timelines[0]; return "
                  "sluice.blockText(t, [...t.blocks.second.keys()][0]); })()");
    browser_key(chromium, "/", 0);
    found(text, "1 found");
    free(text);
    found("OVERLAP_F_B99", "nothing");
    /* As many as have microbatch 4 in one of their halves. */
    char count[40];
    int expected = 0;
    for (int r = 0; r < 4; r++) {
        const sl_action *row = sl_schedule_row(shown.schedules[0], r);
        for (size_t i = 0; i < sl_schedule_length(shown.schedules[0], r); i++)
            expected += row[i].kind == SL_OVERLAP_F_B &&
                        (row[i].microbatch == 4 || row[i].b_microbatch == 4);
    }
    assert_true(expected > 0);
    snprintf(count, sizeof count, "%d found", expected);
    found("OVERLAP_F_B4", count);
    found("0F4", "1 found");
    page_is_content(chromium);
}

/* -------------------------------------------------------------- precision -- */

/* Times far from 0 are told apart, in tips and on the axis. */
static void late_times_are_exact(void **state)
{
    (void)state;
    page_add(&shown, "long", test_generate("1F1B", 8, 1, 4096), NULL);
    page_write(&shown);
    browser_load(chromium, shown.path, "from=12000.1&to=12000.9", 1366, 768);
    browser_key(chromium, "/", 0);
    browser_type(chromium, "7B3900");
    browser_key(chromium, "Enter", 0);
    /* 7F0 begins at 7; then F and B by turns: B3900 at 7 + 3 * 3900 + 1. */
    tip_says("11708 to 11710, took 2");
    assert_page("document.getElementById('compared').innerText.includes("
                "'makespan\\t12309')");
    page_is_content(chromium);
}

/* -------------------------------------------------------------- follow -- */

/* The colour in the middle of the lower half of a block's left edge. */
static int colour_of(const char *action)
{
    char script[400];
    spot at = page_spot(chromium, 0, action);
    snprintf(script, sizeof script,
             "(() => { const box = document.getElementById('host')"
             ".getBoundingClientRect(), d = document.getElementById('blocks')"
             ".getContext('2d').getImageData(Math.round(%f - box.left), "
             "Math.round(%f - box.top), 1, 1).data; return d[0] << 16 | d[1] "
             "<< 8 | d[2]; })()",
             at.x - at.width / 2 + 2, at.y - 14);
    return (int)browser_number(chromium, script);
}

static void click_follows_a_microbatch(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    assert_int_equal(colour_of("1F4"), expected_colour("1F4"));
    spot at = page_spot(chromium, 0, "2F3");
    browser_click(chromium, at.x, at.y);
    assert_page("sluice.view.follow === 3");
    assert_int_equal(colour_of("0F3"), expected_colour("0F3"));
    assert_int_equal(colour_of("3B3"), expected_colour("3B3"));
    assert_int_not_equal(colour_of("1F4"), expected_colour("1F4"));
    assert_int_not_equal(colour_of("3B0"), expected_colour("3B0"));
    tip_says("2F3 on rank 2");
    /* Again lets go. */
    browser_click(chromium, at.x, at.y);
    assert_page("sluice.view.follow === null");
    assert_int_equal(colour_of("1F4"), expected_colour("1F4"));
    page_is_content(chromium);
}

/* ------------------------------------------------------------- compare -- */

static void compares_four(void **state)
{
    (void)state;
    static const char *const names[] = {"GPipe", "1F1B", "ZBVZeroBubble",
                                        "DualPipeV"};
    for (int i = 0; i < 4; i++)
        page_add(&shown, names[i], test_generate(names[i], 4, i < 2 ? 1 : 2, 8),
                 NULL);
    page_write(&shown);
    browser_load(chromium, shown.path, NULL, 1366, 768);
    /* Two by two, then one above the other; time on one scale. */
    spot gpipe = page_spot(chromium, 0, "0F0");
    spot other = page_spot(chromium, 1, "0F0");
    spot third = page_spot(chromium, 2, "0F0");
    assert_true(other.x > gpipe.x + 400 && fabs(other.y - gpipe.y) < 1);
    assert_true(fabs(third.x - gpipe.x) < 1 && third.y > gpipe.y + 60);
    assert_true(fabs(gpipe.width - third.width) < 0.01);
    browser_key(chromium, "l", 0);
    other = page_spot(chromium, 1, "0F0");
    gpipe = page_spot(chromium, 0, "0F0");
    assert_true(fabs(other.x - gpipe.x) < 1 && other.y > gpipe.y + 60);
    /* The table tells each beside the first. */
    char *table =
        browser_text(chromium, "document.getElementById('compared').innerText");
    assert_non_null(strstr(table, "GPipe"));
    assert_non_null(strstr(table, "DualPipeV"));
    assert_non_null(strstr(table, "makespan\t33\t33\t51 +54.5 %"));
    free(table);
    page_is_content(chromium);
}

/* ------------------------------------------------------------ keyboard -- */

static void everything_works_by_keyboard(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    assert_page("document.activeElement === document.body");
    /* The controls and the timeline are all reached by Tab. */
    assert_page("[...document.querySelectorAll('button, input, #host')]"
                ".filter(e => !e.hidden).every(e => e.tabIndex === 0)");
    for (int i = 0; i < 20; i++) {
        browser_key(chromium, "Tab", 0);
        if (browser_true(chromium, "document.activeElement.id === 'host'"))
            break;
    }
    assert_page("document.activeElement.id === 'host'");
    browser_key(chromium, "ArrowRight", 0);
    tip_says("0F0 on rank 0");
    browser_key(chromium, "ArrowRight", 0);
    tip_says("0F1 on rank 0");
    browser_key(chromium, "ArrowDown", 0);
    tip_says("1F0 on rank 1");
    browser_key(chromium, "End", 0);
    tip_says("1B7 on rank 1");
    assert_page("document.getElementById('said').textContent.includes('1B7 on "
                "rank 1')");
    browser_key(chromium, "Enter", 0);
    assert_page("sluice.view.follow === 7");
    browser_key(chromium, "Escape", 0);
    assert_page("sluice.view.follow === null && sluice.view.at === null");
    double span = browser_number(chromium, "sluice.view.to - sluice.view.from");
    browser_key(chromium, "+", 0);
    browser_key(chromium, "+", 0);
    assert_true(browser_number(chromium, "sluice.view.to - sluice.view.from") <
                0.5 * span);
    double from = browser_number(chromium, "sluice.view.from");
    browser_key(chromium, "ArrowRight", 8);
    assert_true(browser_number(chromium, "sluice.view.from") > from);
    browser_key(chromium, "0", 0);
    assert_page("sluice.view.from === 0");
    static const char *const switches[] = {"c", "path",   "i", "idle",
                                           "m", "memory", "a", "arrows"};
    for (int i = 0; i < 8; i += 2) {
        char script[120];
        snprintf(script, sizeof script,
                 "document.getElementById('%s').getAttribute('aria-pressed') "
                 "=== String(sluice.view.%s)",
                 switches[i + 1], switches[i + 1]);
        assert_page(script);
        char value[60];
        snprintf(value, sizeof value, "sluice.view.%s", switches[i + 1]);
        bool was = browser_true(chromium, value);
        browser_key(chromium, switches[i], 0);
        assert_int_equal(browser_true(chromium, value), !was);
        assert_page(script);
    }
    browser_key(chromium, "t", 0);
    assert_page("document.documentElement.dataset.theme === 'dark'");
    browser_key(chromium, "?", 0);
    assert_page("document.getElementById('keys').open");
    browser_key(chromium, "Escape", 0);
    assert_page("!document.getElementById('keys').open");
    page_is_content(chromium);
}

/* ---------------------------------------------------- path and memory -- */

static void critical_path_and_memory_show(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    /* What is marked is what the simulation says. */
    size_t count;
    const sl_place *path =
        sl_simulation_critical_path(shown.simulations[0], &count);
    json_t *marked = browser_value(
        chromium, "(() => { const t = sluice.timelines[0], out = []; for (let "
                  "i = 0; i < t.blocks.count; i++) if (t.blocks.critical[i]) "
                  "out.push(sluice.blockText(t, i)); return out; })()");
    assert_int_equal(json_array_size(marked), count);
    for (size_t i = 0; i < count; i++) {
        char text[SL_ACTION_TEXT_MAX];
        bool found = false;
        json_t *one;
        size_t k;
        sl_action_print(
            &sl_schedule_row(shown.schedules[0], path[i].rank)[path[i].step],
            text);
        json_array_foreach(marked, k, one)
        {
            found = found || strcmp(json_string_value(one), text) == 0;
        }
        assert_true(found);
    }
    json_decref(marked);
    static const char accent[] =
        "(() => { const c = document.getElementById('blocks'), d = c.getContext"
        "('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; for "
        "(let i = 0; i < d.length; i += 4) n += d[i] === %d && d[i + 1] === %d "
        "&& d[i + 2] === %d; return n; })()";
    char script[400];
    snprintf(script, sizeof script, accent, 0xb0, 0x00, 0x58);
    assert_int_equal(browser_number(chromium, script), 0);
    browser_key(chromium, "c", 0);
    assert_true(browser_number(chromium, script) > 1000);
    snprintf(script, sizeof script, accent, 0x9f, 0xb8, 0xcd);
    assert_true(browser_number(chromium, script) > 500);
    browser_key(chromium, "m", 0);
    assert_int_equal(browser_number(chromium, script), 0);
    /* Bytes of each block are the simulation's. */
    const sl_action *row = sl_schedule_row(shown.schedules[0], 1);
    for (size_t step = 0; step < sl_schedule_length(shown.schedules[0], 1);
         step++) {
        char text[SL_ACTION_TEXT_MAX], value[300];
        sl_held_bytes held = sl_simulation_bytes(shown.simulations[0], 1, step);
        if (row[step].kind == SL_IDLE)
            continue;
        sl_action_print(&row[step], text);
        snprintf(value, sizeof value,
                 "(() => { const t = sluice.timelines[0], b = t.blocks; for "
                 "(let i = 0; i < b.count; i++) if (sluice.blockText(t, i) === "
                 "'%s') return b.during[i] === %lld && b.after[i] === %lld; "
                 "})()",
                 text, (long long)held.during, (long long)held.after);
        assert_page(value);
    }
    page_is_content(chromium);
}

/* ------------------------------------------------------------- address -- */

static void address_holds_what_you_saw(void **state)
{
    (void)state;
    page_show(&shown, chromium, "ZBVZeroBubble", 4, 2, 8);
    spot at = page_spot(chromium, 0, "5I3");
    browser_wheel(chromium, at.x, at.y, -300, 0);
    at = page_spot(chromium, 0, "5I3");
    browser_click(chromium, at.x, at.y);
    browser_move(chromium, 4, 4);
    browser_key(chromium, "c", 0);
    browser_key(chromium, "i", 0);
    browser_key(chromium, "t", 0);
    json_decref(browser_value(
        chromium, "new Promise(done => setTimeout(() => done(1), 400))"));
    char *hash = browser_text(chromium, "location.hash");
    char *view = browser_text(chromium, "JSON.stringify(sluice.view)");
    char *tip = tip_text();
    static const char picture[] =
        "document.getElementById('blocks').toDataURL() + "
        "document.getElementById('marks').toDataURL()";
    char *pixels = browser_text(chromium, picture);
    browser_load(chromium, shown.path, hash + 1, 1366, 768);
    json_decref(browser_value(
        chromium, "new Promise(done => setTimeout(() => done(1), 400))"));
    char *again = browser_text(chromium, "JSON.stringify(sluice.view)");
    char *tip_again = tip_text();
    char *pixels_again = browser_text(chromium, picture);
    assert_string_equal(view, again);
    assert_string_equal(tip, tip_again);
    assert_non_null(strstr(tip, "5I3 on rank 2"));
    assert_true(strcmp(pixels, pixels_again) == 0);
    free(hash);
    free(view);
    free(tip);
    free(pixels);
    free(again);
    free(tip_again);
    free(pixels_again);
    /* Another address in the same page: what it leaves out is as usual. */
    json_decref(browser_value(chromium, "location.hash = 'show=idle'"));
    json_decref(browser_value(
        chromium, "new Promise(done => setTimeout(() => done(1), 400))"));
    assert_page("sluice.view.theme === '' && sluice.view.follow === null && "
                "sluice.view.from === 0 && !sluice.view.memory");
    /* What makes no sense is as if left out. */
    browser_load(chromium, shown.path,
                 "from=x&to=-1e999&at=9.9.b9&follow=999999&show=__proto__&"
                 "layout=%&theme=<script>&rows=1e9&find=%3Cimg%20src=x%3E&&=",
                 1366, 768);
    assert_page("sluice.view.from === 0 && sluice.view.at === null && "
                "sluice.view.follow === null && sluice.view.rows === 1");
    page_is_content(chromium);
}

static void address_holds_how_far_down(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 128, 1, 4);
    json_decref(browser_value(
        chromium, "document.getElementById('host').scrollTop = 500; new "
                  "Promise(done => setTimeout(() => done(1), 500))"));
    char *hash = browser_text(chromium, "location.hash");
    browser_load(chromium, shown.path, hash + 1, 1366, 768);
    assert_page("document.getElementById('host').scrollTop === 500");
    free(hash);
    page_is_content(chromium);
}

/* ------------------------------------------------------------- hostile -- */

static void hostile_titles_are_text(void **state)
{
    (void)state;
    static const char title[] =
        "</script><img src=x onerror=\"hacked=1\"><!--'\"&amp;\\\xff"
        "\x01<script>hacked=1</script>]]>\xe2\x80\xa8${hacked=1}";
    page_add(&shown, title, test_generate("1F1B", 2, 1, 4), NULL);
    page_add(&shown, title, test_generate("ZBVZeroBubble", 2, 2, 4), NULL);
    page_write(&shown);
    browser_load(chromium, shown.path, NULL, 1366, 768);
    assert_page("typeof hacked === 'undefined'");
    assert_page("document.images.length === 0");
    assert_page("sluice.timelines[0].title.startsWith('</script><img src=x')");
    assert_page("document.getElementById('title').textContent.includes("
                "'<script>hacked=1</script>')");
    assert_page("document.title.includes('<img src=x')");
    page_is_content(chromium);
}

static void enormous_numbers_are_shown(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.stage = (sl_stage_cost){9e99, 9e99, 9e99, 9e99, 1, 0};
    costs.edge.bytes = INT64_C(1) << 61;
    page_add(&shown, "huge", test_generate("1F1B", 4, 1, 8), &costs);
    sl_costs tiny = SL_COSTS_INIT;
    tiny.stage = (sl_stage_cost){1e-300, 1e-300, 1e-300, 2e-300, 1, 0};
    page_write(&shown);
    browser_load(chromium, shown.path, NULL, 1366, 768);
    assert_page("sluice.timelines[0].blocks.count === 64");
    spot at = page_spot(chromium, 0, "2F3");
    assert_true(at.width > 5);
    browser_move(chromium, at.x, at.y);
    tip_says("2F3 on rank 2");
    page_clear(&shown);
    page_add(&shown, "tiny", test_generate("1F1B", 4, 1, 8), &tiny);
    sl_schedule *empty;
    assert_ok(sl_schedule_create(2, &empty));
    page_add(&shown, "none", empty, &tiny);
    page_write(&shown);
    browser_load(chromium, shown.path, "layout=stack", 1366, 768);
    at = page_spot(chromium, 0, "2F3");
    assert_true(at.width > 5);
    page_is_content(chromium);
}

/* ------------------------------------------------- paper, small screens -- */

static void fits_screens_and_paper(void **state)
{
    (void)state;
    static const int widths[] = {1366, 1024, 390};
    static const char *const names[] = {"GPipe", "1F1B", "ZBVZeroBubble",
                                        "DualPipeV"};
    for (int i = 0; i < 4; i++)
        page_add(&shown, names[i], test_generate(names[i], 4, i < 2 ? 1 : 2, 8),
                 NULL);
    page_write(&shown);
    for (int i = 0; i < 3; i++) {
        browser_load(chromium, shown.path, NULL, widths[i], 700);
        assert_page("document.documentElement.scrollWidth <= innerWidth");
        assert_page("document.getElementById('host').clientHeight > 150");
        /* Nothing is behind a scroll bar. */
        assert_page("document.getElementById('blocks').clientWidth <= "
                    "document.getElementById('host').clientWidth");
    }
    assert_true(browser_print(chromium) > 20000);
    page_is_content(chromium);
}

/* How many pixels of the timeline are not plain, as it would be on paper. */
static const char paper[] =
    "(() => { dispatchEvent(new Event('beforeprint')); const c = "
    "document.getElementById('blocks'), d = c.getContext('2d').getImageData(0, "
    "0, c.width, Math.min(c.height, 4000)).data; let n = 0; for (let i = 0; i "
    "< d.length; i += 4) n += d[i + 3] === 255 && Math.abs(d[i] - d[i + 2]) > "
    "40; const height = c.height; dispatchEvent(new Event('afterprint')); "
    "return [n, height, document.documentElement.dataset.theme]; })()";

static void paper_has_all_ranks(void **state)
{
    (void)state;
    static const int ranks[] = {4, 4096};
    for (int i = 0; i < 2; i++) {
        page_show(&shown, chromium, "1F1B", ranks[i], 1, 4);
        browser_key(chromium, "t", 0);
        json_t *found_paper = browser_value(chromium, paper);
        assert_true(number_at(found_paper, 0) > 10000);
        assert_true(number_at(found_paper, 1) > ranks[i]);
        assert_true(number_at(found_paper, 1) <= 16384);
        json_decref(found_paper);
        page_is_content(chromium);
        page_clear(&shown);
    }
}

/* ------------------------------------------------------------ pictures -- */

/* The SVG is well-formed to a parser that is not ours, and has a block for every
 * action. */
static void parse_svg(const char *name, sl_schedule *schedule, void *context)
{
    page one = {0};
    sl_string svg = SL_STRING_INIT;
    (void)name;
    (void)context;
    page_add(&one, "<&\"'\x01\xff]]>", schedule, NULL);
    assert_ok(sl_view_write_svg((const sl_timeline *const *)one.timelines, 1,
                                NULL, sl_write_string, &svg));
    json_t *quoted = json_string(svg.data);
    char *literal = json_dumps(quoted, JSON_ENCODE_ANY);
    size_t room = strlen(literal) + 300;
    char *script = malloc(room);
    snprintf(script, room,
             "(() => { const d = new DOMParser().parseFromString(%s, "
             "'image/svg+xml'); return d.querySelector('parsererror') ? -1 "
             ": d.querySelectorAll('rect.block').length; })()",
             literal);
    assert_int_equal(browser_number(chromium, script),
                     sl_schedule_extent(schedule).actions);
    free(script);
    free(literal);
    json_decref(quoted);
    sl_string_clear(&svg);
    page_clear(&one);
}

static void svg_of_every_golden_is_well_formed(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 2, 1, 2);
    assert_true(test_each_golden(parse_svg, NULL) >= 60);
}

int main(void)
{
    enum { SKIPPED = 77 };
    const char *required = getenv("SLUICE_BROWSER");
    chromium = browser_open();
    if (!chromium) {
        bool fails = required && strcmp(required, "required") == 0;
        fprintf(stderr, "no chromium here%s\n", fails ? "" : ": skipped");
        return fails ? 1 : SKIPPED;
    }
#define PAGE_TEST(name) cmocka_unit_test_teardown(name, clear_page)
    const struct CMUnitTest tests[] = {
        PAGE_TEST(page_shows_what_was_simulated),
        PAGE_TEST(page_shows_every_golden_schedule),
        PAGE_TEST(hover_tells_what_why_and_from_whom),
        PAGE_TEST(wheel_zooms_around_the_pointer),
        PAGE_TEST(fingers_pinch_and_drag_pans),
        PAGE_TEST(search_finds_and_goes_there),
        PAGE_TEST(search_finds_overlaps),
        PAGE_TEST(late_times_are_exact),
        PAGE_TEST(click_follows_a_microbatch),
        PAGE_TEST(compares_four),
        PAGE_TEST(everything_works_by_keyboard),
        PAGE_TEST(critical_path_and_memory_show),
        PAGE_TEST(address_holds_what_you_saw),
        PAGE_TEST(address_holds_how_far_down),
        PAGE_TEST(hostile_titles_are_text),
        PAGE_TEST(enormous_numbers_are_shown),
        PAGE_TEST(fits_screens_and_paper),
        PAGE_TEST(paper_has_all_ranks),
        PAGE_TEST(svg_of_every_golden_is_well_formed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    browser_close(chromium);
    return failed;
}

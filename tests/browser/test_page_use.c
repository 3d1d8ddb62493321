/* SPDX-License-Identifier: MIT
 *
 * The page of `sluice view` in use: mouse, fingers, keys, search and address do
 * what they say. */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- hover -- */

static void hover_tells_what_why_and_from_whom(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    spot at = page_spot(chromium, 0, "1B0");
    browser_move(chromium, at.x, at.y);
    tip_says("1B0 on rank 1");
    tip_says("backward of stage 1, microbatch 0");
    tip_says("for 2B0 on rank 2, then 0.25 units for its message");
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
    assert_int_equal(colour_of("1F4"), page_colour("1F4"));
    spot at = page_spot(chromium, 0, "2F3");
    browser_click(chromium, at.x, at.y);
    assert_page("sluice.view.follow === 3");
    assert_int_equal(colour_of("0F3"), page_colour("0F3"));
    assert_int_equal(colour_of("3B3"), page_colour("3B3"));
    assert_int_not_equal(colour_of("1F4"), page_colour("1F4"));
    assert_int_not_equal(colour_of("3B0"), page_colour("3B0"));
    tip_says("2F3 on rank 2");
    /* Again lets go. */
    browser_click(chromium, at.x, at.y);
    assert_page("sluice.view.follow === null");
    assert_int_equal(colour_of("1F4"), page_colour("1F4"));
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
    assert_non_null(
        strstr(table, "makespan\t33 units\t33 units\t51 units +54.5 %"));
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
    /* Keys zoom around what is chosen. */
    browser_key(chromium, "0", 0);
    browser_key(chromium, "Home", 0);
    browser_key(chromium, "Home", 0);
    for (int i = 0; i < 4; i++)
        browser_key(chromium, "+", 0);
    assert_page("sluice.view.at !== null && sluice.view.from <= 0.5 && "
                "sluice.view.to >= 0.5");
    browser_key(chromium, "Escape", 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAGE_TEST(hover_tells_what_why_and_from_whom),
        PAGE_TEST(wheel_zooms_around_the_pointer),
        PAGE_TEST(fingers_pinch_and_drag_pans),
        PAGE_TEST(search_finds_and_goes_there),
        PAGE_TEST(search_finds_overlaps),
        PAGE_TEST(click_follows_a_microbatch),
        PAGE_TEST(compares_four),
        PAGE_TEST(everything_works_by_keyboard),
        PAGE_TEST(address_holds_what_you_saw),
        PAGE_TEST(address_holds_how_far_down),
    };
    return page_run(tests);
}

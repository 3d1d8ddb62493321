/* SPDX-License-Identifier: MIT
 *
 * What the page of `sluice view` says, and how it can be read: numbers have
 * units and few digits, what was simulated is stated, words stay whole, and
 * colours stay those of something. */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void load(const page *p, const char *fragment, int width)
{
    browser_load(chromium, p->path, fragment, width, 900);
}

/* A run, and its plan above it. */
static void show_run(const char *name, int width)
{
    size_t length;
    char *text = test_read_file(name, &length);
    assert_ok(sl_timeline_read("a run with a longer title.json, measured", text,
                               length, &shown.timelines[1]));
    assert_ok(sl_timeline_planned("planned", shown.timelines[1],
                                  &shown.timelines[0]));
    shown.count = 2;
    free(text);
    page_write(&shown);
    load(&shown, NULL, width);
}

/* --------------------------------------------------------------- units -- */

/* A cell of a table is a count, or has a unit; what it is beside another's is a
 * ratio. */
#define CELLS(tables)                                                          \
    "[...document.querySelectorAll('" tables "')].map(e => e.innerText)"

static void units_where_none_were_given(void **state)
{
    (void)state;
    page_add(&shown, "1F1B", test_generate("1F1B", 4, 1, 8), NULL);
    page_add(&shown, "ZB-V", test_generate("ZBVZeroBubble", 4, 2, 8), NULL);
    page_write(&shown);
    load(&shown, NULL, 1366);
    assert_page("document.getElementById('compared').innerText.includes("
                "'makespan\\t33 units\\t51 units +54.5 %')");
    assert_page("document.getElementById('compared').innerText.includes("
                "'highest rank\\t4 microbatches\\t8 microbatches +100 %')");
    assert_page(CELLS("#compared tbody tr:first-child td, #idletime td, "
                      "#summary > div:nth-child(n+4) td:not(:first-child):not("
                      ":last-child)") ".filter(text => text !== '').every(text "
                                      "=> /^[\\d.]+ "
                                      "(%|units?|microbatch(es)?)( [+−][\\d.]+ "
                                      "%)?$/.test(text))");
    /* Nobody spoke of bytes. */
    assert_page("!/\\d [kMG]?B\\b|bytes/.test(document.body.innerText)");
    spot at = page_spot(chromium, 0, "1B0");
    browser_move(chromium, at.x, at.y);
    tip_says("8 to 10 units, took 2 units");
    tip_says("message from rank 2 (gradient of stage 2): under way at 8 units");
    tip_says("in flight 3 microbatches");
    page_is_content(chromium);
}

static void half_a_microbatch_is_one(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.stage.activation_bytes = 500000;
    page_add(&shown, "half", test_generate("ZBVZeroBubble", 4, 2, 8), &costs);
    sl_timeline_set_microbatch_bytes(shown.timelines[0], 1000000);
    page_write(&shown);
    load(&shown, NULL, 1366);
    assert_page("document.getElementById('compared').innerText.includes("
                "'highest rank\\t4 microbatches')");
    assert_page("document.getElementById('setup').innerText.includes("
                "'memory of a stage\\t0.5 microbatches')");
    page_is_content(chromium);
}

static void bytes_where_they_were_given(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    assert_page("document.getElementById('compared').innerText.includes("
                "'highest rank\\t6 MB')");
    assert_page("document.getElementById('compared').innerText.includes("
                "'bytes sent\\t192 MB')");
    assert_page("!/\\d microbatch|\\d B\\b/.test(document.body.innerText)");
    page_is_content(chromium);
}

/* Digits from the first that is not 0. */
#define FEW_DIGITS                                                             \
    "[...document.getElementById('summary').innerText.matchAll(/\\d+\\.\\d+/"  \
    "g)]"                                                                      \
    ".map(found => found[0].replace('.', '').replace(/^0+/, '')).filter("      \
    "digits => digits.length > 3)"

static void three_digits_are_enough(void **state)
{
    (void)state;
    sl_costs costs = SL_COSTS_INIT;
    costs.stage =
        (sl_stage_cost){1 / 3.0, 0.1, 0.1, 2 / 7.0, 0, 12345678, 0, 0};
    costs.edge = (sl_edge_cost){0.0012345, 0, 7654321};
    page_add(&shown, "odd", test_generate("1F1B", 4, 1, 8), &costs);
    page_write(&shown);
    load(&shown, NULL, 1366);
    assert_page(FEW_DIGITS ".length === 0");
    assert_page("document.getElementById('setup').innerText.includes('cost of "
                "F\\t0.333 units')");
    page_clear(&shown);
    show_run("fuzz/corpus/trace/zbv.json", 1366);
    assert_page(FEW_DIGITS ".length === 0");
    /* A part that is hardly there has no digits at all. */
    assert_page("percent(0.00004) === '< 0.01 %' && percent(0.0000655) === "
                "'0.01 %' && percent(0.000655) === "
                "'0.07 %' && percent(0.0588235) === '5.88 %' && "
                "percent(0.272727) === '27.3 %' && percent(0) === '0 %'");
    assert_page("timeText(0.06534325) === '65.3 ms' && timeText(0.9999) === "
                "'1 s' && timeText(0) === '0 s' && timeText(1234.5) === "
                "'1235 s'");
    page_is_content(chromium);
}

/* --------------------------------------------------------------- setup -- */

static void what_was_simulated_is_stated(void **state)
{
    (void)state;
    page_show(&shown, chromium, "ZBVZeroBubble", 4, 2, 8);
    static const char *const rows[] = {
        "ranks\\t4",
        "stages\\t8",
        "microbatches\\t8",
        "cost of F\\t1 unit",
        "cost of I\\t1 unit",
        "cost of W\\t1 unit",
        "each message\\t4 MB, 0.25 units",
        "memory of a stage\\t1.5 MB a microbatch",
        "communication\\tasync: messages hold no rank",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char script[200];
        snprintf(script, sizeof script,
                 "document.getElementById('setup').innerText.includes('%s')",
                 rows[i]);
        assert_page(script);
    }
    assert_page("!document.getElementById('setup').innerText.includes('cost of "
                "B')");
    assert_page("document.getElementById('how').innerText.includes('0F0 is the "
                "forward of stage 0, microbatch 0')");
    page_is_content(chromium);
}

static void costs_of_stages_are_a_range(void **state)
{
    (void)state;
    sl_stage_cost stages[2] = {{1, 0, 0, 2, 0, 8, 0, 0},
                               {1.5, 0, 0, 3, 0, 9, 0, 0}};
    sl_costs costs = SL_COSTS_INIT;
    costs.stages = stages;
    costs.stage_count = 2;
    page_add(&shown, "two", test_generate("1F1B", 2, 1, 4), &costs);
    page_write(&shown);
    load(&shown, NULL, 1366);
    assert_page("document.getElementById('setup').innerText.includes('cost of "
                "F\\t1 unit to 1.5 units')");
    assert_page("document.getElementById('setup').innerText.includes('memory "
                "of a stage\\t8 B to 9 B a microbatch')");
    page_is_content(chromium);
}

/* ----------------------------------------------------- legend, headings -- */

static void legend_has_one_form(void **state)
{
    (void)state;
    show_run("fuzz/corpus/trace/1f1b.json", 1366);
    browser_key(chromium, "c", 0);
    assert_page("document.querySelectorAll('#legend li').length > 8");
    assert_page("[...document.querySelectorAll('#legend li')].every(e => "
                "/^[\\w ]+: [^:;]+$/.test(e.innerText))");
    assert_page("[...document.querySelectorAll('#legend li')].filter(e => "
                "/^idle: (warm-up, before|drain, after|.*, in between$)/.test("
                "e.innerText)).length >= 3");
    /* No two have one colour. */
    assert_page("(() => { const all = [...document.querySelectorAll('#legend "
                "span')].map(e => e.style.background); return new Set(all)"
                ".size === all.length; })()");
    page_is_content(chromium);
}

static void words_stay_whole(void **state)
{
    (void)state;
    static const int widths[] = {1366, 500, 390};
    for (int i = 0; i < 3; i++) {
        show_run("fuzz/corpus/trace/zbv.json", widths[i]);
        char *broken = browser_text(
            chromium,
            "[...document.querySelectorAll('h1, h2, caption, th')].flatMap(e "
            "=> { const walk = document.createTreeWalker(e, NodeFilter."
            "SHOW_TEXT), broken = []; for (let node; (node = "
            "walk.nextNode());) for (const word of "
            "node.data.matchAll(/[^\\s-]+/g)) { const range = "
            "document.createRange(); range.setStart(node, word.index); "
            "range.setEnd(node, word.index + word[0].length); if (new "
            "Set([...range.getClientRects()].map(r => Math.round(r.top)))"
            ".size > 1) broken.push(word[0]); } return broken; }).join(' ')");
        if (*broken)
            fail_msg("at %d pixels: %s", widths[i], broken);
        free(broken);
        assert_page("document.documentElement.scrollWidth <= innerWidth");
        page_is_content(chromium);
        page_clear(&shown);
    }
}

/* On a wide screen tables stand side by side. */
static void tables_use_the_width(void **state)
{
    (void)state;
    page_show(&shown, chromium, "1F1B", 4, 1, 8);
    load(&shown, NULL, 1400);
    assert_page("(() => { const top = id => document.getElementById(id)"
                ".getBoundingClientRect().top; return Math.abs(top('compared') "
                "- top('idletime')) < 2; })()");
    load(&shown, NULL, 500);
    assert_page("(() => { const box = id => document.getElementById(id)"
                ".getBoundingClientRect(); return box('idletime').top >= "
                "box('compared').bottom; })()");
    page_is_content(chromium);
}

/* -------------------------------------------------------------- labels -- */

/* Each label drawn lies within a block, and within the axis' panel. */
static const char labels_script[] =
    "(() => { const c = document.getElementById('blocks').getContext('2d'), "
    "box = document.getElementById('host').getBoundingClientRect(), t = "
    "sluice.timelines[0], places = []; for (let i = 0; i < t.blocks.count; "
    "i++) { const p = sluice.placeOf(0, i); if (p.w > 2) places.push([p.x - "
    "box.left, p.x - box.left + p.w, p.y - box.top, p.h]); } let count = 0, "
    "wrong = 0; const plain = c.fillText; c.fillText = function(text, x, y, "
    "...rest) { if (this.textAlign === 'center' && y > 40) { count++; const "
    "half = this.measureText(text).width / 2; "
    "if (!places.some(([a, b, top, high]) => y > top && y < top + high && a <= "
    "x - half && x + half <= b)) wrong++; } return plain.call(this, text, x, "
    "y, ...rest); }; drawBlocks(false); delete c.fillText; return [count, "
    "wrong]; })()";

static void labels_fit_their_blocks(void **state)
{
    (void)state;
    static const char *const names[] = {"ZBVZeroBubble", "DualPipeV", "1F1B"};
    int seen = 0;
    for (int n = 0; n < 3; n++) {
        page_show(&shown, chromium, names[n], 4, n < 2 ? 2 : 1, 120);
        for (double span = 1; span < 300; span *= 1.17) {
            char script[80];
            snprintf(script, sizeof script, "sluice.setRange(100, %f)",
                     100 + span);
            json_decref(browser_value(chromium, script));
            browser_settle(chromium);
            json_t *found = browser_value(chromium, labels_script);
            int wrong = (int)json_number_value(json_array_get(found, 1));
            seen += (int)json_number_value(json_array_get(found, 0));
            json_decref(found);
            /* At the edges of the view labels move into sight. */
            if (wrong)
                fail_msg("%s over %g: %d labels do not fit", names[n], span,
                         wrong);
        }
        page_is_content(chromium);
        page_clear(&shown);
    }
    assert_true(seen > 500);
}

/* ---------------------------------------------------------- thin blocks -- */

/* Of what the middle of 64 ranks' step has on the screen: what part is a shade of
 * F, what part one of B, and what part is neither nor pale. */
static const char colours_script[] =
    "(() => { const c = document.getElementById('blocks'), shades = n => "
    "about.looks[n].shades.map(text => [1, 3, 5].map(at => "
    "parseInt(text.slice(at, at + 2), 16))), F = shades(0), B = shades(1), d = "
    "c.getContext('2d').getImageData(Math.floor(c.width * 0.45), 60, 200, "
    "c.height - 80).data, near = (list, i) => list.some(s => Math.abs(s[0] - "
    "d[i]) + Math.abs(s[1] - d[i + 1]) + Math.abs(s[2] - d[i + 2]) < 60), n = "
    "[0, 0, 0]; for (let i = 0; i < d.length; i += 4) { if (Math.min(d[i], "
    "d[i + 1], d[i + 2]) > 180) continue; n[near(F, i) ? 0 : near(B, i) ? 1 : "
    "2]++; } const all = n[0] + n[1] + n[2]; return n.map(one => one / all); "
    "})()";

static void thin_blocks_keep_their_colours(void **state)
{
    (void)state;
    static const int microbatches[] = {128, 256, 512, 1024};
    for (int i = 0; i < 4; i++) {
        page_add(&shown, "many", test_generate("1F1B", 64, 1, microbatches[i]),
                 NULL);
        page_write(&shown);
        load(&shown, NULL, 1366);
        json_t *parts = browser_value(chromium, colours_script);
        double forward = json_number_value(json_array_get(parts, 0));
        double backward = json_number_value(json_array_get(parts, 1));
        double neither = json_number_value(json_array_get(parts, 2));
        json_decref(parts);
        if (neither > 0.02 || fabs(backward / forward - 2) > 0.6)
            fail_msg("%d microbatches: %.3f F, %.3f B, %.3f neither",
                     microbatches[i], forward, backward, neither);
        page_is_content(chromium);
        page_clear(&shown);
    }
}

/* -------------------------------------------------------------- report -- */

static void write_report(const sl_view_point *points, size_t count)
{
    assert_true(test_make_folder(shown.folder));
    snprintf(shown.path, sizeof shown.path, "%s/page.html", shown.folder);
    FILE *file = fopen(shown.path, "w");
    assert_non_null(file);
    assert_ok(sl_view_write_report((const sl_timeline *const *)shown.timelines,
                                   shown.count, points, count, sl_write_stdio,
                                   file));
    assert_int_equal(fclose(file), 0);
    load(&shown, NULL, 1366);
}

static void a_report_shows_losses(void **state)
{
    (void)state;
    enum { STEPS = 2500 };
    sl_view_point *points = calloc(STEPS, sizeof *points);
    assert_non_null(points);
    for (int i = 0; i < STEPS; i++)
        points[i] = (sl_view_point){i + 1, i == 7 ? NAN : 5 - i * 0.001,
                                    (i + 1) % 100 ? NAN : 4.5 - i * 0.001};
    page_add(&shown, "1F1B", test_generate("1F1B", 4, 1, 8), NULL);
    write_report(points, STEPS);
    /* 2499 steps with a loss, three in each group. */
    assert_page("document.querySelector('#loss polyline.loss').points"
                ".numberOfItems === 833");
    assert_page("document.querySelector('#loss polyline.validation').points"
                ".numberOfItems === 25");
    assert_page("document.querySelectorAll('#loss circle.validation').length "
                "=== 25");
    assert_page("document.getElementById('loss').innerText.includes('training: "
                "mean of 3 steps')");
    assert_page("document.getElementById('loss').innerText.includes("
                "'validation loss 2 at step 2500')");
    /* It falls, from left to right. */
    assert_page("(() => { const p = [...document.querySelector('#loss "
                "polyline.loss').points]; return p.every((one, i) => !i || "
                "(one.x >= p[i - 1].x && one.y >= p[i - 1].y)) && p.at(-1).x - "
                "p[0].x > 400 && p.at(-1).y - p[0].y > 100; })()");
    page_is_content(chromium);
    page_clear(&shown);
    /* One step, and none at all. */
    page_add(&shown, "1F1B", test_generate("1F1B", 4, 1, 8), NULL);
    write_report(points + 8, 1);
    assert_page("document.querySelectorAll('#loss circle.loss').length === 1");
    page_is_content(chromium);
    page_clear(&shown);
    page_add(&shown, "1F1B", test_generate("1F1B", 4, 1, 8), NULL);
    write_report(points + 7, 1);
    assert_page("document.getElementById('loss') === null");
    page_is_content(chromium);
    free(points);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAGE_TEST(units_where_none_were_given),
        PAGE_TEST(half_a_microbatch_is_one),
        PAGE_TEST(bytes_where_they_were_given),
        PAGE_TEST(three_digits_are_enough),
        PAGE_TEST(what_was_simulated_is_stated),
        PAGE_TEST(costs_of_stages_are_a_range),
        PAGE_TEST(legend_has_one_form),
        PAGE_TEST(words_stay_whole),
        PAGE_TEST(tables_use_the_width),
        PAGE_TEST(labels_fit_their_blocks),
        PAGE_TEST(thin_blocks_keep_their_colours),
        PAGE_TEST(a_report_shows_losses),
    };
    return page_run(tests);
}

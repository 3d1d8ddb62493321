/* SPDX-License-Identifier: MIT
 *
 * The page of `sluice view` in a browser: what it shows is what was simulated,
 * whatever that is, on every screen and on paper. */
#include "page.h"
#include "view/palette.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (colour >= 0 && colour != page_colour(text_at(found, 0)))
        fail_msg("%s is #%06x, not #%06x", text_at(found, 0), (unsigned)colour,
                 (unsigned)page_colour(text_at(found, 0)));
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
    costs.stage = (sl_stage_cost){1, 1.3, 0.9, 2.1, 0, 7, 3, 0};
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

/* ----------------------------------------------------------- precision -- */

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
    tip_says("11708 to 11710 units, took 2 units");
    assert_page("document.getElementById('compared').innerText.includes("
                "'makespan\\t12309 units')");
    page_is_content(chromium);
}

/* A block that ends where the view begins colours nothing. */
static void what_is_left_of_the_view_is_not_drawn(void **state)
{
    (void)state;
    char script[400];
    page_add(&shown, "1F1B", test_generate("1F1B", 4, 1, 8), NULL);
    page_write(&shown);
    browser_load(chromium, shown.path, "from=4&to=20&show=idle", 1366, 768);
    sl__colour idle = sl__idle_colour(SL__IDLE_BACKWARD, false);
    snprintf(script, sizeof script,
             "(() => { const c = document.getElementById('blocks'), box = "
             "document.getElementById('host').getBoundingClientRect(), p = "
             "sluice.placeOf(0, 4), d = c.getContext('2d').getImageData(200, "
             "Math.round(p.y - box.top) + 2, 1, 1).data; return d[0] === %d && "
             "d[1] === %d && d[2] === %d; })()",
             idle.red, idle.green, idle.blue);
    assert_page(script);
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

/* ---------------------------------------------------------------- runs -- */

/* A run, from a file, and above it what was planned. */
static void show_run(void)
{
    size_t length;
    char *text = test_read_file("fuzz/corpus/trace/zbv.json", &length);
    assert_ok(sl_timeline_read("run", text, length, &shown.timelines[1]));
    assert_ok(
        sl_timeline_planned("plan", shown.timelines[1], &shown.timelines[0]));
    shown.count = 2;
    free(text);
    page_write(&shown);
    browser_load(chromium, shown.path, NULL, 1366, 768);
}

static void a_run_lies_under_its_plan(void **state)
{
    (void)state;
    show_run();
    assert_page(
        "!sluice.timelines[0].measured && sluice.timelines[1].measured");
    spot planned = page_spot(chromium, 0, "0F0");
    spot measured = page_spot(chromium, 1, "0F0");
    /* Both begin at 0, which is at one place. */
    assert_true(fabs((planned.x - planned.width / 2) -
                     (measured.x - measured.width / 2)) < 0.01);
    assert_true(measured.y > planned.y + 60);
    browser_move(chromium, measured.x, measured.y);
    tip_says("0F0 on rank 0");
    tip_says("\n0 to ");
    tip_says("planned 0 to ");
    tip_says("this began at the same time and took ");
    /* The same action above is outlined. */
    assert_page(
        "(() => { const box = document.getElementById('host')"
        ".getBoundingClientRect(), p = sluice.placeOf(0, 0), d = "
        "document.getElementById('marks').getContext('2d').getImageData("
        "Math.round(p.x - box.left), Math.round(p.y - box.top + p.h / "
        "2), 1, 1).data; return d[3] > 0; })()");
    assert_page("document.getElementById('differences').innerText.includes("
                "'The run ended')");
    page_is_content(chromium);
}

/* A plan with other stages is not the run's: nothing is compared with it. */
static void other_stages_are_not_compared(void **state)
{
    (void)state;
    size_t length;
    char *text = test_read_file("fuzz/corpus/trace/1f1b.json", &length);
    sl_costs costs;
    assert_ok(sl_timeline_read("run", text, length, &shown.timelines[0]));
    free(text);
    shown.count = 1;
    assert_ok(sl_timeline_costs(shown.timelines[0], 4, &costs));
    page_add(&shown, "zbv", test_generate("ZBVZeroBubble", 2, 2, 2), &costs);
    sl_timeline_set_seconds(shown.timelines[1]);
    sl_costs_clear(&costs);
    page_write(&shown);
    browser_load(chromium, shown.path, NULL, 1366, 768);
    assert_page("document.getElementById('differences') === null");
    spot at = page_spot(chromium, 0, "0F0");
    browser_move(chromium, at.x, at.y);
    char *tip = tip_text();
    assert_null(strstr(tip, "planned"));
    free(tip);
    page_is_content(chromium);
}

/* Stripes are where a compute took more than a tenth longer, and nowhere else. */
static void overruns_are_striped(void **state)
{
    (void)state;
    show_run();
    json_t *stripes = browser_value(
        chromium,
        "(() => { const box = document.getElementById('host')"
        ".getBoundingClientRect(), c = document.getElementById('blocks')"
        ".getContext('2d'), [plan, run] = sluice.timelines, means = {}; "
        "const key = (t, i) => t.blocks.kind[i] + '.' + t.blocks.stage[i]; "
        "for (let i = 0; i < plan.blocks.count; i++) means[key(plan, i)] = "
        "plan.blocks.end[i] - plan.blocks.start[i]; let right = 0, wrong = 0, "
        "striped = 0; for (let i = 0; i < run.blocks.count; i++) { const mean "
        "= means[key(run, i)], p = sluice.placeOf(1, i); if (mean === "
        "undefined "
        "|| run.blocks.kind[i] > 4 || p.w < 12) continue; const took = "
        "run.blocks.end[i] - run.blocks.start[i], d = c.getImageData("
        "Math.round(p.x - box.left), Math.round(p.y - box.top), Math.floor(p.w "
        "- 2), 8).data; let black = 0; for (let k = 0; k < d.length; k += 4) "
        "black += d[k] + d[k + 1] + d[k + 2] === 0; const over = took > 1.1 * "
        "mean; striped += over; if (over ? p.w * (took - mean) / took > 8 && "
        "black "
        "=== 0 : black > 0) wrong++; else right++; } return [right, wrong, "
        "striped]; })()");
    assert_true(number_at(stripes, 0) > 10);
    assert_int_equal(number_at(stripes, 1), 0);
    assert_true(number_at(stripes, 2) > 0);
    json_decref(stripes);
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
    costs.stage = (sl_stage_cost){9e99, 9e99, 9e99, 9e99, 0, 1, 0, 0};
    costs.edge.bytes = INT64_C(1) << 61;
    page_add(&shown, "huge", test_generate("1F1B", 4, 1, 8), &costs);
    sl_costs tiny = SL_COSTS_INIT;
    tiny.stage = (sl_stage_cost){1e-300, 1e-300, 1e-300, 2e-300, 0, 1, 0, 0};
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
    /* On paper no table is cut off. */
    browser_emulate_paper(chromium, true);
    assert_page("[...document.querySelectorAll('#summary .scroll')].every(e => "
                "getComputedStyle(e).overflowX === 'visible' && "
                "e.firstElementChild.getBoundingClientRect().width <= 720)");
    browser_emulate_paper(chromium, false);
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
    const struct CMUnitTest tests[] = {
        PAGE_TEST(page_shows_what_was_simulated),
        PAGE_TEST(page_shows_every_golden_schedule),
        PAGE_TEST(late_times_are_exact),
        PAGE_TEST(what_is_left_of_the_view_is_not_drawn),
        PAGE_TEST(critical_path_and_memory_show),
        PAGE_TEST(a_run_lies_under_its_plan),
        PAGE_TEST(other_stages_are_not_compared),
        PAGE_TEST(overruns_are_striped),
        PAGE_TEST(hostile_titles_are_text),
        PAGE_TEST(enormous_numbers_are_shown),
        PAGE_TEST(fits_screens_and_paper),
        PAGE_TEST(paper_has_all_ranks),
        PAGE_TEST(svg_of_every_golden_is_well_formed),
    };
    return page_run(tests);
}

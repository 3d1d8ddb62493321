/* SPDX-License-Identifier: MIT
 *
 * Pages for the tests of the page. */
#include "page.h"
#include "view/palette.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void page_add(page *p, const char *title, sl_schedule *schedule,
              const sl_costs *costs)
{
    assert_true(p->count < SL_VIEW_MAX_TIMELINES);
    p->schedules[p->count] = schedule;
    assert_ok(
        sl_simulate(schedule, costs, SL_ASYNC, &p->simulations[p->count]));
    assert_ok(sl_timeline_simulated(title, schedule, costs,
                                    p->simulations[p->count],
                                    &p->timelines[p->count]));
    p->count++;
}

void page_write(page *p)
{
    assert_true(test_make_folder(p->folder));
    snprintf(p->path, sizeof p->path, "%s/page.html", p->folder);
    FILE *file = fopen(p->path, "w");
    assert_non_null(file);
    assert_ok(sl_view_write_html((const sl_timeline *const *)p->timelines,
                                 p->count, sl_write_stdio, file));
    assert_int_equal(fclose(file), 0);
}

void page_clear(page *p)
{
    for (size_t i = 0; i < p->count; i++) {
        sl_timeline_destroy(p->timelines[i]);
        sl_simulation_destroy(p->simulations[i]);
        sl_schedule_destroy(p->schedules[i]);
    }
    if (p->path[0])
        test_remove_folder(p->folder);
    *p = (page){0};
}

void page_show(page *p, browser *b, const char *name, int ranks,
               int stages_per_rank, int microbatches)
{
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 0.25;
    costs.edge.bytes = 4000000;
    costs.stage.activation_bytes = 1500000;
    page_add(p, name, test_generate(name, ranks, stages_per_rank, microbatches),
             &costs);
    page_write(p);
    browser_load(b, p->path, NULL, 1366, 768);
}

spot page_spot(browser *b, int timeline, const char *action)
{
    char script[600];
    snprintf(script, sizeof script,
             "(() => { const t = sluice.timelines[%d]; for (let i = 0; i < "
             "t.blocks.count; i++) if (sluice.blockText(t, i) === '%s') { "
             "const p = sluice.placeOf(%d, i); return [p.x + p.w / 2, p.y + "
             "p.h / 2, p.w]; } return null; })()",
             timeline, action, timeline);
    json_t *found = browser_value(b, script);
    if (!json_is_array(found))
        fail_msg("no %s in timeline %d", action, timeline);
    spot at = {json_number_value(json_array_get(found, 0)),
               json_number_value(json_array_get(found, 1)),
               json_number_value(json_array_get(found, 2))};
    json_decref(found);
    return at;
}

void page_is_content(const browser *b)
{
    if (browser_complaints(b))
        fail_msg("the page complained: %s", browser_last(b));
    if (browser_requests(b))
        fail_msg("the page asked for: %s", browser_last(b));
}

int page_colour(const char *action)
{
    sl_action whole, parts[2];
    assert_ok(sl_action_parse(action, strlen(action), &whole));
    assert_true(sl_action_parts(&whole, parts) > 0);
    sl__colour colour =
        sl__look_colour(sl__look_of(parts[0].kind), parts[0].microbatch);
    return colour.red << 16 | colour.green << 8 | colour.blue;
}

/* --------------------------------------------------------------- tests -- */

browser *chromium;
page shown;

int page_teardown(void **state)
{
    (void)state;
    page_clear(&shown);
    return 0;
}

char *tip_text(void)
{
    return browser_text(chromium, "document.getElementById('tip').hidden ? '' "
                                  ": document.getElementById('tip').innerText");
}

void tip_says(const char *words)
{
    char *text = tip_text();
    if (!strstr(text, words))
        fail_msg("the tip does not say \"%s\": %s", words, text);
    free(text);
}

int page_run_tests(const struct CMUnitTest *tests, size_t count)
{
    enum { SKIPPED = 77 };
    const char *asked = getenv("SLUICE_BROWSER");
    chromium = browser_open();
    if (!chromium) {
        bool required = asked && strcmp(asked, "required") == 0;
        fprintf(stderr, "no chromium here, or only a snap of it%s\n",
                required ? "" : ": skipped");
        return required ? 1 : SKIPPED;
    }
    int failed = _cmocka_run_group_tests("page", tests, count, NULL, NULL);
    browser_close(chromium);
    return failed;
}

/* SPDX-License-Identifier: MIT
 *
 * Pages for the tests of the page: made of schedules, written to a file. */
#ifndef SL_TESTS_PAGE_H
#define SL_TESTS_PAGE_H

#include "browser.h"
#include "support.h"

/* What a page is made from. */
typedef struct page {
    sl_schedule *schedules[SL_VIEW_MAX_TIMELINES];
    sl_simulation *simulations[SL_VIEW_MAX_TIMELINES];
    sl_timeline *timelines[SL_VIEW_MAX_TIMELINES];
    size_t count;
    char folder[TEST_FOLDER_MAX];
    char path[TEST_FOLDER_MAX + 12]; /* of the page, in it */
} page;

/* Simulates a schedule, which the page then has, with these costs or NULL. */
void page_add(page *p, const char *title, sl_schedule *schedule,
              const sl_costs *costs);
void page_write(page *p);
/* Removes the file too. */
void page_clear(page *p);

/* A page of one generated schedule, loaded in a laptop's window. */
void page_show(page *p, browser *b, const char *name, int ranks,
               int stages_per_rank, int microbatches);

/* Where a block is on the screen: rank and text. */
typedef struct spot {
    double x; /* of its middle */
    double y;
    double width;
} spot;
spot page_spot(browser *b, int timeline, const char *action);

/* Fails where the page complained or asked for anything. */
void page_is_content(const browser *b);

/* What colour, as 0xrrggbb, the beginning of an action is to have. */
int page_colour(const char *action);

/* --------------------------------------------------------------- tests -- */

/* Of the test that runs: the browser, and a page, which is cleared after it. */
extern browser *chromium;
extern page shown;

/* What the tip says, to be freed; and fails where it does not say these words. */
char *tip_text(void);
void tip_says(const char *words);

#define assert_page(expression)                                                \
    do {                                                                       \
        if (!browser_true(chromium, expression))                               \
            fail_msg("not so: %s", expression);                                \
    } while (0)

#define PAGE_TEST(name) cmocka_unit_test_teardown(name, page_teardown)
int page_teardown(void **state);

/* Runs tests with a browser; where there is none, tells ctest so, or fails with
 * $SLUICE_BROWSER "required". Returns what main is to return. */
#define page_run(tests) page_run_tests((tests), sizeof(tests) / sizeof *(tests))
int page_run_tests(const struct CMUnitTest *tests, size_t count);

#endif

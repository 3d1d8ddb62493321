/* SPDX-License-Identifier: MIT
 *
 * The screenshots of the manual: pictures OUT-FOLDER RUN.html. Each shows one
 * thing that the tests of the page hold. */
#include "page.h"

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 1200, HEIGHT = 660 };

static browser *b;
static const char *folder;

static void shoot(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s.png", folder, name);
    json_decref(browser_value(
        b, "new Promise(done => setTimeout(() => done(1), 300))"));
    browser_screenshot(b, path);
}

static void open_one(page *p, const char *name, int v)
{
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 0.25;
    costs.edge.bytes = 4 << 20;
    costs.stage.activation_bytes = 96 << 20;
    page_add(p, name, test_generate(name, 4, v, 8), &costs);
    page_write(p);
    browser_load(b, p->path, NULL, WIDTH, HEIGHT);
}

static void shoot_compared(void)
{
    page p = {0};
    sl_costs half = SL_COSTS_INIT;
    half.stage = (sl_stage_cost){0.5, 0.5, 0.5, 1, 0, 48 << 20, 0};
    sl_costs full = SL_COSTS_INIT;
    full.stage.activation_bytes = 96 << 20;
    page_add(&p, "1F1B", test_generate("1F1B", 4, 1, 8), &full);
    page_add(&p, "ZB-V", test_generate("ZBVZeroBubble", 4, 2, 8), &half);
    page_write(&p);
    browser_load(b, p.path, NULL, WIDTH, HEIGHT);
    shoot("compared");
    page_clear(&p);
}

static void shoot_one(void)
{
    page p = {0};
    open_one(&p, "1F1B", 1);
    spot at = page_spot(b, 0, "1B0");
    browser_move(b, at.x, at.y);
    shoot("hover");
    browser_click(b, at.x, at.y);
    browser_move(b, 4, 4);
    browser_key(b, "Escape", 0);
    at = page_spot(b, 0, "2F3");
    browser_click(b, at.x, at.y);
    shoot("follow");
    browser_key(b, "Escape", 0);
    browser_move(b, 4, 4);
    browser_key(b, "c", 0);
    shoot("critical-path");
    page_clear(&p);
}

static void shoot_moves(void)
{
    page p = {0};
    sl_costs costs = SL_COSTS_INIT;
    costs.edge.latency = 0.2;
    page_add(&p, "Interleaved1F1B", test_generate("Interleaved1F1B", 8, 2, 64),
             &costs);
    page_write(&p);
    browser_load(b, p.path, NULL, WIDTH, HEIGHT);
    spot at = page_spot(b, 0, "3F1");
    browser_wheel(b, at.x, at.y, -1300, 0);
    shoot("zoom");
    browser_key(b, "/", 0);
    browser_type(b, "9F37");
    browser_key(b, "Enter", 0);
    shoot("search");
    browser_key(b, "Escape", 0);
    browser_key(b, "ArrowRight", 0);
    browser_key(b, "ArrowDown", 0);
    browser_key(b, "Enter", 0);
    browser_key(b, "a", 0);
    shoot("keyboard");
    /* The same from the address alone. */
    char *hash = browser_text(b, "location.hash");
    browser_load(b, p.path, hash + 1, WIDTH, HEIGHT);
    shoot("address");
    free(hash);
    page_clear(&p);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: pictures OUT-FOLDER RUN.html\n");
        return 2;
    }
    folder = argv[1];
    b = browser_open();
    if (!b) {
        fprintf(stderr, "no chromium here\n");
        return 1;
    }
    shoot_compared();
    shoot_one();
    shoot_moves();
    browser_load(b, argv[2], NULL, WIDTH, 1200);
    shoot("run");
    browser_close(b);
    return 0;
}

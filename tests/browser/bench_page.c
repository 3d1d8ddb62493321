/* SPDX-License-Identifier: MIT
 *
 * How long a large page takes to open, and how many frames a second it pans
 * with: bench_page FILE.html. Times are of this machine, on whatever cores
 * Chromium takes. */
#include "page.h"

#include <stdio.h>
#include <sys/stat.h>

/* Milliseconds until the first frame is drawn; frames a second while the view
 * moves with every frame, zoomed so that so many parts of it are one window. */
static void time_panning(browser *b, double parts)
{
    char script[800];
    snprintf(script, sizeof script,
             "new Promise(done => { const t = sluice.timelines[0], span = "
             "t.end / %g, frames = [], drawn = sluice.frames(); let n = 0; "
             "const step = now => { "
             "frames.push(now); if (frames.length === 91) { const gaps = "
             "frames.slice(1).map((x, i) => x - frames[i]).sort((x, y) => x - "
             "y); done([1000 * (sluice.frames() - drawn) / (frames[90] - "
             "frames[0]), 1000 / gaps[81]]); return; } const at "
             "= (t.end - span) * (n++ %% 90) / 90; sluice.setRange(at, at + "
             "span); requestAnimationFrame(step); }; "
             "requestAnimationFrame(step); })",
             parts);
    json_t *rates = browser_value(b, script);
    printf(
        "  1/%-5g of it in the window: %5.1f frames/s, slowest tenth %5.1f\n",
        parts, json_number_value(json_array_get(rates, 0)),
        json_number_value(json_array_get(rates, 1)));
    json_decref(rates);
}

int main(int argc, char **argv)
{
    struct stat info;
    if (argc != 2 || stat(argv[1], &info) != 0) {
        fprintf(stderr, "usage: bench_page FILE.html\n");
        return 2;
    }
    browser *b = browser_open();
    if (!b) {
        fprintf(stderr, "no chromium here\n");
        return 1;
    }
    browser_load(b, argv[1], NULL, 1366, 768);
    printf("%.1f MB, %.0f blocks, %.0f messages\n", (double)info.st_size / 1e6,
           browser_number(b, "sluice.timelines.reduce((n, t) => n + "
                             "t.blocks.count + t.comms.count, 0)"),
           browser_number(b, "sluice.timelines.reduce((n, t) => n + "
                             "t.messages.count, 0)"));
    printf("  opens in %.2f s\n",
           browser_number(b, "performance.getEntriesByName('drawn')[0]"
                             ".startTime / 1000"));
    static const double parts[] = {1.0001, 4, 32, 256, 2048};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        time_panning(b, parts[i]);
    browser_close(b);
    return 0;
}

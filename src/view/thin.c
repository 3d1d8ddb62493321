/* SPDX-License-Identifier: MIT
 *
 * Thin blocks: finds them, and divides a row's height among them. */
#include "view/thin.h"

#include "base/memory.h"

#include <math.h>

enum { THINNEST = 2, THIN_BESIDE_THIN = 4 }; /* pixels */

static double width_of(const sl__thin *thin, size_t block)
{
    const sl__block *one = &thin->blocks->data[block];
    return (one->end - one->start) * thin->scale;
}

bool sl__is_thin(const sl__thin *thin, size_t block)
{
    double width = width_of(thin, block);
    if (width < THINNEST || width >= THIN_BESIDE_THIN)
        return width < THINNEST;
    return (block > 0 && width_of(thin, block - 1) < THINNEST) ||
           (block + 1 < thin->blocks->count &&
            width_of(thin, block + 1) < THINNEST);
}

/* Adds the pixels that a block covers in each window. The halves of an overlap
 * get half each. */
static void cover(sl__thin *thin, size_t block)
{
    const sl__block *one = &thin->blocks->data[block];
    sl_action parts[2] = {one->action};
    int halves =
        one->kind == SL_OVERLAP_F_B ? sl_action_parts(&one->action, parts) : 1;
    double x0 = (one->start - thin->begin) * thin->scale;
    double x1 = (one->end - thin->begin) * thin->scale;
    bool is_thin = sl__is_thin(thin, block);
    size_t at = (size_t)(fmax(0, x0) / SL__WINDOW);
    for (; at < thin->count && (double)at * SL__WINDOW < x1; at++) {
        double part = fmin(x1, (double)(at + 1) * SL__WINDOW) -
                      fmax(x0, (double)at * SL__WINDOW);
        sl__window *window = &thin->windows[at];
        for (int i = 0; i < halves && is_thin; i++) {
            int kind = halves == 2 ? parts[i].kind : one->kind;
            window->looks[sl__look_of(kind)] += part / halves;
        }
        window->thick += is_thin ? 0 : part;
    }
}

sl_status sl__thin_find(const sl__blocks *blocks, double begin, double scale,
                        double width, sl__thin *out)
{
    sl__thin made = {.blocks = blocks, .begin = begin, .scale = scale};
    bool some = false;
    for (size_t i = 0; i < blocks->count && !some; i++)
        some = width_of(&made, i) < THINNEST;
    if (some) {
        made.count = (size_t)ceil(width / SL__WINDOW);
        SL__TRY(sl__alloc(made.count, sizeof *made.windows, &made.windows));
        for (size_t i = 0; i < blocks->count; i++)
            cover(&made, i);
    }
    *out = made;
    return SL_OK;
}

void sl__thin_clear(sl__thin *thin)
{
    free(thin->windows);
    *thin = (sl__thin){0};
}

bool sl__thin_place(const sl__thin *thin, double x, sl__look look,
                    double *out_top, double *out_height)
{
    size_t at = (size_t)(fmax(0, x) / SL__WINDOW);
    double all = 0, before = 0;
    int looks = 0;
    if (at >= thin->count)
        return false;
    const sl__window *window = &thin->windows[at];
    for (int i = 0; i < SL__LOOKS; i++) {
        before += i < (int)look ? window->looks[i] : 0;
        all += window->looks[i];
        looks += window->looks[i] > 0;
    }
    /* Height in proportion to uncovered pixels stays free. A single look gets
     * the full height, and leaves free pixels at its side. */
    double room = fmax(all, SL__WINDOW - window->thick);
    if (window->looks[look] <= 0 || (looks == 1 && all < 0.99 * room))
        return false;
    all = room;
    *out_top = before / all;
    *out_height = window->looks[look] / all;
    return true;
}

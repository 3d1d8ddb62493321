/* SPDX-License-Identifier: MIT
 *
 * Colours, for the page and for pictures alike: one for each kind, shaded by
 * microbatch so that neighbours differ. */
#ifndef SL_VIEW_PALETTE_H
#define SL_VIEW_PALETTE_H

#include "view/timeline.h"

typedef enum sl__look {
#define SL_LOOK(name, text, red, green, blue) SL__LOOK_##name,
#include "view/palette.def"
#undef SL_LOOK
    SL__LOOKS
} sl__look;

typedef struct sl__colour {
    uint8_t red;
    uint8_t green;
    uint8_t blue;
} sl__colour;

/* What a block of this kind looks like; an overlap is its two halves. */
sl__look sl__look_of(int block_kind);
const char *sl__look_text(sl__look look);

/* Shades go up and down again, from microbatch to microbatch. */
#define SL__SHADES 4
sl__colour sl__look_colour(sl__look look, int microbatch);

/* Whether text on the colour is to be white. */
bool sl__wants_white(sl__colour colour);

/* Why a rank was idle: its name in the source, in a few words for people, when
 * in the step that is, and its colour on a theme. */
const char *sl__why_name(sl__why why);
const char *sl__why_text(sl__why why);
const char *sl__why_when(sl__why why);
sl__colour sl__why_colour(sl__why why, bool dark);

#endif

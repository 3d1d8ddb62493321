/* SPDX-License-Identifier: MIT
 *
 * Colours, for pages and pictures: one for each kind of block, shaded by
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

/* The look of a kind of block. An overlap is drawn as its two halves. */
sl__look sl__look_of(int block_kind);
const char *sl__look_text(sl__look look);

/* The shade of a microbatch is its number modulo this. */
#define SL__SHADES 4
sl__colour sl__look_colour(sl__look look, int microbatch);

/* Whether text on this colour should be white. */
bool sl__wants_white(sl__colour colour);

/* A reason for which a rank was idle: its name in the source, a few words for
 * the reader, and when it occurs in a step. */
typedef struct sl__idle_text {
    const char *name;
    const char *text;
    const char *when;
    uint32_t light; /* 0xrrggbb, of either theme */
    uint32_t dark;
} sl__idle_text;
extern const sl__idle_text sl__idle_texts[SL__IDLE_REASONS];
sl__colour sl__idle_colour(sl__idle_reason why, bool dark);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Colours and the words that go with them. */
#include "view/palette.h"

#include <assert.h>

static const struct {
    const char *text;
    sl__colour colour;
} looks[SL__LOOKS] = {
#define SL_LOOK(name, text, red, green, blue) {text, {red, green, blue}},
#include "view/palette.def"
#undef SL_LOOK
};

const sl__idle_text sl__idle_texts[SL__IDLE_REASONS] = {
#define SL_IDLE_REASON(name, text, when, light, dark)                          \
    {#name, text, when, light, dark},
#include "view/idle.def"
#undef SL_IDLE_REASON
};

sl__look sl__look_of(int block_kind)
{
    switch (block_kind) {
    case SL_FORWARD: return SL__LOOK_FORWARD;
    case SL_BACKWARD:
    case SL_OVERLAP_F_B: return SL__LOOK_BACKWARD;
    case SL_BACKWARD_INPUT: return SL__LOOK_INPUT;
    case SL_BACKWARD_WEIGHT:
    case SL_SEND_F:
    case SL_SEND_B:
    case SL_RECV_F:
    case SL_RECV_B: return SL__LOOK_MESSAGE;
    case SL_UNSHARD:
    case SL_RESHARD:
    case SL_REDUCE_GRAD:
    case SL_WAIT_SEND_F:
    case SL_WAIT_SEND_B:
    case SL_WAIT_REDUCE_GRAD: return SL__LOOK_STATE;
    default: return SL__LOOK_OWN;
    }
}

const char *sl__look_text(sl__look look)
{
    assert(look < SL__LOOKS);
    return looks[look].text;
}

/* How far each shade is mixed with white, in percent. */
static const int lighter[SL__SHADES] = {0, 11, 22, 11};

static uint8_t lighten(uint8_t part, int shade)
{
    return (uint8_t)(part + (255 - part) * lighter[shade] / 100);
}

sl__colour sl__look_colour(sl__look look, int microbatch)
{
    assert(look < SL__LOOKS && microbatch >= 0);
    sl__colour base = looks[look].colour;
    int shade = microbatch % SL__SHADES;
    return (sl__colour){lighten(base.red, shade), lighten(base.green, shade),
                        lighten(base.blue, shade)};
}

bool sl__wants_white(sl__colour colour)
{
    return 299 * colour.red + 587 * colour.green + 114 * colour.blue < 132000;
}

sl__colour sl__idle_colour(sl__idle_reason why, bool dark)
{
    uint32_t rgb = dark ? sl__idle_texts[why].dark : sl__idle_texts[why].light;
    return (sl__colour){(uint8_t)(rgb >> 16), (uint8_t)(rgb >> 8),
                        (uint8_t)rgb};
}

/* SPDX-License-Identifier: MIT
 *
 * One action and its text. Printing and parsing are exact inverses: every
 * action has one text, and only that text parses as the action, give or take
 * blanks around it and around the halves of an overlap. */
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/text.h"
#include "base/writer.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *text;
    uint8_t length;
    uint8_t family;
    bool has_microbatch;
} kinds[SL_ACTION_KINDS] = {
#define SL_ACTION(name, text, family, microbatch)                              \
    {text, sizeof(text) - 1, SL_FAMILY_##family, microbatch},
#include "sluice/actions.def"
#undef SL_ACTION
};

sl_action_family sl_action_kind_family(sl_action_kind kind)
{
    return (unsigned)kind < SL_ACTION_KINDS ? kinds[kind].family
                                            : SL_FAMILY_NOTHING;
}

const char *sl_action_kind_text(sl_action_kind kind)
{
    return (unsigned)kind < SL_ACTION_KINDS ? kinds[kind].text : "";
}

/* Returned for numbers out of range. Every function that takes an action
 * refuses it. */
static const sl_action invalid = {.kind = SL_ACTION_KINDS};

sl_action sl_action_make(sl_action_kind kind, int stage, int microbatch)
{
    sl_action action = {0};
    if ((unsigned)kind >= SL_OVERLAP_F_B || (unsigned)stage >= SL_MAX_STAGES)
        return invalid;
    action.kind = (uint8_t)kind;
    action.stage = (uint16_t)stage;
    if (!kinds[kind].has_microbatch)
        return action;
    if ((unsigned)microbatch >= SL_MAX_MICROBATCHES)
        return invalid;
    action.microbatch = microbatch;
    return action;
}

sl_action sl_action_overlap(sl_action forward, sl_action backward)
{
    sl_action action = forward;
    if (forward.kind != SL_FORWARD || !sl__is_backward(backward.kind))
        return invalid;
    action.kind = SL_OVERLAP_F_B;
    action.b_kind = backward.kind;
    action.b_stage = backward.stage;
    action.b_microbatch = backward.microbatch;
    return action;
}

int sl_action_parts(const sl_action *action, sl_action parts[2])
{
    if (!action || !parts || action->kind == SL_IDLE ||
        action->kind >= SL_ACTION_KINDS)
        return 0;
    if (action->kind != SL_OVERLAP_F_B) {
        parts[0] = *action;
        return 1;
    }
    parts[0] = sl_action_make(SL_FORWARD, action->stage, action->microbatch);
    parts[1] =
        sl_action_make(action->b_kind, action->b_stage, action->b_microbatch);
    return 2;
}

bool sl_action_equal(const sl_action *a, const sl_action *b)
{
    return a && b && a->kind == b->kind && a->stage == b->stage &&
           a->microbatch == b->microbatch && a->b_kind == b->b_kind &&
           a->b_stage == b->b_stage && a->b_microbatch == b->b_microbatch;
}

/* ------------------------------------------------------------- printing -- */

static char *format_plain(int stage, uint8_t kind, int microbatch, char *out)
{
    out = sl__format_unsigned((uint64_t)stage, out);
    memcpy(out, kinds[kind].text, kinds[kind].length);
    out += kinds[kind].length;
    if (kinds[kind].has_microbatch)
        out = sl__format_unsigned((uint64_t)microbatch, out);
    return out;
}

size_t sl__action_format(const sl_action *action, char *text)
{
    char *out = text;
    if (action->kind == SL_IDLE || action->kind >= SL_ACTION_KINDS)
        return 0;
    if (action->kind != SL_OVERLAP_F_B) {
        out =
            format_plain(action->stage, action->kind, action->microbatch, out);
        return (size_t)(out - text);
    }
    *out++ = '(';
    out = format_plain(action->stage, SL_FORWARD, action->microbatch, out);
    *out++ = ';';
    out = format_plain(action->b_stage, action->b_kind, action->b_microbatch,
                       out);
    *out++ = ')';
    memcpy(out, kinds[SL_OVERLAP_F_B].text, kinds[SL_OVERLAP_F_B].length);
    out += kinds[SL_OVERLAP_F_B].length;
    return (size_t)(out - text);
}

size_t sl_action_print(const sl_action *action, char *text)
{
    if (!text)
        return 0;
    size_t length = action ? sl__action_format(action, text) : 0;
    assert(length < SL_ACTION_TEXT_MAX);
    text[length] = '\0';
    return length;
}

/* -------------------------------------------------------------- parsing -- */

typedef struct cursor {
    const char *at;
    const char *end;
} cursor;

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static void skip_blanks(cursor *text)
{
    while (text->at < text->end && is_blank(*text->at))
        text->at++;
}

static void drop_trailing_blanks(cursor *text)
{
    while (text->end > text->at && is_blank(text->end[-1]))
        text->end--;
}

/* Reads a number below `limit`, without leading zeros. */
static bool read_number(cursor *text, int limit, int *out)
{
    const char *start = text->at;
    int number = 0;
    while (text->at < text->end && is_digit(*text->at)) {
        number = number * 10 + (*text->at - '0');
        if (number >= limit)
            return false;
        text->at++;
    }
    size_t digits = (size_t)(text->at - start);
    if (digits == 0 || (digits > 1 && *start == '0'))
        return false;
    *out = number;
    return true;
}

static bool read_kind(cursor *text, uint8_t *out)
{
    const char *start = text->at;
    while (text->at < text->end &&
           ((*text->at >= 'A' && *text->at <= 'Z') || *text->at == '_'))
        text->at++;
    size_t length = (size_t)(text->at - start);
    for (int kind = SL_FORWARD; kind < SL_ACTION_KINDS; kind++) {
        if (kinds[kind].length == length &&
            memcmp(kinds[kind].text, start, length) == 0) {
            *out = (uint8_t)kind;
            return true;
        }
    }
    return false;
}

static const char *read_plain(cursor *text, sl_action *out)
{
    int stage, microbatch = 0;
    uint8_t kind;
    if (!read_number(text, SL_MAX_STAGES, &stage))
        return "a stage number from 0 to 65535";
    if (!read_kind(text, &kind) || kind == SL_OVERLAP_F_B)
        return "F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, "
               "REDUCE_GRAD, WAIT_SEND_F, WAIT_SEND_B or WAIT_REDUCE_GRAD "
               "after the stage";
    if (kinds[kind].has_microbatch &&
        !read_number(text, SL_MAX_MICROBATCHES, &microbatch))
        return "a microbatch number from 0 to 16777215 after the kind";
    if (text->at < text->end)
        return "nothing after the action";
    *out = sl_action_make(kind, stage, microbatch);
    return NULL;
}

/* Reads `(1F1;2B0)OVERLAP_F_B`; the cursor is at the parenthesis. */
static const char *read_overlap(cursor *text, sl_action *out)
{
    static const char shape[] = "an overlap like (1F1;2B0)OVERLAP_F_B";
    const char *close = memchr(text->at, ')', (size_t)(text->end - text->at));
    if (!close)
        return shape;
    const char *inside = text->at + 1;
    const char *middle = memchr(inside, ';', (size_t)(close - inside));
    cursor tail = {close + 1, text->end};
    uint8_t kind;
    if (!middle || !read_kind(&tail, &kind) || kind != SL_OVERLAP_F_B)
        return shape;
    if (tail.at < tail.end)
        return "nothing after the action";

    sl_action halves[2];
    cursor half[2] = {{inside, middle}, {middle + 1, close}};
    for (int i = 0; i < 2; i++) {
        skip_blanks(&half[i]);
        drop_trailing_blanks(&half[i]);
        const char *expected = read_plain(&half[i], &halves[i]);
        if (expected)
            return expected;
    }
    if (halves[0].kind != SL_FORWARD || !sl__is_backward(halves[1].kind))
        return "an F, then a B or an I, inside the overlap";
    *out = sl_action_overlap(halves[0], halves[1]);
    return NULL;
}

const char *sl__action_read(const char *data, size_t length, sl_action *out)
{
    cursor text = {data, data + length};
    skip_blanks(&text);
    drop_trailing_blanks(&text);
    if (text.at == text.end) {
        *out = sl_action_make(SL_IDLE, 0, 0);
        return NULL;
    }
    return *text.at == '(' ? read_overlap(&text, out) : read_plain(&text, out);
}

sl_status sl_action_parse(const char *text, size_t length, sl_action *out)
{
    SL__NEED(out);
    if (length)
        SL__NEED(text);
    else
        text = "";
    const char *expected = sl__action_read(text, length, out);
    if (!expected)
        return SL_OK;
    char quoted[SL__QUOTED_MAX];
    return sl_fail(SL_EPARSE, "'%s' is not an action: expected %s",
                   sl__quoted(text, length, quoted), expected);
}

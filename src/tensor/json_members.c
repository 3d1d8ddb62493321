/* SPDX-License-Identifier: MIT */
#include "tensor/json_members.h"

#include <string.h>

void sl__members_start(sl__members *members, sl__span text)
{
    *members =
        (sl__members){text.text, text.text, text.text + text.length, false};
}

static void skip_blanks(sl__members *members)
{
    while (members->at < members->end && *members->at &&
           strchr(" \t\r\n", *members->at))
        members->at++;
}

/* Takes one byte, after blanks. */
static bool take(sl__members *members, char byte)
{
    skip_blanks(members);
    if (members->at == members->end || *members->at != byte)
        return false;
    members->at++;
    return true;
}

/* Past the string that begins at `at`; NULL where it has no end. */
static const char *past_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
    }
    return at < end ? at + 1 : NULL;
}

/* Past the array or object that begins at `at`, whatever its brackets enclose:
 * a loop and a count, however deep it is. */
static const char *past_nested(const char *at, const char *end)
{
    size_t depth = 0;
    while (at && at < end) {
        if (*at == '"') {
            at = past_string(at, end);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
        if (depth == 0)
            return at;
    }
    return NULL;
}

/* Past a number or a word. */
static const char *past_word(const char *at, const char *end)
{
    const char *first = at;
    while (at < end && *at && !strchr(" \t\r\n,:{}[]\"", *at))
        at++;
    return at > first ? at : NULL;
}

static bool take_value(sl__members *members, sl__span *out)
{
    const char *at, *end = members->end;
    skip_blanks(members);
    at = members->at;
    if (at == end)
        return false;
    const char *past = *at == '"'                 ? past_string(at, end)
                       : *at == '{' || *at == '[' ? past_nested(at, end)
                                                  : past_word(at, end);
    if (!past)
        return false;
    *out = (sl__span){at, (size_t)(past - at)};
    members->at = past;
    return true;
}

static sl_status refuse(const sl__members *members, const char *expected)
{
    return sl_fail(SL_EPARSE, "expected %s at byte %zu", expected,
                   (size_t)(members->at - members->start));
}

sl_status sl__members_next(sl__members *members, sl__span *key, sl__span *value,
                           bool *out_more)
{
    bool first = !members->inside;
    if (first && !take(members, '{'))
        return refuse(members, "'{'");
    members->inside = true;
    *out_more = !take(members, '}');
    if (!*out_more) {
        skip_blanks(members);
        return members->at == members->end ? SL_OK : refuse(members, "the end");
    }
    if (!first && !take(members, ','))
        return refuse(members, "',' or '}'");
    skip_blanks(members);
    if (members->at == members->end || *members->at != '"' ||
        !take_value(members, key))
        return refuse(members, "a name");
    if (!take(members, ':'))
        return refuse(members, "':'");
    return take_value(members, value) ? SL_OK : refuse(members, "a value");
}

/* SPDX-License-Identifier: MIT
 *
 * See json_members.h. */
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

/* Reads `byte`, after whitespace; false if something else comes. */
static bool take(sl__members *members, char byte)
{
    skip_blanks(members);
    if (members->at == members->end || *members->at != byte)
        return false;
    members->at++;
    return true;
}

/* Returns the end of the string at `at`; NULL if it has none. */
static const char *past_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
    }
    return at < end ? at + 1 : NULL;
}

/* Returns the end of the array or object at `at`, without checking what is
 * inside: a loop that counts brackets, so any depth is fine. */
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

/* Returns the end of a number or a word. */
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

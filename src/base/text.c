/* SPDX-License-Identifier: MIT
 *
 * Quoting input in error sentences: short, printable, on one line. */
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

const char *sl__quoted(const char *text, size_t length,
                       char out[SL__QUOTED_MAX])
{
    enum { SHOWN = 32 };
    size_t used = 0;
    for (; used < length && used < SHOWN; used++) {
        unsigned char byte = (unsigned char)text[used];
        out[used] = byte >= 0x20 && byte < 0x7f ? (char)byte : '?';
    }
    if (length > SHOWN) {
        memcpy(out + used, "...", 3);
        used += 3;
    }
    out[used] = '\0';
    return out;
}

size_t sl__utf8_length(const char *text)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned least = 0x80;
    size_t length = 2;
    if (bytes[0] < 0x80)
        return bytes[0] ? 1 : 0;
    if (bytes[0] > 0xf4) {
        return 0;
    } else if (bytes[0] >= 0xf0) {
        least = 0x10000;
        length = 4;
    } else if (bytes[0] >= 0xe0) {
        least = 0x800;
        length = 3;
    } else if (bytes[0] < 0xc0) {
        return 0;
    }
    unsigned code = bytes[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3f);
    }
    /* An overlong form, a surrogate, or past the last code point. */
    bool wrong =
        code < least || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff;
    return wrong ? 0 : length;
}

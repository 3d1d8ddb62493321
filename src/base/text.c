/* SPDX-License-Identifier: MIT
 *
 * Quoting input in error sentences: short, printable, on one line. */
#include "base/text.h"

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

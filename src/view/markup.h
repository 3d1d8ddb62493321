/* SPDX-License-Identifier: MIT
 *
 * Escaping of text for HTML and SVG. */
#ifndef SL_VIEW_MARKUP_H
#define SL_VIEW_MARKUP_H

#include "base/writer.h"

/* Writes text that cannot end the element or the quoted value that it is in. */
static inline void sl__put_markup(sl__writer *writer, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': sl__puts(writer, "&lt;"); break;
        case '>': sl__puts(writer, "&gt;"); break;
        case '&': sl__puts(writer, "&amp;"); break;
        case '"': sl__puts(writer, "&quot;"); break;
        default: sl__putc(writer, *text);
        }
    }
}

#endif

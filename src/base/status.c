/* SPDX-License-Identifier: MIT
 *
 * Statuses and the per-thread sentence that explains the latest failure. The
 * function that first knows an error states it through sl_fail; callers only
 * forward the status. */
#include "sluice/base.h"

#include "base/numbers.h"
#include "base/text.h"

#include <stdarg.h>
#include <string.h>

static _Thread_local char error_text[SL__ERROR_TEXT_MAX];

const char *sl_version(void)
{
    return SL_VERSION;
}

const char *sl_status_text(sl_status status)
{
    switch (status) {
#define SL_STATUS(name, value, text)                                           \
    case SL_##name:                                                            \
        return text;
#include "sluice/status.def"
#undef SL_STATUS
    }
    return "unknown status";
}

const char *sl_error_text(void)
{
    return error_text;
}

sl_status sl_fail(sl_status status, const char *format, ...)
{
    /* Formatted into a copy first: an argument may be the current text
     * itself. */
    char text[sizeof error_text];
    va_list arguments;
    va_start(arguments, format);
    sl__vformat(text, sizeof text, format ? format : sl_status_text(status),
                arguments);
    va_end(arguments);
    /* A sentence is one line, whatever input it quotes. */
    for (char *at = text; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    }
    memcpy(error_text, text, sizeof error_text);
    return status;
}

sl_status sl__fail_lines(sl_status status, const char *text)
{
    /* `text` may be the current error text. */
    size_t length = strnlen(text, sizeof error_text - 1);
    memmove(error_text, text, length);
    error_text[length] = '\0';
    return status;
}

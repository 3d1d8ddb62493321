/* SPDX-License-Identifier: MIT
 *
 * Makes input printable, so that an error sentence can quote it. */
#ifndef SL_BASE_TEXT_H
#define SL_BASE_TEXT_H

#include "sluice/base.h"

/* Room for an error sentence, or for a report of several lines. */
enum { SL__ERROR_TEXT_MAX = 8192 };

/* The same for an error sent to another rank, which prefixes the sender's
 * number. */
enum { SL__REPORT_MAX = SL__ERROR_TEXT_MAX - 32 };

/* Fails with a text that may have several lines. Input that it quotes must have
 * been made printable. Returns `status`. */
sl_status sl__fail_lines(sl_status status, const char *text);

#define SL__QUOTED_MAX 40

/* Copies at most 32 bytes, unprintable ones as `?`, followed by `...` if there
 * were more; returns `out`. */
const char *sl__quoted(const char *text, size_t length,
                       char out[SL__QUOTED_MAX]);

/* The length in bytes of the UTF-8 character at the start of `text`, which ends
 * in NUL; 0 if there is no valid one. */
size_t sl__utf8_length(const char *text);

#endif

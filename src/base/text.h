/* SPDX-License-Identifier: MIT
 *
 * Bytes of somebody's input made fit to stand in a sentence of ours. */
#ifndef SL_BASE_TEXT_H
#define SL_BASE_TEXT_H

#include "sluice/base.h"

/* Room for the sentence of a failure, or a report of several lines. */
enum { SL__ERROR_TEXT_MAX = 8192 };

/* The same for an error sent to another rank, which puts the sender's number
 * before it. */
enum { SL__REPORT_MAX = SL__ERROR_TEXT_MAX - 32 };

/* Fails with a text that may have several lines, and nothing of anybody's input
 * that was not made fit. Returns `status`. */
sl_status sl__fail_lines(sl_status status, const char *text);

#define SL__QUOTED_MAX 40

/* Copies at most 32 bytes, every unprintable one as `?`, with `...` after them
 * where there were more; returns `out`. */
const char *sl__quoted(const char *text, size_t length,
                       char out[SL__QUOTED_MAX]);

/* Bytes of the UTF-8 character that `text`, which ends in NUL, begins with; 0
 * where it begins with none. */
size_t sl__utf8_length(const char *text);

#endif

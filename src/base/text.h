/* SPDX-License-Identifier: MIT
 *
 * Bytes of somebody's input made fit to stand in a sentence of ours. */
#ifndef SL_BASE_TEXT_H
#define SL_BASE_TEXT_H

#include <stddef.h>

#define SL__QUOTED_MAX 40

/* Copies at most 32 bytes, every unprintable one as `?`, with `...` after them
 * where there were more; returns `out`. */
const char *sl__quoted(const char *text, size_t length,
                       char out[SL__QUOTED_MAX]);

#endif

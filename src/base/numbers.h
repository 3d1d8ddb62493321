/* SPDX-License-Identifier: MIT
 *
 * Numbers as text, in and out, with a decimal point whatever locale the program
 * has set: files, pictures and sentences are the same everywhere. Whatever
 * prints or reads a number that may have a fraction goes through here. */
#ifndef SL_BASE_NUMBERS_H
#define SL_BASE_NUMBERS_H

#include <stdarg.h>
#include <stddef.h>

/* vsnprintf and snprintf. */
int sl__vformat(char *out, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));
int sl__format(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* strtod. */
double sl__parse_number(const char *text, char **end);

#endif

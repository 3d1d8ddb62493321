/* SPDX-License-Identifier: MIT
 *
 * A buffered writer over an sl_write_fn, with the few formatters that text
 * forms and JSON need.
 *
 * The first failure of the sink is remembered and later calls do nothing, so
 * callers check once, at sl__writer_finish. */
#ifndef SL_BASE_WRITER_H
#define SL_BASE_WRITER_H

#include "sluice/base.h"

#include <stdint.h>

typedef struct sl__writer {
    sl_write_fn write;
    void *context;
    sl_status status;
    size_t used;
    char buffer[1 << 15];
} sl__writer;

void sl__writer_start(sl__writer *writer, sl_write_fn write, void *context);

/* Flushes; returns the first failure, if any. */
sl_status sl__writer_finish(sl__writer *writer);

void sl__put(sl__writer *writer, const char *data, size_t length);
void sl__puts(sl__writer *writer, const char *text);
void sl__putc(sl__writer *writer, char byte);
void sl__put_spaces(sl__writer *writer, size_t count);

/* The shortest decimal text that reads back as the same number; a number that
 * JSON cannot write (infinite, NaN) is `null`. */
void sl__put_number(sl__writer *writer, double number);
void sl__put_integer(sl__writer *writer, int64_t number);

/* A JSON string, quoted and escaped. */
void sl__put_json_string(sl__writer *writer, const char *text);

/* A short printf; the result must fit 512 bytes. */
void sl__printf(sl__writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes `number` in decimal at `out` (room for 20 bytes); returns its end. */
char *sl__format_unsigned(uint64_t number, char *out);

#endif

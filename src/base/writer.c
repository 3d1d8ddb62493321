/* SPDX-License-Identifier: MIT
 *
 * The sinks for text that every caller can use, and the buffered writer in
 * front of a sink, which writes nothing more once the sink has failed. */
#include "base/writer.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/try.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sl_status sl_write_stdio(void *file, const char *data, size_t length)
{
    SL__NEED(file);
    if (length)
        SL__NEED(data);
    errno = 0;
    if (fwrite(data, 1, length, file) == length)
        return SL_OK;
    return sl_fail(SL_EIO, "cannot write: %s",
                   errno ? strerror(errno) : "unknown error");
}

sl_status sl_write_string(void *string, const char *data, size_t length)
{
    SL__NEED(string);
    if (length)
        SL__NEED(data);
    sl_string *out = string;
    SL__TRY(sl__grow(&out->data, &out->capacity, out->length + length + 1, 1));
    if (length)
        memcpy(out->data + out->length, data, length);
    out->length += length;
    out->data[out->length] = '\0';
    return SL_OK;
}

void sl_string_clear(sl_string *string)
{
    if (!string)
        return;
    free(string->data);
    *string = (sl_string)SL_STRING_INIT;
}

void sl__writer_start(sl__writer *writer, sl_write_fn write, void *context)
{
    writer->write = write;
    writer->context = context;
    writer->status = SL_OK;
    writer->used = 0;
}

static void flush(sl__writer *writer)
{
    if (!writer->status && writer->used)
        writer->status =
            writer->write(writer->context, writer->buffer, writer->used);
    writer->used = 0;
}

sl_status sl__writer_finish(sl__writer *writer)
{
    flush(writer);
    return writer->status;
}

void sl__put(sl__writer *writer, const char *data, size_t length)
{
    while (length) {
        if (writer->used == sizeof writer->buffer)
            flush(writer);
        size_t room = sizeof writer->buffer - writer->used;
        size_t part = length < room ? length : room;
        memcpy(writer->buffer + writer->used, data, part);
        writer->used += part;
        data += part;
        length -= part;
    }
}

void sl__puts(sl__writer *writer, const char *text)
{
    sl__put(writer, text, strlen(text));
}

void sl__putc(sl__writer *writer, char byte)
{
    sl__put(writer, &byte, 1);
}

void sl__put_spaces(sl__writer *writer, size_t count)
{
    while (count--)
        sl__putc(writer, ' ');
}

char *sl__format_unsigned(uint64_t number, char *out)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count)
        *out++ = digits[--count];
    return out;
}

void sl__put_integer(sl__writer *writer, int64_t number)
{
    char text[24];
    char *end = text;
    uint64_t magnitude = (uint64_t)number;
    if (number < 0) {
        *end++ = '-';
        magnitude = 0 - magnitude;
    }
    end = sl__format_unsigned(magnitude, end);
    sl__put(writer, text, (size_t)(end - text));
}

void sl__put_number(sl__writer *writer, double number)
{
    char text[40];
    if (!isfinite(number)) {
        sl__puts(writer, "null");
        return;
    }
    if (number == trunc(number) && fabs(number) < 1e15) {
        sl__put_integer(writer, (int64_t)number);
        return;
    }
    for (int precision = 6; precision <= 17; precision++) {
        sl__format(text, sizeof text, "%.*g", precision, number);
        if (sl__parse_number(text, NULL) == number)
            break;
    }
    sl__puts(writer, text);
}

void sl__put_json_string(sl__writer *writer, const char *text)
{
    sl__putc(writer, '"');
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            sl__putc(writer, '\\');
            sl__putc(writer, (char)byte);
        } else if (byte < 0x20) {
            sl__printf(writer, "\\u%04x", byte);
        } else {
            sl__putc(writer, (char)byte);
        }
    }
    sl__putc(writer, '"');
}

void sl__printf(sl__writer *writer, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = sl__vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    assert(length >= 0 && (size_t)length < sizeof text);
    sl__put(writer, text, (size_t)length);
}

/* SPDX-License-Identifier: MIT
 *
 * Switches to the C locale for the duration of a call. Only this thread's
 * locale is changed, so that other threads of the program notice nothing. */
#include "base/numbers.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* The C locale, created once and kept. In glibc creating it takes no memory and
 * does not fail; if it did, the caller's locale would stay in use. */
static locale_t get_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale;
}

int sl__vformat(char *out, size_t size, const char *format, va_list arguments)
{
    locale_t before = uselocale(get_locale());
    int length = vsnprintf(out, size, format, arguments);
    uselocale(before);
    return length;
}

int sl__format(char *out, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = sl__vformat(out, size, format, arguments);
    va_end(arguments);
    return length;
}

double sl__parse_number(const char *text, char **end)
{
    locale_t before = uselocale(get_locale());
    double number = strtod(text, end);
    uselocale(before);
    return number;
}

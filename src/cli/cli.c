/* SPDX-License-Identifier: MIT
 *
 * See cli.h. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_say(const char *verb, int status, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "sluice %s: ", verb);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return status;
}

int cli_failed(const char *verb, sl_status status)
{
    bool wrong = status == SL_EINVAL || status == SL_EPARSE ||
                 status == SL_ENOTFOUND || status == SL_EIO;
    return cli_say(verb, wrong ? CLI_WRONG : CLI_FAILED, "%s", sl_error_text());
}

int cli_flush(const char *verb, sl_status status)
{
    if (!status && fflush(stdout) == 0 && !ferror(stdout))
        return CLI_DONE;
    if (status && status != SL_EIO)
        return cli_failed(verb, status);
    return cli_say(verb, CLI_WRONG, "cannot write to standard output: %s",
                   strerror(errno ? errno : EIO));
}

/* ------------------------------------------------------------- options -- */

/* Why the latest option was refused; empty when argp itself refused it. */
static char refusal[512];

error_t cli_refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal, sizeof refusal, format, arguments);
    va_end(arguments);
    return EINVAL;
}

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* How many letters must change to turn one word into the other. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    size_t row[MOST + 1];
    size_t length_a = strlen(a), length_b = strlen(b);
    if (length_a > MOST || length_b > MOST)
        return MOST;
    for (size_t j = 0; j <= length_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t above = row[j];
            row[j] = smallest(above + 1, row[j - 1] + 1,
                              diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[length_b];
}

static int say_unknown_option(const char *verb, const struct argp *argp,
                              const char *option)
{
    char word[64];
    snprintf(word, sizeof word, "%s", option + strspn(option, "-"));
    word[strcspn(word, "=")] = '\0';
    const char *nearest = "help";
    size_t least = edit_distance(word, nearest);
    for (const struct argp_option *o = argp->options;
         o && (o->name || o->key || o->doc); o++) {
        size_t distance = o->name ? edit_distance(word, o->name) : SIZE_MAX;
        if (o->name && strcmp(o->name, word) == 0 && o->arg &&
            !strchr(option, '='))
            return cli_say(verb, CLI_WRONG, "option '--%s' needs a value",
                           word);
        if (o->name && strcmp(o->name, word) == 0 && !o->arg)
            return cli_say(verb, CLI_WRONG, "option '--%s' takes no value",
                           word);
        if (option[1] && option[1] != '-' && o->key == option[1] && o->arg)
            return cli_say(verb, CLI_WRONG, "option '-%c' needs a value",
                           option[1]);
        if (distance < least) {
            least = distance;
            nearest = o->name;
        }
    }
    return cli_say(verb, CLI_WRONG,
                   "unknown option '%.60s'; the nearest one is '--%s'", option,
                   nearest);
}

int cli_parse(const char *verb, const struct argp *argp, int argc, char **argv,
              void *input)
{
    char name[64];
    int index = 0;
    snprintf(name, sizeof name, "sluice %s", verb);
    argv[0] = name;
    refusal[0] = '\0';
    error_t error = argp_parse(argp, argc, argv, ARGP_NO_ERRS, &index, input);
    if (!error)
        return 0;
    if (refusal[0])
        return cli_say(verb, CLI_WRONG, "%s", refusal);
    if (error != EINVAL || index < 1 || index > argc)
        return cli_say(verb, CLI_WRONG, "%s", strerror(error));
    return say_unknown_option(verb, argp, argv[index - 1]);
}

error_t cli_parse_int(const char *option, const char *text, int *out)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end)
        return cli_refuse("%s takes a whole number, not '%.40s'", option, text);
    if (errno || number > INT_MAX || number < INT_MIN)
        return cli_refuse("%s %.40s is far too large", option, text);
    *out = (int)number;
    return 0;
}

error_t cli_parse_number(const char *option, const char *text, double *out)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || number < 0)
        return cli_refuse("%s takes a number from 0 up, not '%.40s'", option,
                          text);
    *out = number;
    return 0;
}

error_t cli_parse_bytes(const char *option, const char *text, int64_t *out)
{
    double number;
    error_t error = cli_parse_number(option, text, &number);
    if (error)
        return error;
    if (number != floor(number) || number > 1e18)
        return cli_refuse("%s takes a whole number of bytes, not '%.40s'",
                          option, text);
    *out = (int64_t)number;
    return 0;
}

error_t cli_parse_recv(const char *text, sl_recv *out)
{
    if (strcmp(text, "asap") == 0)
        *out = SL_RECV_ASAP;
    else if (strcmp(text, "late") == 0)
        *out = SL_RECV_LATE;
    else
        return cli_refuse("--recv takes asap or late, not '%.40s'", text);
    return 0;
}

error_t cli_parse_reading(const char *text, sl_reading *out)
{
    if (sl_reading_parse(text, out))
        return cli_refuse("--comm takes async, ordered or blocking, not "
                          "'%.40s'",
                          text);
    return 0;
}

error_t cli_take_file(const char *argument, const char **file)
{
    if (*file)
        return cli_refuse("one FILE at a time: '%.60s' and '%.60s'", *file,
                          argument);
    *file = argument;
    return 0;
}

/* --------------------------------------------------------------- input -- */

static int read_all(const char *verb, const char *name, FILE *file,
                    char **out_text, size_t *out_length)
{
    char *text = NULL;
    size_t length = 0, capacity = 0;
    for (;;) {
        if (capacity - length < 65536) {
            capacity = capacity ? 2 * capacity : 1 << 17;
            char *grown = realloc(text, capacity);
            if (!grown) {
                free(text);
                return cli_say(verb, CLI_FAILED, "%s does not fit memory",
                               name);
            }
            text = grown;
        }
        size_t got = fread(text + length, 1, capacity - length, file);
        length += got;
        if (got == 0)
            break;
    }
    if (ferror(file)) {
        free(text);
        return cli_say(verb, CLI_WRONG, "cannot read %s: %s", name,
                       strerror(errno));
    }
    *out_text = text;
    *out_length = length;
    return 0;
}

int cli_read(const char *verb, const char *path, char **out_text,
             size_t *out_length)
{
    if (!path || strcmp(path, "-") == 0) {
        if (isatty(STDIN_FILENO))
            fprintf(stderr, "sluice %s: reading standard input; Ctrl-D ends "
                            "it\n",
                    verb);
        return read_all(verb, "standard input", stdin, out_text, out_length);
    }
    FILE *file = fopen(path, "rb");
    if (!file)
        return cli_say(verb, CLI_WRONG, "cannot read %.200s: %s", path,
                       strerror(errno));
    int status = read_all(verb, path, file, out_text, out_length);
    fclose(file);
    return status;
}

int cli_read_schedule(const char *verb, const char *path, sl_schedule **out)
{
    char *text;
    size_t length;
    int exit_status = cli_read(verb, path, &text, &length);
    if (exit_status)
        return exit_status;
    sl_status status = sl_schedule_read_csv(text, length, out);
    free(text);
    if (!status)
        return 0;
    return cli_say(verb, CLI_WRONG, "%.200s: %s",
                   path && strcmp(path, "-") ? path : "standard input",
                   sl_error_text());
}

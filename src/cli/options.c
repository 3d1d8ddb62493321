/* SPDX-License-Identifier: MIT
 *
 * Options: argp parses them and writes the help. It would refuse a wrong one in
 * two lines of its own, without the nearest right one, so arguments are looked
 * through before; values are parsed by the functions at the end. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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

static bool is_last(const struct argp_option *option)
{
    return !option->name && !option->key && !option->doc;
}

/* Finds a long option by name or unambiguous beginning, as getopt does; `*many`
 * tells that it begins several. */
static const struct argp_option *
find_long(const struct argp *argp, const char *name, size_t length, bool *many)
{
    static const struct argp_option given[] = {
        {"help", '?', 0, 0, "", 0}, {"usage", 'u', 0, 0, "", 0}, {0}};
    const struct argp_option *const tables[] = {argp->options, given};
    const struct argp_option *begun = NULL;
    *many = false;
    for (int i = 0; i < 2; i++) {
        for (const struct argp_option *o = tables[i]; !is_last(o); o++) {
            if (!o->name || strncmp(o->name, name, length) != 0)
                continue;
            if (strlen(o->name) == length) {
                *many = false;
                return o;
            }
            *many = *many || begun;
            begun = o;
        }
    }
    return *many ? NULL : begun;
}

static const struct argp_option *find_short(const struct argp *argp, char key)
{
    static const struct argp_option help = {"help", '?', 0, 0, "", 0};
    for (const struct argp_option *o = argp->options; !is_last(o); o++) {
        if (o->key == key)
            return o;
    }
    return key == '?' ? &help : NULL;
}

static const char *nearest_option(const struct argp *argp, const char *name,
                                  size_t length)
{
    char word[48];
    const char *nearest = "help";
    snprintf(word, sizeof word, "%.*s", length > 40 ? 40 : (int)length, name);
    size_t least = edit_distance(word, nearest);
    for (const struct argp_option *o = argp->options; !is_last(o); o++) {
        size_t distance = o->name ? edit_distance(word, o->name) : SIZE_MAX;
        if (distance < least) {
            least = distance;
            nearest = o->name;
        }
    }
    return nearest;
}

/* Checks one `--option`; true in `*takes_next` when the next argument is its
 * value. */
static int check_long(const char *verb, const struct argp *argp,
                      const char *argument, bool *takes_next)
{
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    bool has_value = name[length] == '=';
    bool many;
    const struct argp_option *option = find_long(argp, name, length, &many);
    if (many)
        return cli_say(verb, CLI_WRONG,
                       "option '--%.*s' is short for more than one",
                       length > 60 ? 60 : (int)length, name);
    if (!option)
        return cli_say(verb, CLI_WRONG,
                       "unknown option '--%.*s'; the nearest one is '--%s'",
                       length > 60 ? 60 : (int)length, name,
                       nearest_option(argp, name, length));
    if (has_value && !option->arg)
        return cli_say(verb, CLI_WRONG, "option '--%s' takes no value",
                       option->name);
    *takes_next = option->arg && !has_value;
    return 0;
}

/* Checks `-x`, or several letters in one, likewise. */
static int check_short(const char *verb, const struct argp *argp,
                       const char *argument, bool *takes_next)
{
    for (const char *key = argument + 1; *key; key++) {
        const struct argp_option *option = find_short(argp, *key);
        if (!option)
            return cli_say(verb, CLI_WRONG,
                           "unknown option '-%c'; `sluice %s --help` shows "
                           "them",
                           *key, verb);
        if (option->arg) {
            *takes_next = key[1] == '\0';
            return 0;
        }
    }
    return 0;
}

/* Looks for options that argp would refuse with two lines of its own. */
static int check_options(const char *verb, const struct argp *argp, int argc,
                         char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        bool takes_next = false;
        int status = 0;
        if (argument[0] != '-' || !argument[1])
            continue;
        if (strcmp(argument, "--") == 0)
            break;
        status = argument[1] == '-'
                     ? check_long(verb, argp, argument, &takes_next)
                     : check_short(verb, argp, argument, &takes_next);
        if (status)
            return status;
        if (takes_next && ++i == argc)
            return cli_say(verb, CLI_WRONG, "option '%.60s' needs a value",
                           argument);
    }
    return 0;
}

int cli_parse(const char *verb, const struct argp *argp, int argc, char **argv,
              void *input)
{
    static char name[64]; /* argp keeps it for the usage line */
    snprintf(name, sizeof name, "sluice %s", verb);
    argv[0] = name;
    refusal[0] = '\0';
    int status = check_options(verb, argp, argc, argv);
    if (status)
        return status;
    error_t error = argp_parse(argp, argc, argv, 0, NULL, input);
    if (!error)
        return 0;
    return cli_say(verb, CLI_WRONG, "%s",
                   refusal[0] ? refusal : strerror(error));
}

error_t cli_parse_int(const char *option, const char *text, int *out)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end)
        return cli_refuse("%s takes a whole number, not '%.40s'", option, text);
    if (errno || number > INT_MAX || number < INT_MIN)
        return cli_refuse("%s %.40s is out of range", option, text);
    *out = (int)number;
    return 0;
}

error_t cli_parse_size(const char *option, const char *text, int *out)
{
    error_t error = cli_parse_int(option, text, out);
    if (!error && *out < 1)
        error = cli_refuse("%s must be at least 1, not %d", option, *out);
    return error;
}

error_t cli_parse_sizes(int key, const char *text, sl_sizes *out)
{
    switch (key) {
    case 'p': return cli_parse_size("--ranks", text, &out->ranks);
    case 'v':
        return cli_parse_size("--stages-per-rank", text, &out->stages_per_rank);
    case 'm': return cli_parse_size("--microbatches", text, &out->microbatches);
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ------------------------------------------------------------- schedules -- */

void cli_put_sizes(const sl_sizes *given, sl_sizes *over)
{
    if (given->ranks)
        over->ranks = given->ranks;
    if (given->stages_per_rank)
        over->stages_per_rank = given->stages_per_rank;
    if (given->microbatches)
        over->microbatches = given->microbatches;
}

static int *size_of(sl_sizes *sizes, char key)
{
    switch (key) {
    case 'p': return &sizes->ranks;
    case 'v': return &sizes->stages_per_rank;
    case 'm': return &sizes->microbatches;
    default: return NULL;
    }
}

/* Parses v=2,m=16 after a name. */
static bool parse_named_sizes(const char *list, sl_sizes *out)
{
    for (bool more = true; more;) {
        char *end;
        int *size = size_of(out, *list);
        if (!size || *size || list[1] != '=' || list[2] < '0' || list[2] > '9')
            return false;
        errno = 0;
        long number = strtol(list + 2, &end, 10);
        if (errno || number < 1 || number > INT_MAX || (*end && *end != ','))
            return false;
        *size = (int)number;
        more = *end == ',';
        list = end + 1;
    }
    return true;
}

static bool is_csv(const char *name, size_t length)
{
    return length > 4 && strncasecmp(name + length - 4, ".csv", 4) == 0;
}

int cli_parse_schedule(const char *verb, const char *argument,
                       cli_schedule_name *out)
{
    const sl_generator *generator;
    size_t length = strcspn(argument, ":");
    *out = (cli_schedule_name){.name = argument, .words = ""};
    if (!argument[length] || length >= sizeof out->text)
        return CLI_DONE;
    memcpy(out->text, argument, length);
    bool known = sl_generator_find(out->text, &generator) == SL_OK;
    /* A file may have a colon in its name. */
    if (!known &&
        (access(argument, F_OK) == 0 || is_csv(argument, strlen(argument))))
        return CLI_DONE;
    if (!known && (is_csv(argument, length) || access(out->text, F_OK) == 0))
        return cli_say(verb, CLI_WRONG,
                       "%.100s is a file and has its sizes; '%.60s' after it "
                       "is for names only",
                       out->text, argument + length);
    out->name = out->text;
    out->words = argument + length + 1;
    if (!parse_named_sizes(out->words, &out->sizes))
        return cli_say(verb, CLI_WRONG,
                       "after a schedule's name there are p=, v= or m= with a "
                       "number from 1 up, as in %.60s:v=2,m=16, not '%.60s'",
                       out->text, out->words);
    return CLI_DONE;
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

/* Integers are exact; a form like 3e9 is taken as far as it is. */
error_t cli_parse_bytes(const char *option, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && whole >= 0) {
        *out = whole;
        return 0;
    }
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= 0) || number > 9007199254740992.0 ||
        number != floor(number))
        return cli_refuse("%s takes a whole number of bytes from 0 to 2^63 - "
                          "1, not '%.40s'",
                          option, text);
    *out = (int64_t)number;
    return 0;
}

error_t cli_parse_reading(const char *text, sl_reading *out)
{
    if (sl_reading_parse(text, out))
        return cli_refuse("--comm takes async, per-edge, ordered or blocking, "
                          "not '%.40s'",
                          text);
    return 0;
}

error_t cli_parse_choice(const char *option, const char *text,
                         const char *const *words, size_t count, int *out)
{
    char known[120];
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = (int)i;
            return 0;
        }
    }
    return cli_refuse("%s takes %s, not '%.40s'", option,
                      cli_join(words, count, known, sizeof known), text);
}

error_t cli_parse_word(const char *option, const char *text, const char *a,
                       const char *b, bool *is_b)
{
    if (strcmp(text, a) != 0 && strcmp(text, b) != 0)
        return cli_refuse("%s is %s or %s, not '%.40s'", option, a, b, text);
    *is_b = strcmp(text, b) == 0;
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * Options: each verb describes its own in a table, from which argp's is made.
 * argp finds them in the command line and writes the help. It would refuse a
 * wrong one in two lines of its own, without the nearest right one, so
 * arguments are looked through before. */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

static bool is_last(const cli_option *option)
{
    return !option->name && !option->help;
}

static bool takes_value(const cli_option *option)
{
    return option->kind != CLI_FLAG;
}

/* Finds a long option by name or unambiguous beginning, as getopt does; `*many`
 * where it begins several. */
static const cli_option *find_long(const cli_option *options, const char *name,
                                   size_t length, bool *many)
{
    static const cli_option given[] = {{.name = "help", .kind = CLI_FLAG},
                                       {.name = "usage", .kind = CLI_FLAG},
                                       {0}};
    const cli_option *const tables[] = {options, given};
    const cli_option *begun = NULL;
    *many = false;
    for (int i = 0; i < 2; i++) {
        for (const cli_option *o = tables[i]; !is_last(o); o++) {
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

const cli_option *cli_find_option(const cli_option *options, const char *name)
{
    for (; !is_last(options); options++) {
        if (options->name && strcmp(options->name, name) == 0)
            return options;
    }
    return NULL;
}

static const cli_option *find_short(const cli_option *options, char letter)
{
    static const cli_option help = {.name = "help", .kind = CLI_FLAG};
    for (; !is_last(options); options++) {
        if (options->letter == letter)
            return options;
    }
    return letter == '?' ? &help : NULL;
}

static const char *nearest_option(const cli_option *options, const char *name,
                                  size_t length)
{
    char word[48];
    const char *nearest = "help";
    snprintf(word, sizeof word, "%.*s", length > 40 ? 40 : (int)length, name);
    size_t least = edit_distance(word, nearest);
    for (; !is_last(options); options++) {
        const char *known = options->name;
        size_t distance = known ? edit_distance(word, known) : SIZE_MAX;
        if (distance < least) {
            least = distance;
            nearest = known;
        }
    }
    return nearest;
}

/* Checks one `--option`; true in `*takes_next` when the next argument is its
 * value. */
static int check_long(const char *verb, const cli_option *options,
                      const char *argument, bool *takes_next)
{
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    int shown = length > 60 ? 60 : (int)length;
    bool has_value = name[length] == '=';
    bool many;
    const cli_option *option = find_long(options, name, length, &many);
    if (many)
        return cli_say(verb, CLI_WRONG,
                       "option '--%.*s' is short for more than one", shown,
                       name);
    if (!option)
        return cli_say(verb, CLI_WRONG,
                       "unknown option '--%.*s'; the nearest one is '--%s'",
                       shown, name, nearest_option(options, name, length));
    if (has_value && !takes_value(option))
        return cli_say(verb, CLI_WRONG, "option '--%s' takes no value",
                       option->name);
    *takes_next = takes_value(option) && !has_value;
    return CLI_DONE;
}

/* Checks `-x`, or several letters in one, likewise. */
static int check_short(const char *verb, const cli_option *options,
                       const char *argument, bool *takes_next)
{
    for (const char *key = argument + 1; *key; key++) {
        const cli_option *option = find_short(options, *key);
        if (!option)
            return cli_say(verb, CLI_WRONG,
                           "unknown option '-%c'; `sluice %s --help` shows "
                           "them",
                           *key, verb);
        if (takes_value(option)) {
            *takes_next = key[1] == '\0';
            return CLI_DONE;
        }
    }
    return CLI_DONE;
}

/* Looks for options that argp would refuse with two lines of its own. */
static int check_options(const char *verb, const cli_option *options, int argc,
                         char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        bool takes_next = false;
        if (argument[0] != '-' || !argument[1])
            continue;
        if (strcmp(argument, "--") == 0)
            break;
        CLI_TRY((argument[1] == '-' ? check_long : check_short)(
            verb, options, argument, &takes_next));
        if (takes_next && ++i == argc)
            return cli_say(verb, CLI_WRONG, "option '%.60s' needs a value",
                           argument);
    }
    return CLI_DONE;
}

/* --------------------------------------------------------------- values -- */

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

static error_t parse_size(const char *option, const char *text, int *out)
{
    error_t error = cli_parse_int(option, text, out);
    if (!error && *out < 1)
        error = cli_refuse("%s must be at least 1, not %d", option, *out);
    return error;
}

static error_t parse_count(const char *option, const char *text, int *out)
{
    error_t error = cli_parse_int(option, text, out);
    if (!error && *out < 0)
        error = cli_refuse("%s is 0 or more, not %s", option, text);
    return error;
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

/* Integers are exact; 3e9 is allowed where a double is. */
static error_t parse_bytes(const char *option, const char *text, int64_t *out)
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

/* The word at a place in "a|b|c", and its length; NULL where there
 * are fewer. */
static const char *word_at(const char *words, int place, size_t *length)
{
    for (; place > 0 && words; place--) {
        words = strchr(words, '|');
        if (words)
            words++;
    }
    *length = words ? strcspn(words, "|") : 0;
    return words;
}

/* One of the words "a|b|c", in any case; its place among them. */
error_t cli_parse_choice(const char *option, const char *text,
                         const char *words, int *out)
{
    enum { MOST = 8 };
    char copy[120], known[120];
    const char *each[MOST], *word;
    size_t length;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (; (word = word_at(words, count, &length)); count++) {
        assert(count < MOST && strlen(words) < sizeof copy);
        each[count] = copy + (word - words);
        copy[(size_t)(word - words) + length] = '\0';
        if (strcasecmp(text, each[count]) == 0) {
            *out = count;
            return 0;
        }
    }
    return cli_refuse("%s takes %s, not '%.40s'", option,
                      cli_join(each, (size_t)count, known, sizeof known), text);
}

void cli_value_text(const cli_option *option, const void *request, char *out,
                    size_t size)
{
    const void *at = (const char *)request + option->offset;
    const char *text;
    size_t length;
    out[0] = '\0';
    switch (option->kind) {
    case CLI_HEADING:
    case CLI_CUSTOM:
    case CLI_BYTES: assert(!"shown as text"); break;
    case CLI_NUMBER: cli_number_text(*(const double *)at, out, size); break;
    case CLI_FLAG: snprintf(out, size, *(const bool *)at ? "true" : ""); break;
    case CLI_TEXT:
        text = *(const char *const *)at;
        snprintf(out, size, "%s", text ? text : "");
        break;
    case CLI_CHOICE:
        text = word_at(option->value, *(const int *)at, &length);
        snprintf(out, size, "%.*s", (int)length, text);
        break;
    case CLI_INT:
    case CLI_SIZE:
    case CLI_COUNT:
        if (*(const int *)at >= (option->kind == CLI_SIZE))
            snprintf(out, size, "%d", *(const int *)at);
        break;
    }
}

static error_t parse_value(const cli_option *option, const char *text,
                           void *request)
{
    void *at = (char *)request + option->offset;
    char name[40];
    snprintf(name, sizeof name, "--%s", option->name);
    switch (option->kind) {
    case CLI_FLAG: *(bool *)at = true; return 0;
    case CLI_TEXT: *(const char **)at = text; return 0;
    case CLI_INT: return cli_parse_int(name, text, at);
    case CLI_SIZE: return parse_size(name, text, at);
    case CLI_COUNT: return parse_count(name, text, at);
    case CLI_NUMBER: return cli_parse_number(name, text, at);
    case CLI_BYTES: return parse_bytes(name, text, at);
    case CLI_CHOICE: return cli_parse_choice(name, text, option->value, at);
    case CLI_CUSTOM: return option->parse(text, at);
    case CLI_HEADING: break;
    }
    return ARGP_ERR_UNKNOWN;
}

/* -------------------------------------------------------------- parsing -- */

enum { MOST_OPTIONS = 80, FIRST_KEY = 256 };

/* What is parsed, for the callback of argp, and what the latest command line
 * gave. */
static struct {
    const cli_command *command;
    void *request;
    bool given[MOST_OPTIONS];
} latest;

static error_t take_argument(char *argument)
{
    const cli_command *command = latest.command;
    void *at = (char *)latest.request + command->offset;
    const char **taken = at;
    if (command->take)
        return command->take(argument, at);
    if (*taken)
        return cli_refuse("one %s at a time: '%.60s' and '%.60s'",
                          command->noun, *taken, argument);
    *taken = argument;
    return 0;
}

static error_t parse_key(int key, char *argument, struct argp_state *state)
{
    (void)state;
    const cli_option *options = latest.command->options;
    if (key == ARGP_KEY_ARG)
        return take_argument(argument);
    for (int i = 0; !is_last(&options[i]); i++) {
        if (key != (options[i].letter ? options[i].letter : FIRST_KEY + i))
            continue;
        latest.given[i] = true;
        return parse_value(&options[i], argument, latest.request);
    }
    return ARGP_ERR_UNKNOWN;
}

const char *cli_given(const char *const *names)
{
    for (; *names; names++) {
        const cli_option *options = latest.command->options;
        const cli_option *option = cli_find_option(options, *names);
        assert(option);
        if (latest.given[option - options])
            return *names;
    }
    return NULL;
}

int cli_parse(const char *verb, const cli_command *command, int argc,
              char **argv, void *request)
{
    static char name[64]; /* argp keeps it for the usage line */
    struct argp_option options[MOST_OPTIONS] = {0};
    for (int i = 0; !is_last(&command->options[i]); i++) {
        const cli_option *from = &command->options[i];
        assert(i + 1 < MOST_OPTIONS);
        options[i] = (struct argp_option){
            .name = from->name, .arg = from->value, .doc = from->help};
        if (from->name)
            options[i].key = from->letter ? from->letter : FIRST_KEY + i;
    }
    const struct argp argp = {
        options, parse_key, command->arguments, command->help, 0, 0, 0};
    latest.command = command;
    latest.request = request;
    memset(latest.given, 0, sizeof latest.given);
    snprintf(name, sizeof name, "sluice %s", verb);
    argv[0] = name;
    refusal[0] = '\0';
    CLI_TRY(check_options(verb, command->options, argc, argv));
    error_t error = argp_parse(&argp, argc, argv, 0, NULL, NULL);
    if (!error)
        return CLI_DONE;
    return cli_say(verb, CLI_WRONG, "%s",
                   refusal[0] ? refusal : strerror(error));
}

/* SPDX-License-Identifier: MIT
 *
 * Options of a run from a JSON file: each becomes the words that one would have
 * typed. */
#include "train.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "train"

static const struct argp_option *find(const struct argp_option *known,
                                      const char *name)
{
    for (; known->name || known->doc; known++) {
        if (known->name && strcmp(known->name, name) == 0)
            return known;
    }
    return NULL;
}

/* One option as a word, "--name=value"; NULL for a switch that is off. */
static int make_word(const struct argp_option *option, const char *name,
                     const json_t *value, char **out)
{
    char *text = NULL;
    bool flag = option && !option->arg, scalar;
    *out = NULL;
    if (!option || strcmp(name, "options") == 0)
        return cli_say(VERB, CLI_WRONG, "the options have an unknown '%.40s'",
                       name);
    if (flag && json_is_boolean(value)) {
        if (json_is_true(value) && asprintf(out, "--%s", name) < 0)
            *out = NULL;
        return CLI_DONE;
    }
    scalar = json_is_string(value) || json_is_number(value);
    if (flag || !scalar)
        return cli_say(VERB, CLI_WRONG, "'%.40s' of the options is %s", name,
                       flag ? "neither true nor false"
                            : "neither a number nor a text");
    if (json_is_string(value))
        text = strdup(json_string_value(value));
    else
        text = json_dumps(value, JSON_ENCODE_ANY);
    if (!text || asprintf(out, "--%s=%s", name, text) < 0)
        *out = NULL;
    free(text);
    return *out ? CLI_DONE : cli_say(VERB, CLI_FAILED, "out of memory");
}

/* That which is asked for last. */
const char *train_options_file(int argc, char **argv)
{
    const char *file = NULL;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--options=", 10) == 0)
            file = argv[i] + 10;
        else if (strcmp(argv[i], "--options") == 0 && i + 1 < argc)
            file = argv[i + 1];
    }
    return file;
}

/* Reads the object, and makes its words behind the first. */
static int read_words(const struct argp_option *known, const char *path,
                      const json_t *root, char **words, int *count)
{
    const char *name;
    json_t *value;
    int exit_status = CLI_DONE;
    if (!json_is_object(root))
        return cli_say(VERB, CLI_WRONG, "%.200s is not a JSON object", path);
    json_object_foreach((json_t *)root, name, value)
    {
        char *word = NULL;
        if (!exit_status)
            exit_status = make_word(find(known, name), name, value, &word);
        if (word)
            words[(*count)++] = word;
    }
    return exit_status;
}

int train_read_options(const struct argp_option *known, int argc, char **argv,
                       char ***out, int *out_count)
{
    const char *path = train_options_file(argc, argv);
    json_t *root = NULL;
    json_error_t error;
    int exit_status = CLI_DONE, count = 1;
    if (path) {
        char *text;
        size_t length;
        exit_status = cli_read(VERB, path, &text, &length);
        if (exit_status)
            return exit_status;
        root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
        free(text);
        if (!root)
            return cli_say(VERB, CLI_WRONG, "%.200s: line %d: %.80s", path,
                           error.line, error.text);
    }
    size_t most = (size_t)argc + json_object_size(root) + 1;
    char **words = calloc(most, sizeof *words);
    if (!words)
        exit_status = cli_say(VERB, CLI_FAILED, "out of memory");
    if (!exit_status) {
        words[0] = argv[0];
        if (root)
            exit_status = read_words(known, path, root, words, &count);
        for (int i = 1; i < argc; i++)
            words[count + i - 1] = argv[i];
        count += argc - 1;
    }
    json_decref(root);
    *out = words;
    *out_count = count;
    return exit_status;
}

void train_free_options(char **words, int argc, int count)
{
    /* Between the verb and what was typed are those that we made. */
    for (int i = 1; words && i < count - (argc - 1); i++)
        free(words[i]);
    free(words);
}

/* SPDX-License-Identifier: MIT
 *
 * Options of a run from JSON files: each becomes the words that one would have
 * typed. One file is given with --options; another one lies in the folder of a
 * run, which continues with the options that it had. */
#include "train.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB "train"

/* One option as a word, "--name=value"; NULL for a switch that is off. */
static int make_word(const char *path, const cli_option *option,
                     const char *name, const json_t *value, char **out)
{
    char *text = NULL;
    bool flag = option && option->kind == CLI_FLAG, scalar;
    *out = NULL;
    if (!option || strcmp(name, "options") == 0)
        return cli_say(VERB, CLI_WRONG, "%.200s has an unknown option '%.40s'",
                       path, name);
    if (flag && json_is_boolean(value)) {
        if (json_is_true(value) && asprintf(out, "--%s", name) < 0)
            *out = NULL;
        return CLI_DONE;
    }
    scalar = json_is_string(value) || json_is_number(value);
    if (flag || !scalar)
        return cli_say(VERB, CLI_WRONG, "%.200s: '%.40s' is %s", path, name,
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
static const char *options_file(int argc, char **argv)
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

/* Reads an object of options from a file. */
static int read_object(const char *path, json_t **out)
{
    char *text;
    size_t length;
    json_error_t error;
    CLI_TRY(cli_read_file(VERB, path, &text, &length));
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root)
        return cli_say(VERB, CLI_WRONG, "%.200s: line %d: %.80s", path,
                       error.line, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return cli_say(VERB, CLI_WRONG, "%.200s is not a JSON object", path);
    }
    *out = root;
    return CLI_DONE;
}

/* Appends an option's word for every key. */
static int add_object(const cli_option *known, const char *path, json_t *root,
                      train_words *words)
{
    const char *name;
    json_t *value;
    int exit_status = CLI_DONE;
    json_object_foreach(root, name, value)
    {
        char *word = NULL;
        if (!exit_status)
            exit_status = make_word(path, cli_find_option(known, name), name,
                                    value, &word);
        if (word)
            words->data[words->count++] = words->made[words->made_count++] =
                word;
    }
    return exit_status;
}

/* Where a run keeps its options. */
static void name_stored(const train_request *r, char *out, size_t size)
{
    snprintf(out, size, "%s/options.json", r->out);
}

int train_make_words(const cli_option *known, json_t *stored, int argc,
                     char **argv, train_words *out)
{
    json_t *root = NULL;
    int exit_status = CLI_DONE;
    out->path = options_file(argc, argv);
    if (out->path)
        CLI_TRY(read_object(out->path, &root));
    size_t most =
        json_object_size(root) + json_object_size(stored) + (size_t)argc + 1;
    out->data = calloc(most, sizeof *out->data);
    out->made = calloc(most, sizeof *out->made);
    if (!out->data || !out->made) {
        json_decref(root);
        return cli_say(VERB, CLI_FAILED, "out of memory");
    }
    out->data[out->count++] = argv[0];
    if (stored)
        exit_status = add_object(known, "options.json of the run", stored, out);
    if (!exit_status && root)
        exit_status = add_object(known, out->path, root, out);
    for (int i = 1; i < argc; i++)
        out->data[out->count++] = argv[i];
    json_decref(root);
    return exit_status;
}

void train_free_words(train_words *words)
{
    for (int i = 0; i < words->made_count; i++)
        free(words->made[i]);
    free(words->made);
    free(words->data);
}

/* ------------------------------------------------------------ of a run -- */

/* A schedule from a file has its sizes, and takes no others. */
static void drop_file_schedule(json_t *root)
{
    const char *name = json_string_value(json_object_get(root, "schedule"));
    if (name && cli_ends_in(name, ".csv"))
        json_object_del(root, "schedule");
}

int train_read_stored(const train_request *asked, const char *usual_schedule,
                      json_t **out_had, json_t **out)
{
    char path[4200];
    json_t *root;
    name_stored(asked, path, sizeof path);
    if (access(path, F_OK) != 0)
        return CLI_DONE; /* Older runs have none. */
    CLI_TRY(read_object(path, out_had));
    root = json_deep_copy(*out_had);
    if (!root)
        return cli_say(VERB, CLI_FAILED, "out of memory");
    /* What goes with something else that is given now, goes with it. */
    bool other = asked->schedule != usual_schedule;
    bool file = other && cli_ends_in(asked->schedule, ".csv");
    if (file || sl_mpi_is_launched())
        json_object_del(root, "ranks");
    if (file)
        json_object_del(root, "microbatches");
    if (other)
        json_object_del(root, "stages-per-rank");
    if (asked->sizes.ranks || asked->sizes.stages_per_rank ||
        asked->sizes.microbatches || sl_mpi_is_launched())
        drop_file_schedule(root);
    if (CLI_GIVEN("steps"))
        json_object_del(root, "epochs");
    *out = root;
    return CLI_DONE;
}

/* A path that means the same from everywhere. */
static void make_absolute(char *path, size_t size)
{
    char real[4096], folder[4096];
    if (!path[0] || strcmp(path, "-") == 0)
        return;
    if (realpath(path, real))
        snprintf(path, size, "%s", real);
    else if (path[0] != '/' && getcwd(folder, sizeof folder)) {
        snprintf(real, sizeof real, "%.2000s/%.2000s", folder, path);
        snprintf(path, size, "%s", real);
    }
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strcmp(*names, name) == 0)
            return true;
    }
    return false;
}

/* The options that a run keeps: what it computes and where it writes to, not
 * what was asked for once. */
static int list_kept(const train_request *r, train_item *items)
{
    static const char *const once[] = {"out",   "resume", "config",  "init",
                                       "trace", "report", "dry-run", NULL};
    static const char *const paths[] = {"data", "val", "log", NULL};
    int count = train_items(r, items), kept = 0;
    for (int i = 0; i < count; i++) {
        train_item *own = &items[i];
        bool none = !own->value[0] ||
                    (strcmp(own->name, "steps") == 0 && r->epochs > 0);
        if (none || is_one_of(own->name, once))
            continue;
        bool file = strcmp(own->name, "schedule") == 0 &&
                    cli_ends_in(own->value, ".csv");
        if (file || is_one_of(own->name, paths))
            make_absolute(own->value, sizeof own->value);
        items[kept++] = *own;
    }
    return kept;
}

/* As a JSON value: what reads as a number is one. */
static json_t *make_value(const train_item *item)
{
    json_t *value = item->is_flag
                        ? json_true()
                        : json_loads(item->value, JSON_DECODE_ANY, NULL);
    if (value && !item->is_flag && !json_is_number(value)) {
        json_decref(value);
        value = NULL;
    }
    return value ? value : json_string(item->value);
}

static sl_status write_item(const train_item *item, bool first,
                            sl_write_fn write, void *sink)
{
    json_t *value = make_value(item);
    char *text = NULL, *quoted = json_is_string(value)
                                     ? json_dumps(value, JSON_ENCODE_ANY)
                                     : NULL;
    int length = asprintf(&text, "%s\n  \"%s\": %s", first ? "" : ",",
                          item->name, quoted ? quoted : item->value);
    sl_status status = length < 0 ? sl_fail(SL_ENOMEM, "out of memory")
                                  : write(sink, text, (size_t)length);
    free(quoted);
    free(text);
    json_decref(value);
    return status;
}

static sl_status write_kept(const void *what, sl_write_fn write, void *sink)
{
    train_item *items = calloc(TRAIN_ITEMS_MAX, sizeof *items);
    if (!items)
        return sl_fail(SL_ENOMEM, "out of memory");
    int count = list_kept(what, items);
    sl_status status = write(sink, "{", 1);
    for (int i = 0; i < count && !status; i++)
        status = write_item(&items[i], i == 0, write, sink);
    free(items);
    return status ? status : write(sink, "\n}\n", 3);
}

int train_write_stored(const train_request *asked)
{
    char path[4200];
    name_stored(asked, path, sizeof path);
    return cli_write_to(VERB, path, write_kept, asked);
}

/* What the run has for an option, as one would type it; "" where it is not
 * given. */
static const char *value_of(const json_t *stored, const char *name, char *room,
                            size_t size)
{
    const json_t *value = json_object_get(stored, name);
    room[0] = '\0';
    if (json_is_string(value))
        snprintf(room, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(room, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_number(value))
        cli_number_text(json_number_value(value), room, size);
    else if (json_is_true(value))
        snprintf(room, size, "true");
    return room;
}

void train_print_differences(const train_request *asked, FILE *file)
{
    train_item *items = calloc(TRAIN_ITEMS_MAX, sizeof *items);
    int count = items && asked->stored ? list_kept(asked, items) : 0;
    int printed = 0;
    for (int i = 0; i < count; i++) {
        char before[4200], number[64];
        double now = strtod(items[i].value, NULL);
        value_of(asked->stored, items[i].name, before, sizeof before);
        /* 1e-3 and 0.001 are one. */
        cli_number_text(strtod(before, NULL), number, sizeof number);
        if (strcmp(before, items[i].value) == 0 ||
            (now != 0 && strtod(before, NULL) == now))
            continue;
        fprintf(file, "%s--%s %s", printed++ ? ", " : "with ", items[i].name,
                items[i].is_flag ? "" : items[i].value);
        fprintf(file, before[0] ? " instead of %s" : " as well", before);
    }
    if (printed)
        fputc('\n', file);
    free(items);
}

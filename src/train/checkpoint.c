/* SPDX-License-Identifier: MIT
 *
 * Checkpoints as they lie there: whether they are sound, which is the newest,
 * which may go, and reading one. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

sl_status sl__sum_json(json_t *root, char out[17])
{
    uint64_t sum = 0xcbf29ce484222325u;
    json_object_del(root, "sum");
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        return sl_fail(SL_ENOMEM, "out of memory");
    for (const char *at = text; *at; at++)
        sum = (sum ^ (unsigned char)*at) * 0x100000001b3u;
    free(text);
    snprintf(out, 17, "%016" PRIx64, sum);
    return SL_OK;
}

/* -------------------------------------------------------------- checking -- */

static sl_status damaged(const char *path, const char *why)
{
    return sl_fail(SL_EPARSE, "the checkpoint '%.300s' is damaged: %.200s",
                   path, why);
}

/* Whether the numbers are numbers that a run can have, and files are files of the
 * folder. */
static bool is_sensible(const json_t *root)
{
    static const char *const names[] = {"step", "sequences", "optimizer_steps"};
    json_t *files = json_object_get(root, "files");
    const char *name;
    json_t *file;
    bool config = false;
    for (int i = 0; i < 3; i++) {
        const json_t *number = json_object_get(root, names[i]);
        if (!json_is_integer(number) || json_integer_value(number) < 0 ||
            json_integer_value(number) > (json_int_t)1 << 53)
            return false;
    }
    json_object_foreach(files, name, file)
    {
        if (strchr(name, '/') || !json_is_object(file))
            return false;
        config |= strcmp(name, "config.json") == 0;
    }
    return config && json_object_size(files) >= 3;
}

/* Reads training.json, of which every byte counts. */
static sl_status read_training(const char *path, json_t **out)
{
    char *file = sl__join_path(path, "training.json"), *text = NULL, sum[17];
    size_t length;
    sl_status status = file ? sl__read_file(file, &text, &length)
                            : sl_fail(SL_ENOMEM, "out of memory");
    free(file);
    if (status)
        return status;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const char *known = json_string_value(json_object_get(root, "sum"));
    char kept[17] = "";
    snprintf(kept, sizeof kept, "%.16s", known ? known : "");
    if (!json_is_object(root) || sl__sum_json(root, sum) ||
        strcmp(kept, sum) != 0)
        status = damaged(path, "training.json is not as it was written");
    else if (json_integer_value(json_object_get(root, "version")) != 1)
        status = sl_fail(SL_EINVAL,
                         "the checkpoint '%.300s' is of another version", path);
    else if (!is_sensible(root))
        status = damaged(path, "training.json has what cannot be");
    if (status)
        json_decref(root);
    else
        *out = root;
    return status;
}

static void read_progress(const json_t *root, sl_progress *out)
{
    const json_t *loss = json_object_get(root, "validation");
    const char *seed = json_string_value(json_object_get(root, "seed"));
    *out = (sl_progress){
        .step = json_integer_value(json_object_get(root, "step")),
        .sequences = json_integer_value(json_object_get(root, "sequences")),
        .seed = seed ? strtoull(seed, NULL, 10) : 0,
        .validation = json_is_number(loss) ? json_number_value(loss) : NAN};
}

sl_status sl__checkpoint_progress(const char *path, sl_progress *out)
{
    json_t *root;
    sl_status status = read_training(path, &root);
    if (status)
        return status;
    read_progress(root, out);
    json_decref(root);
    return SL_OK;
}

static sl_status check_file(const char *path, const char *name,
                            const json_t *expected)
{
    char sum[17], why[200];
    int64_t bytes = 0;
    uint64_t value = 0;
    const char *known = json_string_value(json_object_get(expected, "sum"));
    char *file = sl__join_path(path, name);
    sl_status status = file ? sl__sum_file(file, &bytes, &value)
                            : sl_fail(SL_ENOMEM, "out of memory");
    free(file);
    if (status) {
        snprintf(why, sizeof why, "%.180s", sl_error_text());
        return damaged(path, why);
    }
    snprintf(sum, sizeof sum, "%016" PRIx64, value);
    if (bytes == json_integer_value(json_object_get(expected, "bytes")) &&
        known && strcmp(known, sum) == 0)
        return SL_OK;
    snprintf(why, sizeof why, "%.100s is not as it was written", name);
    return damaged(path, why);
}

sl_status sl_checkpoint_check(const char *path, sl_progress *out)
{
    json_t *root, *value;
    const char *name;
    sl_status status = read_training(path, &root);
    if (status)
        return status;
    json_object_foreach(json_object_get(root, "files"), name, value)
    {
        if (!status)
            status = check_file(path, name, value);
    }
    if (!status)
        read_progress(root, out);
    json_decref(root);
    return status;
}

/* --------------------------------------------------------------- folders -- */

static int is_checkpoint(const struct dirent *entry)
{
    const char *digits = entry->d_name + 5;
    return strncmp(entry->d_name, "step-", 5) == 0 && strlen(digits) >= 8 &&
           strlen(digits) <= 15 &&
           digits[strspn(digits, "0123456789")] == '\0' &&
           (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN);
}

/* Newest last: names are numbers of equal length, or longer ones. */
static int by_step(const struct dirent **a, const struct dirent **b)
{
    long long x = atoll((*a)->d_name + 5), y = atoll((*b)->d_name + 5);
    return (x > y) - (x < y);
}

static sl_status list(const char *folder, struct dirent ***out, int *out_count)
{
    *out_count = scandir(folder, out, is_checkpoint, by_step);
    if (*out_count >= 0)
        return SL_OK;
    return sl_fail(errno == ENOENT ? SL_ENOTFOUND : SL_EIO,
                   "cannot read the folder '%.300s': %s", folder,
                   strerror(errno));
}

static void free_list(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

sl_status sl_checkpoint_find(const char *folder,
                             void (*tell)(void *context, const char *sentence),
                             void *context, char **out)
{
    struct dirent **entries;
    int count;
    char *found = NULL;
    sl_status status = list(folder, &entries, &count);
    if (status)
        return status;
    for (int i = count - 1; i >= 0 && !found; i--) {
        sl_progress progress;
        char *path = sl__join_path(folder, entries[i]->d_name);
        if (path && !sl_checkpoint_check(path, &progress)) {
            found = path;
            continue;
        }
        if (tell)
            tell(context, path ? sl_error_text() : "out of memory");
        free(path);
    }
    free_list(entries, count);
    if (!found)
        return sl_fail(SL_ENOTFOUND, "there is no sound checkpoint in '%.300s'",
                       folder);
    *out = found;
    return SL_OK;
}

/* Points a link at a checkpoint, in one move. */
static void point(const char *folder, const char *name, const char *target)
{
    char hidden[64];
    snprintf(hidden, sizeof hidden, ".%s.new", name);
    char *new = sl__join_path(folder, hidden);
    char *link = sl__join_path(folder, name);
    if (new &&link) {
        unlink(new);
        if (symlink(target, new) == 0 && rename(new, link))
            unlink(new);
    }
    free(new);
    free(link);
}

/* Removes a checkpoint so that what is left of it is never taken for one. */
static void remove_one(const char *folder, const char *name)
{
    char hidden[300];
    snprintf(hidden, sizeof hidden, ".%.255s.old", name);
    char *path = sl__join_path(folder, name);
    char *gone = sl__join_path(folder, hidden);
    if (path && gone) {
        sl__remove_folder(gone);
        if (rename(path, gone) == 0)
            sl__remove_folder(gone);
    }
    free(path);
    free(gone);
}

/* What was never finished, or never wholly removed. */
static void remove_rests(const char *folder)
{
    DIR *open = opendir(folder);
    struct dirent *entry;
    while (open && (entry = readdir(open))) {
        const char *dot = strrchr(entry->d_name, '.');
        if (strncmp(entry->d_name, ".step-", 6) != 0 ||
            (strcmp(dot, ".partial") != 0 && strcmp(dot, ".old") != 0))
            continue;
        char *path = sl__join_path(folder, entry->d_name);
        if (path)
            sl__remove_folder(path);
        free(path);
    }
    if (open)
        closedir(open);
}

sl_status sl__checkpoint_set_aside(const char *folder, int64_t step)
{
    struct dirent **entries;
    int count;
    sl_status status = list(folder, &entries, &count);
    for (int i = 0; i < count && !status; i++) {
        char aside[300];
        if (atoll(entries[i]->d_name + 5) <= step)
            continue;
        snprintf(aside, sizeof aside, "%.255s.damaged", entries[i]->d_name);
        char *from = sl__join_path(folder, entries[i]->d_name);
        char *to = sl__join_path(folder, aside);
        if (from && to) {
            sl__remove_folder(to);
            if (rename(from, to))
                status = sl_fail(SL_EIO, "cannot rename '%.300s': %s", from,
                                 strerror(errno));
        }
        free(from);
        free(to);
    }
    if (!status)
        free_list(entries, count);
    return status;
}

sl_status sl_checkpoint_prune(const char *folder, int keep)
{
    struct dirent **entries;
    int count, best = -1;
    double least = INFINITY;
    sl_status status = list(folder, &entries, &count);
    if (status)
        return status;
    remove_rests(folder);
    for (int i = 0; i < count; i++) {
        char *path = sl__join_path(folder, entries[i]->d_name);
        json_t *root;
        sl_progress progress;
        if (path && !read_training(path, &root)) {
            read_progress(root, &progress);
            json_decref(root);
            if (progress.validation < least) {
                least = progress.validation;
                best = i;
            }
        }
        free(path);
    }
    if (best >= 0)
        point(folder, "best", entries[best]->d_name);
    if (count > 0)
        point(folder, "latest", entries[count - 1]->d_name);
    for (int i = 0; i < count - keep && keep > 0; i++) {
        if (i != best)
            remove_one(folder, entries[i]->d_name);
    }
    free_list(entries, count);
    return SL_OK;
}

/* --------------------------------------------------------------- reading -- */

static sl_status read_optimizer(const char *path, sl_optimizer *optimizer,
                                int64_t steps)
{
    sl_weights *states;
    sl_status status = sl__weights_open_as(path, "optimizer", &states);
    if (status)
        return status;
    /* All are looked at before any changes. */
    for (int pass = 0; pass < 2; pass++) {
        int count = sl_optimizer_state_count(optimizer);
        for (int i = 0; i < count && !status; i++) {
            const sl_optimizer_state *own = sl_optimizer_state_at(optimizer, i);
            char name[512];
            snprintf(name, sizeof name, "%s.%s", own->kind, own->parameter);
            const sl_safetensor *found = sl_weights_find(states, name);
            status = sl__check_tensor(found, name, &own->port);
            if (!status && pass)
                memcpy(own->data, found->data, found->bytes);
        }
    }
    sl_weights_close(states);
    if (!status)
        sl_optimizer_set_steps(optimizer, steps);
    return status;
}

sl_status sl_checkpoint_read(const char *path, sl_pipeline *pipeline,
                             sl_optimizer *optimizer)
{
    json_t *root;
    sl_weights *weights = NULL;
    sl_status status = read_training(path, &root);
    if (status)
        return status;
    int64_t steps =
        json_integer_value(json_object_get(root, "optimizer_steps"));
    json_decref(root);
    status = sl_weights_open(path, &weights);
    if (!status && optimizer)
        status = read_optimizer(path, optimizer, steps);
    if (!status)
        status = sl_weights_load(weights, pipeline);
    sl_weights_close(weights);
    return status;
}

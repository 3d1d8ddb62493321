/* SPDX-License-Identifier: MIT
 *
 * Checkpoints in a folder: checks whether one is undamaged, finds the newest,
 * removes old ones, and reads one. */
#include "train/checkpoint.h"

#include "base/arguments.h"
#include "base/try.h"
#include "tensor/safetensors.h"

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
    uint64_t sum = SL__FNV_START;
    json_object_del(root, "sum");
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        return sl_fail(SL_ENOMEM, "out of memory");
    sl__fnv_add(&sum, text, strlen(text));
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

/* Whether the numbers are ones that a run can have, and the file names have no
 * path. */
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

/* Fails for a file of a checkpoint that could not be read. A missing file is
 * damage (SL_EPARSE); another failure may be temporary, and says nothing about
 * the checkpoint. */
static sl_status unreadable(const char *path, const char *file,
                            sl_status status)
{
    char why[200];
    if (access(path, F_OK) || access(file, F_OK) == 0 || errno != ENOENT)
        return status;
    snprintf(why, sizeof why, "%.180s", sl_error_text());
    return damaged(path, why);
}

static int64_t version_of(const json_t *root)
{
    return json_integer_value(json_object_get(root, "version"));
}

/* Fails unless training.json is as it was written, and of a known version. */
static sl_status check_training(const char *path, json_t *root)
{
    const char *known = json_string_value(json_object_get(root, "sum"));
    char kept[17] = "", sum[17];
    snprintf(kept, sizeof kept, "%.16s", known ? known : "");
    if (!json_is_object(root) || sl__sum_json(root, sum) ||
        strcmp(kept, sum) != 0)
        return damaged(path, "training.json is not as it was written");
    if (version_of(root) < 1 || version_of(root) > SL__CHECKPOINT_VERSION)
        return sl_fail(SL_EINVAL,
                       "the checkpoint '%.300s' is of another version", path);
    return is_sensible(root)
               ? SL_OK
               : damaged(path, "training.json has impossible values");
}

static sl_status read_training(const char *path, json_t **out)
{
    char *file, *text;
    size_t length;
    SL__TRY(sl__join_path(path, "training.json", &file));
    sl_status status = sl__read_file(file, &text, &length);
    if (status)
        status = unreadable(path, file, status);
    free(file);
    SL__TRY(status);
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    status = check_training(path, root);
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
    SL__TRY(read_training(path, &root));
    read_progress(root, out);
    json_decref(root);
    return SL_OK;
}

static sl_status check_file(const char *path, const char *name,
                            const json_t *expected, int64_t version)
{
    char sum[17], why[200];
    int64_t bytes = 0;
    uint64_t value = 0;
    const char *known = json_string_value(json_object_get(expected, "sum"));
    char *file;
    SL__TRY(sl__join_path(path, name, &file));
    sl_status status = version == 1
                           ? sl__sum_file_version_1(file, &bytes, &value)
                           : sl__sum_file(file, &bytes, &value);
    if (status)
        status = unreadable(path, file, status);
    free(file);
    SL__TRY(status);
    snprintf(sum, sizeof sum, "%016" PRIx64, value);
    if (bytes == json_integer_value(json_object_get(expected, "bytes")) &&
        known && strcmp(known, sum) == 0)
        return SL_OK;
    snprintf(why, sizeof why, "%.100s is not as it was written", name);
    return damaged(path, why);
}

sl_status sl_checkpoint_check(const char *path, sl_progress *out)
{
    SL__NEED(path, out);
    json_t *root, *value;
    const char *name;
    SL__TRY(read_training(path, &root));
    sl_status status = SL_OK;
    json_object_foreach(json_object_get(root, "files"), name, value)
    {
        if (!status)
            status = check_file(path, name, value, version_of(root));
    }
    if (!status)
        read_progress(root, out);
    json_decref(root);
    return status;
}

/* --------------------------------------------------------------- folders -- */

static bool is_named_so(const struct dirent *entry)
{
    const char *digits = entry->d_name + 5;
    return strncmp(entry->d_name, "step-", 5) == 0 && strlen(digits) >= 8 &&
           strlen(digits) <= 15 && digits[strspn(digits, "0123456789")] == '\0';
}

static int is_checkpoint(const struct dirent *entry)
{
    return is_named_so(entry) &&
           (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN);
}

static int is_other(const struct dirent *entry)
{
    return is_named_so(entry) && !is_checkpoint(entry);
}

/* Orders by step, newest last: as text, steps of more than eight digits would
 * come in the wrong order. */
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

/* Reports entries that are named like a checkpoint but are not folders. They
 * are ignored. */
static void report_others(const char *folder,
                          void (*report)(void *context, const char *sentence),
                          void *context)
{
    struct dirent **entries;
    char sentence[600];
    int count = report ? scandir(folder, &entries, is_other, by_step) : 0;
    for (int i = 0; i < count; i++) {
        snprintf(sentence, sizeof sentence,
                 "'%.300s/%.200s' is not a folder, and not looked at", folder,
                 entries[i]->d_name);
        report(context, sentence);
    }
    if (count >= 0 && report)
        free_list(entries, count);
}

/* Finds the newest of these that is undamaged; NULL where there is none. */
static sl_status find(const char *folder, struct dirent **entries, int count,
                      void (*report)(void *context, const char *sentence),
                      void *context, char **out)
{
    *out = NULL;
    for (int i = count - 1; i >= 0; i--) {
        sl_progress progress;
        char *path;
        SL__TRY(sl__join_path(folder, entries[i]->d_name, &path));
        sl_status status = sl_checkpoint_check(path, &progress);
        if (!status) {
            *out = path;
            return SL_OK;
        }
        free(path);
        /* Go on to an older one only if this one is damaged: one that cannot be
         * read now may be undamaged, and it is newer. */
        if (status != SL_EPARSE)
            return status;
        if (report)
            report(context, sl_error_text());
    }
    return SL_OK;
}

sl_status sl_checkpoint_find(const char *folder,
                             void (*report)(void *context,
                                            const char *sentence),
                             void *context, char **out)
{
    SL__NEED(folder, out);
    struct dirent **entries;
    int count;
    char *found;
    SL__TRY(list(folder, &entries, &count));
    report_others(folder, report, context);
    sl_status status = find(folder, entries, count, report, context, &found);
    free_list(entries, count);
    SL__TRY(status);
    if (!found)
        return sl_fail(SL_ENOTFOUND, "there is no sound checkpoint in '%.300s'",
                       folder);
    *out = found;
    return SL_OK;
}

/* Points a link at a checkpoint. It is replaced by a rename, so that it exists
 * at all times. */
static sl_status point(const char *folder, const char *name, const char *target)
{
    char hidden[64], *fresh, *link;
    snprintf(hidden, sizeof hidden, ".%s.new", name);
    sl_status status;
    SL__TRY(sl__join_path(folder, hidden, &fresh));
    SL__TRY_OR(free_fresh, sl__join_path(folder, name, &link));
    unlink(fresh);
    if (symlink(target, fresh) || rename(fresh, link)) {
        status = sl_fail(SL_EFAIL, "cannot make the link '%.300s': %s", link,
                         strerror(errno));
        unlink(fresh);
    }
    free(link);
free_fresh:
    free(fresh);
    return status;
}

/* Removes a checkpoint. It is renamed first, so that an interrupted removal
 * does not leave something that looks like a checkpoint. */
static void remove_one(const char *folder, const char *name)
{
    char hidden[300], *path = NULL, *gone = NULL;
    snprintf(hidden, sizeof hidden, ".%.255s.old", name);
    if (!sl__join_path(folder, name, &path) &&
        !sl__join_path(folder, hidden, &gone)) {
        sl__remove_folder(gone);
        if (rename(path, gone) == 0)
            sl__remove_folder(gone);
    }
    free(path);
    free(gone);
}

/* Removes checkpoints that were never completed, or never completely
 * removed. */
static void remove_rests(const char *folder)
{
    DIR *open = opendir(folder);
    struct dirent *entry;
    while (open && (entry = readdir(open))) {
        const char *dot = strrchr(entry->d_name, '.');
        if (strncmp(entry->d_name, ".step-", 6) != 0 ||
            (strcmp(dot, ".partial") != 0 && strcmp(dot, ".old") != 0))
            continue;
        char *path;
        if (sl__join_path(folder, entry->d_name, &path))
            break;
        sl__remove_folder(path);
        free(path);
    }
    if (open)
        closedir(open);
}

/* Renames a checkpoint, so that it no longer counts as one. */
static sl_status set_one_aside(const char *path)
{
    char aside[4096];
    snprintf(aside, sizeof aside, "%.4000s.damaged", path);
    sl__remove_folder(aside);
    if (rename(path, aside))
        return sl_fail(SL_EFAIL, "cannot rename '%.300s': %s", path,
                       strerror(errno));
    return SL_OK;
}

/* Sets a checkpoint aside; fails unless it is damaged. */
static sl_status set_damaged_aside(const char *folder, const char *name)
{
    sl_progress progress;
    char *path;
    SL__TRY(sl__join_path(folder, name, &path));
    sl_status status = sl_checkpoint_check(path, &progress);
    if (status == SL_EPARSE)
        status = set_one_aside(path);
    else if (!status)
        status = sl_fail(SL_EINVAL,
                         "'%.300s' is newer than what the run goes on from, "
                         "and sound",
                         path);
    free(path);
    return status;
}

sl_status sl__checkpoint_set_aside(const char *folder, int64_t step)
{
    struct dirent **entries;
    int count;
    SL__TRY(list(folder, &entries, &count));
    sl_status status = SL_OK;
    for (int i = 0; i < count && !status; i++) {
        if (atoll(entries[i]->d_name + 5) > step)
            status = set_damaged_aside(folder, entries[i]->d_name);
    }
    free_list(entries, count);
    return status;
}

/* The validation loss of a checkpoint; NaN where it has none, or cannot be
 * read. */
static double validation_of(const char *folder, const char *name)
{
    sl_progress progress = {.validation = NAN};
    char *path;
    if (!sl__join_path(folder, name, &path)) {
        if (sl__checkpoint_progress(path, &progress))
            progress.validation = NAN;
        free(path);
    }
    return progress.validation;
}

sl_status sl_checkpoint_prune(const char *folder, int keep)
{
    SL__NEED(folder);
    struct dirent **entries;
    int count, best = -1;
    double least = INFINITY;
    sl_status status = SL_OK;
    SL__TRY(list(folder, &entries, &count));
    remove_rests(folder);
    for (int i = 0; i < count; i++) {
        double loss = validation_of(folder, entries[i]->d_name);
        if (loss < least) {
            least = loss;
            best = i;
        }
    }
    if (best >= 0)
        status = point(folder, "best", entries[best]->d_name);
    if (count > 0 && !status)
        status = point(folder, "latest", entries[count - 1]->d_name);
    for (int i = 0; keep > 0 && i < count - keep; i++) {
        if (i != best)
            remove_one(folder, entries[i]->d_name);
    }
    free_list(entries, count);
    return status;
}

/* --------------------------------------------------------------- reading -- */

/* Reads in pieces: a copy of the largest tensor would be memory that is not
 * planned. */
static sl_status read_state(const sl_safetensor *found,
                            const sl__optimizer_state *own)
{
    char piece[1 << 14];
    size_t bytes = (size_t)own->port.bytes;
    for (size_t at = 0; at < bytes; at += sizeof piece) {
        size_t left = bytes - at;
        size_t now = left < sizeof piece ? left : sizeof piece;
        SL__TRY(sl__safetensor_read_as(found, own->port.dtype, at, now, piece));
        SL__TRY(
            sl__device_write(own->stream, (char *)own->data + at, piece, now));
    }
    return SL_OK;
}

/* Checks all tensors before it changes any. */
static sl_status read_states(const sl_weights *states,
                             const sl_optimizer *optimizer, bool write)
{
    for (int i = 0; i < sl__optimizer_state_count(optimizer); i++) {
        const sl__optimizer_state *own = sl__optimizer_state_at(optimizer, i);
        char name[SL__STATE_NAME_MAX];
        snprintf(name, sizeof name, "%s.%s", own->kind, own->parameter);
        const sl_safetensor *found = sl_weights_find(states, name);
        SL__TRY(sl__check_tensor(found, name, &own->port));
        if (write)
            SL__TRY(read_state(found, own));
    }
    return SL_OK;
}

/* The optimizer's states, and the model: its parameters in f32 are among the
 * states where the model's own files have less. */
static sl_status read_both(const sl_weights *weights, const char *path,
                           sl_pipeline *pipeline, sl_optimizer *optimizer)
{
    sl_weights *states;
    sl_status status;
    SL__TRY(sl__weights_open_as(path, "optimizer", &states));
    SL__TRY_OR(close, read_states(states, optimizer, false));
    SL__TRY_OR(close, sl_weights_load(weights, pipeline));
    SL__TRY_OR(close, sl__load_masters(states, pipeline));
    status = read_states(states, optimizer, true);
close:
    sl_weights_close(states);
    return status;
}

sl_status sl_checkpoint_read(const char *path, sl_pipeline *pipeline,
                             sl_optimizer *optimizer)
{
    SL__NEED(path, pipeline);
    json_t *root;
    sl_weights *weights;
    SL__TRY(read_training(path, &root));
    int64_t steps =
        json_integer_value(json_object_get(root, "optimizer_steps"));
    json_decref(root);
    SL__TRY(sl_weights_open(path, &weights));
    sl_status status = optimizer ? read_both(weights, path, pipeline, optimizer)
                                 : sl_weights_load(weights, pipeline);
    sl_weights_close(weights);
    if (!status && optimizer)
        sl_optimizer_set_steps(optimizer, steps);
    return status;
}

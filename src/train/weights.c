/* SPDX-License-Identifier: MIT
 *
 * Weights in one or several safetensors files, found by name. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/try.h"
#include "base/text.h"
#include "tensor/program.h"
#include "tensor/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct sl_weights {
    sl_safetensors **files;
    size_t count;
    size_t capacity;
};

static sl_status add_file(sl_weights *weights, const char *path)
{
    SL__TRY(sl__grow(&weights->files, &weights->capacity, weights->count + 1,
                     sizeof *weights->files));
    SL__TRY(sl_safetensors_open(path, &weights->files[weights->count]));
    weights->count++;
    return SL_OK;
}

static sl_status add_named(sl_weights *weights, const char *folder,
                           const char *name)
{
    char *path;
    SL__TRY(sl__join_path(folder, name, &path));
    sl_status status = add_file(weights, path);
    free(path);
    return status;
}

/* Whether the index names a file before this entry. */
static bool is_known(json_t *map, void *until, const char *name)
{
    for (void *at = json_object_iter(map); at != until;
         at = json_object_iter_next(map, at)) {
        const char *other = json_string_value(json_object_iter_value(at));
        if (other && strcmp(other, name) == 0)
            return true;
    }
    return false;
}

/* Opens the files that an index names, each once. */
static sl_status add_indexed(sl_weights *weights, const char *folder,
                             const char *index)
{
    char *text;
    size_t length;
    json_error_t error;
    SL__TRY(sl__read_file(index, &text, &length));
    json_t *root = json_loadb(text, length, 0, &error);
    free(text);
    json_t *map = json_object_get(root, "weight_map");
    sl_status status =
        json_is_object(map)
            ? SL_OK
            : sl_fail(SL_EPARSE, "'%.300s' has no weight_map", index);
    for (void *at = json_object_iter(map); at && !status;
         at = json_object_iter_next(map, at)) {
        const char *name = json_string_value(json_object_iter_value(at));
        if (!name || strchr(name, '/'))
            status =
                sl_fail(SL_EPARSE, "'%.300s' names a file that is none", index);
        else if (!is_known(map, at, name))
            status = add_named(weights, folder, name);
    }
    json_decref(root);
    return status;
}

/* Opens the files of a folder, whose index is at `index` if there is one. */
static sl_status add_folder(sl_weights *weights, const char *folder,
                            const char *stem, const char *index)
{
    struct stat about;
    char name[64];
    if (stat(index, &about) == 0)
        return add_indexed(weights, folder, index);
    snprintf(name, sizeof name, "%s.safetensors", stem);
    return add_named(weights, folder, name);
}

static sl_status fill(sl_weights *weights, const char *path, const char *stem)
{
    struct stat about;
    char *index, name[64];
    if (stat(path, &about) || !S_ISDIR(about.st_mode))
        return add_file(weights, path);
    snprintf(name, sizeof name, "%s.safetensors.index.json", stem);
    SL__TRY(sl__join_path(path, name, &index));
    sl_status status = add_folder(weights, path, stem, index);
    free(index);
    return status;
}

sl_status sl__weights_open_as(const char *path, const char *stem,
                              sl_weights **out)
{
    sl_weights *weights;
    SL__TRY(sl__alloc(1, sizeof *weights, &weights));
    sl_status status = fill(weights, path, stem);
    if (status)
        sl_weights_close(weights);
    else
        *out = weights;
    return status;
}

sl_status sl_weights_open(const char *path, sl_weights **out)
{
    SL__NEED(path, out);
    return sl__weights_open_as(path, "model", out);
}

void sl_weights_close(sl_weights *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; i < weights->count; i++)
        sl_safetensors_close(weights->files[i]);
    free(weights->files);
    free(weights);
}

const sl_safetensor *sl_weights_find(const sl_weights *weights,
                                     const char *name)
{
    static const char prefix[] = "transformer.";
    size_t skip = sizeof prefix - 1;
    if (!weights || !name)
        return NULL;
    for (size_t i = 0; i < weights->count; i++) {
        const sl_safetensor *found =
            sl_safetensors_find(weights->files[i], name);
        if (found)
            return found;
    }
    return strncmp(name, prefix, skip) == 0
               ? sl_weights_find(weights, name + skip)
               : NULL;
}

/* -------------------------------------------------------------- loading -- */

/* Whether it can be read as `port` is: floats of any precision are converted. */
static bool has_dtype(const sl_safetensor *found, const sl_port *port)
{
    return found->dtype == port->dtype ||
           (sl__is_float(found->dtype) && sl__is_float(port->dtype));
}

sl_status sl__check_tensor(const sl_safetensor *found, const char *name,
                           const sl_port *port)
{
    char expected[SL__SHAPE_TEXT], given[SL__SHAPE_TEXT];
    if (!found)
        return sl_fail(SL_ENOTFOUND, "the weights have no '%.100s'", name);
    bool same = has_dtype(found, port) && found->dims == port->dims;
    for (int d = 0; d < port->dims && same; d++)
        same = found->shape[d] == port->shape[d];
    if (same)
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "'%.100s' of the weights is %s %s, expected %s %s", name,
                   sl_dtype_text(found->dtype),
                   sl__shape_text(found->dims, found->shape, given),
                   sl_dtype_text(port->dtype),
                   sl__shape_text(port->dims, port->shape, expected));
}

const sl_safetensor *sl__find_weight(const sl_weights *weights,
                                     const sl_model *model, int stage,
                                     const char *name)
{
    bool first;
    const sl_tie *tie = sl__find_tie(model, stage, name, &first);
    const sl_safetensor *found = sl_weights_find(weights, name);
    for (int i = 0; tie && i < tie->name_count && !found; i++)
        found = sl_weights_find(weights, tie->names[i]);
    return found;
}

typedef struct loading {
    const sl_weights *weights;
    const sl_model *model;
    bool write;
    /* Result of the check: how many tensors differ, and the first sentences
     * about them. */
    int differ;
    sl_status status;
    char text[700];
} loading;

enum { DIFFERENCES_SHOWN = 3 };

/* Counts a tensor that differs, and keeps the sentence if it is among the
 * first. */
static void note_difference(loading *how, sl_status status)
{
    size_t used = strlen(how->text);
    if (how->differ++ == 0)
        how->status = status;
    if (how->differ <= DIFFERENCES_SHOWN)
        snprintf(how->text + used, sizeof how->text - used, "%s%s",
                 used ? "; " : "", sl_error_text());
}

/* Writes a parameter of callbacks, which take it as a whole. */
static sl_status write_whole(const sl__parameter *own,
                             const sl_safetensor *found)
{
    char *data;
    size_t bytes = (size_t)own->port.bytes;
    sl_status status;
    SL__TRY(sl__alloc(bytes, 1, &data));
    SL__TRY_OR(free_data,
               sl__safetensor_read_as(found, own->port.dtype, 0, bytes, data));
    status = sl_memory_write(own->memory, &own->port, 0, data, bytes);
free_data:
    free(data);
    return status;
}

/* Checks all numbers of a tensor, or writes them, in pieces: a copy of the
 * largest would be memory that is not planned. */
static sl_status walk(const sl__parameter *own, const sl_safetensor *found,
                      bool write)
{
    _Alignas(double) char piece[1 << 14];
    if (write && !sl__port_memory(own->memory, &own->port, 0))
        return write_whole(own, found);
    size_t bytes = (size_t)own->port.bytes;
    sl_dtype dtype = own->port.dtype;
    for (size_t at = 0; at < bytes; at += sizeof piece) {
        size_t left = bytes - at;
        size_t now = left < sizeof piece ? left : sizeof piece;
        SL__TRY(sl__safetensor_read_as(found, dtype, at, now, piece));
        if (write)
            SL__TRY(sl__memory_write_piece(own->memory, &own->port, at, piece,
                                           now));
        else if (!sl__is_finite(dtype, piece, now))
            return sl_fail(SL_EINVAL,
                           "'%.100s' of the weights has numbers that are not "
                           "finite",
                           own->port.name);
    }
    return SL_OK;
}

/* Checks a parameter against the weights, or writes it. */
static sl_status load_one(void *context, const sl__parameter *own)
{
    loading *how = context;
    const sl_safetensor *found =
        sl__find_weight(how->weights, how->model, own->stage, own->port.name);
    sl_status status = sl__check_tensor(found, own->port.name, &own->port);
    if (!status)
        status = walk(own, found, how->write);
    if (status != SL_EINVAL && status != SL_ENOTFOUND)
        return status;
    note_difference(how, status);
    return SL_OK;
}

sl_status sl_weights_load(const sl_weights *weights, sl_pipeline *pipeline)
{
    SL__NEED(weights, pipeline);
    loading how = {.weights = weights, .model = sl_pipeline_model(pipeline)};
    SL__TRY(sl__each_parameter(pipeline, SL_PORT_PARAMETER, load_one, &how));
    if (how.differ > DIFFERENCES_SHOWN)
        return sl_fail(how.status, "%s; and %d more on this rank", how.text,
                       how.differ - DIFFERENCES_SHOWN);
    if (how.differ)
        return sl_fail(how.status, "%s", how.text);
    how.write = true;
    return sl__each_parameter(pipeline, SL_PORT_PARAMETER, load_one, &how);
}

/* Checks a parameter's f32 against the port, or writes it. */
static sl_status load_master(void *context, const sl__parameter *own)
{
    const loading *how = context;
    char name[SL__STATE_NAME_MAX];
    snprintf(name, sizeof name, SL__MASTER ".%s",
             sl__tied_name(how->model, own->stage, own->port.name));
    const sl_safetensor *found = sl_weights_find(how->weights, name);
    if (!found)
        return SL_OK;
    SL__TRY(sl__check_tensor(found, name, &own->port));
    return walk(own, found, how->write);
}

sl_status sl__load_masters(const sl_weights *states, sl_pipeline *pipeline)
{
    loading how = {.weights = states, .model = sl_pipeline_model(pipeline)};
    SL__TRY(sl__each_parameter(pipeline, SL_PORT_PARAMETER, load_master, &how));
    how.write = true;
    return sl__each_parameter(pipeline, SL_PORT_PARAMETER, load_master, &how);
}

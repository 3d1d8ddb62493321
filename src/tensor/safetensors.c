/* SPDX-License-Identifier: MIT
 *
 * safetensors files, opened and read. Tensors are read on request and not
 * mapped: a file that is truncated after it was opened then gives an error, and
 * no SIGBUS. */
#include "tensor/safetensors.h"

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Enough for two hundred thousand tensors, more than any model has in a
 * file. */
enum { HEADER_BYTES_MAX = 1 << 25 };

/* ---------------------------------------------------------------- header -- */

/* The length of the header that starts with `prefix`, in a file of `bytes`. */
static sl_status read_length(const unsigned char *prefix, int64_t bytes,
                             size_t *out)
{
    uint64_t length = 0;
    for (int i = 0; i < SL__SAFETENSORS_PREFIX; i++)
        length |= (uint64_t)prefix[i] << (8 * i);
    uint64_t there = (uint64_t)bytes - SL__SAFETENSORS_PREFIX;
    if (length > there)
        return sl_fail(SL_EPARSE,
                       "the header claims %llu bytes, the file has %llu",
                       (unsigned long long)length, (unsigned long long)there);
    if (length > HEADER_BYTES_MAX)
        return sl_fail(SL_EPARSE,
                       "the header has %llu bytes, expected at most %d",
                       (unsigned long long)length, HEADER_BYTES_MAX);
    *out = (size_t)length;
    return SL_OK;
}

/* Reads the header of a file of `bytes` bytes; offsets of tensors count from
 * the start of the file afterwards. */
static sl_status take_header(sl_safetensors *file, const char *text,
                             size_t length, int64_t bytes)
{
    int64_t first = SL__SAFETENSORS_PREFIX + (int64_t)length;
    assert(first <= bytes);
    file->data_bytes = bytes - first;
    SL__TRY(sl__safetensors_read_header(file, text, length));
    for (size_t i = 0; i < file->count; i++)
        file->tensors[i].at += first;
    return SL_OK;
}

static sl_status check_size(int64_t bytes)
{
    if (bytes >= SL__SAFETENSORS_PREFIX)
        return SL_OK;
    return sl_fail(SL_EPARSE, "%lld bytes are too few for a header",
                   (long long)bytes);
}

/* --------------------------------------------------------------- opening -- */

static sl_status new_file(sl_safetensors **out)
{
    SL__TRY(sl__alloc(1, sizeof **out, out));
    (*out)->fd = -1;
    return SL_OK;
}

/* Gives `file` to the caller if reading it succeeded; closes it otherwise. */
static sl_status finish(sl_safetensors *file, sl_status status,
                        sl_safetensors **out)
{
    if (status)
        sl_safetensors_close(file);
    else
        *out = file;
    return status;
}

static sl_status parse(sl_safetensors *file, const char *data, size_t bytes)
{
    size_t length = 0;
    SL__TRY(check_size((int64_t)bytes));
    SL__TRY(read_length((const unsigned char *)data, (int64_t)bytes, &length));
    SL__TRY(take_header(file, data + SL__SAFETENSORS_PREFIX, length,
                        (int64_t)bytes));
    for (size_t i = 0; i < file->count; i++)
        file->tensors[i].data = data + file->tensors[i].at;
    return SL_OK;
}

sl_status sl_safetensors_parse(const void *data, size_t bytes,
                               sl_safetensors **out)
{
    SL__NEED(out);
    if (bytes)
        SL__NEED(data);
    sl_safetensors *file;
    SL__TRY(new_file(&file));
    return finish(file, parse(file, data, bytes), out);
}

/* Reads the header's text, which the caller frees even after a failure. */
static sl_status read_text(const sl_safetensors *file, int64_t bytes,
                           char **out, size_t *out_length)
{
    unsigned char prefix[SL__SAFETENSORS_PREFIX];
    SL__TRY(check_size(bytes));
    SL__TRY(sl__read_at(file->fd, file->path, 0, prefix, sizeof prefix));
    SL__TRY(read_length(prefix, bytes, out_length));
    SL__TRY(sl__alloc(*out_length, 1, out));
    return sl__read_at(file->fd, file->path, SL__SAFETENSORS_PREFIX, *out,
                       *out_length);
}

static sl_status read_file(sl_safetensors *file, const char *path)
{
    int64_t bytes;
    size_t length = 0;
    char *text = NULL;
    SL__TRY(sl__alloc(strlen(path) + 1, 1, &file->path));
    memcpy(file->path, path, strlen(path));
    SL__TRY(sl__open_file(path, &file->fd, &bytes));
    sl_status status = read_text(file, bytes, &text, &length);
    if (!status)
        status = take_header(file, text, length, bytes);
    free(text);
    for (size_t i = 0; i < file->count; i++)
        file->tensors[i].file = file;
    /* Other failures name the file already. */
    return status == SL_EPARSE
               ? sl_fail(status, "%.200s: %s", path, sl_error_text())
               : status;
}

sl_status sl_safetensors_open(const char *path, sl_safetensors **out)
{
    SL__NEED(path, out);
    sl_safetensors *file;
    SL__TRY(new_file(&file));
    return finish(file, read_file(file, path), out);
}

void sl_safetensors_close(sl_safetensors *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->tensors);
    free(file->by_name);
    free(file->metadata);
    free(file->texts);
    free(file->path);
    free(file);
}

/* --------------------------------------------------------------- tensors -- */

size_t sl_safetensors_count(const sl_safetensors *file)
{
    return file ? file->count : 0;
}

const sl_safetensor *sl_safetensors_at(const sl_safetensors *file, size_t index)
{
    return file && index < file->count ? &file->tensors[index] : NULL;
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(const sl_safetensor *const *)tensor)->name);
}

const sl_safetensor *sl_safetensors_find(const sl_safetensors *file,
                                         const char *name)
{
    const sl_safetensor **found = NULL;
    if (file && name && file->count)
        found = bsearch(name, file->by_name, file->count, sizeof *file->by_name,
                        compare_name);
    return found ? *found : NULL;
}

const char *sl_safetensors_metadata(const sl_safetensors *file, const char *key)
{
    for (size_t i = 0; file && key && i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    }
    return NULL;
}

sl_status sl__safetensor_read_part(const sl_safetensor *tensor, size_t first,
                                   size_t bytes, void *out)
{
    if (bytes == 0)
        return SL_OK;
    if (tensor->data) {
        memcpy(out, (const char *)tensor->data + first, bytes);
        return SL_OK;
    }
    if (tensor->read)
        return tensor->read(tensor->context, first, out, bytes);
    if (!tensor->file)
        return sl_fail(SL_EINVAL, "'%.64s' has no data", tensor->name);
    return sl__read_at(tensor->file->fd, tensor->file->path,
                       tensor->at + (int64_t)first, out, bytes);
}

sl_status sl__safetensor_read_as(const sl_safetensor *tensor, sl_dtype dtype,
                                 size_t first, size_t bytes, void *out)
{
    enum { PIECE = 1 << 12 };
    _Alignas(double) char piece[PIECE];
    size_t from_size = sl_dtype_bytes(tensor->dtype);
    size_t size = sl_dtype_bytes(dtype), most = PIECE / from_size;
    if (tensor->dtype == dtype)
        return sl__safetensor_read_part(tensor, first, bytes, out);
    assert(size && first % size == 0 && bytes % size == 0);
    for (size_t at = 0; at < bytes; at += most * size) {
        size_t left = (bytes - at) / size, count = left < most ? left : most;
        SL__TRY(sl__safetensor_read_part(
            tensor, (first + at) / size * from_size, count * from_size, piece));
        SL__TRY(sl__convert_floats(dtype, (char *)out + at, tensor->dtype,
                                   piece, (int64_t)count));
    }
    return SL_OK;
}

sl_status sl_safetensor_read(const sl_safetensor *tensor, void *out)
{
    SL__NEED(tensor);
    if (tensor->bytes)
        SL__NEED(out);
    return sl__safetensor_read_part(tensor, 0, tensor->bytes, out);
}

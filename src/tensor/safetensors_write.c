/* SPDX-License-Identifier: MIT
 *
 * Writes a safetensors file under a temporary name in the same folder and
 * renames it, so that a reader sees the old file or the new one. */
#include "tensor/safetensors.h"

#include "base/arguments.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/try.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sl_status check_tensor(const sl_safetensor *tensor, size_t i)
{
    int64_t bytes = (int64_t)sl_dtype_bytes(tensor->dtype);
    if (!tensor->name || strcmp(tensor->name, "__metadata__") == 0)
        return sl_fail(SL_EINVAL, "tensor %zu has no usable name", i);
    if (tensor->bytes && !tensor->data && !tensor->file && !tensor->read)
        return sl_fail(SL_EINVAL, "'%.64s' has no data", tensor->name);
    if (tensor->dims < 0 || tensor->dims > SL_DIMS_MAX || bytes == 0)
        return sl_fail(SL_EINVAL, "'%.64s' has no usable dtype or shape",
                       tensor->name);
    for (int d = 0; d < tensor->dims; d++) {
        if (tensor->shape[d] < 0 ||
            __builtin_mul_overflow(bytes, tensor->shape[d], &bytes))
            return sl_fail(SL_EINVAL, "'%.64s' has no usable shape",
                           tensor->name);
    }
    if ((uint64_t)bytes != tensor->bytes)
        return sl_fail(SL_EINVAL,
                       "'%.64s' has %zu bytes, expected %lld by its shape",
                       tensor->name, tensor->bytes, (long long)bytes);
    return SL_OK;
}

static sl_status check_writable(const sl_safetensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        SL__TRY(check_tensor(&tensors[i], i));
        for (size_t k = 0; k < i; k++) {
            if (strcmp(tensors[k].name, tensors[i].name) == 0)
                return sl_fail(SL_EINVAL, "'%.64s' is there twice",
                               tensors[i].name);
        }
    }
    return SL_OK;
}

static const char *const dtype_names[] = {
#define SL_DTYPE(name, text, bytes, safetensors, ...) [SL_##name] = safetensors,
#include "sluice/dtypes.def"
#undef SL_DTYPE
};

static json_t *describe(const sl_safetensor *tensor, size_t *at)
{
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dims; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    json_int_t first = (json_int_t)*at;
    *at += tensor->bytes;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                     dtype_names[tensor->dtype], "shape", shape, "data_offsets",
                     first, (json_int_t)*at);
}

/* The header as text, padded with spaces so that the tensors begin at a
 * multiple of 8. The caller frees it. */
static sl_status make_header(const sl_safetensor *tensors, size_t count,
                             const char *const *metadata, char **out)
{
    json_t *header = json_object();
    size_t at = 0;
    bool fits = header != NULL;
    if (metadata && metadata[0]) {
        json_t *pairs = json_object();
        for (size_t i = 0; metadata[i] && metadata[i + 1]; i += 2)
            fits &= !json_object_set_new(pairs, metadata[i],
                                         json_string(metadata[i + 1]));
        fits &= !json_object_set_new(header, "__metadata__", pairs);
    }
    for (size_t i = 0; i < count && fits; i++)
        fits = !json_object_set_new(header, tensors[i].name,
                                    describe(&tensors[i], &at));
    char *text = fits ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text)
        return sl_fail(SL_EINVAL, "a name or a piece of metadata is not UTF-8");
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    char *grown = realloc(text, padded + 1);
    if (!grown) {
        free(text);
        return sl_fail(SL_ENOMEM, "out of memory: a header of %zu bytes",
                       padded);
    }
    memset(grown + length, ' ', padded - length);
    grown[padded] = '\0';
    *out = grown;
    return SL_OK;
}

/* Copies a tensor that is not in memory in chunks. */
static sl_status put_tensor(int fd, const char *path,
                            const sl_safetensor *tensor)
{
    enum { PIECE = 1 << 20 };
    char *piece;
    if (tensor->data || tensor->bytes == 0)
        return sl__write_all(fd, path, tensor->data, tensor->bytes);
    sl_status status = sl__alloc(PIECE, 1, &piece);
    for (size_t at = 0; at < tensor->bytes && !status; at += PIECE) {
        size_t left = tensor->bytes - at, bytes = left < PIECE ? left : PIECE;
        status = sl__safetensor_read_part(tensor, at, bytes, piece);
        if (!status)
            status = sl__write_all(fd, path, piece, bytes);
    }
    free(piece);
    return status;
}

static sl_status put_all(int fd, const char *path, const char *header,
                         const sl_safetensor *tensors, size_t count)
{
    uint64_t length = strlen(header);
    unsigned char prefix[SL__SAFETENSORS_PREFIX];
    for (int i = 0; i < SL__SAFETENSORS_PREFIX; i++)
        prefix[i] = (unsigned char)(length >> (8 * i));
    SL__TRY(sl__write_all(fd, path, prefix, sizeof prefix));
    SL__TRY(sl__write_all(fd, path, header, length));
    for (size_t i = 0; i < count; i++)
        SL__TRY(put_tensor(fd, path, &tensors[i]));
    return SL_OK;
}

/* Syncs the folder of a file, so that its new name survives a crash. Without
 * that the file is whole too. */
static void sync_folder_of(const char *path)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    sl__sync_folder(slash ? folder : ".");
}

/* Opens a new file with a unique name in the folder of `path`. */
static sl_status open_beside(const char *path, char *temporary, size_t size,
                             int *out_fd)
{
    errno = EEXIST;
    for (unsigned i = 0; i < 1000 && errno == EEXIST; i++) {
        int length =
            snprintf(temporary, size, "%s.%ld-%u.tmp", path, (long)getpid(), i);
        if (length < 0 || (size_t)length >= size) {
            errno = ENAMETOOLONG;
            break;
        }
        *out_fd =
            open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*out_fd >= 0)
            return SL_OK;
    }
    return sl_fail(SL_EIO, "cannot write beside %.200s: %s", path,
                   strerror(errno));
}

/* Gives a new file the mode of the one it replaces. */
static sl_status keep_mode(int fd, const char *path)
{
    struct stat old;
    if (stat(path, &old) == 0 && S_ISREG(old.st_mode) &&
        fchmod(fd, old.st_mode & 0777) != 0)
        return sl__fail_file(path, "write");
    return SL_OK;
}

static sl_status replace(const char *path, const char *header,
                         const sl_safetensor *tensors, size_t count)
{
    char temporary[4096];
    int fd = -1;
    SL__TRY(open_beside(path, temporary, sizeof temporary, &fd));
    sl_status status = keep_mode(fd, path);
    if (!status)
        status = put_all(fd, path, header, tensors, count);
    status = sl__close_written(fd, path, status);
    if (!status && rename(temporary, path) != 0)
        status = sl__fail_file(path, "write");
    if (status)
        unlink(temporary);
    else
        sync_folder_of(path);
    return status;
}

sl_status sl_safetensors_write(const char *path, const sl_safetensor *tensors,
                               size_t count, const char *const *metadata)
{
    SL__NEED(path);
    if (count)
        SL__NEED(tensors);
    char *header = NULL;
    SL__TRY(check_writable(tensors, count));
    SL__TRY(make_header(tensors, count, metadata, &header));
    /* If `path` is a symbolic link, the file it names is replaced. */
    char *target = realpath(path, NULL);
    sl_status status = replace(target ? target : path, header, tensors, count);
    free(target);
    free(header);
    return status;
}

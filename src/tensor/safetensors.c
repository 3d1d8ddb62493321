/* SPDX-License-Identifier: MIT
 *
 * safetensors: 8 bytes of little-endian header length, a JSON object of names
 * to dtype, shape and a range of bytes, then the bytes. A file is taken only
 * when all of it adds up: the header fits, every shape makes exactly its range,
 * and the ranges follow one another without gap or overlap up to the end. */
#include "sluice/tensor.h"

#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* As the format's own reader has it. */
enum { HEADER_BYTES_MAX = 100000000, PREFIX_BYTES = 8 };

struct sl_safetensors {
    void *map; /* NULL when the bytes are borrowed */
    size_t map_bytes;
    json_t *header;
    sl_safetensor *tensors; /* in order of their bytes */
    size_t count;
};

/* --------------------------------------------------------------- header -- */

static const struct {
    sl_dtype dtype;
    const char *name;
} dtypes[] = {
#define SL_DTYPE(name, text, bytes, safetensors) {SL_##name, safetensors},
#include "sluice/dtypes.def"
#undef SL_DTYPE
};

static bool read_dtype(const json_t *value, sl_dtype *out)
{
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = dtypes[i].dtype;
            return true;
        }
    }
    return false;
}

static sl_status fail_tensor(const char *name, const char *reason)
{
    char quoted[SL__QUOTED_MAX];
    return sl_fail(SL_EPARSE, "tensor '%s': %s",
                   sl__quoted(name, strlen(name), quoted), reason);
}

static sl_status read_shape(const char *name, const json_t *value,
                            sl_safetensor *out, int64_t *out_bytes)
{
    int64_t bytes = (int64_t)sl_dtype_bytes(out->dtype);
    if (!json_is_array(value) || json_array_size(value) > SL_DIMS_MAX)
        return fail_tensor(name, "shape is not a list of at most 6 sizes");
    out->dims = (int)json_array_size(value);
    for (int i = 0; i < out->dims; i++) {
        const json_t *size = json_array_get(value, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fail_tensor(name, "a size is not a number from 0 up");
        out->shape[i] = json_integer_value(size);
        if (__builtin_mul_overflow(bytes, out->shape[i], &bytes))
            return fail_tensor(name, "its shape overflows");
    }
    *out_bytes = bytes;
    return SL_OK;
}

static sl_status read_tensor(const char *name, const json_t *entry,
                             const char *data, size_t data_bytes,
                             sl_safetensor *out)
{
    *out = (sl_safetensor){.name = name};
    int64_t bytes = 0;
    if (!json_is_object(entry) ||
        !read_dtype(json_object_get(entry, "dtype"), &out->dtype))
        return fail_tensor(name, "dtype is not F32, F64, I32, I64 or BOOL");
    sl_status status =
        read_shape(name, json_object_get(entry, "shape"), out, &bytes);
    if (status)
        return status;
    const json_t *range = json_object_get(entry, "data_offsets");
    const json_t *from = json_array_get(range, 0),
                 *to = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(from) ||
        !json_is_integer(to))
        return fail_tensor(name, "data_offsets is not a pair of numbers");
    json_int_t first = json_integer_value(from), end = json_integer_value(to);
    if (first < 0 || end < first || (uint64_t)end > data_bytes)
        return fail_tensor(name, "data_offsets is outside the file");
    if (end - first != bytes)
        return fail_tensor(name, "shape and data_offsets do not agree");
    out->data = data + first;
    out->bytes = (size_t)bytes;
    return SL_OK;
}

static int by_place(const void *left, const void *right)
{
    const sl_safetensor *a = left, *b = right;
    const char *pa = a->data, *pb = b->data;
    if (pa != pb)
        return pa < pb ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static sl_status check_places(const sl_safetensors *file, const char *data,
                              size_t data_bytes)
{
    const char *expected = data;
    for (size_t i = 0; i < file->count; i++) {
        const char *first = file->tensors[i].data;
        if (first != expected)
            return fail_tensor(file->tensors[i].name,
                               first < expected ? "overlaps another"
                                                : "leaves a gap before it");
        expected = first + file->tensors[i].bytes;
    }
    if (expected != data + data_bytes)
        return sl_fail(SL_EPARSE, "%zu bytes after the last tensor",
                       (size_t)(data + data_bytes - expected));
    return SL_OK;
}

static sl_status check_metadata(const json_t *entry)
{
    const char *key;
    json_t *value;
    if (!json_is_object(entry))
        return sl_fail(SL_EPARSE, "__metadata__ is not an object");
    json_object_foreach((json_t *)entry, key, value)
    {
        if (!json_is_string(value))
            return sl_fail(SL_EPARSE, "__metadata__ has a value that is no "
                                      "text");
    }
    return SL_OK;
}

static sl_status read_header(sl_safetensors *file, const char *data,
                             size_t data_bytes)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(file->header))
        return sl_fail(SL_EPARSE, "the header is not an object");
    sl_status status = sl__alloc(json_object_size(file->header),
                                 sizeof *file->tensors, &file->tensors);
    if (status)
        return status;
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            status = check_metadata(entry);
        else
            status = read_tensor(name, entry, data, data_bytes,
                                 &file->tensors[file->count]);
        if (status)
            return status;
        file->count += strcmp(name, "__metadata__") != 0;
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    return check_places(file, data, data_bytes);
}

static sl_status parse(sl_safetensors *file, const char *bytes, size_t count)
{
    uint64_t length = 0;
    if (count < PREFIX_BYTES)
        return sl_fail(SL_EPARSE, "%zu bytes are too few for a header", count);
    for (int i = 0; i < PREFIX_BYTES; i++)
        length |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    if (length > HEADER_BYTES_MAX || length > count - PREFIX_BYTES)
        return sl_fail(SL_EPARSE,
                       "the header claims %llu bytes, the file has %zu",
                       (unsigned long long)length, count - PREFIX_BYTES);
    json_error_t error;
    file->header = json_loadb(bytes + PREFIX_BYTES, (size_t)length,
                              JSON_REJECT_DUPLICATES, &error);
    if (!file->header)
        return sl_fail(SL_EPARSE, "the header is not JSON: %s", error.text);
    return read_header(file, bytes + PREFIX_BYTES + length,
                       count - PREFIX_BYTES - (size_t)length);
}

sl_status sl_safetensors_parse(const void *data, size_t bytes,
                               sl_safetensors **out)
{
    sl_safetensors *file;
    sl_status status = sl__alloc(1, sizeof *file, &file);
    if (status)
        return status;
    status = parse(file, data, bytes);
    if (status) {
        sl_safetensors_close(file);
        return status;
    }
    *out = file;
    return SL_OK;
}

/* -------------------------------------------------------------- reading -- */

static sl_status map_file(const char *path, void **out, size_t *out_bytes)
{
    struct stat about;
    /* A pipe that nobody writes to would otherwise be waited for. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return sl_fail(SL_EIO, "cannot open %.200s: %s", path, strerror(errno));
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(file);
        return sl_fail(SL_EIO, "%.200s is not a file", path);
    }
    if (about.st_size == 0) {
        close(file);
        return sl_fail(SL_EPARSE, "%.200s: the file is empty", path);
    }
    void *map =
        mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    int reason = errno;
    close(file);
    if (map == MAP_FAILED)
        return sl_fail(SL_EIO, "cannot map %.200s: %s", path, strerror(reason));
    *out = map;
    *out_bytes = (size_t)about.st_size;
    return SL_OK;
}

sl_status sl_safetensors_open(const char *path, sl_safetensors **out)
{
    void *map = NULL;
    size_t bytes = 0;
    sl_safetensors *file;
    sl_status status = map_file(path, &map, &bytes);
    if (status)
        return status;
    status = sl_safetensors_parse(map, bytes, &file);
    if (status) {
        munmap(map, bytes);
        return sl_fail(status, "%.200s: %s", path, sl_error_text());
    }
    file->map = map;
    file->map_bytes = bytes;
    *out = file;
    return SL_OK;
}

void sl_safetensors_close(sl_safetensors *file)
{
    if (!file)
        return;
    if (file->map)
        munmap(file->map, file->map_bytes);
    json_decref(file->header);
    free(file->tensors);
    free(file);
}

size_t sl_safetensors_count(const sl_safetensors *file)
{
    return file->count;
}

const sl_safetensor *sl_safetensors_at(const sl_safetensors *file, size_t index)
{
    return index < file->count ? &file->tensors[index] : NULL;
}

const sl_safetensor *sl_safetensors_find(const sl_safetensors *file,
                                         const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    }
    return NULL;
}

const char *sl_safetensors_metadata(const sl_safetensors *file, const char *key)
{
    const json_t *metadata = json_object_get(file->header, "__metadata__");
    return json_string_value(json_object_get(metadata, key));
}

/* -------------------------------------------------------------- writing -- */

static sl_status check_writable(const sl_safetensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const sl_safetensor *tensor = &tensors[i];
        int64_t bytes = (int64_t)sl_dtype_bytes(tensor->dtype);
        if (!tensor->name || strcmp(tensor->name, "__metadata__") == 0)
            return sl_fail(SL_EINVAL, "tensor %zu has no usable name", i);
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
        for (size_t k = 0; k < i; k++) {
            if (strcmp(tensors[k].name, tensor->name) == 0)
                return sl_fail(SL_EINVAL, "'%.64s' is there twice",
                               tensor->name);
        }
    }
    return SL_OK;
}

static json_t *describe(const sl_safetensor *tensor, size_t *at)
{
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dims; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    json_int_t first = (json_int_t)*at;
    *at += tensor->bytes;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                     dtypes[tensor->dtype].name, "shape", shape, "data_offsets",
                     first, (json_int_t)*at);
}

/* The header as text, padded with spaces so that the bytes begin at a multiple
 * of 8. The caller frees. */
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

static bool put(FILE *file, const void *data, size_t bytes)
{
    return bytes == 0 || fwrite(data, 1, bytes, file) == bytes;
}

static bool put_all(FILE *file, const char *header,
                    const sl_safetensor *tensors, size_t count)
{
    uint64_t length = strlen(header);
    unsigned char prefix[PREFIX_BYTES];
    for (int i = 0; i < PREFIX_BYTES; i++)
        prefix[i] = (unsigned char)(length >> (8 * i));
    bool done = put(file, prefix, sizeof prefix) && put(file, header, length);
    for (size_t i = 0; i < count && done; i++)
        done = put(file, tensors[i].data, tensors[i].bytes);
    return done && fflush(file) == 0 && fsync(fileno(file)) == 0;
}

/* Syncs the folder of a file, so that its new name survives too. */
static void sync_folder(const char *path)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int handle = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle >= 0) {
        fsync(handle);
        close(handle);
    }
}

/* Opens a new file beside `path`, with a name that no other has. */
static FILE *open_beside(const char *path, char *temporary, size_t size)
{
    for (unsigned i = 0; i < 1000; i++) {
        int length =
            snprintf(temporary, size, "%s.%ld-%u.tmp", path, (long)getpid(), i);
        if (length < 0 || (size_t)length >= size) {
            errno = ENAMETOOLONG;
            return NULL;
        }
        int handle =
            open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (handle >= 0)
            return fdopen(handle, "wb");
        if (errno != EEXIST)
            return NULL;
    }
    return NULL;
}

static sl_status replace(const char *path, const char *header,
                         const sl_safetensor *tensors, size_t count)
{
    char temporary[4096];
    FILE *file = open_beside(path, temporary, sizeof temporary);
    if (!file)
        return sl_fail(SL_EIO, "cannot write beside %.200s: %s", path,
                       strerror(errno));
    /* A file that is replaced keeps its mode. */
    struct stat old;
    bool done = stat(path, &old) != 0 || !S_ISREG(old.st_mode) ||
                fchmod(fileno(file), old.st_mode & 0777) == 0;
    done = done && put_all(file, header, tensors, count);
    int reason = errno;
    if (fclose(file) != 0 && done) {
        done = false;
        reason = errno;
    }
    if (done && rename(temporary, path) != 0) {
        done = false;
        reason = errno;
    }
    if (!done) {
        unlink(temporary);
        return sl_fail(SL_EIO, "cannot write %.200s: %s", path,
                       strerror(reason));
    }
    sync_folder(path);
    return SL_OK;
}

sl_status sl_safetensors_write(const char *path, const sl_safetensor *tensors,
                               size_t count, const char *const *metadata)
{
    char *header = NULL;
    sl_status status = check_writable(tensors, count);
    if (!status)
        status = make_header(tensors, count, metadata, &header);
    if (status)
        return status;
    /* Behind a symbolic link, the file it names is replaced. */
    char *target = realpath(path, NULL);
    status = replace(target ? target : path, header, tensors, count);
    free(target);
    free(header);
    return status;
}

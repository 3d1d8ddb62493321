/* SPDX-License-Identifier: MIT
 *
 * The header of a safetensors file: a JSON object of names to dtype, shape and a
 * range of bytes. It is taken only when all of it adds up: every shape makes
 * exactly its range, and the ranges follow one another without gap or overlap up
 * to the end. */
#include "tensor/safetensors.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

static bool read_dtype(const json_t *value, sl_dtype *out)
{
    const char *name = json_string_value(value);
    const struct {
        sl_dtype dtype;
        const char *name;
    } known[] = {
#define SL_DTYPE(name, text, bytes, safetensors) {SL_##name, safetensors},
#include "sluice/dtypes.def"
#undef SL_DTYPE
    };
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].dtype;
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
                             int64_t data_bytes, sl_safetensor *out)
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
    if (first < 0 || end < first || end > data_bytes)
        return fail_tensor(name, "data_offsets is outside the file");
    if (end - first != bytes)
        return fail_tensor(name, "shape and data_offsets do not agree");
    out->at = first;
    out->bytes = (size_t)bytes;
    return SL_OK;
}

static int by_place(const void *left, const void *right)
{
    const sl_safetensor *a = left, *b = right;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static sl_status check_places(const sl_safetensors *file, int64_t data_bytes)
{
    int64_t expected = 0;
    for (size_t i = 0; i < file->count; i++) {
        const sl_safetensor *tensor = &file->tensors[i];
        if (tensor->at != expected)
            return fail_tensor(tensor->name, tensor->at < expected
                                                 ? "overlaps another"
                                                 : "leaves a gap before it");
        expected += (int64_t)tensor->bytes;
    }
    if (expected != data_bytes)
        return sl_fail(SL_EPARSE, "%lld bytes after the last tensor",
                       (long long)(data_bytes - expected));
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

sl_status sl__safetensors_read_header(sl_safetensors *file, const char *text,
                                      size_t length, int64_t data_bytes)
{
    const char *name;
    json_t *entry;
    json_error_t error;
    file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!file->header)
        return sl_fail(SL_EPARSE, "the header is not JSON: %s", error.text);
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
            status = read_tensor(name, entry, data_bytes,
                                 &file->tensors[file->count]);
        if (status)
            return status;
        file->count += strcmp(name, "__metadata__") != 0;
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    return check_places(file, data_bytes);
}

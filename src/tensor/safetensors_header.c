/* SPDX-License-Identifier: MIT
 *
 * The header of a safetensors file: a JSON object of names to dtype, shape and a
 * range of bytes. It is taken only when all of it adds up: every shape makes
 * exactly its range, and the ranges follow one another without gap or overlap up
 * to the end.
 *
 * Whoever writes a header decides what it costs to read, so there is never a tree
 * of all of it: members are found in the text one by one, and what they are is
 * kept in a few times as many bytes as they take there. */
#include "tensor/json_members.h"
#include "tensor/safetensors.h"

#include "base/memory.h"
#include "base/text.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A dtype, six sizes and a range take three hundred bytes at most; there may be
 * blanks, and keys that only others know. */
enum { ENTRY_BYTES_MAX = 1 << 16 };

static bool read_dtype(const json_t *value, sl_dtype *out)
{
    const char *name = json_string_value(value);
    const struct {
        sl_dtype dtype;
        const char *name;
    } known[] = {
#define SL_DTYPE(name, text, bytes, safetensors, ...) {SL_##name, safetensors},
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

static sl_status fail_twice(const char *name)
{
    char quoted[SL__QUOTED_MAX];
    return sl_fail(SL_EPARSE, "the header has '%s' twice",
                   sl__quoted(name, strlen(name), quoted));
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
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *left, const void *right)
{
    const sl_safetensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int by_key(const void *left, const void *right)
{
    const sl__metadata *a = left, *b = right;
    return strcmp(a->key, b->key);
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

/* Tensors by name, to be found by it; no two have the same. */
static sl_status sort_names(sl_safetensors *file)
{
    sl_status status =
        sl__alloc(file->count, sizeof *file->by_name, &file->by_name);
    if (status)
        return status;
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
    for (size_t i = 1; i < file->count; i++) {
        const char *name = file->by_name[i]->name;
        if (strcmp(file->by_name[i - 1]->name, name) == 0)
            return fail_twice(name);
    }
    return SL_OK;
}

/* ----------------------------------------------------------------- text -- */

/* Decodes a string into the texts of the file, where there is room for all of
 * them: without its quotes and escapes each is shorter than in the header. */
static sl_status decode(sl_safetensors *file, sl__span raw, const char **out)
{
    json_error_t error;
    json_t *string = json_loadb(raw.text, raw.length, JSON_DECODE_ANY, &error);
    if (!string)
        return sl_fail(SL_EPARSE, "the header has a text that is not JSON: %s",
                       error.text);
    size_t length = json_string_length(string);
    assert(length < raw.length);
    memcpy(file->texts_end, json_string_value(string), length + 1);
    *out = file->texts_end;
    file->texts_end += length + 1;
    json_decref(string);
    return SL_OK;
}

static sl_status refuse_text(const char *what)
{
    char reason[SL__QUOTED_MAX + 60];
    snprintf(reason, sizeof reason, "%.90s", sl_error_text());
    return sl_fail(SL_EPARSE, "%s is not a JSON object: %s", what, reason);
}

static sl_status add_metadata(sl_safetensors *file, sl__span key,
                              sl__span value)
{
    sl__metadata *list = file->metadata;
    if (*value.text != '"')
        return sl_fail(SL_EPARSE, "__metadata__ has a value that is no text");
    sl_status status = sl__grow(&file->metadata, &file->metadata_capacity,
                                file->metadata_count + 1, sizeof *list);
    if (status)
        return status;
    list = &file->metadata[file->metadata_count];
    status = decode(file, key, &list->key);
    if (!status)
        status = decode(file, value, &list->value);
    if (!status)
        file->metadata_count++;
    return status;
}

static sl_status read_metadata(sl_safetensors *file, sl__span text)
{
    sl__members members;
    sl__span key, value;
    bool more = true;
    sl_status status = SL_OK;
    if (file->has_metadata)
        return fail_twice("__metadata__");
    file->has_metadata = true;
    if (*text.text != '{')
        return sl_fail(SL_EPARSE, "__metadata__ is not an object");
    sl__members_start(&members, text);
    while (!status) {
        status = sl__members_next(&members, &key, &value, &more);
        if (status)
            return refuse_text("__metadata__");
        if (!more)
            break;
        status = add_metadata(file, key, value);
    }
    if (status || file->metadata_count == 0)
        return status;
    qsort(file->metadata, file->metadata_count, sizeof *file->metadata, by_key);
    for (size_t i = 1; i < file->metadata_count; i++) {
        if (by_key(&file->metadata[i - 1], &file->metadata[i]) == 0)
            return fail_twice(file->metadata[i].key);
    }
    return SL_OK;
}

/* One tensor: a tree of its own, which is small, and gone before the next. */
static sl_status add_tensor(sl_safetensors *file, const char *name,
                            sl__span text, int64_t data_bytes)
{
    json_error_t error;
    char quoted[SL__QUOTED_MAX];
    if (text.length > ENTRY_BYTES_MAX)
        return sl_fail(SL_EPARSE,
                       "tensor '%s': %zu bytes of the header are about it, "
                       "expected at most %d",
                       sl__quoted(name, strlen(name), quoted), text.length,
                       ENTRY_BYTES_MAX);
    sl_status status = sl__grow(&file->tensors, &file->capacity,
                                file->count + 1, sizeof *file->tensors);
    if (status)
        return status;
    json_t *entry =
        json_loadb(text.text, text.length,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    status = entry ? read_tensor(name, entry, data_bytes,
                                 &file->tensors[file->count])
                   : fail_tensor(name, error.text);
    json_decref(entry);
    if (!status)
        file->count++;
    return status;
}

static sl_status add_member(sl_safetensors *file, sl__span key, sl__span value,
                            int64_t data_bytes)
{
    const char *name;
    sl_status status = decode(file, key, &name);
    if (status)
        return status;
    if (strcmp(name, "__metadata__") == 0)
        return read_metadata(file, value);
    return add_tensor(file, name, value, data_bytes);
}

sl_status sl__safetensors_read_header(sl_safetensors *file, const char *text,
                                      size_t length, int64_t data_bytes)
{
    sl__members members;
    sl__span key, value;
    bool more = true;
    sl_status status = sl__alloc(length, 1, &file->texts);
    file->texts_end = file->texts;
    sl__members_start(&members, (sl__span){text, length});
    while (!status) {
        status = sl__members_next(&members, &key, &value, &more);
        if (status)
            return refuse_text("the header");
        if (!more)
            break;
        status = add_member(file, key, value, data_bytes);
    }
    if (status)
        return status;
    if (file->count)
        qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    status = sort_names(file);
    return status ? status : check_places(file, data_bytes);
}

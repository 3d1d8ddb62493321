/* SPDX-License-Identifier: MIT
 *
 * The header of a safetensors file: a JSON object of names to dtype, shape and
 * a range of bytes. It is accepted only if all of it is consistent: every range
 * has exactly the bytes of its shape, and the ranges follow one another without
 * gap or overlap, up to the end.
 *
 * A header may be crafted to be expensive to read, so it is never parsed into
 * one tree: members are found in the text one by one, and what is kept of them
 * takes only a few times their bytes in the text. */
#include "tensor/json_members.h"
#include "tensor/safetensors.h"

#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A dtype, six sizes and a range take three hundred bytes at most; the rest is
 * for whitespace and unknown keys. */
enum { ENTRY_BYTES_MAX = 1 << 16 };

static bool read_dtype(const json_t *value, sl_dtype *out)
{
    const char *name = json_string_value(value);
#define SL_DTYPE(NAME, text, bytes, safetensors, ...)                          \
    if (name && strcmp(name, safetensors) == 0) {                              \
        *out = SL_##NAME;                                                      \
        return true;                                                           \
    }
#include "sluice/dtypes.def"
#undef SL_DTYPE
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
        return fail_tensor(name,
                           "dtype is not F32, F64, BF16, F16, I32, I64 or "
                           "BOOL");
    SL__TRY(read_shape(name, json_object_get(entry, "shape"), out, &bytes));
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

static sl_status check_places(const sl_safetensors *file)
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
    if (expected != file->data_bytes)
        return sl_fail(SL_EPARSE, "%lld bytes after the last tensor",
                       (long long)(file->data_bytes - expected));
    return SL_OK;
}

/* Sorts tensors by name, to find them by it; refuses a name that occurs
 * twice. */
static sl_status sort_names(sl_safetensors *file)
{
    SL__TRY(sl__alloc(file->count, sizeof *file->by_name, &file->by_name));
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

/* Decodes a string into the texts of the file. There is room for all of them:
 * without its quotes and escapes each is shorter than in the header. */
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

typedef sl_status (*member_fn)(sl_safetensors *file, sl__span key,
                               sl__span value);

/* Calls `add` for every member of the object named `what`. */
static sl_status read_members(sl_safetensors *file, const char *what,
                              sl__span text, member_fn add)
{
    sl__members members;
    sl__span key, value;
    bool more;
    sl__members_start(&members, text);
    for (;;) {
        if (sl__members_next(&members, &key, &value, &more))
            return refuse_text(what);
        if (!more)
            return SL_OK;
        SL__TRY(add(file, key, value));
    }
}

static sl_status add_metadata(sl_safetensors *file, sl__span key,
                              sl__span value)
{
    if (*value.text != '"')
        return sl_fail(SL_EPARSE, "__metadata__ has a value that is no text");
    SL__TRY(sl__grow(&file->metadata, &file->metadata_capacity,
                     file->metadata_count + 1, sizeof *file->metadata));
    sl__metadata *entry = &file->metadata[file->metadata_count];
    SL__TRY(decode(file, key, &entry->key));
    SL__TRY(decode(file, value, &entry->value));
    file->metadata_count++;
    return SL_OK;
}

static sl_status read_metadata(sl_safetensors *file, sl__span text)
{
    if (file->has_metadata)
        return fail_twice("__metadata__");
    file->has_metadata = true;
    if (*text.text != '{')
        return sl_fail(SL_EPARSE, "__metadata__ is not an object");
    SL__TRY(read_members(file, "__metadata__", text, add_metadata));
    if (file->metadata_count)
        qsort(file->metadata, file->metadata_count, sizeof *file->metadata,
              by_key);
    for (size_t i = 1; i < file->metadata_count; i++) {
        if (by_key(&file->metadata[i - 1], &file->metadata[i]) == 0)
            return fail_twice(file->metadata[i].key);
    }
    return SL_OK;
}

/* Parses one tensor into a small JSON tree of its own, freed before the
 * next. */
static sl_status add_tensor(sl_safetensors *file, const char *name,
                            sl__span text)
{
    json_error_t error;
    char quoted[SL__QUOTED_MAX];
    if (text.length > ENTRY_BYTES_MAX)
        return sl_fail(SL_EPARSE,
                       "tensor '%s': %zu bytes of the header are about it, "
                       "expected at most %d",
                       sl__quoted(name, strlen(name), quoted), text.length,
                       ENTRY_BYTES_MAX);
    SL__TRY(sl__grow(&file->tensors, &file->capacity, file->count + 1,
                     sizeof *file->tensors));
    json_t *entry =
        json_loadb(text.text, text.length,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!entry)
        return fail_tensor(name, error.text);
    sl_status status =
        read_tensor(name, entry, file->data_bytes, &file->tensors[file->count]);
    json_decref(entry);
    file->count += !status;
    return status;
}

static sl_status add_member(sl_safetensors *file, sl__span key, sl__span value)
{
    const char *name;
    SL__TRY(decode(file, key, &name));
    return strcmp(name, "__metadata__") == 0 ? read_metadata(file, value)
                                             : add_tensor(file, name, value);
}

sl_status sl__safetensors_read_header(sl_safetensors *file, const char *text,
                                      size_t length)
{
    SL__TRY(sl__alloc(length, 1, &file->texts));
    file->texts_end = file->texts;
    SL__TRY(
        read_members(file, "the header", (sl__span){text, length}, add_member));
    assert(file->texts_end <= file->texts + length);
    if (file->count)
        qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    SL__TRY(sort_names(file));
    return check_places(file);
}

/* SPDX-License-Identifier: MIT
 *
 * Tokens from files. Text is read into memory at once. Token files stay open
 * and are read on demand, so that changes to a file are noticed. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One file. */
typedef struct part {
    char *path;
    int fd;         /* of a token file; -1: text, in memory */
    int64_t offset; /* of its first token, in bytes */
    int64_t first;  /* number of its first token in the data */
    int64_t count;
    int bytes; /* of a token */
} part;

struct sl_tokens {
    part *parts;
    size_t count;
    size_t capacity;
    unsigned char *text;
    size_t text_bytes;
    size_t text_capacity;
    int64_t total;
};

static bool is_binary(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

/* ---------------------------------------------------------------- files -- */

static sl_status read_text(sl_tokens *tokens, part *own, int64_t size)
{
    size_t done = 0;
    SL__TRY(sl__grow(&tokens->text, &tokens->text_capacity,
                     tokens->text_bytes + (size_t)size + 1,
                     sizeof *tokens->text));
    SL__TRY(sl__read_some(own->fd, own->path, tokens->text + tokens->text_bytes,
                          (size_t)size, &done));
    close(own->fd);
    own->fd = -1;
    own->bytes = 1;
    own->offset = (int64_t)tokens->text_bytes;
    own->count = (int64_t)done;
    tokens->text_bytes += done;
    return SL_OK;
}

/* The header of llm.c's files: magic number, version, number of tokens. */
enum { HEADER_NUMBERS = 256, MAGIC_16 = 20240520, MAGIC_32 = 20240801 };

static sl_status read_header(part *own, int64_t size)
{
    int32_t header[HEADER_NUMBERS];
    own->bytes = 2;
    own->count = size / own->bytes;
    header[0] = 0;
    if (size >= (int64_t)sizeof header)
        SL__TRY(sl__read_at(own->fd, own->path, 0, header, sizeof header));
    if (header[0] == MAGIC_16 || header[0] == MAGIC_32) {
        int version = header[0] == MAGIC_16 ? 1 : 7;
        own->bytes = header[0] == MAGIC_16 ? 2 : 4;
        own->offset = sizeof header;
        own->count = header[2];
        if (header[1] != version)
            return sl_fail(SL_EPARSE,
                           "'%.300s' is version %d of its format, expected %d",
                           own->path, header[1], version);
    }
    if (own->count < 0 || own->offset + own->count * own->bytes != size)
        return sl_fail(SL_EPARSE,
                       "'%.300s' has %lld bytes, which are not %lld tokens of "
                       "%d",
                       own->path, (long long)size, (long long)own->count,
                       own->bytes);
    return SL_OK;
}

static sl_status add_file(sl_tokens *tokens, const char *path)
{
    int64_t bytes;
    SL__TRY(sl__grow(&tokens->parts, &tokens->capacity, tokens->count + 1,
                     sizeof *tokens->parts));
    part *own = &tokens->parts[tokens->count];
    *own = (part){0};
    SL__TRY(sl__open_file(path, &own->fd, &bytes));
    tokens->count++;
    SL__TRY(sl__alloc(strlen(path) + 1, 1, &own->path));
    memcpy(own->path, path, strlen(path) + 1);
    bool binary = is_binary(path);
    if (tokens->count > 1 && binary != is_binary(tokens->parts[0].path))
        return sl_fail(SL_EINVAL,
                       "'%.200s' and '%.200s' are of two kinds: tokens and "
                       "text",
                       tokens->parts[0].path, path);
    SL__TRY(binary ? read_header(own, bytes) : read_text(tokens, own, bytes));
    own->first = tokens->total;
    tokens->total += own->count;
    return SL_OK;
}

/* -------------------------------------------------------------- folders -- */

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Whether to read a file of a folder: a token file, or text, which has no zero
 * byte near its beginning. A file that cannot be opened is wanted: add_file
 * refuses it. */
static bool is_wanted(const char *path)
{
    char start[8000];
    if (is_binary(path))
        return true;
    int fd;
    int64_t bytes;
    if (sl__open_file(path, &fd, &bytes))
        return true;
    size_t got = 0;
    sl_status status = sl__read_some(fd, path, start, sizeof start, &got);
    close(fd);
    return status || !memchr(start, '\0', got);
}

static sl_status add_folder(sl_tokens *tokens, const char *path, int depth);

/* Adds a file of a folder, or a folder in it. Links to folders are not
 * followed. */
static sl_status add_entry(sl_tokens *tokens, const char *path, int depth)
{
    struct stat about;
    if (lstat(path, &about))
        return sl__fail_file(path, "read");
    if (S_ISDIR(about.st_mode))
        return add_folder(tokens, path, depth + 1);
    if (S_ISLNK(about.st_mode) && stat(path, &about))
        return SL_OK;
    return S_ISREG(about.st_mode) && is_wanted(path) ? add_file(tokens, path)
                                                     : SL_OK;
}

/* Adds all wanted files of a folder and of the folders in it. */
static sl_status add_named(sl_tokens *tokens, const char *folder,
                           const char *name, int depth)
{
    char *path;
    SL__TRY(sl__join_path(folder, name, &path));
    sl_status status = add_entry(tokens, path, depth);
    free(path);
    return status;
}

static sl_status add_folder(sl_tokens *tokens, const char *path, int depth)
{
    enum { DEPTH_MAX = 64 };
    struct dirent **entries;
    if (depth > DEPTH_MAX)
        return sl_fail(SL_EINVAL, "'%.300s' is nested too deeply", path);
    int count = scandir(path, &entries, is_shown, by_bytes);
    if (count < 0)
        return sl__fail_file(path, "read");
    sl_status status = SL_OK;
    for (int i = 0; i < count; i++) {
        if (!status)
            status = add_named(tokens, path, entries[i]->d_name, depth);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* ----------------------------------------------------------------- life -- */

sl_status sl_tokens_open(const char *path, sl_tokens **out)
{
    SL__NEED(path, out);
    struct stat about;
    sl_tokens *tokens;
    if (stat(path, &about))
        return sl__fail_file(path, "open");
    if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode))
        return sl_fail(SL_EINVAL, "'%.300s' is not a file or a folder", path);
    SL__TRY(sl__alloc(1, sizeof *tokens, &tokens));
    sl_status status = S_ISDIR(about.st_mode) ? add_folder(tokens, path, 0)
                                              : add_file(tokens, path);
    if (!status && tokens->total == 0)
        status = sl_fail(SL_EINVAL, "'%.300s' has no tokens in it", path);
    if (status)
        sl_tokens_close(tokens);
    else
        *out = tokens;
    return status;
}

void sl_tokens_close(sl_tokens *tokens)
{
    if (!tokens)
        return;
    for (size_t i = 0; i < tokens->count; i++) {
        if (tokens->parts[i].fd >= 0)
            close(tokens->parts[i].fd);
        free(tokens->parts[i].path);
    }
    free(tokens->parts);
    free(tokens->text);
    free(tokens);
}

int64_t sl_tokens_count(const sl_tokens *tokens)
{
    return tokens ? tokens->total : 0;
}

bool sl_tokens_are_bytes(const sl_tokens *tokens)
{
    return tokens && !is_binary(tokens->parts[0].path);
}

/* -------------------------------------------------------------- reading -- */

static sl_status read_part(const sl_tokens *tokens, const part *own,
                           int64_t first, int64_t count, int64_t *out)
{
    enum { PIECE = 2048 };
    if (own->fd < 0) {
        const unsigned char *text = tokens->text + own->offset + first;
        for (int64_t i = 0; i < count; i++)
            out[i] = text[i];
        return SL_OK;
    }
    union {
        uint16_t narrow[PIECE];
        uint32_t wide[PIECE];
    } piece;
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t now = count - at < PIECE ? count - at : PIECE;
        SL__TRY(sl__read_at(own->fd, own->path,
                            own->offset + (first + at) * own->bytes, &piece,
                            (size_t)(now * own->bytes)));
        for (int64_t i = 0; i < now; i++)
            out[at + i] = own->bytes == 2 ? piece.narrow[i] : piece.wide[i];
    }
    return SL_OK;
}

sl_status sl_tokens_read(const sl_tokens *tokens, int64_t first, int64_t count,
                         int64_t *out)
{
    SL__NEED(tokens);
    if (count > 0)
        SL__NEED(out);
    if (first < 0 || count < 0 || first > tokens->total - count)
        return sl_fail(
            SL_EINVAL, "%lld tokens from place %lld on, and there are %lld",
            (long long)count, (long long)first, (long long)tokens->total);
    for (size_t i = 0; i < tokens->count && count > 0; i++) {
        const part *own = &tokens->parts[i];
        int64_t skip = first - own->first, left = own->count - skip;
        if (left <= 0)
            continue;
        int64_t now = left < count ? left : count;
        SL__TRY(read_part(tokens, own, skip, now, out));
        first += now;
        count -= now;
        out += now;
    }
    return SL_OK;
}

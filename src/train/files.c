/* SPDX-License-Identifier: MIT
 *
 * Files as checkpoints need them: whole, lasting, and known again. */
#include "train/train.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static sl_status fail_file(const char *path, const char *what)
{
    return sl_fail(SL_EIO, "cannot %s '%.300s': %s", what, path,
                   strerror(errno));
}

/* In the middle of a run, whose folder could be written to before. */
static sl_status fail_writing(const char *path)
{
    return sl_fail(SL_EFAIL, "cannot write '%.300s': %s", path,
                   strerror(errno));
}

char *sl__join_path(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* Reads all of an open file in pieces. */
static sl_status read_pieces(int fd, const char *path,
                             void (*take)(void *context, const void *data,
                                          size_t bytes),
                             void *context)
{
    enum { PIECE = 1 << 20 };
    char *piece;
    sl_status status = sl__alloc(PIECE, 1, &piece);
    if (status)
        return status;
    for (;;) {
        ssize_t got = read(fd, piece, PIECE);
        if (got < 0)
            status = fail_file(path, "read");
        if (got <= 0)
            break;
        take(context, piece, (size_t)got);
    }
    free(piece);
    return status;
}

/* ------------------------------------------------------------------ sums -- */

typedef struct sum {
    uint64_t value;
    int64_t bytes;
} sum;

/* Every byte moves all bits of the sum. Pieces are whole words but the last. */
static void add_to_sum(void *context, const void *data, size_t bytes)
{
    sum *own = context;
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i < 8 ? bytes - i : 8);
        own->value = (own->value ^ word) * 0x9e3779b97f4a7c15u;
        own->value ^= own->value >> 29;
    }
    own->bytes += (int64_t)bytes;
}

/* Opens what is a file, and does not wait for what is none. */
static sl_status open_file(const char *path, int *out)
{
    struct stat about;
    *out = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*out < 0)
        return fail_file(path, "open");
    if (fstat(*out, &about) == 0 && S_ISREG(about.st_mode))
        return SL_OK;
    close(*out);
    return sl_fail(SL_EINVAL, "'%.300s' is not a file", path);
}

sl_status sl__sum_file(const char *path, int64_t *out_bytes, uint64_t *out_sum)
{
    sum own = {0};
    int fd;
    sl_status status = open_file(path, &fd);
    if (status)
        return status;
    status = read_pieces(fd, path, add_to_sum, &own);
    close(fd);
    *out_bytes = own.bytes;
    *out_sum = own.value;
    return status;
}

/* ----------------------------------------------------------- whole files -- */

typedef struct growing {
    sl_string text;
    sl_status status;
} growing;

static void append(void *context, const void *data, size_t bytes)
{
    growing *own = context;
    if (!own->status)
        own->status = sl_write_string(&own->text, data, bytes);
}

sl_status sl__read_file(const char *path, char **out, size_t *out_length)
{
    growing own = {SL_STRING_INIT, SL_OK};
    int fd;
    sl_status status = open_file(path, &fd);
    if (status)
        return status;
    status = read_pieces(fd, path, append, &own);
    close(fd);
    if (!status)
        status = own.status;
    if (!status)
        status = sl_write_string(&own.text, "", 0);
    if (status) {
        sl_string_clear(&own.text);
        return status;
    }
    *out = own.text.data;
    *out_length = own.text.length;
    return SL_OK;
}

sl_status sl__write_file(const char *path, const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    sl_status status = SL_OK;
    if (fd < 0)
        return fail_writing(path);
    for (size_t done = 0; done < length && !status;) {
        ssize_t put = write(fd, text + done, length - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            status = fail_writing(path);
    }
    if (!status && fsync(fd))
        status = fail_writing(path);
    if (close(fd) && !status)
        status = fail_writing(path);
    return status;
}

/* A folder, and those that it is in. */
static sl_status make_folders(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return sl_fail(SL_ENOMEM, "out of memory");
    for (char *at = copy + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        mkdir(copy, 0777);
        *at = '/';
    }
    free(copy);
    if (mkdir(path, 0777) && errno != EEXIST)
        return sl_fail(SL_EIO, "cannot make the folder '%.300s': %s", path,
                       strerror(errno));
    return SL_OK;
}

struct sl_claim {
    int fd; /* of the lock, which goes with it */
};

sl_status sl_claim_create(const char *folder, sl_claim **out)
{
    sl_claim *claim = NULL;
    sl_status status = make_folders(folder);
    if (status)
        return status;
    char *lock = sl__join_path(folder, ".lock");
    if (!lock)
        return sl_fail(SL_ENOMEM, "out of memory");
    status = sl__alloc(1, sizeof *claim, &claim);
    if (!status)
        claim->fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (!status && claim->fd < 0)
        status = fail_file(lock, "write");
    else if (!status && flock(claim->fd, LOCK_EX | LOCK_NB))
        status = sl_fail(SL_EINVAL, "another run writes to '%.300s'", folder);
    free(lock);
    if (status)
        sl_claim_destroy(claim);
    else
        *out = claim;
    return status;
}

void sl_claim_destroy(sl_claim *claim)
{
    if (!claim)
        return;
    if (claim->fd >= 0)
        close(claim->fd);
    free(claim);
}

sl_status sl__sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_file(path, "open");
    sl_status status = SL_OK;
    /* Some file systems cannot, and need not. */
    if (fsync(fd) && errno != EINVAL && errno != EROFS)
        status = fail_writing(path);
    close(fd);
    return status;
}

void sl__remove_folder(const char *path)
{
    /* A link is not followed: what it names is not ours. */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    if (fd >= 0 && !folder)
        close(fd);
    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder)
        closedir(folder);
    rmdir(path);
}

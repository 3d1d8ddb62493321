/* SPDX-License-Identifier: MIT
 *
 * Files and folders for checkpoints: checksums, the lock that admits one run to
 * a folder, and removal. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/checksum.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

sl_status sl__join_path(const char *folder, const char *name, char **out)
{
    if (asprintf(out, "%s/%s", folder, name) >= 0)
        return SL_OK;
    *out = NULL;
    return sl_fail(SL_ENOMEM, "out of memory");
}

sl_status sl__write_in(const char *folder, const char *name, const char *text,
                       size_t length)
{
    char *path;
    SL__TRY(sl__join_path(folder, name, &path));
    sl_status status = sl__write_file(path, text, length);
    free(path);
    return status;
}

/* ------------------------------------------------------------------ sums -- */

void sl__fnv_add(uint64_t *sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        *sum = (*sum ^ at[i]) * UINT64_C(0x100000001b3);
}

/* Adds the next piece of a file to the state of a checksum. */
typedef void (*sum_fn)(void *state, const void *data, size_t bytes);

static sl_status sum_pieces(const char *path, sum_fn add, void *state,
                            int64_t *out_bytes)
{
    enum { PIECE = 1 << 20 };
    char *piece = NULL;
    int fd;
    int64_t bytes = 0;
    sl_status status;
    SL__TRY(sl__open_file(path, &fd, &bytes));
    bytes = 0;
    SL__TRY_OR(close_file, sl__alloc(PIECE, 1, &piece));
    for (size_t got = PIECE; got == PIECE; bytes += (int64_t)got) {
        SL__TRY_OR(free_piece, sl__read_some(fd, path, piece, PIECE, &got));
        add(state, piece, got);
    }
    *out_bytes = bytes;
free_piece:
    free(piece);
close_file:
    close(fd);
    return status;
}

static void add_to_checksum(void *state, const void *data, size_t bytes)
{
    sl__checksum_add(state, data, bytes);
}

sl_status sl__sum_file(const char *path, int64_t *out_bytes, uint64_t *out_sum)
{
    sl__checksum sum;
    sl__checksum_start(&sum);
    SL__TRY(sum_pieces(path, add_to_checksum, &sum, out_bytes));
    *out_sum = sl__checksum_end(&sum);
    return SL_OK;
}

/* All pieces but the last consist of whole words. */
static void add_words(void *state, const void *data, size_t bytes)
{
    uint64_t *sum = state;
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i < 8 ? bytes - i : 8);
        *sum = (*sum ^ word) * 0x9e3779b97f4a7c15u;
        *sum ^= *sum >> 29;
    }
}

sl_status sl__sum_file_version_1(const char *path, int64_t *out_bytes,
                                 uint64_t *out_sum)
{
    uint64_t sum = 0;
    SL__TRY(sum_pieces(path, add_words, &sum, out_bytes));
    *out_sum = sum;
    return SL_OK;
}

/* --------------------------------------------------------------- folders -- */

/* Creates a folder and its parents. */
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
    int fd; /* holds the lock until it is closed */
};

/* Takes the lock of a folder, which is held until the descriptor is closed. */
static sl_status take_lock(const char *folder, int *out)
{
    char *path;
    SL__TRY(sl__join_path(folder, ".lock", &path));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    sl_status status = fd < 0 ? sl__fail_file(path, "write") : SL_OK;
    free(path);
    SL__TRY(status);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *out = fd;
        return SL_OK;
    }
    close(fd);
    return sl_fail(SL_EINVAL, "another run writes to '%.300s'", folder);
}

sl_status sl_claim_create(const char *folder, sl_claim **out)
{
    SL__NEED(folder, out);
    sl_claim *claim;
    SL__TRY(make_folders(folder));
    SL__TRY(sl__alloc(1, sizeof *claim, &claim));
    sl_status status = take_lock(folder, &claim->fd);
    if (status)
        free(claim);
    else
        *out = claim;
    return status;
}

void sl_claim_destroy(sl_claim *claim)
{
    if (!claim)
        return;
    close(claim->fd);
    free(claim);
}

void sl__remove_folder(const char *path)
{
    /* Links are not followed: their targets are not part of the checkpoint. */
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

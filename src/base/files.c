/* SPDX-License-Identifier: MIT
 *
 * See files.h. */
#include "base/files.h"

#include "base/memory.h"
#include "base/try.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sl_status sl__fail_file(const char *path, const char *what)
{
    return sl_fail(SL_EIO, "cannot %s '%.300s': %s", what, path,
                   strerror(errno));
}

/* For a file that could be opened: the request was valid, the work failed
 * (SL_EFAIL). */
static sl_status fail_work(const char *path, const char *what)
{
    return sl_fail(SL_EFAIL, "cannot %s '%.300s': %s", what, path,
                   strerror(errno));
}

/* --------------------------------------------------------------- opening -- */

/* Opens a regular file and nothing else. O_NONBLOCK has no effect on one, and
 * keeps open() from waiting for the other end of a pipe. */
static sl_status open_regular(const char *path, int flags, const char *what,
                              int *out_fd, int64_t *out_bytes)
{
    struct stat about;
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    } while (fd < 0 && errno == EINTR);
    /* ENXIO: a pipe that nobody reads. */
    if (fd < 0 && errno != ENXIO)
        return sl__fail_file(path, what);
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
        *out_fd = fd;
        *out_bytes = about.st_size;
        return SL_OK;
    }
    if (fd >= 0)
        close(fd);
    return sl_fail(SL_EIO, "'%.300s' is not a file", path);
}

sl_status sl__open_file(const char *path, int *out_fd, int64_t *out_bytes)
{
    return open_regular(path, O_RDONLY, "open", out_fd, out_bytes);
}

/* --------------------------------------------------------------- reading -- */

sl_status sl__read_some(int fd, const char *path, void *out, size_t bytes,
                        size_t *out_bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, (char *)out + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_work(path, "read");
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *out_bytes = done;
    return SL_OK;
}

sl_status sl__read_at(int fd, const char *path, int64_t at, void *out,
                      size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got =
            pread(fd, (char *)out + done, bytes - done, at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_work(path, "read");
        if (got == 0)
            return sl_fail(SL_EFAIL, "'%.300s' has become shorter", path);
        done += (size_t)got;
    }
    return SL_OK;
}

/* Reads to the end, whatever the length was at opening: a file in /proc reports
 * none, and a file that is being written grows. */
static sl_status read_to_end(int fd, const char *path, sl_string *text)
{
    enum { PIECE = 1 << 16 };
    size_t got = PIECE;
    while (got == PIECE) {
        SL__TRY(sl__grow(&text->data, &text->capacity, text->length + PIECE + 1,
                         sizeof *text->data));
        SL__TRY(
            sl__read_some(fd, path, text->data + text->length, PIECE, &got));
        text->length += got;
    }
    text->data[text->length] = '\0';
    return SL_OK;
}

sl_status sl__read_file(const char *path, char **out, size_t *out_length)
{
    sl_string text = SL_STRING_INIT;
    int fd;
    int64_t bytes;
    SL__TRY(sl__open_file(path, &fd, &bytes));
    sl_status status = read_to_end(fd, path, &text);
    close(fd);
    if (status) {
        sl_string_clear(&text);
        return status;
    }
    *out = text.data;
    *out_length = text.length;
    return SL_OK;
}

/* --------------------------------------------------------------- writing -- */

sl_status sl__write_all(int fd, const char *path, const void *data,
                        size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t put = write(fd, (const char *)data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fail_work(path, "write");
        done += (size_t)put;
    }
    return SL_OK;
}

static int sync_again(int fd)
{
    int failed;
    do {
        failed = fsync(fd);
    } while (failed && errno == EINTR);
    return failed;
}

sl_status sl__close_written(int fd, const char *path, sl_status status)
{
    if (!status && sync_again(fd))
        status = fail_work(path, "write");
    /* close() that was interrupted has closed the file. */
    if (close(fd) && errno != EINTR && !status)
        status = fail_work(path, "write");
    return status;
}

sl_status sl__write_file(const char *path, const char *text, size_t length)
{
    int fd;
    int64_t bytes;
    SL__TRY(
        open_regular(path, O_WRONLY | O_CREAT | O_TRUNC, "write", &fd, &bytes));
    return sl__close_written(fd, path, sl__write_all(fd, path, text, length));
}

sl_status sl__sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sl__fail_file(path, "open");
    sl_status status = SL_OK;
    /* Some file systems cannot, and need not. */
    if (sync_again(fd) && errno != EINVAL && errno != EROFS)
        status = fail_work(path, "write");
    close(fd);
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * Files, opened without blocking and read and written as a whole: every read
 * and write of the library goes through here.
 *
 * Invariants: anything but a regular file is refused, so that no call blocks on
 * a pipe; interrupted calls and short reads and writes are continued. Failures
 * name the path: SL_EIO if it cannot be opened, SL_EFAIL after that. */
#ifndef SL_BASE_FILES_H
#define SL_BASE_FILES_H

#include "sluice/base.h"

#include <stdint.h>

/* Fails with "cannot read 'path'", where `what` is "read", and why: errno. */
sl_status sl__fail_file(const char *path, const char *what);

/* Opens a regular file for reading, and gives its length. */
sl_status sl__open_file(const char *path, int *out_fd, int64_t *out_bytes);

/* Reads `bytes` from the current position; fewer only at the end of the
 * file. */
sl_status sl__read_some(int fd, const char *path, void *out, size_t bytes,
                        size_t *out_bytes);

/* Reads `bytes` from offset `at`; SL_EFAIL if the file has become too short for
 * that since it was opened. Threads may share the descriptor. */
sl_status sl__read_at(int fd, const char *path, int64_t at, void *out,
                      size_t bytes);

sl_status sl__write_all(int fd, const char *path, const void *data,
                        size_t bytes);

/* Closes a written file once it is on the disk. `status` says how the writing
 * went; if it is a failure, it is returned. */
sl_status sl__close_written(int fd, const char *path, sl_status status);

/* The whole file, followed by a NUL; the caller frees it. */
sl_status sl__read_file(const char *path, char **out, size_t *out_length);

/* Writes a file that is on the disk when this returns. */
sl_status sl__write_file(const char *path, const char *text, size_t length);

/* Syncs a folder, so that files created and renamed in it survive a crash. */
sl_status sl__sync_folder(const char *path);

#endif

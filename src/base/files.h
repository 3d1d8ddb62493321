/* SPDX-License-Identifier: MIT
 *
 * Files, opened without waiting and read and written as a whole: every read and
 * write of the library goes through here.
 *
 * Invariants: what is no regular file is refused, so that nobody waits for a
 * pipe; a call that a signal interrupts is made again; a call that does less
 * than it was asked to is followed by another. Failures name the path: SL_EIO
 * where it cannot be opened, SL_EFAIL where it could. */
#ifndef SL_BASE_FILES_H
#define SL_BASE_FILES_H

#include "sluice/base.h"

#include <stdint.h>

/* Says that `what`, as "read", cannot be done to a file, and why: errno. */
sl_status sl__fail_file(const char *path, const char *what);

/* Opens a regular file to read, and says how long it is. */
sl_status sl__open_file(const char *path, int *out_fd, int64_t *out_bytes);

/* Reads `bytes` from where the file stands; fewer only at its end. */
sl_status sl__read_some(int fd, const char *path, void *out, size_t bytes,
                        size_t *out_bytes);

/* Reads `bytes` from place `at`, which were there when the file was opened; one
 * that has become shorter since is SL_EFAIL. Any thread may. */
sl_status sl__read_at(int fd, const char *path, int64_t at, void *out,
                      size_t bytes);

sl_status sl__write_all(int fd, const char *path, const void *data,
                        size_t bytes);

/* Closes what was written, after it is on the disk. `status` is how the writing
 * went; a failure is returned as it is. */
sl_status sl__close_written(int fd, const char *path, sl_status status);

/* All of a file, freed by the caller, with a NUL behind it. */
sl_status sl__read_file(const char *path, char **out, size_t *out_length);

/* Writes a file that is on the disk when this returns. */
sl_status sl__write_file(const char *path, const char *text, size_t length);

/* Makes what was done in a folder lasting. */
sl_status sl__sync_folder(const char *path);

#endif

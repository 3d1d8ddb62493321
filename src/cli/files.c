/* SPDX-License-Identifier: MIT
 *
 * Files by the names that were given: opened without waiting for the other end
 * of a pipe, unless text is to come out of it. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* From now on reads and writes wait, as those of others do. */
static void let_it_wait(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/* --------------------------------------------------------------- output -- */

int cli_say_unwritable(const char *verb, const char *path)
{
    struct stat about;
    int reason = errno;
    /* The system calls it a device that is not there. */
    if (reason == ENXIO && stat(path, &about) == 0 && S_ISFIFO(about.st_mode))
        return cli_say(verb, CLI_WRONG,
                       "cannot write %.200s: it is a pipe that nobody reads",
                       path);
    return cli_say(verb, CLI_WRONG, "cannot write %.200s: %s", path,
                   strerror(reason));
}

FILE *cli_open_output(const char *path, bool append)
{
    struct stat about;
    int fd = open(path,
                  O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC) |
                      O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                  0666);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &about) != 0 || S_ISBLK(about.st_mode)) {
        close(fd);
        errno = EINVAL;
        return NULL;
    }
    let_it_wait(fd);
    return fdopen(fd, append ? "a" : "w");
}

/* ---------------------------------------------------------------- input -- */

/* No schedule within the limits has as much text. */
#define MOST_INPUT (UINT64_C(1) << 32)

/* Reads what there is into room that there is, past interruptions. */
static size_t read_piece(FILE *file, char *out, size_t room)
{
    size_t got;
    do {
        clearerr(file);
        errno = 0;
        got = fread(out, 1, room, file);
    } while (got == 0 && ferror(file) && errno == EINTR);
    return got;
}

static int read_all(const char *verb, const char *name, FILE *file,
                    char **out_text, size_t *out_length)
{
    char *text = NULL;
    size_t length = 0, capacity = 0, got;
    do {
        if (length > MOST_INPUT) {
            free(text);
            return cli_say(verb, CLI_WRONG, "%s has more than 4 GiB", name);
        }
        if (capacity - length < 65536) {
            capacity = capacity ? 2 * capacity : 1 << 17;
            char *grown = realloc(text, capacity);
            if (!grown) {
                free(text);
                return cli_say(verb, CLI_FAILED, "%s does not fit memory",
                               name);
            }
            text = grown;
        }
        got = read_piece(file, text + length, capacity - length);
        length += got;
    } while (got > 0);
    if (ferror(file)) {
        free(text);
        return cli_say(verb, CLI_WRONG, "cannot read %s: %s", name,
                       strerror(errno));
    }
    *out_text = text;
    *out_length = length;
    return 0;
}

/* What text may come from beside a file: a pipe, a terminal, nothing. Other
 * devices never end. */
static bool is_source(int fd, const struct stat *about)
{
    return S_ISFIFO(about->st_mode) || S_ISDIR(about->st_mode) ||
           (S_ISCHR(about->st_mode) &&
            (isatty(fd) || about->st_rdev == makedev(1, 3)));
}

/* Opens a file to read. A pipe is waited for where `pipes` may be given, as
 * others do who read text: in `<(command)` it is one. */
static FILE *open_input(const char *verb, const char *path, bool pipes)
{
    struct stat about;
    bool waits = pipes && stat(path, &about) == 0 && S_ISFIFO(about.st_mode);
    int fd =
        open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC | (waits ? 0 : O_NONBLOCK));
    FILE *file = NULL;
    if (fd < 0 || fstat(fd, &about) != 0) {
        cli_say(verb, CLI_WRONG, "cannot read %.200s: %s", path,
                strerror(errno));
    } else if (!S_ISREG(about.st_mode) && !(pipes && is_source(fd, &about))) {
        cli_say(verb, CLI_WRONG, "cannot read %.200s: it is not a file", path);
    } else {
        let_it_wait(fd);
        file = fdopen(fd, "rb");
    }
    if (!file && fd >= 0)
        close(fd);
    return file;
}

static int read_input(const char *verb, const char *path, bool pipes,
                      char **out_text, size_t *out_length)
{
    if (!path || strcmp(path, "-") == 0) {
        if (isatty(STDIN_FILENO))
            fprintf(stderr,
                    "sluice %s: reading standard input; Ctrl-D ends "
                    "it\n",
                    verb);
        return read_all(verb, "standard input", stdin, out_text, out_length);
    }
    FILE *file = open_input(verb, path, pipes);
    if (!file)
        return CLI_WRONG;
    int status = read_all(verb, path, file, out_text, out_length);
    fclose(file);
    return status;
}

int cli_read(const char *verb, const char *path, char **out_text,
             size_t *out_length)
{
    return read_input(verb, path, true, out_text, out_length);
}

int cli_read_file(const char *verb, const char *path, char **out_text,
                  size_t *out_length)
{
    return read_input(verb, path, false, out_text, out_length);
}

int cli_read_config(const char *verb, const char *path, sl_gpt2_config *out)
{
    char *text;
    size_t length;
    CLI_TRY(cli_read_file(verb, path, &text, &length));
    sl_status status = sl_gpt2_read_config(text, length, out);
    free(text);
    return status
               ? cli_say(verb, CLI_WRONG, "%.200s: %s", path, sl_error_text())
               : CLI_DONE;
}

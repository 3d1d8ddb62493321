/* SPDX-License-Identifier: MIT
 *
 * Files: anything but a regular file is refused at once; interrupted and short
 * reads and writes are continued. */
#include "support.h"

#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------ interruptions */

ssize_t __real_read(int fd, void *out, size_t bytes);
ssize_t __real_pread(int fd, void *out, size_t bytes, off_t at);
ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *out, size_t bytes);
ssize_t __wrap_pread(int fd, void *out, size_t bytes, off_t at);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);

/* Whether calls are disturbed: each second one is interrupted, the others do an
 * odd part of what they could. */
static bool disturbed;
static int calls;

static bool interrupts(size_t *bytes)
{
    enum { PART = 4099 };
    if (!disturbed)
        return false;
    if (*bytes > PART)
        *bytes = PART;
    errno = EINTR;
    return calls++ % 2 == 0;
}

ssize_t __wrap_read(int fd, void *out, size_t bytes)
{
    return interrupts(&bytes) ? -1 : __real_read(fd, out, bytes);
}

ssize_t __wrap_pread(int fd, void *out, size_t bytes, off_t at)
{
    return interrupts(&bytes) ? -1 : __real_pread(fd, out, bytes, at);
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    return interrupts(&bytes) ? -1 : __real_write(fd, data, bytes);
}

/* ----------------------------------------------------------------- folder */

static char folder[TEST_FOLDER_MAX];

static const char *in_folder(const char *name)
{
    static char path[TEST_FOLDER_MAX + 40];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    disturbed = false;
    return test_make_folder(folder) ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    disturbed = false;
    test_remove_folder(folder);
    return 0;
}

/* Bytes that no two neighbours share, and of an odd number. */
enum { BYTES = 200003 };

static char *make_bytes(void)
{
    char *bytes = malloc(BYTES + 1); /* the last is read as two */
    assert_non_null(bytes);
    for (int i = 0; i <= BYTES; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    return bytes;
}

/* ------------------------------------------------------------------ tests */

static void what_is_written_is_read_through_interruptions(void **state)
{
    (void)state;
    char *bytes = make_bytes(), *found, part[5000];
    size_t length;
    int fd;
    int64_t size;
    disturbed = true;
    assert_ok(sl__write_file(in_folder("a"), bytes, BYTES));
    assert_ok(sl__read_file(in_folder("a"), &found, &length));
    assert_int_equal(length, BYTES);
    assert_memory_equal(found, bytes, BYTES);
    assert_int_equal(found[length], 0);
    assert_ok(sl__open_file(in_folder("a"), &fd, &size));
    assert_int_equal(size, BYTES);
    assert_ok(sl__read_at(fd, "a", 190001, part, sizeof part));
    assert_memory_equal(part, bytes + 190001, sizeof part);
    assert_ok(sl__read_some(fd, "a", found, BYTES, &length));
    assert_int_equal(length, BYTES);
    assert_ok(sl__read_some(fd, "a", found, BYTES, &length));
    assert_int_equal(length, 0);
    close(fd);
    free(found);
    free(bytes);
}

static void tokens_are_read_through_interruptions(void **state)
{
    (void)state;
    char *bytes = make_bytes();
    int64_t *found = malloc(BYTES * sizeof *found);
    static const char *const names[] = {"text", "tokens.bin"};
    assert_non_null(found);
    for (int i = 0; i < 2; i++) {
        sl_tokens *tokens;
        int64_t count = i ? BYTES / 2 : BYTES;
        disturbed = false;
        assert_ok(sl__write_file(in_folder(names[i]), bytes, BYTES - i));
        disturbed = true;
        assert_ok(sl_tokens_open(in_folder(names[i]), &tokens));
        assert_int_equal(sl_tokens_count(tokens), count);
        assert_ok(sl_tokens_read(tokens, 0, count, found));
        for (int64_t k = 0; k < count; k++) {
            uint16_t wide;
            memcpy(&wide, bytes + k * (i + 1), sizeof wide);
            assert_int_equal(found[k], i ? wide : wide & 255);
        }
        sl_tokens_close(tokens);
    }
    free(found);
    free(bytes);
}

static void tensors_are_read_through_interruptions(void **state)
{
    (void)state;
    char *bytes = make_bytes(), *found = malloc(BYTES);
    sl_safetensors *file;
    const sl_safetensor tensor = {.name = "w",
                                  .dtype = SL_BOOL,
                                  .dims = 1,
                                  .shape = {BYTES},
                                  .data = bytes,
                                  .bytes = BYTES};
    disturbed = true;
    assert_non_null(found);
    assert_ok(sl_safetensors_write(in_folder("w"), &tensor, 1, NULL));
    assert_ok(sl_safetensors_open(in_folder("w"), &file));
    assert_ok(sl_safetensor_read(sl_safetensors_find(file, "w"), found));
    assert_memory_equal(found, bytes, BYTES);
    sl_safetensors_close(file);
    free(found);
    free(bytes);
}

static void an_empty_file_is_one(void **state)
{
    (void)state;
    char *found;
    size_t length;
    assert_ok(sl__write_file(in_folder("empty"), "", 0));
    assert_ok(sl__read_file(in_folder("empty"), &found, &length));
    assert_int_equal(length, 0);
    assert_string_equal(found, "");
    free(found);
}

static void a_file_that_has_become_shorter_is_noticed(void **state)
{
    (void)state;
    char part[8];
    int fd;
    int64_t size;
    assert_ok(sl__write_file(in_folder("short"), "abcdefgh", 8));
    assert_ok(sl__open_file(in_folder("short"), &fd, &size));
    assert_int_equal(truncate(in_folder("short"), 5), 0);
    assert_ok(sl__read_at(fd, "short", 2, part, 3));
    assert_memory_equal(part, "cde", 3);
    assert_fails(sl__read_at(fd, "short", 2, part, 4), SL_EFAIL,
                 "'short' has become shorter");
    close(fd);
}

/* Nobody waits for the other end of a pipe, nor reads a device. */
static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    char *found, pipe[TEST_FOLDER_MAX + 40];
    size_t length;
    snprintf(pipe, sizeof pipe, "%s", in_folder("pipe"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const char *const paths[] = {pipe, folder, "/dev/zero"};
    for (int i = 0; i < 3; i++)
        assert_fails(sl__read_file(paths[i], &found, &length), SL_EIO,
                     "is not a file");
    assert_fails(sl__write_file(pipe, "a", 1), SL_EIO, "is not a file");
    assert_fails(sl__write_file("/dev/null", "a", 1), SL_EIO, "is not a file");
    assert_fails(sl__write_file(folder, "a", 1), SL_EIO, "Is a directory");
    assert_fails(sl__read_file(in_folder("none"), &found, &length), SL_EIO,
                 "cannot open");
}

/* Every file of the library that a path leads to. */
static void pipes_are_waited_for_nowhere(void **state)
{
    (void)state;
    sl_safetensors *file;
    sl_weights *weights;
    sl_tokens *tokens;
    sl_progress progress;
    static const char *const names[] = {"model.safetensors.index.json",
                                        "training.json", "pipe"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(mkfifo(in_folder(names[i]), 0600), 0);
    assert_fails(sl_safetensors_open(in_folder("pipe"), &file), SL_EIO,
                 "is not a file");
    assert_fails(sl_weights_open(in_folder("pipe"), &weights), SL_EIO,
                 "is not a file");
    assert_fails(sl_weights_open(folder, &weights), SL_EIO, "is not a file");
    assert_fails(sl_checkpoint_check(folder, &progress), SL_EIO,
                 "is not a file");
    assert_fails(sl_tokens_open(in_folder("pipe"), &tokens), SL_EINVAL,
                 "is not a file or a folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_is_written_is_read_through_interruptions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tokens_are_read_through_interruptions,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(tensors_are_read_through_interruptions,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_empty_file_is_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_file_that_has_become_shorter_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(pipes_are_waited_for_nowhere, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

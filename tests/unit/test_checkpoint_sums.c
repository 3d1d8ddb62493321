/* SPDX-License-Identifier: MIT
 *
 * The checksums of checkpoints, in both versions of the format: equal to
 * numbers that other code computed, however many bytes each read returns. And a
 * damaged checkpoint that cannot be renamed is a failure. */
#include "support.h"

#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t __real_read(int fd, void *out, size_t bytes);
ssize_t __wrap_read(int fd, void *out, size_t bytes);

/* The most bytes that one read returns. */
static size_t most = SIZE_MAX;

ssize_t __wrap_read(int fd, void *out, size_t bytes)
{
    return __real_read(fd, out, bytes < most ? bytes : most);
}

static char folder[TEST_FOLDER_MAX];

static const char *in_folder(const char *name)
{
    static char path[TEST_FOLDER_MAX + 40];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int set_up(void **state)
{
    enum { BYTES = 1200003 };
    (void)state;
    if (!test_make_folder(folder))
        return 1;
    char *bytes = malloc(BYTES);
    for (int i = 0; bytes && i < BYTES; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    bool done =
        bytes && !sl__write_file(in_folder("model.safetensors"), bytes, BYTES);
    free(bytes);
    done = done && !sl__write_file(in_folder("optimizer.safetensors"), "", 0) &&
           !sl__write_file(in_folder("config.json"), "{\"n_layer\": 2}\n", 15);
    return !done;
}

static int tear_down(void **state)
{
    (void)state;
    most = SIZE_MAX;
    test_remove_folder(folder);
    return 0;
}

static void write_training(int version, const char *config, const char *model,
                           const char *optimizer, const char *sum)
{
    char text[1000];
    int length = snprintf(
        text, sizeof text,
        "{\"version\": %d, \"step\": 7, \"sequences\": 56, \"seed\": \"1\", "
        "\"validation\": null, \"optimizer_steps\": 7, \"files\": {"
        "\"config.json\": {\"bytes\": 15, \"sum\": \"%s\"}, "
        "\"model.safetensors\": {\"bytes\": 1200003, \"sum\": \"%s\"}, "
        "\"optimizer.safetensors\": {\"bytes\": 0, \"sum\": \"%s\"}}, "
        "\"sum\": \"%s\"}",
        version, config, model, optimizer, sum);
    assert_ok(sl__write_file(in_folder("training.json"), text, (size_t)length));
}

/* As earlier versions of this program wrote it. */
static void write_version_1(void)
{
    write_training(1, "f1aefcf11c1be3e8", "87169a121f79ecd6",
                   "0000000000000000", "d5a66c399b6fe28e");
}

static void write_version_2(void)
{
    write_training(2, "3177e1a8cb83d289", "46fc8f7220aa4dd6",
                   "ef46db3751d8e999", "18cc7a7745adf987");
}

static void damage(const char *name, long place)
{
    FILE *file = fopen(in_folder(name), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, place, SEEK_SET), 0);
    fputc(byte ^ 16, file);
    assert_int_equal(fclose(file), 0);
}

static void both_versions_are_sound_and_damage_is_found(void **state)
{
    (void)state;
    void (*const writers[])(void) = {write_version_1, write_version_2};
    for (int i = 0; i < 2; i++) {
        sl_progress progress;
        writers[i]();
        assert_ok(sl_checkpoint_check(folder, &progress));
        assert_int_equal(progress.step, 7);
        assert_int_equal(progress.sequences, 56);
        damage("model.safetensors", 1200002);
        assert_fails(sl_checkpoint_check(folder, &progress), SL_EPARSE,
                     "model.safetensors is not as it was written");
        damage("model.safetensors", 1200002);
        damage("config.json", 3);
        assert_fails(sl_checkpoint_check(folder, &progress), SL_EPARSE,
                     "config.json is not as it was written");
        damage("config.json", 3);
    }
}

/* The sums of one version are not valid in another. */
static void another_version_is_refused(void **state)
{
    (void)state;
    sl_progress progress;
    write_training(3, "3177e1a8cb83d289", "46fc8f7220aa4dd6",
                   "ef46db3751d8e999", "18cf7e7745b0362a");
    assert_fails(sl_checkpoint_check(folder, &progress), SL_EINVAL,
                 "is of another version");
}

static void reads_of_any_length_make_the_same_sums(void **state)
{
    (void)state;
    static const size_t lengths[] = {1001, 4096, 65537, 1 << 20};
    for (int i = 0; i < 4; i++) {
        sl_progress progress;
        most = lengths[i];
        write_version_1();
        assert_ok(sl_checkpoint_check(folder, &progress));
        write_version_2();
        assert_ok(sl_checkpoint_check(folder, &progress));
    }
}

/* And nothing leaks. */
static void what_cannot_be_put_aside_is_a_failure(void **state)
{
    (void)state;
    static const char *const names[] = {"step-00000009",
                                        "step-00000009.damaged",
                                        "step-00000009.damaged/others"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(mkdir(in_folder(names[i]), 0700), 0);
    assert_ok(sl__checkpoint_set_aside(folder, 9));
    /* Several times, so that a leaked pointer is not still on the stack. */
    for (int i = 0; i < 5; i++)
        assert_fails(sl__checkpoint_set_aside(folder, 8), SL_EFAIL,
                     "cannot rename");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            both_versions_are_sound_and_damage_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_version_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(reads_of_any_length_make_the_same_sums,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_put_aside_is_a_failure,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

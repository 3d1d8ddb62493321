/* SPDX-License-Identifier: MIT
 *
 * Tokens from every kind of file, and the windows over them. */
#include "support.h"

#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[TEST_FOLDER_MAX];
static char path[300];

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *write_file(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    return test_make_folder(folder) ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(folder);
    return 0;
}

static void expect_tokens(const char *where, const int64_t *expected,
                          int64_t count)
{
    sl_tokens *tokens;
    int64_t found[64];
    assert_ok(sl_tokens_open(where, &tokens));
    assert_int_equal(sl_tokens_count(tokens), count);
    /* Every stretch of them. */
    for (int64_t first = 0; first < count; first++) {
        for (int64_t many = 0; first + many <= count; many++) {
            assert_ok(sl_tokens_read(tokens, first, many, found));
            assert_memory_equal(found, expected + first,
                                sizeof *found * (size_t)many);
        }
    }
    assert_fails(sl_tokens_read(tokens, 1, count, found), SL_EINVAL,
                 "and there are");
    sl_tokens_close(tokens);
}

static void every_kind_of_file_is_read(void **state)
{
    (void)state;
    const uint16_t raw[] = {7, 65535, 0, 300, 5};
    const int64_t numbers[] = {7, 65535, 0, 300, 5};
    expect_tokens(write_file("raw.bin", raw, sizeof raw), numbers, 5);
    struct {
        int32_t header[256];
        uint16_t tokens[5];
    } narrow = {{20240520, 1, 5}, {7, 65535, 0, 300, 5}};
    expect_tokens(write_file("narrow.bin", &narrow, 1024 + 10), numbers, 5);
    struct {
        int32_t header[256];
        uint32_t tokens[3];
    } wide = {{20240801, 7, 3}, {7, 100000, 0}};
    const int64_t large[] = {7, 100000, 0};
    expect_tokens(write_file("wide.bin", &wide, 1024 + 12), large, 3);
    const int64_t bytes[] = {'h', 0xc3, 0xa9, 0, '\n'};
    expect_tokens(write_file("a.txt", "h\xc3\xa9\0\n", 5), bytes, 5);
}

static void a_folder_is_its_files_in_order(void **state)
{
    (void)state;
    mkdir(in_folder("texts"), 0700);
    mkdir(in_folder("texts/m"), 0700);
    write_file("texts/z.txt", "Z", 1);
    write_file("texts/a.c", "AB", 2);
    write_file("texts/m/deep.md", "d", 1);
    write_file("texts/.hidden", "no", 2);
    write_file("texts/empty", "", 0);
    assert_int_equal(symlink(".", in_folder("texts/loop")), 0);
    const int64_t expected[] = {'A', 'B', 'd', 'Z'};
    expect_tokens(in_folder("texts"), expected, 4);
    write_file("texts/x.bin", "ab", 2);
    sl_tokens *tokens;
    assert_fails(sl_tokens_open(in_folder("texts"), &tokens), SL_EINVAL,
                 "of two kinds");
}

static void odd_files_are_refused(void **state)
{
    (void)state;
    sl_tokens *tokens;
    assert_fails(sl_tokens_open(in_folder("nowhere"), &tokens), SL_EIO,
                 "No such file");
    assert_fails(sl_tokens_open(write_file("none.txt", "", 0), &tokens),
                 SL_EINVAL, "has no tokens");
    assert_fails(sl_tokens_open(write_file("odd.bin", "abc", 3), &tokens),
                 SL_EPARSE, "3 bytes, which are not 1 tokens of 2");
    int32_t header[256] = {20240520, 2, 0};
    assert_fails(
        sl_tokens_open(write_file("v2.bin", header, sizeof header), &tokens),
        SL_EPARSE, "version 2 of its format, expected 1");
    header[1] = 1;
    header[2] = -5;
    assert_fails(
        sl_tokens_open(write_file("minus.bin", header, sizeof header), &tokens),
        SL_EPARSE, "which are not -5 tokens");
    header[2] = 1000;
    assert_fails(
        sl_tokens_open(write_file("cut.bin", header, sizeof header), &tokens),
        SL_EPARSE, "which are not 1000 tokens");
    /* Shorter than it was when it was opened. */
    uint16_t many[100] = {0};
    int64_t found[100];
    assert_ok(
        sl_tokens_open(write_file("gone.bin", many, sizeof many), &tokens));
    assert_int_equal(truncate(in_folder("gone.bin"), 50), 0);
    assert_ok(sl_tokens_read(tokens, 0, 25, found));
    assert_fails(sl_tokens_read(tokens, 20, 10, found), SL_EFAIL,
                 "has become shorter");
    sl_tokens_close(tokens);
}

/* Each window once an epoch, in another order each time, for every count. */
static void shuffling_is_a_permutation(void **state)
{
    (void)state;
    static char text[400];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i % 251);
    sl_tokens *tokens;
    assert_ok(sl_tokens_open(write_file("b.txt", text, sizeof text), &tokens));
    for (int64_t count = 2; count < 400; count += 1 + count / 9) {
        sl_windows windows = {.tokens = tokens,
                              .count = count,
                              .length = 1,
                              .vocabulary = 256,
                              .shuffled = true,
                              .seed = 5};
        int64_t all = sl_windows_count(&windows);
        assert_int_equal(all, count - 1);
        int same = 0;
        int64_t before[400];
        for (int epoch = 0; epoch < 3; epoch++) {
            int seen[400] = {0};
            for (int64_t i = 0; i < all; i++) {
                int64_t id, label;
                assert_ok(
                    sl_windows_read(&windows, epoch * all + i, 1, &id, &label));
                int64_t place = 0;
                while (place % 251 != id || (label != (place + 1) % 251) ||
                       seen[place])
                    assert_true(++place < all);
                seen[place] = 1;
                same += epoch > 0 && before[i] == id;
                before[i] = id;
            }
        }
        if (all > 20)
            assert_true(same < all);
    }
    sl_tokens_close(tokens);
}

static void windows_are_of_their_range(void **state)
{
    (void)state;
    sl_tokens *tokens;
    int64_t ids[8], labels[8];
    assert_ok(sl_tokens_open(write_file("c.txt", "abcdefghij", 10), &tokens));
    sl_windows windows = {.tokens = tokens,
                          .first = 2,
                          .count = 7,
                          .length = 3,
                          .vocabulary = 256};
    assert_int_equal(sl_windows_count(&windows), 2);
    assert_ok(sl_windows_read(&windows, 0, 2, ids, labels));
    const int64_t expected[] = {'c', 'd', 'e', 'f', 'g', 'h'};
    const int64_t after[] = {'d', 'e', 'f', 'g', 'h', 'i'};
    assert_memory_equal(ids, expected, sizeof expected);
    assert_memory_equal(labels, after, sizeof after);
    windows.stride = 1;
    assert_int_equal(sl_windows_count(&windows), 4);
    windows.length = 7;
    assert_int_equal(sl_windows_count(&windows), 0);
    assert_fails(sl_windows_read(&windows, 0, 1, ids, labels), SL_EINVAL,
                 "7 tokens are fewer than the 8");
    windows.length = 6;
    windows.vocabulary = 'i';
    assert_int_equal(sl_windows_count(&windows), 1);
    assert_fails(sl_windows_read(&windows, 0, 1, ids, labels), SL_EINVAL,
                 "token 105 near place 7 of the data is past the vocabulary");
    sl_tokens_close(tokens);
}

/* Whatever is asked for: sentences are made without an overflow. */
static void the_largest_numbers_are_refused(void **state)
{
    (void)state;
    sl_tokens *tokens;
    int64_t ids[8], labels[8];
    assert_ok(sl_tokens_open(write_file("d.txt", "abcdefghij", 10), &tokens));
    assert_fails(sl_tokens_read(tokens, INT64_MAX, 28, ids), SL_EINVAL,
                 "28 tokens from place 9223372036854775807 on, and there are");
    assert_fails(sl_tokens_read(tokens, 28, INT64_MAX, ids), SL_EINVAL,
                 "9223372036854775807 tokens from place 28");
    assert_fails(sl_tokens_read(tokens, INT64_MIN, INT64_MAX, ids), SL_EINVAL,
                 "and there are 10");
    sl_windows windows = {
        .tokens = tokens, .count = 10, .length = INT64_MAX, .vocabulary = 256};
    assert_int_equal(sl_windows_count(&windows), 0);
    assert_fails(sl_windows_read(&windows, 0, 1, ids, labels), SL_EINVAL,
                 "fewer than the 9223372036854775808 of a sequence");
    windows.count = INT64_MIN;
    assert_int_equal(sl_windows_count(&windows), 0);
    windows = (sl_windows){
        .tokens = tokens, .count = 9, .length = 3, .first = INT64_MAX - 4};
    assert_fails(sl_windows_read(&windows, 0, 1, ids, labels), SL_EINVAL,
                 "windows over 9 tokens from place 9223372036854775803");
    windows.vocabulary = 100;
    assert_fails(sl__check_vocabulary(&windows, "data"), SL_EINVAL,
                 "expected both from 0 up");
    windows.first = 0;
    assert_fails(sl_windows_read(&windows, INT64_MAX, 1, ids, labels),
                 SL_EINVAL, "there is no window");
    sl_tokens_close(tokens);
    const sl_rate rate = {.kind = SL_RATE_COSINE,
                          .rate = 1,
                          .warmup = INT64_MIN,
                          .steps = INT64_MAX};
    assert_true(sl_rate_at(&rate, INT64_MAX) >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_file_is_read),
        cmocka_unit_test(a_folder_is_its_files_in_order),
        cmocka_unit_test(odd_files_are_refused),
        cmocka_unit_test(shuffling_is_a_permutation),
        cmocka_unit_test(windows_are_of_their_range),
        cmocka_unit_test(the_largest_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

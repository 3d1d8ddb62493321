/* SPDX-License-Identifier: MIT
 *
 * safetensors: what is not whole is refused with its reason, what is written
 * comes back, and a failed write leaves the old file. */
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file in memory: the length of the header, the header, some bytes. */
static sl_status parse(const char *header, size_t data_bytes,
                       sl_safetensors **out)
{
    static unsigned char file[4096];
    size_t length = strlen(header);
    memset(file, 0, sizeof file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, length);
    return sl_safetensors_parse(file, 8 + length + data_bytes, out);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static void what_does_not_add_up_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        const char *text;
    } cases[] = {
        {"[]", 0, "the header is not a JSON object: expected '{' at byte 0"},
        {"{", 0, "the header is not a JSON object: expected a name at byte 1"},
        {"{" A "," A "}", 8, "the header has 'a' twice"},
        {"{" A "}", 4, "tensor 'a': data_offsets is outside the file"},
        {"{" A "}", 12, "4 bytes after the last tensor"},
        {"{}", 1, "1 bytes after the last tensor"},
        {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"
         "}",
         8, "tensor 'b': overlaps another"},
        {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"
         "[12,16]}}",
         16, "tensor 'b': leaves a gap before it"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
         "shape and data_offsets do not agree"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
         "shape and data_offsets do not agree"},
        {"{\"a\":{\"dtype\":\"U16\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8,
         "dtype is not F32"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
         "a size is not a number from 0 up"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],"
         "\"data_offsets\":[0,8]}}",
         8, "its shape overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
         "\"data_offsets\":[0,8]}}",
         8, "its shape overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
         "data_offsets is outside the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8,
         "data_offsets is outside the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
         "data_offsets is not a pair of numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],"
         "\"data_offsets\":[0,4]}}",
         4, "at most 6 sizes"},
        {"{\"a\":7}", 0, "dtype is not"},
        {"{\"__metadata__\":7}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":7}}", 0, "has a value that is no text"},
        {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0,
         "the header has 'a' twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0,
         "the header has '__metadata__' twice"},
        {"{\"__metadata__\":{\"a\"}}", 0,
         "__metadata__ is not a JSON object: expected ':' at byte 4"},
        {"{" A "} {", 8, "expected the end"},
        {"{" A ",}", 8, "expected a name"},
        {"{" A " " A "}", 8, "expected ',' or '}'"},
        {"{\"a\" 1}", 0, "expected ':'"},
        {"{\"a\":}", 0, "expected a value"},
        {"{\"a\":{\"b\\\"}}", 0, "expected a value"},
        {"{\"\xff\":{}}", 0, "a text that is not JSON"},
        {"{\"\\ud800\":{}}", 0, "a text that is not JSON"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0,
         "tensor 'a': duplicate object key"},
        {"{\"a\":[}", 0, "tensor 'a': "},
        {"{\"a\":nul}", 0, "tensor 'a': "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_safetensors *file = NULL;
        assert_fails(parse(cases[i].header, cases[i].bytes, &file), SL_EPARSE,
                     cases[i].text);
        assert_null(file);
    }
}

/* Names are what JSON says they are, however they are written. */
static void names_may_be_escaped(void **state)
{
    (void)state;
    sl_safetensors *file;
    assert_ok(
        parse(" { \"\\u00e9\\n\\\"\" : {\"dtype\":\"F32\", \"known\": "
              "[{\"to\": \"}others{\"}], \"shape\": [1],"
              "\"data_offsets\":[0,4]} ,\t\"__metadata__\" : "
              "{ \"k\\u0065y\" : \"\\ud83d\\ude00\" , \"b\":\"\"}\r\n}\n ",
              4, &file));
    assert_int_equal(sl_safetensors_count(file), 1);
    assert_non_null(sl_safetensors_find(file, "\xc3\xa9\n\""));
    assert_string_equal(sl_safetensors_metadata(file, "key"),
                        "\xf0\x9f\x98\x80");
    assert_string_equal(sl_safetensors_metadata(file, "b"), "");
    sl_safetensors_close(file);
}

/* -------------------------------------------------------- hostile headers -- */

/* What the trees of JSON take, now and at most: jansson allocates through
 * these. */
static size_t tree_bytes, most_bytes;

static void *allocate(size_t bytes)
{
    max_align_t *block = malloc(sizeof *block + bytes);
    if (!block)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    tree_bytes += bytes;
    most_bytes = tree_bytes > most_bytes ? tree_bytes : most_bytes;
    return block + 1;
}

static void release(void *data)
{
    size_t bytes;
    if (!data)
        return;
    max_align_t *block = (max_align_t *)data - 1;
    memcpy(&bytes, block, sizeof bytes);
    tree_bytes -= bytes;
    free(block);
}

/* A file whose header is `first`, then `again` so many times, then `last`. In
 * `again` a %06d is the number. */
static char *make_hostile(const char *first, const char *again, int count,
                          const char *last, size_t *bytes)
{
    size_t room = 8 + strlen(first) + strlen(last) + 1 +
                  (size_t)count * (strlen(again) + 8);
    char *file = calloc(room, 1), *at = file + 8;
    assert_non_null(file);
    at += sprintf(at, "%s", first);
    for (int i = 0; i < count; i++)
        at += sprintf(at, again, i);
    at += sprintf(at, "%s", last);
    *bytes = (size_t)(at - file);
    for (int i = 0; i < 8; i++)
        file[i] = (char)((*bytes - 8) >> (8 * i));
    return file;
}

/* Whatever a header has in it, it takes no more than a small part of its size in
 * trees. */
static void a_hostile_header_takes_little_memory(void **state)
{
    (void)state;
    static const struct {
        const char *first, *again, *last;
        sl_status status;
        const char *text;
    } cases[] = {
        {"{\"a\":[[]", ",[]", "]}", SL_EPARSE,
         "tensor 'a': 600004 bytes of the header are about it, expected at "
         "most "
         "65536"},
        {"{\"a\":", "[", "}", SL_EPARSE, "expected a value at byte 5"},
        {"{\"\":{}", ",\"%06d\":{}", "}", SL_EPARSE,
         "tensor '': dtype is not F32"},
        {"{\"__metadata__\":{\"\":\"\"", ",\"%06d\":\"\"", "}}", SL_OK, ""},
        {"{\"__metadata__\":{}",
         ",\"%06d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
         "}", SL_OK, ""},
    };
    enum { TIMES = 200000, MOST_BYTES = 1 << 14 };
    json_set_alloc_funcs(allocate, release);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes;
        sl_safetensors *file = NULL;
        char *text = make_hostile(cases[i].first, cases[i].again, TIMES,
                                  cases[i].last, &bytes);
        most_bytes = 0;
        sl_status status = sl_safetensors_parse(text, bytes, &file);
        if (cases[i].status)
            assert_fails(status, cases[i].status, cases[i].text);
        else
            assert_ok(status);
        assert_true(most_bytes < MOST_BYTES);
        assert_int_equal(tree_bytes, 0);
        sl_safetensors_close(file);
        free(text);
    }
    json_set_alloc_funcs(malloc, free);
}

/* The largest header, and one that is a byte larger. */
static void a_header_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    enum { MOST = 1 << 25 };
    sl_safetensors *file;
    for (int more = 0; more < 2; more++) {
        size_t length = MOST + (size_t)more;
        char *text = malloc(8 + length);
        assert_non_null(text);
        memset(text, ' ', 8 + length);
        for (int i = 0; i < 8; i++)
            text[i] = (char)(length >> (8 * i));
        memcpy(text + 8, "{}", 2);
        sl_status status = sl_safetensors_parse(text, 8 + length, &file);
        free(text);
        if (more) {
            assert_fails(status, SL_EPARSE,
                         "the header has 33554433 bytes, expected at most "
                         "33554432");
        } else {
            assert_ok(status);
            sl_safetensors_close(file);
        }
    }
}

static void short_files_are_refused(void **state)
{
    (void)state;
    sl_safetensors *file;
    static const unsigned char claims[] = {255, 255, 255, 255, 255,
                                           255, 255, 127, '{', '}'};
    for (size_t i = 0; i < 8; i++)
        assert_fails(sl_safetensors_parse(claims, i, &file), SL_EPARSE,
                     "too few for a header");
    assert_fails(sl_safetensors_parse(claims, sizeof claims, &file), SL_EPARSE,
                 "the header claims 9223372036854775807 bytes, the file has 2");
    assert_fails(sl_safetensors_open("/nonexistent/file", &file), SL_EIO,
                 "cannot open '/nonexistent/file'");
    assert_fails(sl_safetensors_open("/", &file), SL_EIO, "is not a file");
    assert_fails(sl_safetensors_open("/dev/null", &file), SL_EIO,
                 "is not a file");
}

/* Every prefix of a sound file is refused. */
static void every_truncation_is_refused(void **state)
{
    (void)state;
    size_t length;
    char *whole =
        test_read_file("goldens/models/ExampleCode.safetensors", &length);
    sl_safetensors *file;
    for (size_t i = 0; i < length; i += i < 3000 ? 1 : 97) {
        char *part = malloc(i + 1);
        memcpy(part, whole, i);
        bool in_header = i >= 8 && i < 200; /* it is longer */
        assert_fails(sl_safetensors_parse(part, i, &file), SL_EPARSE,
                     in_header ? "the header claims" : "");
        free(part);
    }
    assert_ok(sl_safetensors_parse(whole, length, &file));
    sl_safetensors_close(file);
    free(whole);
}

static char folder[TEST_FOLDER_MAX];

static int make_folder(void **state)
{
    (void)state;
    return test_make_folder(folder) ? 0 : -1;
}

static int files_in_folder(void)
{
    int count = 0;
    DIR *open = opendir(folder);
    for (struct dirent *entry; (entry = readdir(open));)
        count += entry->d_name[0] != '.';
    closedir(open);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[TEST_FOLDER_MAX + 40];
    snprintf(path, sizeof path, "%s/model", folder);
    unlink(path);
    return rmdir(folder);
}

#define ARRAY(...)                                                             \
    {                                                                          \
        __VA_ARGS__                                                            \
    }
#define TENSOR(name_, dtype_, dims_, shape_, data_, bytes_)                    \
    {                                                                          \
        .name = name_, .dtype = dtype_, .dims = dims_, .shape = shape_,        \
        .data = data_, .bytes = bytes_                                         \
    }

/* Whether two tensors have the same bytes, wherever they are. */
static void expect_bytes(const sl_safetensor *found, const void *expected)
{
    char *bytes = malloc(found->bytes + 1);
    assert_ok(sl_safetensor_read(found, bytes));
    assert_memory_equal(bytes, expected, found->bytes);
    free(bytes);
}

static const float numbers[] = {1, 2, 3, 4, 5, 6};
static const int64_t whole[] = {7, -8};

static void what_is_written_comes_back(void **state)
{
    (void)state;
    char path[TEST_FOLDER_MAX + 40];
    const sl_safetensor tensors[] = {
        TENSOR("b.weight", SL_F32, 2, ARRAY(2, 3), numbers, sizeof numbers),
        TENSOR("a \"quoted\" \xc3\xa9", SL_I64, 1, ARRAY(2), whole,
               sizeof whole),
        TENSOR("none", SL_F32, 2, ARRAY(0, 3), NULL, 0),
        TENSOR("scalar", SL_F64, 0, ARRAY(0), whole, 8),
    };
    const char *const metadata[] = {"format", "pt", "config", "{}", NULL};
    snprintf(path, sizeof path, "%s/model", folder);
    for (int i = 0; i < 2; i++) {
        sl_safetensors *file;
        assert_ok(sl_safetensors_write(path, tensors, 4, metadata));
        assert_int_equal(files_in_folder(), 1);
        assert_ok(sl_safetensors_open(path, &file));
        assert_int_equal(sl_safetensors_count(file), 4);
        for (size_t k = 0; k < 4; k++) {
            const sl_safetensor *t = sl_safetensors_find(file, tensors[k].name);
            assert_non_null(t);
            assert_int_equal(t->bytes, tensors[k].bytes);
            assert_int_equal(t->dtype, tensors[k].dtype);
            assert_int_equal(t->dims, tensors[k].dims);
            assert_memory_equal(t->shape, tensors[k].shape,
                                sizeof(int64_t) * (size_t)t->dims);
            if (t->bytes)
                expect_bytes(t, tensors[k].data);
        }
        assert_string_equal(sl_safetensors_metadata(file, "format"), "pt");
        assert_null(sl_safetensors_metadata(file, "absent"));
        assert_null(sl_safetensors_find(file, "absent"));
        assert_null(sl_safetensors_at(file, 4));
        sl_safetensors_close(file);
    }
}

static void what_cannot_be_written_is_refused_and_leaves_the_old(void **state)
{
    (void)state;
    char path[TEST_FOLDER_MAX + 40];
    sl_safetensor tensor =
        TENSOR("w", SL_F32, 1, ARRAY(6), numbers, sizeof numbers);
    snprintf(path, sizeof path, "%s/model", folder);
    assert_ok(sl_safetensors_write(path, &tensor, 1, NULL));
    size_t length;
    char *before = test_read_file(path, &length);
    tensor.bytes = 4;
    assert_fails(sl_safetensors_write(path, &tensor, 1, NULL), SL_EINVAL,
                 "'w' has 4 bytes, expected 24 by its shape");
    tensor.bytes = sizeof numbers;
    tensor.name = "__metadata__";
    assert_fails(sl_safetensors_write(path, &tensor, 1, NULL), SL_EINVAL,
                 "no usable name");
    tensor.name = "\xff\xfe";
    assert_fails(sl_safetensors_write(path, &tensor, 1, NULL), SL_EINVAL,
                 "not UTF-8");
    tensor.name = "w";
    tensor.data = NULL;
    assert_fails(sl_safetensors_write(path, &tensor, 1, NULL), SL_EINVAL,
                 "'w' has no data");
    tensor.data = numbers;
    sl_safetensor twice[] = {tensor, tensor};
    assert_fails(sl_safetensors_write(path, twice, 2, NULL), SL_EINVAL,
                 "'w' is there twice");
    assert_fails(sl_safetensors_write("/nonexistent/model", &tensor, 1, NULL),
                 SL_EIO, "cannot write beside /nonexistent/model");
    char taken[TEST_FOLDER_MAX + 40];
    snprintf(taken, sizeof taken, "%s/taken", folder);
    assert_int_equal(mkdir(taken, 0700), 0);
    assert_fails(sl_safetensors_write(taken, &tensor, 1, NULL), SL_EIO,
                 "cannot write");
    assert_int_equal(rmdir(taken), 0);
    size_t after_length;
    char *after = test_read_file(path, &after_length);
    assert_int_equal(length, after_length);
    assert_memory_equal(before, after, length);
    assert_int_equal(files_in_folder(), 1);
    free(before);
    free(after);
}

static void a_pipe_is_no_file(void **state)
{
    (void)state;
    char path[TEST_FOLDER_MAX + 40];
    sl_safetensors *file;
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(sl_safetensors_open(path, &file), SL_EIO, "is not a file");
    unlink(path);
}

static void a_replaced_file_keeps_its_mode_and_its_link(void **state)
{
    (void)state;
    char path[TEST_FOLDER_MAX + 40], link[TEST_FOLDER_MAX + 40];
    struct stat about;
    const sl_safetensor tensor =
        TENSOR("w", SL_F32, 1, ARRAY(6), numbers, sizeof numbers);
    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_ok(sl_safetensors_write(path, &tensor, 1, NULL));
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(symlink("model", link), 0);
    assert_ok(sl_safetensors_write(link, &tensor, 1, NULL));
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    unlink(link);
}

/* Wherever a file ends all at once: a sentence, and no signal. */
static void a_file_that_shrinks_is_a_failure(void **state)
{
    (void)state;
    char path[TEST_FOLDER_MAX + 40], other[TEST_FOLDER_MAX + 40];
    float found[6];
    const sl_safetensor tensors[] = {
        TENSOR("a", SL_F32, 1, ARRAY(6), numbers, sizeof numbers),
        TENSOR("b", SL_F32, 1, ARRAY(6), numbers, sizeof numbers)};
    sl_safetensors *file;
    struct stat about;
    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    assert_ok(sl_safetensors_write(path, tensors, 2, NULL));
    assert_ok(sl_safetensors_open(path, &file));
    const sl_safetensor *a = sl_safetensors_find(file, "a");
    const sl_safetensor *b = sl_safetensors_find(file, "b");
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size - 4), 0);
    assert_ok(sl_safetensor_read(a, found));
    assert_memory_equal(found, numbers, sizeof numbers);
    assert_fails(sl_safetensor_read(b, found), SL_EFAIL, "has become shorter");
    assert_fails(sl_safetensors_write(other, b, 1, NULL), SL_EFAIL,
                 "model' has become shorter");
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(truncate(path, 0), 0);
    assert_fails(sl_safetensor_read(a, found), SL_EFAIL, "has become shorter");
    sl_safetensors_close(file);
    assert_fails(sl_safetensors_open(path, &file), SL_EPARSE,
                 "0 bytes are too few for a header");
}

/* The whole of a golden, through a write and back. */
static void goldens_survive_a_round_trip(void **state)
{
    (void)state;
    char path[TEST_FOLDER_MAX + 40];
    sl_safetensors *golden, *copy;
    snprintf(path, sizeof path, "%s/model", folder);
    assert_ok(sl_safetensors_open("goldens/models/gpt2.safetensors", &golden));
    size_t count = sl_safetensors_count(golden);
    sl_safetensor *tensors = calloc(count, sizeof *tensors);
    for (size_t i = 0; i < count; i++)
        tensors[i] = *sl_safetensors_at(golden, i);
    assert_ok(sl_safetensors_write(path, tensors, count, NULL));
    assert_ok(sl_safetensors_open(path, &copy));
    for (size_t i = 0; i < count; i++) {
        const sl_safetensor *t = sl_safetensors_find(copy, tensors[i].name);
        assert_non_null(t);
        char *bytes = malloc(t->bytes + 1);
        assert_ok(sl_safetensor_read(&tensors[i], bytes));
        expect_bytes(t, bytes);
        free(bytes);
    }
    free(tensors);
    sl_safetensors_close(copy);
    sl_safetensors_close(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_add_up_is_refused),
        cmocka_unit_test(names_may_be_escaped),
        cmocka_unit_test(a_hostile_header_takes_little_memory),
        cmocka_unit_test(a_header_beyond_the_limit_is_refused),
        cmocka_unit_test(short_files_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(what_cannot_be_written_is_refused_and_leaves_the_old),
        cmocka_unit_test(a_pipe_is_no_file),
        cmocka_unit_test(a_replaced_file_keeps_its_mode_and_its_link),
        cmocka_unit_test(a_file_that_shrinks_is_a_failure),
        cmocka_unit_test(goldens_survive_a_round_trip),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

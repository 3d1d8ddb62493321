/* SPDX-License-Identifier: MIT
 *
 * Every public function with NULL for each required argument: a function that
 * returns a status names the argument, others return nothing and do nothing,
 * and those that build a graph refuse through the graph. The rows are in
 * test_null_*.c; this file compares them with the headers. */
#include "support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All files of a folder whose names begin and end so, one after the other;
 * freed by the caller. */
static char *read_all(const char *folder, const char *begin, const char *end,
                      int *out_count)
{
    char path[512];
    const struct dirent *entry;
    sl_string all = SL_STRING_INIT;
    DIR *open = opendir(folder);
    assert_non_null(open);
    *out_count = 0;
    while ((entry = readdir(open))) {
        const char *name = entry->d_name;
        size_t length = strlen(name), tail = strlen(end);
        if (length < tail || strcmp(name + length - tail, end) != 0 ||
            strncmp(name, begin, strlen(begin)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        char *text = test_read_file(path, &length);
        assert_ok(sl_write_string(&all, text, length));
        free(text);
        ++*out_count;
    }
    closedir(open);
    return all.data;
}

/* Whether a row has the function: its name, and a comma behind it. */
static bool has_row(const char *rows, const char *name, size_t length)
{
    for (const char *at = rows; (at = strstr(at, name)); at += length) {
        if (at[length] == ',' && strchr(" *(\n)", at[-1]))
            return true;
    }
    return false;
}

static void every_public_function_has_a_row(void **state)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    (void)state;
    int files, headers, functions = 0, missing = 0;
    char *rows = read_all("unit", "test_null_", ".c", &files);
    char *text = read_all("../include/sluice", "", ".h", &headers);
    for (char *at = text; (at = strstr(at, "\nSL_API ")); at++) {
        char name[100];
        const char *end = strchr(at, '('), *begin = end;
        assert_non_null(end);
        while (strchr(letters, begin[-1]))
            begin--;
        snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
        functions++;
        if (has_row(rows, name, strlen(name)))
            continue;
        print_error("no row for %s\n", name);
        missing++;
    }
    free(rows);
    free(text);
    assert_true(files > 1 && headers > 1 && functions > 200);
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_public_function_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

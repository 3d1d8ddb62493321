/* SPDX-License-Identifier: MIT
 *
 * See support.h. */
#include "support.h"

#include "tensor/backend.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void test_assert_ok(sl_status status, const char *call, const char *file,
                    int line)
{
    if (status) {
        print_error("%s: %s\n", call, sl_error_text());
        _fail(file, line);
    }
}

void test_assert_fails(sl_status found, sl_status status, const char *text,
                       const char *file, int line)
{
    if (found != status || !strstr(sl_error_text(), text)) {
        print_error("expected status %d and '%s', found %d and '%s'\n", status,
                    text, found, sl_error_text());
        _fail(file, line);
    }
}

sl_schedule *test_parse(const char *csv)
{
    sl_schedule *schedule;
    assert_ok(sl_schedule_read_csv(csv, strlen(csv), &schedule));
    return schedule;
}

char *test_csv(const sl_schedule *schedule)
{
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_schedule_write_csv(schedule, sl_write_string, &text));
    return text.data;
}

void test_assert_csv(const sl_schedule *schedule, const char *csv)
{
    char *text = test_csv(schedule);
    assert_string_equal(text, csv);
    free(text);
}

sl_schedule *test_generate(const char *name, int p, int v, int m)
{
    sl_schedule *schedule;
    sl_sizes sizes = {p, v, m};
    assert_ok(sl_generate(name, &sizes, &schedule));
    return schedule;
}

sl_schedule *test_lower_for_2_11(const sl_schedule *in)
{
    sl_schedule *schedule;
    sl_lower_options options = SL_LOWER_OPTIONS_INIT;
    options.reduce_wait = SL_REDUCE_WAIT_NONE;
    assert_ok(
        sl_lower(in, "unshard,reduce-grad,send-recv", &options, &schedule));
    return schedule;
}

sl_schedule *test_lower(const sl_schedule *in, const char *passes)
{
    sl_schedule *schedule;
    assert_ok(sl_lower(in, passes, NULL, &schedule));
    return schedule;
}

bool test_is_sound(const sl_schedule *schedule)
{
    sl_report *report;
    assert_ok(sl_check(schedule, NULL, &report));
    bool sound = sl_report_is_sound(report);
    size_t count;
    const sl_finding *findings = sl_report_findings(report, &count);
    for (size_t i = 0; i < count && i < 5; i++)
        print_error("%s: %s\n", sl_finding_code_text(findings[i].code),
                    findings[i].text);
    sl_report_destroy(report);
    return sound;
}

bool test_has_finding(const sl_schedule *schedule, sl_finding_code code,
                      int rank, int step)
{
    sl_report *report;
    sl_check_options options = SL_CHECK_OPTIONS_INIT;
    options.max_findings = 100000;
    assert_ok(sl_check(schedule, &options, &report));
    size_t count;
    const sl_finding *findings = sl_report_findings(report, &count);
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found = found || (findings[i].code == code &&
                          (rank == -2 || findings[i].rank == rank) &&
                          (step == -2 || findings[i].step == step));
    sl_report_destroy(report);
    return found;
}

char *test_read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    sl_string text = SL_STRING_INIT;
    char part[4096];
    size_t got;
    assert_ok(sl_write_string(&text, "", 0));
    while ((got = fread(part, 1, sizeof part, file)) > 0)
        assert_ok(sl_write_string(&text, part, got));
    fclose(file);
    if (length)
        *length = text.length;
    return text.data;
}

void test_hash(const sl_schedule *schedule, char out[17])
{
    uint8_t digest[32];
    char *text = test_csv(schedule);
    test_sha256(text, strlen(text), digest);
    free(text);
    for (int i = 0; i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

size_t test_each_golden(test_golden_fn act, void *context)
{
    DIR *folder = opendir("goldens/schedules");
    struct dirent *entry;
    size_t seen = 0;
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[600];
        sl_schedule *schedule;
        size_t length;
        if (!strstr(entry->d_name, ".csv"))
            continue;
        snprintf(path, sizeof path, "goldens/schedules/%s", entry->d_name);
        char *text = test_read_file(path, &length);
        assert_ok(sl_schedule_read_csv(text, length, &schedule));
        free(text);
        act(entry->d_name, schedule, context);
        seen++;
    }
    closedir(folder);
    return seen;
}

bool test_make_folder(char out[TEST_FOLDER_MAX])
{
    const char *where = getenv("TMPDIR");
    int length = snprintf(out, TEST_FOLDER_MAX, "%s/sluice-test-XXXXXX",
                          where && *where ? where : "/tmp");
    return length < TEST_FOLDER_MAX && mkdtemp(out);
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    remove(path);
    return 0; /* with the rest */
}

void test_remove_folder(const char *folder)
{
    enum { OPEN_AT_ONCE = 16 };
    nftw(folder, remove_one, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS);
}

bool test_is_on_gpu(void)
{
    const char *name = getenv("SLUICE_TEST_BACKEND");
    return name && strcmp(name, "cuda") == 0;
}

/* Bits are compared, unless SLUICE_TEST_ATTENTION=fast. */
static sl_status open_gpu(int threads, int number, bool deterministic,
                          sl__device **out)
{
    const char *attention = getenv("SLUICE_TEST_ATTENTION");
    bool fast = attention && strcmp(attention, "fast") == 0;
    return sl__backend_cuda.device.open(threads, number,
                                        deterministic || !fast, out);
}

/* With SLUICE_TEST_BACKEND=cuda, what tests run on `cpu` runs on a GPU. */
__attribute__((constructor)) static void replace_if_asked(void)
{
    static sl__backend other;
    if (!test_is_on_gpu())
        return;
    other = sl__backend_cuda;
    other.name = "cpu";
    other.device.threads_max = 1024;
    other.device.open = open_gpu;
    sl__backend_replace(&other, 1);
    sl__widen_rounds_biases = true;
}

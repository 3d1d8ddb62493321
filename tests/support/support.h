/* SPDX-License-Identifier: MIT
 *
 * What all tests share: the includes of cmocka in the order it needs, and
 * schedules from and to text, with failures that show the reason. */
#ifndef SL_TEST_SUPPORT_H
#define SL_TEST_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sluice/sluice.h"

/* Asserts that a library call succeeded, showing its sentence if not. */
#define assert_ok(call) test_assert_ok((call), #call, __FILE__, __LINE__)
void test_assert_ok(sl_status status, const char *call, const char *file,
                    int line);

/* Asserts that a call fails with a status and a sentence that contains text. */
#define assert_fails(call, status, text)                                       \
    test_assert_fails((call), status, text, __FILE__, __LINE__)
void test_assert_fails(sl_status found, sl_status status, const char *text,
                       const char *file, int line);

/* Skips a test of what only kernels of CPUs have, where a GPU's take their
 * place. */
#define only_on_cpu()                                                          \
    do {                                                                       \
        if (test_is_on_gpu())                                                  \
            skip();                                                            \
    } while (0)
bool test_is_on_gpu(void);

sl_schedule *test_parse(const char *csv);
char *test_csv(const sl_schedule *schedule); /* freed by the caller */
void test_assert_csv(const sl_schedule *schedule, const char *csv);

sl_schedule *test_generate(const char *name, int p, int v, int m);
sl_schedule *test_lower(const sl_schedule *in, const char *passes);

/* Lowers as PyTorch up to 2.14 does, which has no waits. */
sl_schedule *test_lower_for_2_11(const sl_schedule *in);

/* Whether a schedule checks sound; prints its findings if not. */
bool test_is_sound(const sl_schedule *schedule);

/* Whether a check of the schedule has this finding at this place; -2 matches
 * any rank or step. */
bool test_has_finding(const sl_schedule *schedule, sl_finding_code code,
                      int rank, int step);

/* Calls a function with every committed golden schedule and the name of its
 * file; the function destroys the schedule. Returns how many there were. */
typedef void (*test_golden_fn)(const char *name, sl_schedule *schedule,
                               void *context);
size_t test_each_golden(test_golden_fn act, void *context);

/* A whole file as a string; freed by the caller. */
char *test_read_file(const char *path, size_t *length);

/* Makes a new folder for a test's files, in $TMPDIR or /tmp, and writes its
 * path to `out`; false if that fails. */
enum { TEST_FOLDER_MAX = 200 };
bool test_make_folder(char out[TEST_FOLDER_MAX]);
/* Removes such a folder with everything in it. */
void test_remove_folder(const char *folder);

/* Whether this runs under AddressSanitizer, which takes several times as long:
 * what compares numbers by the hundred does so with fewer there, on the same
 * code. */
#if defined(__SANITIZE_ADDRESS__)
#define TEST_IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_IS_SANITIZED true
#endif
#endif
#ifndef TEST_IS_SANITIZED
#define TEST_IS_SANITIZED false
#endif

/* The first 16 hex digits of the SHA-256 of a schedule's CSV. */
void test_hash(const sl_schedule *schedule, char out[17]);
void test_sha256(const void *data, size_t length, uint8_t digest[32]);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The checksum is XXH64: it gives the published test vectors, however the data
 * is divided. */
#include "support.h"

#include "base/checksum.h"

#include <string.h>

static uint64_t sum_of(const void *data, size_t bytes)
{
    sl__checksum sum;
    sl__checksum_start(&sum);
    sl__checksum_add(&sum, data, bytes);
    return sl__checksum_end(&sum);
}

/* What xxHash's own sanity check sums up. */
static void fill(unsigned char *out, size_t bytes)
{
    uint64_t value = 2654435761u;
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (unsigned char)(value >> 56);
        value *= UINT64_C(11400714785074694797);
    }
}

static void published_sums_are_found(void **state)
{
    (void)state;
    static const struct {
        size_t bytes;
        uint64_t sum;
    } sums[] = {{0, UINT64_C(0xef46db3751d8e999)},
                {1, UINT64_C(0xe934a84adb052768)},
                {4, UINT64_C(0x9136a0dca57457ee)},
                {14, UINT64_C(0x8282dcc4994e35c8)},
                {222, UINT64_C(0xb641ae8cb691c174)}};
    static const struct {
        const char *text;
        uint64_t sum;
    } texts[] = {{"", UINT64_C(0xef46db3751d8e999)},
                 {"a", UINT64_C(0xd24ec4f1a98c6e5b)},
                 {"abc", UINT64_C(0x44bc2cf5ad770999)},
                 {"xxhash", UINT64_C(0x32dd38952c4bc720)},
                 {"Nobody inspects the spammish repetition",
                  UINT64_C(0xfbcea83c8a378bf1)}};
    unsigned char data[222];
    fill(data, sizeof data);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        assert_true(sum_of(data, sums[i].bytes) == sums[i].sum);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(sum_of(texts[i].text, strlen(texts[i].text)) ==
                    texts[i].sum);
}

static void pieces_do_not_matter(void **state)
{
    (void)state;
    unsigned char data[300];
    fill(data, sizeof data);
    for (size_t bytes = 0; bytes <= sizeof data; bytes += 1 + bytes / 7) {
        uint64_t whole = sum_of(data, bytes);
        for (size_t piece = 1; piece <= 70; piece++) {
            sl__checksum sum;
            sl__checksum_start(&sum);
            for (size_t at = 0; at < bytes; at += piece) {
                size_t left = bytes - at;
                sl__checksum_end(&sum); /* which changes nothing */
                sl__checksum_add(&sum, data + at, left < piece ? left : piece);
                sl__checksum_add(&sum, NULL, 0);
            }
            assert_true(sl__checksum_end(&sum) == whole);
        }
    }
}

static void every_bit_matters(void **state)
{
    (void)state;
    unsigned char data[100];
    fill(data, sizeof data);
    uint64_t whole = sum_of(data, sizeof data);
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(sum_of(data, sizeof data) != whole);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sums_are_found),
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(every_bit_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

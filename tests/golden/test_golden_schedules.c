/* SPDX-License-Identifier: MIT
 *
 * Every schedule equals PyTorch's, in all its forms, for every row of the
 * golden tables (tests/goldens/schedules.tsv of PyTorch 2.11 and
 * schedules-2.15.tsv, or the folder that the environment variable
 * SLUICE_GOLDENS names); what PyTorch refuses is refused here too or is sound. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct golden {
    char name[40];
    int p, v, m;
    char status[16];
    char compute[20], order[20], lowered[20], comms[20], steps[20];
} golden;

static const char *folder(void)
{
    const char *set = getenv("SLUICE_GOLDENS");
    return set ? set : "goldens";
}

static void expect_hash(const golden *row, const char *form,
                        const sl_schedule *schedule, const char *expected)
{
    char found[17];
    if (strcmp(expected, "-") == 0)
        return;
    test_hash(schedule, found);
    if (strcmp(found, expected) != 0)
        fail_msg("%s p=%d v=%d m=%d: %s differs from PyTorch's", row->name,
                 row->p, row->v, row->m, form);
}

static void expect_steps(const golden *row, const sl_schedule *comms)
{
    size_t steps;
    if (strcmp(row->steps, "-") == 0)
        return;
    assert_ok(sl_dry_run(comms, &steps));
    if (steps != strtoul(row->steps, NULL, 10))
        fail_msg("%s p=%d v=%d m=%d: %zu steps, PyTorch counts %s", row->name,
                 row->p, row->v, row->m, steps, row->steps);
}

static void check_served(const golden *row, const sl_schedule *compute)
{
    sl_schedule *order = test_lower(compute, "");
    sl_schedule *lowered = test_lower_for_2_11(compute);
    sl_schedule *comms = test_lower(compute, "send-recv");
    expect_hash(row, "compute", compute, row->compute);
    expect_hash(row, "order", order, row->order);
    expect_hash(row, "lowered", lowered, row->lowered);
    expect_hash(row, "comms", comms, row->comms);
    expect_steps(row, comms);
    assert_true(test_is_sound(order));
    assert_true(test_is_sound(lowered));
    sl_schedule_destroy(order);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(comms);
}

static void check_row(const golden *row)
{
    sl_sizes sizes = {row->p, row->v, row->m};
    sl_schedule *compute;
    sl_status status = sl_generate(row->name, &sizes, &compute);
    if (status) {
        if (strcmp(row->status, "refused") != 0)
            fail_msg("%s p=%d v=%d m=%d: refused: %s", row->name, row->p,
                     row->v, row->m, sl_error_text());
        return;
    }
    check_served(row, compute);
    sl_schedule_destroy(compute);
}

/* Checks every row of a table; returns how many there were. */
static int check_table(const char *path, void (*check)(const golden *row))
{
    int rows = 0;
    char line[512];
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot open %s", path);
    while (fgets(line, sizeof line, file)) {
        golden row;
        if (strncmp(line, "schedule\t", 9) == 0)
            continue;
        int fields =
            sscanf(line, "%39s %d %d %d %15s %19s %19s %19s %19s %19s",
                   row.name, &row.p, &row.v, &row.m, row.status, row.compute,
                   row.order, row.lowered, row.comms, row.steps);
        assert_int_equal(fields, 10);
        check(&row);
        rows++;
    }
    fclose(file);
    return rows;
}

static void every_row_equals_pytorch(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/schedules.tsv", folder());
    assert_true(check_table(path, check_row) > 100);
}

/* Sizes outside the golden table, read off PyTorch the same way. */
static void further_rows_equal_pytorch(void **state)
{
    (void)state;
    assert_true(check_table("goldens/schedules_further.tsv", check_row) > 100);
}

static void full_texts_equal_pytorch(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {"ZBVZeroBubble", "4", "2", "4"},
        {"DualPipeV", "3", "2", "6"},
        {"Interleaved1F1B", "4", "3", "12"},
        {"LoopedBFS", "4", "2", "8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *c = cases[i];
        char path[512];
        snprintf(path, sizeof path,
                 "goldens/schedules/%s_pp%s_v%s_mb%s.lowered"
                 ".csv",
                 c[0], c[1], c[2], c[3]);
        char *expected = test_read_file(path, NULL);
        sl_schedule *compute =
            test_generate(c[0], atoi(c[1]), atoi(c[2]), atoi(c[3]));
        sl_schedule *lowered = test_lower_for_2_11(compute);
        test_assert_csv(lowered, expected);
        sl_schedule_destroy(lowered);
        sl_schedule_destroy(compute);
        free(expected);
    }
}

/* ----------------------------------------------------------- since 2.15 -- */

enum { ORDER, LOWERED, DEFERRED, SENDS1, SENDS4, AUTO, LATE_REDUCE, COLUMNS };

static const struct {
    const char *name, *passes;
    sl_lookahead_kind ahead;
    sl_reduce_wait wait;
} columns[COLUMNS] = {
    [ORDER] = {"order", "", SL_LOOKAHEAD_FULL, SL_REDUCE_WAIT_NOW},
    [LOWERED] = {"lowered", SL_LOWER_DEFAULT_PASSES, SL_LOOKAHEAD_FULL,
                 SL_REDUCE_WAIT_NOW},
    [DEFERRED] = {"deferred", SL_LOWER_DEFAULT_PASSES ",defer-recv",
                  SL_LOOKAHEAD_FULL, SL_REDUCE_WAIT_NOW},
    [SENDS1] = {"sends1", SL_LOWER_DEFAULT_PASSES ",send-budget=1",
                SL_LOOKAHEAD_FULL, SL_REDUCE_WAIT_NOW},
    [SENDS4] = {"sends4", SL_LOWER_DEFAULT_PASSES ",send-budget=4",
                SL_LOOKAHEAD_FULL, SL_REDUCE_WAIT_NOW},
    [AUTO] = {"auto", SL_LOWER_DEFAULT_PASSES, SL_LOOKAHEAD_AUTO,
              SL_REDUCE_WAIT_NOW},
    [LATE_REDUCE] = {"latereduce", SL_LOWER_DEFAULT_PASSES, SL_LOOKAHEAD_FULL,
                     SL_REDUCE_WAIT_LATE},
};

static sl_schedule *make_column(const sl_schedule *compute, int column)
{
    sl_schedule *made;
    sl_lower_options options = SL_LOWER_OPTIONS_INIT;
    options.unshard_lookahead.kind = columns[column].ahead;
    options.reduce_wait = columns[column].wait;
    assert_ok(sl_lower(compute, columns[column].passes, &options, &made));
    return made;
}

/* Checks every row of a table of 2.15; returns how many there were. */
static int check_table_2_15(const char *path)
{
    int rows = 0;
    char line[512];
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot open %s", path);
    while (fgets(line, sizeof line, file)) {
        golden row = {.status = "ok"};
        char hashes[COLUMNS][20];
        if (strncmp(line, "schedule\t", 9) == 0)
            continue;
        int fields =
            sscanf(line, "%39s %d %d %d %19s %19s %19s %19s %19s %19s %19s",
                   row.name, &row.p, &row.v, &row.m, hashes[ORDER],
                   hashes[LOWERED], hashes[DEFERRED], hashes[SENDS1],
                   hashes[SENDS4], hashes[AUTO], hashes[LATE_REDUCE]);
        assert_int_equal(fields, 4 + COLUMNS);
        sl_schedule *compute = test_generate(row.name, row.p, row.v, row.m);
        for (int i = 0; i < COLUMNS; i++) {
            sl_schedule *made = make_column(compute, i);
            expect_hash(&row, columns[i].name, made, hashes[i]);
            assert_true(test_is_sound(made));
            sl_schedule_destroy(made);
        }
        sl_schedule_destroy(compute);
        rows++;
    }
    fclose(file);
    return rows;
}

static void every_row_equals_pytorch_2_15(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/schedules-2.15.tsv", folder());
    assert_true(check_table_2_15(path) > 100);
    assert_true(check_table_2_15("goldens/schedules-2.15-further.tsv") > 100);
}

static void full_texts_equal_pytorch_2_15(void **state)
{
    (void)state;
    static const char *const names[] = {"LoopedBFS", "Interleaved1F1B",
                                        "InterleavedZeroBubble",
                                        "ZBVZeroBubble", "DualPipeV"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        sl_schedule *compute = test_generate(names[k], 2, 2, 4);
        for (int i = LOWERED; i < COLUMNS; i++) {
            char path[160];
            snprintf(path, sizeof path,
                     "goldens/schedules-2.15/%s-2x2x4-%s.csv", names[k],
                     columns[i].name);
            char *expected = test_read_file(path, NULL);
            sl_schedule *made = make_column(compute, i);
            test_assert_csv(made, expected);
            sl_schedule_destroy(made);
            free(expected);
        }
        sl_schedule_destroy(compute);
    }
}

/* ---------------------------------------- which placement is safe when -- */

/* docs/checking.md: late and deferred receives deadlock under ordered and
 * blocking, unless all forwards of a rank come before all its backwards and no
 * stage's results come back to it in between; */
static bool documented_as_unsafe(const golden *row)
{
    if (row->p == 1 || row->m == 1 || strcmp(row->name, "GPipe") == 0)
        return false;
    if (strcmp(row->name, "LoopedBFS") == 0 ||
        strcmp(row->name, "ForwardOnly") == 0)
        return row->v > 1 && row->m >= row->p;
    return true;
}

/* and under per-edge, where forwards and gradients go from one rank to the same
 * other, in an order that is not that of their users. */
static bool documented_as_unsafe_per_edge(const golden *row)
{
    if (strcmp(row->name, "ZBVZeroBubble") == 0)
        return row->p > 1 && row->m > row->p;
    if (strcmp(row->name, "DualPipeV") == 0)
        return row->p > 2;
    if (strcmp(row->name, "InterleavedZeroBubble") == 0)
        return row->p == 2 && row->v > 1 && row->m > 2;
    return false;
}

static void expect_readings(const golden *row, const sl_schedule *compute,
                            const char *passes, sl_recv recv)
{
    bool asap = recv == SL_RECV_ASAP && !strstr(passes, "defer-recv");
    sl_lower_options options = SL_LOWER_OPTIONS_INIT;
    sl_schedule *lowered;
    sl_report *report;
    options.recv = recv;
    assert_ok(sl_lower(compute, passes, &options, &lowered));
    assert_ok(sl_check(lowered, NULL, &report));
    assert_null(sl_report_deadlock(report, SL_ASYNC));
    for (int i = SL_PER_EDGE; i <= SL_BLOCKING; i++) {
        bool found = sl_report_deadlock(report, (sl_reading)i) != NULL;
        bool unsafe = i == SL_PER_EDGE ? documented_as_unsafe_per_edge(row)
                                       : documented_as_unsafe(row);
        if (found != (unsafe && !asap))
            fail_msg("%s p=%d v=%d m=%d %s recv=%d under %s: %s, the docs say "
                     "otherwise",
                     row->name, row->p, row->v, row->m, passes, (int)recv,
                     sl_reading_text((sl_reading)i),
                     found ? "deadlocks" : "safe");
    }
    sl_report_destroy(report);
    sl_schedule_destroy(lowered);
}

static void check_readings(const golden *row)
{
    sl_sizes sizes = {row->p, row->v, row->m};
    sl_schedule *compute;
    if (sl_generate(row->name, &sizes, &compute))
        return;
    expect_readings(row, compute, "send-recv", SL_RECV_ASAP);
    expect_readings(row, compute, "send-recv,wait-send,send-budget=0",
                    SL_RECV_ASAP);
    expect_readings(row, compute, "send-recv,wait-send", SL_RECV_LATE);
    if (strcmp(row->name, "ForwardOnly") != 0) /* The docs do not say. */
        expect_readings(row, compute, "send-recv,defer-recv,wait-send",
                        SL_RECV_ASAP);
    sl_schedule_destroy(compute);
}

static void safety_is_as_documented(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/schedules.tsv", folder());
    check_table(path, check_readings);
    check_table("goldens/schedules_further.tsv", check_readings);
    for (int p = 1; p <= 5; p++)
        for (int v = 1; v <= 3; v++)
            for (int m = 1; m <= 8; m++) {
                golden row = {.name = "ForwardOnly", .p = p, .v = v, .m = m};
                check_readings(&row);
            }
}

static void sha256_is_right(void **state)
{
    (void)state;
    uint8_t digest[32];
    test_sha256("abc", 3, digest);
    static const uint8_t start[4] = {0xba, 0x78, 0x16, 0xbf};
    assert_memory_equal(digest, start, sizeof start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_is_right),
        cmocka_unit_test(every_row_equals_pytorch),
        cmocka_unit_test(further_rows_equal_pytorch),
        cmocka_unit_test(full_texts_equal_pytorch),
        cmocka_unit_test(every_row_equals_pytorch_2_15),
        cmocka_unit_test(full_texts_equal_pytorch_2_15),
        cmocka_unit_test(safety_is_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

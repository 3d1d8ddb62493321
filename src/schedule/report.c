/* SPDX-License-Identifier: MIT
 *
 * The checker's report: findings as data, and its JSON. */
#include "schedule/report.h"
#include "schedule/schedule.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/try.h"
#include "base/writer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *code;
    const char *meaning;
} codes[SL_FINDING_CODES] = {
#define SL_FINDING(name, code, meaning) {code, meaning},
#include "sluice/findings.def"
#undef SL_FINDING
};

static const char *const readings[SL_READINGS] = {[SL_ASYNC] = "async",
                                                  [SL_PER_EDGE] = "per-edge",
                                                  [SL_ORDERED] = "ordered",
                                                  [SL_BLOCKING] = "blocking"};

const char *sl_finding_code_text(sl_finding_code code)
{
    return (unsigned)code < SL_FINDING_CODES ? codes[code].code : "unknown";
}

const char *sl_finding_code_meaning(sl_finding_code code)
{
    return (unsigned)code < SL_FINDING_CODES ? codes[code].meaning : "";
}

const char *sl_reading_text(sl_reading reading)
{
    return (unsigned)reading < SL_READINGS ? readings[reading] : "unknown";
}

sl_status sl__report_create(size_t max, sl_report **out)
{
    SL__TRY(sl__alloc(1, sizeof **out, out));
    (*out)->max = max;
    return SL_OK;
}

void sl_report_destroy(sl_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->count; i++)
        free((char *)report->findings[i].text);
    for (int i = 0; i < SL_READINGS; i++) {
        free((char *)report->deadlock[i].text);
        free((sl_wait *)report->deadlock[i].waits);
    }
    free(report->findings);
    free(report);
}

static int by_place(const void *left, const void *right)
{
    const sl_finding *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->code > b->code) - (a->code < b->code);
}

/* Sorts the findings and drops all but the first `most`. */
static void keep_first(sl_report *report, size_t most)
{
    if (report->count)
        qsort(report->findings, report->count, sizeof *report->findings,
              by_place);
    while (report->count > most)
        free((char *)report->findings[--report->count].text);
}

/* Adds a finding. Findings are dropped only when there are twice as many as are
 * kept. */
static sl_status add(sl_report *report, const sl_finding *finding,
                     const char *text)
{
    if (report->count >= 2 * report->max)
        keep_first(report, report->max);
    SL__TRY(sl__grow(&report->findings, &report->capacity, report->count + 1,
                     sizeof *report->findings));
    char *copy = strdup(text);
    if (!copy)
        return sl_fail(SL_ENOMEM, "out of memory for a finding");
    sl_finding *kept = &report->findings[report->count++];
    *kept = *finding;
    kept->text = copy;
    return SL_OK;
}

static void add_or_remember(sl_report *report, const sl_finding *finding,
                            const char *text)
{
    report->total++;
    if (!report->status)
        report->status = add(report, finding, text);
}

void sl__report_add(sl_report *report, sl_finding_code code, int rank, int step,
                    const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    sl__vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    sl_finding finding = {.code = code, .rank = rank, .step = step};
    add_or_remember(report, &finding, text);
}

/* --------------------------------------------------------- deadlocks -- */

static bool has_place(const sl_schedule *schedule, int rank, int step)
{
    return step >= 0 && (size_t)step < sl_schedule_length(schedule, rank);
}

void sl_wait_print(const sl_schedule *schedule, const sl_wait *wait, char *text)
{
    char waiter[SL_ACTION_TEXT_MAX], on[SL_ACTION_TEXT_MAX];
    if (!text)
        return;
    text[0] = '\0';
    if (!wait || !has_place(schedule, wait->rank, wait->step) ||
        (wait->on_rank >= 0 &&
         !has_place(schedule, wait->on_rank, wait->on_step)))
        return;
    sl_action_print(&sl_schedule_row(schedule, wait->rank)[wait->step], waiter);
    if (wait->on_rank < 0) {
        snprintf(text, SL_WAIT_TEXT_MAX,
                 "rank %d at step %d (%s) waits for what no rank provides",
                 wait->rank, wait->step, waiter);
        return;
    }
    sl_action_print(&sl_schedule_row(schedule, wait->on_rank)[wait->on_step],
                    on);
    snprintf(text, SL_WAIT_TEXT_MAX,
             "rank %d at step %d (%s) waits for rank %d's step %d (%s)",
             wait->rank, wait->step, waiter, wait->on_rank, wait->on_step, on);
}

static sl_status describe(const sl_schedule *schedule, sl_reading reading,
                          const sl_wait *waits, size_t count, sl_string *out)
{
    enum { SHOWN = 8 };
    sl__writer writer;
    sl__writer_start(&writer, sl_write_string, out);
    sl__printf(&writer, "deadlock under %s: ", sl_reading_text(reading));
    for (size_t i = 0; i < count && i < SHOWN; i++) {
        char text[SL_WAIT_TEXT_MAX];
        sl_wait_print(schedule, &waits[i], text);
        sl__printf(&writer, "%s%s", i ? "; " : "", text);
    }
    if (count > SHOWN)
        sl__printf(&writer, "; and %zu more waits in the cycle", count - SHOWN);
    return sl__writer_finish(&writer);
}

void sl__report_deadlock(sl_report *report, const sl_schedule *schedule,
                         sl_reading reading, sl_wait *waits, size_t count)
{
    sl_string text = SL_STRING_INIT;
    assert(count > 0 && !report->deadlock[reading].waits);
    sl_status status = describe(schedule, reading, waits, count, &text);
    if (status && !report->status)
        report->status = status;
    report->deadlock[reading] = (sl_finding){.code = SL_FINDING_DEADLOCK,
                                             .rank = waits[0].rank,
                                             .step = waits[0].step,
                                             .text = text.data,
                                             .waits = waits,
                                             .wait_count = count};
}

/* ---------------------------------------------------------- reading it -- */

void sl__report_finish(sl_report *report, sl_reading required)
{
    const sl_finding *deadlock = sl_report_deadlock(report, required);
    keep_first(report, deadlock && report->max ? report->max - 1 : report->max);
    if (deadlock)
        add_or_remember(report, deadlock, deadlock->text);
    keep_first(report, report->max);
}

bool sl_report_is_sound(const sl_report *report)
{
    return report && report->total == 0;
}

const sl_finding *sl_report_findings(const sl_report *report, size_t *count)
{
    if (count)
        *count = report ? report->count : 0;
    return report ? report->findings : NULL;
}

size_t sl_report_total(const sl_report *report)
{
    return report ? report->total : 0;
}

bool sl_report_deadlock_known(const sl_report *report)
{
    return report && report->deadlock_known;
}

const sl_finding *sl_report_deadlock(const sl_report *report,
                                     sl_reading reading)
{
    if (!report || (unsigned)reading >= SL_READINGS ||
        !report->deadlock[reading].text)
        return NULL;
    return &report->deadlock[reading];
}

/* Writes a rank or a step; null where the finding has none. */
static void put_place(sl__writer *writer, const char *key, int number)
{
    sl__printf(writer, ", \"%s\": ", key);
    if (number < 0)
        sl__puts(writer, "null");
    else
        sl__put_integer(writer, number);
}

static void put_action(sl__writer *writer, const sl_schedule *schedule,
                       int rank, int step)
{
    if (!has_place(schedule, rank, step)) {
        sl__puts(writer, "null");
        return;
    }
    char text[SL_ACTION_TEXT_MAX];
    sl_action_print(&schedule->rows[rank].actions[step], text);
    sl__put_json_string(writer, text);
}

static void put_waits(sl__writer *writer, const sl_finding *finding)
{
    sl__puts(writer, ", \"waits\": [");
    for (size_t i = 0; i < finding->wait_count; i++) {
        const sl_wait *wait = &finding->waits[i];
        sl__printf(writer, "%s{\"rank\": %d, \"step\": %d", i ? ", " : "",
                   wait->rank, wait->step);
        put_place(writer, "on_rank", wait->on_rank);
        put_place(writer, "on_step", wait->on_step);
        sl__putc(writer, '}');
    }
    sl__putc(writer, ']');
}

static void put_finding(sl__writer *writer, const sl_schedule *schedule,
                        const sl_finding *finding)
{
    sl__printf(writer, "{\"code\": \"%s\"",
               sl_finding_code_text(finding->code));
    put_place(writer, "rank", finding->rank);
    put_place(writer, "step", finding->step);
    sl__puts(writer, ", \"action\": ");
    put_action(writer, schedule, finding->rank, finding->step);
    sl__puts(writer, ", \"text\": ");
    sl__put_json_string(writer, finding->text);
    if (finding->wait_count)
        put_waits(writer, finding);
    sl__putc(writer, '}');
}

static void put_deadlocks(sl__writer *writer, const sl_report *report,
                          const sl_schedule *schedule)
{
    if (!report->deadlock_known) {
        sl__puts(writer, "null");
        return;
    }
    sl__puts(writer, "{");
    for (int i = 0; i < SL_READINGS; i++) {
        const sl_finding *deadlock = sl_report_deadlock(report, (sl_reading)i);
        sl__printf(writer, "%s\n    \"%s\": ", i ? "," : "", readings[i]);
        if (deadlock)
            put_finding(writer, schedule, deadlock);
        else
            sl__puts(writer, "null");
    }
    sl__puts(writer, "\n  }");
}

sl_status sl_report_write_json(const sl_report *report,
                               const sl_schedule *schedule, sl_write_fn write,
                               void *context)
{
    SL__NEED(report, schedule, write);
    sl_extent extent = sl_schedule_extent(schedule);
    sl__writer writer;
    sl__writer_start(&writer, write, context);
    sl__printf(&writer,
               "{\n  \"sound\": %s,\n  \"ranks\": %d,\n  \"stages\": %d,\n"
               "  \"microbatches\": %d,\n  \"actions\": %zu,\n"
               "  \"finding_count\": %zu,\n  \"findings\": [",
               sl_report_is_sound(report) ? "true" : "false", extent.ranks,
               extent.stages, extent.microbatches, extent.actions,
               report->total);
    for (size_t i = 0; i < report->count; i++) {
        sl__puts(&writer, i ? ",\n    " : "\n    ");
        put_finding(&writer, schedule, &report->findings[i]);
    }
    sl__puts(&writer, report->count ? "\n  ],\n" : "],\n");
    sl__puts(&writer, "  \"deadlock\": ");
    put_deadlocks(&writer, report, schedule);
    sl__puts(&writer, "\n}\n");
    return sl__writer_finish(&writer);
}

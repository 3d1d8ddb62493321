/* SPDX-License-Identifier: MIT
 *
 * `sluice check`: findings about a schedule, for people or as JSON. */
#include "cli.h"

#include <stdio.h>

#define VERB "check"

typedef struct request {
    const char *file;
    sl_check_options options;
    bool json;
} request;

enum { KEY_JSON = 256, KEY_COMM, KEY_STAGES };

static const struct argp_option options[] = {
    {"comm", KEY_COMM, "READING", 0,
     "Under which reading of communication a deadlock is a fault: async (the "
     "default), per-edge, ordered or blocking; the others are told all the "
     "same",
     0},
    {"ranks", 'p', "P", 0, "Expect this many ranks", 0},
    {"stages", KEY_STAGES, "S", 0, "Expect this many stages in all", 0},
    {"microbatches", 'm', "M", 0, "Expect this many microbatches", 0},
    {"json", KEY_JSON, 0, 0, "Findings as JSON", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *asked = state->input;
    switch (key) {
    case KEY_COMM: return cli_parse_reading(arg, &asked->options.reading);
    case 'p': return cli_parse_size("--ranks", arg, &asked->options.ranks);
    case KEY_STAGES:
        return cli_parse_size("--stages", arg, &asked->options.stages);
    case 'm':
        return cli_parse_size("--microbatches", arg,
                              &asked->options.microbatches);
    case KEY_JSON: asked->json = true; return 0;
    case ARGP_KEY_ARG: return cli_take_file(arg, &asked->file);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "[FILE]",
    "Check a compute-only or lowered schedule. FILE is CSV; `-` or nothing is "
    "standard input. Exit status: 0 sound, 1 with findings, 2 unreadable.\v"
    "A schedule is sound when all work is there once and in order, messages "
    "pair up, sharding and gradient reduction are in place, and it cannot "
    "deadlock under the reading of --comm: async (each message is waited for "
    "only by its user and its WAIT_SEND), per-edge (those from one rank to "
    "another complete in the order they were posted, as with an NCCL "
    "communicator for each), ordered (all of a rank's do, as on one NCCL "
    "stream) or blocking (each message holds its rank).\n\n"
    "  sluice schedule zbv -p 4 -m 8 --as lowered | sluice check\n"
    "  sluice check mine.csv --comm ordered --json",
    NULL,
    NULL,
    NULL};

static void print_deadlock(const sl_schedule *schedule, const sl_report *report,
                           sl_reading reading, const char *label)
{
    enum { SHOWN = 12 };
    const sl_finding *found = sl_report_deadlock(report, reading);
    printf("  %-9s %s\n", label, found ? "deadlocks:" : "runs to its end");
    for (size_t i = 0; found && i < found->wait_count; i++) {
        if (i == SHOWN && found->wait_count > SHOWN + 1) {
            printf("    and %zu more waits in the cycle\n",
                   found->wait_count - SHOWN);
            break;
        }
        char text[SL_WAIT_TEXT_MAX];
        sl_wait_print(schedule, &found->waits[i], text);
        printf("    %s\n", text);
    }
}

static void print_findings(const sl_report *report)
{
    size_t count;
    const sl_finding *findings = sl_report_findings(report, &count);
    for (size_t i = 0; i < count; i++) {
        if (findings[i].code != SL_FINDING_DEADLOCK)
            printf("  %-19s %s\n", sl_finding_code_text(findings[i].code),
                   findings[i].text);
    }
    if (sl_report_total(report) > count)
        printf("  and %zu more findings\n", sl_report_total(report) - count);
}

static void print_deadlocks(const sl_schedule *schedule,
                            const sl_report *report, const sl_extent *extent)
{
    if (!sl_report_deadlock_known(report))
        return;
    if (!extent->has_communication) { /* Nothing to read in several ways. */
        print_deadlock(schedule, report, SL_ASYNC, "compute");
        return;
    }
    for (int i = 0; i < SL_READINGS; i++)
        print_deadlock(schedule, report, (sl_reading)i,
                       sl_reading_text((sl_reading)i));
}

/* The steps around the first finding that has a place, in a grid. */
static sl_status print_around(const sl_schedule *schedule,
                              const sl_report *report)
{
    enum { AROUND = 3, MOST_RANKS = 16 };
    size_t count;
    const sl_finding *findings = sl_report_findings(report, &count);
    for (size_t i = 0; i < count; i++) {
        if (findings[i].step < 0 || sl_schedule_ranks(schedule) > MOST_RANKS)
            continue;
        size_t step = (size_t)findings[i].step;
        printf("\nAround the first finding, on rank %d:\n", findings[i].rank);
        return sl_schedule_write_grid(
            schedule, step < AROUND ? 0 : step - AROUND, step + AROUND, step,
            sl_write_stdio, stdout);
    }
    return SL_OK;
}

static sl_status print_report(const sl_schedule *schedule,
                              const sl_report *report)
{
    sl_extent extent = sl_schedule_extent(schedule);
    if (sl_report_is_sound(report))
        printf("sound: ");
    else
        printf("%zu finding%s in ", sl_report_total(report),
               sl_report_total(report) == 1 ? "" : "s");
    printf("%d rank%s, %d stage%s, %d microbatch%s, %zu action%s\n",
           extent.ranks, extent.ranks == 1 ? "" : "s", extent.stages,
           extent.stages == 1 ? "" : "s", extent.microbatches,
           extent.microbatches == 1 ? "" : "es", extent.actions,
           extent.actions == 1 ? "" : "s");
    print_findings(report);
    print_deadlocks(schedule, report, &extent);
    return print_around(schedule, report);
}

int verb_check(int argc, char **argv)
{
    request asked = {.options = SL_CHECK_OPTIONS_INIT};
    sl_schedule *schedule;
    sl_report *report;
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (!exit_status)
        exit_status = cli_read_schedule(VERB, asked.file, &schedule);
    if (exit_status)
        return exit_status;
    sl_status status = sl_check(schedule, &asked.options, &report);
    if (status) {
        sl_schedule_destroy(schedule);
        return cli_failed(VERB, status);
    }
    status = asked.json ? sl_report_write_json(report, schedule, sl_write_stdio,
                                               stdout)
                        : print_report(schedule, report);
    bool sound = sl_report_is_sound(report);
    sl_report_destroy(report);
    sl_schedule_destroy(schedule);
    exit_status = cli_flush(VERB, status);
    if (exit_status)
        return exit_status;
    return sound ? CLI_DONE : CLI_FAILED;
}

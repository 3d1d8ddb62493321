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

#define AT(field) offsetof(request, field)
static const cli_option options[] = {
    CLI_VALUED("comm", CLI_COMM_WORDS, CHOICE, options.reading,
               "Fail on a deadlock under this reading of communication "
               "(async); deadlocks under the others are only reported"),
    CLI_RANKS("Expect this many ranks", options),
    CLI_OPTION("stages", SIZE, options.stages,
               "Expect this many stages in all"),
    CLI_MICROBATCHES("Expect this many microbatches", options),
    CLI_SWITCH("json", json, "Print the findings as JSON"),
    {0},
};

static const cli_command command = {
    .options = options,
    .noun = "FILE",
    .offset = AT(file),
    .arguments = "[FILE]",
    .help =
        "Check a compute-only or lowered schedule. FILE is CSV; `-` or nothing "
        "is standard input. Exit status: 0 sound, 1 with findings, 2 "
        "unreadable.\v"
        "A schedule is sound if it has all work exactly once and in order, "
        "sends match receives, sharding and gradient reduction are in place, "
        "and it cannot deadlock under the reading of --comm: async (only the "
        "user of a message and its WAIT_SEND wait for it), per-edge (messages "
        "from one rank to another complete in posted order, as with an NCCL "
        "communicator for each direction), ordered (all messages of a rank do, "
        "as on one NCCL stream) or blocking (each message blocks sender and "
        "receiver).\n\n"
        "  sluice schedule zbv -p 4 -m 8 --as lowered | sluice check\n"
        "  sluice check mine.csv --comm ordered --json",
};

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
    char sizes[80];
    sl_extent extent = sl_schedule_extent(schedule);
    if (sl_report_is_sound(report))
        printf("sound: ");
    else
        printf("%zu finding%s in ", sl_report_total(report),
               sl_report_total(report) == 1 ? "" : "s");
    printf("%s, %zu action%s\n", cli_extent_text(&extent, sizes),
           extent.actions, extent.actions == 1 ? "" : "s");
    print_findings(report);
    print_deadlocks(schedule, report, &extent);
    return print_around(schedule, report);
}

/* Returns the exit status. */
static int check(const request *asked, const sl_schedule *schedule)
{
    sl_report *report;
    CLI_TRY(cli_result(VERB, sl_check(schedule, &asked->options, &report)));
    bool sound = sl_report_is_sound(report);
    sl_status status =
        asked->json
            ? sl_report_write_json(report, schedule, sl_write_stdio, stdout)
            : print_report(schedule, report);
    sl_report_destroy(report);
    CLI_TRY(cli_flush(VERB, status));
    return sound ? CLI_DONE : CLI_FAILED;
}

int verb_check(int argc, char **argv)
{
    request asked = {.options = SL_CHECK_OPTIONS_INIT};
    sl_schedule *schedule;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    CLI_TRY(cli_read_schedule(VERB, asked.file, &schedule));
    int exit_status = check(&asked, schedule);
    sl_schedule_destroy(schedule);
    return exit_status;
}

/* SPDX-License-Identifier: MIT
 *
 * Schedules as a command line names them: one of `sluice schedule --list` with
 * sizes behind it, or a CSV file; and what is done to them first. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_put_sizes(const sl_sizes *given, sl_sizes *over)
{
    if (given->ranks)
        over->ranks = given->ranks;
    if (given->stages_per_rank)
        over->stages_per_rank = given->stages_per_rank;
    if (given->microbatches)
        over->microbatches = given->microbatches;
}

static int *size_of(sl_sizes *sizes, char key)
{
    switch (key) {
    case 'p': return &sizes->ranks;
    case 'v': return &sizes->stages_per_rank;
    case 'm': return &sizes->microbatches;
    default: return NULL;
    }
}

/* Parses v=2,m=16 after a name. */
static bool parse_named_sizes(const char *list, sl_sizes *out)
{
    for (bool more = true; more;) {
        char *end;
        int *size = size_of(out, *list);
        if (!size || *size || list[1] != '=' || list[2] < '0' || list[2] > '9')
            return false;
        errno = 0;
        long number = strtol(list + 2, &end, 10);
        if (errno || number < 1 || number > INT_MAX || (*end && *end != ','))
            return false;
        *size = (int)number;
        more = *end == ',';
        list = end + 1;
    }
    return true;
}

int cli_parse_schedule(const char *verb, const char *argument,
                       cli_schedule_name *out)
{
    const sl_generator *generator;
    size_t length = strcspn(argument, ":");
    *out = (cli_schedule_name){.name = argument, .words = ""};
    if (!argument[length] || length >= sizeof out->text)
        return CLI_DONE;
    memcpy(out->text, argument, length);
    bool known = sl_generator_find(out->text, &generator) == SL_OK;
    /* A file may have a colon in its name. */
    if (!known &&
        (access(argument, F_OK) == 0 || cli_ends_in(argument, ".csv")))
        return CLI_DONE;
    if (!known &&
        (cli_ends_in(out->text, ".csv") || access(out->text, F_OK) == 0))
        return cli_say(verb, CLI_WRONG,
                       "%.100s is a file and has its sizes; '%.60s' after it "
                       "is for names only",
                       out->text, argument + length);
    out->name = out->text;
    out->words = argument + length + 1;
    if (!parse_named_sizes(out->words, &out->sizes))
        return cli_say(verb, CLI_WRONG,
                       "after a schedule's name there are p=, v= or m= with a "
                       "number from 1 up, as in %.60s:v=2,m=16, not '%.60s'",
                       out->text, out->words);
    return CLI_DONE;
}

int cli_read_schedule(const char *verb, const char *path, sl_schedule **out)
{
    char *text;
    size_t length;
    CLI_TRY(cli_read(verb, path, &text, &length));
    sl_status status = sl_schedule_read_csv(text, length, out);
    free(text);
    if (!status)
        return CLI_DONE;
    return cli_say(verb, CLI_WRONG, "%.200s: %s",
                   path && strcmp(path, "-") ? path : "standard input",
                   sl_error_text());
}

sl_status cli_add_messages(sl_reading reading, sl_schedule **schedule)
{
    sl_schedule *lowered;
    sl_extent extent = sl_schedule_extent(*schedule);
    if (reading == SL_ASYNC || extent.has_communication)
        return SL_OK;
    CLI_TRY(sl_lower_send_recv(*schedule, SL_RECV_ASAP, &lowered));
    sl_schedule_destroy(*schedule);
    *schedule = lowered;
    return SL_OK;
}

/* Whether a size that was asked for is not that of a schedule from a file. */
static bool differs(int64_t asked, int found)
{
    return asked && asked != found;
}

int cli_check_sizes(const char *verb, const char *name, const sl_sizes *asked,
                    const sl_schedule *schedule)
{
    sl_extent extent = sl_schedule_extent(schedule);
    if (!differs(asked->ranks, extent.ranks) &&
        !differs(asked->microbatches, extent.microbatches) &&
        !differs((int64_t)asked->stages_per_rank * extent.ranks, extent.stages))
        return CLI_DONE;
    return cli_say(verb, CLI_WRONG,
                   "%.200s has %d ranks, %d stages and %d microbatches, and "
                   "-p, -v or -m says otherwise",
                   name, extent.ranks, extent.stages, extent.microbatches);
}

int cli_check_job(const char *verb, const sl_schedule *schedule,
                  const sl_comm *comm)
{
    int ranks = sl_schedule_ranks(schedule);
    if (!comm || ranks == sl_comm_size(comm))
        return CLI_DONE;
    return cli_say(verb, CLI_WRONG, "the schedule has %d ranks, and the job %d",
                   ranks, sl_comm_size(comm));
}

int cli_choose_schedule(const char *verb, const char *name,
                        const sl_sizes *asked, const sl_sizes *usual,
                        sl_schedule **out)
{
    const sl_generator *generator;
    cli_schedule_name named;
    CLI_TRY(cli_parse_schedule(verb, name, &named));
    if (cli_ends_in(name, ".csv")) {
        CLI_TRY(cli_read_schedule(verb, name, out));
        return cli_check_sizes(verb, name, asked, *out);
    }
    CLI_TRY(cli_result(verb, sl_generator_find(named.name, &generator)));
    sl_sizes sizes = *usual;
    sizes.stages_per_rank = generator->default_stages_per_rank;
    cli_put_sizes(asked, &sizes);
    cli_put_sizes(&named.sizes, &sizes);
    return cli_result(verb, sl_generate(named.name, &sizes, out));
}

int cli_run_passes(const char *verb, const char *passes, sl_schedule **schedule)
{
    sl_schedule *made;
    if (!passes)
        return CLI_DONE;
    CLI_TRY(cli_result(verb, sl_lower(*schedule, passes, NULL, &made)));
    sl_schedule_destroy(*schedule);
    *schedule = made;
    return CLI_DONE;
}

const char *cli_extent_text(const sl_extent *extent, char out[80])
{
    snprintf(out, 80, "%d rank%s, %d stage%s, %d microbatch%s", extent->ranks,
             extent->ranks == 1 ? "" : "s", extent->stages,
             extent->stages == 1 ? "" : "s", extent->microbatches,
             extent->microbatches == 1 ? "" : "es");
    return out;
}

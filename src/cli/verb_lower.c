/* SPDX-License-Identifier: MIT
 *
 * `sluice lower`: run passes over a schedule and print the result. */
#include "lowering.h"

#include <stdio.h>
#include <string.h>

#define VERB "lower"

typedef struct request {
    const char *file;
    const char *passes; /* NULL: those of --for */
    lowering lower;
} request;

#define AT(field) offsetof(request, field)
static const cli_option options[] = {
    CLI_VALUED("passes", "LIST", TEXT, passes,
               "Run only these passes, in this order, separated by commas: "
               "drop-idle, merge-bw, delay-w=N, unshard, reduce-grad, "
               "wait-reduce, send-recv, wait-send, defer-recv, send-budget=N, "
               "drop-waits (default: those that --for needs)"),
#include "lowering.def"
    {0},
};

static const cli_command command = {
    .options = options,
    .noun = "FILE",
    .offset = AT(file),
    .arguments = "[FILE]",
    .help = "Lower a compute-only schedule: add the communication, sharding "
            "and gradient reductions that a runtime needs. A lowered one is "
            "converted to the form of --for, by adding or dropping waits. FILE "
            "is CSV; `-` or nothing is standard input.\v"
            "  sluice schedule zbv -p 4 -m 8 | sluice lower\n"
            "  sluice lower of-2.11.csv >of-2.15.csv\n"
            "  sluice lower of-2.15.csv --for torch-2.11 >of-2.11.csv\n"
            "  sluice lower mine.csv --recv defer --send-budget 4\n"
            "  sluice lower mine.csv --passes merge-bw,send-recv --recv late",
};

/* Whether a pass is among those that were named. */
static bool names(const request *asked, const char *pass)
{
    size_t length = strlen(pass);
    for (const char *at = asked->passes; (at = strstr(at, pass));
         at += length) {
        bool begins = at == asked->passes || at[-1] == ',';
        if (begins && strchr(",=", at[length]))
            return true;
    }
    return false;
}

static int refuse_idle_option(const char *option, const char *pass,
                              const request *asked)
{
    return cli_say(VERB, CLI_WRONG,
                   "%s goes with the pass %s, which is not in '%.100s'", option,
                   pass, asked->passes);
}

/* With --passes nothing runs but these. */
static int refuse_idle_options(const request *asked)
{
    const lowering *lower = &asked->lower;
    if (!asked->passes)
        return lowering_check(VERB, lower);
    if (!*asked->passes)
        return cli_say(VERB, CLI_WRONG, "--passes names no pass");
    if (CLI_GIVEN("for"))
        return cli_say(VERB, CLI_WRONG,
                       "--for chooses passes, and --passes names them");
    if (lower->defers)
        return cli_say(VERB, CLI_WRONG,
                       "--recv defer is the pass defer-recv: name it in "
                       "--passes");
    if (lower->budget >= 0)
        return cli_say(VERB, CLI_WRONG,
                       "--send-budget is the pass send-budget=%d: name it in "
                       "--passes",
                       lower->budget);
    if (CLI_GIVEN("recv") && !names(asked, "send-recv"))
        return refuse_idle_option("--recv", "send-recv", asked);
    if (CLI_GIVEN("unshard-window") && !names(asked, "unshard"))
        return refuse_idle_option("--unshard-window", "unshard", asked);
    if (CLI_GIVEN("unshard-lookahead") && !names(asked, "unshard"))
        return refuse_idle_option("--unshard-lookahead", "unshard", asked);
    if (CLI_GIVEN("reduce-wait") && !names(asked, "reduce-grad") &&
        !names(asked, "wait-reduce"))
        return refuse_idle_option("--reduce-wait", "reduce-grad", asked);
    return 0;
}

int verb_lower(int argc, char **argv)
{
    static request asked = {.lower = LOWERING_INIT};
    sl_schedule *schedule, *lowered;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    CLI_TRY(refuse_idle_options(&asked));
    CLI_TRY(cli_read_schedule(VERB, asked.file, &schedule));
    sl_status status =
        asked.passes
            ? sl_lower(schedule, asked.passes, &asked.lower.options, &lowered)
            : lowering_run(&asked.lower, schedule, &lowered);
    sl_schedule_destroy(schedule);
    CLI_TRY(cli_result(VERB, status));
    status = sl_schedule_write_csv(lowered, sl_write_stdio, stdout);
    sl_schedule_destroy(lowered);
    return cli_flush(VERB, status);
}

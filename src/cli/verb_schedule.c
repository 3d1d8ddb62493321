/* SPDX-License-Identifier: MIT
 *
 * `sluice schedule`: generate a schedule by name and print it. */
#include "lowering.h"

#include <stdio.h>
#include <string.h>

#define VERB "schedule"

typedef enum form { ORDER, COMPUTE, COMMS, LOWERED, GRID, JSON } form;
#define FORMS "order|compute|comms|lowered|grid|json"

typedef struct request {
    const char *name;
    cli_schedule_name named; /* taken apart */
    sl_sizes sizes;
    int as; /* a form */
    lowering lower;
    bool list;
    bool json;
} request;

#define AT(field) offsetof(request, field)
static const cli_option options[] = {
    CLI_RANKS("Ranks", sizes),
    CLI_STAGES_PER_RANK(sizes),
    CLI_MICROBATCHES("Microbatches in a step", sizes),
    CLI_VALUED(
        "as", FORMS, CHOICE, as,
        "order: compute without idle cells (the default); compute: with "
        "PyTorch's idle cells; comms: order + send-recv (without REDUCE_GRAD, "
        "so PyTorch up to 2.14 does not divide gradients by the number of "
        "microbatches, and 2.15 refuses it); lowered: order + unshard + "
        "reduce-grad + send-recv + wait-send, what PyTorch runs; grid: a table "
        "with a row per step and a column per rank; json: compute as JSON, "
        "with the placement"),
#include "lowering.def"
    CLI_HEADED("Other:"),
    CLI_SWITCH("list", list, "List the names of schedules"),
    CLI_SWITCH("json", json, "With --list: as JSON"),
    {0},
};

static const cli_command command = {
    .options = options,
    .noun = "NAME",
    .offset = AT(name),
    .arguments = "NAME -p P -m M\n--list",
    .help =
        "Generate the schedule NAME and print it as CSV, one line per rank.\v"
        "NAME is PyTorch's (ScheduleZBVZeroBubble, ZBVZeroBubble) or a short "
        "one (gpipe, 1f1b, bfs, interleaved, zb1p, zbv, dualpipev, forward), "
        "in any case. Sizes may be part of it: interleaved:v=2,p=4,m=8.\n\n"
        "  sluice schedule 1f1b -p 4 -m 8 --as grid\n"
        "  sluice schedule zbv -p 4 -m 8 | sluice lower | sluice check",
};

static int list_text(void)
{
    const sl_generator *generator;
    printf("%-22s %-12s %s\n", "NAME", "SHORT", "WHAT IT IS");
    for (size_t i = 0; (generator = sl_generator_at(i)); i++)
        printf("%-22s %-12s %s\n", generator->name, generator->short_name,
               generator->summary);
    return cli_flush(VERB, SL_OK);
}

static int list_json(void)
{
    const sl_generator *generator;
    printf("[");
    for (size_t i = 0; (generator = sl_generator_at(i)); i++)
        printf("%s\n  {\"name\": \"%s\", \"short_name\": \"%s\", "
               "\"summary\": \"%s\", \"placement\": \"%s\", "
               "\"default_stages_per_rank\": %d}",
               i ? "," : "", generator->name, generator->short_name,
               generator->summary,
               generator->placement == SL_PLACEMENT_V ? "v" : "loop",
               generator->default_stages_per_rank);
    printf("\n]\n");
    return cli_flush(VERB, SL_OK);
}

static int list(const request *asked)
{
    if (asked->name || CLI_GIVEN("ranks", "stages-per-rank", "microbatches",
                                 "as", LOWERING_OPTIONS))
        return cli_say(VERB, CLI_WRONG, "--list goes alone or with --json");
    return asked->json ? list_json() : list_text();
}

static int refuse_idle_options(const request *asked)
{
    if (asked->json)
        return cli_say(VERB, CLI_WRONG,
                       "--json goes with --list; for a "
                       "schedule as JSON use --as json");
    const char *given = asked->as == LOWERED ? NULL
                        : asked->as == COMMS
                            ? CLI_GIVEN("for", "send-budget", "reduce-wait",
                                        "unshard-window", "unshard-lookahead")
                            : CLI_GIVEN(LOWERING_OPTIONS);
    if (given)
        return cli_say(VERB, CLI_WRONG, "--%s goes with --as %slowered", given,
                       strcmp(given, "recv") == 0 ? "comms or " : "");
    return lowering_check(VERB, &asked->lower);
}

/* Fills in the stages per rank and refuses what is missing. */
static int complete_request(request *asked)
{
    const sl_generator *generator;
    sl_sizes *sizes = &asked->sizes;
    if (!asked->name)
        return cli_say(VERB, CLI_WRONG,
                       "which schedule? Give a NAME; `sluice schedule --list` "
                       "shows them");
    CLI_TRY(cli_parse_schedule(VERB, asked->name, &asked->named));
    asked->name = asked->named.name;
    cli_put_sizes(&asked->named.sizes, sizes);
    CLI_TRY(cli_result(VERB, sl_generator_find(asked->name, &generator)));
    if (!sizes->ranks)
        return cli_say(VERB, CLI_WRONG, "how many ranks? Give -p");
    if (!sizes->microbatches)
        return cli_say(VERB, CLI_WRONG, "how many microbatches? Give -m");
    if (!sizes->stages_per_rank)
        sizes->stages_per_rank = generator->default_stages_per_rank;
    return refuse_idle_options(asked);
}

static sl_status lower(const request *asked, const sl_schedule *compute,
                       sl_schedule **out)
{
    switch (asked->as) {
    case COMMS: return lowering_run_messages(&asked->lower, compute, out);
    case LOWERED: return lowering_run(&asked->lower, compute, out);
    default: return sl_lower_drop_idle(compute, out);
    }
}

static sl_status write_form(const request *asked, const sl_schedule *compute)
{
    sl_schedule *lowered;
    switch (asked->as) {
    case COMPUTE: return sl_schedule_write_csv(compute, sl_write_stdio, stdout);
    case GRID:
        return sl_schedule_write_grid(compute, 0, SIZE_MAX, SIZE_MAX,
                                      sl_write_stdio, stdout);
    case JSON: return sl_schedule_write_json(compute, sl_write_stdio, stdout);
    default: break;
    }
    CLI_TRY(lower(asked, compute, &lowered));
    sl_status status = sl_schedule_write_csv(lowered, sl_write_stdio, stdout);
    sl_schedule_destroy(lowered);
    return status;
}

int verb_schedule(int argc, char **argv)
{
    static request asked = {.as = ORDER, .lower = LOWERING_INIT};
    sl_schedule *compute;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    if (asked.list)
        return list(&asked);
    CLI_TRY(complete_request(&asked));
    CLI_TRY(cli_result(VERB, sl_generate(asked.name, &asked.sizes, &compute)));
    sl_status status = write_form(&asked, compute);
    sl_schedule_destroy(compute);
    return cli_flush(VERB, status);
}

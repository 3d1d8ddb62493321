/* SPDX-License-Identifier: MIT
 *
 * `sluice schedule`: generate a schedule by name and print it. */
#include "lowering.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "schedule"

typedef enum form { ORDER, COMPUTE, COMMS, LOWERED, GRID, JSON, FORMS } form;

static const char *const form_names[FORMS] = {"order",   "compute", "comms",
                                              "lowered", "grid",    "json"};

typedef struct request {
    const char *name;
    cli_schedule_name named; /* taken apart */
    sl_sizes sizes;
    int as; /* a form */
    bool as_given;
    lowering lower;
    bool list;
    bool json;
} request;

enum { KEY_AS = 256, KEY_LIST, KEY_JSON };

static const struct argp_option options[] = {
    {"ranks", 'p', "P", 0, "Ranks", 0},
    {"stages-per-rank", 'v', "V", 0,
     "Stages on each rank (1; 2 for zbv and dualpipev)", 0},
    {"microbatches", 'm', "M", 0, "Microbatches in a step", 0},
    {"as", KEY_AS, "FORM", 0,
     "order: compute without idle cells (the default); compute: with "
     "PyTorch's idle cells; comms: order + send-recv, which PyTorch up to 2.14 "
     "runs without dividing gradients by the microbatches, for there is no "
     "REDUCE_GRAD in it, and 2.15 refuses; lowered: order + unshard + "
     "reduce-grad + send-recv + wait-send, what PyTorch runs; grid: a table, "
     "time down and ranks across; json",
     0},
#include "lowering.def"
    {"list", KEY_LIST, 0, 0, "List the schedules there are", 1},
    {"json", KEY_JSON, 0, 0, "With --list: as JSON", 1},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *asked = state->input;
    switch (key) {
    case 'p':
    case 'v':
    case 'm': return cli_parse_sizes(key, arg, &asked->sizes);
    case KEY_AS:
        asked->as_given = true;
        return cli_parse_choice("--as", arg, form_names, FORMS, &asked->as);
    case KEY_LIST: asked->list = true; return 0;
    case KEY_JSON: asked->json = true; return 0;
    case ARGP_KEY_ARG:
        if (asked->name)
            return cli_refuse("one NAME at a time: '%.40s' and '%.40s'",
                              asked->name, arg);
        asked->name = arg;
        return 0;
    default: return lowering_parse(key, arg, &asked->lower);
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "NAME -p P -m M\n--list",
    "Generate the schedule NAME and print it as CSV, one line per rank.\v"
    "NAME is PyTorch's (ScheduleZBVZeroBubble, ZBVZeroBubble) or a short one "
    "(gpipe, 1f1b, bfs, interleaved, zb1p, zbv, dualpipev, forward), in any "
    "case. Sizes may stand with it: interleaved:v=2,p=4,m=8.\n\n"
    "  sluice schedule 1f1b -p 4 -m 8 --as grid\n"
    "  sluice schedule zbv -p 4 -m 8 | sluice lower | sluice check",
    NULL,
    NULL,
    NULL};

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
    if (asked->name || asked->sizes.ranks || asked->sizes.stages_per_rank ||
        asked->sizes.microbatches || asked->as_given ||
        lowering_given(&asked->lower))
        return cli_say(VERB, CLI_WRONG, "--list goes alone or with --json");
    return asked->json ? list_json() : list_text();
}

static int refuse_idle_options(const request *asked)
{
    if (asked->json)
        return cli_say(VERB, CLI_WRONG,
                       "--json goes with --list; for a "
                       "schedule as JSON use --as json");
    lowering beyond = asked->lower;
    if (asked->as == COMMS)
        beyond.recv_given = false;
    const char *given = lowering_given(&beyond);
    if (given && asked->as != LOWERED)
        return cli_say(VERB, CLI_WRONG, "%s goes with --as %slowered, not %s",
                       given, strcmp(given, "--recv") == 0 ? "comms or " : "",
                       form_names[asked->as]);
    return lowering_check(VERB, &asked->lower);
}

/* Fills in the stages per rank and refuses what is missing. */
static int complete_request(request *asked)
{
    const sl_generator *generator;
    if (!asked->name)
        return cli_say(VERB, CLI_WRONG,
                       "which schedule? Give a NAME; `sluice schedule --list` "
                       "shows them");
    int exit_status = cli_parse_schedule(VERB, asked->name, &asked->named);
    if (exit_status)
        return exit_status;
    asked->name = asked->named.name;
    cli_put_sizes(&asked->named.sizes, &asked->sizes);
    sl_status status = sl_generator_find(asked->name, &generator);
    if (status)
        return cli_failed(VERB, status);
    if (!asked->sizes.ranks)
        return cli_say(VERB, CLI_WRONG, "how many ranks? Give -p");
    if (!asked->sizes.microbatches)
        return cli_say(VERB, CLI_WRONG, "how many microbatches? Give -m");
    if (!asked->sizes.stages_per_rank)
        asked->sizes.stages_per_rank = generator->default_stages_per_rank;
    return refuse_idle_options(asked);
}

static sl_status write_form(const request *asked, const sl_schedule *compute)
{
    sl_schedule *lowered;
    sl_status status;
    switch (asked->as) {
    case COMPUTE: return sl_schedule_write_csv(compute, sl_write_stdio, stdout);
    case GRID:
        return sl_schedule_write_grid(compute, 0, SIZE_MAX, SIZE_MAX,
                                      sl_write_stdio, stdout);
    case JSON: return sl_schedule_write_json(compute, sl_write_stdio, stdout);
    case COMMS:
        status = lowering_run_messages(&asked->lower, compute, &lowered);
        break;
    case LOWERED:
        status = lowering_run(&asked->lower, compute, &lowered);
        break;
    default: status = sl_lower_drop_idle(compute, &lowered);
    }
    if (status)
        return status;
    status = sl_schedule_write_csv(lowered, sl_write_stdio, stdout);
    sl_schedule_destroy(lowered);
    return status;
}

int verb_schedule(int argc, char **argv)
{
    static request asked = {.as = ORDER, .lower = LOWERING_INIT};
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (exit_status)
        return exit_status;
    if (asked.list)
        return list(&asked);
    exit_status = complete_request(&asked);
    if (exit_status)
        return exit_status;

    sl_schedule *compute;
    sl_status status = sl_generate(asked.name, &asked.sizes, &compute);
    if (status)
        return cli_failed(VERB, status);
    status = write_form(&asked, compute);
    sl_schedule_destroy(compute);
    return cli_flush(VERB, status);
}

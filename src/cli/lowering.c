/* SPDX-License-Identifier: MIT
 *
 * Lowering from the command line: options, and which passes they mean. */
#include "lowering.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- options -- */

error_t lowering_parse_recv(const char *text, void *out)
{
    lowering *asked = out;
    int chosen;
    error_t error = cli_parse_choice("--recv", text, LOWERING_RECV, &chosen);
    if (error)
        return error;
    asked->defers = chosen == 2;
    asked->options.recv = chosen == 1 ? SL_RECV_LATE : SL_RECV_ASAP;
    return 0;
}

error_t lowering_parse_reduce_wait(const char *text, void *out)
{
    sl_reduce_wait *wait = out;
    int late;
    error_t error =
        cli_parse_choice("--reduce-wait", text, LOWERING_REDUCE_WAIT, &late);
    if (!error)
        *wait = late ? SL_REDUCE_WAIT_LATE : SL_REDUCE_WAIT_NOW;
    return error;
}

error_t lowering_parse_budget(const char *text, void *out)
{
    int *budget = out;
    error_t error = cli_parse_int("--send-budget", text, budget);
    if (!error && (*budget < 0 || *budget > 9999999))
        error = cli_refuse("--send-budget must be from 0 to 9999999, not %d",
                           *budget);
    return error;
}

static error_t refuse_lookahead(const char *text)
{
    return cli_refuse(
        "--unshard-lookahead takes full, auto, or a number from 1 "
        "up for each rank with commas between, not '%.60s'",
        text);
}

static error_t parse_each(const char *text, lowering *asked)
{
    sl_lookahead *ahead = &asked->options.unshard_lookahead;
    int count = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long number = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (number < 1 || number > SL_MAX_STAGES || errno ||
            count == SL_MAX_RANKS || (*end && *end != ','))
            return refuse_lookahead(text);
        asked->lookahead[count++] = (int)number;
        at = end;
        if (!*at)
            break;
    }
    *ahead = (sl_lookahead){SL_LOOKAHEAD_EACH, asked->lookahead, count};
    return 0;
}

error_t lowering_parse_lookahead(const char *text, void *out)
{
    lowering *asked = out;
    sl_lookahead *ahead = &asked->options.unshard_lookahead;
    if (strcmp(text, "full") == 0)
        *ahead = (sl_lookahead){SL_LOOKAHEAD_FULL, NULL, 0};
    else if (strcmp(text, "auto") == 0)
        *ahead = (sl_lookahead){SL_LOOKAHEAD_AUTO, NULL, 0};
    else
        return parse_each(text, asked);
    return 0;
}

int lowering_check(const char *verb, const lowering *asked)
{
    if (asked->before_2_15 && asked->budget >= 0)
        return cli_say(verb, CLI_WRONG,
                       "--send-budget moves waits, and there are none in "
                       "--for torch-2.11");
    if (asked->before_2_15 && CLI_GIVEN("reduce-wait"))
        return cli_say(verb, CLI_WRONG,
                       "--reduce-wait places waits, and there are none in "
                       "--for torch-2.11");
    return 0;
}

/* ---------------------------------------------------------------- passes -- */

typedef struct pass_list {
    char names[160];
    size_t length;
} pass_list;

static void add(pass_list *list, const char *name)
{
    list->length += (size_t)snprintf(list->names + list->length,
                                     sizeof list->names - list->length, "%s%s",
                                     list->length ? "," : "", name);
}

/* What ends every lowering. Receives are deferred before there are waits: then
 * the pass need not look whether a wait was for one of them. */
static sl_status run(const lowering *asked, pass_list *list, bool adds_waits,
                     const sl_schedule *in, sl_schedule **out)
{
    char budget[32];
    sl_lower_options options = asked->options;
    if (asked->before_2_15)
        options.reduce_wait = SL_REDUCE_WAIT_NONE;
    if (asked->defers)
        add(list, "defer-recv");
    if (adds_waits)
        add(list, "wait-send");
    snprintf(budget, sizeof budget, "send-budget=%d", asked->budget);
    if (asked->budget >= 0)
        add(list, budget);
    return sl_lower(in, list->names, &options, out);
}

/* Of a lowered schedule, what places messages and unshards is there. */
static sl_status refuse_too_late(const lowering *asked)
{
    const char *sharding = CLI_GIVEN("unshard-window", "unshard-lookahead");
    if (CLI_GIVEN("recv") && !asked->defers)
        return sl_fail(SL_EINVAL,
                       "--recv %s places the messages of a schedule "
                       "without any, and this one has them already; "
                       "--recv defer moves its receives",
                       asked->options.recv == SL_RECV_LATE ? "late" : "asap");
    if (sharding)
        return sl_fail(SL_EINVAL,
                       "--%s is for a compute-only schedule, and this one is "
                       "lowered already",
                       sharding);
    return SL_OK;
}

static sl_status convert(const lowering *asked, const sl_extent *extent,
                         const sl_schedule *in, sl_schedule **out)
{
    pass_list list = {{0}, 0};
    CLI_TRY(refuse_too_late(asked));
    if (asked->before_2_15)
        add(&list, "drop-waits");
    if (extent->has_backward && !extent->has_reduce_grad)
        add(&list, "reduce-grad"); /* with their waits */
    else if (!asked->before_2_15 &&
             (!extent->has_reduce_waits || CLI_GIVEN("reduce-wait")))
        add(&list, "wait-reduce");
    return run(asked, &list, !asked->before_2_15 && !extent->has_send_waits, in,
               out);
}

/* Whether any result goes to another rank: where none does, a lowered schedule
 * has no messages either. */
static sl_status crosses_ranks(const sl_schedule *in, bool *out)
{
    sl_placement *placement;
    CLI_TRY(sl_placement_derive(in, &placement));
    *out = false;
    for (int stage = 1; stage < sl_placement_stages(placement); stage++)
        *out |= sl_placement_rank_of(placement, stage) !=
                sl_placement_rank_of(placement, stage - 1);
    sl_placement_destroy(placement);
    return SL_OK;
}

sl_status lowering_run(const lowering *asked, const sl_schedule *in,
                       sl_schedule **out)
{
    sl_extent extent = sl_schedule_extent(in);
    bool begun = extent.has_sharding || extent.has_reduce_grad ||
                 extent.has_send_waits || extent.has_reduce_waits;
    bool lacks_messages = false;
    if (begun && !extent.has_communication)
        CLI_TRY(crosses_ranks(in, &lacks_messages));
    if (extent.has_communication || (begun && !lacks_messages))
        return convert(asked, &extent, in, out);
    pass_list list = {{0}, 0};
    add(&list, "unshard,reduce-grad,send-recv");
    return run(asked, &list, !asked->before_2_15, in, out);
}

sl_status lowering_run_messages(const lowering *asked, const sl_schedule *in,
                                sl_schedule **out)
{
    pass_list list = {{0}, 0};
    add(&list, "send-recv");
    return run(asked, &list, false, in, out);
}

/* SPDX-License-Identifier: MIT
 *
 * Lowering from the command line: options, and which passes they mean. */
#include "lowering.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- options -- */

static error_t parse_recv(const char *text, lowering *asked)
{
    static const char *const words[] = {"asap", "late", "defer"};
    int chosen;
    error_t error = cli_parse_choice("--recv", text, words, 3, &chosen);
    if (error)
        return error;
    asked->recv_given = true;
    asked->defers = chosen == 2;
    asked->options.recv = chosen == 1 ? SL_RECV_LATE : SL_RECV_ASAP;
    return 0;
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

static error_t parse_lookahead(const char *text, lowering *asked)
{
    sl_lookahead *ahead = &asked->options.unshard_lookahead;
    asked->lookahead_given = true;
    if (strcmp(text, "full") == 0)
        *ahead = (sl_lookahead){SL_LOOKAHEAD_FULL, NULL, 0};
    else if (strcmp(text, "auto") == 0)
        *ahead = (sl_lookahead){SL_LOOKAHEAD_AUTO, NULL, 0};
    else
        return parse_each(text, asked);
    return 0;
}

static error_t parse_budget(const char *text, lowering *asked)
{
    error_t error = cli_parse_int("--send-budget", text, &asked->budget);
    if (!error && (asked->budget < 0 || asked->budget > 9999999))
        error = cli_refuse("--send-budget must be from 0 to 9999999, not %d",
                           asked->budget);
    return error;
}

error_t lowering_parse(int key, const char *arg, lowering *asked)
{
    static const char *const targets[] = {"torch-2.15", "torch-2.11"};
    bool late = false;
    int chosen = 0;
    error_t error = 0;
    switch (key) {
    case LOWERING_FOR:
        error = cli_parse_choice("--for", arg, targets, 2, &chosen);
        asked->for_given = true;
        asked->before_2_15 = chosen == 1;
        return error;
    case LOWERING_RECV: return parse_recv(arg, asked);
    case LOWERING_BUDGET: return parse_budget(arg, asked);
    case LOWERING_REDUCE_WAIT:
        error = cli_parse_word("--reduce-wait", arg, "now", "late", &late);
        asked->reduce_wait_given = true;
        asked->options.reduce_wait =
            late ? SL_REDUCE_WAIT_LATE : SL_REDUCE_WAIT_NOW;
        return error;
    case LOWERING_WINDOW:
        asked->window_given = true;
        return cli_parse_size("--unshard-window", arg,
                              &asked->options.unshard_window);
    case LOWERING_LOOKAHEAD: return parse_lookahead(arg, asked);
    default: return ARGP_ERR_UNKNOWN;
    }
}

const char *lowering_given(const lowering *asked)
{
    return asked->for_given           ? "--for"
           : asked->recv_given        ? "--recv"
           : asked->budget >= 0       ? "--send-budget"
           : asked->reduce_wait_given ? "--reduce-wait"
           : asked->window_given      ? "--unshard-window"
           : asked->lookahead_given   ? "--unshard-lookahead"
                                      : NULL;
}

int lowering_check(const char *verb, const lowering *asked)
{
    if (asked->before_2_15 && asked->budget >= 0)
        return cli_say(verb, CLI_WRONG,
                       "--send-budget moves waits, and there are none in "
                       "--for torch-2.11");
    if (asked->before_2_15 && asked->reduce_wait_given)
        return cli_say(verb, CLI_WRONG,
                       "--reduce-wait places waits, and there are none in "
                       "--for torch-2.11");
    return 0;
}

/* ----------------------------------------------------------------- passes -- */

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
    if (asked->recv_given && !asked->defers)
        return sl_fail(SL_EINVAL,
                       "--recv %s places the messages of a schedule "
                       "without any, and this one has them already; "
                       "--recv defer moves its receives",
                       asked->options.recv == SL_RECV_LATE ? "late" : "asap");
    if (asked->window_given || asked->lookahead_given)
        return sl_fail(SL_EINVAL,
                       "--unshard-%s is for a compute-only schedule, "
                       "and this one is lowered already",
                       asked->window_given ? "window" : "lookahead");
    return SL_OK;
}

static sl_status convert(const lowering *asked, const sl_extent *extent,
                         const sl_schedule *in, sl_schedule **out)
{
    pass_list list = {{0}, 0};
    sl_status status = refuse_too_late(asked);
    if (status)
        return status;
    if (asked->before_2_15)
        add(&list, "drop-waits");
    if (extent->has_backward && !extent->has_reduce_grad)
        add(&list, "reduce-grad"); /* with their waits */
    else if (!asked->before_2_15 &&
             (!extent->has_reduce_waits || asked->reduce_wait_given))
        add(&list, "wait-reduce");
    return run(asked, &list, !asked->before_2_15 && !extent->has_send_waits, in,
               out);
}

sl_status lowering_run(const lowering *asked, const sl_schedule *in,
                       sl_schedule **out)
{
    sl_extent extent = sl_schedule_extent(in);
    bool begun = extent.has_communication || extent.has_sharding ||
                 extent.has_reduce_grad || extent.has_send_waits ||
                 extent.has_reduce_waits;
    if (extent.has_communication || (begun && extent.ranks == 1))
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

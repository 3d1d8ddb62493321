/* SPDX-License-Identifier: MIT
 *
 * Passes by name, and the walk that row-by-row passes share. Every pass drops
 * idle cells, so none needs to be run before another. */
#include "schedule/lower/lower.h"
#include "base/arguments.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sl_status copy_without_idle(const sl__row *from, sl__row *to)
{
    to->length = 0;
    sl_status status = sl__row_reserve(to, from->length);
    if (status)
        return status;
    for (size_t step = 0; step < from->length; step++) {
        if (from->actions[step].kind != SL_IDLE)
            to->actions[to->length++] = from->actions[step];
    }
    return SL_OK;
}

sl_status sl__lower_rows(const sl_schedule *in, sl__lower_row_fn lower_row,
                         void *context, sl_schedule **out)
{
    sl_schedule *result;
    sl__row busy = {NULL, 0, 0}; /* one row at a time, without idle cells */
    sl_status status = sl_schedule_create(in->ranks, &result);
    if (status)
        return status;
    for (int rank = 0; !status && rank < in->ranks; rank++) {
        status = copy_without_idle(&in->rows[rank], &busy);
        if (!status)
            status = lower_row(&busy, &result->rows[rank], rank, context);
    }
    free(busy.actions);
    if (status)
        sl_schedule_destroy(result);
    else
        *out = result;
    return status;
}

static sl_status copy_row(const sl__row *from, sl__row *to, int rank,
                          void *context)
{
    (void)rank;
    (void)context;
    return copy_without_idle(from, to);
}

/* drop-idle: the order of a schedule.
 *
 * Requires: nothing.  Ensures: the same actions in the same order, no idle
 * cell.  Invalidates: step numbers. */
sl_status sl_lower_drop_idle(const sl_schedule *in, sl_schedule **out)
{
    SL__NEED(in, out);
    return sl__lower_rows(in, copy_row, NULL, out);
}

/* ---------------------------------------------------------------- names -- */

/* What a pass is run with: the options of all, and the number after `=`. */
typedef struct request {
    const sl_lower_options *options;
    int number;
} request;

typedef sl_status (*pass_fn)(const sl_schedule *in, const request *asked,
                             sl_schedule **out);

static sl_status run_drop_idle(const sl_schedule *in, const request *asked,
                               sl_schedule **out)
{
    (void)asked;
    return sl_lower_drop_idle(in, out);
}

static sl_status run_merge_bw(const sl_schedule *in, const request *asked,
                              sl_schedule **out)
{
    (void)asked;
    return sl_lower_merge_bw(in, out);
}

static sl_status run_delay_w(const sl_schedule *in, const request *asked,
                             sl_schedule **out)
{
    return sl_lower_delay_w(in, asked->number, out);
}

static sl_status run_unshard(const sl_schedule *in, const request *asked,
                             sl_schedule **out)
{
    return sl_lower_unshard(in, asked->options->unshard_window,
                            &asked->options->unshard_lookahead, out);
}

static sl_status run_reduce_grad(const sl_schedule *in, const request *asked,
                                 sl_schedule **out)
{
    return sl_lower_reduce_grad(in, asked->options->reduce_wait, out);
}

static sl_status run_wait_reduce(const sl_schedule *in, const request *asked,
                                 sl_schedule **out)
{
    return sl_lower_wait_reduce(in, asked->options->reduce_wait, out);
}

static sl_status run_send_recv(const sl_schedule *in, const request *asked,
                               sl_schedule **out)
{
    return sl_lower_send_recv(in, asked->options->recv, out);
}

static sl_status run_wait_send(const sl_schedule *in, const request *asked,
                               sl_schedule **out)
{
    (void)asked;
    return sl_lower_wait_send(in, out);
}

static sl_status run_defer_recv(const sl_schedule *in, const request *asked,
                                sl_schedule **out)
{
    (void)asked;
    return sl_lower_defer_recv(in, out);
}

static sl_status run_send_budget(const sl_schedule *in, const request *asked,
                                 sl_schedule **out)
{
    return sl_lower_send_budget(in, asked->number, out);
}

static sl_status run_drop_waits(const sl_schedule *in, const request *asked,
                                sl_schedule **out)
{
    (void)asked;
    return sl_lower_drop_waits(in, out);
}

typedef struct pass {
    const char *name;
    pass_fn run;
    bool takes_number; /* as in send-budget=4 */
} pass;

static const pass known_passes[] = {
    {"drop-idle", run_drop_idle, false},
    {"merge-bw", run_merge_bw, false},
    {"delay-w", run_delay_w, true},
    {"unshard", run_unshard, false},
    {"reduce-grad", run_reduce_grad, false},
    {"wait-reduce", run_wait_reduce, false},
    {"send-recv", run_send_recv, false},
    {"wait-send", run_wait_send, false},
    {"defer-recv", run_defer_recv, false},
    {"send-budget", run_send_budget, true},
    {"drop-waits", run_drop_waits, false},
};
#define PASS_COUNT (sizeof known_passes / sizeof *known_passes)

static sl_status unknown_pass(const char *name, size_t length)
{
    char known[240] = "", quoted[SL__QUOTED_MAX];
    for (size_t i = 0; i < PASS_COUNT; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s%s", i ? ", " : "",
                 known_passes[i].name,
                 known_passes[i].takes_number ? "=N" : "");
    }
    return sl_fail(SL_EINVAL, "unknown pass '%s'; known ones: %s",
                   sl__quoted(name, length, quoted), known);
}

/* The number from 0 to 9999999 that `text` is, all of it; -1 for anything
 * else. */
static int parse_number(const char *text, size_t length)
{
    int number = 0;
    if (length < 1 || length > 7)
        return -1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        number = 10 * number + (text[i] - '0');
    }
    return number;
}

/* Reads a pass, `name` or `name=N`. */
static sl_status read_pass(const char *text, size_t length, const pass **out,
                           int *out_number)
{
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals ? (size_t)(equals - text) : length;
    const pass *found = NULL;
    char quoted[SL__QUOTED_MAX];
    for (size_t i = 0; i < PASS_COUNT && !found; i++) {
        if (strlen(known_passes[i].name) == name_length &&
            memcmp(known_passes[i].name, text, name_length) == 0)
            found = &known_passes[i];
    }
    if (!found)
        return unknown_pass(text, length);
    if (equals && !found->takes_number)
        return sl_fail(SL_EINVAL, "pass '%s': %s takes no number",
                       sl__quoted(text, length, quoted), found->name);
    int number =
        equals ? parse_number(equals + 1, length - name_length - 1) : -1;
    if (found->takes_number && number < 0)
        return sl_fail(SL_EINVAL,
                       "pass '%s': expected a number from 0 to 9999999, as in "
                       "%s=4",
                       sl__quoted(text, length, quoted), found->name);
    *out = found;
    *out_number = number;
    return SL_OK;
}

/* Takes the first pass off a comma-separated list; NULL is the list's end. */
static sl_status next_pass(const char **list, const pass **out, int *out_number)
{
    size_t length = strcspn(*list, ",");
    sl_status status = read_pass(*list, length, out, out_number);
    *list = (*list)[length] ? *list + length + 1 : NULL;
    return status;
}

static sl_status check_names(const char *list)
{
    sl_status status = SL_OK;
    const pass *found;
    int number;
    while (!status && list)
        status = next_pass(&list, &found, &number);
    return status;
}

sl_status sl_lower(const sl_schedule *in, const char *passes,
                   const sl_lower_options *options, sl_schedule **out)
{
    SL__NEED(in, passes, out);
    static const sl_lower_options defaults = SL_LOWER_OPTIONS_INIT;
    request asked = {.options = options ? options : &defaults};
    if (!*passes)
        return sl_lower_drop_idle(in, out);
    const char *list = passes;
    sl_status status = check_names(list);
    sl_schedule *current = NULL; /* what the passes so far made */
    while (!status && list) {
        const pass *found;
        sl_schedule *next = NULL;
        status = next_pass(&list, &found, &asked.number);
        if (!status)
            status = found->run(current ? current : in, &asked, &next);
        sl_schedule_destroy(current);
        current = next;
    }
    if (!status)
        *out = current;
    return status;
}

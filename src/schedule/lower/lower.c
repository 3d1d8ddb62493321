/* SPDX-License-Identifier: MIT
 *
 * Runs passes by name, and has the walk that row-by-row passes share. Every
 * pass drops idle cells, so drop-idle is never needed before another pass. */
#include "schedule/lower/lower.h"
#include "base/arguments.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sl_status copy_without_idle(const sl__row *from, sl__row *to)
{
    to->length = 0;
    SL__TRY(sl__row_reserve(to, from->length));
    for (size_t step = 0; step < from->length; step++) {
        if (from->actions[step].kind != SL_IDLE)
            to->actions[to->length++] = from->actions[step];
    }
    return SL_OK;
}

/* `busy` holds one row at a time, without idle cells. */
static sl_status lower_rank(const sl_schedule *in, int rank,
                            sl__lower_row_fn lower_row, void *context,
                            sl__row *busy, sl_schedule *out)
{
    sl__row *to = &out->rows[rank];
    SL__TRY(copy_without_idle(&in->rows[rank], busy));
    SL__TRY(sl__row_reserve(to, busy->length));
    SL__TRY(lower_row(busy, to, rank, context));
    for (size_t step = 0; step < to->length; step++)
        assert(to->actions[step].kind != SL_IDLE);
    return SL_OK;
}

sl_status sl__lower_rows(const sl_schedule *in, sl__lower_row_fn lower_row,
                         void *context, sl_schedule **out)
{
    sl_schedule *result;
    sl__row busy = {NULL, 0, 0};
    SL__TRY(sl_schedule_create(in->ranks, &result));
    sl_status status = SL_OK;
    for (int rank = 0; !status && rank < in->ranks; rank++)
        status = lower_rank(in, rank, lower_row, context, &busy, result);
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

/* drop-idle: drops idle cells.
 *
 * Requires: nothing.  Ensures: the same actions in the same order, no idle
 * cell.  Invalidates: step numbers. */
sl_status sl_lower_drop_idle(const sl_schedule *in, sl_schedule **out)
{
    SL__NEED(in, out);
    return sl__lower_rows(in, copy_row, NULL, out);
}

/* ---------------------------------------------------------------- names -- */

static sl_status unshard(const sl_schedule *in, const sl_lower_options *options,
                         sl_schedule **out)
{
    return sl_lower_unshard(in, options->unshard_window,
                            &options->unshard_lookahead, out);
}

static sl_status reduce_grad(const sl_schedule *in,
                             const sl_lower_options *options, sl_schedule **out)
{
    return sl_lower_reduce_grad(in, options->reduce_wait, out);
}

static sl_status wait_reduce(const sl_schedule *in,
                             const sl_lower_options *options, sl_schedule **out)
{
    return sl_lower_wait_reduce(in, options->reduce_wait, out);
}

static sl_status send_recv(const sl_schedule *in,
                           const sl_lower_options *options, sl_schedule **out)
{
    return sl_lower_send_recv(in, options->recv, out);
}

/* A pass has one of three signatures. */
typedef struct pass {
    const char *name;
    sl_status (*plain)(const sl_schedule *in, sl_schedule **out);
    /* Takes the number after `=`, as in send-budget=4. */
    sl_status (*numbered)(const sl_schedule *in, int number, sl_schedule **out);
    sl_status (*optioned)(const sl_schedule *in,
                          const sl_lower_options *options, sl_schedule **out);
} pass;

static const pass known_passes[] = {
    {"drop-idle", .plain = sl_lower_drop_idle},
    {"merge-bw", .plain = sl_lower_merge_bw},
    {"delay-w", .numbered = sl_lower_delay_w},
    {"unshard", .optioned = unshard},
    {"reduce-grad", .optioned = reduce_grad},
    {"wait-reduce", .optioned = wait_reduce},
    {"send-recv", .optioned = send_recv},
    {"wait-send", .plain = sl_lower_wait_send},
    {"defer-recv", .plain = sl_lower_defer_recv},
    {"send-budget", .numbered = sl_lower_send_budget},
    {"drop-waits", .plain = sl_lower_drop_waits},
};
#define PASS_COUNT (sizeof known_passes / sizeof *known_passes)

static sl_status unknown_pass(const char *name, size_t length)
{
    char known[240] = "", quoted[SL__QUOTED_MAX];
    for (size_t i = 0; i < PASS_COUNT; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s%s", i ? ", " : "",
                 known_passes[i].name, known_passes[i].numbered ? "=N" : "");
    }
    return sl_fail(SL_EINVAL, "unknown pass '%s'; known ones: %s",
                   sl__quoted(name, length, quoted), known);
}

/* Parses all of `text` as a number from 0 to 9999999; -1 for anything else. */
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
    if (equals && !found->numbered)
        return sl_fail(SL_EINVAL, "pass '%s': %s takes no number",
                       sl__quoted(text, length, quoted), found->name);
    int number =
        equals ? parse_number(equals + 1, length - name_length - 1) : -1;
    if (found->numbered && number < 0)
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
    SL__TRY(read_pass(*list, length, out, out_number));
    *list = (*list)[length] ? *list + length + 1 : NULL;
    return SL_OK;
}

static sl_status check_names(const char *list)
{
    const pass *found;
    int number;
    while (list)
        SL__TRY(next_pass(&list, &found, &number));
    return SL_OK;
}

static sl_status run_pass(const pass *own, const sl_schedule *in, int number,
                          const sl_lower_options *options, sl_schedule **out)
{
    if (own->numbered)
        return own->numbered(in, number, out);
    if (own->optioned)
        return own->optioned(in, options, out);
    return own->plain(in, out);
}

sl_status sl_lower(const sl_schedule *in, const char *passes,
                   const sl_lower_options *options, sl_schedule **out)
{
    SL__NEED(in, passes, out);
    static const sl_lower_options defaults = SL_LOWER_OPTIONS_INIT;
    if (!*passes)
        return sl_lower_drop_idle(in, out);
    SL__TRY(check_names(passes));
    sl_schedule *current = NULL; /* the result of the passes so far */
    sl_status status = SL_OK;
    while (!status && passes) {
        const pass *found;
        int number;
        sl_schedule *next = NULL;
        status = next_pass(&passes, &found, &number);
        assert(!status);
        status = run_pass(found, current ? current : in, number,
                          options ? options : &defaults, &next);
        sl_schedule_destroy(current);
        current = next;
    }
    if (!status)
        *out = current;
    return status;
}

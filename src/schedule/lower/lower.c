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
            status = lower_row(&busy, &result->rows[rank], context);
    }
    free(busy.actions);
    if (status)
        sl_schedule_destroy(result);
    else
        *out = result;
    return status;
}

static sl_status copy_row(const sl__row *from, sl__row *to, void *context)
{
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

typedef sl_status (*pass_fn)(const sl_schedule *in,
                             const sl_lower_options *options,
                             sl_schedule **out);

static sl_status run_drop_idle(const sl_schedule *in,
                               const sl_lower_options *options,
                               sl_schedule **out)
{
    (void)options;
    return sl_lower_drop_idle(in, out);
}

static sl_status run_merge_bw(const sl_schedule *in,
                              const sl_lower_options *options,
                              sl_schedule **out)
{
    (void)options;
    return sl_lower_merge_bw(in, out);
}

static sl_status run_unshard(const sl_schedule *in,
                             const sl_lower_options *options, sl_schedule **out)
{
    return sl_lower_unshard(in, options->unshard_window, out);
}

static sl_status run_reduce_grad(const sl_schedule *in,
                                 const sl_lower_options *options,
                                 sl_schedule **out)
{
    (void)options;
    return sl_lower_reduce_grad(in, out);
}

static sl_status run_send_recv(const sl_schedule *in,
                               const sl_lower_options *options,
                               sl_schedule **out)
{
    return sl_lower_send_recv(in, options->recv, out);
}

static const struct {
    const char *name;
    pass_fn run;
} known_passes[] = {
    {"drop-idle", run_drop_idle}, {"merge-bw", run_merge_bw},
    {"unshard", run_unshard},     {"reduce-grad", run_reduce_grad},
    {"send-recv", run_send_recv},
};
#define PASS_COUNT (sizeof known_passes / sizeof *known_passes)

static sl_status unknown_pass(const char *name, size_t length)
{
    char known[160] = "", quoted[SL__QUOTED_MAX];
    for (size_t i = 0; i < PASS_COUNT; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                 known_passes[i].name);
    }
    return sl_fail(SL_EINVAL, "unknown pass '%s'; known ones: %s",
                   sl__quoted(name, length, quoted), known);
}

static sl_status find_pass(const char *name, size_t length, pass_fn *out)
{
    for (size_t i = 0; i < PASS_COUNT; i++) {
        if (strlen(known_passes[i].name) == length &&
            memcmp(known_passes[i].name, name, length) == 0) {
            *out = known_passes[i].run;
            return SL_OK;
        }
    }
    return unknown_pass(name, length);
}

/* Takes the first name off a comma-separated list; NULL is the list's end. */
static sl_status next_pass(const char **list, pass_fn *out)
{
    size_t length = strcspn(*list, ",");
    sl_status status = find_pass(*list, length, out);
    *list = (*list)[length] ? *list + length + 1 : NULL;
    return status;
}

static sl_status check_names(const char *list)
{
    sl_status status = SL_OK;
    pass_fn run;
    while (!status && list)
        status = next_pass(&list, &run);
    return status;
}

sl_status sl_lower(const sl_schedule *in, const char *passes,
                   const sl_lower_options *options, sl_schedule **out)
{
    SL__NEED(in, passes, out);
    static const sl_lower_options defaults = SL_LOWER_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    if (!*passes)
        return sl_lower_drop_idle(in, out);
    const char *list = passes;
    sl_status status = check_names(list);
    sl_schedule *current = NULL; /* what the passes so far made */
    while (!status && list) {
        pass_fn run;
        sl_schedule *next = NULL;
        status = next_pass(&list, &run);
        if (!status)
            status = run(current ? current : in, options, &next);
        sl_schedule_destroy(current);
        current = next;
    }
    if (!status)
        *out = current;
    return status;
}

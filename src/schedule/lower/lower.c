/* SPDX-License-Identifier: MIT
 *
 * Passes by name, and the walk that row-by-row passes share. */
#include "schedule/lower/lower.h"

#include <string.h>

sl_status sl__lower_rows(const sl_schedule *in, sl__lower_row_fn lower_row,
                         void *context, sl_schedule **out)
{
    sl_schedule *order, *result = NULL;
    sl_status status = sl_lower_drop_idle(in, &order);
    if (status)
        return status;
    status = sl_schedule_create(in->ranks, &result);
    for (int rank = 0; !status && rank < in->ranks; rank++)
        status = lower_row(&order->rows[rank], &result->rows[rank], context);
    sl_schedule_destroy(order);
    if (status) {
        sl_schedule_destroy(result);
        return status;
    }
    *out = result;
    return SL_OK;
}

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
} passes[] = {
    {"drop-idle", run_drop_idle}, {"merge-bw", run_merge_bw},
    {"unshard", run_unshard},     {"reduce-grad", run_reduce_grad},
    {"send-recv", run_send_recv},
};

static sl_status find_pass(const char *name, size_t length, pass_fn *out)
{
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        if (strlen(passes[i].name) == length &&
            memcmp(passes[i].name, name, length) == 0) {
            *out = passes[i].run;
            return SL_OK;
        }
    }
    return sl_fail(SL_EINVAL,
                   "unknown pass '%.*s'; known ones: drop-idle, merge-bw, "
                   "unshard, reduce-grad, send-recv",
                   length > 40 ? 40 : (int)length, name);
}

/* Splits off the first name of a comma-separated list. */
static size_t name_length(const char *list)
{
    return strcspn(list, ",");
}

static sl_status check_names(const char *list)
{
    sl_status status = SL_OK;
    pass_fn run;
    while (!status && *list) {
        size_t length = name_length(list);
        status = find_pass(list, length, &run);
        list += length + (list[length] == ',');
    }
    return status;
}

sl_status sl_lower(const sl_schedule *in, const char *list,
                   const sl_lower_options *options, sl_schedule **out)
{
    static const sl_lower_options defaults = SL_LOWER_OPTIONS_INIT;
    if (!options)
        options = &defaults;
    sl_schedule *current;
    sl_status status = check_names(list);
    if (!status)
        status = sl_lower_drop_idle(in, &current);
    if (status)
        return status;
    while (*list) {
        size_t length = name_length(list);
        pass_fn run;
        sl_schedule *next;
        status = find_pass(list, length, &run);
        if (!status)
            status = run(current, options, &next);
        sl_schedule_destroy(current);
        if (status)
            return status;
        current = next;
        list += length + (list[length] == ',');
    }
    *out = current;
    return SL_OK;
}

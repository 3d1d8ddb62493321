/* SPDX-License-Identifier: MIT
 *
 * Any schedule can be given to any pass; a sound one stays sound. */
#include "fuzz.h"

static bool is_sound(const sl_schedule *schedule)
{
    sl_report *report;
    must(!sl_check(schedule, NULL, &report));
    bool sound = sl_report_is_sound(report);
    sl_report_destroy(report);
    return sound;
}

static void lower(const sl_schedule *schedule, bool sound, const char *passes,
                  const sl_lower_options *options)
{
    sl_schedule *lowered;
    if (sl_lower(schedule, passes, options, &lowered)) {
        must(*sl_error_text());
        return;
    }
    must(!sound || is_sound(lowered));
    sl_schedule_destroy(lowered);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const passes[] = {
        "drop-idle",
        "merge-bw",
        "unshard",
        "reduce-grad",
        "wait-reduce",
        "send-recv",
        "wait-send",
        "defer-recv",
        "delay-w=0",
        "delay-w=2,unshard,reduce-grad,send-recv,wait-send",
        "send-budget=0",
        "send-budget=2",
        "drop-waits",
        SL_LOWER_DEFAULT_PASSES,
        "merge-bw,send-recv",
        SL_LOWER_DEFAULT_PASSES ",send-budget=1",
        "send-recv,defer-recv,wait-send,send-budget=1",
        "send-recv,wait-send,send-budget=1,defer-recv"};
    sl_schedule *schedule;
    if (size < 1 || sl_schedule_read_csv((const char *)data, size, &schedule))
        return 0;
    bool sound = is_sound(schedule);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        sl_lower_options options = SL_LOWER_OPTIONS_INIT;
        options.unshard_window = 1 + (int)(size % 5);
        options.recv = size % 2 ? SL_RECV_LATE : SL_RECV_ASAP;
        options.unshard_lookahead.kind =
            size % 3 ? SL_LOOKAHEAD_AUTO : SL_LOOKAHEAD_FULL;
        options.reduce_wait = (sl_reduce_wait)(size % 3);
        lower(schedule, sound, passes[i], &options);
    }
    sl_schedule_destroy(schedule);
    return 0;
}

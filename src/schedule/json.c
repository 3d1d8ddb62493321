/* SPDX-License-Identifier: MIT
 *
 * Writes a schedule as JSON, for programs that do not want to parse CSV. */
#include "schedule/schedule.h"
#include "base/arguments.h"
#include "base/writer.h"

static void put_row(sl__writer *writer, const sl__row *row)
{
    sl__putc(writer, '[');
    for (size_t step = 0; step < row->length; step++) {
        char text[SL_ACTION_TEXT_MAX];
        if (step)
            sl__puts(writer, ", ");
        if (row->actions[step].kind == SL_IDLE) {
            sl__puts(writer, "null");
        } else {
            sl_action_print(&row->actions[step], text);
            sl__put_json_string(writer, text);
        }
    }
    sl__putc(writer, ']');
}

static void put_placement(sl__writer *writer, const sl_schedule *schedule)
{
    sl_placement *placement;
    sl_status status = sl_placement_derive(schedule, &placement);
    if (status == SL_ENOMEM)
        writer->status = status;
    if (status) {
        sl__puts(writer, "null");
        return;
    }
    sl__putc(writer, '[');
    for (int stage = 0; stage < sl_placement_stages(placement); stage++)
        sl__printf(writer, "%s%d", stage ? ", " : "",
                   sl_placement_rank_of(placement, stage));
    sl__putc(writer, ']');
    sl_placement_destroy(placement);
}

sl_status sl_schedule_write_json(const sl_schedule *schedule, sl_write_fn write,
                                 void *context)
{
    SL__NEED(schedule, write);
    sl_extent extent = sl_schedule_extent(schedule);
    sl__writer writer;
    sl__writer_start(&writer, write, context);
    sl__printf(&writer,
               "{\n  \"ranks\": %d,\n  \"stages\": %d,\n  \"microbatches\": %d,"
               "\n  \"placement\": ",
               extent.ranks, extent.stages, extent.microbatches);
    put_placement(&writer, schedule);
    sl__puts(&writer, ",\n  \"actions\": [");
    for (int rank = 0; rank < schedule->ranks && !writer.status; rank++) {
        sl__puts(&writer, rank ? ",\n    " : "\n    ");
        put_row(&writer, &schedule->rows[rank]);
    }
    sl__puts(&writer, "\n  ]\n}\n");
    return sl__writer_finish(&writer);
}

/* SPDX-License-Identifier: MIT
 *
 * The text grid: time down, ranks across, with an arrow at one step. A column
 * is as wide as its widest cell; no line ends in blanks. */
#include "schedule/schedule.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "base/writer.h"

#include <stdio.h>
#include <string.h>

static size_t digits_of(size_t number)
{
    size_t digits = 1;
    while (number /= 10)
        digits++;
    return digits;
}

static void compute_widths(const sl_schedule *schedule, size_t first,
                           size_t last, size_t *widths)
{
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const sl__row *row = &schedule->rows[rank];
        char text[SL_ACTION_TEXT_MAX];
        widths[rank] = strlen("Rank ") + digits_of((size_t)rank);
        for (size_t step = first; step <= last && step < row->length; step++) {
            size_t length = sl__action_format(&row->actions[step], text);
            if (length > widths[rank])
                widths[rank] = length;
        }
    }
}

static void write_header(sl__writer *writer, const sl_schedule *schedule,
                         size_t label, const size_t *widths)
{
    sl__put_spaces(writer, label + strlen("Step : ") - 1);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        size_t length = strlen("Rank ") + digits_of((size_t)rank);
        sl__printf(writer, " Rank %d", rank);
        if (rank + 1 < schedule->ranks)
            sl__put_spaces(writer, widths[rank] - length);
    }
    sl__putc(writer, '\n');
}

static void write_step(sl__writer *writer, const sl_schedule *schedule,
                       size_t step, size_t label, const size_t *widths)
{
    sl__printf(writer, "Step %0*zu:", (int)label, step);
    /* Blanks not yet written, so that no line ends in them. */
    size_t owed = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const sl__row *row = &schedule->rows[rank];
        char text[SL_ACTION_TEXT_MAX];
        size_t length = 0;
        if (step < row->length)
            length = sl__action_format(&row->actions[step], text);
        owed++;
        if (length) {
            sl__put_spaces(writer, owed);
            sl__put(writer, text, length);
            owed = 0;
        }
        owed += widths[rank] - length;
    }
}

sl_status sl_schedule_write_grid(const sl_schedule *schedule, size_t first,
                                 size_t last, size_t marked, sl_write_fn write,
                                 void *context)
{
    SL__NEED(schedule, write);
    size_t *widths;
    SL__TRY(sl__alloc((size_t)schedule->ranks, sizeof *widths, &widths));
    size_t steps = sl_schedule_extent(schedule).longest;
    if (last >= steps)
        last = steps ? steps - 1 : 0;
    size_t label = digits_of(steps ? steps - 1 : 0);
    compute_widths(schedule, first, last, widths);

    sl__writer writer;
    sl__writer_start(&writer, write, context);
    write_header(&writer, schedule, label, widths);
    for (size_t step = first; step <= last && step < steps; step++) {
        write_step(&writer, schedule, step, label, widths);
        sl__puts(&writer, step == marked ? " <-- ERROR HERE\n" : "\n");
        if (writer.status)
            break;
    }
    free(widths);
    return sl__writer_finish(&writer);
}

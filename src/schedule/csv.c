/* SPDX-License-Identifier: MIT
 *
 * CSV in and out, as PyTorch's pipelining writes it: one line per rank, no
 * header, cells between commas, a blank cell is idle. Lines end in LF (what we
 * write) or CRLF (what Python's csv module writes). A cell may be quoted, as
 * Python does for a row of one blank cell. */
#include "schedule/schedule.h"
#include "schedule/action.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"
#include "base/writer.h"

#include <string.h>

static sl_status bad_cell(int row, size_t column, const char *cell,
                          size_t length, const char *expected)
{
    char text[SL__QUOTED_MAX];
    return sl_fail(SL_EPARSE,
                   "row %d, column %zu (rank %d, step %zu): '%s' is not an "
                   "action: expected %s",
                   row + 1, column + 1, row, column,
                   sl__quoted(cell, length, text), expected);
}

static void unquote(const char **cell, size_t *length)
{
    if (*length >= 2 && (*cell)[0] == '"' && (*cell)[*length - 1] == '"') {
        *cell += 1;
        *length -= 2;
    }
}

/* Reads one line, without its end, into a rank's row. */
static sl_status read_line(const char *line, const char *end, int rank,
                           sl__row *row)
{
    if (line == end)
        return SL_OK;
    for (const char *cell = line;; cell++) {
        const char *comma = memchr(cell, ',', (size_t)(end - cell));
        const char *stop = comma ? comma : end;
        const char *text = cell;
        size_t length = (size_t)(stop - cell);
        unquote(&text, &length);
        sl_action action;
        const char *expected = sl__action_read(text, length, &action);
        if (expected)
            return bad_cell(rank, row->length, text, length, expected);
        SL__TRY(sl__row_append(row, action));
        if (!comma)
            return SL_OK;
        cell = comma;
    }
}

static int count_lines(const char *text, size_t length)
{
    int lines = 0;
    const char *end = text + length;
    for (const char *at = text; at < end && lines <= SL_MAX_RANKS; lines++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline ? newline + 1 : end;
    }
    return lines;
}

/* Reads as many lines as the schedule has ranks. */
static sl_status read_lines(const char *text, size_t length,
                            sl_schedule *schedule)
{
    const char *end = text + length;
    const char *at = text;
    size_t actions = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        const char *line_end = stop;
        if (line_end > at && line_end[-1] == '\r')
            line_end--;
        sl__row *row = &schedule->rows[rank];
        SL__TRY(read_line(at, line_end, rank, row));
        for (size_t step = 0; step < row->length; step++)
            actions += row->actions[step].kind != SL_IDLE;
        at = newline ? newline + 1 : end;
    }
    if (at < end)
        return sl_fail(SL_EPARSE,
                       "the schedule has more than %d lines: expected one per "
                       "rank",
                       SL_MAX_RANKS);
    if (actions == 0)
        return sl_fail(SL_EPARSE, "the schedule has no actions: expected one "
                                  "line of cells like 0F0,0B0 per rank");
    return SL_OK;
}

sl_status sl_schedule_read_csv(const char *text, size_t length,
                               sl_schedule **out)
{
    SL__NEED(out);
    if (length)
        SL__NEED(text);
    else
        text = "";
    int ranks = count_lines(text, length);
    if (ranks == 0)
        return sl_fail(SL_EPARSE, "the schedule is empty: expected one line of "
                                  "cells like 0F0,0B0 per rank");
    /* An error in a cell says more than that there are too many lines. */
    sl_schedule *schedule;
    SL__TRY(sl_schedule_create(ranks < SL_MAX_RANKS ? ranks : SL_MAX_RANKS,
                               &schedule));
    sl_status status = read_lines(text, length, schedule);
    if (status)
        sl_schedule_destroy(schedule);
    else
        *out = schedule;
    return status;
}

sl_status sl_schedule_write_csv(const sl_schedule *schedule, sl_write_fn write,
                                void *context)
{
    SL__NEED(schedule, write);
    sl__writer writer;
    sl__writer_start(&writer, write, context);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const sl__row *row = &schedule->rows[rank];
        for (size_t step = 0; step < row->length; step++) {
            char text[SL_ACTION_TEXT_MAX];
            size_t length = 0;
            if (step)
                text[length++] = ',';
            length += sl__action_format(&row->actions[step], text + length);
            sl__put(&writer, text, length);
        }
        /* Quoted, because a single blank cell would read back as an empty
         * row. */
        if (row->length == 1 && row->actions[0].kind == SL_IDLE)
            sl__puts(&writer, "\"\"");
        sl__putc(&writer, '\n');
        if (writer.status)
            break;
    }
    return sl__writer_finish(&writer);
}

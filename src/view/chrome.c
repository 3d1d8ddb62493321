/* SPDX-License-Identifier: MIT
 *
 * Events, names and tracks of a Chrome trace. */
#include "view/chrome.h"

#include "base/memory.h"

#include <assert.h>
#include <stdio.h>

void sl__chrome_open(sl__chrome *trace, const char *phase, int rank, int track)
{
    sl__puts(&trace->writer, trace->some ? ",\n" : "\n");
    trace->some = true;
    sl__printf(&trace->writer, "{\"ph\": \"%s\", \"pid\": %d", phase, rank);
    if (track >= 0)
        sl__printf(&trace->writer, ", \"tid\": %d", track);
}

static void put_name(sl__chrome *trace, const char *kind, int rank, int track,
                     const char *name)
{
    sl__chrome_open(trace, "M", rank, track);
    sl__printf(&trace->writer,
               ", \"name\": \"%s\", \"args\": {\"name\": \"%s\"}}", kind, name);
}

void sl__chrome_begin_rank(sl__chrome *trace, int rank, const char *main)
{
    char name[32];
    trace->lane_count = 0;
    snprintf(name, sizeof name, "rank %d", rank);
    put_name(trace, "process_name", rank, 0, name);
    put_name(trace, "thread_name", rank, 0, main);
    sl__chrome_open(trace, "M", rank, 0);
    sl__printf(&trace->writer,
               ", \"name\": \"process_sort_index\", \"args\": "
               "{\"sort_index\": %d}}",
               rank);
}

void sl__chrome_end_rank(sl__chrome *trace, int rank, const char *messages)
{
    for (size_t lane = 1; lane <= trace->lane_count; lane++)
        put_name(trace, "thread_name", rank, (int)lane, messages);
}

int sl__chrome_lane(sl__chrome *trace, double start, double end)
{
    size_t lane = 0;
    assert(start <= end);
    while (lane < trace->lane_count && trace->lanes[lane] > start)
        lane++;
    if (lane == trace->lane_count) {
        sl_status status = sl__grow(&trace->lanes, &trace->lane_capacity,
                                    lane + 1, sizeof *trace->lanes);
        if (status) {
            trace->writer.status = status;
            return 1;
        }
        trace->lane_count++;
    }
    trace->lanes[lane] = end;
    return (int)lane + 1;
}

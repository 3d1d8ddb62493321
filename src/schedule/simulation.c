/* SPDX-License-Identifier: MIT
 *
 * What a simulation found, to read and as JSON. */
#include "schedule/simulation.h"
#include "schedule/schedule.h"
#include "base/memory.h"
#include "base/writer.h"

#include <assert.h>

void sl_simulation_destroy(sl_simulation *simulation)
{
    if (!simulation)
        return;
    free(simulation->first);
    free(simulation->start);
    free(simulation->end);
    free(simulation->bytes);
    free(simulation->busy);
    free(simulation->peak);
    free(simulation->path);
    free(simulation);
}

double sl_simulation_makespan(const sl_simulation *simulation)
{
    return simulation->makespan;
}

sl_reading sl_simulation_reading(const sl_simulation *simulation)
{
    return simulation->reading;
}

double sl_simulation_bubble(const sl_simulation *simulation)
{
    double busy = 0;
    if (simulation->makespan <= 0)
        return 0;
    for (int rank = 0; rank < simulation->ranks; rank++)
        busy += simulation->busy[rank];
    return 1 - busy / (simulation->ranks * simulation->makespan);
}

static size_t node_of(const sl_simulation *simulation, int rank, size_t step)
{
    assert(rank >= 0 && rank < simulation->ranks);
    size_t node = simulation->first[rank] + step;
    assert(node < simulation->first[rank + 1]);
    return node;
}

sl_rank_usage sl_simulation_rank(const sl_simulation *simulation, int rank)
{
    assert(rank >= 0 && rank < simulation->ranks);
    double busy = simulation->busy[rank];
    return (sl_rank_usage){busy, simulation->makespan - busy,
                           simulation->peak[rank]};
}

sl_interval sl_simulation_action(const sl_simulation *simulation, int rank,
                                 size_t step)
{
    size_t node = node_of(simulation, rank, step);
    return (sl_interval){simulation->start[node], simulation->end[node]};
}

sl_held_bytes sl_simulation_bytes(const sl_simulation *simulation, int rank,
                                  size_t step)
{
    return simulation->bytes[node_of(simulation, rank, step)];
}

const sl_place *sl_simulation_critical_path(const sl_simulation *simulation,
                                            size_t *count)
{
    *count = simulation->path_count;
    return simulation->path;
}

static void put_actions(sl__writer *writer, const sl_simulation *simulation,
                        const sl__row *row, int rank)
{
    bool some = false;
    sl__puts(writer, ", \"actions\": [");
    for (size_t step = 0; step < row->length; step++) {
        char text[SL_ACTION_TEXT_MAX];
        if (row->actions[step].kind == SL_IDLE)
            continue;
        sl_interval when = sl_simulation_action(simulation, rank, step);
        sl_action_print(&row->actions[step], text);
        sl__puts(writer, some ? ", [" : "[");
        some = true;
        sl__put_json_string(writer, text);
        sl__puts(writer, ", ");
        sl__put_number(writer, when.start);
        sl__puts(writer, ", ");
        sl__put_number(writer, when.end);
        sl__putc(writer, ']');
    }
    sl__putc(writer, ']');
}

static void put_rank(sl__writer *writer, const sl_simulation *simulation,
                     const sl__row *row, int rank, bool actions)
{
    sl_rank_usage usage = sl_simulation_rank(simulation, rank);
    sl__puts(writer, "{\"busy\": ");
    sl__put_number(writer, usage.busy);
    sl__puts(writer, ", \"idle\": ");
    sl__put_number(writer, usage.idle);
    sl__puts(writer, ", \"peak_bytes\": ");
    sl__put_integer(writer, usage.peak_bytes);
    if (actions)
        put_actions(writer, simulation, row, rank);
    sl__putc(writer, '}');
}

static void put_path(sl__writer *writer, const sl_simulation *simulation,
                     const sl_schedule *schedule)
{
    sl__putc(writer, '[');
    for (size_t i = 0; i < simulation->path_count; i++) {
        const sl_place *at = &simulation->path[i];
        char text[SL_ACTION_TEXT_MAX];
        sl_action_print(&schedule->rows[at->rank].actions[at->step], text);
        sl__puts(writer, i ? ", " : "");
        sl__printf(writer, "{\"rank\": %d, \"step\": %d, \"action\": \"%s\"}",
                   at->rank, at->step, text);
    }
    sl__putc(writer, ']');
}

sl_status sl_simulation_write_json(const sl_simulation *simulation,
                                   const sl_schedule *schedule, size_t steps,
                                   bool actions, sl_write_fn write,
                                   void *context)
{
    sl__writer writer;
    sl__writer_start(&writer, write, context);
    sl__puts(&writer, "{\n  \"makespan\": ");
    sl__put_number(&writer, simulation->makespan);
    sl__puts(&writer, ",\n  \"bubble\": ");
    sl__put_number(&writer, sl_simulation_bubble(simulation));
    if (steps)
        sl__printf(&writer, ",\n  \"steps\": %zu", steps);
    sl__printf(&writer, ",\n  \"comm\": \"%s\",\n  \"ranks\": [",
               sl_reading_text(simulation->reading));
    for (int rank = 0; rank < simulation->ranks && !writer.status; rank++) {
        sl__puts(&writer, rank ? ",\n    " : "\n    ");
        put_rank(&writer, simulation, &schedule->rows[rank], rank, actions);
    }
    sl__puts(&writer, "\n  ],\n  \"critical_path\": ");
    put_path(&writer, simulation, schedule);
    sl__puts(&writer, "\n}\n");
    return sl__writer_finish(&writer);
}

/* SPDX-License-Identifier: MIT
 *
 * Results of a simulation: access functions and JSON. */
#include "schedule/simulation.h"
#include "schedule/schedule.h"
#include "base/arguments.h"
#include "base/try.h"
#include "base/writer.h"

#include <stdlib.h>

void sl_simulation_destroy(sl_simulation *simulation)
{
    if (!simulation)
        return;
    sl__arena_clear(&simulation->memory);
    free(simulation);
}

double sl_simulation_makespan(const sl_simulation *simulation)
{
    return simulation ? simulation->makespan : 0;
}

sl_reading sl_simulation_reading(const sl_simulation *simulation)
{
    return simulation ? simulation->reading : SL_ASYNC;
}

double sl_simulation_bubble(const sl_simulation *simulation)
{
    double busy = 0;
    if (!simulation || simulation->makespan <= 0)
        return 0;
    for (int rank = 0; rank < simulation->ranks; rank++)
        busy += simulation->busy[rank];
    return 1 - busy / (simulation->ranks * simulation->makespan);
}

static bool has_rank(const sl_simulation *simulation, int rank)
{
    return simulation && rank >= 0 && rank < simulation->ranks;
}

/* The node of an action; false where there is no such action. */
static bool find_node(const sl_simulation *simulation, int rank, size_t step,
                      size_t *out)
{
    if (!has_rank(simulation, rank))
        return false;
    const uint32_t *first = &simulation->first[rank];
    *out = *first + step;
    return step < first[1] - first[0];
}

sl_rank_usage sl_simulation_rank(const sl_simulation *simulation, int rank)
{
    if (!has_rank(simulation, rank))
        return (sl_rank_usage){0};
    double busy = simulation->busy[rank];
    return (sl_rank_usage){busy, simulation->makespan - busy,
                           simulation->peak[rank], simulation->slots[rank]};
}

sl_interval sl_simulation_action(const sl_simulation *simulation, int rank,
                                 size_t step)
{
    size_t node;
    if (!find_node(simulation, rank, step, &node))
        return (sl_interval){0};
    return (sl_interval){simulation->start[node], simulation->end[node]};
}

sl_held_bytes sl_simulation_bytes(const sl_simulation *simulation, int rank,
                                  size_t step)
{
    size_t node;
    if (!find_node(simulation, rank, step, &node))
        return (sl_held_bytes){0};
    return simulation->bytes[node];
}

const sl_place *sl_simulation_critical_path(const sl_simulation *simulation,
                                            size_t *count)
{
    if (count)
        *count = simulation ? simulation->path_count : 0;
    return simulation ? simulation->path : NULL;
}

sl_status sl__check_simulated(const sl_simulation *simulation,
                              const sl_schedule *schedule)
{
    bool same = simulation->ranks == schedule->ranks;
    for (int rank = 0; rank < schedule->ranks && same; rank++)
        same = schedule->rows[rank].length ==
               simulation->first[rank + 1] - simulation->first[rank];
    return same ? SL_OK
                : sl_fail(SL_EINVAL, "the simulation is of another schedule");
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
    sl__printf(writer, ", \"activation_slots\": %d", usage.activation_slots);
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
    SL__NEED(simulation, schedule, write);
    sl__writer writer;
    SL__TRY(sl__check_simulated(simulation, schedule));
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

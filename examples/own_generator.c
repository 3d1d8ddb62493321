/* SPDX-License-Identifier: MIT
 *
 * A schedule of your own: registered by name, then generated, lowered and
 * checked like the built-in ones. This one runs each microbatch forward and
 * backward through all ranks before the next: no memory, all bubble. */
#include <sluice/sluice.h>

#include <stdio.h>

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    for (int rank = 0; rank < sizes->ranks; rank++) {
        for (int mb = 0; mb < sizes->microbatches; mb++) {
            sl_status status = sl_schedule_append(
                out, rank, sl_action_make(SL_FORWARD, rank, mb));
            if (!status)
                status = sl_schedule_append(
                    out, rank, sl_action_make(SL_BACKWARD, rank, mb));
            if (status)
                return status;
        }
    }
    return SL_OK;
}

static sl_status admit(const sl_sizes *sizes)
{
    if (sizes->stages_per_rank == 1)
        return SL_OK;
    return sl_fail(SL_EINVAL, "OneByOne runs 1 stage per rank, not %d",
                   sizes->stages_per_rank);
}

int main(void)
{
    static const sl_generator one_by_one = {
        .name = "OneByOne",
        .summary = "one microbatch at a time",
        .placement = SL_PLACEMENT_LOOP,
        .default_stages_per_rank = 1,
        .admit = admit,
        .generate = generate,
    };
    sl_sizes sizes = {.ranks = 4, .stages_per_rank = 1, .microbatches = 8};
    sl_schedule *order, *lowered;
    sl_report *report;
    sl_simulation *simulation;

    if (sl_generator_register(&one_by_one) ||
        sl_generate("onebyone", &sizes, &order) ||
        sl_lower(order, SL_LOWER_DEFAULT_PASSES, NULL, &lowered) ||
        sl_check(lowered, NULL, &report) ||
        sl_simulate(lowered, NULL, SL_ASYNC, &simulation)) {
        fprintf(stderr, "%s\n", sl_error_text());
        return 1;
    }
    bool sound = sl_report_is_sound(report);
    printf("%s, bubble %.2f with %lld microbatch in flight\n",
           sound ? "sound" : "unsound", sl_simulation_bubble(simulation),
           (long long)sl_simulation_rank(simulation, 0).peak_bytes);
    sl_simulation_destroy(simulation);
    sl_report_destroy(report);
    sl_schedule_destroy(lowered);
    sl_schedule_destroy(order);
    return sound ? 0 : 1;
}

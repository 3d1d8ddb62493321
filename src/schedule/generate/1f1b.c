/* SPDX-License-Identifier: MIT
 *
 * 1F1B: after a warm-up of one forward per hop to the last rank, one forward
 * and one backward alternate, so a rank holds at most one microbatch more than
 * there are ranks after it. Fewer microbatches than ranks are supported: there
 * is then only the warm-up. */
#include "schedule/generate/generate.h"

static sl_status admit(const sl_sizes *sizes)
{
    return sl__admit_stages_per_rank("1F1B", sizes, 1);
}

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    int hops_to_last = sizes->ranks - 1 - rank;
    int microbatches = sizes->microbatches;
    int warmup = hops_to_last < microbatches ? hops_to_last : microbatches;
    int forward = 0, backward = 0;
    sl__emit_idle(row, rank);
    while (forward < warmup)
        sl__emit_cell(row, SL_FORWARD, rank, forward++);
    sl__emit_idle(row, 2 * hops_to_last);
    while (forward < microbatches) {
        sl__emit_cell(row, SL_FORWARD, rank, forward++);
        sl__emit_cell(row, SL_BACKWARD, rank, backward++);
    }
    while (backward < microbatches) {
        sl__emit_idle(row, 1);
        sl__emit_cell(row, SL_BACKWARD, rank, backward++);
    }
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    return sl__generate_ranks(sizes, out, generate_rank);
}

const sl_generator sl__1f1b = {
    .name = "1F1B",
    .short_name = "1f1b",
    .summary = "one forward, one backward in steady state; 1 stage per rank",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .admit = admit,
    .generate = generate,
};

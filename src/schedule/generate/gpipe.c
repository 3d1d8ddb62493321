/* SPDX-License-Identifier: MIT
 *
 * GPipe: all forwards, then all backwards. */
#include "schedule/generate/generate.h"

static sl_status admit(const sl_sizes *sizes)
{
    return sl__admit_stages_per_rank("GPipe", sizes, 1);
}

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    int hops_to_last = sizes->ranks - 1 - rank;
    sl__emit_idle(row, rank);
    sl__emit_forwards(row, sizes, rank);
    /* Per hop a rank waits for one F and one B, which counts as 2 cells. */
    sl__emit_idle(row, 3 * hops_to_last);
    for (int microbatch = 0; microbatch < sizes->microbatches; microbatch++)
        sl__emit_cell(row, SL_BACKWARD, rank, microbatch);
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    return sl__generate_ranks(sizes, out, generate_rank);
}

const sl_generator sl__gpipe = {
    .name = "GPipe",
    .short_name = "gpipe",
    .summary = "all forwards, then all backwards; 1 stage per rank",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .admit = admit,
    .generate = generate,
};

/* SPDX-License-Identifier: MIT
 *
 * Looped breadth-first (arXiv 2211.05953): every microbatch through a stage
 * before the rank's next stage; backwards mirror the forwards. */
#include "schedule/generate/generate.h"

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    sl__emit_idle(row, rank);
    sl__emit_forwards(row, sizes, rank);
    sl__emit_idle(row, 2 * (sizes->ranks - 1 - rank));
    for (int local = sizes->stages_per_rank - 1; local >= 0; local--)
        for (int left = sizes->microbatches; left > 0; left--)
            sl__emit_cell(row, SL_BACKWARD, local * sizes->ranks + rank,
                          left - 1);
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    return sl__generate_ranks(sizes, out, generate_rank);
}

const sl_generator sl__looped_bfs = {
    .name = "LoopedBFS",
    .short_name = "bfs",
    .summary = "breadth first over a rank's stages; any size",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .generate = generate,
};

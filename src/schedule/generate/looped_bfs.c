/* SPDX-License-Identifier: MIT
 *
 * Looped breadth-first (arXiv 2211.05953): every microbatch through a stage
 * before the rank's next stage; backwards mirror the forwards. */
#include "schedule/generate/generate.h"

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    int ranks = sizes->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        sl__emitter row = sl__emit_to(out, rank);
        sl__emit_idle(&row, rank);
        for (int local = 0; local < sizes->stages_per_rank; local++)
            for (int mb = 0; mb < sizes->microbatches; mb++)
                sl__emit(&row, SL_FORWARD, local * ranks + rank, mb);
        sl__emit_idle(&row, 2 * (ranks - 1 - rank));
        for (int local = sizes->stages_per_rank - 1; local >= 0; local--)
            for (int mb = sizes->microbatches - 1; mb >= 0; mb--)
                sl__emit(&row, SL_BACKWARD, local * ranks + rank, mb);
        if (row.status)
            return row.status;
    }
    return SL_OK;
}

const sl_generator sl__looped_bfs = {
    .name = "LoopedBFS",
    .short_name = "bfs",
    .summary = "breadth first over a rank's stages; any size",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .generate = generate,
};

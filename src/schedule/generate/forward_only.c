/* SPDX-License-Identifier: MIT
 *
 * ForwardOnly: for evaluation and inference, breadth first over a rank's
 * stages. */
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
        if (row.status)
            return row.status;
    }
    return SL_OK;
}

const sl_generator sl__forward_only = {
    .name = "ForwardOnly",
    .short_name = "forward",
    .summary = "no backwards: evaluation and inference; any size",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .generate = generate,
};

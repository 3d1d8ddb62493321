/* SPDX-License-Identifier: MIT
 *
 * ForwardOnly, for evaluation and inference: breadth first over a rank's
 * stages. */
#include "schedule/generate/generate.h"

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    sl__emit_idle(row, rank);
    sl__emit_forwards(row, sizes, rank);
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    return sl__generate_ranks(sizes, out, generate_rank);
}

const sl_generator sl__forward_only = {
    .name = "ForwardOnly",
    .short_name = "forward",
    .summary = "no backwards: evaluation and inference; any size",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .generate = generate,
};

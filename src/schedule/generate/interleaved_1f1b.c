/* SPDX-License-Identifier: MIT
 *
 * Interleaved 1F1B (arXiv 2104.04473), depth first over a rank's stages. The
 * number of microbatches in a round may differ from the number of ranks. */
#include "schedule/generate/generate.h"

static sl_status admit(const sl_sizes *sizes)
{
    return sl__admit_rounds("Interleaved1F1B", sizes);
}

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    sl__generate_interleaved(sizes, rank, 2, false, row);
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    return sl__generate_ranks(sizes, out, generate_rank);
}

const sl_generator sl__interleaved_1f1b = {
    .name = "Interleaved1F1B",
    .short_name = "interleaved",
    .summary = "1F1B, depth first over a rank's stages",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .admit = admit,
    .generate = generate,
};

/* SPDX-License-Identifier: MIT
 *
 * The body that Interleaved1F1B and InterleavedZeroBubble share. A rank walks
 * its forwards in rounds of microbatches, stage after stage within a round; its
 * backwards do the same from the last stage down. Warm-up forwards come first,
 * then forward and backward alternate, then the backwards drain. With split
 * backwards, each W is that of the oldest I that has none yet. */
#include "schedule/generate/generate.h"
#include "base/memory.h"

static int rounds_of(int ranks, int microbatches)
{
    int rounds = microbatches / ranks;
    return rounds > 0 ? rounds : 1;
}

sl_status sl__admit_rounds(const char *name, const sl_sizes *sizes)
{
    int rounds = rounds_of(sizes->ranks, sizes->microbatches);
    if (sizes->microbatches % rounds == 0)
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "%s runs microbatches in %d rounds on %d ranks, and %d do "
                   "not divide evenly",
                   name, rounds, sizes->ranks, sizes->microbatches);
}

/* One of the three sequences of actions on a rank: forwards, backwards, W's. */
typedef struct stream {
    sl_action_kind kind;
    bool from_last;       /* walks the rank's stages from the last one down */
    int position;         /* how many were emitted */
    int *next_microbatch; /* by local stage */
} stream;

typedef struct walker {
    sl__emitter *row;
    const sl_sizes *sizes;
    int rank;
    int per_round;
} walker;

static void emit_next(walker *walk, stream *work)
{
    int stages = walk->sizes->stages_per_rank;
    int local = (work->position++ / walk->per_round) % stages;
    if (work->from_last)
        local = stages - 1 - local;
    sl__emit_cell(walk->row, work->kind,
                  local * walk->sizes->ranks + walk->rank,
                  work->next_microbatch[local]++);
}

static int compute_warmup(const sl_sizes *sizes, int rank, int per_round,
                          int hop)
{
    int64_t all = (int64_t)sizes->stages_per_rank * sizes->microbatches;
    int64_t warmup = (int64_t)(sizes->stages_per_rank - 1) * per_round +
                     (int64_t)hop * (sizes->ranks - 1 - rank);
    return (int)(warmup < all ? warmup : all);
}

/* Idle cells between warm-up and the first backward, as PyTorch counts them. */
static int compute_wait(const sl_sizes *sizes, int rank, int warmup, bool split)
{
    int hops_to_last = sizes->ranks - 1 - rank;
    if (split)
        return hops_to_last;
    return sizes->stages_per_rank * sizes->ranks + 2 * hops_to_last - warmup -
           rank;
}

void sl__generate_interleaved(const sl_sizes *sizes, int rank, int hop,
                              bool split, sl__emitter *row)
{
    size_t stages = (size_t)sizes->stages_per_rank;
    int *counters;
    row->status = sl__alloc(3 * stages, sizeof *counters, &counters);
    if (row->status)
        return;

    walker walk = {
        .row = row,
        .sizes = sizes,
        .rank = rank,
        .per_round =
            sizes->microbatches / rounds_of(sizes->ranks, sizes->microbatches),
    };
    stream forward = {SL_FORWARD, false, 0, counters};
    stream backward = {split ? SL_BACKWARD_INPUT : SL_BACKWARD, true, 0,
                       counters + stages};
    stream weight = {SL_BACKWARD_WEIGHT, true, 0, counters + 2 * stages};
    int all = sizes->stages_per_rank * sizes->microbatches;
    int warmup = compute_warmup(sizes, rank, walk.per_round, hop);

    sl__emit_idle(row, rank);
    while (forward.position < warmup)
        emit_next(&walk, &forward);
    if (warmup > 0)
        sl__emit_idle(row, compute_wait(sizes, rank, warmup, split));
    while (backward.position < all) {
        if (forward.position < all)
            emit_next(&walk, &forward);
        else if (!split)
            sl__emit_idle(row, 1);
        emit_next(&walk, &backward);
        if (split && backward.position > rank)
            emit_next(&walk, &weight);
    }
    while (split && weight.position < all)
        emit_next(&walk, &weight);
    free(counters);
}

/* SPDX-License-Identifier: MIT
 *
 * ZB-V (arXiv 2401.10241, section 6): two stages per rank placed as a V, so
 * each rank has an early and a late stage, and rank 0 has the first and the
 * last stage. Built for at least 2p - 1 microbatches; cells of microbatches
 * beyond those asked for become idle. */
#include "schedule/generate/generate.h"
#include "base/try.h"

static int padded(const sl_sizes *sizes)
{
    int least = 2 * sizes->ranks - 1;
    return sizes->microbatches > least ? sizes->microbatches : least;
}

static sl_status admit(const sl_sizes *sizes)
{
    SL__TRY(sl__admit_stages_per_rank("ZBVZeroBubble", sizes, 2));
    /* Each rank gets six cells per microbatch, padding included. */
    if ((int64_t)sizes->ranks * padded(sizes) * 6 > SL__MAX_CELLS)
        return sl_fail(SL_EINVAL,
                       "ZBVZeroBubble pads to 2 * ranks - 1 microbatches, too "
                       "many on %d ranks",
                       sizes->ranks);
    return SL_OK;
}

/* One of a rank's two stages, with its next microbatch for each kind of
 * action. */
typedef struct progress {
    int stage;
    int forward;
    int input;
    int weight;
} progress;

typedef struct builder {
    sl__emitter *row;
    int microbatches;
} builder;

static void emit(builder *to, sl_action_kind kind, int stage, int microbatch)
{
    if (microbatch < to->microbatches)
        sl__emit_cell(to->row, kind, stage, microbatch);
    else
        sl__emit_idle(to->row, 1);
}

static void forward(builder *to, progress *of)
{
    emit(to, SL_FORWARD, of->stage, of->forward++);
}

static void input(builder *to, progress *of)
{
    emit(to, SL_BACKWARD_INPUT, of->stage, of->input++);
}

static void weight(builder *to, progress *of)
{
    emit(to, SL_BACKWARD_WEIGHT, of->stage, of->weight++);
}

static void backward(builder *to, progress *of)
{
    input(to, of);
    weight(to, of);
}

static void warm_up(builder *to, int ranks, int rank, progress *early,
                    progress *late)
{
    for (int i = 0; i < 2 * (ranks - rank) - 1; i++)
        forward(to, early);
    for (int i = 0; i < rank; i++) {
        forward(to, late);
        forward(to, early);
    }
    for (int i = 0; i < ranks - rank; i++) {
        forward(to, late);
        backward(to, late);
    }
}

static void cool_down(builder *to, int ranks, int rank, progress *early,
                      progress *late)
{
    for (int i = 0; i < rank; i++) {
        input(to, early);
        input(to, late);
    }
    for (int i = 0; i < ranks - rank; i++) {
        input(to, early);
        weight(to, early);
    }
    while (late->weight < late->input)
        weight(to, late);
    while (early->weight < early->input)
        weight(to, early);
}

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    int ranks = sizes->ranks;
    int total = padded(sizes);
    builder to = {row, sizes->microbatches};
    progress early = {.stage = rank};
    progress late = {.stage = 2 * ranks - 1 - rank};

    sl__emit_idle(row, rank);
    warm_up(&to, ranks, rank, &early, &late);
    while (late.forward < early.forward || early.forward < total) {
        if (early.forward < total)
            forward(&to, &early);
        backward(&to, &early);
        forward(&to, &late);
        backward(&to, &late);
    }
    cool_down(&to, ranks, rank, &early, &late);
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    return sl__generate_ranks(sizes, out, generate_rank);
}

const sl_generator sl__zbv_zero_bubble = {
    .name = "ZBVZeroBubble",
    .short_name = "zbv",
    .summary = "zero bubble on a V; 2 stages per rank, any microbatches",
    .placement = SL_PLACEMENT_V,
    .default_stages_per_rank = 2,
    .admit = admit,
    .generate = generate,
};

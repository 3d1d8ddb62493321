/* SPDX-License-Identifier: MIT
 *
 * DualPipeV (after DeepSeek's DualPipe, arXiv 2412.19437): two stages per rank
 * placed as a V; in the steady state a forward of one stage runs overlapped
 * with a backward of the other. Eight phases, numbered as in its authors'
 * description. The W's of split backwards wait in a queue, oldest first. */
#include "schedule/generate/generate.h"
#include "base/memory.h"
#include "base/try.h"

#include <assert.h>

static sl_status admit(const sl_sizes *sizes)
{
    int stages = 2 * sizes->ranks;
    SL__TRY(sl__admit_stages_per_rank("DualPipeV", sizes, 2));
    if (sizes->microbatches >= stages)
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "DualPipeV needs at least as many microbatches as stages: "
                   "%d are fewer than %d",
                   sizes->microbatches, stages);
}

/* One of a rank's two stages, with its next forward and its next backward. */
typedef struct progress {
    int stage;
    int forward;
    int backward;
} progress;

typedef struct builder {
    sl__emitter *row;
    sl_action *owed; /* W's of split backwards to emit: owed[first..last) */
    size_t first;
    size_t last;
} builder;

static void forward(builder *to, progress *of)
{
    sl__emit_cell(to->row, SL_FORWARD, of->stage, of->forward++);
}

/* Emits a B, or an I whose W is queued. */
static void backward(builder *to, progress *of, bool split)
{
    int microbatch = of->backward++;
    sl__emit_cell(to->row, split ? SL_BACKWARD_INPUT : SL_BACKWARD, of->stage,
                  microbatch);
    if (split)
        to->owed[to->last++] =
            sl_action_make(SL_BACKWARD_WEIGHT, of->stage, microbatch);
}

static void overlap(builder *to, progress *f, progress *b)
{
    sl_action halves[2] = {
        sl_action_make(SL_FORWARD, f->stage, f->forward++),
        sl_action_make(SL_BACKWARD, b->stage, b->backward++),
    };
    sl__emit_action(to->row, sl_action_overlap(halves[0], halves[1]));
}

static void owed_weight(builder *to)
{
    if (to->first < to->last)
        sl__emit_action(to->row, to->owed[to->first++]);
}

/* Phases 1 to 3: fill the pipe. */
static void warm_up(builder *to, int hops_to_last, int rank, progress *early,
                    progress *late)
{
    for (int i = 0; i < 2 * hops_to_last; i++)
        forward(to, early);
    for (int i = 0; i < rank + 1; i++) {
        forward(to, early);
        forward(to, late);
    }
    for (int i = 0; i < hops_to_last; i++) {
        backward(to, late, true);
        owed_weight(to);
        forward(to, late);
    }
}

/* Phases 4 and 5: forwards overlapped with backwards. */
static void steady(builder *to, const sl_sizes *sizes, int rank,
                   progress *early, progress *late)
{
    int rounds = sizes->microbatches - 2 * sizes->ranks + rank + 1;
    for (int i = 0; i < rounds; i++) {
        if (i == 0 && rank == sizes->ranks - 1) {
            /* Not overlapped here, because that would lengthen the bubble. */
            forward(to, early);
            backward(to, late, false);
        } else {
            overlap(to, early, late);
        }
        overlap(to, late, early);
    }
    for (int i = 0; i < sizes->ranks - rank - 1; i++) {
        backward(to, late, false);
        overlap(to, late, early);
    }
}

/* Phases 6 to 8: drain; the second half of the backwards is split. */
static void cool_down(builder *to, int hops_to_last, int rank, progress *early,
                      progress *late)
{
    bool split = false;
    int half = (rank + 1) / 2;
    for (int i = 0; i < rank + 1; i++) {
        if (i == half && rank % 2 == 1)
            split = true;
        backward(to, late, split);
        if (i == half && rank % 2 == 0)
            split = true;
        backward(to, early, split);
    }
    for (int i = 0; i < hops_to_last; i++) {
        owed_weight(to);
        backward(to, early, split);
    }
    for (int i = 0; i < rank + 1; i++)
        owed_weight(to);
}

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    int hops_to_last = sizes->ranks - 1 - rank;
    builder to = {.row = row};
    /* Each backward of either stage may queue one W. */
    row->status =
        sl__alloc(2 * (size_t)sizes->microbatches, sizeof *to.owed, &to.owed);
    if (row->status)
        return;
    progress early = {.stage = rank};
    progress late = {.stage = 2 * sizes->ranks - 1 - rank};
    warm_up(&to, hops_to_last, rank, &early, &late);
    steady(&to, sizes, rank, &early, &late);
    cool_down(&to, hops_to_last, rank, &early, &late);
    assert(to.first == to.last);
    free(to.owed);
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    return sl__generate_ranks(sizes, out, generate_rank);
}

const sl_generator sl__dualpipe_v = {
    .name = "DualPipeV",
    .short_name = "dualpipev",
    .summary = "overlapped F and B on a V; 2 stages per rank, m >= stages",
    .placement = SL_PLACEMENT_V,
    .default_stages_per_rank = 2,
    .admit = admit,
    .generate = generate,
};

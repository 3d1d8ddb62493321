/* SPDX-License-Identifier: MIT
 *
 * Interleaved zero bubble, ZB1P in the paper (arXiv 2401.10241): interleaved
 * 1F1B with backwards split, so that W's fill what would be idle. A second
 * walk, step by step over all ranks, inserts idle cells before every forward
 * whose input is not done. */
#include "schedule/generate/generate.h"
#include "base/arena.h"
#include "base/try.h"

static sl_status admit(const sl_sizes *sizes)
{
    return sl__admit_rounds("InterleavedZeroBubble", sizes);
}

/* State of the walk over all ranks. `done_at` has, by stage and microbatch, the
 * step after which its forward is done (0: not yet). */
typedef struct delayer {
    const sl_schedule *in;
    sl_schedule *out;
    size_t *next; /* by rank, into `in` */
    uint32_t *done_at;
    int microbatches;
    uint32_t step; /* from 1 */
    sl__arena memory;
} delayer;

static bool must_wait(const delayer *walk, const sl_action *action)
{
    if (action->kind != SL_FORWARD || action->stage == 0)
        return false;
    size_t before = (size_t)(action->stage - 1) * (size_t)walk->microbatches +
                    (size_t)action->microbatch;
    return walk->done_at[before] == 0 || walk->done_at[before] >= walk->step;
}

static sl_status delay_rank(delayer *walk, int rank)
{
    const sl__row *row = &walk->in->rows[rank];
    sl_action action = row->actions[walk->next[rank]];
    if (must_wait(walk, &action))
        action = sl_action_make(SL_IDLE, 0, 0);
    else
        walk->next[rank]++;
    if (action.kind == SL_FORWARD)
        walk->done_at[(size_t)action.stage * (size_t)walk->microbatches +
                      (size_t)action.microbatch] = walk->step;
    return sl__row_append(&walk->out->rows[rank], action);
}

static sl_status delay_all(delayer *walk, size_t forwards)
{
    SL__TRY(SL__TAKE(&walk->memory, (size_t)walk->in->ranks, &walk->next));
    SL__TRY(SL__TAKE(&walk->memory, forwards, &walk->done_at));
    /* Forwards are in pipeline order, so in every step some rank advances, and
     * the loop ends. */
    bool running = true;
    for (walk->step = 1; running; walk->step++) {
        running = false;
        for (int rank = 0; rank < walk->in->ranks; rank++) {
            if (walk->next[rank] == walk->in->rows[rank].length)
                continue;
            running = true;
            SL__TRY(delay_rank(walk, rank));
        }
    }
    return SL_OK;
}

static sl_status delay(const sl_sizes *sizes, const sl_schedule *in,
                       sl_schedule *out)
{
    size_t stages = (size_t)sizes->ranks * (size_t)sizes->stages_per_rank;
    delayer walk = {.in = in, .out = out, .microbatches = sizes->microbatches};
    sl_status status = delay_all(&walk, stages * (size_t)sizes->microbatches);
    sl__arena_clear(&walk.memory);
    return status;
}

static void generate_rank(const sl_sizes *sizes, int rank, sl__emitter *row)
{
    sl__generate_interleaved(sizes, rank, 1, true, row);
}

static sl_status generate(const sl_sizes *sizes, sl_schedule *out)
{
    sl_schedule *raw;
    SL__TRY(sl_schedule_create(sizes->ranks, &raw));
    sl_status status = sl__generate_ranks(sizes, raw, generate_rank);
    if (!status)
        status = delay(sizes, raw, out);
    sl_schedule_destroy(raw);
    return status;
}

const sl_generator sl__interleaved_zero_bubble = {
    .name = "InterleavedZeroBubble",
    .short_name = "zb1p",
    .summary = "interleaved 1F1B with backward split (ZB1P)",
    .placement = SL_PLACEMENT_LOOP,
    .default_stages_per_rank = 1,
    .admit = admit,
    .generate = generate,
};

/* SPDX-License-Identifier: MIT
 *
 * Checks sizes for a generator: they must be positive, within the limits, and
 * accepted by its admit function. Others are refused with the reason and the
 * nearest sizes that are accepted. These are found by calling admit again, so
 * what is suggested always works. */
#include "schedule/generate/generate.h"
#include "base/try.h"

#include <stdio.h>
#include <string.h>

/* At most three quarters of a schedule's cells may be idle ones. */
#define MAX_IDLE (SL__MAX_CELLS / 4 * 3)

/* An upper bound on the idle cells of warm-up and drain. */
static int64_t idle_cells(int64_t ranks, int64_t stages_per_rank)
{
    return ranks * (ranks * stages_per_rank + 4 * ranks);
}

static int most_stages_per_rank(int64_t ranks)
{
    int64_t by_stages = SL_MAX_STAGES / ranks;
    int64_t by_idle = (MAX_IDLE / ranks - 4 * ranks) / ranks;
    return (int)(by_stages < by_idle ? by_stages : by_idle);
}

/* F, I and W of each stage and microbatch must fit beside the idle cells. */
static int most_microbatches(const sl_sizes *sizes)
{
    int64_t room =
        SL__MAX_CELLS - idle_cells(sizes->ranks, sizes->stages_per_rank);
    int64_t most = room / (3 * (int64_t)sizes->ranks * sizes->stages_per_rank);
    return (int)(most < SL_MAX_MICROBATCHES ? most : SL_MAX_MICROBATCHES);
}

static sl_status admit_limits(const sl_sizes *sizes)
{
    if (sizes->ranks > SL_MAX_RANKS)
        return sl_fail(SL_EINVAL, "%d ranks are too many", sizes->ranks);
    if (sizes->stages_per_rank > most_stages_per_rank(sizes->ranks))
        return sl_fail(SL_EINVAL, "%d stages per rank are too many on %d ranks",
                       sizes->stages_per_rank, sizes->ranks);
    if (sizes->microbatches > most_microbatches(sizes))
        return sl_fail(SL_EINVAL,
                       "%d microbatches are too many for %d stages on each of "
                       "%d ranks",
                       sizes->microbatches, sizes->stages_per_rank,
                       sizes->ranks);
    return SL_OK;
}

static sl_status admit(const sl_generator *generator, const sl_sizes *sizes)
{
    SL__TRY(admit_limits(sizes));
    return generator->admit ? generator->admit(sizes) : SL_OK;
}

static bool serves(const sl_generator *generator, int ranks,
                   int stages_per_rank, int microbatches)
{
    sl_sizes sizes = {ranks, stages_per_rank, microbatches};
    return microbatches > 0 && !admit(generator, &sizes);
}

/* ---------------------------------------------------- the nearest sizes -- */

/* How far from the given number of microbatches one that works is looked for.
 * No schedule needs more than a few times the number of ranks. */
#define REACH (4 * SL_MAX_RANKS)

/* The nearest numbers of microbatches below and above that are accepted; 0 for
 * none. */
static void nearest_microbatches(const sl_generator *generator,
                                 const sl_sizes *sizes, int *below, int *above)
{
    int ranks = sizes->ranks, stages = sizes->stages_per_rank;
    *below = *above = 0;
    if (ranks > SL_MAX_RANKS || stages > most_stages_per_rank(ranks))
        return;
    int most = most_microbatches(sizes);
    int from = sizes->microbatches;
    int low = from <= most ? from : most;
    for (int i = 0; i < REACH && !*below && low - i > 0; i++) {
        if (serves(generator, ranks, stages, low - i))
            *below = low - i;
    }
    for (int i = 1; i < REACH && !*above && from < most && from + i <= most;
         i++) {
        if (serves(generator, ranks, stages, from + i))
            *above = from + i;
    }
}

/* The nearest number of stages per rank, fewer first; 0 for none. */
static int nearest_stages(const sl_generator *generator, const sl_sizes *sizes)
{
    if (sizes->ranks > SL_MAX_RANKS)
        return 0;
    int most = most_stages_per_rank(sizes->ranks);
    int from = sizes->stages_per_rank < most ? sizes->stages_per_rank : most;
    for (int stages = from; stages > 0; stages--) {
        if (serves(generator, sizes->ranks, stages, sizes->microbatches))
            return stages;
    }
    for (int stages = from + 1; stages <= most; stages++) {
        if (serves(generator, sizes->ranks, stages, sizes->microbatches))
            return stages;
    }
    return 0;
}

/* The largest number of ranks that works with the stages per rank of `sizes`
 * and some number of microbatches, which is written to `sizes`; 0 for none. */
static int most_ranks(const sl_generator *generator, sl_sizes *sizes)
{
    int from = sizes->ranks < SL_MAX_RANKS ? sizes->ranks : SL_MAX_RANKS;
    int stages = sizes->stages_per_rank;
    for (int ranks = from; ranks > 0; ranks--) {
        if (stages > most_stages_per_rank(ranks))
            continue;
        const int counts[] = {sizes->microbatches, ranks, ranks * stages};
        for (int i = 0; i < 3; i++) {
            if (!serves(generator, ranks, stages, counts[i]))
                continue;
            sizes->microbatches = counts[i];
            return ranks;
        }
    }
    return 0;
}

/* The same, with the stages per rank that were asked for where that is
 * possible, else with the default of the schedule. */
static int nearest_ranks(const sl_generator *generator, const sl_sizes *asked,
                         sl_sizes *works)
{
    works->stages_per_rank = asked->stages_per_rank;
    int ranks = most_ranks(generator, works);
    if (ranks)
        return ranks;
    works->stages_per_rank = generator->default_stages_per_rank;
    return most_ranks(generator, works);
}

/* Writes which of the sizes would have to be different. */
static void describe(const sl_sizes *asked, const sl_sizes *works, int or_else,
                     char *out, size_t size)
{
    size_t used = 0;
    const char *join = "";
    if (works->ranks != asked->ranks) {
        used += (size_t)snprintf(out, size, "%d ranks", works->ranks);
        join = ", ";
    }
    if (works->stages_per_rank != asked->stages_per_rank) {
        used += (size_t)snprintf(
            out + used, size - used, "%s%d stage%s per rank", join,
            works->stages_per_rank, works->stages_per_rank == 1 ? "" : "s");
        join = ", ";
    }
    if (works->microbatches != asked->microbatches)
        used += (size_t)snprintf(out + used, size - used, "%s%d", join,
                                 works->microbatches);
    if (or_else)
        used += (size_t)snprintf(out + used, size - used, " or %d", or_else);
    if (works->microbatches != asked->microbatches)
        snprintf(out + used, size - used, " microbatches");
}

/* Finds sizes that work, changing as few as possible; false if there are
 * none. */
static bool find_nearest(const sl_generator *generator, const sl_sizes *asked,
                         char *out, size_t size)
{
    sl_sizes works = *asked;
    int below, above;
    nearest_microbatches(generator, &works, &below, &above);
    if (!below && !above) {
        works.stages_per_rank = nearest_stages(generator, &works);
        if (!works.stages_per_rank) {
            works.stages_per_rank = generator->default_stages_per_rank;
            nearest_microbatches(generator, &works, &below, &above);
        } else {
            below = works.microbatches;
        }
    }
    if (!below && !above) {
        works.ranks = nearest_ranks(generator, asked, &works);
        if (!works.ranks)
            return false;
        below = works.microbatches;
    }
    works.microbatches = below ? below : above;
    describe(asked, &works, below && above ? above : 0, out, size);
    return true;
}

static sl_status admit_positive(const char *what, int size)
{
    if (size >= 1)
        return SL_OK;
    return sl_fail(SL_EINVAL, "%s must be at least 1, not %d", what, size);
}

sl_status sl__admit(const sl_generator *generator, const sl_sizes *sizes)
{
    SL__TRY(admit_positive("ranks", sizes->ranks));
    SL__TRY(admit_positive("stages per rank", sizes->stages_per_rank));
    SL__TRY(admit_positive("microbatches", sizes->microbatches));
    sl_status status = admit(generator, sizes);
    if (!status)
        return SL_OK;
    char reason[512], nearest[128];
    snprintf(reason, sizeof reason, "%s", sl_error_text());
    if (find_nearest(generator, sizes, nearest, sizeof nearest))
        return sl_fail(status, "%s; the nearest that works: %s", reason,
                       nearest);
    return sl_fail(status, "%s", reason);
}

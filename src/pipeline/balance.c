/* SPDX-License-Identifier: MIT
 *
 * Dividing a row of costs into runs so that the largest is as small as can be.
 *
 * least[k][i], the best largest sum of the first i costs in k runs, is the
 * minimum over j < i of max(least[k-1][j], sum of j..i-1). The first grows with
 * j and the second shrinks, and where they meet moves up with i: one pass over
 * j serves all i, and one row over the one before serves all k. */
#include "pipeline/model.h"

#include "base/memory.h"

#include <math.h>

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* sums[i] is the sum of the first i costs. */
static void add_run(const double *sums, size_t count, int run,
                    const double *before, double *least)
{
    size_t j = (size_t)run - 1;
    for (size_t i = (size_t)run; i <= count; i++) {
        while (j + 1 < i && larger(before[j + 1], sums[i] - sums[j + 1]) <=
                                larger(before[j], sums[i] - sums[j]))
            j++;
        least[i] = larger(before[j], sums[i] - sums[j]);
    }
}

/* How many runs of at most `most` the costs from i on need, for every i. */
static void count_needed(const double *sums, size_t count, double most,
                         int *needed)
{
    /* Where the run that begins at i ends moves down with i: one pass does. */
    size_t end = count;
    needed[count] = 0;
    for (size_t i = count; i-- > 0;) {
        while (end > i + 1 && sums[end] - sums[i] > most)
            end--;
        needed[i] = needed[end] + 1;
    }
}

/* Takes for each run what is closest to an even share of what is left, as long
 * as the rest fits. */
static void place_runs(const double *sums, size_t count, int stages,
                       double most, const int *needed, int *starts)
{
    size_t first = 0;
    for (int run = 0; run < stages; run++) {
        int after = stages - run - 1;
        double share = (sums[count] - sums[first]) / (after + 1);
        size_t best = 0;
        for (size_t end = first + 1; end + (size_t)after <= count; end++) {
            double sum = sums[end] - sums[first];
            if (sum > most)
                break;
            if (needed[end] > after)
                continue;
            if (best && fabs(sum - share) >
                            fabs(sums[best] - sums[first] - share))
                break;
            best = end;
        }
        starts[run] = (int)first;
        first = best;
    }
}

sl_status sl__balance(const double *costs, size_t count, int stages,
                      int *starts, double *out_largest)
{
    double *sums, *rows[2];
    int *needed;
    double *memory;
    sl_status status = sl__alloc(3 * (count + 1), sizeof *memory, &memory);
    if (status)
        return status;
    status = sl__alloc(count + 1, sizeof *needed, &needed);
    if (status) {
        free(memory);
        return status;
    }
    sums = memory;
    rows[0] = sums + count + 1;
    rows[1] = rows[0] + count + 1;
    for (size_t i = 0; i < count; i++)
        sums[i + 1] = sums[i] + costs[i];
    for (size_t i = 0; i <= count; i++)
        rows[0][i] = sums[i];
    for (int run = 2; run <= stages; run++)
        add_run(sums, count, run, rows[run % 2], rows[(run + 1) % 2]);
    double largest = rows[(stages + 1) % 2][count];
    count_needed(sums, count, largest, needed);
    place_runs(sums, count, stages, largest, needed, starts);
    free(memory);
    free(needed);
    *out_largest = largest;
    return SL_OK;
}

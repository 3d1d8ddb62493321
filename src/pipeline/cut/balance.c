/* SPDX-License-Identifier: MIT
 *
 * Divides a sequence of costs into contiguous runs so that the largest sum of a
 * run is as small as possible.
 *
 * Let least[k][i] be the smallest possible largest sum when the first i costs
 * are divided into k runs. It is the minimum over j < i of the maximum of
 * least[k-1][j] and the sum of the costs j to i-1. The first grows with j and
 * the second shrinks, and the j at which they are equal grows with i: one pass
 * over j serves all i, and row k needs only row k - 1. */
#include "pipeline/cut/model.h"

#include "base/try.h"

#include <assert.h>
#include <math.h>

/* The largest product of costs and stages for which evening out takes only a
 * few milliseconds. */
#define EVEN_MOST 2000000.0

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Computes the row `least` of `run` runs from that of one run less. sums[i] is
 * the sum of the first i costs. */
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

/* ----------------------------------------------------------- evening out -- */

/* What runs are compared by, once the largest sum is fixed: bytes over the
 * boundaries between them, then the sum of squares. */
typedef struct price {
    double bytes;
    double squares;
} price;

static bool is_less(price a, price b)
{
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.squares < b.squares;
}

/* Finds the runs with the least price among those of at most `most`. The price
 * of the first i costs in k runs is the minimum over j of the price of the
 * first j costs in k - 1 runs, plus the bytes over the boundary at j and the
 * square of the last run. The best j grows with i, so the best j for the middle
 * i bounds those on either side. */
typedef struct evening {
    const double *sums;
    const double *bytes; /* over the boundary before each cost; NULL: none */
    double most;
    const price *before; /* with one run less */
    price *prices;
    int *ends; /* by i: the best j */
} evening;

static void even_out(evening *e, size_t low, size_t high, size_t from,
                     size_t to)
{
    if (low > high)
        return;
    size_t i = (low + high) / 2, best = from;
    price least = {INFINITY, INFINITY};
    for (size_t j = from; j <= to && j < i; j++) {
        double sum = e->sums[i] - e->sums[j];
        price now = e->before[j];
        now.bytes += e->bytes && j > 0 ? e->bytes[j] : 0;
        now.squares += sum * sum;
        if (sum <= e->most && is_less(now, least)) {
            least = now;
            best = j;
        }
    }
    e->prices[i] = least;
    e->ends[i] = (int)best;
    if (i > low)
        even_out(e, low, i - 1, from, best);
    even_out(e, i + 1, high, best, to);
}

/* Computes where run k may end, from lows[k] to highs[k], so that all runs
 * before and after it can have sums of at most `most`. */
static void bound_ends(const double *sums, size_t count, int stages,
                       double most, size_t *lows, size_t *highs)
{
    size_t end = 0, first = count;
    for (int k = 1; k <= stages; k++) {
        size_t start = end, last = count - (size_t)(stages - k);
        while (end < last && sums[end + 1] - sums[start] <= most)
            end++;
        highs[k] = end;
    }
    for (int k = stages; k >= 1; k--) {
        size_t behind = first;
        lows[k] = behind;
        while (first > (size_t)k - 1 && sums[behind] - sums[first - 1] <= most)
            first--;
    }
    lows[0] = highs[0] = 0;
}

static sl_status place_evenly(sl__arena *arena, const double *sums,
                              const double *bytes, size_t count, int stages,
                              double most, int *starts)
{
    price *rows[2];
    size_t *lows, *highs, width = count + 1, runs = (size_t)stages + 1;
    int *ends;
    for (int i = 0; i < 2; i++)
        SL__TRY(sl__arena_take(arena, width, sizeof *rows[i], &rows[i]));
    SL__TRY(sl__arena_take(arena, runs, sizeof *lows, &lows));
    SL__TRY(sl__arena_take(arena, runs, sizeof *highs, &highs));
    SL__TRY(sl__arena_take(arena, width * runs, sizeof *ends, &ends));
    bound_ends(sums, count, stages, most, lows, highs);
    for (int k = 1; k <= stages; k++) {
        evening e = {.sums = sums,
                     .bytes = bytes,
                     .most = most,
                     .before = rows[(k + 1) % 2],
                     .prices = rows[k % 2],
                     .ends = ends + (size_t)k * width};
        even_out(&e, lows[k], highs[k], lows[k - 1], highs[k - 1]);
    }
    size_t end = count;
    for (int k = stages; k >= 1; k--) {
        end = (size_t)ends[(size_t)k * width + end];
        starts[k - 1] = (int)end;
    }
    assert(end == 0);
    return SL_OK;
}

/* --------------------------------------------- where that takes too long -- */

/* Computes for every i how many runs of at most `most` the costs from i on
 * need. */
static void count_needed(const double *sums, size_t count, double most,
                         int *needed)
{
    /* The end of the run that begins at i falls with i: one pass is enough. */
    size_t end = count;
    needed[count] = 0;
    for (size_t i = count; i-- > 0;) {
        while (end > i + 1 && sums[end] - sums[i] > most)
            end--;
        needed[i] = needed[end] + 1;
    }
}

/* Ends each run where its sum is closest to an even share of what remains, as
 * long as the rest still fits. */
static sl_status place_runs(sl__arena *arena, const double *sums, size_t count,
                            int stages, double most, int *starts)
{
    int *needed;
    size_t first = 0;
    SL__TRY(sl__arena_take(arena, count + 1, sizeof *needed, &needed));
    count_needed(sums, count, most, needed);
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
            if (best &&
                fabs(sum - share) > fabs(sums[best] - sums[first] - share))
                break;
            best = end;
        }
        starts[run] = (int)first;
        first = best;
    }
    assert(first == count);
    return SL_OK;
}

static sl_status balance(sl__arena *arena, const double *costs,
                         const double *bytes, size_t count, int stages,
                         int *starts, double *out_largest)
{
    double *sums, *rows[2];
    SL__TRY(sl__arena_take(arena, count + 1, sizeof *sums, &sums));
    for (int i = 0; i < 2; i++)
        SL__TRY(sl__arena_take(arena, count + 1, sizeof *rows[i], &rows[i]));
    for (size_t i = 0; i < count; i++)
        rows[0][i + 1] = sums[i + 1] = sums[i] + costs[i];
    for (int run = 2; run <= stages; run++)
        add_run(sums, count, run, rows[run % 2], rows[(run + 1) % 2]);
    *out_largest = rows[(stages + 1) % 2][count];
    if ((double)count * stages <= EVEN_MOST)
        return place_evenly(arena, sums, bytes, count, stages, *out_largest,
                            starts);
    return place_runs(arena, sums, count, stages, *out_largest, starts);
}

sl_status sl__balance(const double *costs, const double *bytes, size_t count,
                      int stages, int *starts, double *out_largest)
{
    assert(stages >= 1 && (size_t)stages <= count);
    *out_largest = 0;
    if ((size_t)stages == count) {
        for (int i = 0; i < stages; i++) {
            starts[i] = i;
            *out_largest = larger(*out_largest, costs[i]);
        }
        return SL_OK;
    }
    sl__arena arena = {0};
    sl_status status =
        balance(&arena, costs, bytes, count, stages, starts, out_largest);
    sl__arena_clear(&arena);
    return status;
}

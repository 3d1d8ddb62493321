/* SPDX-License-Identifier: MIT
 *
 * A rank that waits takes part in what other ranks of the process compute. */
#include "pipeline/run/runtime.h"

#include "base/clock.h"
#include "base/cores.h"
#include "comm/comm.h"
#include "tensor/lending.h"

#include <sys/resource.h>

static bool lend(void *context, bool (*is_over)(void *wait), void *wait)
{
    sl_pipeline *pipeline = context;
    if (!sl__can_lend())
        return false;
    double start = sl__seconds();
    if (!sl__lend(pipeline->options.stage.threads, is_over, wait))
        return false;
    pipeline->lending_s += sl__seconds() - start;
    return true;
}

/* Without a core for every thread, one that helps takes it from another that
 * has work of its own. */
void sl__start_lending(sl_pipeline *pipeline)
{
    sl_lend how = pipeline->options.lend;
    int ranks = sl_comm_size(pipeline->comm);
    int64_t threads = (int64_t)ranks * pipeline->options.stage.threads;
    bool room = how == SL_LEND_ALWAYS || threads <= sl__cores();
    pipeline->lends = how != SL_LEND_NEVER && room && ranks > 1 &&
                      sl__comm_is_one_process(pipeline->comm);
    if (pipeline->lends)
        sl__lending_start();
}

bool sl__is_crowded(double seconds, long losses)
{
    const double per_second = 60;
    return losses > 2 && (double)losses > per_second * seconds;
}

void sl__watch_core(sl_pipeline *pipeline)
{
    const double window_s = 0.05;
    double now = sl__seconds(), watched = now - pipeline->watched_s;
    struct rusage used;
    if (watched < window_s || getrusage(RUSAGE_THREAD, &used))
        return;
    long losses = used.ru_nivcsw - pipeline->lost_cores;
    /* Of what came long ago nothing is known. */
    if (pipeline->watched_s > 0)
        sl__comm_set_crowded(pipeline->comm, sl__is_crowded(watched, losses));
    pipeline->watched_s = now;
    pipeline->lost_cores = used.ru_nivcsw;
}

void sl__stop_lending(sl_pipeline *pipeline)
{
    sl__comm_set_crowded(pipeline->comm, false);
    sl__comm_clear_idle(pipeline->comm, pipeline);
    if (pipeline->lends)
        sl__lending_stop();
    pipeline->lends = false;
}

void sl__begin_lending(sl_pipeline *pipeline)
{
    pipeline->lending_s = 0;
    /* Another pipeline may have been here in between. */
    sl__comm_set_idle(pipeline->comm, pipeline->lends ? lend : NULL, pipeline);
}

/* SPDX-License-Identifier: MIT
 *
 * Work stealing: a rank that waits computes parts of kernels that other ranks
 * of the process run. */
#include "pipeline/run/runtime.h"

#include "base/clock.h"
#include "base/cores.h"
#include "tensor/work_stealing.h"

#include <sys/resource.h>

/* Called while this rank waits: an sl__idle_fn. */
static bool steal(void *context, bool (*is_over)(void *wait), void *wait)
{
    sl_pipeline *pipeline = context;
    if (!sl__can_steal())
        return false;
    double start = sl__seconds();
    if (!sl__steal(pipeline->options.stage.threads, is_over, wait))
        return false;
    pipeline->helping_s += sl__seconds() - start;
    return true;
}

/* With fewer cores than threads, a thread that steals would take the core from
 * another that has work of its own. */
void sl__start_stealing(sl_pipeline *pipeline)
{
    sl_work_stealing how = pipeline->options.work_stealing;
    int ranks = sl_comm_size(pipeline->comm);
    int64_t threads = (int64_t)ranks * pipeline->options.stage.threads;
    bool room = how == SL_STEAL_ALWAYS || threads <= sl__cores();
    pipeline->steals = how != SL_STEAL_NEVER && room && ranks > 1 &&
                       sl__comm_is_one_process(pipeline->comm);
    if (pipeline->steals)
        sl__stealing_start();
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
    /* The first time there is no earlier count to compare with. */
    if (pipeline->watched_s > 0)
        sl__comm_set_crowded(pipeline->comm, sl__is_crowded(watched, losses));
    pipeline->watched_s = now;
    pipeline->lost_cores = used.ru_nivcsw;
}

void sl__stop_stealing(sl_pipeline *pipeline)
{
    sl__comm_set_crowded(pipeline->comm, false);
    sl__comm_clear_idle(pipeline->comm, pipeline);
    if (pipeline->steals)
        sl__stealing_stop();
    pipeline->steals = false;
}

void sl__begin_stealing(sl_pipeline *pipeline)
{
    pipeline->helping_s = 0;
    /* Another pipeline may have set its own in between. */
    sl__comm_set_idle(pipeline->comm, pipeline->steals ? steal : NULL,
                      pipeline);
}

/* SPDX-License-Identifier: MIT
 *
 * A rank that waits takes part in what other ranks of the process compute. */
#include "pipeline/runtime.h"

#include "base/clock.h"
#include "base/cores.h"
#include "comm/comm.h"
#include "tensor/lending.h"

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
                      sl_comm_hands_over(pipeline->comm);
    if (pipeline->lends)
        sl__lending_start();
}

void sl__stop_lending(sl_pipeline *pipeline)
{
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

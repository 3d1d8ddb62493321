/* SPDX-License-Identifier: MIT
 *
 * Broadcasts a failure of this rank to all ranks. After a timeout the error
 * includes a report: every rank is asked what it is doing. */
#include "pipeline/run/runtime.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/try.h"

#include <stdio.h>

/* Seconds that ranks have to answer over MPI. A rank that waits, or reaches the
 * end of a program, answers at once. */
#define ANSWER_S 1.0

static void describe(const sl__instruction *i, double for_s, char *text,
                     size_t size)
{
    char action[SL_ACTION_TEXT_MAX];
    sl_action_print(&i->action, action);
    bool sends = sl_action_kind_family(i->action.kind) == SL_FAMILY_WAIT;
    if (i->kind == SL__DO_WAIT)
        sl__format(text, size,
                   "waits at %s for %.3g s %s stage %d on rank %d%s", action,
                   for_s, sends ? "until" : "for", i->u.message.peer_stage,
                   i->u.message.peer, sends ? " receives" : "");
    else if (i->kind == SL__DO_RUN || i->kind == SL__DO_STATE)
        sl__format(text, size, "runs %s for %.3g s", action, for_s);
    else
        sl__format(text, size, "is busy around %s for %.3g s", action, for_s);
}

void sl__answer(void *context, char *text, size_t size)
{
    sl_pipeline *pipeline = context;
    const sl__instructions *list = atomic_load(&pipeline->doing);
    unsigned long long step = atomic_load(&pipeline->steps);
    size_t at = atomic_load_explicit(&pipeline->at, memory_order_relaxed);
    double since =
        atomic_load_explicit(&pipeline->since_s, memory_order_relaxed);
    if (!list) {
        snprintf(text, size,
                 atomic_load(&pipeline->beginning)
                     ? "step %llu: waits for all ranks to begin it"
                 : atomic_load(&pipeline->in_step)
                     ? "step %llu: makes its list of what to do"
                     : "is not in a step, after %llu",
                 step);
        return;
    }
    int used = snprintf(text, size, "step %llu: ", step);
    if (at >= list->count)
        snprintf(text + used, size - (size_t)used,
                 "has done its part, and waits for the others");
    else
        describe(&list->data[at], sl__seconds() - since, text + used,
                 size - (size_t)used);
}

/* Appends a line; true where there was room for it. */
static bool add_line(int rank, const char *answer, char **text, size_t *size)
{
    int length = snprintf(
        *text, *size, "\n  rank %d %s", rank,
        *answer ? answer
                : "gives no answer: it computes, is gone, or has no pipeline");
    if (length < 0 || (size_t)length >= *size) {
        **text = '\0';
        return false;
    }
    *text += length;
    *size -= (size_t)length;
    return true;
}

/* Appends what every rank is doing: this one, the `peer` that it waits for (-1:
 * none), then all others. */
static void append_report(sl_pipeline *pipeline, int peer, char *text,
                          size_t size)
{
    const int ranks = sl_comm_size(pipeline->comm);
    const int first[] = {sl_comm_rank(pipeline->comm), peer};
    char(*answers)[SL_COMM_ANSWER_MAX] = NULL;
    /* Reserved for the last line, which says how many ranks were left out. */
    enum { LAST = 64 };
    int added = 0;
    if (size < LAST || sl__alloc((size_t)ranks, sizeof *answers, &answers))
        return;
    size -= LAST;
    sl_comm_ask(pipeline->comm, answers, ANSWER_S);
    for (int i = -2; i < ranks; i++) {
        int rank = i < 0 ? first[i + 2] : i;
        if (rank < 0 || (i >= 0 && (i == first[0] || i == peer)) ||
            (i == -1 && peer == first[0]))
            continue;
        if (!add_line(rank, answers[rank], &text, &size))
            break;
        added++;
    }
    if (added < ranks)
        snprintf(text, LAST, "\n  and %d ranks more", ranks - added);
    free(answers);
}

sl_status sl__abort_ranks(sl_comm *comm, sl_status status, const char *text)
{
    sl_comm_abort(comm, status, text);
    /* If another rank has failed before, this returns its failure. */
    SL__TRY(sl_comm_progress(comm));
    return status;
}

sl_status sl__abort_where(sl_pipeline *pipeline, sl_status status,
                          const char *where, int peer)
{
    char text[SL__REPORT_MAX];
    int length = snprintf(text, sizeof text, "%s%s", where, sl_error_text());
    SL__TRY(sl_comm_progress(pipeline->comm));
    if (status == SL_ETIME && length >= 0 && (size_t)length < sizeof text)
        append_report(pipeline, peer, text + length,
                      sizeof text - (size_t)length);
    return sl__abort_ranks(pipeline->comm, status, text);
}

sl_status sl__abort_pipeline(sl_pipeline *pipeline, sl_status status)
{
    return sl__abort_where(pipeline, status, "", -1);
}

/* SPDX-License-Identifier: MIT
 *
 * Who does what: the report with which a wait ends that was too long. Every
 * rank says what it is doing when it is asked. */
#include "pipeline/run/runtime.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"

#include <stdio.h>

/* Seconds that ranks over MPI have to answer: those that are in a wait or
 * between kernels do at once. */
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
    int used;
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
    used = snprintf(text, size, "step %llu: ", step);
    if (at >= list->count)
        snprintf(text + used, size - (size_t)used,
                 "has done its part, and waits for the others");
    else
        describe(&list->data[at], sl__seconds() - since, text + used,
                 size - (size_t)used);
}

/* A line; true where there was room for it. */
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

void sl__append_report(sl_pipeline *pipeline, int peer, char *text, size_t size)
{
    int ranks = sl_comm_size(pipeline->comm);
    int own = sl_comm_rank(pipeline->comm), told = 0;
    char(*answers)[SL_COMM_ANSWER_MAX] = NULL;
    /* The last line says how many there was no room for. */
    enum { LAST = 64 };
    if (size < LAST || sl__alloc((size_t)ranks, sizeof *answers, &answers))
        return;
    size -= LAST;
    sl_comm_ask(pipeline->comm, answers, ANSWER_S);
    /* This rank, whom it waits for, then all others. */
    bool room = add_line(own, answers[own], &text, &size);
    told += room;
    if (room && peer >= 0 && peer != own) {
        room = add_line(peer, answers[peer], &text, &size);
        told += room;
    }
    for (int i = 0; i < ranks && room; i++) {
        if (i == own || i == peer)
            continue;
        room = add_line(i, answers[i], &text, &size);
        told += room;
    }
    if (told < ranks)
        snprintf(text, LAST, "\n  and %d ranks more", ranks - told);
    free(answers);
}

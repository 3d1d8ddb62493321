/* SPDX-License-Identifier: MIT
 *
 * Orders for B. It does not matter which node of I comes before which node of
 * W, so B may mix them. Three orders are proposed: the one in which autodiff
 * emitted the nodes; I, then W; and a greedy one that always takes the node
 * after which the fewest bytes are alive. The planner takes the one that needs
 * the smallest workspace.
 *
 * Calls that touch the same memory keep their order, so every order computes
 * the same bits. */
#include "tensor/program.h"

#include "base/try.h"

#include <assert.h>
#include <string.h>

/* The memory that a call touches: bases of operands, then of results. */
static int list_touched(const sl__kernel_call *call, const sl_tensor **bases,
                        int *operands)
{
    const sl__node *writer = sl__last_node(call);
    int count = 0;
    for (int i = 0; i < call->node->operand_count; i++)
        bases[count++] = call->node->operands[i]->base;
    *operands = count;
    for (int i = 0; i < SL__RESULTS_MAX; i++) {
        if (writer->results[i])
            bases[count++] = writer->results[i]->base;
    }
    return count;
}

/* The most bases that all calls can touch together. */
static size_t count_touches(const sl__kernel_calls *calls)
{
    size_t count = 0;
    for (size_t i = 0; i < calls->count; i++)
        count += (size_t)calls->data[i].node->operand_count + SL__RESULTS_MAX;
    return count;
}

/* A call that waits for another, in a list of such calls. */
typedef struct follower {
    int call;
    int next; /* in `followers`; -1: the last */
} follower;

typedef struct orderer {
    const sl_stage *stage;
    const sl__kernel_calls *calls;
    const sl_tensor **bases; /* of the current call */
    int64_t *bytes;          /* by base: its bytes of workspace */
    int *left;               /* by base: calls that have not touched it yet */
    bool *alive;             /* by base */
    int *times;              /* by base: touches by the call that is weighed */
    uint64_t *stamps;        /* by base: for which call `times` was counted */
    uint64_t stamp;
    follower *followers;
    int *first_follower; /* by call: in `followers`; -1: none */
    int *waits;          /* by call: how many others it waits for */
} orderer;

/* ---------------------------------------------------------------- alive -- */

static void start_count(orderer *o)
{
    size_t tensors = o->stage->graph->tensor_count;
    memset(o->left, 0, tensors * sizeof *o->left);
    memset(o->alive, 0, tensors * sizeof *o->alive);
    for (size_t i = 0; i < o->calls->count; i++) {
        int operands;
        int count = list_touched(&o->calls->data[i], o->bases, &operands);
        for (int k = 0; k < count; k++)
            o->left[o->bases[k]->id]++;
    }
}

/* By how many bytes more, or fewer, are alive after a call; `commit` runs
 * it. */
static int64_t weigh(orderer *o, const sl__kernel_call *call, bool commit)
{
    int operands;
    int count = list_touched(call, o->bases, &operands);
    int64_t more = 0;
    o->stamp++;
    for (int k = 0; k < count; k++) {
        int id = o->bases[k]->id;
        if (o->stamps[id] != o->stamp) {
            o->stamps[id] = o->stamp;
            o->times[id] = 0;
            more += o->alive[id] ? 0 : o->bytes[id];
        }
        /* The last touch of a base frees it. */
        if (++o->times[id] == o->left[id])
            more -= o->bytes[id];
    }
    for (int k = 0; k < count && commit; k++) {
        int id = o->bases[k]->id;
        o->alive[id] = --o->left[id] > 0;
    }
    return more;
}

/* --------------------------------------------------------------- waiting -- */

/* Lists which call waits for which: a call waits for the last writer of
 * whatever it touches. Nothing is written again once it was read, so no call
 * waits for readers. */
static sl_status find_waits(orderer *o, sl__arena *scratch)
{
    size_t tensors = o->stage->graph->tensor_count, calls = o->calls->count;
    int *writer, *last, count = 0;
    SL__TRY(SL__TAKE(scratch, tensors, &writer));
    SL__TRY(SL__TAKE(scratch, calls, &last));
    SL__TRY(SL__TAKE(scratch, calls, &o->waits));
    SL__TRY(SL__TAKE(scratch, calls, &o->first_follower));
    SL__TRY(SL__TAKE(scratch, count_touches(o->calls), &o->followers));
    for (size_t i = 0; i < tensors; i++)
        writer[i] = -1;
    for (int i = 0; i < (int)calls; i++) {
        int operands, touched;
        touched = list_touched(&o->calls->data[i], o->bases, &operands);
        o->first_follower[i] = -1;
        for (int k = 0; k < touched; k++) {
            int id = o->bases[k]->id, before = writer[id];
            if (before >= 0 && before != i) {
                int *link = o->first_follower[before] < 0
                                ? &o->first_follower[before]
                                : &o->followers[last[before]].next;
                o->followers[count] = (follower){i, -1};
                *link = last[before] = count++;
                o->waits[i]++;
            }
            if (k >= operands)
                writer[id] = i;
        }
    }
    return SL_OK;
}

/* ---------------------------------------------------------------- orders -- */

/* Always takes the ready call after which the fewest bytes are alive; on a tie
 * the earlier one. If very many are ready, only the latest are considered. */
static void order_greedily(orderer *o, int *waits, int *ready, int *order)
{
    size_t calls = o->calls->count, ready_count = 0;
    start_count(o);
    memcpy(waits, o->waits, calls * sizeof *waits);
    for (size_t i = 0; i < calls; i++) {
        if (waits[i] == 0)
            ready[ready_count++] = (int)i;
    }
    for (size_t at = 0; at < calls; at++) {
        enum { LOOKED_AT = 128 };
        size_t first = ready_count > LOOKED_AT ? ready_count - LOOKED_AT : 0;
        size_t best = first;
        int64_t least = INT64_MAX;
        for (size_t i = first; i < ready_count; i++) {
            int64_t after = weigh(o, &o->calls->data[ready[i]], false);
            if (after < least || (after == least && ready[i] < ready[best])) {
                least = after;
                best = i;
            }
        }
        int taken = ready[best];
        ready[best] = ready[--ready_count];
        weigh(o, &o->calls->data[taken], true);
        order[at] = taken;
        for (int f = o->first_follower[taken]; f >= 0;
             f = o->followers[f].next) {
            if (--waits[o->followers[f].call] == 0)
                ready[ready_count++] = o->followers[f].call;
        }
    }
}

/* The calls of W come last. */
static void order_i_then_w(const orderer *o, const bool *in_w, int *order)
{
    size_t at = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < o->calls->count; i++) {
            if (in_w[o->calls->data[i].node->index] == (pass == 1))
                order[at++] = (int)i;
        }
    }
}

/* What each base takes of B's workspace; 0 if it lies elsewhere. */
static void count_bytes(orderer *o)
{
    const sl_stage *stage = o->stage;
    for (size_t i = 0; i < stage->graph->tensor_count; i++) {
        const sl_tensor *base = stage->graph->tensors[i];
        if (base->base == base && base->leaf == SL__RESULT &&
            !sl__is_carried_in(stage, SL_PROGRAM_B, base) &&
            !sl__is_message(stage, base))
            o->bytes[i] = sl__aligned(sl__bytes(base));
    }
}

static sl_status propose(orderer *o, sl__arena *scratch, int **orders)
{
    size_t tensors = o->stage->graph->tensor_count, calls = o->calls->count;
    int *waits, *ready;
    SL__TRY(SL__TAKE(scratch, count_touches(o->calls), &o->bases));
    SL__TRY(SL__TAKE(scratch, tensors, &o->bytes));
    SL__TRY(SL__TAKE(scratch, tensors, &o->left));
    SL__TRY(SL__TAKE(scratch, tensors, &o->alive));
    SL__TRY(SL__TAKE(scratch, tensors, &o->times));
    SL__TRY(SL__TAKE(scratch, tensors, &o->stamps));
    SL__TRY(SL__TAKE(scratch, calls, &waits));
    SL__TRY(SL__TAKE(scratch, calls, &ready));
    count_bytes(o);
    SL__TRY(find_waits(o, scratch));
    for (size_t i = 0; i < calls; i++)
        orders[0][i] = (int)i; /* as emitted */
    order_i_then_w(o, o->stage->in_w, orders[1]);
    order_greedily(o, waits, ready, orders[2]);
    return SL_OK;
}

sl_status sl__propose_orders(const sl_stage *stage, sl__arena *scratch,
                             int *orders[SL__ORDER_COUNT])
{
    const sl__kernel_calls *calls = &stage->programs[SL_PROGRAM_B];
    orderer o = {.stage = stage, .calls = calls};
    assert(stage->touches[SL_PROGRAM_B]);
    return calls->count ? propose(&o, scratch, orders) : SL_OK;
}

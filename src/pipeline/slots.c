/* SPDX-License-Identifier: MIT
 *
 * Slots: which microbatch has which, and how many there must be. A send is
 * complete when its receiver has a slot for it, so too few slots could make
 * ranks wait for each other: the lists of all ranks are tried out on paper, and
 * where they would, the stages that have no room get a slot more than they have
 * microbatches in flight. */
#include "pipeline/bind.h"

#include "base/memory.h"

#include <string.h>

static bool is_backward_end(sl_action_kind kind)
{
    return kind == SL_BACKWARD || kind == SL_BACKWARD_WEIGHT;
}

static bool is_send(sl_action_kind kind)
{
    return kind == SL_SEND_F || kind == SL_SEND_B;
}

/* The last action of this rank that needs what F of a microbatch left: in a
 * step its own B or W, or the send of what that made; in an eval the F of a
 * stage here that reads it. */
void sl__find_lasts(sl__binder *b)
{
    for (size_t i = 0; i < b->order_count; i++) {
        const sl_action *action = &b->order[i];
        int s = action->stage, m = action->microbatch;
        bool forward = action->kind == SL_FORWARD;
        bool sends = b->train && is_send(action->kind);
        if (forward || sends || (b->train && is_backward_end(action->kind)))
            b->lasts[sl__cell(b, s, m)] = i;
        if (sends)
            b->placed[action->kind == SL_SEND_B][sl__cell(b, s, m)] = true;
        for (int e = 0; e < b->edge_count && forward && !b->train; e++) {
            if (b->edges[e].to == s && sl__is_here(b, b->edges[e].from))
                b->lasts[sl__cell(b, b->edges[e].from, m)] = i;
        }
    }
}

/* How many microbatches are in flight at once in each lane of the rank. */
static sl_status count_peaks(sl__binder *b)
{
    size_t lanes = (size_t)b->bound->lane_count;
    int *live;
    sl_status status = sl__alloc(lanes, sizeof *live, &live);
    if (status)
        return status;
    for (size_t i = 0; i < b->order_count; i++) {
        const sl_action *action = &b->order[i];
        int m = action->microbatch;
        if (sl_action_kind_family(action->kind) != SL_FAMILY_COMPUTE &&
            !is_send(action->kind))
            continue;
        if (action->kind == SL_FORWARD) {
            size_t lane =
                (size_t)(sl__lane_of(b, action->stage, m) - b->bound->lanes);
            int *peak = &b->peaks[b->train][lane];
            live[lane]++;
            *peak = live[lane] > *peak ? live[lane] : *peak;
        }
        /* An action frees slots of its own microbatch alone. */
        for (int s = 0; s < b->pipeline->stages; s++) {
            if (sl__is_here(b, s) && b->lasts[sl__cell(b, s, m)] == i)
                live[sl__lane_of(b, s, m) - b->bound->lanes]--;
        }
    }
    free(live);
    return SL_OK;
}

sl_status sl__deal_slots(sl__binder *b)
{
    size_t microbatches = (size_t)b->pipeline->microbatches;
    size_t cells = (size_t)b->bound->lane_count * microbatches;
    size_t *free_at;     /* by lane and slot: the action that it is free for */
    int *holders = NULL; /* likewise: the latest that had it, +1 */
    sl_status status = sl__alloc(cells, sizeof *free_at, &free_at);
    if (status)
        return status;
    status = sl__alloc(cells, sizeof *holders, &holders);
    for (size_t i = 0; i < b->order_count && !status; i++) {
        const sl_action *action = &b->order[i];
        int s = action->stage, m = action->microbatch;
        if (action->kind != SL_FORWARD)
            continue;
        sl__lane *lane = sl__lane_of(b, s, m);
        size_t number = (size_t)(lane - b->bound->lanes);
        size_t base = number * microbatches, best = base;
        int count = b->peaks[b->train][number] + b->extras[b->train][number];
        count = count < (int)microbatches ? count : (int)microbatches;
        for (size_t c = base; c < base + (size_t)count; c++)
            best = free_at[c] < free_at[best] ? c : best;
        b->nexts[sl__cell(b, s, m)] = -1;
        b->follows[sl__cell(b, s, m)] = holders[best];
        if (holders[best])
            b->nexts[sl__cell(b, s, holders[best] - 1)] = m;
        holders[best] = m + 1;
        free_at[best] = b->lasts[sl__cell(b, s, m)] + 1;
        b->slots[sl__cell(b, s, m)] = (int)(best - base);
        lane->slots = count > lane->slots ? count : lane->slots;
    }
    free(free_at);
    free(holders);
    return status;
}

size_t sl__place_mails(sl__binder *b, bool all)
{
    size_t count = 0;
    for (int i = 0; i < b->bound->lane_count; i++) {
        sl__lane *lane = &b->bound->lanes[i];
        lane->mails = count;
        if (all || sl__is_here(b, lane->stage))
            count += 2 * (size_t)lane->slots * (size_t)b->touching[lane->stage];
    }
    return count;
}

/* ------------------------------------------------------------- on paper -- */

/* Lists of all ranks, tried out on paper. */
typedef struct paper {
    sl__instructions *lists; /* by rank */
    size_t *at;              /* the next instruction */
    bool *sent, *posted;     /* by tag */
    sl__mail *mails;
} paper;

/* Does what a rank can do now; true where it did something. */
static bool advance(paper *p, int rank)
{
    const sl__instructions *list = &p->lists[rank];
    size_t before = p->at[rank];
    for (; p->at[rank] < list->count; p->at[rank]++) {
        const sl__instruction *i = &list->data[p->at[rank]];
        sl__mail *mail = i->u.message.mail;
        int tag = i->u.message.tag;
        switch (i->kind) {
        case SL__DO_SEND:
        case SL__DO_RECV:
            (i->kind == SL__DO_SEND ? p->sent : p->posted)[tag] = true;
            mail->posted = true;
            mail->tag = tag;
            break;
        case SL__DO_WAIT:
            if (i->u.message.own && mail->tag != tag)
                break;
            if (mail->posted && !(p->sent[mail->tag] && p->posted[mail->tag]))
                return p->at[rank] > before;
            mail->posted = false;
            break;
        default: break;
        }
    }
    return p->at[rank] > before;
}

/* Gives the receivers of messages that ranks wait to be rid of a slot more;
 * false where there is none, or it has all that it could have. */
static bool widen(sl__binder *b, const paper *p)
{
    bool widened = false;
    for (int r = 0; r < b->pipeline->ranks; r++) {
        const sl__instructions *list = &p->lists[r];
        if (p->at[r] == list->count)
            continue;
        const sl__instruction *i = &list->data[p->at[r]];
        int tag = i->u.message.mail->tag;
        if (!p->sent[tag] || p->posted[tag])
            continue;
        int m = tag % b->pipeline->microbatches;
        sl__lane *lane = sl__lane_of(b, i->u.message.peer_stage, m);
        int *extra = &b->extras[b->train][lane - b->bound->lanes];
        if (*extra < b->pipeline->microbatches) {
            ++*extra;
            widened = true;
        }
    }
    return widened;
}

/* Makes the lists of all ranks, and tries them out; true in `*out_ends` where
 * every rank comes to its end. */
static sl_status try_out(sl__binder *b, paper *p, bool *out_ends)
{
    int ranks = b->pipeline->ranks;
    sl_status status = SL_OK;
    for (int r = 0; r < ranks && !status; r++) {
        sl__turn_to(b, r);
        status = sl__deal_slots(b);
    }
    if (!status)
        status =
            sl__alloc(sl__place_mails(b, true), sizeof *p->mails, &p->mails);
    b->mails = p->mails;
    for (int r = 0; r < ranks && !status; r++) {
        sl__turn_to(b, r);
        b->list = &p->lists[r];
        b->list->count = 0;
        status = sl__emit_list(b);
    }
    for (bool moved = true; moved && !status;) {
        moved = false;
        for (int r = 0; r < ranks; r++)
            moved |= advance(p, r);
    }
    *out_ends = true;
    for (int r = 0; r < ranks && !status; r++)
        *out_ends &= p->at[r] == p->lists[r].count;
    return status;
}

static sl_status find_slots_on(sl__binder *b, paper *p)
{
    int ranks = b->pipeline->ranks;
    size_t tags = 2 * (size_t)b->edge_count * (size_t)b->pipeline->microbatches;
    bool ends = false;
    sl_status status = SL_OK;
    for (int r = 0; r < ranks && !status; r++) {
        sl__turn_to(b, r);
        sl__find_lasts(b);
        status = count_peaks(b);
    }
    while (!status && !ends) {
        memset(p->at, 0, sizeof *p->at * (size_t)ranks);
        memset(p->sent, 0, tags);
        memset(p->posted, 0, tags);
        status = try_out(b, p, &ends);
        if (!status && !ends && !widen(b, p))
            status = sl_fail(SL_EUNSOUND, "the ranks would wait for each other "
                                          "for ever");
        free(p->mails);
        p->mails = NULL;
    }
    return status;
}

sl_status sl__find_slots(sl__binder *b)
{
    size_t ranks = (size_t)b->pipeline->ranks;
    size_t tags = 2 * (size_t)b->edge_count * (size_t)b->pipeline->microbatches;
    paper p = {0};
    sl_status status = sl__alloc(ranks, sizeof *p.lists, &p.lists);
    if (!status)
        status = sl__alloc(ranks, sizeof *p.at, &p.at);
    if (!status)
        status = sl__alloc(tags, sizeof *p.sent, &p.sent);
    if (!status)
        status = sl__alloc(tags, sizeof *p.posted, &p.posted);
    b->on_paper = true;
    if (!status)
        status = find_slots_on(b, &p);
    b->on_paper = false;
    for (size_t r = 0; p.lists && r < ranks; r++)
        free(p.lists[r].data);
    free(p.lists);
    free(p.at);
    free(p.sent);
    free(p.posted);
    return status;
}

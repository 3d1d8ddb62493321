/* SPDX-License-Identifier: MIT
 *
 * Binding: from the order of a rank's actions to a list of instructions with
 * every address, size, peer and tag in place.
 *
 * Requires: a sound order, models whose stages are those of the schedule.
 * Ensures: a slot belongs to one microbatch at a time; memory that a message
 * leaves from or arrives in is not touched before the message is complete; and
 * no rank waits for ever. A send is complete when its receiver has a slot for
 * it, so too few slots could make ranks wait for each other: the lists of all
 * ranks are tried out on paper, and where they would, the stages that have no
 * room get a slot more than they have microbatches in flight. */
#include "pipeline/runtime.h"

#include "base/memory.h"
#include "tensor/program.h"

#include <string.h>

/* Where a message waits: by slot of a lane, edge and direction. */
typedef enum way { RECV_F, SEND_F, RECV_B, SEND_B, WAYS } way;

typedef struct binder {
    sl_pipeline *pipeline;
    sl__bound *bound;
    const sl_edge *edges;
    int edge_count;
    /* Of the rank and the list at hand. */
    int rank;
    bool train;    /* of a step, else of an eval */
    bool on_paper; /* without memory */
    const sl_action *order;
    size_t order_count;
    sl__instructions *list;
    sl__mail *mails;
    /* By stage and microbatch, of all ranks, in the kind of list at hand. */
    int *slots;
    int *nexts;    /* who has the slot next; -1: nobody */
    bool *follows; /* somebody had it before */
    size_t *lasts; /* the action that frees it */
    /* Edges at each stage, and the number of each at its producer and its
     * consumer. */
    int *touching;
    int *edge_at[2];
    /* By kind of list and lane: microbatches in flight, and slots besides. */
    int *peaks[2];
    int *extras[2];
} binder;

static int at(const binder *b, int stage, int microbatch)
{
    return stage * b->pipeline->microbatches + microbatch;
}

static bool is_here(const binder *b, int stage)
{
    return b->pipeline->rank_of[stage] == b->rank;
}

static int own_rank(const binder *b)
{
    return sl_comm_rank(b->pipeline->comm);
}

/* Turns to the list of a rank. */
static void turn_to(binder *b, int rank)
{
    b->rank = rank;
    b->order = b->pipeline->orders[rank];
    b->order_count = b->pipeline->order_counts[rank];
}

static sl__lane *lane_of(const binder *b, int stage, int microbatch)
{
    sl__lane *lane = b->bound->lanes;
    while (lane->stage != stage || lane->rows != b->bound->rows[microbatch])
        lane++;
    return lane;
}

/* ---------------------------------------------------------------- lanes -- */

static sl_status add_lane(binder *b, int stage, int64_t rows)
{
    sl__bound *bound = b->bound;
    for (int i = 0; i < bound->lane_count; i++) {
        if (bound->lanes[i].stage == stage && bound->lanes[i].rows == rows)
            return SL_OK;
    }
    sl__lane *lane = &bound->lanes[bound->lane_count];
    *lane = (sl__lane){.stage = stage, .rows = rows};
    sl_status status = SL_OK;
    if (is_here(b, stage))
        status = sl_programs_stage(b->pipeline->programs, rows, stage,
                                   &lane->program_stage);
    if (!status)
        bound->lane_count++;
    return status;
}

static sl_status make_lanes(binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    size_t most = (size_t)pipeline->stages * (size_t)pipeline->microbatches;
    sl_status status = sl__arena_take(
        &b->bound->arena, most, sizeof *b->bound->lanes, &b->bound->lanes);
    for (int s = 0; s < pipeline->stages && !status; s++) {
        for (int m = 0; m < pipeline->microbatches && !status; m++)
            status = add_lane(b, s, b->bound->rows[m]);
    }
    for (int kind = 0; kind < 2 && !status; kind++) {
        size_t lanes = (size_t)b->bound->lane_count;
        status = sl__arena_take(&b->bound->arena, lanes, sizeof *b->peaks[kind],
                                &b->peaks[kind]);
        if (!status)
            status = sl__arena_take(&b->bound->arena, lanes,
                                    sizeof *b->extras[kind], &b->extras[kind]);
    }
    return status;
}

/* ---------------------------------------------------------------- slots -- */

static bool is_backward_end(sl_action_kind kind)
{
    return kind == SL_BACKWARD || kind == SL_BACKWARD_WEIGHT;
}

/* The last action of this rank that needs what F of a microbatch left: in a
 * step its own B or W; in an eval the F of a stage here that reads it. */
static void find_lasts(binder *b)
{
    for (size_t i = 0; i < b->order_count; i++) {
        const sl_action *action = &b->order[i];
        int s = action->stage, m = action->microbatch;
        bool forward = action->kind == SL_FORWARD;
        if (forward || (b->train && is_backward_end(action->kind)))
            b->lasts[at(b, s, m)] = i;
        for (int e = 0; e < b->edge_count && forward && !b->train; e++) {
            if (b->edges[e].to == s && is_here(b, b->edges[e].from))
                b->lasts[at(b, b->edges[e].from, m)] = i;
        }
    }
}

/* How many microbatches are in flight at once in each lane of the rank. */
static sl_status count_peaks(binder *b)
{
    size_t lanes = (size_t)b->bound->lane_count;
    int *live;
    sl_status status = sl__alloc(lanes, sizeof *live, &live);
    if (status)
        return status;
    for (size_t i = 0; i < b->order_count; i++) {
        const sl_action *action = &b->order[i];
        int m = action->microbatch;
        if (action->kind == SL_FORWARD) {
            size_t lane =
                (size_t)(lane_of(b, action->stage, m) - b->bound->lanes);
            int *peak = &b->peaks[b->train][lane];
            live[lane]++;
            *peak = live[lane] > *peak ? live[lane] : *peak;
        }
        /* An action frees slots of its own microbatch alone. */
        for (int s = 0; s < b->pipeline->stages; s++) {
            if (is_here(b, s) && b->lasts[at(b, s, m)] == i)
                live[lane_of(b, s, m) - b->bound->lanes]--;
        }
    }
    free(live);
    return SL_OK;
}

/* Deals slots out in the order of F: that which has been free longest, so that
 * receives are posted early. */
static sl_status deal_slots(binder *b)
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
        sl__lane *lane = lane_of(b, s, m);
        size_t number = (size_t)(lane - b->bound->lanes);
        size_t base = number * microbatches, best = base;
        int count = b->peaks[b->train][number] + b->extras[b->train][number];
        count = count < (int)microbatches ? count : (int)microbatches;
        for (size_t c = base; c < base + (size_t)count; c++)
            best = free_at[c] < free_at[best] ? c : best;
        b->nexts[at(b, s, m)] = -1;
        b->follows[at(b, s, m)] = holders[best];
        if (holders[best])
            b->nexts[at(b, s, holders[best] - 1)] = m;
        holders[best] = m + 1;
        free_at[best] = b->lasts[at(b, s, m)] + 1;
        b->slots[at(b, s, m)] = (int)(best - base);
        lane->slots = count > lane->slots ? count : lane->slots;
    }
    free(free_at);
    free(holders);
    return status;
}

static sl_status make_memory(binder *b)
{
    sl_pipeline *pipeline = b->pipeline;
    sl_status status = SL_OK;
    for (int i = 0; i < b->bound->lane_count && !status; i++) {
        sl__lane *lane = &b->bound->lanes[i];
        if (pipeline->rank_of[lane->stage] != own_rank(b))
            continue;
        sl_memory **owner = &pipeline->owners[lane->stage];
        int slots = lane->slots ? lane->slots : 1;
        if (*owner) {
            status = sl_memory_create_beside(lane->program_stage, slots, *owner,
                                             &lane->memory);
            continue;
        }
        status = sl_memory_create(lane->program_stage, slots, owner);
        if (!status) {
            lane->memory = *owner;
            lane->slots = slots;
            pipeline->owner_stages[lane->stage] = lane->program_stage;
        }
    }
    return status;
}

/* How many mails the lanes need as they are, each where its first will lie: two
 * for every slot and edge of the stage. Without `all`, those of the rank at
 * hand alone. */
static size_t place_mails(binder *b, bool all)
{
    size_t count = 0;
    for (int i = 0; i < b->bound->lane_count; i++) {
        sl__lane *lane = &b->bound->lanes[i];
        lane->mails = count;
        if (all || is_here(b, lane->stage))
            count += 2 * (size_t)lane->slots * (size_t)b->touching[lane->stage];
    }
    return count;
}

/* Counts the edges of each stage, and each edge at its stages. */
static sl_status count_edges(binder *b)
{
    sl__arena *arena = &b->bound->arena;
    sl_status status = sl__arena_take(arena, (size_t)b->pipeline->stages,
                                      sizeof *b->touching, &b->touching);
    for (int side = 0; side < 2 && !status; side++)
        status = sl__arena_take(arena, (size_t)b->edge_count,
                                sizeof *b->edge_at[side], &b->edge_at[side]);
    for (int e = 0; e < b->edge_count && !status; e++) {
        b->edge_at[0][e] = b->touching[b->edges[e].from]++;
        b->edge_at[1][e] = b->touching[b->edges[e].to]++;
    }
    return status;
}

static sl__mail *mail_of(const binder *b, int stage, int microbatch, int edge,
                         way w)
{
    const sl__lane *lane = lane_of(b, stage, microbatch);
    bool at_consumer = w == RECV_F || w == SEND_B;
    bool backward = w == RECV_B || w == SEND_B;
    size_t slot = (size_t)b->slots[at(b, stage, microbatch)];
    size_t cell = slot * (size_t)b->touching[stage] +
                  (size_t)b->edge_at[at_consumer][edge];
    return &b->mails[lane->mails + 2 * cell + backward];
}

/* --------------------------------------------------------- instructions -- */

static sl_status emit(binder *b, const sl__instruction *instruction)
{
    sl__instructions *list = b->list;
    sl_status status = sl__grow(&list->data, &list->capacity, list->count + 1,
                                sizeof *list->data);
    if (!status)
        list->data[list->count++] = *instruction;
    return status;
}

/* The memory of a message of a stage's microbatch. */
static sl_status find_memory(const binder *b, int stage, int microbatch,
                             sl_port_kind kind, const char *name,
                             void **out_memory, size_t *out_bytes)
{
    const sl__lane *lane = lane_of(b, stage, microbatch);
    sl_port port;
    if (b->on_paper)
        return SL_OK;
    sl_status status = sl_stage_port(lane->program_stage, kind, name, &port);
    if (status)
        return status;
    *out_memory = sl__port_memory(lane->memory, &port,
                                  b->slots[at(b, stage, microbatch)]);
    *out_bytes = (size_t)port.bytes;
    return SL_OK;
}

static sl_status emit_message(binder *b, sl__instruction_kind kind, way w,
                              int e, int microbatch)
{
    static const sl_port_kind ports[WAYS] = {SL_PORT_INPUT, SL_PORT_OUTPUT,
                                             SL_PORT_OUTPUT_GRADIENT,
                                             SL_PORT_INPUT_GRADIENT};
    const sl_edge *edge = &b->edges[e];
    bool forward = w == RECV_F || w == SEND_F;
    bool at_producer = w == SEND_F || w == RECV_B;
    int stage = at_producer ? edge->from : edge->to;
    int other = at_producer ? edge->to : edge->from;
    int microbatches = b->pipeline->microbatches;
    sl__instruction out = {
        .kind = kind, .stage = stage, .microbatch = microbatch};
    out.u.message.mail = mail_of(b, stage, microbatch, e, w);
    out.u.message.peer = b->pipeline->rank_of[other];
    out.u.message.peer_stage = other;
    out.u.message.tag = (2 * e + !forward) * microbatches + microbatch;
    sl_status status =
        find_memory(b, stage, microbatch, ports[w],
                    w == RECV_B ? edge->gradient_name : edge->name,
                    &out.u.message.memory, &out.u.message.bytes);
    return status ? status : emit(b, &out);
}

/* For every edge of a stage that leaves this rank. */
static sl_status emit_messages(binder *b, sl__instruction_kind kind, way w,
                               int stage, int microbatch)
{
    bool at_producer = w == SEND_F || w == RECV_B;
    bool backward = w == RECV_B || w == SEND_B;
    sl_status status = SL_OK;
    for (int e = 0; e < b->edge_count && !status; e++) {
        const sl_edge *edge = &b->edges[e];
        int own = at_producer ? edge->from : edge->to;
        int other = at_producer ? edge->to : edge->from;
        if (own != stage || is_here(b, other) ||
            (backward && (!edge->gradient_name || !b->train)))
            continue;
        status = emit_message(b, kind, w, e, microbatch);
    }
    return status;
}

/* Receives of whoever has a slot now: nothing else uses the memory. */
static sl_status emit_receives(binder *b, int stage, int microbatch)
{
    sl_status status = emit_messages(b, SL__DO_RECV, RECV_F, stage, microbatch);
    if (!status)
        status = emit_messages(b, SL__DO_RECV, RECV_B, stage, microbatch);
    return status;
}

static sl_status emit_copy(binder *b, int e, int microbatch, bool forward)
{
    const sl_edge *edge = &b->edges[e];
    sl__instruction out = {.kind = SL__DO_COPY,
                           .stage = forward ? edge->to : edge->from,
                           .microbatch = microbatch};
    void *from = NULL;
    size_t bytes = 0;
    sl_status status =
        forward ? find_memory(b, edge->from, microbatch, SL_PORT_OUTPUT,
                              edge->name, &from, &bytes)
                : find_memory(b, edge->to, microbatch, SL_PORT_INPUT_GRADIENT,
                              edge->name, &from, &bytes);
    if (!status)
        status = forward
                     ? find_memory(b, edge->to, microbatch, SL_PORT_INPUT,
                                   edge->name, &out.u.copy.to, &bytes)
                     : find_memory(b, edge->from, microbatch,
                                   SL_PORT_OUTPUT_GRADIENT, edge->gradient_name,
                                   &out.u.copy.to, &bytes);
    out.u.copy.from = from;
    out.u.copy.bytes = bytes;
    return status ? status : emit(b, &out);
}

/* Between stages of this rank: into a stage before its F, out of it after its
 * backward. */
static sl_status emit_copies(binder *b, int stage, int microbatch, bool forward)
{
    sl_status status = SL_OK;
    for (int e = 0; e < b->edge_count && !status; e++) {
        const sl_edge *edge = &b->edges[e];
        if (edge->to == stage && is_here(b, edge->from) &&
            (forward || edge->gradient_name))
            status = emit_copy(b, e, microbatch, forward);
    }
    return status;
}

static bool goes_to(const sl_model_port *port, int stage)
{
    for (int i = 0; i < port->stage_count; i++) {
        if (port->stages[i] == stage)
            return true;
    }
    return false;
}

static sl_status emit_feeds(binder *b, int stage, int microbatch)
{
    int count;
    const sl_model_port *inputs = sl_model_inputs(b->bound->model, &count);
    sl_status status = SL_OK;
    for (int i = 0; i < count && !status; i++) {
        sl__instruction out = {
            .kind = SL__DO_FEED, .stage = stage, .microbatch = microbatch};
        if (!goes_to(&inputs[i], stage))
            continue;
        out.u.feed.argument = i;
        status = find_memory(b, stage, microbatch, SL_PORT_INPUT,
                             inputs[i].name, &out.u.feed.to, &out.u.feed.bytes);
        if (!status)
            status = emit(b, &out);
    }
    return status;
}

static sl_status emit_takes(binder *b, int stage, int microbatch)
{
    int count;
    const sl_model_port *outputs = sl_model_outputs(b->bound->model, &count);
    sl_status status = SL_OK;
    for (int i = 0; i < count && !status; i++) {
        sl__instruction out = {
            .kind = SL__DO_TAKE, .stage = stage, .microbatch = microbatch};
        void *from = NULL;
        if (!goes_to(&outputs[i], stage) ||
            (!outputs[i].is_loss && !b->pipeline->options.keep_outputs))
            continue;
        out.u.take.output = i;
        status = find_memory(b, stage, microbatch, SL_PORT_OUTPUT,
                             outputs[i].name, &from, &out.u.take.bytes);
        out.u.take.from = from;
        if (!status)
            status = emit(b, &out);
    }
    return status;
}

static sl_status emit_run(binder *b, int stage, int microbatch,
                          sl_program program)
{
    const sl__lane *lane = lane_of(b, stage, microbatch);
    sl__instruction out = {
        .kind = SL__DO_RUN, .stage = stage, .microbatch = microbatch};
    out.u.run.program_stage = lane->program_stage;
    out.u.run.memory = lane->memory;
    out.u.run.program = program;
    out.u.run.slot = b->slots[at(b, stage, microbatch)];
    return emit(b, &out);
}

static sl_status emit_forward(binder *b, int s, int m)
{
    sl_status status = emit_feeds(b, s, m);
    if (!status)
        status = emit_copies(b, s, m, true);
    if (!status)
        status = emit_messages(b, SL__DO_WAIT, RECV_F, s, m);
    /* What the slot held before has left. */
    if (!status)
        status = emit_messages(b, SL__DO_WAIT, SEND_F, s, m);
    if (!status)
        status = emit_run(b, s, m, SL_PROGRAM_F);
    if (!status)
        status = emit_messages(b, SL__DO_SEND, SEND_F, s, m);
    return status ? status : emit_takes(b, s, m);
}

static sl_status emit_backward(binder *b, int s, int m, sl_program program)
{
    sl_status status = emit_messages(b, SL__DO_WAIT, RECV_B, s, m);
    if (!status)
        status = emit_messages(b, SL__DO_WAIT, SEND_B, s, m);
    if (!status)
        status = emit_run(b, s, m, program);
    if (!status)
        status = emit_copies(b, s, m, false);
    return status ? status : emit_messages(b, SL__DO_SEND, SEND_B, s, m);
}

static sl_status emit_action(binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    if (action->kind == SL_FORWARD)
        return emit_forward(b, s, m);
    if (!b->train)
        return SL_OK;
    if (action->kind == SL_BACKWARD)
        return emit_backward(b, s, m, SL_PROGRAM_B);
    if (action->kind == SL_BACKWARD_INPUT)
        return emit_backward(b, s, m, SL_PROGRAM_I);
    return emit_run(b, s, m, SL_PROGRAM_W);
}

/* The receives of whoever follows into the slots that an action frees. */
static sl_status emit_followers(binder *b, size_t i)
{
    const sl_pipeline *pipeline = b->pipeline;
    int m = b->order[i].microbatch;
    sl_status status = SL_OK;
    for (int s = 0; s < pipeline->stages && !status; s++) {
        int next = b->nexts[at(b, s, m)];
        if (is_here(b, s) && next >= 0 && b->lasts[at(b, s, m)] == i)
            status = emit_receives(b, s, next);
    }
    return status;
}

static sl_status emit_list(binder *b)
{
    sl_status status = SL_OK;
    for (size_t i = 0; i < b->order_count && !status; i++) {
        const sl_action *action = &b->order[i];
        if (action->kind == SL_FORWARD &&
            !b->follows[at(b, action->stage, action->microbatch)])
            status = emit_receives(b, action->stage, action->microbatch);
    }
    for (size_t i = 0; i < b->order_count && !status; i++) {
        status = emit_action(b, &b->order[i]);
        if (!status)
            status = emit_followers(b, i);
    }
    /* At the end nothing is under way any more. */
    for (size_t i = 0; i < b->order_count && !status; i++) {
        const sl_action *action = &b->order[i];
        int s = action->stage, m = action->microbatch;
        if (action->kind != SL_FORWARD || b->nexts[at(b, s, m)] >= 0)
            continue;
        status = emit_messages(b, SL__DO_WAIT, SEND_F, s, m);
        if (!status)
            status = emit_messages(b, SL__DO_WAIT, SEND_B, s, m);
    }
    return status;
}

/* -------------------------------------------------------------- merging -- */

/* A part of an output as it is merged: scalars as one row each. */
static sl_status describe_part(const binder *b, const sl_model_port *port,
                               int microbatch, sl_array *out)
{
    sl_port own;
    const sl__lane *lane = lane_of(b, port->stages[0], microbatch);
    sl_status status =
        sl_stage_port(lane->program_stage, SL_PORT_OUTPUT, port->name, &own);
    if (status)
        return status;
    *out = (sl_array){.dtype = own.dtype, .dims = own.dims ? own.dims : 1};
    memcpy(out->shape, own.shape, sizeof out->shape);
    if (own.dims == 0)
        out->shape[0] = 1;
    return SL_OK;
}

static sl_status make_merges(binder *b)
{
    int count, microbatches = b->pipeline->microbatches;
    const sl_model_port *outputs = sl_model_outputs(b->bound->model, &count);
    sl_array *parts;
    sl_status status =
        sl__arena_take(&b->bound->arena, (size_t)count,
                       sizeof *b->bound->merges, &b->bound->merges);
    if (!status)
        status = sl__arena_take(&b->bound->arena, (size_t)microbatches,
                                sizeof *parts, &parts);
    for (int i = 0; i < count && !status; i++) {
        if (!is_here(b, outputs[i].stages[0]) ||
            !b->pipeline->options.keep_outputs)
            continue;
        for (int m = 0; m < microbatches && !status; m++)
            status = describe_part(b, &outputs[i], m, &parts[m]);
        if (!status)
            status = sl_merge_create(NULL, parts, NULL, microbatches,
                                     &b->bound->merges[i]);
    }
    return status;
}

static void weigh(const sl_pipeline *pipeline, sl__bound *bound)
{
    int64_t all = 0;
    int count = pipeline->microbatches;
    for (int m = 0; m < count; m++)
        all += bound->rows[m];
    for (int m = 0; m < count; m++) {
        bound->scales[m] =
            all ? (double)bound->rows[m] / (double)all : 1.0 / count;
        if (pipeline->options.loss == SL_LOSS_SUM)
            bound->scales[m] = 1;
    }
}

/* -------------------------------------------------------------- binding -- */

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
static bool widen(binder *b, const paper *p)
{
    bool widened = false;
    for (int r = 0; r < sl_comm_size(b->pipeline->comm); r++) {
        const sl__instructions *list = &p->lists[r];
        if (p->at[r] == list->count)
            continue;
        const sl__instruction *i = &list->data[p->at[r]];
        int tag = i->u.message.mail->tag;
        if (!p->sent[tag] || p->posted[tag])
            continue;
        int m = tag % b->pipeline->microbatches;
        sl__lane *lane = lane_of(b, i->u.message.peer_stage, m);
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
static sl_status try_out(binder *b, paper *p, bool *out_ends)
{
    int ranks = sl_comm_size(b->pipeline->comm);
    sl_status status = SL_OK;
    for (int r = 0; r < ranks && !status; r++) {
        turn_to(b, r);
        status = deal_slots(b);
    }
    if (!status)
        status = sl__alloc(place_mails(b, true), sizeof *p->mails, &p->mails);
    b->mails = p->mails;
    for (int r = 0; r < ranks && !status; r++) {
        turn_to(b, r);
        b->list = &p->lists[r];
        b->list->count = 0;
        status = emit_list(b);
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

static sl_status find_slots_on(binder *b, paper *p)
{
    int ranks = sl_comm_size(b->pipeline->comm);
    size_t tags = 2 * (size_t)b->edge_count * (size_t)b->pipeline->microbatches;
    bool ends = false;
    sl_status status = SL_OK;
    for (int r = 0; r < ranks && !status; r++) {
        turn_to(b, r);
        find_lasts(b);
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

/* How many slots each lane needs, in the kind of list at hand. */
static sl_status find_slots(binder *b)
{
    size_t ranks = (size_t)sl_comm_size(b->pipeline->comm);
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

/* The list of this rank, in memory that is there now. */
static sl_status bind_list(binder *b)
{
    b->list = b->train ? &b->bound->train : &b->bound->eval;
    turn_to(b, own_rank(b));
    find_lasts(b);
    sl_status status = deal_slots(b);
    return status ? status : emit_list(b);
}

/* Slots of both lists are found first: memory is made for the larger. */
static sl_status bind_lists(binder *b)
{
    bool steps = b->pipeline->options.stage.backward != SL_BACKWARD_NONE;
    sl_status status = SL_OK;
    for (int train = 0; train <= steps && !status; train++) {
        b->train = train;
        status = find_slots(b);
    }
    turn_to(b, own_rank(b));
    if (!status)
        status = make_memory(b);
    if (!status) {
        b->bound->mail_count = place_mails(b, false);
        status = sl__arena_take(&b->bound->arena, b->bound->mail_count,
                                sizeof *b->bound->mails, &b->bound->mails);
    }
    b->mails = b->bound->mails;
    for (int train = 0; train <= steps && !status; train++) {
        b->train = train;
        status = bind_list(b);
    }
    return status;
}

static sl_status check_sizes(const binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    int count, stages = sl_model_stage_count(b->bound->model);
    const sl_model_port *outputs = sl_model_outputs(b->bound->model, &count);
    if (stages != pipeline->stages)
        return sl_fail(SL_EINVAL,
                       "the model has %d stages, and the schedule %d", stages,
                       pipeline->stages);
    if (2 * (int64_t)b->edge_count * pipeline->microbatches >=
        SL_COMM_MAX_TAG / 2)
        return sl_fail(SL_EINVAL,
                       "%d edges of %d microbatches are more messages than "
                       "there are tags for",
                       b->edge_count, pipeline->microbatches);
    for (int i = 0; i < count; i++) {
        if (outputs[i].gradient)
            return sl_fail(SL_EINVAL,
                           "output '%.60s' takes a gradient, and a pipeline "
                           "has none for it",
                           outputs[i].name);
    }
    return SL_OK;
}

static sl_status bind_all(binder *b, const int64_t *rows)
{
    sl_pipeline *pipeline = b->pipeline;
    sl__bound *bound = b->bound;
    size_t microbatches = (size_t)pipeline->microbatches;
    size_t cells = (size_t)pipeline->stages * microbatches;
    sl_status status = sl__arena_take(&bound->arena, microbatches,
                                      sizeof *bound->rows, &bound->rows);
    if (!status)
        status = sl__arena_take(&bound->arena, microbatches,
                                sizeof *bound->scales, &bound->scales);
    if (!status)
        status =
            sl__arena_take(&bound->arena, cells, sizeof *b->slots, &b->slots);
    if (!status)
        status =
            sl__arena_take(&bound->arena, cells, sizeof *b->nexts, &b->nexts);
    if (!status)
        status = sl__arena_take(&bound->arena, cells, sizeof *b->follows,
                                &b->follows);
    if (!status)
        status =
            sl__arena_take(&bound->arena, cells, sizeof *b->lasts, &b->lasts);
    if (status)
        return status;
    memcpy(bound->rows, rows, microbatches * sizeof *rows);
    weigh(pipeline, bound);
    status = sl_programs_model(pipeline->programs, rows[0], &bound->model);
    if (status)
        return status;
    b->edges = sl_model_edges(bound->model, &b->edge_count);
    turn_to(b, own_rank(b));
    status = check_sizes(b);
    if (!status)
        status = count_edges(b);
    if (!status)
        status = make_lanes(b);
    if (!status)
        status = make_merges(b);
    return status ? status : bind_lists(b);
}

sl_status sl__bind(sl_pipeline *pipeline, const int64_t *rows, sl__bound **out)
{
    size_t bytes = sizeof *rows * (size_t)pipeline->microbatches;
    for (sl__bound *known = pipeline->bounds; known; known = known->next) {
        if (memcmp(known->rows, rows, bytes) == 0) {
            *out = known;
            return SL_OK;
        }
    }
    binder b = {.pipeline = pipeline};
    sl_status status = sl__alloc(1, sizeof *b.bound, &b.bound);
    if (status)
        return status;
    status = bind_all(&b, rows);
    if (status) {
        sl__unbind(pipeline, b.bound);
        return status;
    }
    b.bound->next = pipeline->bounds;
    pipeline->bounds = b.bound;
    *out = b.bound;
    return SL_OK;
}

void sl__unbind(const sl_pipeline *pipeline, sl__bound *bound)
{
    int outputs = 0;
    for (int i = 0; i < bound->lane_count; i++) {
        if (bound->lanes[i].memory != pipeline->owners[bound->lanes[i].stage])
            sl_memory_destroy(bound->lanes[i].memory);
    }
    if (bound->model)
        sl_model_outputs(bound->model, &outputs);
    for (int i = 0; i < outputs && bound->merges; i++)
        sl_merge_destroy(bound->merges[i]);
    free(bound->train.data);
    free(bound->eval.data);
    sl__arena_clear(&bound->arena);
    free(bound);
}

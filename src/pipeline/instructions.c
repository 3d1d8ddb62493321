/* SPDX-License-Identifier: MIT
 *
 * From actions to instructions: what goes before and after each program, with
 * every address, size, peer and tag in place. */
#include "pipeline/bind.h"

#include "base/memory.h"
#include "tensor/program.h"

static sl__mail *mail_of(const sl__binder *b, int stage, int microbatch,
                         int edge, sl__way w)
{
    const sl__lane *lane = sl__lane_of(b, stage, microbatch);
    bool at_consumer = w == SL__RECV_F || w == SL__SEND_B;
    bool backward = w == SL__RECV_B || w == SL__SEND_B;
    size_t slot = (size_t)b->slots[sl__cell(b, stage, microbatch)];
    size_t cell = slot * (size_t)b->touching[stage] +
                  (size_t)b->edge_at[at_consumer][edge];
    return &b->mails[lane->mails + 2 * cell + backward];
}

static sl_status emit(sl__binder *b, const sl__instruction *instruction)
{
    sl__instructions *list = b->list;
    sl_status status = sl__grow(&list->data, &list->capacity, list->count + 1,
                                sizeof *list->data);
    if (!status)
        list->data[list->count++] = *instruction;
    return status;
}

/* The memory of a message of a stage's microbatch. */
static sl_status find_memory(const sl__binder *b, int stage, int microbatch,
                             sl_port_kind kind, const char *name,
                             void **out_memory, size_t *out_bytes)
{
    const sl__lane *lane = sl__lane_of(b, stage, microbatch);
    sl_port port;
    if (b->on_paper)
        return SL_OK;
    sl_status status = sl_stage_port(lane->program_stage, kind, name, &port);
    if (status)
        return status;
    *out_memory = sl__port_memory(lane->memory, &port,
                                  b->slots[sl__cell(b, stage, microbatch)]);
    *out_bytes = (size_t)port.bytes;
    return SL_OK;
}

static sl_status emit_message(sl__binder *b, sl__instruction_kind kind,
                              sl__way w, int e, int microbatch)
{
    static const sl_port_kind ports[SL__WAYS] = {SL_PORT_INPUT, SL_PORT_OUTPUT,
                                                 SL_PORT_OUTPUT_GRADIENT,
                                                 SL_PORT_INPUT_GRADIENT};
    const sl_edge *edge = &b->edges[e];
    bool forward = w == SL__RECV_F || w == SL__SEND_F;
    bool at_producer = w == SL__SEND_F || w == SL__RECV_B;
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
                    w == SL__RECV_B ? edge->gradient_name : edge->name,
                    &out.u.message.memory, &out.u.message.bytes);
    return status ? status : emit(b, &out);
}

/* For every edge of a stage that leaves this rank. */
static sl_status emit_messages(sl__binder *b, sl__instruction_kind kind,
                               sl__way w, int stage, int microbatch)
{
    bool at_producer = w == SL__SEND_F || w == SL__RECV_B;
    bool backward = w == SL__RECV_B || w == SL__SEND_B;
    sl_status status = SL_OK;
    for (int e = 0; e < b->edge_count && !status; e++) {
        const sl_edge *edge = &b->edges[e];
        int own = at_producer ? edge->from : edge->to;
        int other = at_producer ? edge->to : edge->from;
        if (own != stage || sl__is_here(b, other) ||
            (backward && (!edge->gradient_name || !b->train)))
            continue;
        status = emit_message(b, kind, w, e, microbatch);
    }
    return status;
}

/* Receives of whoever has a slot now: nothing else uses the memory. */
static sl_status emit_receives(sl__binder *b, int stage, int microbatch)
{
    sl_status status =
        emit_messages(b, SL__DO_RECV, SL__RECV_F, stage, microbatch);
    if (!status)
        status = emit_messages(b, SL__DO_RECV, SL__RECV_B, stage, microbatch);
    return status;
}

static sl_status emit_copy(sl__binder *b, int e, int microbatch, bool forward)
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
static sl_status emit_copies(sl__binder *b, int stage, int microbatch,
                             bool forward)
{
    sl_status status = SL_OK;
    for (int e = 0; e < b->edge_count && !status; e++) {
        const sl_edge *edge = &b->edges[e];
        if (edge->to == stage && sl__is_here(b, edge->from) &&
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

static sl_status emit_feeds(sl__binder *b, int stage, int microbatch)
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

static sl_status emit_takes(sl__binder *b, int stage, int microbatch)
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

static sl_status emit_run(sl__binder *b, int stage, int microbatch,
                          sl_program program)
{
    const sl__lane *lane = sl__lane_of(b, stage, microbatch);
    sl__instruction out = {
        .kind = SL__DO_RUN, .stage = stage, .microbatch = microbatch};
    out.u.run.program_stage = lane->program_stage;
    out.u.run.memory = lane->memory;
    out.u.run.program = program;
    out.u.run.slot = b->slots[sl__cell(b, stage, microbatch)];
    return emit(b, &out);
}

static sl_status emit_forward(sl__binder *b, int s, int m)
{
    sl_status status = emit_feeds(b, s, m);
    if (!status)
        status = emit_copies(b, s, m, true);
    if (!status)
        status = emit_messages(b, SL__DO_WAIT, SL__RECV_F, s, m);
    /* What the slot held before has left. */
    if (!status)
        status = emit_messages(b, SL__DO_WAIT, SL__SEND_F, s, m);
    if (!status)
        status = emit_run(b, s, m, SL_PROGRAM_F);
    if (!status)
        status = emit_messages(b, SL__DO_SEND, SL__SEND_F, s, m);
    return status ? status : emit_takes(b, s, m);
}

static sl_status emit_backward(sl__binder *b, int s, int m, sl_program program)
{
    sl_status status = emit_messages(b, SL__DO_WAIT, SL__RECV_B, s, m);
    if (!status)
        status = emit_messages(b, SL__DO_WAIT, SL__SEND_B, s, m);
    if (!status)
        status = emit_run(b, s, m, program);
    if (!status)
        status = emit_copies(b, s, m, false);
    return status ? status : emit_messages(b, SL__DO_SEND, SL__SEND_B, s, m);
}

static sl_status emit_action(sl__binder *b, const sl_action *action)
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
static sl_status emit_followers(sl__binder *b, size_t i)
{
    const sl_pipeline *pipeline = b->pipeline;
    int m = b->order[i].microbatch;
    sl_status status = SL_OK;
    for (int s = 0; s < pipeline->stages && !status; s++) {
        int next = b->nexts[sl__cell(b, s, m)];
        if (sl__is_here(b, s) && next >= 0 && b->lasts[sl__cell(b, s, m)] == i)
            status = emit_receives(b, s, next);
    }
    return status;
}

sl_status sl__emit_list(sl__binder *b)
{
    sl_status status = SL_OK;
    for (size_t i = 0; i < b->order_count && !status; i++) {
        const sl_action *action = &b->order[i];
        if (action->kind == SL_FORWARD &&
            !b->follows[sl__cell(b, action->stage, action->microbatch)])
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
        if (action->kind != SL_FORWARD || b->nexts[sl__cell(b, s, m)] >= 0)
            continue;
        status = emit_messages(b, SL__DO_WAIT, SL__SEND_F, s, m);
        if (!status)
            status = emit_messages(b, SL__DO_WAIT, SL__SEND_B, s, m);
    }
    return status;
}

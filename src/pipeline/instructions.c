/* SPDX-License-Identifier: MIT
 *
 * From actions to instructions: what goes before and after each program, with
 * every address, size, peer and tag in place. */
#include "pipeline/bind.h"

#include "base/memory.h"
#include "schedule/action.h"
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

/* Whether the clock is looked at after an instruction: what moves a few bytes is
 * over before it has been. A wait looks for itself. */
static bool is_timed(const sl__instruction *i)
{
    enum { FEW_BYTES = 2048 };
    switch (i->kind) {
    case SL__DO_FEED: return i->u.feed.bytes > FEW_BYTES;
    case SL__DO_COPY: return i->u.copy.bytes > FEW_BYTES;
    case SL__DO_TAKE: return i->u.take.bytes > FEW_BYTES;
    case SL__DO_SEND:
    case SL__DO_RECV: return i->u.message.bytes > FEW_BYTES;
    case SL__DO_WAIT:
    case SL__DO_NOTHING: return false;
    default: return true;
    }
}

static sl_status emit(sl__binder *b, const sl__instruction *instruction)
{
    sl__instructions *list = b->list;
    sl_status status = sl__grow(&list->data, &list->capacity, list->count + 1,
                                sizeof *list->data);
    if (!status) {
        list->data[list->count] = *instruction;
        list->data[list->count++].timed = is_timed(instruction);
    }
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
                              sl__way w, int e, int microbatch, bool own)
{
    static const sl_port_kind ports[SL__WAYS] = {SL_PORT_INPUT, SL_PORT_OUTPUT,
                                                 SL_PORT_OUTPUT_GRADIENT,
                                                 SL_PORT_INPUT_GRADIENT};
    static const sl_action_kind actions[SL__WAYS] = {SL_RECV_F, SL_SEND_F,
                                                     SL_RECV_B, SL_SEND_B};
    const sl_edge *edge = &b->edges[e];
    bool forward = w == SL__RECV_F || w == SL__SEND_F;
    bool at_producer = w == SL__SEND_F || w == SL__RECV_B;
    int stage = at_producer ? edge->from : edge->to;
    int other = at_producer ? edge->to : edge->from;
    int microbatches = b->pipeline->microbatches;
    sl__instruction out = {
        .kind = kind, .action = sl_action_make(actions[w], stage, microbatch)};
    out.u.message.mail = mail_of(b, stage, microbatch, e, w);
    out.u.message.peer =
        sl__comm_rank(b->pipeline, b->pipeline->rank_of[other]);
    out.u.message.peer_stage = other;
    out.u.message.tag = (2 * e + !forward) * microbatches + microbatch;
    out.u.message.own = own;
    sl_status status =
        find_memory(b, stage, microbatch, ports[w],
                    w == SL__RECV_B ? edge->gradient_name : edge->name,
                    &out.u.message.memory, &out.u.message.bytes);
    return status ? status : emit(b, &out);
}

/* For every edge of a stage that leaves this rank. A wait may be for the
 * message of this microbatch alone (`own`), or for whatever is in its mail. */
static sl_status emit_each(sl__binder *b, sl__instruction_kind kind, sl__way w,
                           int stage, int microbatch, bool own_message)
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
        status = emit_message(b, kind, w, e, microbatch, own_message);
    }
    return status;
}

static sl_status emit_messages(sl__binder *b, sl__instruction_kind kind,
                               sl__way w, int stage, int microbatch)
{
    return emit_each(b, kind, w, stage, microbatch, false);
}

/* A SEND that has a place of its own. */
static sl_status emit_send(sl__binder *b, const sl_action *send)
{
    sl__way w = send->kind == SL_SEND_F ? SL__SEND_F : SL__SEND_B;
    return emit_messages(b, SL__DO_SEND, w, send->stage, send->microbatch);
}

/* A WAIT_SEND: what has left its slot since was waited for then. */
static sl_status emit_send_wait(sl__binder *b, const sl_action *wait)
{
    sl__way w = wait->kind == SL_WAIT_SEND_F ? SL__SEND_F : SL__SEND_B;
    return emit_each(b, SL__DO_WAIT, w, wait->stage, wait->microbatch, true);
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
    sl__instruction out = {
        .kind = SL__DO_COPY,
        .action = forward
                      ? sl_action_make(SL_FORWARD, edge->to, microbatch)
                      : sl_action_make(SL_BACKWARD, edge->from, microbatch)};
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
            .kind = SL__DO_FEED,
            .action = sl_action_make(SL_FORWARD, stage, microbatch)};
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
            .kind = SL__DO_TAKE,
            .action = sl_action_make(SL_FORWARD, stage, microbatch)};
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

static sl_program program_of(sl_action_kind kind)
{
    switch (kind) {
    case SL_FORWARD: return SL_PROGRAM_F;
    case SL_BACKWARD_INPUT: return SL_PROGRAM_I;
    case SL_BACKWARD_WEIGHT: return SL_PROGRAM_W;
    default: return SL_PROGRAM_B;
    }
}

static const sl_action_function *find_function(const sl__binder *b,
                                               sl_action_kind kind)
{
    const sl_action_function *found = &b->pipeline->functions[kind];
    return found->call ? found : NULL;
}

static sl_status emit_run(sl__binder *b, const sl_action *action, bool joined)
{
    const sl__lane *lane = sl__lane_of(b, action->stage, action->microbatch);
    sl__instruction out = {
        .kind = SL__DO_RUN, .joined = joined, .action = *action};
    out.u.run.program_stage = lane->program_stage;
    out.u.run.memory = lane->memory;
    out.u.run.function =
        find_function(b, joined ? SL_OVERLAP_F_B : action->kind);
    out.u.run.program = program_of(action->kind);
    if (b->wholes[action->stage] && action->kind == SL_BACKWARD_INPUT)
        out.u.run.program = SL_PROGRAM_B;
    if (b->wholes[action->stage] && action->kind == SL_BACKWARD_WEIGHT)
        out.kind = SL__DO_NOTHING;
    out.u.run.slot = b->slots[sl__cell(b, action->stage, action->microbatch)];
    return emit(b, &out);
}

/* What comes before a program: inputs are there, and what the slot held before
 * has left. */
static sl_status emit_before(sl__binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    if (action->kind == SL_BACKWARD_WEIGHT)
        return SL_OK;
    bool forward = action->kind == SL_FORWARD;
    sl_status status = forward ? emit_feeds(b, s, m) : SL_OK;
    if (!status && forward)
        status = emit_copies(b, s, m, true);
    if (!status)
        status = emit_messages(b, SL__DO_WAIT,
                               forward ? SL__RECV_F : SL__RECV_B, s, m);
    if (!status)
        status = emit_messages(b, SL__DO_WAIT,
                               forward ? SL__SEND_F : SL__SEND_B, s, m);
    return status;
}

static sl_status emit_after(sl__binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    if (action->kind == SL_BACKWARD_WEIGHT)
        return SL_OK;
    bool forward = action->kind == SL_FORWARD;
    bool placed = b->train && b->placed[!forward][sl__cell(b, s, m)];
    sl_status status = forward ? SL_OK : emit_copies(b, s, m, false);
    if (!status && !placed)
        status = emit_messages(b, SL__DO_SEND,
                               forward ? SL__SEND_F : SL__SEND_B, s, m);
    if (!status && forward)
        status = emit_takes(b, s, m);
    return status;
}

/* What waits at the end of a stage's last backward is added before its gradients
 * are read, and after all that other ranks wait for. */
static sl_status emit_settling(sl__binder *b, int stage)
{
    int microbatch = -1;
    for (size_t i = 0; i < b->order_count; i++) {
        if (b->order[i].stage == stage && sl__ends_microbatch(b->order[i].kind))
            microbatch = b->order[i].microbatch;
    }
    if (microbatch < 0 || !b->train || b->on_paper ||
        b->pipeline->waits != SL_ADD_LATE)
        return SL_OK;
    const sl__lane *lane = sl__lane_of(b, stage, microbatch);
    sl__instruction out = {.kind = SL__DO_SETTLE,
                           .action = sl_action_make(SL_REDUCE_GRAD, stage, 0)};
    out.u.run.program_stage = lane->program_stage;
    out.u.run.memory = lane->memory;
    return sl__stage_waits(lane->program_stage) ? emit(b, &out) : SL_OK;
}

/* With replicas, or with a function of the caller's, sharding is something to
 * do. */
static sl_status emit_state(sl__binder *b, const sl_action *action)
{
    const sl_action_function *function = find_function(b, action->kind);
    sl__instruction out = {.kind = SL__DO_STATE, .action = *action};
    sl_status status = action->kind == SL_REDUCE_GRAD
                           ? emit_settling(b, action->stage)
                           : SL_OK;
    if (status)
        return status;
    if ((!b->train && action->kind == SL_REDUCE_GRAD) ||
        (!function && b->pipeline->options.replicas == 1))
        return SL_OK;
    out.u.run.function = function;
    if (!b->on_paper) {
        out.u.run.program_stage = b->pipeline->owner_stages[action->stage];
        out.u.run.memory = b->pipeline->owners[action->stage];
    }
    return emit(b, &out);
}

static bool is_state(const sl_action *action)
{
    return sl_action_kind_family(action->kind) == SL_FAMILY_STATE;
}

/* An action, or two that are joined. */
static sl_status emit_actions(sl__binder *b, const sl_action *actions,
                              int count)
{
    sl_status status = SL_OK;
    if (is_state(actions))
        return emit_state(b, actions);
    if (sl__is_send(actions->kind))
        return b->train ? emit_send(b, actions) : SL_OK;
    if (sl__is_send_wait(actions->kind))
        return b->train ? emit_send_wait(b, actions) : SL_OK;
    if (!b->train) {
        if (actions->kind != SL_FORWARD)
            return SL_OK;
        count = 1;
    }
    for (int i = 0; i < count && !status; i++)
        status = emit_before(b, &actions[i]);
    for (int i = 0; i < count && !status; i++)
        status = emit_run(b, &actions[i], i + 1 < count);
    for (int i = 0; i < count && !status; i++)
        status = emit_after(b, &actions[i]);
    return status;
}

/* Weights are packed while the pipeline fills. */
static sl_status emit_packs(sl__binder *b)
{
    sl_status status = SL_OK;
    for (int i = 0; i < b->bound->lane_count && !status; i++) {
        const sl__lane *lane = &b->bound->lanes[i];
        sl__instruction out = {.kind = SL__DO_PACK,
                               .action =
                                   sl_action_make(SL_FORWARD, lane->stage, 0)};
        out.u.run.memory = lane->memory;
        if (sl__is_here(b, lane->stage) && !b->pipeline->shards)
            status = emit(b, &out);
    }
    return status;
}

/* The receives of whoever follows into the slots that an action frees. */
static sl_status emit_followers(sl__binder *b, size_t i)
{
    const sl_pipeline *pipeline = b->pipeline;
    int m = b->order[i].microbatch;
    sl_status status = SL_OK;
    if (sl_action_kind_family(b->order[i].kind) != SL_FAMILY_COMPUTE &&
        !sl__is_send(b->order[i].kind))
        return SL_OK;
    for (int s = 0; s < pipeline->stages && !status; s++) {
        int next = b->nexts[sl__cell(b, s, m)];
        if (sl__is_here(b, s) && next >= 0 && b->lasts[sl__cell(b, s, m)] == i)
            status = emit_receives(b, s, next);
    }
    return status;
}

static bool is_backward(const sl__instruction *i, int stage)
{
    return i->kind == SL__DO_RUN && i->action.stage == stage &&
           (i->u.run.program == SL_PROGRAM_W ||
            i->u.run.program == SL_PROGRAM_B);
}

/* Tells every backward how long what it adds may wait: where the stage's next is
 * of another memory not at all, for order's sake. */
static void look_ahead(sl__binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    for (int s = 0; s < pipeline->own_count; s++) {
        const sl_memory *next = NULL;
        for (size_t i = b->list->count; i-- > 0;) {
            sl__instruction *at = &b->list->data[i];
            if (!is_backward(at, pipeline->own_stages[s]))
                continue;
            bool last = !next && pipeline->waits == SL_ADD_LATE;
            if (last || at->u.run.memory == next)
                at->u.run.adding = pipeline->waits;
            next = at->u.run.memory;
        }
    }
}

/* Whether a stage's W's come in the order of its I's. */
static sl_status compare_orders(const sl__binder *b, int stage, bool *out)
{
    int *first = NULL;
    size_t count = 0, second = 0;
    sl_status status =
        sl__alloc((size_t)b->pipeline->microbatches, sizeof *first, &first);
    if (status)
        return status;
    for (size_t i = 0; i < b->order_count; i++) {
        const sl_action *at = &b->order[i];
        bool whole = at->kind == SL_BACKWARD;
        if (at->stage == stage && (whole || at->kind == SL_BACKWARD_INPUT))
            first[count++] = at->microbatch;
    }
    *out = true;
    for (size_t i = 0; i < b->order_count; i++) {
        const sl_action *at = &b->order[i];
        if (at->stage == stage && sl__ends_microbatch(at->kind))
            *out = *out && first[second++] == at->microbatch;
    }
    free(first);
    return SL_OK;
}

/* Where I takes along what W would add. In the same order, so that sums are the
 * same to the last bit. */
static sl_status find_wholes(sl__binder *b)
{
    bool may = b->train && !b->on_paper && b->pipeline->waits == SL_ADD_LATE;
    sl_status status =
        sl__alloc((size_t)b->pipeline->stages, sizeof *b->wholes, &b->wholes);
    for (int i = 0; i < b->bound->lane_count && !status; i++) {
        const sl__lane *lane = &b->bound->lanes[i];
        if (may && sl__is_here(b, lane->stage))
            status = compare_orders(b, lane->stage, &b->wholes[lane->stage]);
    }
    for (int i = 0; i < b->bound->lane_count && !status; i++) {
        const sl__lane *lane = &b->bound->lanes[i];
        if (b->wholes[lane->stage])
            b->wholes[lane->stage] =
                sl__stage_takes_along(lane->program_stage, b->pipeline->lends);
    }
    return status;
}

static sl_status emit_all(sl__binder *b)
{
    sl_status status = SL_OK;
    for (size_t i = 0; i < b->order_count && !status; i++) {
        const sl_action *action = &b->order[i];
        if (action->kind == SL_FORWARD &&
            !b->follows[sl__cell(b, action->stage, action->microbatch)])
            status = emit_receives(b, action->stage, action->microbatch);
    }
    if (!status)
        status = emit_packs(b);
    for (size_t i = 0; i < b->order_count && !status; i++) {
        bool joined = b->joins[i];
        status = emit_actions(b, &b->order[i], joined ? 2 : 1);
        if (!status)
            status = emit_followers(b, i);
        if (!status && joined)
            status = emit_followers(b, ++i);
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
    if (!status)
        look_ahead(b);
    return status;
}

sl_status sl__emit_list(sl__binder *b)
{
    sl_status status = find_wholes(b);
    if (!status)
        status = emit_all(b);
    free(b->wholes);
    b->wholes = NULL;
    return status;
}

/* SPDX-License-Identifier: MIT
 *
 * From cells to instructions, with every address, size, peer and tag in place.
 *
 * A SEND, RECV or WAIT_SEND cell is about the edges between two stages next to
 * each other. Where a model has an edge that jumps over stages the schedule has
 * no cell for it: it is posted with the compute that makes it, received by the
 * one that uses it, and its send waited for where that must be over. */
#include "pipeline/run/bind.h"

#include "base/memory.h"
#include "base/try.h"
#include "schedule/action.h"
#include "tensor/program.h"

/* What a rank does with a message of an edge. */
typedef enum way { RECV_F, SEND_F, RECV_B, SEND_B } way;

static bool is_forward(way w)
{
    return w == RECV_F || w == SEND_F;
}

static bool is_at_producer(way w)
{
    return w == SEND_F || w == RECV_B;
}

/* ------------------------------------------------------------- emitting -- */

/* Whether the clock is looked at after an instruction: what moves a few bytes is
 * over before it has been. A wait looks for itself. */
static bool is_timed(const sl__instruction *i)
{
    enum { FEW_BYTES = 2048 };
    switch (i->kind) {
    case SL__DO_FEED: return i->u.feed.bytes > FEW_BYTES;
    case SL__DO_COPY: return i->u.copy.bytes > FEW_BYTES;
    case SL__DO_COLLECT: return i->u.collect.bytes > FEW_BYTES;
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
    SL__TRY(sl__grow(&list->data, &list->capacity, list->count + 1,
                     sizeof *list->data));
    list->data[list->count] = *instruction;
    list->data[list->count++].timed = is_timed(instruction);
    return SL_OK;
}

static int place_of(const sl__binder *b, int stage, int microbatch)
{
    return b->places[b->train][sl__cell(b, stage, microbatch)];
}

/* The memory of a message of a stage's microbatch, for the next instruction. */
static sl_status find_memory(sl__binder *b, int stage, int microbatch,
                             sl_port_kind kind, const char *name,
                             void **out_memory, size_t *out_bytes)
{
    const sl__variant *variant = sl__variant_of(b->binding, stage, microbatch);
    sl_port port;
    sl__note_use(b, stage, microbatch, sl__slot_kind_of(kind), b->list->count);
    SL__TRY(sl_stage_port(variant->program_stage, kind, name, &port));
    *out_bytes = (size_t)port.bytes;
    *out_memory = b->measuring
                      ? NULL
                      : sl__port_memory(variant->memory, &port,
                                        place_of(b, stage, microbatch));
    return SL_OK;
}

/* -------------------------------------------------------------- messages -- */

/* A message of an edge: posted, or waited for. */
static sl_status emit_message(sl__binder *b, sl__instruction_kind kind,
                              sl_action_kind cell, way w, int e, int microbatch)
{
    static const sl_port_kind ports[] = {SL_PORT_INPUT, SL_PORT_OUTPUT,
                                         SL_PORT_OUTPUT_GRADIENT,
                                         SL_PORT_INPUT_GRADIENT};
    const sl_edge *edge = &b->edges[e];
    int stage = is_at_producer(w) ? edge->from : edge->to;
    int other = is_at_producer(w) ? edge->to : edge->from;
    int microbatches = b->pipeline->microbatches, back = !is_forward(w);
    sl__instruction out = {.kind = kind,
                           .action = sl_action_make(cell, stage, microbatch)};
    if (!b->measuring)
        out.u.message.request =
            &b->binding->requests[(2 * b->crossing[e] + back) * microbatches +
                                  microbatch];
    out.u.message.peer =
        sl__comm_rank(b->pipeline, b->pipeline->rank_of[other]);
    out.u.message.peer_stage = other;
    out.u.message.tag = (2 * e + back) * microbatches + microbatch;
    SL__TRY(find_memory(b, stage, microbatch, ports[w],
                        w == RECV_B ? edge->gradient_name : edge->name,
                        &out.u.message.memory, &out.u.message.bytes));
    return emit(b, &out);
}

/* The same for every edge of a stage that leaves this rank: those between it
 * and the stage next to it, which have cells, or those that jump. */
static sl_status emit_messages(sl__binder *b, sl__instruction_kind kind,
                               sl_action_kind cell, way w, int stage,
                               int microbatch, bool jumping)
{
    for (int e = 0; e < b->edge_count; e++) {
        const sl_edge *edge = &b->edges[e];
        int own = is_at_producer(w) ? edge->from : edge->to;
        bool jumps = edge->to != edge->from + 1;
        bool flows = is_forward(w) || (b->train && edge->gradient_name);
        if (own == stage && b->crossing[e] >= 0 && jumps == jumping && flows)
            SL__TRY(emit_message(b, kind, cell, w, e, microbatch));
    }
    return SL_OK;
}

/* A cell: what there is to do, or that there is nothing. */
static sl_status emit_cell(sl__binder *b, const sl_action *cell,
                           sl__instruction_kind kind, way w)
{
    size_t before = b->list->count;
    const sl__instruction nothing = {.kind = SL__DO_NOTHING, .action = *cell};
    SL__TRY(emit_messages(b, kind, cell->kind, w, cell->stage, cell->microbatch,
                          false));
    return b->list->count == before ? emit(b, &nothing) : SL_OK;
}

static sl_status emit_communication(sl__binder *b, const sl_action *cell)
{
    switch (cell->kind) {
    case SL_SEND_F: return emit_cell(b, cell, SL__DO_SEND, SEND_F);
    case SL_SEND_B: return emit_cell(b, cell, SL__DO_SEND, SEND_B);
    case SL_RECV_F: return emit_cell(b, cell, SL__DO_RECV, RECV_F);
    case SL_RECV_B: return emit_cell(b, cell, SL__DO_RECV, RECV_B);
    case SL_WAIT_SEND_F: return emit_cell(b, cell, SL__DO_WAIT, SEND_F);
    default: return emit_cell(b, cell, SL__DO_WAIT, SEND_B);
    }
}

/* -------------------------------------------------------- around compute -- */

static sl_status emit_copy(sl__binder *b, int e, int microbatch, bool forward)
{
    const sl_edge *edge = &b->edges[e];
    sl__instruction out = {
        .kind = SL__DO_COPY,
        .action = forward
                      ? sl_action_make(SL_FORWARD, edge->to, microbatch)
                      : sl_action_make(SL_BACKWARD, edge->from, microbatch)};
    void *from;
    if (forward) {
        SL__TRY(find_memory(b, edge->from, microbatch, SL_PORT_OUTPUT,
                            edge->name, &from, &out.u.copy.bytes));
        SL__TRY(find_memory(b, edge->to, microbatch, SL_PORT_INPUT, edge->name,
                            &out.u.copy.to, &out.u.copy.bytes));
    } else {
        SL__TRY(find_memory(b, edge->to, microbatch, SL_PORT_INPUT_GRADIENT,
                            edge->name, &from, &out.u.copy.bytes));
        SL__TRY(find_memory(b, edge->from, microbatch, SL_PORT_OUTPUT_GRADIENT,
                            edge->gradient_name, &out.u.copy.to,
                            &out.u.copy.bytes));
    }
    out.u.copy.from = from;
    return emit(b, &out);
}

/* Between stages of this rank: into a stage before its F, out of it after its
 * backward. */
static sl_status emit_copies(sl__binder *b, int stage, int microbatch,
                             bool forward)
{
    for (int e = 0; e < b->edge_count; e++) {
        const sl_edge *edge = &b->edges[e];
        if (edge->to == stage && sl__is_here(b, edge->from) &&
            (forward || edge->gradient_name))
            SL__TRY(emit_copy(b, e, microbatch, forward));
    }
    return SL_OK;
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
    const sl_model_port *inputs = sl_model_inputs(b->binding->model, &count);
    for (int i = 0; i < count; i++) {
        sl__instruction out = {
            .kind = SL__DO_FEED,
            .action = sl_action_make(SL_FORWARD, stage, microbatch)};
        if (!goes_to(&inputs[i], stage))
            continue;
        out.u.feed.argument = i;
        SL__TRY(find_memory(b, stage, microbatch, SL_PORT_INPUT, inputs[i].name,
                            &out.u.feed.to, &out.u.feed.bytes));
        SL__TRY(emit(b, &out));
    }
    return SL_OK;
}

static sl_status emit_collects(sl__binder *b, int stage, int microbatch)
{
    int count;
    const sl_model_port *outputs = sl_model_outputs(b->binding->model, &count);
    for (int i = 0; i < count; i++) {
        sl__instruction out = {
            .kind = SL__DO_COLLECT,
            .action = sl_action_make(SL_FORWARD, stage, microbatch)};
        void *from;
        if (!goes_to(&outputs[i], stage) ||
            (!outputs[i].is_loss && !b->pipeline->options.keep_outputs))
            continue;
        out.u.collect.output = i;
        SL__TRY(find_memory(b, stage, microbatch, SL_PORT_OUTPUT,
                            outputs[i].name, &from, &out.u.collect.bytes));
        out.u.collect.from = from;
        SL__TRY(emit(b, &out));
    }
    return SL_OK;
}

/* Inputs are there. */
static sl_status emit_before(sl__binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    bool forward = action->kind == SL_FORWARD;
    way w = forward ? RECV_F : RECV_B;
    sl_action_kind cell = forward ? SL_RECV_F : SL_RECV_B;
    if (action->kind == SL_BACKWARD_WEIGHT)
        return SL_OK;
    SL__TRY(emit_messages(b, SL__DO_RECV, cell, w, s, m, true));
    if (forward) {
        SL__TRY(emit_feeds(b, s, m));
        SL__TRY(emit_copies(b, s, m, true));
    }
    SL__TRY(emit_messages(b, SL__DO_WAIT, cell, w, s, m, false));
    return emit_messages(b, SL__DO_WAIT, cell, w, s, m, true);
}

/* Results leave. The backward of a microbatch comes after its F in every later
 * stage, so what F sent there was received by then. */
static sl_status emit_after(sl__binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    if (action->kind == SL_BACKWARD_WEIGHT)
        return SL_OK;
    if (action->kind == SL_FORWARD) {
        SL__TRY(emit_messages(b, SL__DO_SEND, SL_SEND_F, SEND_F, s, m, true));
        return emit_collects(b, s, m);
    }
    SL__TRY(emit_copies(b, s, m, false));
    SL__TRY(emit_messages(b, SL__DO_SEND, SL_SEND_B, SEND_B, s, m, true));
    return emit_messages(b, SL__DO_WAIT, SL_WAIT_SEND_F, SEND_F, s, m, true);
}

/* What jumps back over stages, and in an eval forward too, was received when
 * everything was. */
static sl_status emit_last_waits(sl__binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    if (action->kind == SL_FORWARD && !b->train)
        return emit_messages(b, SL__DO_WAIT, SL_WAIT_SEND_F, SEND_F, s, m,
                             true);
    if (sl__is_backward(action->kind))
        return emit_messages(b, SL__DO_WAIT, SL_WAIT_SEND_B, SEND_B, s, m,
                             true);
    return SL_OK;
}

/* --------------------------------------------------------------- compute -- */

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

/* A program needs the slots that its kernels use; a function of the caller's may
 * look at all there is by then. */
static void need_slots(sl__binder *b, const sl_action *action, size_t index)
{
    const sl__variant *variant =
        sl__variant_of(b->binding, action->stage, action->microbatch);
    const unsigned of_forward =
        1u << SL__SLOT_SLAB | 1u << SL__SLOT_INPUTS | 1u << SL__SLOT_OUTPUTS;
    unsigned uses = variant->program_stage->uses[program_of(action->kind)];
    if (b->pipeline->options.function_count > 0)
        uses = action->kind == SL_FORWARD ? of_forward : ~0u;
    for (int k = 0; k < SL__SLOT_KINDS; k++) {
        if (uses >> k & 1)
            sl__note_use(b, action->stage, action->microbatch, k, index);
    }
}

static sl_status emit_run(sl__binder *b, const sl_action *action, bool joined)
{
    const sl__variant *variant =
        sl__variant_of(b->binding, action->stage, action->microbatch);
    sl__instruction out = {
        .kind = SL__DO_RUN, .joined = joined, .action = *action};
    out.u.run.program_stage = variant->program_stage;
    out.u.run.memory = variant->memory;
    out.u.run.function =
        find_function(b, joined ? SL_OVERLAP_F_B : action->kind);
    out.u.run.program = program_of(action->kind);
    out.u.run.slot = place_of(b, action->stage, action->microbatch);
    return emit(b, &out);
}

/* An action, or two that are run as one by a function of the caller's. */
static sl_status emit_compute(sl__binder *b, const sl_action *actions,
                              int count)
{
    for (int i = 0; i < count; i++)
        SL__TRY(emit_before(b, &actions[i]));
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++)
            need_slots(b, &actions[k], b->list->count);
        SL__TRY(emit_run(b, &actions[i], i + 1 < count));
    }
    for (int i = 0; i < count; i++)
        SL__TRY(emit_after(b, &actions[i]));
    return SL_OK;
}

/* ---------------------------------------------------------------- states -- */

/* With replicas, or with a function of the caller's, sharding is something to
 * do. */
static sl_status emit_state(sl__binder *b, const sl_action *action)
{
    const sl_action_function *function = find_function(b, action->kind);
    bool works = (function || b->pipeline->options.replicas > 1) &&
                 action->kind != SL_WAIT_REDUCE_GRAD;
    sl__instruction out = {.kind = works ? SL__DO_STATE : SL__DO_NOTHING,
                           .action = *action};
    out.u.run.function = function;
    out.u.run.program_stage = b->pipeline->owner_stages[action->stage];
    out.u.run.memory = b->pipeline->owners[action->stage];
    return emit(b, &out);
}

/* ------------------------------------------------------------------ list -- */

static sl_status emit_action(sl__binder *b, const sl_action *cell)
{
    sl_action parts[2];
    int count = sl_action_parts(cell, parts);
    switch (sl_action_kind_family(cell->kind)) {
    case SL_FAMILY_STATE: return emit_state(b, cell);
    case SL_FAMILY_COMM: return emit_communication(b, cell);
    case SL_FAMILY_WAIT:
        return sl__is_send_wait(cell->kind) ? emit_communication(b, cell)
                                            : emit_state(b, cell);
    default: break;
    }
    if (count == 2 && find_function(b, SL_OVERLAP_F_B))
        return emit_compute(b, parts, 2);
    for (int i = 0; i < count; i++)
        SL__TRY(emit_compute(b, &parts[i], 1));
    return SL_OK;
}

/* Weights are packed while the pipeline fills. */
static sl_status emit_packs(sl__binder *b)
{
    for (int i = 0; i < b->binding->variant_count; i++) {
        const sl__variant *variant = &b->binding->variants[i];
        sl__instruction out = {
            .kind = SL__DO_PACK,
            .action = sl_action_make(SL_FORWARD, variant->stage, 0)};
        out.u.run.memory = variant->memory;
        if (!b->pipeline->shards)
            SL__TRY(emit(b, &out));
    }
    return SL_OK;
}

static bool is_weights(const sl__instruction *i)
{
    return i->kind == SL__DO_RUN && i->u.run.program == SL_PROGRAM_W &&
           !i->u.run.function;
}

/* W's of a stage that stand next to each other run in one call. */
static void join_weights(const sl__instructions *list)
{
    for (size_t i = 0; i + 1 < list->count; i++) {
        sl__instruction *at = &list->data[i];
        if (is_weights(at) && is_weights(at + 1) &&
            at->u.run.memory == at[1].u.run.memory)
            at->joined = true;
    }
}

sl_status sl__emit_list(sl__binder *b)
{
    const sl_pipeline *pipeline = b->pipeline;
    const sl_schedule *schedule =
        b->train ? pipeline->lowered : pipeline->forward;
    const sl_action *row = sl_schedule_row(schedule, pipeline->rank);
    size_t length = sl_schedule_length(schedule, pipeline->rank);
    SL__TRY(emit_packs(b));
    for (size_t i = 0; i < length; i++)
        SL__TRY(emit_action(b, &row[i]));
    for (size_t i = 0; i < length; i++) {
        sl_action parts[2];
        int count = sl_action_parts(&row[i], parts);
        for (int k = 0; k < count; k++)
            SL__TRY(emit_last_waits(b, &parts[k]));
    }
    join_weights(b->list);
    return SL_OK;
}

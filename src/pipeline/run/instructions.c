/* SPDX-License-Identifier: MIT
 *
 * Translates cells into instructions, which contain every address, size, peer
 * and tag.
 *
 * A SEND, RECV or WAIT_SEND cell covers the edges between two adjacent stages.
 * For an edge that skips stages the schedule has no cell: its message is sent
 * after the compute that produces it, received before the one that uses it, and
 * its send is waited for where it must be complete. */
#include "pipeline/run/bind.h"

#include "base/memory.h"
#include "base/try.h"
#include "schedule/action.h"

#include <assert.h>

/* ------------------------------------------------------------- emitting -- */

/* Whether the clock is read after an instruction. Reading it takes longer than
 * copying a few bytes. A wait reads the clock itself; but on a device that
 * works on by itself it is the device that waits, and its clock is read for
 * what takes time there. */
static bool is_timed(const sl__instruction *i, bool is_async)
{
    enum { FEW_BYTES = 2048 };
    if (is_async)
        return i->kind == SL__DO_RUN || i->kind == SL__DO_PACK ||
               i->kind == SL__DO_STATE || i->kind == SL__DO_COPY ||
               i->kind == SL__DO_WAIT;
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
    list->data[list->count++].timed =
        is_timed(instruction, b->pipeline->backend->graphs);
    return SL_OK;
}

/* The slot of a microbatch in the memory of its variant. */
static int slot_of(const sl__binder *b, int stage, int microbatch)
{
    return b->places[b->train][sl__cell(b, stage, microbatch)];
}

/* Finds the memory of a stage's port for a microbatch, and records that the
 * next instruction uses it. */
static sl_status find_memory(sl__binder *b, int stage, int microbatch,
                             sl_port_kind kind, const char *name,
                             void **out_memory, size_t *out_bytes)
{
    const sl__variant *variant = sl__variant_of(b->binding, stage, microbatch);
    sl_port port;
    sl__note_use(b, stage, microbatch, sl__slot_kind_of(kind), b->list->count);
    SL__TRY(sl_stage_port(variant->program_stage, kind, name, &port));
    *out_bytes = (size_t)port.bytes;
    *out_memory = b->measuring ? NULL
                               : sl__port_memory(variant->memory, &port,
                                                 slot_of(b, stage, microbatch));
    return SL_OK;
}

/* -------------------------------------------------------------- messages -- */

/* Whether the message of a SEND, RECV or WAIT_SEND is an output that a producer
 * sends to a consumer; else it is a gradient that is sent back. */
static bool is_forward(sl_action_kind cell)
{
    return cell == SL_SEND_F || cell == SL_RECV_F || cell == SL_WAIT_SEND_F;
}

static bool is_at_producer(sl_action_kind cell)
{
    return is_forward(cell) == (cell != SL_RECV_F && cell != SL_RECV_B);
}

/* Emits the post of an edge's message, or the wait for it. */
static sl_status emit_message(sl__binder *b, sl__instruction_kind kind,
                              sl_action_kind cell, int e, int microbatch)
{
    static const sl_port_kind ports[2][2] = {
        {SL_PORT_INPUT_GRADIENT, SL_PORT_OUTPUT_GRADIENT},
        {SL_PORT_INPUT, SL_PORT_OUTPUT}};
    const sl_edge *edge = &b->edges[e];
    const bool forward = is_forward(cell), producer = is_at_producer(cell);
    int stage = producer ? edge->from : edge->to;
    int other = producer ? edge->to : edge->from;
    int microbatches = b->pipeline->microbatches;
    sl__instruction out = {.kind = kind,
                           .action = sl_action_make(cell, stage, microbatch)};
    assert(b->message_edge[e] >= 0);
    if (!b->measuring)
        out.u.message.request =
            &b->binding
                 ->requests[(2 * b->message_edge[e] + !forward) * microbatches +
                            microbatch];
    out.u.message.peer =
        sl__comm_rank(b->pipeline, b->pipeline->rank_of[other]);
    out.u.message.peer_stage = other;
    out.u.message.tag = (2 * e + !forward) * microbatches + microbatch;
    SL__TRY(find_memory(b, stage, microbatch, ports[forward][producer],
                        producer && !forward ? edge->gradient_name : edge->name,
                        &out.u.message.memory, &out.u.message.bytes));
    assert(out.u.message.tag < SL__TAG_TIES);
    return emit(b, &out);
}

/* The same for edges between a stage and other ranks: either all to or from the
 * adjacent stage, which have cells, or all that skip stages. */
static sl_status emit_messages(sl__binder *b, sl__instruction_kind kind,
                               sl_action_kind cell, int stage, int microbatch,
                               bool jumping)
{
    for (int e = 0; e < b->edge_count; e++) {
        const sl_edge *edge = &b->edges[e];
        int own = is_at_producer(cell) ? edge->from : edge->to;
        bool jumps = edge->to != edge->from + 1;
        bool flows = is_forward(cell) || (b->train && edge->gradient_name);
        if (own == stage && b->message_edge[e] >= 0 && jumps == jumping &&
            flows)
            SL__TRY(emit_message(b, kind, cell, e, microbatch));
    }
    return SL_OK;
}

/* Emits the messages of a SEND, RECV or WAIT_SEND cell, or SL__DO_NOTHING where
 * it has none. */
static sl_status emit_communication(sl__binder *b, const sl_action *cell)
{
    size_t before = b->list->count;
    const sl__instruction nothing = {.kind = SL__DO_NOTHING, .action = *cell};
    sl__instruction_kind kind = sl__is_send_wait(cell->kind) ? SL__DO_WAIT
                                : sl__is_send(cell->kind)    ? SL__DO_SEND
                                                             : SL__DO_RECV;
    SL__TRY(emit_messages(b, kind, cell->kind, cell->stage, cell->microbatch,
                          false));
    return b->list->count == before ? emit(b, &nothing) : SL_OK;
}

/* -------------------------------------------------------- around compute -- */

static sl_status emit_copy(sl__binder *b, int e, int microbatch, bool forward)
{
    const sl_edge *edge = &b->edges[e];
    int from_stage = forward ? edge->from : edge->to;
    int to_stage = forward ? edge->to : edge->from;
    sl__instruction out = {
        .kind = SL__DO_COPY,
        .action = sl_action_make(forward ? SL_FORWARD : SL_BACKWARD, to_stage,
                                 microbatch)};
    void *from;
    SL__TRY(find_memory(b, from_stage, microbatch,
                        forward ? SL_PORT_OUTPUT : SL_PORT_INPUT_GRADIENT,
                        edge->name, &from, &out.u.copy.bytes));
    SL__TRY(find_memory(b, to_stage, microbatch,
                        forward ? SL_PORT_INPUT : SL_PORT_OUTPUT_GRADIENT,
                        forward ? edge->name : edge->gradient_name,
                        &out.u.copy.to, &out.u.copy.bytes));
    out.u.copy.from = from;
    return emit(b, &out);
}

/* Emits copies between stages of this rank: into a stage before its F, out of
 * it after its backward. */
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
        out.u.feed.at = b->fed;
        SL__TRY(find_memory(b, stage, microbatch, SL_PORT_INPUT, inputs[i].name,
                            &out.u.feed.to, &out.u.feed.bytes));
        b->fed += sl__aligned((int64_t)out.u.feed.bytes);
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

/* Emits what must run before an action: copies, receives and waits for its
 * inputs. */
static sl_status emit_before(sl__binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    bool forward = action->kind == SL_FORWARD;
    sl_action_kind cell = forward ? SL_RECV_F : SL_RECV_B;
    if (action->kind == SL_BACKWARD_WEIGHT)
        return SL_OK;
    SL__TRY(emit_messages(b, SL__DO_RECV, cell, s, m, true));
    if (forward) {
        SL__TRY(emit_feeds(b, s, m));
        SL__TRY(emit_copies(b, s, m, true));
    }
    SL__TRY(emit_messages(b, SL__DO_WAIT, cell, s, m, false));
    return emit_messages(b, SL__DO_WAIT, cell, s, m, true);
}

/* Emits what must run after an action: sends of its results. The backward of a
 * microbatch comes after its F in every later stage, so by then what F sent
 * there has been received. */
static sl_status emit_after(sl__binder *b, const sl_action *action)
{
    int s = action->stage, m = action->microbatch;
    if (action->kind == SL_BACKWARD_WEIGHT)
        return SL_OK;
    if (action->kind == SL_FORWARD) {
        SL__TRY(emit_messages(b, SL__DO_SEND, SL_SEND_F, s, m, true));
        return emit_collects(b, s, m);
    }
    SL__TRY(emit_copies(b, s, m, false));
    SL__TRY(emit_messages(b, SL__DO_SEND, SL_SEND_B, s, m, true));
    return emit_messages(b, SL__DO_WAIT, SL_WAIT_SEND_F, s, m, true);
}

/* Emits the waits at the end of the list for sends that skip stages and are not
 * waited for earlier: those of backward, and in an eval those of forward. */
static sl_status emit_last_waits(sl__binder *b, const sl_action *action)
{
    bool evals = action->kind == SL_FORWARD && !b->train;
    if (!evals && !sl__is_backward(action->kind))
        return SL_OK;
    return emit_messages(b, SL__DO_WAIT,
                         evals ? SL_WAIT_SEND_F : SL_WAIT_SEND_B, action->stage,
                         action->microbatch, true);
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

/* Records the slots that a program uses. A custom function may use all slots
 * that the microbatch has at that point. */
static void note_slots(sl__binder *b, const sl_action *action, size_t index)
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
    out.u.run.slot = slot_of(b, action->stage, action->microbatch);
    return emit(b, &out);
}

/* Whether the halves of an overlap run as one: in a custom function, or at once
 * on two streams, where they are of two memories. */
static bool runs_as_one(const sl__binder *b, const sl_action *halves)
{
    if (find_function(b, SL_OVERLAP_F_B))
        return true;
    return b->pipeline->backend->graphs && !find_function(b, halves[0].kind) &&
           !find_function(b, halves[1].kind) &&
           sl__variant_of(b->binding, halves[0].stage, halves[0].microbatch) !=
               sl__variant_of(b->binding, halves[1].stage,
                              halves[1].microbatch);
}

/* Emits one action, or two that run as one. */
static sl_status emit_compute(sl__binder *b, const sl_action *actions,
                              int count)
{
    for (int i = 0; i < count; i++)
        SL__TRY(emit_before(b, &actions[i]));
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++)
            note_slots(b, &actions[k], b->list->count);
        SL__TRY(emit_run(b, &actions[i], i + 1 < count));
    }
    for (int i = 0; i < count; i++)
        SL__TRY(emit_after(b, &actions[i]));
    return SL_OK;
}

/* ---------------------------------------------------------------- states -- */

/* There is work only with replicas or a custom function. */
static sl_status emit_state(sl__binder *b, const sl_action *action)
{
    bool works =
        (find_function(b, action->kind) || b->pipeline->options.replicas > 1) &&
        action->kind != SL_WAIT_REDUCE_GRAD;
    return emit(
        b, &(sl__instruction){.kind = works ? SL__DO_STATE : SL__DO_NOTHING,
                              .action = *action});
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
    if (count == 2 && runs_as_one(b, parts))
        return emit_compute(b, parts, 2);
    for (int i = 0; i < count; i++)
        SL__TRY(emit_compute(b, &parts[i], 1));
    return SL_OK;
}

/* Packs weights first, while the pipeline fills. With shards, weights are there
 * only after UNSHARD, and the first F packs them. */
static sl_status emit_packs(sl__binder *b)
{
    int count = b->pipeline->shards ? 0 : b->binding->variant_count;
    for (int i = 0; i < count; i++) {
        const sl__variant *variant = &b->binding->variants[i];
        sl__instruction out = {
            .kind = SL__DO_PACK,
            .action = sl_action_make(SL_FORWARD, variant->stage, 0)};
        out.u.run.memory = variant->memory;
        SL__TRY(emit(b, &out));
    }
    return SL_OK;
}

static bool is_weights(const sl__instruction *i)
{
    return i->kind == SL__DO_RUN && i->u.run.program == SL_PROGRAM_W &&
           !i->u.run.function;
}

/* Joins adjacent W's of a stage, which then run as one product over all their
 * rows. */
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
    b->fed = 0;
    SL__TRY(emit_packs(b));
    for (size_t i = 0; i < length; i++)
        SL__TRY(emit_action(b, &row[i]));
    if (pipeline->backend->graphs && b->fed > b->binding->feed_bytes)
        b->binding->feed_bytes = b->fed;
    for (size_t i = 0; i < length; i++) {
        sl_action parts[2];
        int count = sl_action_parts(&row[i], parts);
        for (int k = 0; k < count; k++)
            SL__TRY(emit_last_waits(b, &parts[k]));
    }
    join_weights(b->list);
    return SL_OK;
}

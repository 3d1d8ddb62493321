/* SPDX-License-Identifier: MIT
 *
 * The memory of one user of a stage, and the run: walk the kernels of a program
 * with operands resolved from (pool, offset). Nothing is allocated, looked up
 * or decided here that could have been before. */
#include "tensor/program.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"

#include <assert.h>
#include <string.h>

/* What a slot has behind it. */
typedef enum slot_state { SLOT_EMPTY, SLOT_F, SLOT_I } slot_state;

typedef struct microbatch {
    slot_state state;
    uint64_t seed;
    void *memory;  /* slab, then messages */
    void **bases;  /* of the pools */
    void **states; /* of kernels and packs, by state_index */
} microbatch;

struct sl_memory {
    const sl_stage *stage;
    void *parameters;
    void *gradients;
    void *packed;
    void *workspace;
    microbatch *slots;
    int slot_count;
    void **bases;       /* of all slots */
    void **states;      /* of all slots */
    void **pointers;    /* of the args of the kernel at hand */
    sl_memory *owner;   /* of parameters and gradients; itself, mostly */
    uint64_t written;   /* how often the owner's parameters were */
    uint64_t packed_at; /* what `written` was when they were packed */
    uint64_t zeroed;    /* how often the owner's gradients were */
    uint64_t held_at;   /* what `zeroed` was when kernels began to hold */
    int64_t bytes;      /* of tensor memory allocated here */
    /* Of these, what was given back: parameters, gradients, packed weights. */
    int64_t given_back[3];
    sl__holding *holding; /* where they are counted; NULL: nowhere */
};

enum { BACK_PARAMETERS, BACK_GRADIENTS, BACK_PACKED };

/* ----------------------------------------------------------------- life -- */

/* Counts bytes that are held from now on. */
static void hold(sl_memory *memory, int64_t bytes)
{
    sl__holding *holding = memory->holding;
    if (!holding)
        return;
    holding->now += bytes;
    if (holding->now > holding->most)
        holding->most = holding->now;
}

/* All tensor memory comes from here, and is counted. */
static sl_status allocate(sl_memory *memory, int64_t bytes, void **out)
{
    sl_status status = memory->stage->backend->allocate(bytes, out);
    if (!status) {
        memory->bytes += bytes;
        hold(memory, bytes);
    }
    return status;
}

sl_status sl__memory_take(sl_memory *memory, int64_t bytes, void **out)
{
    return allocate(memory, bytes, out);
}

void sl__memory_give(sl_memory *memory, int64_t bytes, void *data)
{
    memory->stage->backend->release(data);
    memory->bytes -= bytes;
    hold(memory, -bytes);
}

void sl__memory_count_in(sl_memory *memory, sl__holding *holding)
{
    memory->holding = holding;
    hold(memory, memory->bytes);
}

static void set_given_back(sl_memory *memory, int which, int64_t bytes)
{
    hold(memory, memory->given_back[which] - bytes);
    memory->given_back[which] = bytes;
}

void sl__memory_set_given_back(sl_memory *memory, sl_port_kind kind,
                               int64_t bytes)
{
    bool parameters = kind == SL_PORT_PARAMETER;
    set_given_back(memory, parameters ? BACK_PARAMETERS : BACK_GRADIENTS,
                   bytes);
}

const sl_stage *sl__memory_stage(const sl_memory *memory)
{
    return memory->stage;
}

int64_t sl_memory_bytes(const sl_memory *memory)
{
    return memory ? memory->bytes : 0;
}

static void resolve(const sl__kernel *kernel, void *const *bases,
                    void **pointers)
{
    for (int i = 0; i < kernel->arg_count; i++) {
        const sl__arg *arg = &kernel->args[i];
        pointers[i] = arg->pool == SL__POOL_NONE
                          ? NULL
                          : (char *)bases[arg->pool] + arg->offset;
    }
}

static sl_status bind_kernel(sl_memory *memory, const microbatch *slot,
                             const sl__kernel *kernel)
{
    const sl_stage *stage = memory->stage;
    if (kernel->state_index < 0)
        return SL_OK;
    resolve(kernel, slot->bases, memory->pointers);
    return stage->backend->bind(stage->context, kernel, memory->pointers,
                                &slot->states[kernel->state_index]);
}

static sl_status bind_slot(sl_memory *memory, const microbatch *slot)
{
    const sl_stage *stage = memory->stage;
    sl_status status = SL_OK;
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        for (size_t i = 0; i < stage->programs[p].count && !status; i++)
            status = bind_kernel(memory, slot, &stage->kernels[p][i]);
    }
    for (size_t i = 0; i < stage->packs.count && !status; i++)
        status = bind_kernel(memory, slot, &stage->packs.data[i]->kernel);
    return status;
}

static void fill_bases(sl_memory *memory, microbatch *slot)
{
    const sl_stage *stage = memory->stage;
    char *start = slot->memory;
    slot->bases[SL__POOL_PARAMETERS] = memory->parameters;
    slot->bases[SL__POOL_GRADIENTS] = memory->gradients;
    slot->bases[SL__POOL_PACKED] = memory->packed;
    slot->bases[SL__POOL_WORKSPACE] = memory->workspace;
    slot->bases[SL__POOL_SLAB] = start;
    for (int m = 0; m < stage->message_count; m++)
        slot->bases[SL__POOL_MESSAGES + m] =
            start + stage->plan.slab_bytes + stage->messages[m].offset;
}

static sl_status make_slots(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    size_t pools = SL__POOL_MESSAGES + (size_t)stage->message_count;
    int64_t bytes = stage->plan.slab_bytes + stage->plan.message_bytes;
    size_t states = (size_t)stage->state_count;
    sl_status status =
        sl__alloc(pools * memory->slot_count, sizeof(void *), &memory->bases);
    if (!status)
        status = sl__alloc(states * memory->slot_count, sizeof(void *),
                           &memory->states);
    for (int i = 0; i < memory->slot_count && !status; i++) {
        microbatch *slot = &memory->slots[i];
        slot->bases = memory->bases + i * pools;
        slot->states = memory->states + i * states;
        status = allocate(memory, bytes, &slot->memory);
        if (!status) {
            fill_bases(memory, slot);
            status = bind_slot(memory, slot);
        }
    }
    return status;
}

static sl_status make_pools(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    const sl_plan *plan = &stage->plan;
    bool owns = memory->owner == memory;
    const struct {
        int64_t bytes;
        void **out;
    } pools[] = {
        {owns ? plan->parameter_bytes : 0, &memory->parameters},
        {owns ? plan->gradient_bytes : 0, &memory->gradients},
        {plan->packed_bytes, &memory->packed},
        {plan->workspace_bytes, &memory->workspace},
    };
    sl_status status = SL_OK;
    for (size_t i = 0; i < sizeof pools / sizeof *pools && !status; i++) {
        if (pools[i].bytes)
            status = allocate(memory, pools[i].bytes, pools[i].out);
    }
    memory->parameters = memory->owner->parameters;
    memory->gradients = memory->owner->gradients;
    return status;
}

static void fill_buffers(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    const sl__names *buffers = &stage->graph->buffers;
    for (size_t i = 0; i < buffers->count; i++) {
        const sl_tensor *tensor = buffers->data[i].tensor;
        if (tensor->data)
            stage->backend->copy_in((char *)memory->parameters +
                                        stage->buffer_offsets[i],
                                    tensor->data, (size_t)sl__bytes(tensor));
    }
}

/* How many pointers a run needs at a time. */
static size_t pointer_count(const sl_stage *stage)
{
    if (sl__is_callbacks(stage))
        return 2 * (stage->graph->inputs.count + stage->graph->outputs.count);
    return (size_t)stage->arg_count_max + 2;
}

static sl_status create(const sl_stage *stage, int slots, sl_memory *owner,
                        sl_memory **out)
{
    enum { SLOTS_MAX = 1 << 20 };
    if (slots < 1 || slots > SLOTS_MAX)
        return sl_fail(SL_EINVAL, "%d slots, expected 1 to %d", slots,
                       SLOTS_MAX);
    sl_memory *memory;
    sl_status status = sl__alloc(1, sizeof *memory, &memory);
    if (status)
        return status;
    memory->stage = stage;
    memory->owner = owner ? owner : memory;
    memory->written = 1;
    status = sl__alloc(slots, sizeof *memory->slots, &memory->slots);
    if (!status)
        memory->slot_count = slots;
    if (!status)
        status = sl__alloc(pointer_count(stage), sizeof *memory->pointers,
                           &memory->pointers);
    if (!status)
        status = make_pools(memory);
    if (!status)
        status = make_slots(memory);
    if (status) {
        sl_memory_destroy(memory);
        return status;
    }
    if (!owner)
        fill_buffers(memory);
    *out = memory;
    return SL_OK;
}

sl_status sl_memory_create(const sl_stage *stage, int slots, sl_memory **out)
{
    SL__NEED(stage, out);
    return create(stage, slots, NULL, out);
}

/* Whether two lists have the same tensors under the same names, in order. */
static sl_status check_same(const sl__names *own, const sl__names *theirs)
{
    char quoted[SL__QUOTED_MAX], mine[SL__SHAPE_TEXT], other[SL__SHAPE_TEXT];
    char theirs_quoted[SL__QUOTED_MAX];
    if (own->count != theirs->count)
        return sl_fail(SL_EINVAL,
                       "the stage beside has %zu parameters or buffers, "
                       "expected %zu",
                       own->count, theirs->count);
    for (size_t i = 0; i < own->count; i++) {
        const sl__named *a = &own->data[i], *b = &theirs->data[i];
        if (strcmp(a->name, b->name) == 0 &&
            a->tensor->dtype == b->tensor->dtype &&
            a->tensor->leaf_index == b->tensor->leaf_index &&
            sl__same_shape(a->tensor, b->tensor))
            continue;
        return sl_fail(
            SL_EINVAL,
            "the stage beside has '%s' of %s %s where the owner "
            "has '%s' of %s %s",
            sl__quoted(a->name, strlen(a->name), quoted),
            sl_dtype_text(a->tensor->dtype),
            sl__shape_text(a->tensor->dims, a->tensor->shape, mine),
            sl__quoted(b->name, strlen(b->name), theirs_quoted),
            sl_dtype_text(b->tensor->dtype),
            sl__shape_text(b->tensor->dims, b->tensor->shape, other));
    }
    return SL_OK;
}

sl_status sl_memory_create_beside(const sl_stage *stage, int slots,
                                  sl_memory *owner, sl_memory **out)
{
    SL__NEED(stage, owner, out);
    const sl_stage *other = owner->stage;
    owner = owner->owner;
    sl_status status =
        check_same(&stage->graph->parameters, &other->graph->parameters);
    if (!status)
        status = check_same(&stage->graph->buffers, &other->graph->buffers);
    if (!status && (stage->backend != other->backend ||
                    stage->plan.gradient_bytes != other->plan.gradient_bytes))
        status = sl_fail(SL_EINVAL, "the stage beside was compiled for another "
                                    "backend or without backward");
    return status ? status : create(stage, slots, owner, out);
}

void sl_memory_destroy(sl_memory *memory)
{
    if (!memory)
        return;
    const sl__backend *backend = memory->stage->backend;
    size_t states =
        (size_t)memory->stage->state_count * (size_t)memory->slot_count;
    for (size_t i = 0; memory->states && i < states; i++) {
        if (memory->states[i])
            backend->unbind(memory->states[i]);
    }
    for (int i = 0; i < memory->slot_count; i++)
        backend->release(memory->slots[i].memory);
    if (memory->owner == memory) {
        backend->release(memory->parameters);
        backend->release(memory->gradients);
    }
    backend->release(memory->packed);
    backend->release(memory->workspace);
    free(memory->slots);
    free(memory->bases);
    free(memory->states);
    free(memory->pointers);
    free(memory);
}

void *sl__memory_pool(const sl_memory *memory, int pool, int slot,
                      int64_t *out_bytes)
{
    const sl_plan *plan = &memory->stage->plan;
    const int64_t bytes[] = {plan->parameter_bytes, plan->gradient_bytes,
                             plan->packed_bytes, plan->workspace_bytes,
                             plan->slab_bytes};
    *out_bytes = pool < SL__POOL_MESSAGES
                     ? bytes[pool]
                     : memory->stage->messages[pool - SL__POOL_MESSAGES].bytes;
    return memory->slots[slot].bases[pool];
}

/* ---------------------------------------------------------------- ports -- */

static bool is_message_kind(sl_port_kind kind)
{
    return kind >= SL_PORT_INPUT && kind <= SL_PORT_OUTPUT_GRADIENT;
}

/* Whether a port is copied by the callbacks of a stage. */
static bool is_called(const sl_stage *stage, const sl_port *port)
{
    return sl__is_callbacks(stage) &&
           (port->kind == SL_PORT_PARAMETER ||
            port->kind == SL_PORT_PARAMETER_GRADIENT);
}

static sl_status check_called(const sl_stage *stage, const sl_port *port,
                              size_t bytes)
{
    const sl__names *parameters = &stage->graph->parameters;
    bool there = port->index >= 0 && (size_t)port->index < parameters->count;
    /* Without aliases, names and parameters are the same. */
    int64_t expected =
        there ? sl__bytes(parameters->data[port->index].tensor) : port->bytes;
    if (there && (int64_t)bytes == expected && port->bytes == expected)
        return sl__check_port(stage, port);
    return sl_fail(SL_EINVAL, "'%s' has %lld bytes, found %zu", port->name,
                   (long long)expected, bytes);
}

/* Finds the memory of a port in a slot, and its size, as this stage has them;
 * NULL where it has no such port. */
static char *port_memory(const sl_memory *memory, const sl_port *port, int slot,
                         int64_t *bytes)
{
    const sl_stage *stage = memory->stage;
    if (port->kind < SL_PORT_PARAMETER || port->kind > SL_PORT_BUFFER)
        return NULL;
    if (port->kind == SL_PORT_BUFFER) {
        const sl__names *buffers = &stage->graph->buffers;
        if (port->index < 0 || (size_t)port->index >= buffers->count)
            return NULL;
        *bytes = sl__bytes(buffers->data[port->index].tensor);
        return (char *)memory->parameters + stage->buffer_offsets[port->index];
    }
    if (!is_message_kind(port->kind)) {
        if (port->index < 0 || port->index >= stage->graph->parameter_count)
            return NULL;
        char *pool = port->kind == SL_PORT_PARAMETER ? memory->parameters
                                                     : memory->gradients;
        *bytes = stage->parameter_bytes[port->index];
        return pool ? pool + stage->parameter_offsets[port->index] : NULL;
    }
    int message = sl__find_message(stage, port->kind, port->index);
    if (message < 0 || slot < 0 || slot >= memory->slot_count)
        return NULL;
    *bytes = stage->messages[message].bytes;
    return memory->slots[slot].bases[SL__POOL_MESSAGES + message];
}

void *sl__port_memory(const sl_memory *memory, const sl_port *port, int slot)
{
    int64_t bytes;
    return port_memory(memory, port, slot, &bytes);
}

static sl_status find_port(const sl_memory *memory, const sl_port *port,
                           int slot, size_t bytes, char **out)
{
    int64_t expected = port->bytes;
    *out = port_memory(memory, port, slot, &expected);
    if ((int64_t)bytes != expected || port->bytes != expected)
        return sl_fail(SL_EINVAL, "'%s' has %lld bytes, found %zu", port->name,
                       (long long)expected, bytes);
    if (!*out)
        return sl_fail(SL_EINVAL, "'%s' is not in slot %d of %d of this memory",
                       port->name, slot, memory->slot_count);
    return sl__check_port(memory->stage, port);
}

sl_status sl_memory_write(sl_memory *memory, const sl_port *port, int slot,
                          const void *data, size_t bytes)
{
    SL__NEED(memory, port, data);
    char *to;
    const sl_stage *stage = memory->stage;
    if (is_called(stage, port)) {
        sl_status status = check_called(stage, port, bytes);
        return status
                   ? status
                   : stage->callbacks.write(
                         stage->callback_context, port->index,
                         port->kind == SL_PORT_PARAMETER_GRADIENT, data, bytes);
    }
    sl_status status = find_port(memory, port, slot, bytes, &to);
    if (status)
        return status;
    memory->stage->backend->copy_in(to, data, bytes);
    if (port->kind == SL_PORT_PARAMETER)
        memory->owner->written++;
    return SL_OK;
}

bool sl__memory_write_piece(sl_memory *memory, const sl_port *port,
                            size_t first, const void *data, size_t bytes)
{
    char *to = sl__port_memory(memory, port, 0);
    assert(first + bytes <= (size_t)port->bytes);
    if (!to)
        return false;
    memory->stage->backend->copy_in(to + first, data, bytes);
    if (port->kind == SL_PORT_PARAMETER)
        memory->owner->written++;
    return true;
}

sl_status sl_memory_read(const sl_memory *memory, const sl_port *port, int slot,
                         void *data, size_t bytes)
{
    SL__NEED(memory, port, data);
    char *from;
    const sl_stage *stage = memory->stage;
    if (is_called(stage, port)) {
        sl_status status = check_called(stage, port, bytes);
        return status
                   ? status
                   : stage->callbacks.read(
                         stage->callback_context, port->index,
                         port->kind == SL_PORT_PARAMETER_GRADIENT, data, bytes);
    }
    sl_status status = find_port(memory, port, slot, bytes, &from);
    if (!status)
        memory->stage->backend->copy_out(data, from, bytes);
    return status;
}

sl_status sl_memory_descend(sl_memory *memory, double rate)
{
    SL__NEED(memory);
    const sl_stage *stage = memory->stage;
    const sl__names *parameters = &stage->graph->parameters;
    if (parameters->count == 0)
        return SL_OK;
    if (sl__is_callbacks(stage) || !memory->gradients)
        return sl_fail(SL_EINVAL, "this stage has no gradients here");
    sl__saved saved;
    stage->backend->begin(stage->options.threads, &saved);
    for (size_t i = 0; i < parameters->count; i++) {
        const sl_tensor *tensor = parameters->data[i].tensor;
        int64_t offset = stage->parameter_offsets[tensor->leaf_index];
        if (strcmp(tensor->name, parameters->data[i].name) == 0)
            stage->backend->descend(
                tensor->dtype, (char *)memory->parameters + offset,
                (char *)memory->gradients + offset, sl__count(tensor), rate,
                stage->options.threads);
    }
    stage->backend->end(&saved);
    memory->owner->written++;
    return SL_OK;
}

void sl__memory_descend_part(sl_memory *memory, const sl_port *port,
                             size_t first, size_t length, double rate)
{
    const sl_stage *stage = memory->stage;
    size_t at = (size_t)stage->parameter_offsets[port->index] +
                first * sl_dtype_bytes(port->dtype);
    sl__saved saved;
    stage->backend->begin(stage->options.threads, &saved);
    stage->backend->descend(port->dtype, (char *)memory->parameters + at,
                            (char *)memory->gradients + at, (int64_t)length,
                            rate, stage->options.threads);
    stage->backend->end(&saved);
    memory->owner->written++;
}

bool sl__memory_clear(sl_memory *memory, const sl_port *port, size_t first,
                      size_t bytes)
{
    char *data = sl__port_memory(memory, port, 0);
    if (data)
        memory->stage->backend->clear(data + first, bytes);
    return data;
}

void sl__memory_touch(sl_memory *memory)
{
    memory->owner->written++;
}

void sl__memory_forget(sl_memory *memory, const sl_port *port, size_t first,
                       size_t length)
{
    const sl__backend *backend = memory->stage->backend;
    char *data = sl__port_memory(memory, port, 0);
    size_t bytes = (size_t)port->bytes, end = first + length;
    backend->discard(data, first);
    backend->discard(data + end, bytes - end);
    if (port->kind != SL_PORT_PARAMETER || !memory->packed ||
        memory->packed_at == 0)
        return;
    backend->discard(memory->packed, (size_t)memory->stage->plan.packed_bytes);
    set_given_back(memory, BACK_PACKED, memory->stage->plan.packed_bytes);
    memory->packed_at = 0;
}

void sl_memory_zero_gradients(sl_memory *memory)
{
    if (!memory)
        return;
    const sl_stage *stage = memory->stage;
    if (sl__is_callbacks(stage) && stage->callbacks.zero_gradients)
        stage->callbacks.zero_gradients(stage->callback_context);
    if (memory->gradients)
        stage->backend->clear(memory->gradients,
                              (size_t)stage->plan.gradient_bytes);
    memory->owner->zeroed++;
}

/* -------------------------------------------------------------- running -- */

static sl_status run_kernel(const sl__kernel *kernel, void *const *bases,
                            void **pointers, const sl__run *run)
{
    resolve(kernel, bases, pointers);
    return kernel->run(kernel, pointers, run);
}

static sl_status run_packs(sl_memory *memory, const microbatch *slot,
                           const sl__run *run)
{
    const sl__packs *packs = &memory->stage->packs;
    sl_status status = SL_OK;
    set_given_back(memory, BACK_PACKED, 0);
    for (size_t i = 0; i < packs->count && !status; i++)
        status = run_kernel(&packs->data[i]->kernel, slot->bases,
                            memory->pointers, run);
    if (!status)
        memory->packed_at = memory->owner->written;
    return status;
}

/* Makes kernels forget what they hold for gradients that have begun anew, here
 * or by way of another memory. */
static void drop_held(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    for (size_t i = 0; i < stage->graph->node_count; i++) {
        if (stage->held_offsets[i] >= 0)
            stage->backend->clear((char *)memory->workspace +
                                      stage->held_offsets[i],
                                  SL__ALIGNMENT);
    }
    memory->held_at = memory->owner->zeroed;
}

static sl_status run_kernels(const sl_stage *stage, sl_program program,
                             sl_memory *memory, const microbatch *slot,
                             const sl__run *run)
{
    sl_status status = SL_OK;
    if (memory->held_at != memory->owner->zeroed)
        drop_held(memory);
    if (memory->packed_at != memory->owner->written)
        status = run_packs(memory, slot, run);
    const sl__kernel *kernel = stage->kernels[program];
    const sl__kernel *end = kernel + stage->programs[program].count;
    for (; kernel < end && !status; kernel++)
        status = run_kernel(kernel, slot->bases, memory->pointers, run);
    return status;
}

sl_status sl__memory_pack(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    if (memory->packed_at == memory->owner->written || stage->packs.count == 0)
        return SL_OK;
    const microbatch *slot = &memory->slots[0];
    sl__run run = {slot->states,           0,          1,
                   stage->options.threads, SL_ADD_NOW, false};
    sl__saved saved;
    stage->backend->begin(run.threads, &saved);
    sl_status status = run_packs(memory, slot, &run);
    stage->backend->end(&saved);
    return status;
}

bool sl__stage_waits(const sl_stage *stage)
{
    for (size_t i = 0; stage->held_offsets && i < stage->graph->node_count;
         i++) {
        if (stage->held_offsets[i] >= 0)
            return true;
    }
    return false;
}

bool sl__stage_takes_along(const sl_stage *stage, bool lends)
{
    const sl__turns *weights = &stage->programs[SL_PROGRAM_W];
    bool any = false, all = stage->programs[SL_PROGRAM_B].exists;
    for (size_t i = 0; i < weights->count && all; i++) {
        const sl__kernel *kernel = &stage->kernels[SL_PROGRAM_W][i];
        bool is_product = kernel->node->op == SL__MATMUL;
        any = any || is_product;
        all = !is_product || kernel->holds_all || (kernel->reads_far && lends);
    }
    return weights->exists && any && all;
}

sl_status sl_memory_settle(sl_memory *memory)
{
    SL__NEED(memory);
    const sl_stage *stage = memory->stage;
    bool split = stage->programs[SL_PROGRAM_W].exists;
    int program = split ? SL_PROGRAM_W : SL_PROGRAM_B;
    const microbatch *slot = &memory->slots[0];
    const sl__run run = {slot->states,           0,          1,
                         stage->options.threads, SL_ADD_NOW, true};
    sl_status status = SL_OK;
    sl__saved saved;
    if (memory->held_at != memory->owner->zeroed)
        drop_held(memory);
    stage->backend->begin(run.threads, &saved);
    for (size_t i = 0; i < stage->programs[program].count && !status; i++) {
        const sl__kernel *kernel = &stage->kernels[program][i];
        if (kernel->held_bytes)
            status = run_kernel(kernel, slot->bases, memory->pointers, &run);
    }
    stage->backend->end(&saved);
    return status;
}

static const char program_names[SL_PROGRAM_COUNT + 1] = "FIWB";

static sl_status check_run(const sl_stage *stage, sl_program program,
                           const sl_memory *memory, int slot)
{
    if (program < 0 || program >= SL_PROGRAM_COUNT)
        return sl_fail(SL_EINVAL, "there is no program %d", (int)program);
    char name = program_names[program];
    if (memory->stage != stage)
        return sl_fail(SL_EINVAL, "%c: the memory is of another stage", name);
    if (slot < 0 || slot >= memory->slot_count)
        return sl_fail(SL_EINVAL, "%c: slot %d, expected 0 to %d", name, slot,
                       memory->slot_count - 1);
    if (!stage->programs[program].exists)
        return sl_fail(SL_EINVAL,
                       "%c was not asked for when the stage was "
                       "compiled",
                       name);
    slot_state state = memory->slots[slot].state;
    if (program == SL_PROGRAM_F && state == SLOT_I)
        return sl_fail(SL_EINVAL, "F on slot %d comes before its W", slot);
    if (program == SL_PROGRAM_W && state != SLOT_I)
        return sl_fail(SL_EINVAL, "W on slot %d comes before its I", slot);
    if ((program == SL_PROGRAM_I || program == SL_PROGRAM_B) && state != SLOT_F)
        return sl_fail(SL_EINVAL, "%c on slot %d %s", name, slot,
                       state == SLOT_I ? "comes after its I"
                                       : "comes before its F");
    return SL_OK;
}

sl_status sl_stage_run(const sl_stage *stage, sl_program program,
                       sl_memory *memory, int slot_index,
                       const sl_run_options *options)
{
    SL__NEED(stage, memory);
    static const sl_run_options defaults = SL_RUN_OPTIONS_INIT;
    static const slot_state after[SL_PROGRAM_COUNT] = {SLOT_F, SLOT_I,
                                                       SLOT_EMPTY, SLOT_EMPTY};
    sl_status status = check_run(stage, program, memory, slot_index);
    if (status)
        return status;
    if (!options)
        options = &defaults;
    microbatch *slot = &memory->slots[slot_index];
    if (program == SL_PROGRAM_F)
        slot->seed = options->seed;
    else
        set_given_back(memory->owner, BACK_GRADIENTS, 0);
    sl__run run = {slot->states,           slot->seed,      options->loss_scale,
                   stage->options.threads, options->adding, false};
    sl__saved saved;
    stage->backend->begin(run.threads, &saved);
    status = sl__is_callbacks(stage)
                 ? sl__run_callbacks(stage, program, slot->bases,
                                     memory->pointers, slot_index, &run)
                 : run_kernels(stage, program, memory, slot, &run);
    stage->backend->end(&saved);
    /* A failed run leaves a slot that only F can use again. */
    slot->state = status ? SLOT_EMPTY : after[program];
    return status;
}

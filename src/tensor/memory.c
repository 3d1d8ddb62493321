/* SPDX-License-Identifier: MIT
 *
 * The memory of one user of a stage: the pools of the plan, allocated once and
 * counted. */
#include "tensor/memory.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------- life -- */

/* Counts bytes that become held, or with a negative number are no longer. */
static void hold(sl_memory *memory, int64_t bytes)
{
    sl__holding *holding = memory->holding;
    if (!holding)
        return;
    holding->now += bytes;
    if (holding->now > holding->most)
        holding->most = holding->now;
}

sl_status sl__memory_allocate(sl_memory *memory, const char *what,
                              int64_t bytes, void **out)
{
    SL__TRY(sl__device_allocate(memory->stream, what, bytes, out));
    memory->bytes += bytes;
    hold(memory, bytes);
    return SL_OK;
}

static void release(sl_memory *memory, void *data)
{
    memory->stream->buffers->release(memory->stream, data);
}

void sl__memory_free(sl_memory *memory, int64_t bytes, void *data)
{
    release(memory, data);
    memory->bytes -= bytes;
    hold(memory, -bytes);
}

void sl__memory_count_in(sl_memory *memory, sl__holding *holding)
{
    memory->holding = holding;
    hold(memory, memory->bytes);
}

void sl__memory_count_discarded(sl_memory *memory, int which, int64_t bytes)
{
    assert(bytes >= 0);
    hold(memory, memory->discarded[which] - bytes);
    memory->discarded[which] = bytes;
}

void sl__memory_set_discarded(sl_memory *memory, sl_port_kind kind,
                              int64_t bytes)
{
    bool parameters = kind == SL_PORT_PARAMETER;
    sl__memory_count_discarded(
        memory, parameters ? DISCARDED_PARAMETERS : DISCARDED_GRADIENTS, bytes);
}

sl__stream *sl__memory_stream(const sl_memory *memory)
{
    return memory->stream;
}

static void fill_bases(sl_memory *memory, const int of[SL__SLOT_KINDS],
                       microbatch *slot)
{
    const sl_stage *stage = memory->stage;
    char *starts[SL__SLOT_KINDS];
    for (int k = 0; k < SL__SLOT_KINDS; k++)
        starts[k] = memory->pools[k] ? (char *)memory->pools[k] +
                                           of[k] * stage->slot_bytes[k]
                                     : NULL;
    slot->bases[SL__POOL_PARAMETERS] = memory->parameters;
    slot->bases[SL__POOL_GRADIENTS] = memory->gradients;
    slot->bases[SL__POOL_PACKED] = memory->packed;
    slot->bases[SL__POOL_WORKSPACE] = memory->workspace;
    slot->bases[SL__POOL_SLAB] = starts[SL__SLOT_SLAB];
    slot->bases[SL__POOL_HANDED] = starts[SL__SLOT_HANDED];
    for (int m = 0; m < stage->message_count; m++) {
        const sl__message *message = &stage->messages[m];
        slot->bases[SL__POOL_MESSAGES + m] =
            starts[sl__slot_kind_of(message->kind)] + message->offset;
    }
}

static const char *const slot_names[SL__SLOT_KINDS] = {
    [SL__SLOT_SLAB] = "what forwards save",
    [SL__SLOT_HANDED] = "what I leaves for W",
    [SL__SLOT_INPUTS] = "inputs of stages",
    [SL__SLOT_OUTPUTS] = "outputs of stages",
    [SL__SLOT_INPUT_GRADIENTS] = "gradients of inputs",
    [SL__SLOT_OUTPUT_GRADIENTS] = "gradients of outputs"};

static sl_status make_slots(sl_memory *memory, const sl__slots *slots)
{
    const sl_stage *stage = memory->stage;
    size_t pools = SL__POOL_MESSAGES + (size_t)stage->message_count;
    size_t count = (size_t)slots->microbatches;
    for (int k = 0; k < SL__SLOT_KINDS; k++) {
        int64_t bytes = slots->counts[k] * stage->slot_bytes[k];
        if (bytes)
            SL__TRY(sl__memory_allocate(memory, slot_names[k], bytes,
                                        &memory->pools[k]));
    }
    SL__TRY(sl__alloc(count, sizeof *memory->slots, &memory->slots));
    memory->slot_count = slots->microbatches;
    SL__TRY(sl__alloc(count, sizeof *memory->blocks, &memory->blocks));
    SL__TRY(sl__alloc(pools * count, sizeof(void *), &memory->bases));
    for (int i = 0; i < memory->slot_count; i++) {
        microbatch *slot = &memory->slots[i];
        slot->bases = memory->bases + i * pools;
        slot->block = (sl__step_block *)(void *)((char *)memory->control +
                                                 (1 + i) * SL__BLOCK_BYTES);
        for (int k = 0; k < SL__SLOT_KINDS; k++)
            assert(
                slots->counts[k] == 0 ||
                (slots->of[i][k] >= 0 && slots->of[i][k] < slots->counts[k]));
        fill_bases(memory, slots->of[i], slot);
    }
    return SL_OK;
}

static sl_status make_pools(sl_memory *memory, int slots)
{
    const sl_stage *stage = memory->stage;
    const sl_plan *plan = &stage->plan;
    bool owns = memory->owner == memory;
    const struct {
        const char *name;
        int64_t bytes;
        void **out;
    } pools[] = {
        {"parameters", owns ? plan->parameter_bytes : 0, &memory->parameters},
        {"gradients", owns ? plan->gradient_bytes : 0, &memory->gradients},
        {"packed weights", plan->packed_bytes, &memory->packed},
        {"the workspace", plan->workspace_bytes, &memory->workspace},
        {"control blocks", plan->control_bytes * (1 + (int64_t)slots),
         &memory->control},
    };
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        if (pools[i].bytes)
            SL__TRY(sl__memory_allocate(memory, pools[i].name, pools[i].bytes,
                                        pools[i].out));
    }
    memory->parameters = memory->owner->parameters;
    memory->gradients = memory->owner->gradients;
    return SL_OK;
}

static sl_status fill_buffers(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    const sl__names *buffers = &stage->graph->buffers;
    for (size_t i = 0; i < buffers->count; i++) {
        const sl_tensor *tensor = buffers->data[i].tensor;
        char *to = (char *)memory->parameters + stage->buffer_offsets[i];
        if (tensor->data)
            SL__TRY(sl__device_write(memory->stream, to, tensor->data,
                                     (size_t)sl__bytes(tensor)));
    }
    return SL_OK;
}

/* How many pointers a run needs at once. */
static size_t pointer_count(const sl_stage *stage)
{
    if (sl__is_callbacks(stage))
        return 4 * (stage->graph->inputs.count + stage->graph->outputs.count);
    return ((size_t)stage->arg_count_max + 2) * SL__GROUP_MAX;
}

/* Callbacks work on host memory: messages that are elsewhere need copies
 * there. */
static sl_status make_staging(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    if (!sl__is_callbacks(stage) || sl__is_host(memory->stream))
        return SL_OK;
    return sl__alloc((size_t)stage->plan.message_bytes, 1, &memory->staging);
}

static sl_status fill(sl_memory *memory, const sl__slots *slots,
                      sl__stream *stream)
{
    const sl_stage *stage = memory->stage;
    if (stream)
        memory->stream = stream;
    else
        SL__TRY(
            stage->backend->device.open_stream(stage->device, &memory->stream));
    memory->owns_stream = !stream;
    SL__TRY(sl__alloc(pointer_count(stage), sizeof *memory->pointers,
                      &memory->pointers));
    SL__TRY(make_pools(memory, slots->microbatches));
    SL__TRY(make_slots(memory, slots));
    SL__TRY(make_staging(memory));
    if (stage->lanes)
        SL__TRY(sl__alloc(stage->programs[SL_PROGRAM_B].count,
                          sizeof *memory->marks, &memory->marks));
    return memory->owner == memory ? fill_buffers(memory) : SL_OK;
}

/* Refuses lists unless they have the same tensors under the same names, in
 * order. */
static sl_status check_same(const sl__names *own, const sl__names *theirs)
{
    char quoted[SL__QUOTED_MAX], mine[SL__SHAPE_TEXT], other[SL__SHAPE_TEXT];
    char theirs_quoted[SL__QUOTED_MAX];
    if (own->count != theirs->count)
        return sl_fail(SL_EINVAL,
                       "the stage has %zu parameters or buffers, expected %zu "
                       "as the owner of the memory has",
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
            "the stage has '%s' of %s %s where the owner "
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

static sl_status check_owner(const sl_stage *stage, const sl_memory *owner)
{
    const sl_stage *other = owner->stage;
    SL__TRY(check_same(&stage->graph->parameters, &other->graph->parameters));
    SL__TRY(check_same(&stage->graph->buffers, &other->graph->buffers));
    if (stage->backend != other->backend ||
        stage->plan.gradient_bytes != other->plan.gradient_bytes)
        return sl_fail(SL_EINVAL, "the stage was compiled for another backend "
                                  "than the owner's, or without backward");
    return SL_OK;
}

sl_status sl__memory_create(const sl_stage *stage, const sl__slots *slots,
                            sl_memory *owner, sl__stream *stream,
                            sl_memory **out)
{
    sl_memory *memory;
    if (owner)
        SL__TRY(check_owner(stage, owner->owner));
    SL__TRY(sl__alloc(1, sizeof *memory, &memory));
    memory->stage = stage;
    memory->owner = owner ? owner->owner : memory;
    memory->written = 1;
    sl_status status = fill(memory, slots, stream);
    if (status)
        sl_memory_destroy(memory);
    else
        *out = memory;
    return status;
}

/* As many slots of each kind as microbatches. */
static sl_status create_alike(const sl_stage *stage, int count,
                              sl_memory *owner, sl_memory **out)
{
    enum { SLOTS_MAX = 1 << 20 };
    int(*of)[SL__SLOT_KINDS];
    if (count < 1 || count > SLOTS_MAX)
        return sl_fail(SL_EINVAL, "%d slots, expected 1 to %d", count,
                       SLOTS_MAX);
    SL__TRY(sl__alloc((size_t)count, sizeof *of, &of));
    sl__slots slots = {.of = (const int(*)[SL__SLOT_KINDS])of,
                       .microbatches = count};
    for (int k = 0; k < SL__SLOT_KINDS; k++) {
        slots.counts[k] = count;
        for (int i = 0; i < count; i++)
            of[i][k] = i;
    }
    sl_status status = sl__memory_create(stage, &slots, owner, NULL, out);
    free(of);
    return status;
}

sl_status sl_memory_create(const sl_stage *stage, int slots, sl_memory **out)
{
    SL__NEED(stage, out);
    return create_alike(stage, slots, NULL, out);
}

sl_status sl_memory_create_shared(const sl_stage *stage, int slots,
                                  sl_memory *owner, sl_memory **out)
{
    SL__NEED(stage, owner, out);
    return create_alike(stage, slots, owner, out);
}

void sl_memory_destroy(sl_memory *memory)
{
    if (!memory)
        return;
    const sl__backend *backend = memory->stage->backend;
    if (memory->stream) {
        for (int k = 0; k < SL__SLOT_KINDS; k++)
            release(memory, memory->pools[k]);
        if (memory->owner == memory) {
            release(memory, memory->parameters);
            release(memory, memory->gradients);
        }
        release(memory, memory->packed);
        release(memory, memory->workspace);
        release(memory, memory->control);
    }
    if (memory->owns_stream)
        backend->device.close_stream(memory->stream);
    free(memory->slots);
    free(memory->blocks);
    free(memory->bases);
    free(memory->pointers);
    free(memory->staging);
    free(memory->marks);
    free(memory);
}

void *sl__memory_pool(const sl_memory *memory, int pool, int slot,
                      int64_t *out_bytes)
{
    const sl_plan *plan = &memory->stage->plan;
    const int64_t bytes[] = {plan->parameter_bytes, plan->gradient_bytes,
                             plan->packed_bytes,    plan->workspace_bytes,
                             plan->slab_bytes,      plan->handed_bytes};
    *out_bytes = pool < SL__POOL_MESSAGES
                     ? bytes[pool]
                     : memory->stage->messages[pool - SL__POOL_MESSAGES].bytes;
    return memory->slots[slot].bases[pool];
}

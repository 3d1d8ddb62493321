/* SPDX-License-Identifier: MIT
 *
 * What goes into a memory and comes out of it by port, and what optimizers do
 * to its parameters. */
#include "tensor/memory.h"

#include "base/arguments.h"

#include <assert.h>
#include <string.h>

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
    sl__memory_give_back(memory, BACK_PACKED, memory->stage->plan.packed_bytes);
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
}

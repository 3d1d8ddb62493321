/* SPDX-License-Identifier: MIT
 *
 * Reading and writing a memory by port, and what optimizers do to its
 * parameters. */
#include "tensor/memory.h"

#include "base/arguments.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

/* Whether the callbacks of a stage copy this port. */
static bool is_called(const sl_stage *stage, const sl_port *port)
{
    return sl__is_callbacks(stage) && sl__is_parameter_kind(port->kind);
}

/* Where a parameter or its gradient lies; NULL if that is outside of this
 * memory. */
static char *parameter_memory(const sl_memory *memory, const sl_port *port)
{
    const sl_stage *stage = memory->stage;
    bool values = port->kind == SL_PORT_PARAMETER;
    char *pool = values ? memory->parameters : memory->gradients;
    if (!pool || sl__is_callbacks(stage))
        return NULL;
    assert(port->index >= 0 && port->index < stage->graph->parameter_count);
    return pool +
           (values ? stage->parameters : stage->gradients)[port->index].offset;
}

void *sl__port_memory(const sl_memory *memory, const sl_port *port, int slot)
{
    const sl_stage *stage = memory->stage;
    assert(port->kind >= SL_PORT_PARAMETER && port->kind <= SL_PORT_BUFFER);
    if (sl__is_parameter_kind(port->kind))
        return parameter_memory(memory, port);
    if (port->kind == SL_PORT_BUFFER) {
        assert(port->index >= 0 &&
               (size_t)port->index < stage->graph->buffers.count);
        return (char *)memory->parameters + stage->buffer_offsets[port->index];
    }
    int message = sl__find_message(stage, port->kind, port->index);
    if (message < 0 || slot < 0 || slot >= memory->slot_count)
        return NULL;
    return memory->slots[slot].bases[SL__POOL_MESSAGES + message];
}

static sl_status find_port(const sl_memory *memory, const sl_port *port,
                           int slot, void **out)
{
    *out = sl__port_memory(memory, port, slot);
    if (*out)
        return SL_OK;
    return sl_fail(SL_EINVAL, "'%s' is not in slot %d of %d of this memory",
                   port->name, slot, memory->slot_count);
}

/* Elements that are converted at a time. */
enum { CONVERTED = 4096 };

static sl_status write_converted(sl_memory *memory, sl_dtype to_dtype, void *to,
                                 sl_dtype from_dtype, const void *from,
                                 int64_t count)
{
    _Alignas(8) char some[CONVERTED * sizeof(double)];
    size_t size = sl_dtype_bytes(to_dtype);
    for (int64_t at = 0; at < count; at += CONVERTED) {
        int64_t now = count - at < CONVERTED ? count - at : CONVERTED;
        SL__TRY(sl__convert_floats(
            to_dtype, some, from_dtype,
            (const char *)from + (size_t)at * sl_dtype_bytes(from_dtype), now));
        SL__TRY(sl__device_write(memory->stream, (char *)to + (size_t)at * size,
                                 some, (size_t)now * size));
    }
    return SL_OK;
}

static sl_status read_converted(const sl_memory *memory, sl_dtype to_dtype,
                                void *to, sl_dtype from_dtype, const void *from,
                                int64_t count)
{
    _Alignas(8) char some[CONVERTED * sizeof(double)];
    size_t size = sl_dtype_bytes(from_dtype);
    for (int64_t at = 0; at < count; at += CONVERTED) {
        int64_t now = count - at < CONVERTED ? count - at : CONVERTED;
        SL__TRY(sl__device_read(memory->stream, some,
                                (const char *)from + (size_t)at * size,
                                (size_t)now * size));
        SL__TRY(sl__convert_floats(
            to_dtype, (char *)to + (size_t)at * sl_dtype_bytes(to_dtype),
            from_dtype, some, now));
    }
    return SL_OK;
}

static sl_status check_access(const sl_stage *stage, const sl_port *port,
                              size_t bytes, sl_dtype *out_dtype)
{
    SL__TRY(sl__check_port(stage, port, bytes, out_dtype));
    if (*out_dtype == port->dtype || !is_called(stage, port))
        return SL_OK;
    return sl_fail(SL_EINVAL, "'%s' is %s, and callbacks do not convert",
                   port->name, sl_dtype_text(*out_dtype));
}

sl_status sl_memory_write(sl_memory *memory, const sl_port *port, int slot,
                          const void *data, size_t bytes)
{
    SL__NEED(memory, port, data);
    void *to;
    sl_dtype dtype;
    const sl_stage *stage = memory->stage;
    SL__TRY(check_access(stage, port, bytes, &dtype));
    if (is_called(stage, port))
        return stage->callbacks.write(stage->callback_context, port->index,
                                      port->kind == SL_PORT_PARAMETER_GRADIENT,
                                      data, bytes);
    SL__TRY(find_port(memory, port, slot, &to));
    if (dtype == port->dtype)
        SL__TRY(sl__device_write(memory->stream, to, data, bytes));
    else
        SL__TRY(
            write_converted(memory, dtype, to, port->dtype, data,
                            (int64_t)(bytes / sl_dtype_bytes(port->dtype))));
    /* A buffer may be packed, too. */
    if (port->kind == SL_PORT_PARAMETER || port->kind == SL_PORT_BUFFER)
        sl__memory_mark_written(memory);
    return SL_OK;
}

sl_status sl_memory_read(const sl_memory *memory, const sl_port *port, int slot,
                         void *data, size_t bytes)
{
    SL__NEED(memory, port, data);
    void *from;
    sl_dtype dtype;
    const sl_stage *stage = memory->stage;
    SL__TRY(check_access(stage, port, bytes, &dtype));
    if (is_called(stage, port))
        return stage->callbacks.read(stage->callback_context, port->index,
                                     port->kind == SL_PORT_PARAMETER_GRADIENT,
                                     data, bytes);
    SL__TRY(find_port(memory, port, slot, &from));
    if (dtype == port->dtype)
        return sl__device_read(memory->stream, data, from, bytes);
    return read_converted(memory, port->dtype, data, dtype, from,
                          (int64_t)(bytes / sl_dtype_bytes(port->dtype)));
}

/* --------------------------------------------------------------- pieces -- */

/* The memory of a part of a parameter or gradient that is on the device. */
static char *find_piece(const sl_memory *memory, const sl_port *port,
                        size_t first, size_t bytes)
{
    char *data = sl__port_memory(memory, port, 0);
    assert(data && first + bytes <= (size_t)port->bytes);
    return data + first;
}

sl_status sl__memory_write_piece(sl_memory *memory, const sl_port *port,
                                 size_t first, const void *data, size_t bytes)
{
    char *to = find_piece(memory, port, first, bytes);
    SL__TRY(sl__device_write(memory->stream, to, data, bytes));
    if (port->kind == SL_PORT_PARAMETER)
        sl__memory_mark_written(memory);
    return SL_OK;
}

sl_status sl__memory_read_piece(const sl_memory *memory, const sl_port *port,
                                size_t first, void *data, size_t bytes)
{
    return sl__device_read(memory->stream, data,
                           find_piece(memory, port, first, bytes), bytes);
}

sl_status sl__memory_clear(sl_memory *memory, const sl_port *port, size_t first,
                           size_t bytes)
{
    return sl__device_clear(memory->stream,
                            find_piece(memory, port, first, bytes), bytes);
}

void sl__memory_mark_written(sl_memory *memory)
{
    memory->owner->written++;
}

void sl__memory_mark_updated(sl_memory *memory)
{
    const sl__packs *packs = &memory->stage->packs;
    bool stays = memory->packed_at == memory->owner->written;
    for (size_t i = 0; i < packs->count; i++)
        stays = stays && packs->data[i]->is_cast;
    sl__memory_mark_written(memory);
    if (stays)
        memory->packed_at = memory->owner->written;
}

sl_status sl__memory_discard(sl_memory *memory, const sl_port *port,
                             size_t first, size_t length)
{
    sl__stream *stream = memory->stream;
    const sl__buffer_ops *buffers = stream->buffers;
    char *data = sl__port_memory(memory, port, 0);
    size_t bytes = (size_t)port->bytes, end = first + length;
    int64_t packed = memory->stage->plan.packed_bytes;
    SL__TRY(buffers->discard(stream, data, first));
    SL__TRY(buffers->discard(stream, data + end, bytes - end));
    if (port->kind != SL_PORT_PARAMETER || !memory->packed ||
        memory->packed_at == 0)
        return SL_OK;
    SL__TRY(buffers->discard(stream, memory->packed, (size_t)packed));
    sl__memory_count_discarded(memory, DISCARDED_PACKED, packed);
    memory->packed_at = 0;
    return SL_OK;
}

/* ---------------------------------------------------------- optimizers -- */

/* Where a parameter is packed as a cast; NULL: nowhere. */
static void *find_cast(const sl_memory *memory, int parameter)
{
    const sl__packs *packs = &memory->stage->packs;
    for (size_t i = 0; i < packs->count; i++) {
        const sl__pack *pack = packs->data[i];
        if (pack->is_cast && pack->tensor->leaf == SL__PARAMETER &&
            pack->tensor->leaf_index == parameter)
            return (char *)memory->packed + pack->args[1].offset;
    }
    return NULL;
}

sl__update_args sl__memory_update_args(const sl_memory *memory,
                                       const sl_port *gradient, size_t first,
                                       size_t count, void *const states[2])
{
    const sl_stage *stage = memory->stage;
    assert(gradient->kind == SL_PORT_PARAMETER_GRADIENT && memory->gradients);
    const sl__piece_of *value = &stage->parameters[gradient->index];
    const sl__piece_of *slope = &stage->gradients[gradient->index];
    const sl__update_args whole = {
        .dtype = value->dtype,
        .gradient_dtype = slope->dtype,
        .value = (char *)memory->parameters + value->offset,
        .gradient = (char *)memory->gradients + slope->offset,
        .first = states ? states[0] : NULL,
        .second = states ? states[1] : NULL,
        .half = find_cast(memory, gradient->index)};
    return sl__update_part(&whole, (int64_t)first, (int64_t)count);
}

sl_status sl__memory_descend_part(sl_memory *memory, const sl_port *gradient,
                                  size_t first, size_t count, double rate)
{
    static const sl__update how = {.kind = SL_UPDATE_SGD};
    const sl__update_block block = {.rate = rate, .scale = 1, .step = 1};
    const sl__backend *backend = memory->stage->backend;
    const sl__update_args args =
        sl__memory_update_args(memory, gradient, first, count, NULL);
    SL__TRY(sl__device_write(memory->stream, memory->control, &block,
                             sizeof block));
    SL__TRY(backend->device.begin(memory->stream));
    sl_status status = backend->kernels.update(memory->stream, &how,
                                               memory->control, &args, 1);
    SL__TRY(backend->device.end(memory->stream));
    sl__memory_mark_written(memory);
    return status;
}

sl_status sl_memory_descend(sl_memory *memory, double rate)
{
    SL__NEED(memory);
    const sl_stage *stage = memory->stage;
    int count = sl_stage_port_count(stage, SL_PORT_PARAMETER);
    if (count == 0)
        return SL_OK;
    if (sl__is_callbacks(stage) || !memory->gradients)
        return sl_fail(SL_EINVAL, "this stage has no gradients here");
    for (int i = 0; i < count; i++) {
        sl_port port;
        SL__TRY(sl_stage_port_at(stage, SL_PORT_PARAMETER_GRADIENT, i, &port));
        size_t numbers = (size_t)port.bytes / sl_dtype_bytes(port.dtype);
        SL__TRY(sl__memory_descend_part(memory, &port, 0, numbers, rate));
    }
    return SL_OK;
}

void sl_memory_zero_gradients(sl_memory *memory)
{
    if (!memory)
        return;
    const sl_stage *stage = memory->stage;
    if (sl__is_callbacks(stage) && stage->callbacks.zero_gradients)
        stage->callbacks.zero_gradients(stage->callback_context);
    if (memory->gradients)
        (void)sl__device_clear(memory->stream, memory->gradients,
                               (size_t)stage->plan.gradient_bytes);
}

/* SPDX-License-Identifier: MIT
 *
 * What a stage shows of itself: ports by name, and its programs as text. */
#include "tensor/program.h"

#include "base/arguments.h"
#include "base/text.h"
#include "base/writer.h"

#include <string.h>

/* ---------------------------------------------------------------- ports -- */

static const sl__names *names_of(const sl_stage *stage, sl_port_kind kind)
{
    if (sl__is_parameter_kind(kind))
        return &stage->graph->parameters;
    if (kind == SL_PORT_BUFFER)
        return &stage->graph->buffers;
    return kind == SL_PORT_INPUT || kind == SL_PORT_INPUT_GRADIENT
               ? &stage->graph->inputs
               : &stage->graph->outputs;
}

/* Whether this stage has gradients of parameters. */
static bool has_gradients(const sl_stage *stage)
{
    return stage->plan.gradient_bytes > 0 ||
           (sl__is_callbacks(stage) && stage->programs[SL_PROGRAM_B].exists);
}

/* Whether the i-th name is a port of this kind, and the first name of its
 * tensor. */
static bool is_port(const sl_stage *stage, sl_port_kind kind, size_t i)
{
    const sl__named *named = &names_of(stage, kind)->data[i];
    if (sl__is_parameter_kind(kind))
        return strcmp(named->tensor->name, named->name) == 0 &&
               (kind == SL_PORT_PARAMETER || has_gradients(stage));
    if (kind == SL_PORT_BUFFER)
        return true;
    return sl__find_message(stage, kind, (int)i) >= 0;
}

static void fill_port(const sl_stage *stage, sl_port_kind kind, size_t i,
                      sl_port *out)
{
    const sl__named *named = &names_of(stage, kind)->data[i];
    const sl_tensor *tensor = named->tensor;
    sl_dtype dtype = kind == SL_PORT_PARAMETER_GRADIENT ? tensor->gradient_dtype
                                                        : tensor->dtype;
    *out = (sl_port){
        .kind = kind,
        .index = sl__is_parameter_kind(kind) ? tensor->leaf_index : (int)i,
        .dtype = dtype,
        .dims = tensor->dims,
        .bytes = sl__count(tensor) * (int64_t)sl_dtype_bytes(dtype),
        .name = sl__is_parameter_kind(kind) ? tensor->name : named->name,
    };
    memcpy(out->shape, tensor->shape, sizeof *tensor->shape * tensor->dims);
}

static bool is_kind(sl_port_kind kind)
{
    return kind >= SL_PORT_PARAMETER && kind <= SL_PORT_BUFFER;
}

sl_status sl__check_port(const sl_stage *stage, const sl_port *port,
                         size_t bytes, sl_dtype *out_dtype)
{
    const sl__names *names = names_of(stage, port->kind);
    const sl__named *named = port->name && is_kind(port->kind)
                                 ? sl__find_name(names, port->name)
                                 : NULL;
    sl_port own = {.index = -1};
    if (named)
        fill_port(stage, port->kind, (size_t)(named - names->data), &own);
    bool same = own.index == port->index;
    *out_dtype = own.dtype;
    if (same && own.dtype != port->dtype) {
        same = sl__is_float(own.dtype) && sl__is_float(port->dtype);
        own.bytes = own.bytes / (int64_t)sl_dtype_bytes(own.dtype) *
                    (int64_t)sl_dtype_bytes(port->dtype);
    }
    if (same && bytes != (size_t)own.bytes)
        return sl_fail(SL_EINVAL, "'%s' has %lld bytes, found %zu", port->name,
                       (long long)own.bytes, bytes);
    if (same && own.bytes == port->bytes)
        return SL_OK;
    return sl_fail(SL_EINVAL, "'%.60s' is a port of another stage",
                   port->name ? port->name : "");
}

sl_status sl_stage_port(const sl_stage *stage, sl_port_kind kind,
                        const char *name, sl_port *out)
{
    SL__NEED(stage, name, out);
    static const char *const kinds[] = {
        "parameter", "parameter with gradient", "input", "input with gradient",
        "output",    "output with gradient",    "buffer"};
    char quoted[SL__QUOTED_MAX];
    if (!is_kind(kind))
        return sl_fail(SL_EINVAL, "there is no kind of port %d", (int)kind);
    const sl__names *names = names_of(stage, kind);
    const sl__named *named = sl__find_name(names, name);
    size_t index = named ? (size_t)(named - names->data) : 0;
    bool found =
        named && (sl__is_parameter_kind(kind)
                      ? kind == SL_PORT_PARAMETER || has_gradients(stage)
                      : is_port(stage, kind, index));
    if (!found)
        return sl_fail(SL_ENOTFOUND, "the stage has no %s named '%s'",
                       kinds[kind], sl__quoted(name, strlen(name), quoted));
    fill_port(stage, kind, index, out);
    return SL_OK;
}

int sl_stage_port_count(const sl_stage *stage, sl_port_kind kind)
{
    int count = 0;
    if (!stage)
        return 0;
    for (size_t i = 0; is_kind(kind) && i < names_of(stage, kind)->count; i++)
        count += is_port(stage, kind, i);
    return count;
}

sl_status sl_stage_port_at(const sl_stage *stage, sl_port_kind kind, int index,
                           sl_port *out)
{
    SL__NEED(stage, out);
    int at = 0;
    for (size_t i = 0; is_kind(kind) && i < names_of(stage, kind)->count; i++) {
        if (is_port(stage, kind, i) && at++ == index) {
            fill_port(stage, kind, i, out);
            return SL_OK;
        }
    }
    return sl_fail(SL_EINVAL, "there is no port %d; this kind has %d", index,
                   at);
}

/* ----------------------------------------------------------------- text -- */

static void put_pool(sl__writer *writer, const sl_stage *stage,
                     const sl__arg *arg)
{
    static const char *const names[] = {"parameters", "gradients", "packed",
                                        "workspace",  "slab",      "handed"};
    static const char *const kinds[] = {
        "", "", "input", "input-gradient", "output", "output-gradient"};
    if (arg->pool < SL__POOL_MESSAGES) {
        sl__printf(writer, "%s+%lld", names[arg->pool], (long long)arg->offset);
        return;
    }
    const sl__message *message =
        &stage->messages[arg->pool - SL__POOL_MESSAGES];
    sl__printf(writer, "%s.%d+%lld", kinds[message->kind], message->index,
               (long long)arg->offset);
}

static void put_arg(sl__writer *writer, const sl_stage *stage,
                    const sl__arg *arg)
{
    char text[SL__SHAPE_TEXT];
    if (arg->pool == SL__POOL_NONE) {
        sl__puts(writer, " -");
        return;
    }
    sl__printf(writer, " %s", sl__shape_text(arg->dims, arg->shape, text));
    sl__putc(writer, '@');
    put_pool(writer, stage, arg);
}

static void put_kernel(sl__writer *writer, const sl_stage *stage, char program,
                       size_t index, const sl__kernel *kernel)
{
    sl__printf(writer, "%c%zu %s", program, index,
               sl__ops[kernel->node->op].name);
    if (kernel->activation != SL__OP_COUNT)
        sl__printf(writer, "+%s", sl__ops[kernel->activation].name);
    for (int i = 0; i < kernel->arg_count; i++) {
        bool scratch = kernel->scratch_bytes && i == kernel->arg_count - 1;
        if (i == kernel->operand_count)
            sl__puts(writer, kernel->adds ? " +>" : " ->");
        if (scratch)
            sl__printf(writer, " scratch %lld",
                       (long long)kernel->scratch_bytes);
        else
            put_arg(writer, stage, &kernel->args[i]);
    }
    sl__putc(writer, '\n');
}

sl_status sl_stage_write_text(const sl_stage *stage, sl_write_fn write,
                              void *context)
{
    SL__NEED(stage, write);
    sl__writer writer;
    sl__writer_start(&writer, write, context);
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        for (size_t i = 0; i < stage->programs[p].count; i++)
            put_kernel(&writer, stage, "FIWB"[p], i, &stage -> kernels[p][i]);
    }
    return sl__writer_finish(&writer);
}

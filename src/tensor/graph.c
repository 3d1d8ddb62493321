/* SPDX-License-Identifier: MIT
 *
 * Graphs: life, inputs, parameters, outputs, and the refusal that a graph
 * remembers. Scopes are in modules.c, ops in build.c, what these append with in
 * emit.c. */
#include "tensor/graph.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ADDS      SL__ADDS
#define DENSE     SL__DENSE
#define STRIDED   SL__STRIDED
#define IN_PLACE  SL__IN_PLACE
#define IN_PLACE2 SL__IN_PLACE2
const sl__op_info sl__ops[SL__OP_COUNT] = {
#define SL_OP(NAME, name, results, traits)          {#name, results, traits},
#define SL_VIEW_OP(NAME, name)                      {#name, 1, SL__VIEW},
#define SL_BACKWARD_OP(NAME, name, results, traits) {#name, results, traits},
#include "tensor/ops.def"
#undef SL_OP
#undef SL_VIEW_OP
#undef SL_BACKWARD_OP
};

/* ------------------------------------------------------------ refusals -- */

/* The graph whose refusal does not name its line yet. */
static _Thread_local sl_graph *unlocated;

static void remember(sl_graph *graph, sl_status status)
{
    if (graph->status)
        return;
    graph->status = status;
    graph->refusal = strdup(sl_error_text());
}

sl_tensor *sl__refuse(sl_graph *graph, const char *op, const char *format, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    sl__vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!graph->status)
        unlocated = graph;
    remember(graph, sl_fail(SL_EINVAL, "%s: %s", op, text));
    return NULL;
}

sl_tensor *sl_located(sl_tensor *made, const char *file, int line)
{
    sl_graph *graph = unlocated;
    unlocated = NULL;
    if (!graph)
        return made;
    file = file ? file : "";
    const char *slash = strrchr(file, '/');
    sl_fail(graph->status, "%s:%d: %s", slash ? slash + 1 : file, line,
            graph->refusal ? graph->refusal : "");
    free(graph->refusal);
    graph->refusal = strdup(sl_error_text());
    return made;
}

sl_tensor *sl__no_memory(sl_graph *graph)
{
    remember(graph, sl_fail(SL_ENOMEM, "out of memory building the graph"));
    return NULL;
}

sl_status sl_graph_status(const sl_graph *graph)
{
    SL__NEED(graph);
    if (!graph->status)
        return SL_OK;
    return sl_fail(graph->status, "%s",
                   graph->refusal ? graph->refusal : "out of memory");
}

/* ---------------------------------------------------------------- life -- */

sl_status sl_graph_create(sl_graph **out)
{
    SL__NEED(out);
    return sl__alloc(1, sizeof **out, out);
}

void sl_graph_destroy(sl_graph *graph)
{
    if (!graph)
        return;
    if (unlocated == graph)
        unlocated = NULL;
    sl__arena_clear(&graph->arena);
    free(graph->nodes);
    free(graph->tensors);
    sl__names_clear(&graph->inputs);
    sl__names_clear(&graph->parameters);
    sl__names_clear(&graph->buffers);
    sl__names_clear(&graph->outputs);
    free(graph->modules);
    free(graph->regions);
    free(graph->marks);
    free(graph->refusal);
    free(graph);
}

sl_tensor *sl__new_tensor(sl_graph *graph, sl_dtype dtype, int dims,
                          const int64_t *shape)
{
    enum { TENSORS_MAX = 1 << 20 };
    sl_tensor *tensor;
    if (graph->tensor_count == TENSORS_MAX)
        return sl__refuse(graph, "graph", "more than %d tensors", TENSORS_MAX);
    if (sl__grow(&graph->tensors, &graph->tensor_capacity,
                 graph->tensor_count + 1, sizeof *graph->tensors) ||
        sl__arena_take(&graph->arena, 1, sizeof *tensor, &tensor))
        return sl__no_memory(graph);
    tensor->graph = graph;
    tensor->base = tensor;
    tensor->id = (int)graph->tensor_count;
    tensor->born = (int)graph->node_count;
    tensor->dtype = dtype;
    tensor->dims = dims;
    if (dims)
        memcpy(tensor->shape, shape, sizeof *shape * dims);
    sl__dense_strides(dims, tensor->shape, tensor->stride);
    graph->tensors[graph->tensor_count++] = tensor;
    return tensor;
}

/* --------------------------------------------------------------- names -- */

/* The open scopes and the name, joined by dots, in the graph's arena. */
static const char *scoped_name(sl_graph *graph, const char *op,
                               const char *name, bool scoped)
{
    char full[SL__SCOPE_MAX + 257];
    const char *out;
    if (!name || !*name || strlen(name) > 255) {
        sl__refuse(graph, op, "a name of 1 to 255 bytes is needed");
        return NULL;
    }
    const char *scope = scoped ? sl__open_scope(graph) : "";
    int length =
        snprintf(full, sizeof full, "%s%s%s", scope, *scope ? "." : "", name);
    if (sl__arena_text(&graph->arena, full, length, &out)) {
        sl__no_memory(graph);
        return NULL;
    }
    return out;
}

static bool is_new_name(sl_graph *graph, const char *op, const sl__names *names,
                        const char *name)
{
    char quoted[SL__QUOTED_MAX];
    if (!sl__find_name(names, name))
        return true;
    sl__refuse(graph, op, "there is already one named '%s'",
               sl__quoted(name, strlen(name), quoted));
    return false;
}

static sl_tensor *new_leaf(sl_graph *graph, const char *op, const char *name,
                           bool scoped, sl__names *names, sl_dtype dtype,
                           int dims, const int64_t *shape)
{
    if (graph->status)
        return NULL;
    name = scoped_name(graph, op, name, scoped);
    if (!name || !is_new_name(graph, op, names, name))
        return NULL;
    if (sl_dtype_bytes(dtype) == 0)
        return sl__refuse(graph, op, "dtype %d does not exist", (int)dtype);
    if (!sl__check_shape(graph, op, name, dtype, dims, shape))
        return NULL;
    sl_tensor *tensor = sl__new_tensor(graph, dtype, dims, shape);
    if (tensor)
        tensor->name = name;
    return tensor;
}

sl_tensor *sl__loose_leaf(sl_graph *graph, const char *op, const char *name,
                          sl_dtype dtype, int dims, const int64_t *shape)
{
    return new_leaf(graph, op, name, false, &graph->outputs, dtype, dims,
                    shape);
}

sl_tensor *(sl_input)(sl_graph *graph, const char *name, sl_dtype dtype,
                      int dims, const int64_t *shape, sl_gradient gradient)
{
    if (!graph)
        return NULL;
    sl_tensor *tensor = new_leaf(graph, "input", name, false, &graph->inputs,
                                 dtype, dims, shape);
    if (!tensor)
        return NULL;
    if (gradient && !sl__is_float(dtype))
        return sl__refuse(graph, "input",
                          "'%s' is %s, expected a float to carry a gradient",
                          tensor->name, sl_dtype_text(dtype));
    tensor->leaf = SL__INPUT;
    tensor->leaf_index = (int)graph->inputs.count;
    tensor->needs_gradient = gradient == SL_GRADIENT;
    if (sl__add_name(&graph->inputs, tensor->name, tensor, gradient))
        return sl__no_memory(graph);
    return tensor;
}

sl_tensor *(sl_parameter)(sl_graph *graph, const char *name, sl_dtype dtype,
                          int dims, const int64_t *shape)
{
    if (!graph)
        return NULL;
    sl_tensor *tensor = new_leaf(graph, "parameter", name, true,
                                 &graph->parameters, dtype, dims, shape);
    if (!tensor)
        return NULL;
    if (!is_new_name(graph, "parameter", &graph->buffers, tensor->name))
        return NULL;
    if (!sl__is_float(dtype))
        return sl__refuse(graph, "parameter", "'%s' is %s, expected a float",
                          tensor->name, sl_dtype_text(dtype));
    tensor->leaf = SL__PARAMETER;
    tensor->leaf_index = graph->parameter_count++;
    tensor->needs_gradient = true;
    tensor->gradient_dtype = sl__accumulator(dtype);
    if (sl__add_name(&graph->parameters, tensor->name, tensor, SL_GRADIENT))
        return sl__no_memory(graph);
    return tensor;
}

sl_tensor *(sl_buffer)(sl_graph *graph, const char *name, sl_dtype dtype,
                       int dims, const int64_t *shape, const void *data)
{
    if (!graph)
        return NULL;
    sl_tensor *tensor = new_leaf(graph, "buffer", name, true, &graph->buffers,
                                 dtype, dims, shape);
    if (!tensor ||
        !is_new_name(graph, "buffer", &graph->parameters, tensor->name))
        return NULL;
    tensor->leaf = SL__BUFFER;
    tensor->leaf_index = (int)graph->buffers.count;
    if (data) {
        void *copy;
        size_t bytes = (size_t)sl__bytes(tensor);
        if (sl__arena_take(&graph->arena, bytes, 1, &copy))
            return sl__no_memory(graph);
        memcpy(copy, data, bytes);
        tensor->data = copy;
    }
    if (sl__add_name(&graph->buffers, tensor->name, tensor, SL_NO_GRADIENT))
        return sl__no_memory(graph);
    return tensor;
}

sl_tensor *(sl_alias)(sl_tensor *parameter, const char *name)
{
    if (!parameter || parameter->graph->status)
        return NULL;
    sl_graph *graph = parameter->graph;
    name = scoped_name(graph, "alias", name, true);
    if (!name || !is_new_name(graph, "alias", &graph->parameters, name) ||
        !is_new_name(graph, "alias", &graph->buffers, name))
        return NULL;
    if (parameter->leaf != SL__PARAMETER)
        return sl__refuse(graph, "alias", "'%s' is no parameter",
                          sl_tensor_name(parameter));
    if (sl__add_name(&graph->parameters, name, parameter, SL_GRADIENT))
        return sl__no_memory(graph);
    return parameter;
}

static void add_output(sl_graph *graph, const char *op, const char *name,
                       sl_tensor *tensor, sl_gradient gradient)
{
    if (!graph || graph->status)
        return;
    name = scoped_name(graph, op, name, false);
    if (!name || !is_new_name(graph, op, &graph->outputs, name))
        return;
    if (!tensor || tensor->graph != graph) {
        sl__refuse(graph, op, "'%s' is no tensor of this graph", name);
        return;
    }
    if (gradient && !sl__is_float(tensor->dtype)) {
        sl__refuse(graph, op,
                   "'%s' is %s, expected a float to carry a gradient", name,
                   sl_dtype_text(tensor->dtype));
        return;
    }
    if (sl__add_name(&graph->outputs, name, tensor, gradient))
        sl__no_memory(graph);
}

void(sl_output)(sl_graph *graph, const char *name, sl_tensor *tensor,
                sl_gradient gradient)
{
    add_output(graph, "output", name, tensor, gradient);
}

void(sl_loss)(sl_graph *graph, sl_tensor *tensor)
{
    char text[SL__SHAPE_TEXT];
    if (!graph || graph->status)
        return;
    if (tensor && tensor->graph == graph &&
        (sl__count(tensor) != 1 || !sl__is_float(tensor->dtype))) {
        sl__refuse(graph, "loss", "'%s' is %s of %s, expected one float",
                   sl_tensor_name(tensor),
                   sl__shape_text(tensor->dims, tensor->shape, text),
                   sl_dtype_text(tensor->dtype));
        return;
    }
    add_output(graph, "loss", "loss", tensor, SL_NO_GRADIENT);
    if (!graph->status)
        graph->loss = tensor;
}

/* ------------------------------------------------------------- reading -- */

const char *sl_tensor_name(const sl_tensor *tensor)
{
    if (!tensor)
        return "";
    /* A result is named by its op and number, when first asked for. */
    if (!tensor->name) {
        char text[64];
        int length = snprintf(text, sizeof text, "%s.%d",
                              sl__ops[tensor->node->op].name, tensor->id);
        const char *name;
        if (sl__arena_text(&tensor->graph->arena, text, length, &name))
            return sl__ops[tensor->node->op].name;
        ((sl_tensor *)tensor)->name = name;
    }
    return tensor->name;
}

sl_dtype sl_tensor_dtype(const sl_tensor *tensor)
{
    return tensor ? tensor->dtype : (sl_dtype)0;
}

int sl_tensor_dims(const sl_tensor *tensor)
{
    return tensor ? tensor->dims : 0;
}

const int64_t *sl_tensor_shape(const sl_tensor *tensor)
{
    return tensor ? tensor->shape : NULL;
}

/* --------------------------------------------------------------- clone -- */

static sl_tensor *twin(sl_graph *copy, const sl_tensor *tensor)
{
    return tensor ? copy->tensors[tensor->id] : NULL;
}

/* `left_out`, by place in `from`, may be NULL: all are cloned. */
static sl_status clone_names(sl_graph *copy, const sl__names *from,
                             const bool *left_out, sl__names *to)
{
    for (size_t i = 0; i < from->count; i++) {
        const sl__named *named = &from->data[i];
        const char *name;
        if (left_out && left_out[i])
            continue;
        sl_status status = sl__arena_text(&copy->arena, named->name,
                                          strlen(named->name), &name);
        if (!status)
            status = sl__add_name(to, name, twin(copy, named->tensor),
                                  named->gradient);
        if (status)
            return status;
        to->data[to->count - 1].gradient_only = named->gradient_only;
    }
    return SL_OK;
}

static sl_status clone_tensors(const sl_graph *graph, sl_graph *copy)
{
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const sl_tensor *from = graph->tensors[i];
        sl_tensor *to =
            sl__new_tensor(copy, from->dtype, from->dims, from->shape);
        if (!to)
            return sl_graph_status(copy);
        int id = to->id;
        *to = *from;
        to->id = id;
        to->graph = copy;
        to->base = copy->tensors[from->base->id];
        to->node = NULL;
        if (from->data) {
            void *data;
            size_t bytes = (size_t)sl__bytes(from);
            sl_status status = sl__arena_take(&copy->arena, bytes, 1, &data);
            if (status)
                return status;
            to->data = memcpy(data, from->data, bytes);
        }
        if (from->name) {
            sl_status status = sl__arena_text(&copy->arena, from->name,
                                              strlen(from->name), &to->name);
            if (status)
                return status;
        }
    }
    return SL_OK;
}

static sl_status clone_node(const sl__node *from, sl_graph *copy)
{
    sl__node *to;
    sl_status status = sl__grow(&copy->nodes, &copy->node_capacity,
                                copy->node_count + 1, sizeof *copy->nodes);
    if (!status)
        status = sl__arena_take(&copy->arena, 1, sizeof *to, &to);
    if (status)
        return status;
    *to = *from;
    to->module = 0;
    status = sl__arena_take(&copy->arena, from->operand_count,
                            sizeof *to->operands, &to->operands);
    if (status)
        return status;
    for (int i = 0; i < from->operand_count; i++)
        to->operands[i] = twin(copy, from->operands[i]);
    if (from->starts) {
        size_t numbers = (size_t)from->operand_count * SL_DIMS_MAX;
        status = sl__arena_take(&copy->arena, numbers, sizeof *to->starts,
                                &to->starts);
        if (status)
            return status;
        memcpy(to->starts, from->starts, numbers * sizeof *to->starts);
    }
    for (int i = 0; i < SL__RESULTS_MAX; i++) {
        to->results[i] = twin(copy, from->results[i]);
        if (to->results[i])
            to->results[i]->node = to;
    }
    copy->nodes[copy->node_count++] = to;
    return SL_OK;
}

sl_status sl__graph_clone(const sl_graph *graph, const bool *left_out,
                          sl_graph **out)
{
    sl_graph *copy;
    sl_status status = sl_graph_create(&copy);
    if (status)
        return status;
    status = clone_tensors(graph, copy);
    for (size_t i = 0; i < graph->node_count && !status; i++)
        status = clone_node(graph->nodes[i], copy);
    if (!status)
        status = clone_names(copy, &graph->inputs, NULL, &copy->inputs);
    if (!status)
        status = clone_names(copy, &graph->parameters, NULL, &copy->parameters);
    if (!status)
        status = clone_names(copy, &graph->buffers, NULL, &copy->buffers);
    if (!status)
        status = clone_names(copy, &graph->outputs, left_out, &copy->outputs);
    if (status) {
        sl_graph_destroy(copy);
        return status;
    }
    copy->parameter_count = graph->parameter_count;
    copy->loss = twin(copy, graph->loss);
    *out = copy;
    return SL_OK;
}

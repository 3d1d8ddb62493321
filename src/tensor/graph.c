/* SPDX-License-Identifier: MIT
 *
 * Graphs: creation, inputs, parameters, outputs, and the first refusal, which a
 * graph remembers. Scopes are in modules.c, ops in build.c, and how these
 * append nodes in emit.c. */
#include "tensor/graph.h"

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
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

/* The graph whose refusal has no source line yet. */
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

void *sl__keep_data(sl_graph *graph, const void *data, int64_t bytes)
{
    void *kept;
    if (!data)
        return NULL;
    if (sl__arena_take(&graph->arena, (size_t)bytes, 1, &kept))
        return sl__no_memory(graph);
    return memcpy(kept, data, (size_t)bytes);
}

const char *sl__keep_text(sl_graph *graph, const char *text)
{
    return sl__keep_data(graph, text, text ? (int64_t)strlen(text) + 1 : 0);
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
        SL__TAKE(&graph->arena, 1, &tensor))
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
    if (!name || !*name || strlen(name) > 255) {
        sl__refuse(graph, op, "a name of 1 to 255 bytes is needed");
        return NULL;
    }
    const char *scope = scoped ? sl__open_scope(graph) : "";
    snprintf(full, sizeof full, "%s%s%s", scope, *scope ? "." : "", name);
    return sl__keep_text(graph, full);
}

static bool is_new_name(sl_graph *graph, const char *op, const sl__names *names,
                        const char *name)
{
    char quoted[SL__QUOTED_MAX];
    if (!sl__find_name(names, name))
        return true;
    return sl__refuse(graph, op, "there is already one named '%s'",
                      sl__quoted(name, strlen(name), quoted));
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
    if (!sl__is_computed(dtype))
        return sl__refuse(graph, op,
                          "%s is a dtype of files, and not of graphs",
                          sl_dtype_text(dtype));
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
    return sl__name_tensor(&graph->inputs, tensor->name, tensor, gradient);
}

sl_tensor *(sl_parameter)(sl_graph *graph, const char *name, sl_dtype dtype,
                          int dims, const int64_t *shape)
{
    if (!graph)
        return NULL;
    sl_tensor *tensor = new_leaf(graph, "parameter", name, true,
                                 &graph->parameters, dtype, dims, shape);
    if (!tensor ||
        !is_new_name(graph, "parameter", &graph->buffers, tensor->name))
        return NULL;
    if (dtype != SL_F32 && dtype != SL_F64)
        return sl__refuse(graph, "parameter",
                          "'%s' is %s, expected f32 or f64, in which "
                          "optimizers work",
                          tensor->name, sl_dtype_text(dtype));
    tensor->leaf = SL__PARAMETER;
    tensor->leaf_index = graph->parameter_count++;
    tensor->needs_gradient = true;
    tensor->gradient_dtype = sl__accumulator(dtype);
    return sl__name_tensor(&graph->parameters, tensor->name, tensor,
                           SL_GRADIENT);
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
    tensor->data = sl__keep_data(graph, data, sl__bytes(tensor));
    if (graph->status)
        return NULL;
    return sl__name_tensor(&graph->buffers, tensor->name, tensor,
                           SL_NO_GRADIENT);
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
    return sl__name_tensor(&graph->parameters, name, parameter, SL_GRADIENT);
}

static void add_output(sl_graph *graph, const char *op, const char *name,
                       sl_tensor *tensor, sl_gradient gradient)
{
    if (!graph || graph->status)
        return;
    name = scoped_name(graph, op, name, false);
    if (!name || !is_new_name(graph, op, &graph->outputs, name))
        return;
    if (!tensor || tensor->graph != graph)
        sl__refuse(graph, op, "'%s' is no tensor of this graph", name);
    else if (gradient && !sl__is_float(tensor->dtype))
        sl__refuse(graph, op,
                   "'%s' is %s, expected a float to carry a gradient", name,
                   sl_dtype_text(tensor->dtype));
    else
        sl__name_tensor(&graph->outputs, name, tensor, gradient);
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
    /* A result is named by its op and number, on first request. */
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

/* `left_out`, by position in `from`, may be NULL: then all are cloned. */
static sl_status clone_names(sl_graph *copy, const sl__names *from,
                             const bool *left_out, sl__names *to)
{
    for (size_t i = 0; i < from->count; i++) {
        const sl__named *named = &from->data[i];
        if (left_out && left_out[i])
            continue;
        const char *name = sl__keep_text(copy, named->name);
        if (!name)
            return sl_graph_status(copy);
        SL__TRY(
            sl__add_name(to, name, twin(copy, named->tensor), named->gradient));
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
        to->data = sl__keep_data(copy, from->data, sl__bytes(from));
        to->name = sl__keep_text(copy, from->name);
    }
    return sl_graph_status(copy);
}

static sl_status clone_node(const sl__node *from, sl_graph *copy)
{
    sl__node *to;
    int64_t start_bytes =
        from->operand_count * SL_DIMS_MAX * (int64_t)sizeof *from->starts;
    SL__TRY(sl__grow(&copy->nodes, &copy->node_capacity, copy->node_count + 1,
                     sizeof *copy->nodes));
    SL__TRY(SL__TAKE(&copy->arena, 1, &to));
    *to = *from;
    to->module = 0;
    SL__TRY(SL__TAKE(&copy->arena, from->operand_count, &to->operands));
    for (int i = 0; i < from->operand_count; i++)
        to->operands[i] = twin(copy, from->operands[i]);
    to->starts = sl__keep_data(copy, from->starts, start_bytes);
    for (int i = 0; i < SL__RESULTS_MAX; i++) {
        to->results[i] = twin(copy, from->results[i]);
        if (to->results[i])
            to->results[i]->node = to;
    }
    copy->nodes[copy->node_count++] = to;
    return sl_graph_status(copy);
}

static sl_status clone_into(const sl_graph *graph, const bool *left_out,
                            sl_graph *copy)
{
    SL__TRY(clone_tensors(graph, copy));
    for (size_t i = 0; i < graph->node_count; i++)
        SL__TRY(clone_node(graph->nodes[i], copy));
    SL__TRY(clone_names(copy, &graph->inputs, NULL, &copy->inputs));
    SL__TRY(clone_names(copy, &graph->parameters, NULL, &copy->parameters));
    SL__TRY(clone_names(copy, &graph->buffers, NULL, &copy->buffers));
    SL__TRY(clone_names(copy, &graph->outputs, left_out, &copy->outputs));
    copy->parameter_count = graph->parameter_count;
    copy->loss = twin(copy, graph->loss);
    return SL_OK;
}

sl_status sl__graph_clone(const sl_graph *graph, const bool *left_out,
                          sl_graph **out)
{
    sl_graph *copy;
    assert(!graph->status && !graph->in_backward);
    SL__TRY(sl_graph_create(&copy));
    sl_status status = clone_into(graph, left_out, copy);
    if (status)
        sl_graph_destroy(copy);
    else
        *out = copy;
    return status;
}

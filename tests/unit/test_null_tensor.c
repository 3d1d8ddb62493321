/* SPDX-License-Identifier: MIT
 *
 * Graphs, stages and memory with NULL; see rows.h. */
#include "rows.h"

#include <stdio.h>

static void graphs(void **state)
{
    test_world *w = *state;
    GIVES_TEXT("unknown", sl_dtype_text, ((sl_dtype)-1));
    GIVES(0, sl_dtype_bytes, ((sl_dtype)-1));
    REFUSES(out, sl_graph_create, (NULL));
    DOES_NOTHING(sl_graph_destroy, (NULL));
    REFUSES(graph, sl_graph_status, (NULL));
    REFUSES(graph, sl_graph_set_precision, (NULL, SL_BF16));
    REFUSES(out, sl_backend_describe, (NULL, 0, SL_F32, NULL, 0));
    REFUSES(out_count, sl_devices, (NULL, NULL, 0, NULL));
    int devices;
    REFUSES(out, sl_devices, (NULL, NULL, 1, &devices));
    DOES_NOTHING(sl_scope_enter, (NULL, "h"));
    REFUSES_IN_GRAPH("a name is needed", sl_scope_enter,
                     (graph, test_no_text, 0));
    DOES_NOTHING(sl_scope_leave, (NULL));
    DOES_NOTHING(sl_mark_cut, (NULL));
    DOES_NOTHING(sl_whole_enter, (NULL));
    DOES_NOTHING(sl_whole_leave, (NULL));
    GIVES(NULL, sl_input, (NULL, "x", SL_F32, SL_SHAPE(2), SL_NO_GRADIENT));
    REFUSES_IN_GRAPH("a name of", sl_input,
                     (graph, NULL, SL_F32, SL_SHAPE(2), SL_NO_GRADIENT));
    REFUSES_IN_GRAPH("dimensions", sl_input,
                     (graph, "y", SL_F32, 1, NULL, SL_NO_GRADIENT));
    GIVES(NULL, sl_parameter, (NULL, "w", SL_F32, SL_SHAPE(2)));
    REFUSES_IN_GRAPH("a name of", sl_parameter,
                     (graph, NULL, SL_F32, SL_SHAPE(2)));
    REFUSES_IN_GRAPH("dimensions", sl_parameter, (graph, "w", SL_F32, 1, NULL));
    GIVES(NULL, sl_buffer, (NULL, "b", SL_F32, SL_SHAPE(2), NULL));
    REFUSES_IN_GRAPH("a name of", sl_buffer,
                     (graph, NULL, SL_F32, SL_SHAPE(2), NULL));
    REFUSES_IN_GRAPH("dimensions", sl_buffer,
                     (graph, "b", SL_F32, 1, NULL, NULL));
    GIVES(NULL, sl_alias, (NULL, "w"));
    REFUSES_IN_GRAPH("a name of", sl_alias, (x, NULL));
    DOES_NOTHING(sl_output, (NULL, "y", w->x, SL_NO_GRADIENT));
    REFUSES_IN_GRAPH("a name of", sl_output, (graph, NULL, x, SL_NO_GRADIENT));
    REFUSES_IN_GRAPH("no tensor of this graph", sl_output,
                     (graph, "y", NULL, SL_NO_GRADIENT));
    DOES_NOTHING(sl_loss, (NULL, w->x));
    REFUSES_IN_GRAPH("no tensor of this graph", sl_loss, (graph, NULL));
    GIVES_TEXT("", sl_tensor_name, (NULL));
    GIVES(0, (int)sl_tensor_dtype, (NULL));
    GIVES(0, sl_tensor_dims, (NULL));
    GIVES(NULL, sl_tensor_shape, (NULL));
    GIVES(w->x, sl_located, (w->x, NULL, 0));
}

/* Of one operand, which is the only way to a graph. */
static void ops_of_one_operand(void **state)
{
    sl_tensor *parts[2];
    (void)state;
    GIVES(NULL, sl_scale, (NULL, 1));
    GIVES(NULL, sl_cast, (NULL, SL_F64));
    GIVES(NULL, sl_relu, (NULL));
    GIVES(NULL, sl_gelu_tanh, (NULL));
    GIVES(NULL, sl_gelu_erf, (NULL));
    GIVES(NULL, sl_silu, (NULL));
    GIVES(NULL, sl_softmax, (NULL));
    GIVES(NULL, sl_dropout, (NULL, 0.5));
    GIVES(NULL, sl_reshape, (NULL, SL_SHAPE(2)));
    REFUSES_IN_GRAPH("dimensions", sl_reshape, (x, 1, NULL));
    GIVES(NULL, sl_transpose, (NULL, 0, 1));
    GIVES(NULL, sl_slice, (NULL, 0, 0, 1));
    DOES_NOTHING(sl_split, (NULL, 0, 2, parts));
    REFUSES_IN_GRAPH("no room for the parts", sl_split, (x, 0, 2, NULL));
    GIVES(NULL, sl_concat, (NULL, 2, 0));
    REFUSES_IN_GRAPH("operand 1 is NULL", sl_concat,
                     ((sl_tensor *[]){x, NULL}, 2, 0));
    GIVES(NULL, sl_sum, (NULL, SL_ALL));
    GIVES(NULL, sl_mean, (NULL, SL_ALL));
}

static void ops_of_several_operands(void **state)
{
    (void)state;
    const char *first = "operand 0 is NULL", *second = "operand 1 is NULL";
    GIVES(NULL, sl_matmul, (NULL, NULL));
    REFUSES_IN_GRAPH(first, sl_matmul, (NULL, x));
    REFUSES_IN_GRAPH(second, sl_matmul, (x, NULL));
    REFUSES_IN_GRAPH(first, sl_linear, (NULL, x, NULL, SL_OUT_IN));
    REFUSES_IN_GRAPH(second, sl_linear, (x, NULL, NULL, SL_OUT_IN));
    REFUSES_IN_GRAPH(first, sl_add, (NULL, x));
    REFUSES_IN_GRAPH(second, sl_add, (x, NULL));
    REFUSES_IN_GRAPH(first, sl_sub, (NULL, x));
    REFUSES_IN_GRAPH(second, sl_sub, (x, NULL));
    REFUSES_IN_GRAPH(first, sl_mul, (NULL, x));
    REFUSES_IN_GRAPH(second, sl_mul, (x, NULL));
    REFUSES_IN_GRAPH(first, sl_layer_norm, (NULL, x, x, 1e-5));
    REFUSES_IN_GRAPH(second, sl_layer_norm, (x, NULL, x, 1e-5));
    REFUSES_IN_GRAPH("operand 2 is NULL", sl_layer_norm, (x, x, NULL, 1e-5));
    REFUSES_IN_GRAPH(first, sl_rms_norm, (NULL, x, 1e-5));
    REFUSES_IN_GRAPH(second, sl_rms_norm, (x, NULL, 1e-5));
    REFUSES_IN_GRAPH(first, sl_embedding, (NULL, ids));
    REFUSES_IN_GRAPH(second, sl_embedding, (x, NULL));
    REFUSES_IN_GRAPH(first, sl_add_positions, (NULL, x));
    REFUSES_IN_GRAPH(second, sl_add_positions, (x, NULL));
    REFUSES_IN_GRAPH(first, sl_causal_attention, (NULL, x, x, 1));
    REFUSES_IN_GRAPH(second, sl_causal_attention, (x, NULL, x, 1));
    REFUSES_IN_GRAPH("operand 2 is NULL", sl_causal_attention, (x, x, NULL, 1));
    REFUSES_IN_GRAPH(first, sl_mse, (NULL, x));
    REFUSES_IN_GRAPH(second, sl_mse, (x, NULL));
    REFUSES_IN_GRAPH(first, sl_cross_entropy, (NULL, ids, -100));
    REFUSES_IN_GRAPH(second, sl_cross_entropy, (x, NULL, -100));
}

static sl_status run_nothing(void *context, const sl_call *call)
{
    (void)context;
    (void)call;
    return SL_OK;
}

static void stages(void **state)
{
    test_world *w = *state;
    const sl_value value = {.name = "y", .dtype = SL_F32};
    const sl_stage_description callbacks = {
        .outputs = &value,
        .output_count = 1,
        .callbacks = {.forward = run_nothing}};
    sl_stage_description without = callbacks;
    sl_stage *made;
    sl_port port;
    without.outputs = NULL;
    REFUSES(graph, sl_stage_compile, (NULL, NULL, &made));
    REFUSES(out, sl_stage_compile, (w->graph, NULL, NULL));
    DOES_NOTHING(sl_stage_destroy, (NULL));
    REFUSES(description, sl_stage_from_callbacks, (NULL, &made));
    REFUSES(out, sl_stage_from_callbacks, (&callbacks, NULL));
    GIVES(SL_EINVAL, sl_stage_from_callbacks, (&without, &made));
    GIVES(NULL, sl_stage_plan, (NULL));
    GIVES(0, sl_plan_bytes, (NULL, 1));
    REFUSES(stage, sl_stage_write_text, (NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_stage_write_text, (w->stage, NULL, NULL));
    REFUSES(stage, sl_stage_port, (NULL, SL_PORT_INPUT, "x", &port));
    REFUSES(name, sl_stage_port, (w->stage, SL_PORT_INPUT, NULL, &port));
    REFUSES(out, sl_stage_port, (w->stage, SL_PORT_INPUT, "x", NULL));
    GIVES(0, sl_stage_port_count, (NULL, SL_PORT_INPUT));
    REFUSES(stage, sl_stage_port_at, (NULL, SL_PORT_INPUT, 0, &port));
    REFUSES(out, sl_stage_port_at, (w->stage, SL_PORT_INPUT, 0, NULL));
    GIVES(0, sl_stage_flops, (NULL, SL_PROGRAM_F));
}

static void memories(void **state)
{
    test_world *w = *state;
    sl_memory *made;
    float data[8] = {0};
    REFUSES(stage, sl_memory_create, (NULL, 1, &made));
    REFUSES(out, sl_memory_create, (w->stage, 1, NULL));
    DOES_NOTHING(sl_memory_destroy, (NULL));
    REFUSES(stage, sl_memory_create_shared, (NULL, 1, w->memory, &made));
    REFUSES(owner, sl_memory_create_shared, (w->stage, 1, NULL, &made));
    REFUSES(out, sl_memory_create_shared, (w->stage, 1, w->memory, NULL));
    REFUSES(memory, sl_memory_write, (NULL, &w->input, 0, data, sizeof data));
    REFUSES(port, sl_memory_write, (w->memory, NULL, 0, data, sizeof data));
    REFUSES(data, sl_memory_write,
            (w->memory, &w->input, 0, NULL, sizeof data));
    REFUSES(memory, sl_memory_read, (NULL, &w->input, 0, data, sizeof data));
    REFUSES(port, sl_memory_read, (w->memory, NULL, 0, data, sizeof data));
    REFUSES(data, sl_memory_read, (w->memory, &w->input, 0, NULL, sizeof data));
    REFUSES(memory, sl_memory_descend, (NULL, 0.1));
    DOES_NOTHING(sl_memory_zero_gradients, (NULL));
    REFUSES(stage, sl_stage_run, (NULL, SL_PROGRAM_F, w->memory, 0, NULL));
    REFUSES(memory, sl_stage_run, (w->stage, SL_PROGRAM_F, NULL, 0, NULL));
    const int slot = 0;
    REFUSES(stage, sl_stage_run_group, (NULL, w->memory, &slot, NULL, 1));
    REFUSES(memory, sl_stage_run_group, (w->stage, NULL, &slot, NULL, 1));
    REFUSES(slots, sl_stage_run_group, (w->stage, w->memory, NULL, NULL, 1));
}

static void safetensors(void **state)
{
    test_world *w = *state;
    sl_safetensors *file;
    const sl_safetensor empty = {.name = "w",
                                 .dtype = SL_F32,
                                 .dims = 1,
                                 .shape = {1},
                                 .bytes = sizeof(float)};
    float number;
    REFUSES(path, sl_safetensors_open, (NULL, &file));
    REFUSES(out, sl_safetensors_open, (w->weights_path, NULL));
    REFUSES(data, sl_safetensors_parse, (NULL, 9, &file));
    REFUSES(out, sl_safetensors_parse, ("", 0, NULL));
    GIVES(SL_EPARSE, sl_safetensors_parse, (NULL, 0, &file));
    DOES_NOTHING(sl_safetensors_close, (NULL));
    GIVES(0, sl_safetensors_count, (NULL));
    GIVES(NULL, sl_safetensors_at, (NULL, 0));
    GIVES(NULL, sl_safetensors_find, (NULL, "w"));
    GIVES(NULL, sl_safetensors_find, (w->file, NULL));
    GIVES(NULL, sl_safetensors_metadata, (NULL, "format"));
    GIVES(NULL, sl_safetensors_metadata, (w->file, NULL));
    REFUSES(tensor, sl_safetensor_read, (NULL, &number));
    REFUSES(out, sl_safetensor_read, (sl_safetensors_at(w->file, 0), NULL));
    GIVES(SL_EINVAL, sl_safetensor_read, (&empty, &number));
    REFUSES(path, sl_safetensors_write, (NULL, NULL, 0, NULL));
    REFUSES(tensors, sl_safetensors_write, (w->weights_path, NULL, 1, NULL));
    GIVES(SL_EINVAL, sl_safetensors_write, (w->weights_path, &empty, 1, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs),
        cmocka_unit_test(ops_of_one_operand),
        cmocka_unit_test(ops_of_several_operands),
        cmocka_unit_test(stages),
        cmocka_unit_test(memories),
        cmocka_unit_test(safetensors),
    };
    return cmocka_run_group_tests(tests, test_world_set_up,
                                  test_world_tear_down);
}

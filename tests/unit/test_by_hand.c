/* SPDX-License-Identifier: MIT
 *
 * Stages that are added by hand: graphs, callbacks, and both together. */
#include "pipeline/cut/model.h"
#include "staged.h"

#include <stdlib.h>
#include <string.h>

static sl_tensor *linear(sl_graph *graph, const char *name, sl_tensor *x)
{
    return sl_linear(x, sl_parameter(graph, name, SL_F32, SL_SHAPE(4, 4)), NULL,
                     SL_OUT_IN);
}

static sl_graph *new_graph(void)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    return graph;
}

/* h = relu(x W0); k = relu(h W1) + h; loss = mean(k W0 + h), in one graph. */
static sl_graph *build_whole(void)
{
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(3, 4), SL_GRADIENT);
    sl_tensor *w0 = sl_parameter(graph, "w0", SL_F32, SL_SHAPE(4, 4));
    sl_tensor *h = sl_relu(sl_linear(x, w0, NULL, SL_OUT_IN));
    sl_tensor *k = sl_add(sl_relu(linear(graph, "w1", h)), h);
    sl_tensor *y = sl_add(sl_linear(k, w0, NULL, SL_OUT_IN), h);
    sl_output(graph, "y", y, SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(y, SL_ALL));
    return graph;
}

static void add_first(sl_model *model)
{
    sl_graph *graph = new_graph();
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(3, 4), SL_GRADIENT);
    sl_output(graph, "h", sl_relu(linear(graph, "w0", x)), SL_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
}

/* With shapes inferred. */
static void add_second(sl_model *model)
{
    sl_graph *graph = new_graph();
    sl_tensor *h = sl_model_receive(model, graph, "h");
    sl_output(graph, "k", sl_add(sl_relu(linear(graph, "w1", h)), h),
              SL_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
}

/* With shapes declared. */
static void add_third(sl_model *model)
{
    sl_graph *graph = new_graph();
    sl_tensor *h = sl_input(graph, "h", SL_F32, SL_SHAPE(3, 4), SL_GRADIENT);
    sl_tensor *k = sl_input(graph, "k", SL_F32, SL_SHAPE(3, 4), SL_GRADIENT);
    sl_tensor *y = sl_add(linear(graph, "w0", k), h);
    sl_output(graph, "y", y, SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(y, SL_ALL));
    assert_ok(sl_model_add_graph(model, graph));
}

/* Runs a model in stages beside the whole, and compares all. */
static void compare(const sl_model *model, const char *backward)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    sl_graph *graph = build_whole();
    test_stage whole = test_compile(graph, &options, 1);
    test_staged staged = test_stages(model, &options, 1);
    for (int round = 0; round < 3; round++) {
        test_fill_all(&whole, 11, 0, 1);
        sl_memory_zero_gradients(whole.memory);
        for (int s = 0; s < staged.count; s++)
            sl_memory_zero_gradients(staged.stages[s].memory);
        test_staged_copy(&staged, &whole, 0);
        test_run(&whole, "FB", 0);
        test_staged_forward(&staged, 0);
        test_staged_backward(&staged, backward, 0);
        test_staged_assert(&staged, &whole, 0, 1e-6, 1e-6);
    }
    test_staged_release(&staged);
    test_release(&whole);
    sl_graph_destroy(graph);
}

static void stages_by_hand_compute_what_the_whole_does(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    add_first(model);
    add_second(model);
    add_third(model);
    assert_ok(sl_model_link(model));
    assert_ok(sl_model_link(model)); /* Once is enough. */
    int count;
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    assert_int_equal(count, 2);
    assert_string_equal(crossings[0].name, "h");
    assert_int_equal(crossings[0].producer, 0);
    assert_int_equal(crossings[0].consumer_count, 2);
    assert_true(crossings[0].gradient);
    assert_int_equal(crossings[0].bytes, 48);
    const sl_edge *edges = sl_model_edges(model, &count);
    assert_int_equal(count, 3);
    assert_string_equal(edges[0].gradient_name, "h");
    assert_string_equal(edges[1].gradient_name, "h@2");
    const sl_tie *ties = sl_model_ties(model, &count);
    assert_int_equal(count, 1);
    assert_string_equal(ties->names[0], "w0");
    assert_int_equal(ties->stages[1], 2);
    assert_int_equal(ties->bytes, 64);
    assert_int_equal(ties->dims, 2);
    assert_string_equal(ties->stage_names[1], "w0");
    sl_model_inputs(model, &count);
    assert_int_equal(count, 1);
    const sl_model_port *outputs = sl_model_outputs(model, &count);
    assert_int_equal(count, 2);
    assert_string_equal(outputs[1].name, "loss");
    assert_true(outputs[1].is_loss && !outputs[0].is_loss);
    compare(model, "B");
    compare(model, "IW");
    /* Gradients from two consumers cost forward nothing. */
    sl_stage *stage;
    assert_ok(sl_model_compile(model, 0, NULL, &stage));
    assert_int_equal(sl_stage_plan(stage)->kernels[SL_PROGRAM_F], 1);
    sl_stage_destroy(stage);
    sl_model_destroy(model);
}

/* ------------------------------------------------------------- callbacks -- */

/* k = relu(h W1) + h in plain C; gradients of one microbatch in flight. */
typedef struct own_compute {
    float weight[16], gradient[16];
    float hidden[12], dout[12];
    const char *fail_at;
    int calls;
} own_compute;

static sl_status own_forward(void *context, const sl_call *call)
{
    own_compute *own = context;
    const float *h = call->inputs[0];
    float *k = call->outputs[0];
    own->calls++;
    if (own->fail_at && *own->fail_at == 'F')
        return sl_fail(SL_EINVAL, "forward of slot %d said no", call->slot);
    for (int i = 0; i < 12; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++)
            sum += h[i / 4 * 4 + j] * own->weight[i % 4 * 4 + j];
        own->hidden[i] = sum;
        k[i] = (sum > 0 ? sum : 0) + h[i];
    }
    return SL_OK;
}

static sl_status own_input(void *context, const sl_call *call)
{
    own_compute *own = context;
    const float *dk = call->output_gradients[0];
    float *dh = call->input_gradients[0];
    own->calls++;
    for (int i = 0; i < 12; i++)
        own->dout[i] = own->hidden[i] > 0 ? dk[i] : 0;
    for (int i = 0; i < 12; i++) {
        dh[i] = dk[i];
        for (int j = 0; j < 4; j++)
            dh[i] += own->dout[i / 4 * 4 + j] * own->weight[j * 4 + i % 4];
    }
    return SL_OK;
}

static sl_status own_weight(void *context, const sl_call *call)
{
    own_compute *own = context;
    const float *h = call->inputs[0];
    own->calls++;
    for (int i = 0; i < 12; i++) {
        for (int j = 0; j < 4; j++)
            own->gradient[i % 4 * 4 + j] += own->dout[i] * h[i / 4 * 4 + j];
    }
    return SL_OK;
}

static sl_status own_both(void *context, const sl_call *call)
{
    sl_status status = own_input(context, call);
    return status ? status : own_weight(context, call);
}

static sl_status own_read(void *context, int parameter, bool gradient,
                          void *data, size_t bytes)
{
    own_compute *own = context;
    assert_int_equal(parameter, 0);
    memcpy(data, gradient ? own->gradient : own->weight, bytes);
    return SL_OK;
}

static sl_status own_write(void *context, int parameter, bool gradient,
                           const void *data, size_t bytes)
{
    own_compute *own = context;
    assert_int_equal(parameter, 0);
    memcpy(gradient ? own->gradient : own->weight, data, bytes);
    return SL_OK;
}

static void own_zero(void *context)
{
    own_compute *own = context;
    memset(own->gradient, 0, sizeof own->gradient);
}

static const sl_value own_input_value = {"h", SL_F32, 2, {3, 4}, SL_GRADIENT};
static const sl_value own_output_value = {"k", SL_F32, 2, {3, 4}, SL_GRADIENT};
static const sl_value own_parameter = {"w1", SL_F32, 2, {4, 4}, 0};

static sl_stage_description describe(own_compute *own)
{
    sl_stage_description out = {.inputs = &own_input_value,
                                .input_count = 1,
                                .outputs = &own_output_value,
                                .output_count = 1,
                                .parameters = &own_parameter,
                                .parameter_count = 1,
                                .callbacks = {own_forward, own_both, own_input,
                                              own_weight, own_read, own_write,
                                              own_zero},
                                .context = own};
    return out;
}

static void callbacks_are_a_stage_like_any_other(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        own_compute own = {0};
        sl_stage_description description = describe(&own);
        sl_model *model;
        if (way == 1)
            description.callbacks.backward = NULL;
        if (way == 2)
            description.callbacks.backward_input =
                description.callbacks.backward_weight = NULL;
        assert_ok(sl_model_create(&model));
        add_first(model);
        assert_ok(sl_model_add_callbacks(model, &description));
        add_third(model);
        assert_ok(sl_model_link(model));
        assert_null(sl_model_stage(model, 1)->graph);
        assert_int_equal(sl_model_stage(model, 1)->parameters, 16);
        compare(model, "B");
        if (way < 2)
            compare(model, "IW");
        assert_true(own.calls > 0);
        sl_model_destroy(model);
    }
}

/* The first stage in callbacks gets gradients from two consumers: they are
 * summed before its backward sees them. */
static sl_status twice_forward(void *context, const sl_call *call)
{
    (void)context;
    for (int i = 0; i < 2; i++)
        ((double *)call->outputs[0])[i] =
            2 * ((const double *)call->inputs[0])[i];
    return SL_OK;
}

static sl_status twice_backward(void *context, const sl_call *call)
{
    (void)context;
    for (int i = 0; i < 2; i++)
        ((double *)call->input_gradients[0])[i] =
            2 * ((const double *)call->output_gradients[0])[i];
    return SL_OK;
}

static void gradients_of_several_consumers_are_summed(void **state)
{
    (void)state;
    const sl_value x = {"x", SL_F64, 1, {2}, SL_GRADIENT};
    const sl_value h = {"h", SL_F64, 1, {2}, SL_GRADIENT};
    const sl_stage_description first = {
        .inputs = &x,
        .input_count = 1,
        .outputs = &h,
        .output_count = 1,
        .callbacks = {.forward = twice_forward, .backward = twice_backward}};
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    sl_model *model;
    assert_ok(sl_model_create(&model));
    assert_ok(sl_model_add_callbacks(model, &first));
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"a", "b", "c"};
        sl_graph *graph = new_graph();
        sl_tensor *t = sl_model_receive(model, graph, "h");
        sl_output(graph, names[i], sl_scale(t, i + 1), SL_GRADIENT);
        assert_ok(sl_model_add_graph(model, graph));
    }
    assert_ok(sl_model_link(model));
    test_staged staged = test_stages(model, &options, 1);
    const double in[] = {1, -1}, out[] = {1, 10};
    test_put(&staged.stages[0], SL_PORT_INPUT, "x", 0, in);
    test_staged_forward(&staged, 0);
    test_put(&staged.stages[1], SL_PORT_OUTPUT_GRADIENT, "a", 0, out);
    test_put(&staged.stages[2], SL_PORT_OUTPUT_GRADIENT, "b", 0, out);
    test_put(&staged.stages[3], SL_PORT_OUTPUT_GRADIENT, "c", 0, out);
    for (int again = 0; again < 2; again++) {
        test_run(&staged.stages[0], again ? "F" : "", 0);
        if (!again)
            test_staged_backward(&staged, "B", 0);
        else
            test_run(&staged.stages[0], "B", 0);
    }
    double *dx =
        test_get(&staged.stages[0], SL_PORT_INPUT_GRADIENT, "x", 0, NULL);
    assert_true(dx[0] == 12 && dx[1] == 120);
    free(dx);
    test_staged_release(&staged);
    sl_model_destroy(model);
}

static void a_failing_callback_ends_the_run_with_its_sentence(void **state)
{
    (void)state;
    own_compute own = {.fail_at = "F"};
    sl_stage_description description = describe(&own);
    test_stage stage;
    assert_ok(sl_stage_from_callbacks(&description, &stage.stage));
    assert_ok(sl_memory_create(stage.stage, 2, &stage.memory));
    assert_fails(sl_stage_run(stage.stage, SL_PROGRAM_F, stage.memory, 1, NULL),
                 SL_EINVAL, "forward of slot 1 said no");
    assert_fails(sl_stage_run(stage.stage, SL_PROGRAM_B, stage.memory, 1, NULL),
                 SL_EINVAL, "B on slot 1 comes before its F");
    own.fail_at = NULL;
    test_run(&stage, "FIW", 1);
    sl_port port;
    float data[3];
    assert_ok(sl_stage_port(stage.stage, SL_PORT_PARAMETER, "w1", &port));
    assert_fails(sl_memory_read(stage.memory, &port, 0, data, 12), SL_EINVAL,
                 "'w1' has 64 bytes, found 12");
    assert_fails(sl_memory_write(stage.memory, &port, 0, data, 12), SL_EINVAL,
                 "'w1' has 64 bytes, found 12");
    port.bytes = 12; /* Of some other stage. */
    assert_fails(sl_memory_read(stage.memory, &port, 0, data, 12), SL_EINVAL,
                 "'w1' has 64 bytes, found 12");
    test_release(&stage);
}

static void callbacks_that_cannot_be_are_refused(void **state)
{
    (void)state;
    own_compute own = {0};
    const char *const expected[] = {"needs a forward",
                                    "go together",
                                    "1 parameters, and no callbacks",
                                    "needs an output",
                                    "input: there is already one named",
                                    "output: 'k' is i64, expected a float",
                                    "no callback to zero these"};
    const sl_value twice[] = {own_input_value, own_input_value};
    const sl_value whole = {"k", SL_I64, 1, {3}, SL_GRADIENT};
    for (int i = 0; i < 7; i++) {
        sl_stage_description d = describe(&own);
        sl_stage *stage;
        if (i == 6)
            d.callbacks.zero_gradients = NULL;
        if (i == 0)
            d.callbacks.forward = NULL;
        if (i == 1)
            d.callbacks.backward_weight = NULL;
        if (i == 2)
            d.callbacks.read = NULL;
        if (i == 3)
            d.output_count = 0;
        if (i == 4) {
            d.inputs = twice;
            d.input_count = 2;
        }
        if (i == 5)
            d.outputs = &whole;
        assert_fails(sl_stage_from_callbacks(&d, &stage), SL_EINVAL,
                     expected[i]);
    }
    sl_stage_description d = describe(&own);
    sl_model *model;
    d.output_count = 0;
    assert_ok(sl_model_create(&model));
    assert_fails(sl_model_add_callbacks(model, &d), SL_EINVAL,
                 "stage 0: a stage of callbacks needs an output");
    sl_model_destroy(model);
}

/* Callbacks without a backward end the flow of gradients, and say so. */
static void forward_alone_ends_the_flow_of_gradients(void **state)
{
    (void)state;
    own_compute own = {0};
    sl_stage_description d = describe(&own);
    sl_model *model;
    int count;
    d.callbacks.backward = d.callbacks.backward_input =
        d.callbacks.backward_weight = NULL;
    assert_ok(sl_model_create(&model));
    add_first(model);
    assert_ok(sl_model_add_callbacks(model, &d));
    add_third(model);
    assert_ok(sl_model_link(model));
    const sl_edge *edges = sl_model_edges(model, &count);
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++)
        assert_int_equal(edges[i].gradient_name != NULL,
                         edges[i].from == 0 && edges[i].to == 2);
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    test_staged staged = test_stages(model, &options, 1);
    test_staged_forward(&staged, 0);
    test_staged_release(&staged);
    sl_model_destroy(model);
}

/* An output that only the caller takes counts as a use. */
static void handing_on_to_the_caller_is_a_use(void **state)
{
    (void)state;
    sl_model *model;
    int count;
    sl_graph *graph = new_graph();
    assert_ok(sl_model_create(&model));
    add_first(model);
    sl_tensor *h = sl_model_receive(model, graph, "h");
    sl_output(graph, "h", h, SL_NO_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
    assert_ok(sl_model_link(model));
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    assert_int_equal(count, 1);
    assert_int_equal(crossings[0].consumer_count, 1);
    sl_model_destroy(model);
}

static void a_name_is_a_parameter_or_a_buffer(void **state)
{
    (void)state;
    sl_model *model;
    sl_graph *graph = new_graph();
    assert_ok(sl_model_create(&model));
    add_first(model);
    sl_tensor *h = sl_model_receive(model, graph, "h");
    h = sl_mul(h, sl_buffer(graph, "w0", SL_F32, SL_SHAPE(4), NULL));
    sl_output(graph, "y", h, SL_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
    assert_fails(sl_model_link(model), SL_EINVAL,
                 "stage 1: buffer 'w0' is a parameter in another stage");
    assert_fails(sl_model_link(model), SL_EINVAL, "must be made anew");
    int count;
    sl_model_crossings(model, &count);
    assert_int_equal(count, 0);
    sl_model_destroy(model);
}

static void a_stage_of_forward_alone_has_no_backward(void **state)
{
    (void)state;
    own_compute own = {0};
    sl_stage_description d = describe(&own);
    d.callbacks.backward = d.callbacks.backward_input =
        d.callbacks.backward_weight = NULL;
    test_stage stage;
    sl_port port;
    assert_ok(sl_stage_from_callbacks(&d, &stage.stage));
    assert_ok(sl_memory_create(stage.stage, 1, &stage.memory));
    test_run(&stage, "F", 0);
    assert_fails(sl_stage_run(stage.stage, SL_PROGRAM_B, stage.memory, 0, NULL),
                 SL_EINVAL, "B was not asked for");
    assert_fails(sl_stage_port(stage.stage, SL_PORT_INPUT_GRADIENT, "h", &port),
                 SL_ENOTFOUND, "no input with gradient named 'h'");
    assert_fails(
        sl_stage_port(stage.stage, SL_PORT_PARAMETER_GRADIENT, "w1", &port),
        SL_ENOTFOUND, "no parameter with gradient");
    test_release(&stage);
}

/* ------------------------------------------------------------- refusals -- */

static void metadata_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    add_first(model);
    for (int i = 0; i < 2; i++) {
        sl_graph *graph = new_graph();
        sl_tensor *h =
            i ? sl_input(graph, "h", SL_F64, SL_SHAPE(3, 4), SL_GRADIENT)
              : sl_input(graph, "h", SL_F32, SL_SHAPE(3, 5), SL_GRADIENT);
        sl_output(graph, "y", sl_relu(h), SL_GRADIENT);
        assert_fails(sl_model_add_graph(model, graph), SL_EINVAL,
                     i ? "stage 1: input 'h' is f64 (3, 4), expected f32 (3, "
                         "4) as stage 0 gives"
                       : "stage 1: input 'h' is f32 (3, 5), expected f32 (3, "
                         "4) as stage 0 gives");
        sl_graph_destroy(graph);
    }
    /* The refused ones changed nothing. */
    add_second(model);
    assert_ok(sl_model_link(model));
    assert_int_equal(sl_model_stage_count(model), 2);
    sl_model_destroy(model);
}

static void receiving_what_nobody_gives_is_refused(void **state)
{
    (void)state;
    sl_model *model;
    sl_graph *graph = new_graph();
    assert_ok(sl_model_create(&model));
    add_first(model);
    assert_null(sl_model_receive(model, graph, "z"));
    assert_fails(sl_model_add_graph(model, graph), SL_EINVAL,
                 "receive: no stage before gives 'z'");
    sl_graph_destroy(graph);
    sl_model_destroy(model);
}

static void tied_parameters_must_be_alike(void **state)
{
    (void)state;
    sl_model *model;
    sl_graph *graph = new_graph();
    assert_ok(sl_model_create(&model));
    add_first(model);
    sl_tensor *h = sl_model_receive(model, graph, "h");
    sl_tensor *w = sl_parameter(graph, "w0", SL_F32, SL_SHAPE(2, 4));
    sl_output(graph, "y", sl_linear(h, w, NULL, SL_OUT_IN), SL_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
    assert_fails(sl_model_link(model), SL_EINVAL,
                 "stage 1: parameter 'w0' is f32 (2, 4), expected f32 (4, 4) "
                 "as stage 0 has it");
    sl_stage *stage;
    assert_fails(sl_model_compile(model, 0, NULL, &stage), SL_EINVAL,
                 "not linked");
    sl_model_destroy(model);
}

/* GPT-2's table under one name at one end and under both at the other. */
static void ties_follow_all_names(void **state)
{
    (void)state;
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    config.layers = 1;
    config.heads = 1;
    config.width = 4;
    config.vocabulary = 5;
    config.positions = 3;
    sl_model *model;
    sl_tensor *wte;
    assert_ok(sl_model_create(&model));
    sl_graph *graph = new_graph();
    sl_tensor *ids =
        sl_input(graph, "ids", SL_I64, SL_SHAPE(1, 3), SL_NO_GRADIENT);
    sl_output(graph, "h", sl_gpt2_embed(graph, &config, NULL, ids, &wte),
              SL_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
    graph = new_graph();
    sl_tensor *h = sl_model_receive(model, graph, "h");
    h = sl_gpt2_layer(graph, &config, NULL, 0, h);
    sl_output(graph, "logits", sl_gpt2_head(graph, &config, NULL, h, NULL),
              SL_GRADIENT);
    assert_ok(sl_model_add_graph(model, graph));
    assert_ok(sl_model_link(model));
    int count;
    const sl_tie *tie = sl_model_ties(model, &count);
    assert_int_equal(count, 1);
    assert_int_equal(tie->name_count, 2);
    assert_int_equal(tie->stage_count, 2);
    assert_string_equal(tie->names[0], "transformer.wte.weight");
    assert_string_equal(tie->names[1], "lm_head.weight");
    sl_model_destroy(model);
}

static void two_of_one_stage_cannot_be_tied(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    for (int s = 0; s < 2; s++) {
        sl_graph *graph = new_graph();
        sl_tensor *x =
            s ? sl_model_receive(model, graph, "h")
              : sl_input(graph, "x", SL_F32, SL_SHAPE(3, 4), SL_NO_GRADIENT);
        sl_tensor *h = linear(graph, "a", x);
        if (s)
            sl_alias(graph->parameters.data[0].tensor, "b");
        else
            h = linear(graph, "b", h);
        sl_output(graph, s ? "y" : "h", h, SL_GRADIENT);
        assert_ok(sl_model_add_graph(model, graph));
    }
    assert_fails(sl_model_link(model), SL_EINVAL,
                 "stage 0: parameters 'a' and 'b' are one in another stage");
    sl_model_destroy(model);
}

static void models_that_cannot_be_are_refused(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    assert_fails(sl_model_link(model), SL_EINVAL, "has no stage");
    sl_graph *graph = new_graph();
    assert_fails(sl_model_add_graph(model, graph), SL_EINVAL,
                 "stage 0: the graph has no output and no loss");
    sl_graph_destroy(graph);
    add_first(model);
    assert_fails(sl_model_add_graph(model, model->parts[0].graph), SL_EINVAL,
                 "the graph is stage 0 already");
    assert_ok(sl_model_link(model));
    graph = new_graph();
    sl_output(graph, "y", sl_relu(sl_model_receive(model, graph, "h")),
              SL_GRADIENT);
    assert_fails(sl_model_add_graph(model, graph), SL_EINVAL,
                 "the model is linked");
    sl_graph_destroy(graph);
    sl_stage *stage;
    assert_fails(sl_model_compile(model, 1, NULL, &stage), SL_EINVAL,
                 "stage 1, expected 0 to 0");
    sl_model_destroy(model);
}

static void inputs_and_outputs_of_several_stages_must_agree(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        sl_model *model;
        assert_ok(sl_model_create(&model));
        for (int s = 0; s < 2; s++) {
            sl_graph *graph = new_graph();
            sl_tensor *mask =
                sl_input(graph, "mask", SL_BOOL, SL_SHAPE(3, way ? 4 : 4 - s),
                         SL_NO_GRADIENT);
            sl_tensor *x =
                sl_input(graph, s ? "x1" : "x0", SL_F32,
                         SL_SHAPE(3, way ? 4 : 4 - s), SL_NO_GRADIENT);
            sl_output(graph, "y", sl_mul(x, mask), SL_NO_GRADIENT);
            assert_ok(sl_model_add_graph(model, graph));
        }
        assert_fails(sl_model_link(model), SL_EINVAL,
                     way ? "stage 1: output 'y' is one of an earlier stage "
                           "already"
                         : "stage 1: input 'mask' is bool (3, 3), expected "
                           "bool (3, 4) as stage 0 has it");
        sl_model_destroy(model);
    }
}

static void an_input_reaches_all_its_stages(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    for (int s = 0; s < 6; s++) {
        sl_graph *graph = new_graph();
        sl_tensor *x =
            s ? sl_model_receive(model, graph, "h")
              : sl_input(graph, "x", SL_F32, SL_SHAPE(3, 4), SL_NO_GRADIENT);
        if (s != 2)
            x = sl_mul(x, sl_input(graph, "mask", SL_BOOL, SL_SHAPE(3, 4),
                                   SL_NO_GRADIENT));
        sl_output(graph, "h", sl_relu(x), SL_GRADIENT);
        assert_ok(sl_model_add_graph(model, graph));
    }
    assert_ok(sl_model_link(model));
    int count;
    const sl_model_port *inputs = sl_model_inputs(model, &count);
    assert_int_equal(count, 2);
    assert_string_equal(inputs[1].name, "mask");
    assert_int_equal(inputs[1].stage_count, 5);
    assert_memory_equal(inputs[1].stages, ((int[]){0, 1, 3, 4, 5}),
                        5 * sizeof(int));
    assert_int_equal(inputs[1].dtype, SL_BOOL);
    /* Nothing learns: no gradient flows anywhere. */
    const sl_edge *edges = sl_model_edges(model, &count);
    assert_int_equal(count, 5);
    for (int i = 0; i < count; i++)
        assert_null(edges[i].gradient_name);
    sl_model_destroy(model);
}

static void names_are_checked_against_a_list(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    add_first(model);
    add_second(model);
    assert_ok(sl_model_link(model));
    const char *const names[] = {"w0", "w1", "w2"};
    assert_ok(sl_model_check_parameters(model, names, 2));
    assert_fails(sl_model_check_parameters(model, names, 3), SL_EINVAL,
                 "no stage has the parameter 'w2'");
    assert_fails(sl_model_check_parameters(model, names, 1), SL_EINVAL,
                 "stage 1 has a parameter 'w1', which is none of the model's");
    sl_model_destroy(model);
}

/* A consumer that does not differentiate sends no gradient back, and none is
 * waited for. */
static void an_output_nobody_differentiates_gets_none(void **state)
{
    (void)state;
    sl_model *model;
    assert_ok(sl_model_create(&model));
    add_first(model);
    sl_graph *graph = new_graph();
    sl_tensor *h = sl_input(graph, "h", SL_F32, SL_SHAPE(3, 4), SL_NO_GRADIENT);
    sl_loss(graph, sl_mean(linear(graph, "w1", h), SL_ALL));
    assert_ok(sl_model_add_graph(model, graph));
    assert_ok(sl_model_link(model));
    int count;
    assert_null(sl_model_edges(model, &count)[0].gradient_name);
    assert_false(sl_model_crossings(model, &count)[0].gradient);
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    test_staged staged = test_stages(model, &options, 1);
    test_staged_forward(&staged, 0);
    test_staged_backward(&staged, "B", 0);
    float *dw =
        test_get(&staged.stages[0], SL_PORT_PARAMETER_GRADIENT, "w0", 0, NULL);
    for (int i = 0; i < 16; i++)
        assert_true(dw[i] == 0);
    free(dw);
    test_staged_release(&staged);
    sl_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_by_hand_compute_what_the_whole_does),
        cmocka_unit_test(callbacks_are_a_stage_like_any_other),
        cmocka_unit_test(gradients_of_several_consumers_are_summed),
        cmocka_unit_test(a_failing_callback_ends_the_run_with_its_sentence),
        cmocka_unit_test(callbacks_that_cannot_be_are_refused),
        cmocka_unit_test(forward_alone_ends_the_flow_of_gradients),
        cmocka_unit_test(handing_on_to_the_caller_is_a_use),
        cmocka_unit_test(a_name_is_a_parameter_or_a_buffer),
        cmocka_unit_test(a_stage_of_forward_alone_has_no_backward),
        cmocka_unit_test(metadata_that_does_not_fit_is_refused),
        cmocka_unit_test(receiving_what_nobody_gives_is_refused),
        cmocka_unit_test(tied_parameters_must_be_alike),
        cmocka_unit_test(ties_follow_all_names),
        cmocka_unit_test(two_of_one_stage_cannot_be_tied),
        cmocka_unit_test(models_that_cannot_be_are_refused),
        cmocka_unit_test(inputs_and_outputs_of_several_stages_must_agree),
        cmocka_unit_test(an_input_reaches_all_its_stages),
        cmocka_unit_test(names_are_checked_against_a_list),
        cmocka_unit_test(an_output_nobody_differentiates_gets_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

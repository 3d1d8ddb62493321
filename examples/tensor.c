/* SPDX-License-Identifier: MIT
 *
 * A small perceptron in C: build a graph, look at the plan, train it on a
 * function of two numbers. Two microbatches are in flight, one goes backward
 * whole (B), the other in two parts (I, then W). */
#include <sluice/sluice.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 32, HIDDEN = 32, SLOTS = 2, STEPS = 300 };

static sl_tensor *linear(sl_graph *graph, const char *name, sl_tensor *x,
                         int64_t out, int64_t in)
{
    sl_scope_enter(graph, "%s", name); /* Parameters are name.weight, .bias. */
    sl_tensor *weight =
        sl_parameter(graph, "weight", SL_F32, SL_SHAPE(out, in));
    sl_tensor *bias = sl_parameter(graph, "bias", SL_F32, SL_SHAPE(out));
    sl_scope_leave(graph);
    return sl_linear(x, weight, bias, SL_OUT_IN);
}

static sl_status build(sl_graph **out)
{
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(ROWS, 2), SL_GRADIENT);
    sl_tensor *target =
        sl_input(graph, "target", SL_F32, SL_SHAPE(ROWS, 1), SL_NO_GRADIENT);
    sl_tensor *h = sl_gelu_tanh(linear(graph, "fc1", x, HIDDEN, 2));
    h = sl_gelu_tanh(linear(graph, "fc2", h, HIDDEN, HIDDEN));
    sl_loss(graph, sl_mse(linear(graph, "fc3", h, 1, HIDDEN), target));
    *out = graph;
    return SL_OK;
}

static float uniform(void)
{
    return (float)rand() / (float)RAND_MAX * 2 - 1;
}

/* Every parameter of the stage, through `change`. */
static sl_status for_each_parameter(const sl_stage *stage, sl_memory *memory,
                                    void (*change)(float *value,
                                                   const float *gradient,
                                                   const sl_port *port))
{
    static float value[HIDDEN * HIDDEN], gradient[HIDDEN * HIDDEN];
    sl_status status = SL_OK;
    int count = sl_stage_port_count(stage, SL_PORT_PARAMETER);
    for (int i = 0; i < count && !status; i++) {
        sl_port port, gradient_port;
        status = sl_stage_port_at(stage, SL_PORT_PARAMETER, i, &port);
        if (!status)
            status = sl_stage_port_at(stage, SL_PORT_PARAMETER_GRADIENT, i,
                                      &gradient_port);
        size_t bytes = (size_t)port.bytes;
        if (!status)
            status = sl_memory_read(memory, &port, 0, value, bytes);
        if (!status)
            status = sl_memory_read(memory, &gradient_port, 0, gradient, bytes);
        if (!status) {
            change(value, gradient, &port);
            status = sl_memory_write(memory, &port, 0, value, bytes);
        }
    }
    return status;
}

static void initialise(float *value, const float *gradient, const sl_port *port)
{
    (void)gradient;
    float scale = port->dims == 2 ? sqrtf(3.0f / (float)port->shape[1]) : 0.0f;
    for (int64_t i = 0; i < port->bytes / (int64_t)sizeof *value; i++)
        value[i] = uniform() * scale;
}

static void descend(float *value, const float *gradient, const sl_port *port)
{
    for (int64_t i = 0; i < port->bytes / (int64_t)sizeof *value; i++)
        value[i] -= 0.1f * gradient[i] / SLOTS;
}

/* Fills a slot with points and the sine of their product. */
static sl_status fill(const sl_stage *stage, sl_memory *memory, int slot)
{
    float x[ROWS][2], target[ROWS];
    sl_port port;
    for (int i = 0; i < ROWS; i++) {
        x[i][0] = uniform();
        x[i][1] = uniform();
        target[i] = sinf(3 * x[i][0] * x[i][1]);
    }
    sl_status status = sl_stage_port(stage, SL_PORT_INPUT, "x", &port);
    if (!status)
        status = sl_memory_write(memory, &port, slot, x, sizeof x);
    if (!status)
        status = sl_stage_port(stage, SL_PORT_INPUT, "target", &port);
    if (!status)
        status = sl_memory_write(memory, &port, slot, target, sizeof target);
    return status;
}

/* One step over both microbatches; they overlap as a pipeline would have
 * them. */
static sl_status step(const sl_stage *stage, sl_memory *memory, float *loss)
{
    static const struct {
        sl_program program;
        int slot;
    } order[] = {{SL_PROGRAM_F, 0},
                 {SL_PROGRAM_F, 1},
                 {SL_PROGRAM_B, 0},
                 {SL_PROGRAM_I, 1},
                 {SL_PROGRAM_W, 1}};
    sl_status status = SL_OK;
    sl_memory_zero_gradients(memory);
    for (int slot = 0; slot < SLOTS && !status; slot++)
        status = fill(stage, memory, slot);
    for (size_t i = 0; i < sizeof order / sizeof *order && !status; i++)
        status =
            sl_stage_run(stage, order[i].program, memory, order[i].slot, NULL);
    *loss = 0;
    for (int slot = 0; slot < SLOTS && !status; slot++) {
        sl_port port;
        float one = 0;
        status = sl_stage_port(stage, SL_PORT_OUTPUT, "loss", &port);
        if (!status)
            status = sl_memory_read(memory, &port, slot, &one, sizeof one);
        *loss += one / SLOTS;
    }
    return status ? status : for_each_parameter(stage, memory, descend);
}

static sl_status train(const sl_stage *stage, sl_memory *memory)
{
    float first = 0, loss = 0;
    sl_status status = for_each_parameter(stage, memory, initialise);
    for (int i = 0; i < STEPS && !status; i++) {
        status = step(stage, memory, &loss);
        if (i == 0)
            first = loss;
    }
    if (!status)
        printf("loss %.4f at first, %.4f after %d steps\n", first, loss, STEPS);
    return !status && !(loss < first / 4)
               ? sl_fail(SL_EINVAL, "the loss has not gone down")
               : status;
}

int main(void)
{
    sl_graph *graph = NULL;
    sl_stage *stage = NULL;
    sl_memory *memory = NULL;
    sl_status status = build(&graph);
    if (!status)
        status = sl_stage_compile(graph, NULL, &stage);
    if (!status) {
        const sl_plan *plan = sl_stage_plan(stage);
        printf("%lld bytes saved per microbatch, %lld bytes in all\n",
               (long long)plan->saved_bytes,
               (long long)sl_plan_bytes(stage, SLOTS));
        status = sl_memory_create(stage, SLOTS, &memory);
    }
    if (!status)
        status = train(stage, memory);
    if (status)
        fprintf(stderr, "%s\n", sl_error_text());
    sl_memory_destroy(memory);
    sl_stage_destroy(stage);
    sl_graph_destroy(graph);
    return status ? 1 : 0;
}

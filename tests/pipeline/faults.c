/* SPDX-License-Identifier: MIT
 *
 * See faults.h. */
#include "faults.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* Stages of callbacks that count. */
typedef struct callback_stage {
    const fault *asked;
    int stage;
    int calls[4];
} callback_stage;

static _Thread_local callback_stage own_stages[STAGES];

static sl_status act(callback_stage *own, char program, int at)
{
    const fault *p = own->asked;
    int call = own->calls[at]++;
    if (p->stage != own->stage || p->program != program ||
        p->microbatch != call)
        return SL_OK;
    if (p->dies)
        raise(SIGKILL);
    if (p->hangs) {
        /* Longer than anybody waits, but not for ever. */
        sleep(3);
        return SL_OK;
    }
    return sl_fail(SL_EPARSE, "%c said no", program);
}

static sl_status forward(void *context, const sl_call *call)
{
    callback_stage *own = context;
    const float *x = call->inputs[0];
    float *y = call->outputs[0];
    y[0] = x[0] + (own->stage == STAGES - 1 ? 0 : x[1]);
    if (own->stage < STAGES - 1)
        y[1] = x[1] * 2;
    return act(own, 'F', 0);
}

static sl_status backward_input(void *context, const sl_call *call)
{
    float *dx = call->input_gradients[0];
    if (dx)
        dx[0] = dx[1] = 1;
    return act(context, 'I', 1);
}

static sl_status backward_weight(void *context, const sl_call *call)
{
    (void)call;
    return act(context, 'W', 2);
}

static sl_status backward(void *context, const sl_call *call)
{
    float *dx = call->input_gradients[0];
    if (dx)
        dx[0] = dx[1] = 1;
    return act(context, 'B', 3);
}

sl_status build_faulty(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    sl_model *model;
    sl_status status = sl_model_create(&model);
    (void)like;
    (void)rows;
    for (int s = 0; s < STAGES && !status; s++) {
        const sl_value in = {
            s ? "h" : "x", SL_F32, 2, {1, 2}, s ? SL_GRADIENT : SL_NO_GRADIENT};
        const sl_value hidden = {"h", SL_F32, 2, {1, 2}, SL_GRADIENT};
        const sl_value loss = {"loss", SL_F32, 0, {0}, SL_NO_GRADIENT};
        own_stages[s] = (callback_stage){context, s, {0}};
        const sl_stage_description mine = {
            .inputs = &in,
            .input_count = 1,
            .outputs = s == STAGES - 1 ? &loss : &hidden,
            .output_count = 1,
            .callbacks = {.forward = forward,
                          .backward = backward,
                          .backward_input = backward_input,
                          .backward_weight = backward_weight},
            .context = &own_stages[s]};
        status = sl_model_add_callbacks(model, &mine);
    }
    if (!status)
        status = sl_model_link(model);
    if (status)
        sl_model_destroy(model);
    else
        *out = model;
    return status;
}

sl_status run_faulty_rank(sl_comm *comm, void *context)
{
    job *own = context;
    int rank = sl_comm_rank(comm);
    static const float data[MICROBATCHES * 3];
    int64_t wide = rank == own->wrong_rank ? 3 : 2;
    const sl_array array = {SL_F32, 2, {MICROBATCHES, wide}, data};
    const sl_argument argument = {"x", SL_SPREAD_SPLIT, 0, &array, 1};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    if (own->tamper)
        own->tamper(comm);
    options.schedule = own->schedule;
    options.timeout_s = own->timeout_s;
    options.work_stealing = SL_STEAL_ALWAYS;
    options.functions = own->functions;
    options.function_count = own->function_count;
    sl_status status = sl_pipeline_create(
        comm, build_faulty, (void *)own->asked, &options, &pipeline);
    if (!status && rank == own->absent_rank)
        sleep(3);
    else if (!status)
        status = sl_pipeline_step(pipeline, &argument, 1, 0);
    own->ranks[rank].status = status;
    snprintf(own->ranks[rank].sentence, sizeof own->ranks[rank].sentence, "%s",
             status ? sl_error_text() : "");
    sl_pipeline_destroy(pipeline);
    return status;
}

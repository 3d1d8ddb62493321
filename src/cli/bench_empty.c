/* SPDX-License-Identifier: MIT
 *
 * A model that computes nothing: stages of empty callbacks that pass one number
 * on and one back. The time of its step is the overhead of Sluice itself. */
#include "bench.h"

static sl_status do_nothing(void *context, const sl_call *call)
{
    (void)context;
    (void)call;
    return SL_OK;
}

sl_status bench_build_empty(int stages, int64_t rows, sl_model **out)
{
    const sl_value x = {"x", SL_F32, 2, {rows, 1}, SL_NO_GRADIENT};
    const sl_value h = {"h", SL_F32, 2, {rows, 1}, SL_GRADIENT};
    const sl_value loss = {"loss", SL_F32, 0, {0}, SL_NO_GRADIENT};
    sl_model *model;
    CLI_TRY(sl_model_create(&model));
    sl_status status = SL_OK;
    for (int s = 0; s < stages && !status; s++) {
        const sl_stage_description stage = {
            .inputs = s ? &h : &x,
            .input_count = 1,
            .outputs = s + 1 < stages ? &h : &loss,
            .output_count = 1,
            .callbacks = {.forward = do_nothing,
                          .backward = do_nothing,
                          .backward_input = do_nothing,
                          .backward_weight = do_nothing}};
        status = sl_model_add_callbacks(model, &stage);
    }
    if (!status)
        status = sl_model_link(model);
    if (status)
        sl_model_destroy(model);
    else
        *out = model;
    return status;
}

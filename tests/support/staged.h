/* SPDX-License-Identifier: MIT
 *
 * A model in stages, beside the same model uncut. The stages run one after the
 * other, and the test copies messages along the edges. */
#ifndef SL_TEST_STAGED_H
#define SL_TEST_STAGED_H

#include "tensors.h"

typedef struct test_staged {
    const sl_model *model;
    int count;
    test_stage *stages;
    /* Added to the norms that gradients are compared with, per element: 0.1 by
     * default. */
    double floor;
} test_staged;

test_staged test_stages(const sl_model *model, const sl_stage_options *options,
                        int slots);
void test_staged_release(test_staged *staged);

/* Gives the stages the parameters, inputs and gradients of outputs that the
 * uncut model has in a slot. */
void test_staged_copy(const test_staged *staged, const test_stage *whole,
                      int slot);

/* Runs F from the first stage to the last, then `backward` ("B" or "IW") from
 * the last to the first. */
void test_staged_forward(const test_staged *staged, int slot);
void test_staged_backward(const test_staged *staged, const char *backward,
                          int slot);

/* Asserts that the outputs are those of the uncut model, bit for bit if
 * `outputs` is 0; and likewise the gradients of inputs, and those of
 * parameters, summed over the stages that have them, all by norm. */
void test_staged_assert(const test_staged *staged, const test_stage *whole,
                        int slot, double outputs, double gradients);

/* Asserts what holds for every model that was cut from a graph: the stages have
 * the graph's parameter names and no others, no tensor crosses twice, edges go
 * forward, each consumer has an edge, and parameters are tied exactly if their
 * names repeat. */
void test_model_is_sound(const sl_model *model, const sl_graph *graph);

#endif

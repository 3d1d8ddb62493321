/* SPDX-License-Identifier: MIT
 *
 * One small object of every kind, for tests of calls that are refused: two
 * stages of an MLP on one rank, after one step, and objects made from them. */
#ifndef SL_TEST_WORLD_H
#define SL_TEST_WORLD_H

#include "support.h"

enum { TEST_WORLD_ROWS = 2, TEST_WORLD_WIDTH = 4 };

typedef struct test_world {
    char folder[TEST_FOLDER_MAX];
    char text_path[256];    /* a file of text in it */
    char weights_path[256]; /* a safetensors file in it */
    sl_schedule *schedule;  /* F and B of 2 stages and microbatches, 1 rank */
    sl_placement *placement;
    sl_report *report;
    sl_simulation *simulation;
    sl_timeline *timeline;
    sl_graph *graph; /* x (2, 4) by w (4, 4), ids (2): y and the loss */
    sl_tensor *x, *w, *ids;
    sl_stage *stage;
    sl_memory *memory; /* 1 slot */
    sl_port input, parameter, gradient;
    sl_comm *comm; /* of one rank */
    sl_model *model;
    sl_mlp_model_spec spec;
    float numbers[TEST_WORLD_ROWS * TEST_WORLD_WIDTH];
    sl_array arrays[2];
    sl_argument arguments[2]; /* x and target of the MLP */
    sl_batch *batch;          /* of 2 microbatches */
    sl_merge *merge;          /* likewise, still empty */
    sl_programs *programs;
    sl_pipeline *pipeline; /* after a step */
    sl_trace *trace;
    sl_optimizer *optimizer;
    sl_tokens *tokens;
    sl_windows windows;
    sl_weights *weights;
    sl_safetensors *file;
} test_world;

/* For cmocka_run_group_tests: the state of each test is a world. */
int test_world_set_up(void **state);
int test_world_tear_down(void **state);

/* A new pipeline of the world's MLP. */
sl_pipeline *test_world_pipeline(const test_world *world, sl_comm *comm,
                                 const sl_schedule *schedule);

#endif

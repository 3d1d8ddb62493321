/* SPDX-License-Identifier: MIT
 *
 * See world.h. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_schedule(test_world *own)
{
    own->schedule = test_parse("0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1\n");
    assert_ok(sl_placement_derive(own->schedule, &own->placement));
    assert_ok(sl_check(own->schedule, NULL, &own->report));
    assert_ok(sl_simulate(own->schedule, NULL, SL_ASYNC, &own->simulation));
    assert_ok(sl_timeline_simulated("a schedule", own->schedule, NULL,
                                    own->simulation, &own->timeline));
}

static void open_stage(test_world *own)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    assert_ok(sl_graph_create(&own->graph));
    own->x = sl_input(own->graph, "x", SL_F32,
                      SL_SHAPE(TEST_WORLD_ROWS, TEST_WORLD_WIDTH), SL_GRADIENT);
    own->ids = sl_input(own->graph, "ids", SL_I64, SL_SHAPE(TEST_WORLD_ROWS),
                        SL_NO_GRADIENT);
    own->w = sl_parameter(own->graph, "w", SL_F32,
                          SL_SHAPE(TEST_WORLD_WIDTH, TEST_WORLD_WIDTH));
    sl_tensor *y = sl_linear(own->x, own->w, NULL, SL_OUT_IN);
    sl_output(own->graph, "y", y, SL_GRADIENT);
    sl_loss(own->graph, sl_cross_entropy(y, own->ids, -100));
    assert_ok(sl_stage_compile(own->graph, &options, &own->stage));
    assert_ok(sl_memory_create(own->stage, 1, &own->memory));
    assert_ok(sl_stage_port(own->stage, SL_PORT_INPUT, "x", &own->input));
    assert_ok(
        sl_stage_port(own->stage, SL_PORT_PARAMETER, "w", &own->parameter));
    assert_ok(sl_stage_port(own->stage, SL_PORT_PARAMETER_GRADIENT, "w",
                            &own->gradient));
}

static void open_model(test_world *own)
{
    own->spec = (sl_mlp_model_spec){{2, TEST_WORLD_WIDTH}, SL_CUT_OPTIONS_INIT, SL_F32};
    own->spec.cut.by = SL_CUT_BY_COST;
    own->spec.cut.stages = 2;
    assert_ok(sl_mlp_model(&own->spec, 1, NULL, &own->model));
    for (int i = 0; i < 2; i++) {
        own->arrays[i] = (sl_array){
            SL_F32, 2, {TEST_WORLD_ROWS, TEST_WORLD_WIDTH}, own->numbers};
        own->arguments[i] = (sl_argument)SL_ARGUMENT_INIT;
        own->arguments[i].arrays = &own->arrays[i];
    }
    const sl_array part = {SL_F32, 2, {1, TEST_WORLD_WIDTH}, NULL};
    const sl_array parts[2] = {part, part};
    assert_ok(sl_batch_create(own->model, own->arguments, 2, 2, &own->batch));
    assert_ok(sl_merge_create(NULL, parts, NULL, 2, &own->merge));
    assert_ok(
        sl_programs_create(sl_mlp_model, &own->spec, NULL, &own->programs));
}

sl_pipeline *test_world_pipeline(const test_world *own, sl_comm *comm,
                                 const sl_schedule *schedule)
{
    sl_pipeline *made;
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    options.schedule = schedule;
    options.keep_outputs = true;
    assert_ok(sl_pipeline_create(comm, sl_mlp_model, (void *)&own->spec,
                                 &options, &made));
    return made;
}

static void open_pipeline(test_world *own)
{
    sl_optimizer_options options = SL_OPTIMIZER_OPTIONS_INIT;
    assert_ok(sl_threads_create(1, &own->comm));
    own->pipeline = test_world_pipeline(own, own->comm, own->schedule);
    assert_ok(sl_pipeline_step(own->pipeline, own->arguments, 2, 0));
    assert_ok(sl_pipeline_trace(own->pipeline, &own->trace));
    assert_ok(sl_optimizer_create(own->pipeline, &options, &own->optimizer));
}

static void open_files(test_world *own)
{
    static const char text[] = "a text of some tokens";
    const sl_safetensor tensor = {.name = "w",
                                  .dims = 2,
                                  .shape = {TEST_WORLD_ROWS, TEST_WORLD_WIDTH},
                                  .dtype = SL_F32,
                                  .data = own->numbers,
                                  .bytes = sizeof own->numbers};
    assert_true(test_make_folder(own->folder));
    snprintf(own->text_path, sizeof own->text_path, "%s/text", own->folder);
    snprintf(own->weights_path, sizeof own->weights_path, "%s/w.safetensors",
             own->folder);
    FILE *file = fopen(own->text_path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    assert_ok(sl_safetensors_write(own->weights_path, &tensor, 1, NULL));
    assert_ok(sl_tokens_open(own->text_path, &own->tokens));
    assert_ok(sl_weights_open(own->weights_path, &own->weights));
    assert_ok(sl_safetensors_open(own->weights_path, &own->file));
    own->windows = (sl_windows){.tokens = own->tokens,
                                .count = sl_tokens_count(own->tokens),
                                .length = 4,
                                .vocabulary = 256};
}

int test_world_set_up(void **state)
{
    test_world *own = calloc(1, sizeof *own);
    assert_non_null(own);
    open_schedule(own);
    open_stage(own);
    open_model(own);
    open_pipeline(own);
    open_files(own);
    *state = own;
    return 0;
}

int test_world_tear_down(void **state)
{
    test_world *world = *state;
    sl_safetensors_close(world->file);
    sl_weights_close(world->weights);
    sl_tokens_close(world->tokens);
    test_remove_folder(world->folder);
    sl_optimizer_destroy(world->optimizer);
    sl_trace_destroy(world->trace);
    sl_pipeline_destroy(world->pipeline);
    sl_programs_destroy(world->programs);
    sl_merge_destroy(world->merge);
    sl_batch_destroy(world->batch);
    sl_model_destroy(world->model);
    sl_comm_destroy(world->comm);
    sl_memory_destroy(world->memory);
    sl_stage_destroy(world->stage);
    sl_graph_destroy(world->graph);
    sl_timeline_destroy(world->timeline);
    sl_simulation_destroy(world->simulation);
    sl_report_destroy(world->report);
    sl_placement_destroy(world->placement);
    sl_schedule_destroy(world->schedule);
    free(world);
    return 0;
}

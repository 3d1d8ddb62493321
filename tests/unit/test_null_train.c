/* SPDX-License-Identifier: MIT
 *
 * Models to train, data and checkpoints with NULL; see rows.h. */
#include "rows.h"

#include <stdio.h>

static void models_to_train(void **state)
{
    test_world *w = *state;
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    sl_mlp_config mlp = SL_MLP_CONFIG_INIT;
    sl_gpt2_model_spec spec = {SL_GPT2_CONFIG_INIT, SL_GPT2_OPTIONS_INIT, 4,
                               SL_CUT_OPTIONS_INIT, SL_F32};
    sl_model *made;
    const char *no_config = "config is NULL", *no_operand = "operand";
    REFUSES(json, sl_gpt2_read_config, (NULL, 2, &config));
    REFUSES(out, sl_gpt2_read_config, ("{}", 2, NULL));
    GIVES(SL_EPARSE, sl_gpt2_read_config, (NULL, 0, &config));
    REFUSES(config, sl_gpt2_write_config, (NULL, sl_write_stdio, stderr));
    REFUSES(write, sl_gpt2_write_config, (&config, NULL, NULL));
    DOES_NOTHING(sl_gpt2_build, (NULL, &config, NULL, 1, 4));
    REFUSES_IN_GRAPH(no_config, sl_gpt2_build, (graph, NULL, NULL, 1, 4));
    GIVES(NULL, sl_gpt2_embed, (NULL, &config, NULL, w->ids, NULL));
    REFUSES_IN_GRAPH(no_config, sl_gpt2_embed, (graph, NULL, NULL, ids, NULL));
    REFUSES_IN_GRAPH(no_operand, sl_gpt2_embed,
                     (graph, &config, NULL, NULL, NULL));
    GIVES(NULL, sl_gpt2_layer, (NULL, &config, NULL, 0, w->x));
    REFUSES_IN_GRAPH(no_config, sl_gpt2_layer, (graph, NULL, NULL, 0, x));
    REFUSES_IN_GRAPH(no_operand, sl_gpt2_layer,
                     (graph, &config, NULL, 0, NULL));
    GIVES(NULL, sl_gpt2_head, (NULL, &config, NULL, w->x, NULL));
    REFUSES_IN_GRAPH(no_config, sl_gpt2_head, (graph, NULL, NULL, x, NULL));
    REFUSES_IN_GRAPH(no_operand, sl_gpt2_head,
                     (graph, &config, NULL, NULL, NULL));
    REFUSES(spec, sl_gpt2_model, (NULL, 1, NULL, &made));
    REFUSES(out, sl_gpt2_model, (&spec, 1, NULL, NULL));
    DOES_NOTHING(sl_mlp_build, (NULL, &mlp, 1));
    REFUSES_IN_GRAPH(no_config, sl_mlp_build, (graph, NULL, 1));
    GIVES(NULL, sl_mlp_layer, (NULL, &mlp, 0, w->x));
    REFUSES_IN_GRAPH(no_config, sl_mlp_layer, (graph, NULL, 0, x));
    REFUSES_IN_GRAPH(no_operand, sl_mlp_layer, (graph, &mlp, 0, NULL));
    REFUSES(spec, sl_mlp_model, (NULL, 1, NULL, &made));
    REFUSES(out, sl_mlp_model, (&w->spec, 1, NULL, NULL));
}

static void optimizers(void **state)
{
    test_world *w = *state;
    const sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    const sl_optimizer_options options = SL_OPTIMIZER_OPTIONS_INIT;
    sl_optimizer *made;
    GIVES(0, sl_gpt2_init, (NULL, &w->parameter).deviation);
    GIVES(0, sl_gpt2_init, (&config, NULL).deviation);
    GIVES(0, sl_mlp_init, (NULL, NULL).deviation);
    REFUSES(pipeline, sl_pipeline_init_parameters,
            (NULL, sl_mlp_init, NULL, 1));
    REFUSES(init, sl_pipeline_init_parameters, (w->pipeline, NULL, NULL, 1));
    REFUSES(config, sl_pipeline_init_parameters,
            (w->pipeline, sl_gpt2_init, NULL, 1));
    REFUSES(pipeline, sl_optimizer_create, (NULL, &options, &made));
    REFUSES(options, sl_optimizer_create, (w->pipeline, NULL, &made));
    REFUSES(out, sl_optimizer_create, (w->pipeline, &options, NULL));
    DOES_NOTHING(sl_optimizer_destroy, (NULL));
    REFUSES(optimizer, sl_optimizer_step, (NULL, 0.1, NULL));
    GIVES(0, sl_optimizer_steps, (NULL));
    DOES_NOTHING(sl_optimizer_set_steps, (NULL, 1));
    GIVES(0, sl_rate_at, (NULL, 1));
}

static void data_and_weights(void **state)
{
    test_world *w = *state;
    const sl_windows blind = {.count = 8, .length = 4};
    sl_tokens *tokens;
    sl_weights *weights;
    int64_t id[4], label[4];
    REFUSES(path, sl_tokens_open, (NULL, &tokens));
    REFUSES(out, sl_tokens_open, (w->text_path, NULL));
    DOES_NOTHING(sl_tokens_close, (NULL));
    GIVES(0, sl_tokens_count, (NULL));
    GIVES(false, sl_tokens_are_bytes, (NULL));
    REFUSES(tokens, sl_tokens_read, (NULL, 0, 1, id));
    REFUSES(out, sl_tokens_read, (w->tokens, 0, 1, NULL));
    GIVES(0, sl_windows_count, (NULL));
    REFUSES(windows, sl_windows_read, (NULL, 0, 1, id, label));
    REFUSES(windows->tokens, sl_windows_read, (&blind, 0, 1, id, label));
    REFUSES(ids, sl_windows_read, (&w->windows, 0, 1, NULL, label));
    REFUSES(labels, sl_windows_read, (&w->windows, 0, 1, id, NULL));
    REFUSES(path, sl_weights_open, (NULL, &weights));
    REFUSES(out, sl_weights_open, (w->weights_path, NULL));
    DOES_NOTHING(sl_weights_close, (NULL));
    GIVES(NULL, sl_weights_find, (NULL, "w"));
    GIVES(NULL, sl_weights_find, (w->weights, NULL));
    REFUSES(weights, sl_weights_load, (NULL, w->pipeline));
    REFUSES(pipeline, sl_weights_load, (w->weights, NULL));
}

static void checkpoints(void **state)
{
    test_world *w = *state;
    const sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    sl_progress progress = {.step = 1};
    char *found;
    sl_claim *claim;
    REFUSES(folder, sl_claim_create, (NULL, &claim));
    REFUSES(out, sl_claim_create, (w->folder, NULL));
    DOES_NOTHING(sl_claim_destroy, (NULL));
    REFUSES(pipeline, sl_checkpoint_write,
            (NULL, w->optimizer, &config, &progress, SL_F32, w->folder));
    REFUSES(optimizer, sl_checkpoint_write,
            (w->pipeline, NULL, &config, &progress, SL_F32, w->folder));
    REFUSES(config, sl_checkpoint_write,
            (w->pipeline, w->optimizer, NULL, &progress, SL_F32, w->folder));
    REFUSES(progress, sl_checkpoint_write,
            (w->pipeline, w->optimizer, &config, NULL, SL_F32, w->folder));
    REFUSES(folder, sl_checkpoint_write,
            (w->pipeline, w->optimizer, &config, &progress, SL_F32, NULL));
    REFUSES(path, sl_checkpoint_check, (NULL, &progress));
    REFUSES(out, sl_checkpoint_check, (w->folder, NULL));
    REFUSES(folder, sl_checkpoint_find, (NULL, NULL, NULL, &found));
    REFUSES(out, sl_checkpoint_find, (w->folder, NULL, NULL, NULL));
    REFUSES(path, sl_checkpoint_read, (NULL, w->pipeline, w->optimizer));
    REFUSES(pipeline, sl_checkpoint_read, (w->folder, NULL, w->optimizer));
    REFUSES(folder, sl_checkpoint_prune, (NULL, 1));
}

static void hear_token(void *context, int sample, int64_t token)
{
    (void)context;
    (void)sample;
    (void)token;
}

static void hear_layout(void *context, const sl_train_layout *layout)
{
    (void)context;
    (void)layout;
}

static void training_and_inference(void **state)
{
    test_world *w = *state;
    static const int64_t prompt[1] = {1};
    const sl_train_options train = {.batch = 2};
    const sl_inference_options options = {.config = SL_GPT2_CONFIG_INIT};
    const sl_sampling silent = {.prompt = prompt, .prompt_count = 1};
    const sl_sampling sampling = {.tokens = 1, .emit = hear_token};
    double loss;
    REFUSES(comm, sl_train, (NULL, &train));
    REFUSES(options, sl_train, (w->comm, NULL));
    REFUSES(comm, sl_train_dry_run, (NULL, &train, hear_layout));
    REFUSES(options, sl_train_dry_run, (w->comm, NULL, hear_layout));
    REFUSES(show, sl_train_dry_run, (w->comm, &train, NULL));
    REFUSES(comm, sl_evaluate, (NULL, &options, &w->windows, 0, &loss, NULL));
    REFUSES(options, sl_evaluate, (w->comm, NULL, &w->windows, 0, &loss, NULL));
    REFUSES(windows, sl_evaluate, (w->comm, &options, NULL, 0, &loss, NULL));
    REFUSES(out_loss, sl_evaluate,
            (w->comm, &options, &w->windows, 0, NULL, NULL));
    REFUSES(comm, sl_generate_tokens, (NULL, &options, &sampling));
    REFUSES(options, sl_generate_tokens, (w->comm, NULL, &sampling));
    REFUSES(sampling, sl_generate_tokens, (w->comm, &options, NULL));
    GIVES(SL_EINVAL, sl_generate_tokens, (w->comm, &options, &sampling));
    REFUSES(sampling->emit, sl_generate_tokens, (w->comm, &options, &silent));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_to_train),        cmocka_unit_test(optimizers),
        cmocka_unit_test(data_and_weights),       cmocka_unit_test(checkpoints),
        cmocka_unit_test(training_and_inference),
    };
    return cmocka_run_group_tests(tests, test_world_set_up,
                                  test_world_tear_down);
}

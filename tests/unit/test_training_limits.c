/* SPDX-License-Identifier: MIT
 *
 * Sizes that no memory holds, given to training and to inference, are refused
 * with a sentence before anything is computed from them. */
#include "support.h"

#include <stdio.h>
#include <unistd.h>

/* A text of ten tokens. */
static sl_tokens *open_tokens(void)
{
    char folder[TEST_FOLDER_MAX], path[TEST_FOLDER_MAX + 10];
    sl_tokens *tokens;
    assert_true(test_make_folder(folder));
    snprintf(path, sizeof path, "%s/text", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("abcdefghij", file);
    fclose(file);
    assert_ok(sl_tokens_open(path, &tokens));
    test_remove_folder(folder);
    return tokens;
}

static sl_status train(sl_comm *comm, void *context)
{
    return sl_train(comm, context);
}

static void a_batch_beyond_memory_is_refused(void **state)
{
    (void)state;
    sl_tokens *tokens = open_tokens();
    sl_schedule *schedule = test_generate("GPipe", 1, 1, 1);
    sl_train_options options = {
        .config = SL_GPT2_CONFIG_INIT,
        .schedule = schedule,
        .data = {.tokens = tokens, .count = 10, .length = 4, .vocabulary = 256},
        .batch = INT64_MAX / 2,
        .steps = 1};
    assert_fails(sl_threads_run(1, train, &options), SL_EINVAL,
                 "a batch of 4611686018427387903 sequences of 4 tokens");
    sl_schedule_destroy(schedule);
    sl_tokens_close(tokens);
}

static void windows_beyond_memory_are_refused(void **state)
{
    (void)state;
    sl_tokens *tokens = open_tokens();
    sl_schedule *schedule = test_generate("GPipe", 1, 1, 2);
    const sl_inference_options options = {.config = SL_GPT2_CONFIG_INIT,
                                          .schedule = schedule};
    sl_windows windows = {.tokens = tokens, .count = 10, .length = INT64_MAX};
    sl_comm *comm;
    double loss;
    assert_ok(sl_threads_create(1, &comm));
    assert_fails(sl_evaluate(comm, &options, &windows, 0, &loss, NULL),
                 SL_EINVAL, "10 tokens are fewer than the 9223372036854775808");
    windows.count = INT64_MAX;
    windows.length = INT64_MAX - 1;
    assert_fails(sl_evaluate(comm, &options, &windows, 0, &loss, NULL),
                 SL_ENOMEM, "sequences of 9223372036854775806 tokens");
    sl_comm_destroy(comm);
    sl_schedule_destroy(schedule);
    sl_tokens_close(tokens);
}

static void hear_token(void *context, int sample, int64_t token)
{
    (void)context;
    (void)sample;
    (void)token;
}

static void a_text_beyond_memory_is_refused(void **state)
{
    (void)state;
    const int64_t prompt[] = {1, 2};
    const sl_inference_options options = {.config = SL_GPT2_CONFIG_INIT};
    const sl_sampling how = {.prompt = prompt,
                             .prompt_count = 2,
                             .tokens = INT64_MAX,
                             .emit = hear_token};
    sl_comm *comm;
    assert_ok(sl_threads_create(1, &comm));
    assert_fails(sl_generate_tokens(comm, &options, &how), SL_EINVAL,
                 "9223372036854775807 tokens after a prompt of 2");
    sl_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_beyond_memory_is_refused),
        cmocka_unit_test(windows_beyond_memory_are_refused),
        cmocka_unit_test(a_text_beyond_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

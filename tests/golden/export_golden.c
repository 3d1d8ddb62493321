/* SPDX-License-Identifier: MIT
 *
 * Writes the golden GPT-2 as files that `sluice train` reads: export_golden DIR
 * makes DIR/model.safetensors, config.json, tokens.bin and the golden losses, a
 * line each, in losses. */
#include "golden_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char path[600];

static const char *in(const char *folder, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *where, const void *data, size_t bytes)
{
    FILE *file = fopen(where, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

/* Every parameter under each of its names. */
static void write_weights(const char *folder, const test_stage *whole)
{
    enum { MOST = 1000 };
    static sl_safetensor tensors[MOST];
    size_t count = 0;
    int ports = sl_stage_port_count(whole->stage, SL_PORT_PARAMETER);
    for (int i = 0; i < ports; i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(whole->stage, SL_PORT_PARAMETER, i, &port));
        sl_safetensor *new = &tensors[count++];
        *new = (sl_safetensor){
            .name = port.name,
            .dtype = port.dtype,
            .dims = port.dims,
            .data = test_get(whole, SL_PORT_PARAMETER, port.name, 0, NULL),
            .bytes = (size_t)port.bytes};
        memcpy(new->shape, port.shape, sizeof new->shape);
    }
    assert_ok(sl_safetensors_write(in(folder, "model.safetensors"), tensors,
                                   count, NULL));
    for (size_t i = 0; i < count; i++)
        free((void *)tensors[i].data);
}

/* Each row, and its last label behind it. */
static void write_tokens(const char *folder, const sl_safetensors *file)
{
    const sl_safetensor *shape = golden_find(file, "input_ids");
    float *ids = golden_floats(shape);
    float *labels = golden_floats(golden_find(file, "labels"));
    int64_t rows = shape->shape[0], length = shape->shape[1];
    uint16_t *tokens = malloc((size_t)(rows * (length + 1)) * sizeof *tokens);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i <= length; i++) {
            int64_t token;
            const float *from = i < length ? ids : labels;
            int64_t at = r * length + (i < length ? i : length - 1);
            memcpy(&token, (const char *)from + at * 8, sizeof token);
            tokens[r * (length + 1) + i] = (uint16_t)token;
        }
    }
    write_file(in(folder, "tokens.bin"), tokens,
               (size_t)(rows * (length + 1)) * sizeof *tokens);
    free(tokens);
    free(ids);
    free(labels);
    printf("--seq %lld --stride %lld --batch %lld\n", (long long)length,
           (long long)length + 1, (long long)rows);
}

static void export_all(void **state)
{
    const char *folder = *state;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_safetensors *file = golden_open("gpt2");
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    golden_models[GOLDEN_MODELS - 1].build(graph, file, SL_F32);
    options.backend = "ref";
    test_stage whole = test_compile(graph, &options, 1);
    float *missing = golden_missing_biases(file);
    golden_load_whole(&whole, file, missing);
    free(missing);
    write_weights(folder, &whole);
    const char *config = sl_safetensors_metadata(file, "config");
    write_file(in(folder, "config.json"), config, strlen(config));
    const sl_safetensor *losses = golden_find(file, "adamw_losses");
    float *values = golden_floats(losses);
    FILE *out = fopen(in(folder, "losses"), "w");
    for (size_t i = 0; i < losses->bytes / sizeof *values; i++)
        fprintf(out, "%.9g\n", (double)values[i]);
    fclose(out);
    free(values);
    /* The options that make of them the golden's batch. */
    write_tokens(folder, file);
    test_release(&whole);
    sl_graph_destroy(graph);
    sl_safetensors_close(file);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(export_all, argv[1])};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT
 *
 * Any bytes may be given as a config.json; one that is read can be built, or
 * the graph says why not. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sl_gpt2_config config;
    sl_gpt2_options options = SL_GPT2_OPTIONS_INIT;
    sl_graph *graph;
    if (sl_gpt2_read_config((const char *)data, size, &config))
        return 0;
    must(config.layers > 0 && config.width % config.heads == 0);
    if (config.layers > 3)
        config.layers = 3;
    options.dropout = size % 2;
    must(!sl_graph_create(&graph));
    sl_gpt2_build(graph, &config, &options, 1, 2);
    sl_cut_options cut = SL_CUT_OPTIONS_INIT;
    cut.by = SL_CUT_BY_COST;
    cut.stages = config.layers;
    sl_model *model;
    if (!sl_graph_status(graph)) {
        must(!sl_model_cut(graph, &cut, &model));
        sl_model_destroy(model);
    }
    sl_graph_destroy(graph);
    return 0;
}

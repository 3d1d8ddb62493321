/* SPDX-License-Identifier: MIT
 *
 * Models cut for pipelines: functions that sl_pipeline_create takes. */
#include "sluice/train.h"

#include "base/arguments.h"
#include "base/try.h"

/* Cuts a graph into a model, and destroys the graph. */
static sl_status cut(sl_graph *graph, sl_dtype precision,
                     const sl_cut_options *options, const sl_model *like,
                     sl_model **out)
{
    sl_cut_options own = *options;
    own.like = like;
    sl_status status = sl_graph_set_precision(graph, precision);
    if (!status)
        status = sl_model_cut(graph, &own, out);
    sl_graph_destroy(graph);
    return status;
}

sl_status sl_gpt2_model(void *spec, int64_t rows, const sl_model *like,
                        sl_model **out)
{
    SL__NEED(spec, out);
    const sl_gpt2_model_spec *own = spec;
    sl_graph *graph;
    SL__TRY(sl_graph_create(&graph));
    sl_gpt2_build(graph, &own->config, &own->options, rows, own->length);
    return cut(graph, own->precision, &own->cut, like, out);
}

sl_status sl_mlp_model(void *spec, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    SL__NEED(spec, out);
    const sl_mlp_model_spec *own = spec;
    sl_graph *graph;
    SL__TRY(sl_graph_create(&graph));
    sl_mlp_build(graph, &own->config, rows);
    return cut(graph, own->precision, &own->cut, like, out);
}

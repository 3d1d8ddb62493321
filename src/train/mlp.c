/* SPDX-License-Identifier: MIT
 *
 * A plain MLP with residual connections, for timing pipelines. */
#include "sluice/train.h"

#include "tensor/graph.h"

static sl_tensor *linear(sl_graph *graph, const char *name, sl_tensor *x,
                         int64_t in, int64_t out)
{
    sl_scope_enter(graph, "%s", name);
    sl_tensor *weight =
        sl_parameter(graph, "weight", SL_F32, SL_SHAPE(out, in));
    sl_tensor *bias = sl_parameter(graph, "bias", SL_F32, SL_SHAPE(out));
    x = sl_linear(x, weight, bias, SL_OUT_IN);
    sl_scope_leave(graph);
    return x;
}

/* Whether there is a config; if not, the graph keeps the refusal. */
static bool is_given(sl_graph *graph, const sl_mlp_config *config)
{
    if (!graph || graph->status)
        return false;
    if (!config)
        sl__refuse(graph, "mlp", "config is NULL");
    return config;
}

sl_tensor *sl_mlp_layer(sl_graph *graph, const sl_mlp_config *config, int index,
                        sl_tensor *x)
{
    if (!is_given(graph, config))
        return NULL;
    int64_t d = config->width;
    sl_scope_enter(graph, "layers.%d", index);
    sl_tensor *h = sl_relu(linear(graph, "net1", x, d, 4 * d));
    x = sl_add(x, linear(graph, "net2", h, 4 * d, d));
    sl_scope_leave(graph);
    return x;
}

void sl_mlp_build(sl_graph *graph, const sl_mlp_config *config, int64_t rows)
{
    enum { MOST = 1 << 24 };
    if (!is_given(graph, config))
        return;
    if (config->layers < 1 || config->layers > MOST || config->width < 1 ||
        config->width > MOST) {
        sl__refuse(graph, "mlp",
                   "%d layers of width %d, expected each from 1 "
                   "to %d",
                   config->layers, config->width, MOST);
        return;
    }
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(rows, config->width),
                            SL_NO_GRADIENT);
    sl_tensor *target = sl_input(graph, "target", SL_F32,
                                 SL_SHAPE(rows, config->width), SL_NO_GRADIENT);
    for (int i = 0; i < config->layers && x; i++)
        x = sl_mlp_layer(graph, config, i, x);
    if (!x)
        return;
    sl_output(graph, "output", x, SL_NO_GRADIENT);
    sl_loss(graph, sl_mse(x, target));
}

/* SPDX-License-Identifier: MIT
 *
 * Which program runs which node, by reachability, and in which order. */
#include "tensor/program.h"

#include "base/try.h"

#include <assert.h>
#include <string.h>

/* The sets that a node can be in. */
enum {
    IN_F = 1,
    IN_I = 2,
    IN_W = 4,
    /* Forward nodes that run again at the start of I, or of W. */
    AGAIN_I = 8,
    AGAIN_W = 16,
};

typedef struct splitter {
    const sl_graph *graph;
    uint8_t *node_sets;
    bool *wanted; /* per tensor, in the current walk */
} splitter;

static void want(splitter *s, const sl_tensor *tensor)
{
    if (tensor)
        s->wanted[tensor->id] = true;
}

static void want_nothing(splitter *s)
{
    memset(s->wanted, 0, s->graph->tensor_count);
}

/* Whether a node adds to a parameter's gradient. */
static bool accumulates(const sl__node *node)
{
    return node->adds && node->results[0]->base->leaf == SL__PARAMETER_GRADIENT;
}

static bool makes_wanted(const splitter *s, const sl__node *node)
{
    for (int i = 0; i < SL__RESULTS_MAX; i++) {
        if (node->results[i] && s->wanted[node->results[i]->id])
            return true;
    }
    return false;
}

/* Puts into `set` the nodes of one direction that compute something wanted, and
 * wants their operands; not nodes that are in `except`, whose results others
 * have computed. */
static void gather(splitter *s, bool backward, uint8_t set, uint8_t except)
{
    for (size_t i = s->graph->node_count; i-- > 0;) {
        const sl__node *node = s->graph->nodes[i];
        bool root = set == IN_W && accumulates(node);
        if (node->backward != backward || s->node_sets[i] & except ||
            !(root || makes_wanted(s, node)))
            continue;
        s->node_sets[i] |= set;
        for (int k = 0; k < node->operand_count; k++)
            want(s, node->operands[k]);
    }
}

static void split_backward(splitter *s, const sl_stage *stage)
{
    const sl_graph *graph = s->graph;
    bool again = stage->options.recompute;
    for (size_t i = 0; i < graph->inputs.count; i++)
        want(s, stage->diff.inputs[i]);
    gather(s, true, IN_I, 0);
    gather(s, false, again ? AGAIN_I : IN_F, 0);
    want_nothing(s);
    gather(s, true, IN_W, IN_I);
    gather(s, false, again ? AGAIN_W : IN_F, again ? AGAIN_I : 0);
    want_nothing(s);
}

static bool has_kernel(const sl__node *node)
{
    return !(sl__ops[node->op].traits & SL__VIEW);
}

/* Lists the nodes of some sets, forward ones first, in the order of the
 * graph. */
static sl_status list(sl_stage *stage, const uint8_t *sets, uint8_t forward,
                      uint8_t backward, sl__kernel_calls *out)
{
    const sl_graph *graph = stage->graph;
    SL__TRY(SL__TAKE(&stage->graph->arena, graph->node_count, &out->data));
    for (size_t i = 0; i < graph->node_count; i++) {
        const sl__node *node = graph->nodes[i];
        uint8_t asked = node->backward ? backward : forward;
        if (sets[i] & asked && has_kernel(node))
            out->data[out->count++].node = node;
    }
    out->exists = true;
    return SL_OK;
}

static sl_status list_programs(sl_stage *stage, const uint8_t *sets)
{
    sl_backward backward = stage->options.backward;
    sl__kernel_calls *programs = stage->programs;
    bool split = backward == SL_BACKWARD_ANY || backward == SL_BACKWARD_SPLIT;
    bool whole = backward == SL_BACKWARD_ANY || backward == SL_BACKWARD_WHOLE;
    SL__TRY(list(stage, sets, IN_F, 0, &programs[SL_PROGRAM_F]));
    if (split) {
        SL__TRY(list(stage, sets, AGAIN_I, IN_I, &programs[SL_PROGRAM_I]));
        SL__TRY(list(stage, sets, AGAIN_W, IN_W, &programs[SL_PROGRAM_W]));
    }
    if (whole)
        SL__TRY(list(stage, sets, AGAIN_I | AGAIN_W, IN_I | IN_W,
                     &programs[SL_PROGRAM_B]));
    return SL_OK;
}

sl_status sl__split(sl_stage *stage)
{
    sl_graph *graph = stage->graph;
    splitter s = {.graph = graph};
    assert(stage->options.backward == SL_BACKWARD_NONE || stage->diff.inputs);
    SL__TRY(SL__TAKE(&graph->arena, graph->node_count, &s.node_sets));
    SL__TRY(SL__TAKE(&graph->arena, graph->tensor_count, &s.wanted));
    SL__TRY(SL__TAKE(&graph->arena, graph->node_count, &stage->in_w));
    if (stage->options.backward != SL_BACKWARD_NONE)
        split_backward(&s, stage);
    for (size_t i = 0; i < graph->outputs.count; i++)
        want(&s, graph->outputs.data[i].tensor);
    gather(&s, false, IN_F, 0);
    sl__merge_attention_grads(graph, s.node_sets);
    for (size_t i = 0; i < graph->node_count; i++)
        stage->in_w[i] = s.node_sets[i] & (IN_W | AGAIN_W);
    return list_programs(stage, s.node_sets);
}

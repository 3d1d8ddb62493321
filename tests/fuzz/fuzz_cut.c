/* SPDX-License-Identifier: MIT
 *
 * Bytes as a graph and the places where it is cut: the stages compute what the
 * whole does, or the cut is refused. Or bytes as the text of cut points. */
#include "fuzz.h"

#include "pipeline/cut/model.h"
#include "random_graph.h"
#include "staged.h"

#include <string.h>

typedef struct bytes {
    const uint8_t *data;
    size_t left;
} bytes;

static int choose(void *context, int from, int to)
{
    bytes *rest = context;
    uint8_t byte = 0;
    if (rest->left) {
        rest->left--;
        byte = *rest->data++;
    }
    return from + byte % (to - from + 1);
}

static void read_points(const bytes *from)
{
    char *text = strndup((const char *)from->data, from->left);
    must(text);
    sl_cut_point *points;
    int count;
    if (!sl_cut_points_read(text, &points, &count)) {
        must(count > 0);
        for (int i = 0; i < count; i++)
            must(*points[i].module && !strchr(points[i].module, ','));
        free(points);
    }
    free(text);
}

/* Marks in ascending order, close to one another. */
static void mark(sl_graph *graph, bytes *from)
{
    size_t nodes = graph->node_count, at = 0;
    int cuts = choose(from, 0, 5);
    for (int i = 0; i < cuts; i++) {
        at += (size_t)choose(from, 0, 40);
        graph->node_count = at < nodes ? at : nodes;
        sl_mark_cut(graph);
    }
    graph->node_count = nodes;
}

static bool is_small(const sl_graph *graph, const sl_stage_options *options)
{
    sl_stage *stage;
    must(!sl_stage_compile(graph, options, &stage));
    bool small = sl_plan_bytes(stage, 1) < 1 << 18;
    sl_stage_destroy(stage);
    return small;
}

static void compare(const sl_graph *graph, const sl_model *model)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    if (!is_small(graph, &options))
        return;
    test_stage whole = test_compile(graph, &options, 1);
    test_staged staged = test_stages(model, &options, 1);
    test_fill_all(&whole, 5, 0, TEST_IDS);
    test_staged_copy(&staged, &whole, 0);
    test_run(&whole, "FB", 0);
    test_staged_forward(&staged, 0);
    test_staged_backward(&staged, "IW", 0);
    test_staged_assert(&staged, &whole, 0, 0, 1e-6);
    test_staged_release(&staged);
    test_release(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bytes from = {data, size};
    int way = choose(&from, 0, 255);
    if (way % 4 == 0) {
        read_points(&from);
        return 0;
    }
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.route = way / 4 % 2 ? SL_ROUTE_HOP : SL_ROUTE_DIRECT;
    options.feed = way / 8 % 2 ? SL_FEED_FIRST : SL_FEED_USERS;
    if (way % 4 == 1) {
        options.by = SL_CUT_BY_COST;
        options.inside = true;
        options.stages = choose(&from, 0, 9);
    }
    sl_graph *graph = test_random_graph(choose, &from, SL_F64);
    must(graph && !sl_graph_status(graph));
    mark(graph, &from);
    sl_model *model;
    if (!sl_model_cut(graph, &options, &model)) {
        test_model_is_sound(model, graph);
        compare(graph, model);
        sl_model_destroy(model);
    }
    sl_graph_destroy(graph);
    return 0;
}

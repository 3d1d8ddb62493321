/* SPDX-License-Identifier: MIT
 *
 * See rows.h. */
#include "rows.h"

#include <stdio.h>

const char *test_no_text;

void test_row_refuses(sl_status found, const char *function,
                      const char *argument, const char *file, int line)
{
    char sentence[200];
    snprintf(sentence, sizeof sentence, "%s: %s is NULL", function, argument);
    test_assert_fails(found, SL_EINVAL, sentence, file, line);
}

void test_row_gives(bool as_expected, const char *function, const char *file,
                    int line)
{
    if (as_expected)
        return;
    print_error("%s gives something else\n", function);
    _fail(file, line);
}

sl_graph *test_row_graph(sl_tensor **out_x, sl_tensor **out_ids)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    *out_x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 4), SL_NO_GRADIENT);
    *out_ids = sl_input(graph, "ids", SL_I64, SL_SHAPE(2), SL_NO_GRADIENT);
    assert_ok(sl_graph_status(graph));
    return graph;
}

void test_row_refused(sl_graph *graph, const char *sentence, const char *file,
                      int line)
{
    test_assert_fails(sl_graph_status(graph), SL_EINVAL, sentence, file, line);
    sl_graph_destroy(graph);
}

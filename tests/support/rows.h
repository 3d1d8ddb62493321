/* SPDX-License-Identifier: MIT
 *
 * Rows of the tables in test_null_*.c: a call of a public function with NULL
 * for a required argument, and its result. test_null_arguments.c compares these
 * rows with the headers. */
#ifndef SL_TEST_ROWS_H
#define SL_TEST_ROWS_H

#include "world.h"

#include <string.h>

/* The call fails with SL_EINVAL, naming the function and the argument. All
 * other arguments are valid. */
#define REFUSES(argument, function, arguments)                                 \
    test_row_refuses(function arguments, #function, #argument, __FILE__,       \
                     __LINE__)

/* The call returns what is expected: nothing, or a status. */
#define GIVES(expected, function, arguments)                                   \
    test_row_gives((function arguments) == (expected), #function, __FILE__,    \
                   __LINE__)
#define GIVES_TEXT(expected, function, arguments)                              \
    test_row_gives(strcmp(function arguments, expected) == 0, #function,       \
                   __FILE__, __LINE__)

/* The call returns. */
#define DOES_NOTHING(function, arguments) function arguments

/* The call refuses through its graph, which is called `graph` among the
 * arguments and has inputs `x` (2, 4) of f32 and `ids` (2) of i64. */
#define REFUSES_IN_GRAPH(sentence, function, arguments)                        \
    do {                                                                       \
        sl_tensor *x, *ids;                                                    \
        sl_graph *graph = test_row_graph(&x, &ids);                            \
        (void)(function arguments);                                            \
        test_row_refused(graph, sentence, __FILE__, __LINE__);                 \
    } while (0)

void test_row_refuses(sl_status found, const char *function,
                      const char *argument, const char *file, int line);
void test_row_gives(bool as_expected, const char *function, const char *file,
                    int line);
sl_graph *test_row_graph(sl_tensor **out_x, sl_tensor **out_ids);
/* Destroys the graph. */
void test_row_refused(sl_graph *graph, const char *sentence, const char *file,
                      int line);

/* NULL, but not as a constant, so that compilers do not warn. */
extern const char *test_no_text;

#endif

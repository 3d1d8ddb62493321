/* SPDX-License-Identifier: MIT
 *
 * Graphs of random ops over random shapes: residuals, views of views, shared
 * parameters, several inputs and outputs, with and without gradients. */
#ifndef SL_TEST_RANDOM_GRAPH_H
#define SL_TEST_RANDOM_GRAPH_H

#include "tensors.h"

/* Where choices come from: a random generator, or the bytes of a fuzzer. */
typedef int (*test_choose_fn)(void *context, int from, int to);

/* With SL_BF16, a graph of f32 that was given that precision. */
sl_graph *test_random_graph(test_choose_fn choose, void *context,
                            sl_dtype dtype);

/* The same from a seed. */
sl_graph *test_seeded_graph(uint64_t seed, sl_dtype dtype);

/* The same, with every tensor as a further output. */
sl_graph *test_shown_graph(uint64_t seed, sl_dtype dtype);

/* Integers in these graphs are ids below this. */
enum { TEST_IDS = 5 };

#endif

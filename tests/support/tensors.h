/* SPDX-License-Identifier: MIT
 *
 * What tests of tensor programs share: a compiled stage with its memory, data
 * in and out by name, and comparisons by norm. */
#ifndef SL_TEST_TENSORS_H
#define SL_TEST_TENSORS_H

#include "support.h"

typedef struct test_stage {
    sl_stage *stage;
    sl_memory *memory;
} test_stage;

/* Compiles; fails the test with the sentence where that is refused. */
test_stage test_compile(const sl_graph *graph, const sl_stage_options *options,
                        int slots);
void test_release(test_stage *stage);

void test_put(const test_stage *stage, sl_port_kind kind, const char *name,
              int slot, const void *data);
/* The caller frees. `count` may be NULL. */
void *test_get(const test_stage *stage, sl_port_kind kind, const char *name,
               int slot, size_t *count);
float test_get_float(const test_stage *stage, sl_port_kind kind,
                     const char *name, int slot);

void test_run(const test_stage *stage, const char *programs, int slot);

/* |ours - theirs| / |theirs|, the plain norm where theirs is 0. */
double test_distance(const float *ours, const float *theirs, size_t count);

/* Uniform in -1..1, from a state that starts anywhere. */
double test_random(uint64_t *state);
int test_random_int(uint64_t *state, int from, int to); /* both included */
void test_fill(uint64_t *state, sl_dtype dtype, void *data, size_t count);

/* Fills every parameter and input with noise; integers from 0 to `below`. */
void test_fill_all(const test_stage *stage, uint64_t seed, int slot, int below);

/* Calls `test` with each instruction set that this CPU has, without tiles; and
 * with each kind of tiles that products of many rows use as well. */
void test_with_each_set(void (*test)(void));
void test_with_each_way(void (*test)(void));

/* What test_assert_same says it was comparing when it fails. */
void test_context(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Asserts that a parameter gradient or message of two stages is the same, bit
 * for bit where `tolerance` is 0, else by norm. */
void test_assert_same(const test_stage *a, const test_stage *b,
                      sl_port_kind kind, int slot, double tolerance);

#endif

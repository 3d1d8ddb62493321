/* SPDX-License-Identifier: MIT
 *
 * The memory plan, to the byte: what is allocated is what was planned, a run
 * allocates nothing and writes nothing outside, and everything planned is used.
 * This program is linked so that the library's allocations go through the
 * functions below; those of other libraries do not. */
#include "random_graph.h"
#include "tensor/program.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------ seen allocations -- */

static size_t calls;      /* of anything that allocates */
static size_t fails_at;   /* the call that finds no memory; 0: none */
static size_t pool_bytes; /* given out aligned: the pools */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);

static bool is_refused(void)
{
    return ++calls == fails_at;
}

void *__wrap_malloc(size_t size)
{
    return is_refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return is_refused() ? NULL : __real_realloc(old, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    if (is_refused())
        return ENOMEM;
    pool_bytes += size;
    return __real_posix_memalign(out, alignment, size);
}

/* ---------------------------------------------------------------- models -- */

/* A GPT-2 block, so that every kind of kernel and scratch is there. */
static sl_graph *build_block(void)
{
    enum { B = 2, T = 10, C = 24 };
    sl_graph *graph;
    sl_tensor *parts[3];
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(B, T, C), SL_GRADIENT);
    sl_tensor *ln1 = sl_parameter(graph, "ln1", SL_F32, SL_SHAPE(C));
    sl_tensor *ln2 = sl_parameter(graph, "ln2", SL_F32, SL_SHAPE(C));
    sl_tensor *bias = sl_parameter(graph, "bias", SL_F32, SL_SHAPE(C));
    sl_tensor *attn = sl_parameter(graph, "attn", SL_F32, SL_SHAPE(3 * C, C));
    sl_tensor *proj = sl_parameter(graph, "proj", SL_F32, SL_SHAPE(C, C));
    sl_tensor *fc = sl_parameter(graph, "fc", SL_F32, SL_SHAPE(4 * C, C));
    sl_tensor *out = sl_parameter(graph, "out", SL_F32, SL_SHAPE(C, 4 * C));
    sl_tensor *h = sl_layer_norm(x, ln1, bias, 1e-5);
    sl_split(sl_linear(h, attn, NULL, SL_OUT_IN), -1, 3, parts);
    h = sl_causal_attention(parts[0], parts[1], parts[2], 4);
    x = sl_add(x, sl_linear(h, proj, bias, SL_OUT_IN));
    h = sl_gelu_tanh(
        sl_linear(sl_layer_norm(x, ln2, bias, 1e-5), fc, NULL, SL_OUT_IN));
    sl_output(graph, "y", sl_add(x, sl_linear(h, out, bias, SL_OUT_IN)),
              SL_GRADIENT);
    return graph;
}

static int count_op(const sl_stage *stage, sl_program program, sl__op op)
{
    int count = 0;
    for (size_t i = 0; i < stage->programs[program].count; i++)
        count += stage->programs[program].data[i].node->op == op;
    return count;
}

static const char *const backends[] = {"ref", "cpu"};

static sl_stage_options way(int i)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = backends[i % 2];
    options.recompute = i / 2 % 2;
    options.threads = options.backend == backends[1] && i / 4 ? 2 : 1;
    return options;
}

/* ----------------------------------------------------------------- tests -- */

static void what_is_allocated_is_what_was_planned(void **state)
{
    (void)state;
    only_on_cpu();
    for (int i = 0; i < 8; i++) {
        sl_graph *graph = build_block();
        sl_stage_options options = way(i);
        sl_stage *stage;
        sl_memory *memory;
        pool_bytes = 0;
        assert_ok(sl_stage_compile(graph, &options, &stage));
        assert_int_equal(pool_bytes, 0);
        assert_ok(sl_memory_create(stage, 3, &memory));
        assert_int_equal(pool_bytes, sl_plan_bytes(stage, 3));
        sl_memory_destroy(memory);
        sl_stage_destroy(stage);
        sl_graph_destroy(graph);
    }
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        sl_graph *graph = build_block();
        sl_stage_options options = way(i);
        test_stage stage = test_compile(graph, &options, 2);
        test_fill_all(&stage, 1, 0, 1);
        test_fill_all(&stage, 1, 1, 1);
        size_t before = calls;
        test_run(&stage, "F", 0);
        test_run(&stage, "FI", 1);
        test_run(&stage, "B", 0);
        test_run(&stage, "W", 1);
        assert_int_equal(calls, before);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

/* Builds, compiles and creates a memory, while one allocation fails. */
static sl_status try_all(const sl_stage_options *options)
{
    sl_graph *graph = NULL;
    sl_stage *stage = NULL;
    sl_memory *memory = NULL;
    sl_status status = sl_graph_create(&graph);
    if (!status) {
        sl_tensor *x =
            sl_input(graph, "x", SL_F32, SL_SHAPE(2, 3, 6), SL_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(18, 6));
        sl_tensor *parts[3];
        sl_split(sl_relu(sl_linear(x, w, NULL, SL_OUT_IN)), -1, 3, parts);
        sl_output(graph, "y",
                  sl_causal_attention(parts[0], parts[1], parts[2], 2),
                  SL_GRADIENT);
        status = sl_stage_compile(graph, options, &stage);
    }
    if (!status)
        status = sl_memory_create(stage, 2, &memory);
    sl_memory_destroy(memory);
    sl_stage_destroy(stage);
    sl_graph_destroy(graph);
    return status;
}

static void every_failed_allocation_is_told(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        sl_stage_options options = way(i);
        /* What libraries allocate once, they have by now. */
        assert_ok(try_all(&options));
        size_t before = calls;
        assert_ok(try_all(&options));
        size_t needed = calls - before;
        assert_true(needed > 20);
        for (size_t n = 1; n <= needed; n++) {
            fails_at = calls + n;
            sl_status status = try_all(&options);
            fails_at = 0;
            assert_int_equal(status, SL_ENOMEM);
        }
    }
}

enum { CANARY = 0xa5 };

static void paint(const test_stage *stage, int pool)
{
    int64_t bytes;
    void *memory = sl__memory_pool(stage->memory, pool, 0, &bytes);
    if (bytes)
        memset(memory, CANARY, (size_t)bytes);
}

/* One past the last byte written since the pool was painted. */
static int64_t reach(const test_stage *stage, int pool)
{
    int64_t bytes;
    const unsigned char *memory =
        sl__memory_pool(stage->memory, pool, 0, &bytes);
    while (bytes > 0 && memory[bytes - 1] == CANARY)
        bytes--;
    return sl__aligned(bytes);
}

/* On ref, which touches all of what it asks for. */
static void runs_reach_the_end_of_the_plan(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed <= 200; seed++) {
        sl_graph *graph =
            seed ? test_seeded_graph(seed, SL_F32) : build_block();
        sl_stage_options options = way(seed % 2 ? 2 : 0);
        test_stage stage = test_compile(graph, &options, 1);
        const sl_plan *plan = sl_stage_plan(stage.stage);
        test_fill_all(&stage, seed, 0, TEST_IDS);
        paint(&stage, SL__POOL_SLAB);
        paint(&stage, SL__POOL_HANDED);
        for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
            static const char *const runs[] = {"F", "I", "W", "FB"};
            paint(&stage, SL__POOL_WORKSPACE);
            test_run(&stage, runs[p], 0);
            int64_t expected = plan->program_workspace_bytes[p];
            /* The last run is F and B. */
            if (p == SL_PROGRAM_B &&
                plan->program_workspace_bytes[0] > expected)
                expected = plan->program_workspace_bytes[0];
            assert_int_equal(reach(&stage, SL__POOL_WORKSPACE), expected);
        }
        assert_int_equal(reach(&stage, SL__POOL_SLAB), plan->slab_bytes);
        assert_int_equal(reach(&stage, SL__POOL_HANDED), plan->handed_bytes);
        test_release(&stage);
        sl_graph_destroy(graph);
    }
}

static void recompute_saves_the_inputs_alone(void **state)
{
    (void)state;
    sl_graph *graph = build_block();
    for (int i = 0; i < 2; i++) {
        sl_stage_options options = way(i);
        test_stage plain = test_compile(graph, &options, 1);
        options.recompute = true;
        test_stage again = test_compile(graph, &options, 1);
        sl_port x;
        assert_ok(sl_stage_port(again.stage, SL_PORT_INPUT, "x", &x));
        const sl_plan *plan = sl_stage_plan(again.stage);
        assert_int_equal(plan->saved_bytes, x.bytes);
        assert_true(sl_stage_plan(plain.stage)->saved_bytes > 5 * x.bytes);
        /* What F wrote to the slab: nothing. */
        paint(&again, SL__POOL_SLAB);
        test_fill_all(&again, 1, 0, 1);
        test_run(&again, "F", 0);
        assert_int_equal(reach(&again, SL__POOL_SLAB), 0);
        options.backward = SL_BACKWARD_WHOLE;
        test_stage whole = test_compile(graph, &options, 1);
        assert_int_equal(sl_stage_plan(whole.stage)->slab_bytes, 0);
        test_release(&whole);
        test_release(&plain);
        test_release(&again);
    }
    sl_graph_destroy(graph);
}

/* The gradient of logits takes the logits' memory: B needs no second memory of
 * their size, whether they were saved or recomputed. */
static void logits_make_room_for_their_gradient(void **state)
{
    (void)state;
    enum { ROWS = 16, WIDTH = 8, VOCABULARY = 500 };
    int64_t logits_bytes = ROWS * VOCABULARY * (int64_t)sizeof(float);
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(ROWS, WIDTH), SL_GRADIENT);
    sl_tensor *labels =
        sl_input(graph, "labels", SL_I64, SL_SHAPE(ROWS), SL_NO_GRADIENT);
    sl_tensor *w =
        sl_parameter(graph, "w", SL_F32, SL_SHAPE(VOCABULARY, WIDTH));
    sl_loss(graph,
            sl_cross_entropy(sl_linear(x, w, NULL, SL_OUT_IN), labels, -100));
    for (int recompute = 0; recompute < 2; recompute++) {
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        options.backend = "ref";
        options.recompute = recompute;
        options.backward = SL_BACKWARD_WHOLE;
        test_stage stage = test_compile(graph, &options, 1);
        const sl_plan *plan = sl_stage_plan(stage.stage);
        int64_t in_b = plan->program_workspace_bytes[SL_PROGRAM_B];
        assert_true(plan->slab_bytes + in_b < logits_bytes * 3 / 2);
        assert_true(recompute ? plan->slab_bytes < logits_bytes
                              : in_b < logits_bytes);
        test_release(&stage);
    }
    sl_graph_destroy(graph);
}

/* Saved are: x for ln1, mean and deviation, the normed x, qkv, what attention
 * leaves, its output, x again for ln2, mean and deviation, the normed x, both
 * sides of gelu. Nothing else, and no T x T matrix. */
static void a_block_saves_what_backward_reads(void **state)
{
    (void)state;
    enum { B = 2, T = 10, C = 24, H = 4, F32 = 4 };
    sl_graph *graph = build_block();
    sl_stage_options options = way(0);
    test_stage stage = test_compile(graph, &options, 1);
    int64_t row = B * T * C * F32, statistics = B * T * 2 * F32;
    int64_t expected = row                             /* x */
                       + sl__aligned(statistics) + row /* ln1 */
                       + 3 * row                       /* qkv */
                       +
                       sl__aligned((int64_t)B * H * T * 2 * F32) /* attention */
                       + row                           /* its output */
                       + row                           /* x + ... */
                       + sl__aligned(statistics) + row /* ln2 */
                       + 4 * row + 4 * row;            /* gelu */
    assert_int_equal(sl_stage_plan(stage.stage)->saved_bytes, expected);
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* What I hands to W, all of it at once. */
static int64_t handed_bytes(const sl_stage *stage)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < stage->graph->tensor_count; i++) {
        const sl_tensor *base = stage->graph->tensors[i];
        if (base->base == base && base->node && base->node->backward &&
            sl__is_carried_in(stage, SL_PROGRAM_W, base))
            bytes += sl__aligned(sl__bytes(base));
    }
    return bytes;
}

/* B hands nothing over, so its workspace has room for that, and needs no more
 * than I's or W's beyond it. */
static void b_needs_no_more_than_i_and_w(void **state)
{
    (void)state;
    int smaller = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        sl_graph *graph = test_seeded_graph(seed, SL_F32);
        sl_stage_options options = way(0);
        test_stage stage = test_compile(graph, &options, 1);
        const sl_plan *plan = sl_stage_plan(stage.stage);
        int64_t i = plan->program_workspace_bytes[SL_PROGRAM_I];
        int64_t w = plan->program_workspace_bytes[SL_PROGRAM_W];
        int64_t b = plan->program_workspace_bytes[SL_PROGRAM_B];
        int64_t bound = (i > w ? i : w) + handed_bytes(stage.stage);
        if (b > bound)
            fail_msg("seed %d: B has %lld, I %lld, W %lld, handed over %lld",
                     (int)seed, (long long)b, (long long)i, (long long)w,
                     (long long)handed_bytes(stage.stage));
        smaller += b < bound;
        test_release(&stage);
        sl_graph_destroy(graph);
    }
    assert_true(smaller > 100);
}

/* The residual before the second norm is added by it, and so is the gradient
 * that goes around each of them. The last sum is a message. */
static void norms_add_what_is_beside_them(void **state)
{
    (void)state;
    sl_graph *graph = build_block();
    for (int i = 0; i < 4; i++) {
        sl_stage_options options = way(i);
        sl_stage *stage;
        assert_ok(sl_stage_compile(graph, &options, &stage));
        assert_int_equal(count_op(stage, SL_PROGRAM_F, SL__ADD_NORM), 1);
        assert_int_equal(count_op(stage, SL_PROGRAM_F, SL__LAYER_NORM), 1);
        assert_int_equal(count_op(stage, SL_PROGRAM_F, SL__ADD), 1);
        assert_int_equal(count_op(stage, SL_PROGRAM_B, SL__NORM_GRAD), 2);
        assert_int_equal(count_op(stage, SL_PROGRAM_B, SL__ADD), 0);
        assert_int_equal(count_op(stage, SL_PROGRAM_I, SL__ADD), 0);
        sl_stage_destroy(stage);
    }
    sl_graph_destroy(graph);
}

/* The normed sum of 2 x and -x, which is x, with a row of either as weight or
 * bias: the sum is not written over it, though nothing reads that again. */
static void a_sum_spares_the_weight_of_its_norm(void **state)
{
    enum { R = 3, C = 5, WAYS = 8 };
    (void)state;
    for (int k = 0; k < WAYS; k++) {
        bool is_first = k / 2 % 2, is_bias = k / 4;
        float x[R][C], ones[C] = {1, 1, 1, 1, 1};
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *in =
            sl_input(graph, "x", SL_F32, SL_SHAPE(R, C), SL_NO_GRADIENT);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(C));
        sl_tensor *a = sl_scale(in, 2), *b = sl_scale(in, -1);
        sl_tensor *row =
            sl_reshape(sl_slice(is_first ? a : b, 0, 0, 1), SL_SHAPE(C));
        sl_output(graph, "y",
                  sl_layer_norm(sl_add(a, b), is_bias ? w : row,
                                is_bias ? row : w, 0),
                  SL_NO_GRADIENT);
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        options.backend = backends[k % 2];
        options.backward = SL_BACKWARD_NONE;
        test_stage s = test_compile(graph, &options, 1);
        for (int i = 0; i < R * C; i++)
            x[i / C][i % C] = (float)(i * i % 7) - 2;
        test_put(&s, SL_PORT_PARAMETER, "w", 0, ones);
        test_put(&s, SL_PORT_INPUT, "x", 0, x);
        test_run(&s, "F", 0);
        float(*y)[C] = test_get(&s, SL_PORT_OUTPUT, "y", 0, NULL);
        for (int r = 0; r < R; r++) {
            double mean = 0, square = 0;
            for (int c = 0; c < C; c++)
                mean += x[r][c] / (double)C;
            for (int c = 0; c < C; c++)
                square += (x[r][c] - mean) * (x[r][c] - mean) / C;
            for (int c = 0; c < C; c++) {
                double normed = (x[r][c] - mean) / sqrt(square);
                double part = x[0][c] * (is_first ? 2 : -1);
                double expected = is_bias ? normed + part : normed * part + 1;
                assert_true(fabs(y[r][c] - expected) < 1e-5);
            }
        }
        free(y);
        test_release(&s);
        sl_graph_destroy(graph);
    }
}

static void views_cost_nothing(void **state)
{
    (void)state;
    sl_graph *graph;
    sl_tensor *parts[2];
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(4, 6), SL_NO_GRADIENT);
    sl_split(sl_transpose(sl_reshape(x, SL_SHAPE(2, 2, 6)), 0, 2), 0, 2, parts);
    sl_output(graph, "y", sl_add(parts[0], parts[1]), SL_NO_GRADIENT);
    sl_stage_options options = way(0);
    test_stage stage = test_compile(graph, &options, 1);
    const sl_plan *plan = sl_stage_plan(stage.stage);
    assert_int_equal(plan->kernels[SL_PROGRAM_F], 1);
    assert_int_equal(plan->workspace_bytes, 0);
    test_release(&stage);
    sl_graph_destroy(graph);
}

/* The text of two kernels, so that a reader can compare it with the plan. */
static void programs_read_as_text(void **state)
{
    (void)state;
    sl_graph *graph;
    sl_string text = SL_STRING_INIT;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 3), SL_NO_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(4, 3));
    sl_output(graph, "y", sl_relu(sl_linear(x, w, NULL, SL_OUT_IN)),
              SL_GRADIENT);
    sl_stage_options options = way(0);
    options.backward = SL_BACKWARD_WHOLE;
    test_stage stage = test_compile(graph, &options, 1);
    assert_ok(sl_stage_write_text(stage.stage, sl_write_string, &text));
    assert_string_equal(
        text.data,
        "F0 matmul+relu (2, 3)@input.0+0 (3, 4)@parameters+0 -> "
        "(2, 4)@output.0+0\n"
        "B0 relu_grad (2, 4)@output-gradient.0+0 (2, 4)@output.0+0 -> "
        "(2, 4)@workspace+0\n"
        "B1 matmul (3, 2)@input.0+0 (2, 4)@workspace+0 +> (3, "
        "4)@gradients+0\n");
    sl_string_clear(&text);
    test_release(&stage);
    sl_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_allocated_is_what_was_planned),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(every_failed_allocation_is_told),
        cmocka_unit_test(runs_reach_the_end_of_the_plan),
        cmocka_unit_test(recompute_saves_the_inputs_alone),
        cmocka_unit_test(logits_make_room_for_their_gradient),
        cmocka_unit_test(a_block_saves_what_backward_reads),
        cmocka_unit_test(b_needs_no_more_than_i_and_w),
        cmocka_unit_test(norms_add_what_is_beside_them),
        cmocka_unit_test(a_sum_spares_the_weight_of_its_norm),
        cmocka_unit_test(views_cost_nothing),
        cmocka_unit_test(programs_read_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

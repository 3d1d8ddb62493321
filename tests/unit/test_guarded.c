/* SPDX-License-Identifier: MIT
 *
 * Guarded memory cannot be read from outside of its backend, so suites that
 * pass with it prove something; and callbacks, and transports that only move
 * host memory, work with it. */
#include "guarded.h"
#include "tensors.h"

#include "comm/comm.h"
#include "tensor/program.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static test_stage make_stage(const char *backend)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph;
    if (backend)
        options.backend = backend;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(2, 4), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(4, 4));
    sl_output(graph, "y", sl_relu(sl_matmul(x, w)), SL_GRADIENT);
    test_stage stage = test_compile(graph, &options, 1);
    sl_graph_destroy(graph);
    return stage;
}

static bool dies(const volatile char *at)
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        char found = *at;
        _exit(found & 0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFSIGNALED(how) &&
           (WTERMSIG(how) == SIGSEGV || WTERMSIG(how) == SIGBUS);
}

/* Under AddressSanitizer the process exits instead of dying of a signal. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

static void memory_cannot_be_read_from_outside(void **state)
{
    (void)state;
#ifdef SANITIZED
    skip();
#endif
    for (int b = 0; b < 2; b++) {
        test_stage stage = make_stage(b ? "ref" : NULL);
        test_fill_all(&stage, 5, 0, 1);
        test_run(&stage, "FB", 0);
        for (int pool = SL__POOL_PARAMETERS; pool <= SL__POOL_MESSAGES;
             pool++) {
            int64_t bytes;
            const char *at = sl__memory_pool(stage.memory, pool, 0, &bytes);
            if (at && bytes)
                assert_true(dies(at));
        }
        test_release(&stage);
    }
}

static void results_are_as_ever(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        test_stage guarded = make_stage(b ? "ref" : NULL);
        sl__backend_replace(NULL, 0);
        test_stage plain = make_stage(b ? "ref" : NULL);
        test_guard_memory();
        test_fill_all(&guarded, 7, 0, 1);
        test_fill_all(&plain, 7, 0, 1);
        test_run(&guarded, "FIW", 0);
        test_run(&plain, "FB", 0);
        test_assert_same(&guarded, &plain, SL_PORT_OUTPUT, 0, 0);
        test_assert_same(&guarded, &plain, SL_PORT_INPUT_GRADIENT, 0, 0);
        test_assert_same(&guarded, &plain, SL_PORT_PARAMETER_GRADIENT, 0, 0);
        test_release(&guarded);
        test_release(&plain);
    }
}

static sl_status twice(void *context, const sl_call *call)
{
    (void)context;
    const float *x = call->inputs[0];
    float *y = call->outputs[0];
    for (int i = 0; i < 4; i++)
        y[i] = 2 * x[i];
    return SL_OK;
}

static sl_status twice_back(void *context, const sl_call *call)
{
    (void)context;
    const float *dy = call->output_gradients[0], *y = call->outputs[0];
    float *dx = call->input_gradients[0];
    for (int i = 0; i < 4; i++)
        dx[i] = 2 * dy[i] + y[i];
    return SL_OK;
}

static void callbacks_work_on_copies(void **state)
{
    (void)state;
    const sl_value x = {"x", SL_F32, 1, {4}, SL_GRADIENT};
    const sl_value y = {"y", SL_F32, 1, {4}, SL_GRADIENT};
    const sl_stage_description description = {
        .inputs = &x,
        .input_count = 1,
        .outputs = &y,
        .output_count = 1,
        .callbacks = {.forward = twice, .backward = twice_back}};
    test_stage stage;
    assert_ok(sl_stage_from_callbacks(&description, &stage.stage));
    assert_ok(sl_memory_create(stage.stage, 2, &stage.memory));
    test_put(&stage, SL_PORT_INPUT, "x", 1, (float[]){1, 2, 3, 4});
    test_put(&stage, SL_PORT_OUTPUT_GRADIENT, "y", 1, (float[]){5, 6, 7, 8});
    test_run(&stage, "FB", 1);
    float *dx = test_get(&stage, SL_PORT_INPUT_GRADIENT, "x", 1, NULL);
    for (int i = 0; i < 4; i++)
        assert_true(dx[i] == (float)(2 * (5 + i) + 2 * (1 + i)));
    free(dx);
    test_release(&stage);
}

/* The threads' transport without its support of device memory, like MPI; and
 * with collectives of its own. */
static sl__transport altered;
static int own_sums;

static sl_status own_allreduce(sl_comm *comm, sl__stream *stream,
                               const sl_group *group, int tag, sl_dtype dtype,
                               void *data, size_t count, double timeout_s)
{
    (void)comm;
    (void)tag;
    (void)timeout_s;
    own_sums++;
    /* Of two ranks that have the same. */
    assert_int_equal(group->count, 2);
    return sl__device_add(stream, dtype, data, data, (int64_t)count);
}

static void messages_are_staged_where_they_must(void **state)
{
    (void)state;
    sl_comm *ends[2];
    assert_ok(sl_threads_create(2, ends));
    altered = *ends[0]->transport;
    altered.takes_device_memory = false;
    ends[0]->transport = ends[1]->transport = &altered;
    test_stage a = make_stage(NULL), b = make_stage("ref");
    sl_port w;
    assert_ok(sl_stage_port(a.stage, SL_PORT_PARAMETER, "w", &w));
    for (int round = 0; round < 3; round++) {
        sl_request sent, received;
        test_fill_all(&a, 30 + (uint64_t)round, 0, 1);
        void *from = sl__port_memory(a.memory, &w, 0);
        void *to = sl__port_memory(b.memory, &w, 0);
        assert_ok(sl__comm_send(ends[0], sl__memory_stream(a.memory), 1, 4,
                                from, 64, &sent));
        assert_non_null(sent.staged);
        assert_ok(sl__comm_recv(ends[1], sl__memory_stream(b.memory), 0, 4, to,
                                64, &received));
        assert_ok(sl_comm_wait(ends[1], &received, 10));
        assert_ok(sl_comm_wait(ends[0], &sent, 10));
        assert_null(sent.staged);
        float *x = test_get(&a, SL_PORT_PARAMETER, "w", 0, NULL);
        float *y = test_get(&b, SL_PORT_PARAMETER, "w", 0, NULL);
        assert_memory_equal(x, y, 64);
        free(x);
        free(y);
    }
    /* Cancelling a message frees its copy, too. */
    sl_request alone;
    assert_ok(sl__comm_recv(ends[1], sl__memory_stream(b.memory), 0, 5,
                            sl__port_memory(b.memory, &w, 0), 64, &alone));
    sl_comm_cancel(ends[1], &alone);
    assert_null(alone.staged);
    test_release(&a);
    test_release(&b);
    sl_comm_destroy(ends[0]);
    sl_comm_destroy(ends[1]);
}

static void a_transport_may_bring_its_collectives(void **state)
{
    (void)state;
    sl_comm *ends[2];
    const int ranks[2] = {0, 1};
    const sl_group group = {ranks, 2};
    float numbers[3] = {1, 2, 3};
    assert_ok(sl_threads_create(2, ends));
    altered = *ends[0]->transport;
    altered.allreduce = own_allreduce;
    ends[0]->transport = &altered;
    own_sums = 0;
    assert_ok(sl_comm_allreduce(ends[0], &group, 3, SL_F32, numbers, 3, 1));
    assert_int_equal(own_sums, 1);
    assert_true(numbers[0] == 2 && numbers[2] == 6);
    sl_comm_destroy(ends[0]);
    sl_comm_destroy(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_cannot_be_read_from_outside),
        cmocka_unit_test(results_are_as_ever),
        cmocka_unit_test(callbacks_work_on_copies),
        cmocka_unit_test(messages_are_staged_where_they_must),
        cmocka_unit_test(a_transport_may_bring_its_collectives),
    };
    test_guard_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

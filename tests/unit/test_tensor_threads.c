/* SPDX-License-Identifier: MIT
 *
 * Two programs in two threads do not disturb each other: they share a stage,
 * each has a memory of its own, and the bits are those of one thread alone. Run
 * under ThreadSanitizer on `ref`. And how the threads of one program divide its
 * work, also with threads that steal. */
#include "random_graph.h"
#include "tensor/work_stealing.h"
#include "tensor/backends/cpu/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, ROUNDS = 20 };

typedef struct thread_job {
    sl_stage *stage;
    uint64_t seed;
    test_stage mine;
    sl_status status;
} thread_job;

static void *run_job(void *data)
{
    thread_job *job = data;
    static const sl_program order[] = {SL_PROGRAM_F, SL_PROGRAM_B, SL_PROGRAM_F,
                                       SL_PROGRAM_I, SL_PROGRAM_W};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 5 && !job->status; i++)
            job->status =
                sl_stage_run(job->stage, order[i], job->mine.memory, 0, NULL);
    }
    return NULL;
}

static void run_together(const char *backend, int threads, uint64_t seed)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    sl_graph *graph = test_seeded_graph(seed, SL_F32);
    thread_job jobs[THREADS], alone = {0};
    pthread_t handles[THREADS];
    options.backend = backend;
    options.threads = threads;
    alone.mine = test_compile(graph, &options, 1);
    alone.stage = alone.mine.stage;
    test_fill_all(&alone.mine, seed, 0, TEST_IDS);
    run_job(&alone);
    assert_ok(alone.status);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (thread_job){.stage = alone.stage};
        jobs[i].mine.stage = alone.stage;
        assert_ok(sl_memory_create(alone.stage, 1, &jobs[i].mine.memory));
        test_fill_all(&jobs[i].mine, seed, 0, TEST_IDS);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&handles[i], NULL, run_job, &jobs[i]),
                         0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(handles[i], NULL);
    test_context("seed %d on %s", (int)seed, backend);
    for (int i = 0; i < THREADS; i++) {
        assert_ok(jobs[i].status);
        test_assert_same(&jobs[i].mine, &alone.mine, SL_PORT_OUTPUT, 0, 0);
        test_assert_same(&jobs[i].mine, &alone.mine, SL_PORT_PARAMETER_GRADIENT,
                         0, 0);
        sl_memory_destroy(jobs[i].mine.memory);
    }
    test_release(&alone.mine);
    sl_graph_destroy(graph);
}

static void two_threads_share_a_stage_on_ref(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        run_together("ref", 1, seed);
}

static void two_threads_share_a_stage_on_cpu(void **state)
{
    (void)state;
#ifdef SLUICE_TSAN
    enum { MOST = 1 }; /* OpenMP's runtime is not instrumented. */
#else
    enum { MOST = 2 };
#endif
    for (uint64_t seed = 1; seed <= 20; seed++)
        run_together("cpu", 1 + (int)(seed % MOST), seed);
}

/* Building and compiling at once, too, and refusals are each thread's own. */
static void *build_job(void *data)
{
    thread_job *job = data;
    for (uint64_t i = 0; i < ROUNDS && !job->status; i++) {
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        sl_graph *graph = test_seeded_graph(job->seed + i, SL_F32);
        sl_stage *stage;
        options.backend = "ref";
        job->status = sl_stage_compile(graph, &options, &stage);
        if (!job->status)
            sl_stage_destroy(stage);
        sl_graph_destroy(graph);
    }
    return NULL;
}

static void two_threads_build_at_once(void **state)
{
    (void)state;
    thread_job jobs[THREADS] = {{.seed = 100}, {.seed = 200}};
    pthread_t handles[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&handles[i], NULL, build_job, &jobs[i]),
                         0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(handles[i], NULL);
        assert_ok(jobs[i].status);
    }
}

typedef struct visits {
    atomic_int *times;
    atomic_int worst; /* the largest number of a worker */
} visits;

static void visit(void *data, int worker, int64_t from, int64_t to)
{
    visits *v = data;
    for (int64_t i = from; i < to; i++)
        atomic_fetch_add(&v->times[i], 1);
    int before = atomic_load(&v->worst);
    while (before < worker &&
           !atomic_compare_exchange_weak(&v->worst, &before, worker))
        ;
}

/* Whatever the sizes, everything is done, and once. */
static void shares_cover_all(void **state)
{
    (void)state;
#ifdef SLUICE_TSAN
    skip(); /* OpenMP's runtime is not instrumented. */
#endif
    enum { MOST = 1000 };
    static const int threads[] = {1, 2, 3, 7, 70};
    atomic_int times[MOST];
    for (int t = 0; t < 5; t++) {
        for (int64_t count = 1; count <= MOST; count += 1 + count / 7) {
            for (int64_t grain = 1; grain <= count; grain *= 5) {
                for (int i = 0; i < MOST; i++)
                    atomic_init(&times[i], 0);
                visits v = {times, 0};
                sl__parallel(threads[t], count, grain, visit, &v);
                for (int i = 0; i < MOST; i++)
                    assert_int_equal(times[i], i < count);
                assert_true(v.worst < threads[t]);
            }
        }
    }
}

/* --------------------------------------------------------- work stealing -- */

enum { PARTS = 64, HELPERS = 3 };

typedef struct shared_work {
    int times[PARTS];
    int by[1 + HELPERS]; /* parts, by worker */
    atomic_bool at_work[1 + HELPERS];
    atomic_bool clash; /* two had one number */
    atomic_int helped; /* parts that others did */
    int wanted;        /* of these, before its own thread goes on */
} shared_work;

static void nap(void)
{
    nanosleep(&(struct timespec){0, 100000}, NULL);
}

static void do_part(void *data, int worker, int64_t from, int64_t to)
{
    shared_work *w = data;
    if (atomic_exchange(&w->at_work[worker], true))
        atomic_store(&w->clash, true);
    if (worker > 0)
        nap(); /* Its own thread is done long before. */
    for (int64_t i = from; i < to; i++)
        w->times[i]++;
    w->by[worker]++;
    atomic_store(&w->at_work[worker], false);
    if (worker > 0)
        atomic_fetch_add(&w->helped, 1);
    /* At most five seconds. */
    for (int i = 0; worker == 0 && i < 50000; i++) {
        if (atomic_load(&w->helped) >= w->wanted)
            break;
        nap();
    }
}

static bool is_set(void *flag)
{
    return atomic_load((atomic_bool *)flag);
}

static void *help_until(void *flag)
{
    while (!is_set(flag)) {
        if (!sl__steal(1, is_set, flag))
            nap();
    }
    return NULL;
}

/* What is lent is done once, and is there when the work is over. */
static void stolen_parts_are_done_once(void **state)
{
    (void)state;
    atomic_bool over = false;
    pthread_t helpers[HELPERS];
    sl__stealing_start();
    for (int i = 0; i < HELPERS; i++)
        assert_int_equal(pthread_create(&helpers[i], NULL, help_until, &over),
                         0);
    for (int round = 0; round < 200; round++) {
        shared_work w = {.wanted = round % 2 ? 3 : 0};
        int workers = 1 + round % (1 + HELPERS), parts = 0;
        if (workers == 1) {
            w.wanted = 0;
            sl__parallel(1, PARTS, 1, do_part, &w);
        } else {
            sl__parallel_few(1, workers, PARTS, 1, do_part, &w);
            for (int i = workers; i < 1 + HELPERS; i++)
                assert_int_equal(w.by[i], 0);
        }
        for (int i = 0; i < PARTS; i++)
            assert_int_equal(w.times[i], 1);
        for (int i = 0; i < 1 + HELPERS; i++)
            parts += w.by[i];
        assert_int_equal(parts, 16);
        assert_false(w.clash);
        assert_true(w.helped >= w.wanted);
    }
    atomic_store(&over, true);
    for (int i = 0; i < HELPERS; i++)
        pthread_join(helpers[i], NULL);
    sl__stealing_stop();
    /* And without anybody who helps, it is one piece. */
    shared_work alone = {.wanted = 0};
    sl__parallel(1, PARTS, 1, do_part, &alone);
    assert_int_equal(alone.helped, 0);
    assert_false(sl__steal(1, is_set, &over));
}

typedef struct patience {
    int asked, until; /* the wait is over when it is asked so often */
    bool helped;
} patience;

static bool is_enough(void *data)
{
    patience *p = data;
    return ++p->asked >= p->until;
}

static void *help_so_long(void *data)
{
    patience *p = data;
    for (int i = 0; i < 50000 && !p->helped; i++) {
        p->asked = 0;
        p->helped = sl__steal(1, is_enough, p);
        if (!p->helped)
            nap();
    }
    return NULL;
}

/* Who helps stops when its own wait is over: it asks before a visit, and after
 * every part. */
static void a_wait_that_is_over_ends_the_help(void **state)
{
    (void)state;
    sl__stealing_start();
    for (int parts = 1; parts <= 5; parts++) {
        shared_work w = {.wanted = parts};
        patience p = {.until = parts + 1};
        pthread_t helper;
        assert_int_equal(pthread_create(&helper, NULL, help_so_long, &p), 0);
        sl__parallel(1, PARTS, 1, do_part, &w);
        pthread_join(helper, NULL);
        assert_true(p.helped);
        assert_int_equal(w.helped, parts);
    }
    sl__stealing_stop();
}

typedef struct crowd {
    shared_work work;
    atomic_bool left; /* the helpers have */
} crowd;

static void do_in_a_crowd(void *data, int worker, int64_t from, int64_t to)
{
    crowd *c = data;
    (void)from;
    (void)to;
    if (worker > 0) {
        atomic_fetch_add(&c->work.helped, 1);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    for (int i = 0; worker == 0 && i < 50000 && !atomic_load(&c->left); i++)
        nap();
}

static bool has_two(void *data)
{
    return atomic_load(&((crowd *)data)->work.helped) >= 2;
}

static void *open_crowd(void *data)
{
    sl__parallel_few(1, 2, PARTS, 1, do_in_a_crowd, data);
    return NULL;
}

/* Two threads help where there is room for one: whichever it is, it stops when
 * the wait is over, or when the other, who may be the one that asks, leaves; and
 * not when all is done, a third of a second later. */
static void a_team_leaves_together(void **state)
{
    (void)state;
#ifdef SLUICE_TSAN
    skip(); /* OpenMP's runtime is not instrumented. */
#endif
    sl__stealing_start();
    for (int round = 0; round < 10; round++) {
        crowd c = {.left = false};
        pthread_t owner;
        assert_int_equal(pthread_create(&owner, NULL, open_crowd, &c), 0);
        for (int i = 0; i < 50000 && !sl__can_steal(); i++)
            nap();
        sl__steal(2, has_two, &c);
        assert_true(c.work.helped < 15);
        atomic_store(&c.left, true);
        pthread_join(owner, NULL);
    }
    sl__stealing_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_share_a_stage_on_ref),
        cmocka_unit_test(two_threads_share_a_stage_on_cpu),
        cmocka_unit_test(two_threads_build_at_once),
        cmocka_unit_test(stolen_parts_are_done_once),
        cmocka_unit_test(a_wait_that_is_over_ends_the_help),
        cmocka_unit_test(a_team_leaves_together),
        cmocka_unit_test(shares_cover_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

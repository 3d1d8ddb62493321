/* SPDX-License-Identifier: MIT
 *
 * The conformance suite on threads, for several numbers of ranks. */
#include "comm/comm.h"
#include "conformance.h"
#include "pipeline/run/runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct job {
    sl_comm *comm;
    const conformance_case *test;
} job;

static void *run_rank(void *argument)
{
    job *own = argument;
    own->test->run(own->comm);
    return NULL;
}

static void run_case(int ranks, const conformance_case *test)
{
    sl_comm *ends[16];
    pthread_t threads[16];
    job jobs[16];
    if (sl_threads_create(ranks, ends)) {
        fprintf(stderr, "%s\n", sl_error_text());
        exit(1);
    }
    for (int i = 0; i < ranks; i++) {
        jobs[i] = (job){ends[i], test};
        if (pthread_create(&threads[i], NULL, run_rank, &jobs[i]))
            exit(1);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    for (int i = ranks; i-- > 0;)
        sl_comm_destroy(ends[i]);
}

/* ----------------------------------------------------- while it waits -- */

#define must(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static atomic_int idled; /* calls */

typedef struct idler {
    bool busy;  /* has something to do until the wait is over */
    bool ended; /* was told that it is */
} idler;

static bool be_idle(void *context, bool (*is_over)(void *wait), void *wait)
{
    idler *own = context;
    atomic_fetch_add(&idled, 1);
    for (int i = 0; own->busy && i < 10000; i++) {
        own->ended = is_over(wait);
        if (own->ended)
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return own->busy;
}

/* Rank 1 is so late that rank 0 does something else meanwhile, and still gets
 * what it waits for, or is told that nothing came. */
static void wait_and_work(sl_comm *comm)
{
    char text[8] = "";
    sl_request request;
    idler own = {false, false};
    for (int tag = 0; tag < 2; tag++) {
        bool done = false;
        int seen = tag ? 1000000 : 0;
        if (sl_comm_rank(comm) == 1) {
            for (int i = 0; i < 10000 && atomic_load(&idled) <= seen; i++)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
            must(sl_comm_send(comm, 0, tag, "message", 8, &request) == SL_OK);
            must(sl_comm_wait(comm, &request, 10) == SL_OK);
            continue;
        }
        own.busy = tag == 1;
        atomic_store(&idled, seen);
        sl__comm_set_idle(comm, be_idle, &own);
        must(sl_comm_recv(comm, 1, tag, text, 8, &request) == SL_OK);
        must(sl_comm_wait(comm, &request, 10) == SL_OK);
        must(sl_comm_test(comm, &request, &done) == SL_OK && done);
        must(strcmp(text, "message") == 0 && atomic_load(&idled) > seen);
    }
    if (sl_comm_rank(comm) == 1)
        return;
    for (int busy = 0; busy < 2; busy++) {
        own = (idler){busy, false};
        must(sl_comm_recv(comm, 1, 2, text, 8, &request) == SL_OK);
        must(sl_comm_wait(comm, &request, 0.03) == SL_ETIME);
        must(own.ended == own.busy);
        sl_comm_cancel(comm, &request);
    }
    sl__comm_clear_idle(comm, text); /* Somebody else's. */
    must(comm->idle == be_idle);
    sl__comm_clear_idle(comm, &own);
    must(!comm->idle);
}

/* While a rank shares its core with somebody, none does anything but wait; not
 * even where it is another one. */
static void wait_in_a_crowd(sl_comm *comm)
{
    const int all[] = {0, 1};
    const sl_group both = {all, 2};
    sl_request request;
    char text[8];
    idler own = {false, false};
    for (int crowded = 1; crowded >= 0; crowded--) {
        must(sl_comm_barrier(comm, &both, 9, 10) == SL_OK);
        if (sl_comm_rank(comm) == 1)
            sl__comm_set_crowded(comm, crowded);
        must(sl_comm_barrier(comm, &both, 9, 10) == SL_OK);
        if (sl_comm_rank(comm) == 1)
            continue;
        atomic_store(&idled, 0);
        sl__comm_set_idle(comm, be_idle, &own);
        must(sl_comm_recv(comm, 1, 3, text, 8, &request) == SL_OK);
        must(sl_comm_wait(comm, &request, 0.03) == SL_ETIME);
        must((atomic_load(&idled) == 0) == crowded);
        sl_comm_cancel(comm, &request);
        sl__comm_clear_idle(comm, &own);
    }
}

/* A competitor takes the core after every few milliseconds, the system now and
 * then; in a short time one loss says nothing. */
static void crowds_are_told_from_the_system(void)
{
    must(sl__is_crowded(0.05, 10) && sl__is_crowded(2, 400));
    must(!sl__is_crowded(0.05, 2) && !sl__is_crowded(2, 30));
    must(!sl__is_crowded(0.05, 0));
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    sl_comm *ends[1];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int i = 0; i < conformance_count; i++)
            run_case(sizes[s], &conformance_cases[i]);
    }
    if (sl_threads_create(0, ends) != SL_EINVAL ||
        sl_threads_create(SL_COMM_MAX_RANKS + 1, ends) != SL_EINVAL)
        return 1;
    static const conformance_case working = {"wait and work", wait_and_work,
                                             false};
    static const conformance_case crowd = {"wait in a crowd", wait_in_a_crowd,
                                           false};
    run_case(2, &working);
    run_case(2, &crowd);
    crowds_are_told_from_the_system();
    sl_comm_destroy(NULL);
    printf("%d cases, up to 8 ranks\n", conformance_count);
    return 0;
}

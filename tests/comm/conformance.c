/* SPDX-License-Identifier: MIT
 *
 * See conformance.h. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMEOUT = 60 };

#define must(condition) check((condition), #condition, __LINE__)
#define must_ok(call)   check(!(call), #call, __LINE__)

static void check(bool held, const char *what, int line)
{
    if (held)
        return;
    fprintf(stderr, "conformance.c:%d: %s: %s\n", line, what, sl_error_text());
    fflush(stderr);
    _Exit(1);
}

#define must_fail(call, status, words)                                         \
    check((call) == (status) && strstr(sl_error_text(), words), #call, __LINE__)

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds,
                            (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All ranks, or every `stride`-th, backwards. */
static sl_group all_ranks(const sl_comm *comm, int ranks[])
{
    for (int i = 0; i < sl_comm_size(comm); i++)
        ranks[i] = i;
    return (sl_group){ranks, sl_comm_size(comm)};
}

static sl_group every_second(const sl_comm *comm, int ranks[])
{
    int count = 0;
    for (int i = sl_comm_size(comm); i-- > 0;) {
        if (i % 2 == sl_comm_rank(comm) % 2)
            ranks[count++] = i;
    }
    return (sl_group){ranks, count};
}

/* ------------------------------------------------------------- messages -- */

static void one_tag_keeps_its_order(sl_comm *comm)
{
    enum { COUNT = 300 };
    static _Thread_local sl_request sends[COUNT], recvs[COUNT];
    static _Thread_local int out[COUNT], in[COUNT];
    int rank = sl_comm_rank(comm), size = sl_comm_size(comm);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    if (size == 1)
        return;
    for (int i = 0; i < COUNT; i++) {
        out[i] = rank * 1000 + i;
        must_ok(sl_comm_send(comm, to, 3, &out[i], sizeof out[i], &sends[i]));
        if (i % 7 == 0)
            must_ok(sl_comm_progress(comm));
    }
    for (int i = 0; i < COUNT; i++)
        must_ok(sl_comm_recv(comm, from, 3, &in[i], sizeof in[i], &recvs[i]));
    for (int i = COUNT; i-- > 0;) {
        must_ok(sl_comm_wait(comm, &recvs[i], TIMEOUT));
        must(in[i] == from * 1000 + i);
    }
    for (int i = 0; i < COUNT; i++)
        must_ok(sl_comm_wait(comm, &sends[i], TIMEOUT));
}

/* Every rank to every other, many tags, each side in an order of its own. */
static void many_tags_in_flight(sl_comm *comm)
{
    enum { TAGS = 60, MOST = 40000 };
    int rank = sl_comm_rank(comm), size = sl_comm_size(comm);
    int peers = size - 1, count = peers * TAGS;
    sl_request *requests = calloc((size_t)count * 2 + 1, sizeof *requests);
    unsigned char **buffers = calloc((size_t)count * 2 + 1, sizeof *buffers);
    int *order = calloc((size_t)count * 2 + 1, sizeof *order);
    uint32_t random = (uint32_t)rank + 1;
    must(requests && buffers && order);
    for (int i = 0; i < 2 * count; i++)
        order[i] = i;
    for (int i = 2 * count; i > 1; i--) {
        int k = (int)(next_random(&random) % (uint32_t)i), swap = order[i - 1];
        order[i - 1] = order[k];
        order[k] = swap;
    }
    for (int i = 0; i < 2 * count; i++) {
        int item = order[i] % count, tag = item % TAGS;
        int peer = (rank + 1 + item / TAGS) % size;
        bool is_send = order[i] < count;
        int sender = is_send ? rank : peer;
        size_t bytes = (size_t)((tag * 7919 + sender * 31) % MOST);
        if (tag == 0)
            bytes = 0;
        unsigned char *buffer = malloc(bytes + 1);
        must(buffer);
        buffers[order[i]] = buffer;
        if (is_send) {
            memset(buffer, sender * 61 + tag, bytes);
            must_ok(sl_comm_send(comm, peer, tag * 1000, buffer, bytes,
                                 &requests[order[i]]));
        } else {
            memset(buffer, 0, bytes);
            must_ok(sl_comm_recv(comm, peer, tag * 1000, buffer, bytes,
                                 &requests[order[i]]));
        }
    }
    for (int i = 0; i < 2 * count; i++) {
        must_ok(sl_comm_wait(comm, &requests[i], TIMEOUT));
        if (i < count)
            continue;
        int item = i % count, tag = item % TAGS;
        int sender = (rank + 1 + item / TAGS) % size;
        size_t bytes = tag ? (size_t)((tag * 7919 + sender * 31) % MOST) : 0;
        for (size_t k = 0; k < bytes; k++)
            must(buffers[i][k] == (unsigned char)(sender * 61 + tag));
    }
    for (int i = 0; i < 2 * count; i++)
        free(buffers[i]);
    free(requests);
    free(buffers);
    free(order);
}

/* All send before any receives. */
static void large_messages_both_ways(sl_comm *comm)
{
    enum { BYTES = 12 << 20 };
    int rank = sl_comm_rank(comm), size = sl_comm_size(comm);
    if (size == 1 || (size % 2 && rank == size - 1))
        return;
    int peer = rank ^ 1;
    char *out = malloc(BYTES), *in = malloc(BYTES);
    must(out && in);
    memset(out, rank + 1, BYTES);
    sl_request sent, received;
    must_ok(sl_comm_send(comm, peer, 1, out, BYTES, &sent));
    must_ok(sl_comm_recv(comm, peer, 1, in, BYTES, &received));
    must_ok(sl_comm_wait(comm, &sent, TIMEOUT));
    must_ok(sl_comm_wait(comm, &received, TIMEOUT));
    for (int i = 0; i < BYTES; i += 4093)
        must(in[i] == (char)(peer + 1));
    must(in[BYTES - 1] == (char)(peer + 1));
    free(out);
    free(in);
}

static void another_size_is_refused(sl_comm *comm)
{
    int rank = sl_comm_rank(comm);
    char data[64] = {0};
    sl_request request;
    if (sl_comm_size(comm) == 1 || rank > 1)
        return;
    for (int i = 0; i < 2; i++) {
        size_t sent = i ? 16 : 4;
        if (rank == 0) {
            must_ok(sl_comm_send(comm, 1, 20 + i, data, sent, &request));
            must_ok(sl_comm_wait(comm, &request, TIMEOUT));
        } else {
            must_ok(sl_comm_recv(comm, 0, 20 + i, data, 8, &request));
            must_fail(sl_comm_wait(comm, &request, TIMEOUT), SL_EINVAL,
                      "rank 1 expects 8 bytes of rank 0 under tag 2");
        }
    }
}

static void nonsense_is_refused(sl_comm *comm)
{
    int rank = sl_comm_rank(comm), size = sl_comm_size(comm);
    int peer = (rank + 1) % size;
    sl_request request;
    must_fail(sl_comm_send(comm, size, 0, NULL, 0, &request), SL_EINVAL,
              "there is no rank");
    must_fail(sl_comm_recv(comm, -1, 0, NULL, 0, &request), SL_EINVAL,
              "there is no rank -1");
    must_fail(sl_comm_send(comm, rank, 0, NULL, 0, &request), SL_EINVAL,
              "a message to itself");
    if (size > 1) {
        must_fail(sl_comm_send(comm, peer, -1, NULL, 0, &request), SL_EINVAL,
                  "tag -1");
        must_fail(sl_comm_recv(comm, peer, SL_COMM_MAX_TAG, NULL, 0, &request),
                  SL_EINVAL, "tag");
    }
    const int others[] = {peer, peer}, twice[] = {rank, rank}, far[] = {size};
    const sl_group outside = {others, size > 1 ? 1 : 0};
    must_fail(sl_comm_barrier(comm, &outside, 0, 1), SL_EINVAL,
              "is not in the group");
    must_fail(sl_comm_barrier(comm, &(sl_group){twice, 2}, 0, 1), SL_EINVAL,
              "twice");
    must_fail(sl_comm_barrier(comm, &(sl_group){far, 1}, 0, 1), SL_EINVAL,
              "a group with rank");
}

/* ---------------------------------------------------------- collectives -- */

static void nobody_leaves_a_barrier_before_all_came(sl_comm *comm)
{
    int ranks[SL_COMM_MAX_RANKS], rank = sl_comm_rank(comm);
    double came[SL_COMM_MAX_RANKS], left[SL_COMM_MAX_RANKS];
    sl_group group = all_ranks(comm, ranks);
    uint32_t random = (uint32_t)rank + 5;
    for (int round = 0; round < 10; round++) {
        nap((double)(next_random(&random) % 1000) * 1e-6);
        came[rank] = seconds_now();
        must_ok(sl_comm_barrier(comm, &group, 40, TIMEOUT));
        left[rank] = seconds_now();
        must_ok(sl_comm_allgather(comm, &group, 41, sizeof(double), came,
                                  (size_t)group.count, TIMEOUT));
        must_ok(sl_comm_allgather(comm, &group, 41, sizeof(double), left,
                                  (size_t)group.count, TIMEOUT));
        for (int i = 0; i < group.count; i++) {
            for (int k = 0; k < group.count; k++)
                must(came[i] <= left[k]);
        }
    }
}

static float number_of(int rank, size_t i)
{
    uint32_t random = (uint32_t)rank * 7 + (uint32_t)i * 13 + 1;
    next_random(&random);
    return (float)next_random(&random) / 1000.0f - 8000.0f;
}

/* The sum as the group's order has it. */
static float sum_of(const sl_group *group, size_t i)
{
    float sum = number_of(group->ranks[0], i);
    for (int k = 1; k < group->count; k++)
        sum += number_of(group->ranks[k], i);
    return sum;
}

static void sums_are_the_same_bits_everywhere(sl_comm *comm)
{
    static const size_t counts[] = {0, 1, 2, 7, 1000, 100003};
    int ranks[SL_COMM_MAX_RANKS], rank = sl_comm_rank(comm);
    for (int way = 0; way < 2; way++) {
        sl_group group =
            way ? every_second(comm, ranks) : all_ranks(comm, ranks);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            size_t count = counts[c], first, length, own = 0;
            float *data = malloc(count * sizeof *data + 1);
            double *wide = malloc(count * sizeof *wide + 1);
            float *part = malloc(count * sizeof *part + 1);
            must(data && wide && part);
            for (size_t i = 0; i < count; i++) {
                data[i] = number_of(rank, i);
                wide[i] = (double)number_of(rank, i);
            }
            while (ranks[own] != rank)
                own++;
            must_ok(sl_comm_reduce_scatter(comm, &group, 50, SL_F32, data,
                                           count, part, TIMEOUT));
            sl_group_part(&group, count, (int)own, &first, &length);
            for (size_t i = 0; i < length; i++)
                must(part[i] == sum_of(&group, first + i));
            for (size_t i = 0; i < count; i++)
                must(data[i] == number_of(rank, i));
            must_ok(sl_comm_allreduce(comm, &group, 51, SL_F32, data, count,
                                      TIMEOUT));
            must_ok(sl_comm_allreduce(comm, &group, 51, SL_F64, wide, count,
                                      TIMEOUT));
            for (size_t i = 0; i < count; i++) {
                double sum = 0;
                for (int k = 0; k < group.count; k++)
                    sum += (double)number_of(group.ranks[k], i);
                must(data[i] == sum_of(&group, i));
                must(wide[i] == sum);
            }
            free(data);
            free(wide);
            free(part);
        }
    }
}

static void parts_cover_everything(sl_comm *comm)
{
    (void)comm;
    for (int ranks = 1; ranks < 9; ranks++) {
        for (size_t count = 0; count < 30; count++) {
            sl_group group = {NULL, ranks};
            size_t at = 0, first, length;
            for (int i = 0; i < ranks; i++) {
                sl_group_part(&group, count, i, &first, &length);
                must(first == at);
                at += length;
            }
            must(at == count);
        }
    }
}

static void a_broadcast_reaches_all(sl_comm *comm)
{
    int ranks[SL_COMM_MAX_RANKS], rank = sl_comm_rank(comm);
    sl_group group = all_ranks(comm, ranks);
    for (int root = 0; root < group.count; root++) {
        int data[3] = {rank, rank, rank};
        must_ok(sl_comm_broadcast(comm, &group, 60, root, data, sizeof data,
                                  TIMEOUT));
        must(data[0] == root && data[2] == root);
    }
    int none;
    must_fail(sl_comm_broadcast(comm, &group, 60, group.count, &none, 0, 1),
              SL_EINVAL, "the root is number");
}

/* ------------------------------------------------------------- failures -- */

static void waiting_has_an_end(sl_comm *comm)
{
    static _Thread_local sl_request request;
    static _Thread_local int number;
    int rank = sl_comm_rank(comm);
    int ranks[SL_COMM_MAX_RANKS];
    sl_group group = all_ranks(comm, ranks);
    if (sl_comm_size(comm) == 1)
        return;
    if (rank == 1) {
        must_ok(sl_comm_recv(comm, 0, 70, &number, sizeof number, &request));
        must_fail(sl_comm_wait(comm, &request, 0.05), SL_ETIME,
                  "rank 1 waited 0.05 s for a message");
        must_fail(sl_comm_wait(comm, &request, -1), SL_EINVAL, "seconds");
    }
    must_ok(sl_comm_barrier(comm, &group, 71, TIMEOUT));
    if (rank == 0) {
        number = 77;
        must_ok(sl_comm_send(comm, 1, 70, &number, sizeof number, &request));
        must_ok(sl_comm_wait(comm, &request, TIMEOUT));
    }
    if (rank == 1) {
        /* It was still posted. */
        must_ok(sl_comm_wait(comm, &request, TIMEOUT));
        must(number == 77);
    }
    must_ok(sl_comm_barrier(comm, &group, 71, TIMEOUT));
}

/* What was taken back is met by nobody. */
static void a_cancelled_request_is_gone(sl_comm *comm)
{
    int rank = sl_comm_rank(comm), size = sl_comm_size(comm);
    int ranks[SL_COMM_MAX_RANKS], number = 1, other = 0;
    sl_group group = all_ranks(comm, ranks);
    sl_request request;
    if (size > 1 && rank == 1) {
        must_ok(sl_comm_recv(comm, 0, 75, &number, sizeof number, &request));
        must(request.posted);
        sl_comm_cancel(comm, &request);
        must(!request.posted);
        sl_comm_cancel(comm, &request);
    }
    must_ok(sl_comm_barrier(comm, &group, 76, TIMEOUT));
    if (size > 1 && rank == 0) {
        number = 5;
        must_ok(sl_comm_send(comm, 1, 75, &number, sizeof number, &request));
        must_ok(sl_comm_wait(comm, &request, TIMEOUT));
    }
    if (size > 1 && rank == 1) {
        must_ok(sl_comm_recv(comm, 0, 75, &other, sizeof other, &request));
        must_ok(sl_comm_wait(comm, &request, TIMEOUT));
        must(other == 5 && number == 1);
    }
    must_ok(sl_comm_barrier(comm, &group, 76, TIMEOUT));
}

/* The last rank fails; some wait, some compute, all learn of it. */
static void a_failure_ends_every_wait(sl_comm *comm)
{
    static _Thread_local sl_request request;
    static _Thread_local int number;
    char expected[64];
    int rank = sl_comm_rank(comm), last = sl_comm_size(comm) - 1;
    double start = seconds_now();
    snprintf(expected, sizeof expected, "rank %d: stage 3 broke", last);
    if (rank == last) {
        nap(0.1);
        sl_comm_abort(comm, SL_EUNSOUND, "stage 3 broke");
        sl_comm_abort(comm, SL_ENOMEM, "and again");
        must_fail(sl_comm_progress(comm), SL_EUNSOUND, expected);
        return;
    }
    if (rank % 2 == 0) {
        must_ok(sl_comm_recv(comm, last, 80, &number, sizeof number, &request));
        must_fail(sl_comm_wait(comm, &request, TIMEOUT), SL_EUNSOUND, expected);
    } else {
        while (!sl_comm_progress(comm) && seconds_now() < start + TIMEOUT)
            nap(0.001);
        must_fail(sl_comm_progress(comm), SL_EUNSOUND, expected);
    }
    must(seconds_now() - start < TIMEOUT / 2);
    sl_comm_cancel(comm, &request);
    must_fail(sl_comm_send(comm, last, 81, &number, sizeof number, &request),
              SL_EUNSOUND, expected);
    /* A failure of one's own comes too late. */
    sl_comm_abort(comm, SL_ENOMEM, "me too");
    must_fail(sl_comm_progress(comm), SL_EUNSOUND, expected);
}

/* ---------------------------------------------------------------- asking -- */

static void say_rank(void *context, char *text, size_t size)
{
    snprintf(text, size, "I am %d", *(const int *)context);
}

/* Every rank asks all others, again and again, while these wait for it. */
static void ranks_say_what_they_do(sl_comm *comm)
{
    static _Thread_local int rank;
    int size = sl_comm_size(comm), ranks[16], other = 0;
    char(*texts)[SL_COMM_ANSWER_MAX] = malloc((size_t)size * sizeof *texts);
    sl_group all = {ranks, size};
    rank = sl_comm_rank(comm);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    for (int round = 0; round < 3; round++) {
        sl_comm_set_answer(comm, say_rank, &rank);
        sl_comm_clear_answer(comm, &other); /* That is not what is set. */
        must_ok(sl_comm_barrier(comm, &all, 90, TIMEOUT));
        for (int asker = 0; asker < size; asker++) {
            if (asker == rank) {
                sl_comm_ask(comm, texts, TIMEOUT);
                for (int i = 0; i < size; i++) {
                    char expected[32];
                    snprintf(expected, sizeof expected, "I am %d", i);
                    must(strcmp(texts[i], expected) == 0);
                }
            }
            must_ok(sl_comm_barrier(comm, &all, 90, TIMEOUT));
        }
        sl_comm_clear_answer(comm, &rank);
        must_ok(sl_comm_barrier(comm, &all, 90, TIMEOUT));
        if (rank == round % size) {
            sl_comm_ask(comm, texts, TIMEOUT);
            for (int i = 0; i < size; i++)
                must(texts[i][0] == '\0');
        }
        must_ok(sl_comm_barrier(comm, &all, 90, TIMEOUT));
    }
    free(texts);
}

const conformance_case conformance_cases[] = {
    {"one_tag_keeps_its_order", one_tag_keeps_its_order, false},
    {"many_tags_in_flight", many_tags_in_flight, false},
    {"large_messages_both_ways", large_messages_both_ways, false},
    {"another_size_is_refused", another_size_is_refused, false},
    {"nonsense_is_refused", nonsense_is_refused, false},
    {"nobody_leaves_a_barrier_before_all_came",
     nobody_leaves_a_barrier_before_all_came, false},
    {"sums_are_the_same_bits_everywhere", sums_are_the_same_bits_everywhere,
     false},
    {"parts_cover_everything", parts_cover_everything, false},
    {"a_broadcast_reaches_all", a_broadcast_reaches_all, false},
    {"waiting_has_an_end", waiting_has_an_end, false},
    {"a_cancelled_request_is_gone", a_cancelled_request_is_gone, false},
    {"ranks_say_what_they_do", ranks_say_what_they_do, false},
    {"a_failure_ends_every_wait", a_failure_ends_every_wait, true},
};
const int conformance_count =
    sizeof conformance_cases / sizeof *conformance_cases;

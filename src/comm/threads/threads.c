/* SPDX-License-Identifier: MIT
 *
 * Ranks as threads of one process. Each rank has a mailbox: a hash table in
 * which its receives meet the sends of other ranks. The thread that posts the
 * second of a pair copies the data and completes both. The requests themselves
 * are linked into the mailbox, so nothing is allocated.
 *
 * Locks: each bucket of a mailbox has a spinlock, held only to find and link.
 * An unlinked request belongs to the thread that unlinked it, until that thread
 * sets its state to complete; it does not touch the request afterwards.
 *
 * Waiting: a rank spins for a moment, then calls its idle function, then sleeps
 * on `events`, a futex. A thread that completes one of its requests increments
 * `events` if the rank sleeps. */
#include "comm/comm.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <assert.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 64 };

typedef enum state {
    POSTED,
    COMPLETE,
    WRONG_SIZE, /* a receive matched a message of another size */
} state;

/* This transport's part of a request. The fields that the other rank reads and
 * writes come first: with those of the request before them they share one cache
 * line. */
typedef struct post {
    struct post *next;
    void *memory; /* a send's data, a receive's buffer */
    size_t bytes;
    int tag;
    uint16_t sender;
    uint16_t owner; /* the rank that posted it */
    _Atomic int state;
    uint16_t receiver;
    size_t found;       /* bytes of the message of the wrong size */
    sl__stream *stream; /* of `memory` */
    /* On a device that works on by itself: when the memory may be read or
     * written, and when the message has arrived. */
    sl__mark *ready, *done;
} post;
_Static_assert(offsetof(sl_request, transport) + offsetof(post, receiver) <= 64,
               "what both sides touch is one cache line");
_Static_assert(sizeof(post) <= sizeof(((sl_request *)0)->transport),
               "a request has room for a post");

typedef struct list {
    post *first, *last;
} list;

typedef struct bucket {
    _Alignas(64) atomic_flag lock; /* a cache line each */
    list sends, recvs;
} bucket;

typedef struct end end;

/* What all ranks share. */
typedef struct hub {
    end *ends;
    int size;
    atomic_int alive;   /* ends that are not destroyed */
    atomic_int failing; /* some rank is the first to fail */
    atomic_int failed;  /* `status` and `sentence` have been written */
    sl_status status;
    char sentence[SL__ERROR_TEXT_MAX];
    bool has_cores;     /* there is a core for each rank */
    atomic_int crowded; /* how many ranks are: see sl__comm_set_crowded */
} hub;

struct end {
    sl_comm comm; /* first */
    hub *hub;
    bucket buckets[BUCKETS];
    _Alignas(64) _Atomic uint32_t events;
    _Alignas(64) atomic_int sleeping;
};

static end *end_of(sl_comm *comm)
{
    return (end *)comm;
}

static post *post_of(sl_request *request)
{
    return (post *)(void *)request->transport;
}

static sl_request *request_of(post *own)
{
    return (sl_request *)(void *)((char *)own -
                                  offsetof(sl_request, transport));
}

/* ------------------------------------------------------------- sleeping -- */

static void futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout,
            NULL, 0);
}

/* Wakes a rank after an event that it may wait for. A rank sets `sleeping` and
 * checks once more before it sleeps; so either it sees the event, or this
 * function sees that it sleeps. That holds because all four accesses are
 * sequentially consistent. */
static void wake(end *rank)
{
    if (!atomic_load(&rank->sleeping))
        return;
    atomic_fetch_add(&rank->events, 1);
    futex(&rank->events, FUTEX_WAKE, INT32_MAX, NULL);
}

typedef struct waiting {
    const end *own;
    const post *waited;
    double deadline;
} waiting;

static bool is_over(const waiting *w)
{
    int found = atomic_load(&w->waited->state);
    return found == COMPLETE || found == WRONG_SIZE ||
           atomic_load(&w->own->hub->failed);
}

/* The same for an idle function, which does not check the deadline itself. */
static bool is_over_or_late(void *wait)
{
    const waiting *w = wait;
    return is_over(w) || sl__seconds() >= w->deadline;
}

static void sleep_for(end *own, const waiting *w, double seconds)
{
    struct timespec nap = {(time_t)seconds,
                           (long)((seconds - (double)(time_t)seconds) * 1e9)};
    atomic_store(&own->sleeping, 1);
    /* A completion after this load increments `events`, which ends the
     * sleep. */
    uint32_t seen = atomic_load(&own->events);
    if (!is_over(w))
        futex(&own->events, FUTEX_WAIT, seen, &nap);
    atomic_store(&own->sleeping, 0);
}

static bool spin(const waiting *w, int times)
{
    for (int i = 0; i < times; i++) {
        if (is_over(w))
            return true;
        sl__pause();
    }
    return is_over(w);
}

static void wait_threads(sl_comm *comm, sl_request *request, double timeout_s)
{
    /* With a core for each rank, a rank sleeps only after it has waited for as
     * long as waking up takes (wake_s). A rank with an idle function calls it
     * until there was nothing to do for look_s, and then once every look_s. */
    enum { SPINS_BETWEEN_LOOKS = 16 };
    const double wake_s = 5e-5, look_s = 1e-3;
    end *own = end_of(comm);
    const bool crowded =
        atomic_load_explicit(&own->hub->crowded, memory_order_relaxed) > 0;
    const bool has_cores = own->hub->has_cores && !crowded;
    const bool asks = comm->idle && !crowded;
    const double awake_s = !has_cores ? 0 : asks ? look_s : wake_s;
    waiting w = {own, post_of(request), 0};
    /* With a core for each rank, spin for a few microseconds first. */
    if (spin(&w, has_cores ? 400 : 4))
        return;
    double now = sl__seconds(), useful = now;
    w.deadline = now + timeout_s;
    for (; !is_over(&w) && now < w.deadline; now = sl__seconds()) {
        double nap = w.deadline - now < 1 ? w.deadline - now : 1;
        if (asks && comm->idle(comm->idle_context, is_over_or_late, &w)) {
            useful = sl__seconds();
            continue;
        }
        if (now - useful < awake_s) {
            spin(&w, SPINS_BETWEEN_LOOKS);
            continue;
        }
        if (asks && nap > look_s)
            nap = look_s;
        sleep_for(own, &w, nap);
    }
}

/* ------------------------------------------------------------ mailboxes -- */

static bucket *bucket_of(end *receiver, int sender, int tag)
{
    uint32_t key = (uint32_t)sender * 2654435761u ^ (uint32_t)tag * 40503u;
    return &receiver->buckets[(key ^ key >> 16) % BUCKETS];
}

static void lock(bucket *b)
{
    while (atomic_flag_test_and_set_explicit(&b->lock, memory_order_acquire))
        sched_yield();
}

static void unlock(bucket *b)
{
    atomic_flag_clear_explicit(&b->lock, memory_order_release);
}

/* Requires: the bucket is locked. */
static void append(list *to, post *added)
{
    added->next = NULL;
    if (to->last)
        to->last->next = added;
    else
        to->first = added;
    to->last = added;
}

/* Unlinks `which` or, if that is NULL, the first post of a sender and tag. NULL
 * if there is none. Requires: the bucket is locked. */
static post *unlink_post(list *from, const post *which, int sender, int tag)
{
    post *before = NULL;
    for (post *at = from->first; at; before = at, at = at->next) {
        if (which ? at != which : at->sender != sender || at->tag != tag)
            continue;
        if (before)
            before->next = at->next;
        else
            from->first = at->next;
        if (from->last == at)
            from->last = before;
        return at;
    }
    return NULL;
}

/* Completes a request. Its owner may free it as soon as its state is set. */
static void complete(hub *shared, post *done, state how, double now)
{
    int owner = done->owner;
    assert(owner < shared->size && how != POSTED);
    assert(atomic_load_explicit(&done->state, memory_order_relaxed) == POSTED);
    request_of(done)->done_s = now;
    atomic_store(&done->state, how);
    wake(&shared->ends[owner]);
}

static void abort_threads(sl_comm *comm, sl_status status,
                          const char *sentence);

static void forget_marks(post *own)
{
    if (own->ready)
        own->stream->buffers->unmark(own->ready);
    if (own->done)
        own->stream->buffers->unmark(own->done);
    own->ready = own->done = NULL;
}

/* Enqueues the copy beside the work of the receiver, which goes on until it
 * needs the message. */
static sl_status move_beside(const post *send, post *recv, sl__mark **out_sent)
{
    const sl__buffer_ops *buffers = recv->stream->buffers;
    sl__stream *side;
    SL__TRY(buffers->side(recv->stream, send->sender, &side));
    SL__TRY(buffers->after(side, send->ready));
    SL__TRY(buffers->after(side, recv->ready));
    SL__TRY(sl__device_copy(side, recv->memory, send->memory, recv->bytes));
    SL__TRY(buffers->mark(side, &recv->done));
    return buffers->mark(side, out_sent);
}

static sl_status move_message(post *send, post *recv)
{
    if (recv->bytes == 0)
        return SL_OK;
    if (send->ready && recv->ready)
        return move_beside(send, recv, &send->done);
    return sl__device_move(recv->stream, recv->memory, send->stream,
                           send->memory, recv->bytes);
}

/* Completes a send and the receive that it matches. Requires: both are
 * unlinked. */
static void match(hub *shared, post *send, post *recv)
{
    assert(send->sender == recv->sender && send->tag == recv->tag);
    assert(send->owner == send->sender && recv->owner == send->receiver);
    if (send->bytes != recv->bytes) {
        recv->found = send->bytes;
        complete(shared, recv, WRONG_SIZE, 0);
        complete(shared, send, COMPLETE, sl__seconds());
        return;
    }
    sl_status status = move_message(send, recv);
    if (status)
        abort_threads(&shared->ends[recv->owner].comm, status, sl_error_text());
    double now = sl__seconds();
    complete(shared, recv, COMPLETE, now);
    complete(shared, send, COMPLETE, now);
}

/* -------------------------------------------------------------- posting -- */

/* Posts a send or a receive. If its counterpart is posted already, completes
 * both; otherwise links it into the mailbox of the receiver. */
static sl_status post_message(sl_comm *comm, sl__stream *stream, int sender,
                              int receiver, int tag, const void *memory,
                              size_t bytes, sl_request *request)
{
    hub *shared = end_of(comm)->hub;
    bool is_send = sender == comm->rank;
    post *own = post_of(request);
    own->memory = (void *)memory;
    own->stream = stream;
    own->bytes = bytes;
    own->sender = (uint16_t)sender;
    own->receiver = (uint16_t)receiver;
    own->owner = (uint16_t)comm->rank;
    own->tag = tag;
    if (bytes && sl__is_async(stream))
        SL__TRY(stream->buffers->mark(stream, &own->ready));
    bucket *b = bucket_of(&shared->ends[receiver], sender, tag);
    lock(b);
    post *other =
        unlink_post(is_send ? &b->recvs : &b->sends, NULL, sender, tag);
    if (!other)
        append(is_send ? &b->sends : &b->recvs, own);
    unlock(b);
    if (other)
        match(shared, is_send ? own : other, is_send ? other : own);
    return SL_OK;
}

static sl_status send_threads(sl_comm *comm, sl__stream *stream, int peer,
                              int tag, const void *data, size_t bytes,
                              sl_request *request)
{
    return post_message(comm, stream, comm->rank, peer, tag, data, bytes,
                        request);
}

static sl_status recv_threads(sl_comm *comm, sl__stream *stream, int peer,
                              int tag, void *buffer, size_t bytes,
                              sl_request *request)
{
    return post_message(comm, stream, peer, comm->rank, tag, buffer, bytes,
                        request);
}

static void cancel_threads(sl_comm *comm, sl_request *request)
{
    hub *shared = end_of(comm)->hub;
    post *own = post_of(request);
    bool is_send = own->sender == comm->rank;
    assert(own->owner == comm->rank);
    bucket *b = bucket_of(&shared->ends[own->receiver], own->sender, own->tag);
    lock(b);
    bool found = unlink_post(is_send ? &b->sends : &b->recvs, own, 0, 0);
    unlock(b);
    /* Otherwise another rank has unlinked it, and is about to complete it. */
    while (!found && atomic_load(&own->state) == POSTED)
        sched_yield();
    forget_marks(own);
}

/* ------------------------------------------------------------- failures -- */

static sl_status check_threads(sl_comm *comm)
{
    const hub *shared = end_of(comm)->hub;
    if (!atomic_load(&shared->failed))
        return SL_OK;
    return sl__fail_lines(shared->status, shared->sentence);
}

static void abort_threads(sl_comm *comm, sl_status status, const char *sentence)
{
    hub *shared = end_of(comm)->hub;
    if (atomic_exchange(&shared->failing, 1)) {
        /* Another rank failed first, and is about to write its sentence. */
        while (!atomic_load(&shared->failed))
            sched_yield();
        return;
    }
    shared->status = status;
    snprintf(shared->sentence, sizeof shared->sentence, "%s", sentence);
    atomic_store(&shared->failed, 1);
    for (int i = 0; i < shared->size; i++)
        wake(&shared->ends[i]);
}

static void ask_threads(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                        double timeout_s)
{
    hub *shared = end_of(comm)->hub;
    (void)timeout_s; /* The asking thread calls the answer functions itself. */
    for (int i = 0; i < shared->size; i++) {
        if (i != comm->rank)
            sl__comm_call_answer(&shared->ends[i].comm, texts[i]);
    }
}

static sl_status test_threads(sl_comm *comm, sl_request *request,
                              bool *out_done)
{
    post *own = post_of(request);
    int found = atomic_load(&own->state);
    if (found == WRONG_SIZE)
        return sl_fail(SL_EINVAL,
                       "rank %d expects %zu bytes of rank %d under tag %d, "
                       "found %zu",
                       comm->rank, own->bytes, own->sender, own->tag,
                       own->found);
    *out_done = found == COMPLETE;
    if (!*out_done)
        return check_threads(comm);
    /* From here on, work of this rank may use the memory. */
    if (own->done)
        SL__TRY(own->stream->buffers->after(own->stream, own->done));
    forget_marks(own);
    return SL_OK;
}

/* ----------------------------------------------------------------- life -- */

static void destroy_hub(hub *shared)
{
    for (int i = 0; i < shared->size; i++)
        sl__comm_end(&shared->ends[i].comm);
    free(shared->ends);
    free(shared);
}

static void destroy_threads(sl_comm *comm)
{
    hub *shared = end_of(comm)->hub;
    assert(atomic_load(&shared->alive) > 0);
    if (atomic_fetch_sub(&shared->alive, 1) == 1)
        destroy_hub(shared);
}

static const sl__transport threads = {
    .is_one_process = true,
    .takes_device_memory = true,
    .destroy = destroy_threads,
    .send = send_threads,
    .recv = recv_threads,
    .cancel = cancel_threads,
    .test = test_threads,
    .wait = wait_threads,
    .progress = check_threads,
    .abort = abort_threads,
    .check = check_threads,
    .ask = ask_threads,
};

static sl_status start_ends(hub *shared, int ranks)
{
    void *memory;
    size_t bytes = (size_t)ranks * sizeof(end);
    if (posix_memalign(&memory, _Alignof(end), bytes))
        return sl_fail(SL_ENOMEM, "out of memory: %d ranks", ranks);
    memset(memory, 0, bytes);
    shared->ends = memory;
    shared->size = ranks;
    shared->has_cores = sl__cores() >= ranks;
    atomic_init(&shared->alive, ranks);
    for (int i = 0; i < ranks; i++) {
        end *own = &shared->ends[i];
        own->hub = shared;
        for (int b = 0; b < BUCKETS; b++)
            atomic_flag_clear(&own->buckets[b].lock);
        SL__TRY(sl__comm_start(&own->comm, &threads, i, ranks));
        own->comm.crowd = &shared->crowded;
    }
    return SL_OK;
}

sl_status sl_threads_create(int ranks, sl_comm **out)
{
    SL__NEED(out);
    hub *shared;
    if (ranks < 1 || ranks > SL_COMM_MAX_RANKS)
        return sl_fail(SL_EINVAL, "%d ranks, expected 1 to %d", ranks,
                       SL_COMM_MAX_RANKS);
    SL__TRY(sl__alloc(1, sizeof *shared, &shared));
    sl_status status = start_ends(shared, ranks);
    if (status) {
        destroy_hub(shared);
        return status;
    }
    for (int i = 0; i < ranks; i++)
        out[i] = &shared->ends[i].comm;
    return SL_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * Ranks as threads of one process. Each rank has a mailbox, in which sends to
 * it and its own receives meet; whoever comes second completes both. Requests
 * are linked into the mailbox as they are: nothing is allocated.
 *
 * Locks: a bucket of a mailbox has one, held for finding and linking alone. A
 * request that is not linked belongs to whoever found it, until its state says
 * it is complete; nobody touches it after that.
 *
 * Waiting: a rank spins for a moment, does what it has been given to do
 * meanwhile, then sleeps on its count of events, which whoever completes one of
 * its requests raises if it sleeps. */
#include "comm/comm.h"

#include "base/arguments.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/memory.h"
#include "base/text.h"

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
    WRONG_SIZE, /* of a receive: the message has another */
} state;

/* What a request holds of ours. What the other side reads and writes comes
 * first: with what the request has before it, a cache line. */
typedef struct post {
    struct post *next;
    void *memory; /* a send's data, a receive's buffer */
    size_t bytes;
    int tag;
    uint16_t sender;
    uint16_t owner; /* the rank that posted it */
    _Atomic int state;
    uint16_t receiver;
    size_t found;       /* bytes of a message of the wrong size */
    sl__stream *stream; /* whose memory it is */
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

/* What the ends share. */
typedef struct hub {
    end *ends;
    int size;
    atomic_int alive;
    atomic_int failing; /* some rank has claimed to be the first to fail */
    atomic_int failed;  /* its sentence can be read */
    sl_status status;
    char sentence[SL__ERROR_TEXT_MAX];
    bool has_cores; /* one for each rank */
    /* How many ranks share their core with other processes: see
     * sl__comm_set_crowded. */
    atomic_int crowded;
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

/* Called after what a rank may wait for has happened. Either it sees that, for
 * it looks once more after it has said that it sleeps, or it is seen to sleep
 * here: all four are in one order. */
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

/* The same for who does something else meanwhile, and has no eye on the clock. */
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
    /* What completes after this raises the count, and ends the sleep. */
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
    /* With a core for each rank, one does not sleep before it has waited for as
     * long as it takes to be woken. Who has something to do meanwhile looks out
     * for it until so long after there was something; then as often as that. */
    enum { SPINS_BETWEEN_LOOKS = 16 };
    const double wake_s = 5e-5, look_s = 1e-3;
    end *own = end_of(comm);
    const bool crowded =
        atomic_load_explicit(&own->hub->crowded, memory_order_relaxed) > 0;
    const bool has_cores = own->hub->has_cores && !crowded;
    const bool helps = comm->idle && !crowded;
    const double awake_s = !has_cores ? 0 : helps ? look_s : wake_s;
    waiting w = {own, post_of(request), 0};
    /* With a core per rank, a few microseconds before anything else. */
    if (spin(&w, has_cores ? 400 : 4))
        return;
    double now = sl__seconds(), useful = now;
    w.deadline = now + timeout_s;
    for (; !is_over(&w) && now < w.deadline; now = sl__seconds()) {
        double nap = w.deadline - now < 1 ? w.deadline - now : 1;
        if (helps && comm->idle(comm->idle_context, is_over_or_late, &w)) {
            useful = sl__seconds();
            continue;
        }
        if (now - useful < awake_s) {
            spin(&w, SPINS_BETWEEN_LOOKS);
            continue;
        }
        if (helps && nap > look_s)
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

static void append(list *to, post *added)
{
    added->next = NULL;
    if (to->last)
        to->last->next = added;
    else
        to->first = added;
    to->last = added;
}

/* Takes a post out of a list: that one, or where it is NULL the first of a
 * sender and tag. NULL where it is not there. */
static post *take(list *from, const post *which, int sender, int tag)
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

/* Makes a request complete. It may be gone as soon as its state is set. */
static void complete(hub *shared, post *done, state how, double now)
{
    int owner = done->owner;
    request_of(done)->done_s = now;
    atomic_store(&done->state, how);
    wake(&shared->ends[owner]);
}

static void abort_threads(sl_comm *comm, sl_status status,
                          const char *sentence);

static void match(hub *shared, post *send, post *recv)
{
    if (send->bytes != recv->bytes) {
        recv->found = send->bytes;
        complete(shared, recv, WRONG_SIZE, 0);
        complete(shared, send, COMPLETE, sl__seconds());
        return;
    }
    sl_status status =
        recv->bytes ? sl__device_move(recv->stream, recv->memory, send->stream,
                                      send->memory, recv->bytes)
                    : SL_OK;
    if (status)
        abort_threads(&shared->ends[recv->owner].comm, status, sl_error_text());
    double now = sl__seconds();
    complete(shared, recv, COMPLETE, now);
    complete(shared, send, COMPLETE, now);
}

/* -------------------------------------------------------------- posting -- */

static sl_status send_threads(sl_comm *comm, sl__stream *stream, int peer,
                              int tag, const void *data, size_t bytes,
                              sl_request *request)
{
    hub *shared = end_of(comm)->hub;
    post *own = post_of(request);
    own->memory = (void *)data;
    own->stream = stream;
    own->bytes = bytes;
    own->sender = own->owner = (uint16_t)comm->rank;
    own->receiver = (uint16_t)peer;
    own->tag = tag;
    bucket *b = bucket_of(&shared->ends[peer], comm->rank, tag);
    lock(b);
    post *other = take(&b->recvs, NULL, comm->rank, tag);
    if (!other)
        append(&b->sends, own);
    unlock(b);
    if (other)
        match(shared, own, other);
    return SL_OK;
}

static sl_status recv_threads(sl_comm *comm, sl__stream *stream, int peer,
                              int tag, void *buffer, size_t bytes,
                              sl_request *request)
{
    hub *shared = end_of(comm)->hub;
    post *own = post_of(request);
    own->memory = buffer;
    own->stream = stream;
    own->bytes = bytes;
    own->sender = (uint16_t)peer;
    own->owner = (uint16_t)comm->rank;
    own->tag = tag;
    bucket *b = bucket_of(end_of(comm), peer, tag);
    lock(b);
    post *other = take(&b->sends, NULL, peer, tag);
    if (!other)
        append(&b->recvs, own);
    unlock(b);
    if (other)
        match(shared, other, own);
    return SL_OK;
}

static void cancel_threads(sl_comm *comm, sl_request *request)
{
    hub *shared = end_of(comm)->hub;
    post *own = post_of(request);
    bool is_send = own->sender == comm->rank;
    bucket *b = bucket_of(&shared->ends[is_send ? own->receiver : comm->rank],
                          own->sender, own->tag);
    lock(b);
    bool found = take(is_send ? &b->sends : &b->recvs, own, 0, 0);
    unlock(b);
    /* Somebody who has found it is about to be done with it. */
    while (!found && atomic_load(&own->state) == POSTED)
        sched_yield();
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
        /* Another one was first; its sentence can be read in a moment. */
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
    (void)timeout_s; /* Nobody is waited for. */
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
    return *out_done ? SL_OK : check_threads(comm);
}

/* ----------------------------------------------------------------- life -- */

static void destroy_threads(sl_comm *comm)
{
    hub *shared = end_of(comm)->hub;
    if (atomic_fetch_sub(&shared->alive, 1) > 1)
        return;
    for (int i = 0; i < shared->size; i++)
        sl__comm_end(&shared->ends[i].comm);
    free(shared->ends);
    free(shared);
}

static const sl__transport threads = {
    .name = "threads",
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

sl_status sl_threads_create(int ranks, sl_comm **out)
{
    SL__NEED(out);
    hub *shared;
    if (ranks < 1 || ranks > SL_COMM_MAX_RANKS)
        return sl_fail(SL_EINVAL, "%d ranks, expected 1 to %d", ranks,
                       SL_COMM_MAX_RANKS);
    sl_status status = sl__alloc(1, sizeof *shared, &shared);
    if (status)
        return status;
    void *memory;
    size_t bytes = (size_t)ranks * sizeof(end);
    if (posix_memalign(&memory, _Alignof(end), bytes)) {
        free(shared);
        return sl_fail(SL_ENOMEM, "out of memory: %d ranks", ranks);
    }
    memset(memory, 0, bytes);
    shared->ends = memory;
    shared->size = ranks;
    atomic_init(&shared->alive, ranks);
    shared->has_cores = sl__cores() >= ranks;
    for (int i = 0; i < ranks; i++) {
        end *own = &shared->ends[i];
        own->hub = shared;
        for (int b = 0; b < BUCKETS; b++)
            atomic_flag_clear(&own->buckets[b].lock);
        if (!status)
            status = sl__comm_start(&own->comm, &threads, i, ranks);
        own->comm.crowd = &shared->crowded;
    }
    for (int i = 0; i < ranks && status; i++)
        sl__comm_end(&shared->ends[i].comm);
    if (status) {
        free(shared->ends);
        free(shared);
        return status;
    }
    for (int i = 0; i < ranks; i++)
        out[i] = &shared->ends[i].comm;
    return SL_OK;
}

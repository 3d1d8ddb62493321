/* SPDX-License-Identifier: MIT
 *
 * Ranks as processes, over plain MPI-3. Messages are nonblocking sends and
 * receives; a second communicator carries failures, for which every rank has a
 * receive posted from the start.
 *
 * Invariant: MPI never ends the process; its errors come back as statuses. */
#include "comm/comm.h"

#include "base/arguments.h"

#ifndef SLUICE_HAS_MPI

sl_status sl_mpi_create(sl_comm **out)
{
    SL__NEED(out);
    return sl_fail(SL_ENOTFOUND, "Sluice was built without MPI");
}

#else

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#include <mpi.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A failure on its way to another rank. */
typedef struct failure {
    int status;
    char sentence[SL__ERROR_TEXT_MAX];
} failure;

/* An answer, and the number of the question. */
typedef struct reply {
    int number;
    char text[SL_COMM_ANSWER_MAX];
} reply;

typedef struct end {
    sl_comm comm; /* first */
    MPI_Comm messages;
    MPI_Comm failures;
    MPI_Request listening; /* for a failure */
    failure heard;
    bool failed;
    bool started_mpi;
    /* Questions, and what is answered: one after the other. */
    MPI_Request asked, answering;
    int question, questions; /* its number, and how many this rank has asked */
    reply answer;
} end;

/* Tags of messages that are not the caller's. */
enum { TAG_FAILURE, TAG_NOBODY, TAG_QUESTION, TAG_ANSWER };

/* What a request holds of ours. */
typedef struct post {
    MPI_Request request;
    size_t bytes;
    size_t found; /* bytes of a message that was refused for its size */
    int peer;
    int tag;
    bool is_recv;
    bool done;
    bool refused;
} post;
_Static_assert(sizeof(post) <= sizeof(((sl_request *)0)->transport),
               "a request has room for a post");

static end *end_of(sl_comm *comm)
{
    return (end *)comm;
}

static post *post_of(sl_request *request)
{
    return (post *)(void *)request->transport;
}

static sl_status fail_mpi(const sl_comm *comm, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    return sl_fail(SL_EIO, "rank %d: %s: %.300s", comm->rank, what, text);
}

/* ------------------------------------------------------------- failures -- */

static void listen_for_questions(end *own)
{
    MPI_Irecv(&own->question, 1, MPI_INT, MPI_ANY_SOURCE, TAG_QUESTION,
              own->failures, &own->asked);
}

/* Answers a question that has come, unless the last answer has not left. */
static void answer_mpi(end *own)
{
    int left = 1, there = 0;
    MPI_Status from;
    if (own->answering != MPI_REQUEST_NULL)
        MPI_Test(&own->answering, &left, MPI_STATUS_IGNORE);
    if (left)
        MPI_Test(&own->asked, &there, &from);
    if (!there || own->asked != MPI_REQUEST_NULL)
        return;
    own->answer = (reply){.number = own->question};
    sl__comm_call_answer(&own->comm, own->answer.text);
    MPI_Isend(&own->answer, sizeof own->answer, MPI_BYTE, from.MPI_SOURCE,
              TAG_ANSWER, own->failures, &own->answering);
    listen_for_questions(own);
}

static sl_status check_mpi(sl_comm *comm)
{
    end *own = end_of(comm);
    int heard = 0;
    answer_mpi(own);
    if (!own->failed) {
        MPI_Test(&own->listening, &heard, MPI_STATUS_IGNORE);
        own->failed = heard;
    }
    if (!own->failed)
        return SL_OK;
    own->heard.sentence[SL__ERROR_TEXT_MAX - 1] = '\0';
    return sl__fail_lines((sl_status)own->heard.status, own->heard.sentence);
}

static void listen_for_answer(end *own, int rank, reply *to,
                              MPI_Request *request)
{
    MPI_Irecv(to, sizeof *to, MPI_BYTE, rank, TAG_ANSWER, own->failures,
              request);
}

/* Takes the answers that have come; true while some have not. One to an earlier
 * question, which nobody waited for, is passed over. */
static bool take_answers(end *own, MPI_Request *requests, reply *replies,
                         char (*texts)[SL_COMM_ANSWER_MAX])
{
    bool missing = false;
    for (int i = 0; i < own->comm.size; i++) {
        int there = 0;
        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Test(&requests[i], &there, MPI_STATUS_IGNORE);
        if (there && replies[i].number == own->questions) {
            memcpy(texts[i], replies[i].text, SL_COMM_ANSWER_MAX);
            texts[i][SL_COMM_ANSWER_MAX - 1] = '\0';
            continue;
        }
        if (there)
            listen_for_answer(own, i, &replies[i], &requests[i]);
        missing = true;
    }
    return missing;
}

/* Asks everybody at once, and listens for a while. */
static void ask_mpi(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                    double timeout_s)
{
    end *own = end_of(comm);
    MPI_Request answers[SL_COMM_MAX_RANKS], sent[SL_COMM_MAX_RANKS];
    reply *replies;
    if (sl__alloc((size_t)comm->size, sizeof *replies, &replies))
        return;
    own->questions++;
    for (int i = 0; i < comm->size; i++) {
        answers[i] = sent[i] = MPI_REQUEST_NULL;
        if (i == comm->rank)
            continue;
        listen_for_answer(own, i, &replies[i], &answers[i]);
        MPI_Isend(&own->questions, 1, MPI_INT, i, TAG_QUESTION, own->failures,
                  &sent[i]);
    }
    double until = sl__seconds() + timeout_s;
    while (take_answers(own, answers, replies, texts) &&
           sl__seconds() < until) {
        answer_mpi(own);
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    for (int i = 0; i < comm->size; i++) {
        /* A question is a few bytes, which have left, or never will. */
        if (sent[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&sent[i]);
        if (answers[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&answers[i]);
            MPI_Wait(&answers[i], MPI_STATUS_IGNORE);
        }
    }
    free(replies);
}

/* Tells every other rank, and gives the news a second to leave. */
static void abort_mpi(sl_comm *comm, sl_status status, const char *sentence)
{
    end *own = end_of(comm);
    if (check_mpi(comm))
        return;
    MPI_Status how;
    int cancelled;
    MPI_Cancel(&own->listening);
    MPI_Wait(&own->listening, &how);
    MPI_Test_cancelled(&how, &cancelled);
    own->failed = true;
    if (!cancelled)
        return; /* Somebody else's came just now. */
    own->heard.status = (int)status;
    snprintf(own->heard.sentence, sizeof own->heard.sentence, "%s", sentence);
    MPI_Request sends[SL_COMM_MAX_RANKS];
    /* No more than there is to say: what is short arrives at once. */
    int bytes =
        (int)(offsetof(failure, sentence) + strlen(own->heard.sentence) + 1);
    int count = 0, done = 0;
    for (int i = 0; i < comm->size; i++) {
        if (i != comm->rank)
            MPI_Isend(&own->heard, bytes, MPI_BYTE, i, TAG_FAILURE,
                      own->failures, &sends[count++]);
    }
    double until = sl__seconds() + 1;
    while (!done && sl__seconds() < until) {
        MPI_Testall(count, sends, &done, MPI_STATUSES_IGNORE);
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}

/* ------------------------------------------------------------- messages -- */

static sl_status check_bytes(const sl_comm *comm, size_t bytes)
{
    if (bytes <= INT32_MAX)
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "rank %d: a message of %zu bytes; over MPI the most is %d",
                   comm->rank, bytes, INT32_MAX);
}

static sl_status send_mpi(sl_comm *comm, sl__stream *stream, int peer, int tag,
                          const void *data, size_t bytes, sl_request *request)
{
    (void)stream; /* Memory of the process. */
    post *own = post_of(request);
    sl_status status = check_bytes(comm, bytes);
    if (status)
        return status;
    *own = (post){.bytes = bytes, .peer = peer, .tag = tag};
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag,
                         end_of(comm)->messages, &own->request);
    return code ? fail_mpi(comm, "sending", code) : SL_OK;
}

static sl_status recv_mpi(sl_comm *comm, sl__stream *stream, int peer, int tag,
                          void *buffer, size_t bytes, sl_request *request)
{
    (void)stream;
    post *own = post_of(request);
    sl_status status = check_bytes(comm, bytes);
    if (status)
        return status;
    *own = (post){.bytes = bytes, .peer = peer, .tag = tag, .is_recv = true};
    int code = MPI_Irecv(buffer, (int)bytes, MPI_BYTE, peer, tag,
                         end_of(comm)->messages, &own->request);
    return code ? fail_mpi(comm, "receiving", code) : SL_OK;
}

static sl_status refuse_size(const sl_comm *comm, post *own)
{
    own->refused = own->done = true;
    if (own->found <= own->bytes)
        return sl_fail(SL_EINVAL,
                       "rank %d expects %zu bytes of rank %d under tag %d, "
                       "found %zu",
                       comm->rank, own->bytes, own->peer, own->tag, own->found);
    return sl_fail(SL_EINVAL,
                   "rank %d expects %zu bytes of rank %d under tag %d, found "
                   "more",
                   comm->rank, own->bytes, own->peer, own->tag);
}

static sl_status test_mpi(sl_comm *comm, sl_request *request, bool *out_done)
{
    post *own = post_of(request);
    MPI_Status how;
    int done = own->done, count = 0;
    if (own->refused)
        return refuse_size(comm, own);
    if (!done) {
        int code = MPI_Test(&own->request, &done, &how);
        int class = MPI_SUCCESS;
        if (code)
            MPI_Error_class(code, &class);
        if (class == MPI_ERR_TRUNCATE) {
            own->found = own->bytes + 1;
            return refuse_size(comm, own);
        }
        if (code)
            return fail_mpi(comm, "a message", code);
        if (done && own->is_recv) {
            MPI_Get_count(&how, MPI_BYTE, &count);
            own->found = (size_t)count;
            if (own->found != own->bytes)
                return refuse_size(comm, own);
        }
        own->done = done;
        if (done)
            request->done_s = sl__seconds();
    }
    *out_done = done;
    return done ? SL_OK : check_mpi(comm);
}

/* A receive that nothing has come for can be taken back. What is under way is
 * given a moment; then it is left to MPI, with its memory. */
static void cancel_mpi(sl_comm *comm, sl_request *request)
{
    const double moment = 0.2;
    post *own = post_of(request);
    int done = 0;
    if (own->done)
        return;
    if (own->is_recv)
        MPI_Cancel(&own->request);
    double start = sl__seconds();
    do {
        MPI_Test(&own->request, &done, MPI_STATUS_IGNORE);
    } while (!done && !comm->holds_memory && sl__seconds() - start < moment);
    if (done)
        return;
    comm->holds_memory = true;
    MPI_Request_free(&own->request);
}

static void wait_mpi(sl_comm *comm, sl_request *request, double timeout_s)
{
    double start = sl__seconds();
    bool done = false;
    for (int tries = 0; !done; tries++) {
        if (test_mpi(comm, request, &done) || done)
            return;
        double waited = sl__seconds() - start;
        if (waited >= timeout_s)
            return;
        /* Ranks may be more than cores: let others run. */
        if (waited > 1e-3)
            nanosleep(&(struct timespec){0, 50000}, NULL);
        else if (tries > 50)
            sched_yield();
    }
}

static sl_status progress_mpi(sl_comm *comm)
{
    int there;
    /* Looking for a message that nobody sends moves those that are under way.
     */
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOBODY, end_of(comm)->failures, &there,
               MPI_STATUS_IGNORE);
    return check_mpi(comm);
}

/* ----------------------------------------------------------------- life -- */

/* Waits until all ranks have come to their end; after a failure for a moment
 * alone, for then some may be gone. True where all are there and none has left
 * memory to MPI: then MPI may end. A rank that leaves without ending it gets
 * the others killed by what launched them, before they have said why. */
static bool all_end(sl_comm *comm)
{
    const double most_failed = 3;
    MPI_Request request;
    int done = 0, left = comm->holds_memory, any_left = 0;
    double start = sl__seconds();
    bool failed = check_mpi(comm);
    if (MPI_Iallreduce(&left, &any_left, 1, MPI_INT, MPI_MAX,
                       end_of(comm)->failures, &request))
        return false;
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        double waited = sl__seconds() - start;
        failed = check_mpi(comm);
        if (!done && failed && waited > most_failed)
            return false;
        if (waited > 1e-3)
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return !any_left;
}

/* Takes back a receive that nothing has come for. */
static void stop_listening(MPI_Request *request)
{
    if (*request == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void destroy_mpi(sl_comm *comm)
{
    end *own = end_of(comm);
    if (all_end(comm)) {
        stop_listening(&own->listening);
        stop_listening(&own->asked);
        if (own->answering != MPI_REQUEST_NULL)
            MPI_Wait(&own->answering, MPI_STATUS_IGNORE);
        MPI_Comm_free(&own->messages);
        MPI_Comm_free(&own->failures);
        if (own->started_mpi)
            MPI_Finalize();
        sl__comm_end(comm);
        free(own);
        return;
    }
    /* MPI may still write to what it listens with. */
    sl__comm_end(comm);
}

static const sl__transport mpi = {
    .name = "mpi",
    .destroy = destroy_mpi,
    .send = send_mpi,
    .recv = recv_mpi,
    .cancel = cancel_mpi,
    .test = test_mpi,
    .wait = wait_mpi,
    .progress = progress_mpi,
    .abort = abort_mpi,
    .check = check_mpi,
    .ask = ask_mpi,
};

static sl_status start_mpi(bool *out_started)
{
    int there, over, level;
    *out_started = false;
    MPI_Finalized(&over);
    if (over)
        return sl_fail(SL_EINVAL, "MPI has ended, and does not start twice");
    MPI_Initialized(&there);
    if (there)
        return SL_OK;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level))
        return sl_fail(SL_EIO, "MPI does not start");
    *out_started = true;
    return SL_OK;
}

static sl_status join(end *own)
{
    int rank, size, found, *most;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > SL_COMM_MAX_RANKS)
        return sl_fail(SL_EINVAL, "%d ranks, expected at most %d", size,
                       SL_COMM_MAX_RANKS);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    if (found && *most < SL_COMM_MAX_TAG - 1)
        return sl_fail(SL_EINVAL, "this MPI has tags up to %d, expected %d",
                       *most, SL_COMM_MAX_TAG - 1);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &own->messages) ||
        MPI_Comm_dup(MPI_COMM_WORLD, &own->failures))
        return sl_fail(SL_EIO, "rank %d: MPI gives no communicator", rank);
    MPI_Comm_set_errhandler(own->messages, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(own->failures, MPI_ERRORS_RETURN);
    sl_status status = sl__comm_start(&own->comm, &mpi, rank, size);
    if (status) {
        sl__comm_end(&own->comm);
        MPI_Comm_free(&own->messages);
        MPI_Comm_free(&own->failures);
        return status;
    }
    /* From here on MPI writes to `own`: nothing may fail any more. */
    MPI_Irecv(&own->heard, sizeof own->heard, MPI_BYTE, MPI_ANY_SOURCE,
              TAG_FAILURE, own->failures, &own->listening);
    own->answering = MPI_REQUEST_NULL;
    listen_for_questions(own);
    return SL_OK;
}

sl_status sl_mpi_create(sl_comm **out)
{
    SL__NEED(out);
    end *own = NULL;
    sl_status status = sl__alloc(1, sizeof *own, &own);
    if (!status)
        status = start_mpi(&own->started_mpi);
    if (!status)
        status = join(own);
    if (status) {
        if (own && own->started_mpi)
            MPI_Finalize();
        free(own);
        return status;
    }
    *out = &own->comm;
    return SL_OK;
}

#endif

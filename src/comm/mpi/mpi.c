/* SPDX-License-Identifier: MIT
 *
 * Ranks as processes, over plain MPI-3. Messages are nonblocking sends and
 * receives. A second communicator carries failures and questions, for each of
 * which every rank has a receive posted from the start.
 *
 * Invariant: MPI never ends the process; its errors are returned as
 * statuses. */
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
#include "base/try.h"

#include <assert.h>
#include <mpi.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A failure, as it is sent to other ranks. */
typedef struct failure {
    int status;
    char sentence[SL__ERROR_TEXT_MAX];
} failure;

/* An answer to another rank, and the number of its question. */
typedef struct reply {
    int number;
    char text[SL_COMM_ANSWER_MAX];
} reply;

typedef struct end {
    sl_comm comm; /* first */
    MPI_Comm messages;
    MPI_Comm control;
    bool started_mpi;
    /* The posted receive of a failure, into `failure`; `failed` is set once it
     * has arrived. */
    MPI_Request failure_recv;
    failure failure;
    bool failed;
    /* Questions of other ranks are answered one at a time: the receive of the
     * next, into `question`, and the send of the last `answer`. */
    MPI_Request question_recv, answer_send;
    int question;
    reply answer;
    int asked; /* questions of this rank so far */
} end;

/* Tags of the control communicator. */
enum { TAG_FAILURE, TAG_NOBODY, TAG_QUESTION, TAG_ANSWER };

/* This transport's part of a request. */
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

/* Sleeps between two polls, so that other processes can run. */
static void nap(void)
{
    nanosleep(&(struct timespec){0, 50000}, NULL);
}

/* Cancels a receive that no message has matched. */
static void cancel_recv(MPI_Request *request, MPI_Status *how)
{
    MPI_Cancel(request);
    MPI_Wait(request, how);
}

/* ------------------------------------------------ failures and questions -- */

static void post_question_recv(end *own)
{
    MPI_Irecv(&own->question, 1, MPI_INT, MPI_ANY_SOURCE, TAG_QUESTION,
              own->control, &own->question_recv);
}

/* Answers a question that has arrived, unless the last answer is still being
 * sent. */
static void answer_question(end *own)
{
    int sent = 1, there = 0;
    MPI_Status from;
    if (own->answer_send != MPI_REQUEST_NULL)
        MPI_Test(&own->answer_send, &sent, MPI_STATUS_IGNORE);
    if (sent)
        MPI_Test(&own->question_recv, &there, &from);
    if (!there || own->question_recv != MPI_REQUEST_NULL)
        return;
    own->answer = (reply){.number = own->question};
    sl__comm_call_answer(&own->comm, own->answer.text);
    MPI_Isend(&own->answer, sizeof own->answer, MPI_BYTE, from.MPI_SOURCE,
              TAG_ANSWER, own->control, &own->answer_send);
    post_question_recv(own);
}

static sl_status check_mpi(sl_comm *comm)
{
    end *own = end_of(comm);
    int failed = own->failed;
    answer_question(own);
    if (!failed)
        MPI_Test(&own->failure_recv, &failed, MPI_STATUS_IGNORE);
    own->failed = failed;
    if (!failed)
        return SL_OK;
    own->failure.sentence[SL__ERROR_TEXT_MAX - 1] = '\0';
    return sl__fail_lines((sl_status)own->failure.status,
                          own->failure.sentence);
}

static void post_answer_recv(end *own, int rank, reply *to,
                             MPI_Request *request)
{
    MPI_Irecv(to, sizeof *to, MPI_BYTE, rank, TAG_ANSWER, own->control,
              request);
}

/* Copies the answers that have arrived; true while some are missing. An answer
 * to an earlier question, which came too late, is skipped. */
static bool copy_answers(end *own, MPI_Request *requests, reply *replies,
                         char (*texts)[SL_COMM_ANSWER_MAX])
{
    bool missing = false;
    for (int i = 0; i < own->comm.size; i++) {
        int there = 0;
        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Test(&requests[i], &there, MPI_STATUS_IGNORE);
        if (there && replies[i].number == own->asked) {
            memcpy(texts[i], replies[i].text, SL_COMM_ANSWER_MAX);
            texts[i][SL_COMM_ANSWER_MAX - 1] = '\0';
            continue;
        }
        if (there)
            post_answer_recv(own, i, &replies[i], &requests[i]);
        missing = true;
    }
    return missing;
}

/* Asks all ranks at once and waits for their answers, answering others
 * meanwhile. */
static void ask_mpi(sl_comm *comm, char (*texts)[SL_COMM_ANSWER_MAX],
                    double timeout_s)
{
    end *own = end_of(comm);
    MPI_Request answers[SL_COMM_MAX_RANKS], sent[SL_COMM_MAX_RANKS];
    reply *replies;
    if (sl__alloc((size_t)comm->size, sizeof *replies, &replies))
        return;
    own->asked++;
    for (int i = 0; i < comm->size; i++) {
        answers[i] = sent[i] = MPI_REQUEST_NULL;
        if (i == comm->rank)
            continue;
        post_answer_recv(own, i, &replies[i], &answers[i]);
        MPI_Isend(&own->asked, 1, MPI_INT, i, TAG_QUESTION, own->control,
                  &sent[i]);
    }
    double until = sl__seconds() + timeout_s;
    while (copy_answers(own, answers, replies, texts) &&
           sl__seconds() < until) {
        answer_question(own);
        nap();
    }
    for (int i = 0; i < comm->size; i++) {
        /* A question is a few bytes: by now it has left, or never will. */
        if (sent[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&sent[i]);
        if (answers[i] != MPI_REQUEST_NULL)
            cancel_recv(&answers[i], MPI_STATUS_IGNORE);
    }
    free(replies);
}

/* Sends the failure to every other rank, and waits at most a second for
 * that. */
static void abort_mpi(sl_comm *comm, sl_status status, const char *sentence)
{
    end *own = end_of(comm);
    if (check_mpi(comm))
        return;
    MPI_Status how;
    int cancelled;
    cancel_recv(&own->failure_recv, &how);
    MPI_Test_cancelled(&how, &cancelled);
    own->failed = true;
    if (!cancelled)
        return; /* Another rank's failure has just arrived. */
    own->failure.status = (int)status;
    snprintf(own->failure.sentence, sizeof own->failure.sentence, "%s",
             sentence);
    MPI_Request sends[SL_COMM_MAX_RANKS];
    /* Only as long as the sentence: MPI sends short messages eagerly. */
    int bytes =
        (int)(offsetof(failure, sentence) + strlen(own->failure.sentence) + 1);
    int count = 0, done = 0;
    for (int i = 0; i < comm->size; i++) {
        if (i != comm->rank)
            MPI_Isend(&own->failure, bytes, MPI_BYTE, i, TAG_FAILURE,
                      own->control, &sends[count++]);
    }
    double until = sl__seconds() + 1;
    while (!done && sl__seconds() < until) {
        MPI_Testall(count, sends, &done, MPI_STATUSES_IGNORE);
        nap();
    }
}

/* ------------------------------------------------------------- messages -- */

/* Checks a message and fills in its request. MPI reads and writes host memory
 * only: messages of device memory are staged before they come here. */
static sl_status prepare(const sl_comm *comm, const sl__stream *stream,
                         size_t bytes, post filled, sl_request *request)
{
    assert(!bytes || sl__is_host(stream) || request->staged);
    (void)stream;
    if (bytes > INT32_MAX)
        return sl_fail(SL_EINVAL,
                       "rank %d: a message of %zu bytes; over MPI the most is "
                       "%d",
                       comm->rank, bytes, INT32_MAX);
    *post_of(request) = filled;
    return SL_OK;
}

static sl_status send_mpi(sl_comm *comm, sl__stream *stream, int peer, int tag,
                          const void *data, size_t bytes, sl_request *request)
{
    const post filled = {.bytes = bytes, .peer = peer, .tag = tag};
    SL__TRY(prepare(comm, stream, bytes, filled, request));
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag,
                         end_of(comm)->messages, &post_of(request)->request);
    return code ? fail_mpi(comm, "sending", code) : SL_OK;
}

static sl_status recv_mpi(sl_comm *comm, sl__stream *stream, int peer, int tag,
                          void *buffer, size_t bytes, sl_request *request)
{
    const post filled = {
        .bytes = bytes, .peer = peer, .tag = tag, .is_recv = true};
    SL__TRY(prepare(comm, stream, bytes, filled, request));
    int code = MPI_Irecv(buffer, (int)bytes, MPI_BYTE, peer, tag,
                         end_of(comm)->messages, &post_of(request)->request);
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

/* Tests a request that is not complete yet. */
static sl_status test_pending(const sl_comm *comm, post *own)
{
    MPI_Status how;
    int done = 0, count = 0, class = MPI_SUCCESS;
    int code = MPI_Test(&own->request, &done, &how);
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
    return SL_OK;
}

static sl_status test_mpi(sl_comm *comm, sl_request *request, bool *out_done)
{
    post *own = post_of(request);
    if (own->refused)
        return refuse_size(comm, own);
    if (!own->done) {
        SL__TRY(test_pending(comm, own));
        if (own->done)
            request->done_s = sl__seconds();
    }
    *out_done = own->done;
    return own->done ? SL_OK : check_mpi(comm);
}

/* A receive that no message has matched can be cancelled. A message in transit
 * gets a moment to complete; after that its memory is left to MPI. */
static void cancel_mpi(sl_comm *comm, sl_request *request)
{
    const double moment_s = 0.2;
    post *own = post_of(request);
    int done = 0;
    if (own->done)
        return;
    if (own->is_recv)
        MPI_Cancel(&own->request);
    double start = sl__seconds();
    do {
        MPI_Test(&own->request, &done, MPI_STATUS_IGNORE);
    } while (!done && !comm->holds_memory && sl__seconds() - start < moment_s);
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
        /* There may be more ranks than cores: let others run. */
        if (waited > 1e-3)
            nap();
        else if (tries > 50)
            sched_yield();
    }
}

static sl_status progress_mpi(sl_comm *comm)
{
    int there;
    /* Probing for a message that nobody sends makes MPI progress the others. */
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOBODY, end_of(comm)->control, &there,
               MPI_STATUS_IGNORE);
    return check_mpi(comm);
}

/* ----------------------------------------------------------------- life -- */

/* Waits until all ranks destroy their end; after a failure only for a while,
 * since some may be gone. True if all did and none has left memory to MPI: then
 * MPI may be finalised. A rank that exits without finalising makes the launcher
 * kill the others, before they have reported why. */
static bool all_end(sl_comm *comm)
{
    const double most_failed_s = 3;
    MPI_Request request;
    int done = 0, left = comm->holds_memory, any_left = 0;
    double start = sl__seconds();
    bool failed = check_mpi(comm);
    if (MPI_Iallreduce(&left, &any_left, 1, MPI_INT, MPI_MAX,
                       end_of(comm)->control, &request))
        return false;
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        double waited = sl__seconds() - start;
        failed = check_mpi(comm);
        if (!done && failed && waited > most_failed_s)
            return false;
        if (waited > 1e-3)
            nap();
    }
    return !any_left;
}

static void destroy_mpi(sl_comm *comm)
{
    end *own = end_of(comm);
    bool ended = all_end(comm);
    sl__comm_end(comm);
    if (!ended)
        return; /* MPI may still write into this end. */
    if (own->failure_recv != MPI_REQUEST_NULL)
        cancel_recv(&own->failure_recv, MPI_STATUS_IGNORE);
    cancel_recv(&own->question_recv, MPI_STATUS_IGNORE);
    if (own->answer_send != MPI_REQUEST_NULL)
        MPI_Wait(&own->answer_send, MPI_STATUS_IGNORE);
    MPI_Comm_free(&own->messages);
    MPI_Comm_free(&own->control);
    if (own->started_mpi)
        MPI_Finalize();
    free(own);
}

static const sl__transport mpi = {
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
        MPI_Comm_dup(MPI_COMM_WORLD, &own->control))
        return sl_fail(SL_EIO, "rank %d: MPI gives no communicator", rank);
    MPI_Comm_set_errhandler(own->messages, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(own->control, MPI_ERRORS_RETURN);
    sl_status status = sl__comm_start(&own->comm, &mpi, rank, size);
    if (status) {
        sl__comm_end(&own->comm);
        MPI_Comm_free(&own->messages);
        MPI_Comm_free(&own->control);
        return status;
    }
    /* From here on MPI writes to `own`: nothing may fail any more. */
    MPI_Irecv(&own->failure, sizeof own->failure, MPI_BYTE, MPI_ANY_SOURCE,
              TAG_FAILURE, own->control, &own->failure_recv);
    own->answer_send = MPI_REQUEST_NULL;
    post_question_recv(own);
    return SL_OK;
}

sl_status sl_mpi_create(sl_comm **out)
{
    SL__NEED(out);
    end *own;
    sl_status status;
    SL__TRY(sl__alloc(1, sizeof *own, &own));
    SL__TRY_OR(free_end, start_mpi(&own->started_mpi));
    SL__TRY_OR(finalize, join(own));
    *out = &own->comm;
    return SL_OK;
finalize:
    if (own->started_mpi)
        MPI_Finalize();
free_end:
    free(own);
    return status;
}

#endif

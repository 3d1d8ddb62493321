/* SPDX-License-Identifier: MIT
 *
 * The executor: walks a list of instructions. What goes wrong is told to every
 * rank with the action it happened in. */
#include "pipeline/runtime.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* Another seed for every microbatch. */
static uint64_t mix(uint64_t seed, int microbatch)
{
    uint64_t x = seed + 0x9e3779b97f4a7c15u * ((uint64_t)microbatch + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static sl_status run(sl_pipeline *pipeline, const sl__instruction *i,
                     const sl__bound *bound, uint64_t seed)
{
    const sl_run_options options = {mix(seed, i->microbatch),
                                    bound->scales[i->microbatch]};
    double start = sl__seconds();
    sl_status status = sl_stage_run(i->u.run.program_stage, i->u.run.program,
                                    i->u.run.memory, i->u.run.slot, &options);
    pipeline->busy_s += sl__seconds() - start;
    return status;
}

static sl_status send(sl_comm *comm, const sl__instruction *i)
{
    sl__mail *mail = i->u.message.mail;
    sl_status status =
        sl_comm_send(comm, i->u.message.peer, i->u.message.tag,
                     i->u.message.memory, i->u.message.bytes, &mail->request);
    mail->posted = !status;
    return status;
}

static sl_status post(sl_comm *comm, const sl__instruction *i)
{
    sl__mail *mail = i->u.message.mail;
    sl_status status =
        sl_comm_recv(comm, i->u.message.peer, i->u.message.tag,
                     i->u.message.memory, i->u.message.bytes, &mail->request);
    mail->posted = !status;
    return status;
}

static sl_status wait(sl_comm *comm, const sl__instruction *i, double timeout_s)
{
    sl__mail *mail = i->u.message.mail;
    if (!mail->posted)
        return SL_OK;
    sl_status status = sl_comm_wait(comm, &mail->request, timeout_s);
    if (status == SL_ETIME)
        return sl_fail(SL_ETIME,
                       "waited %g s for a message between it and stage %d on "
                       "rank %d",
                       timeout_s, i->u.message.peer_stage, i->u.message.peer);
    if (!status)
        mail->posted = false;
    return status;
}

static sl_status take(sl_pipeline *pipeline, sl__bound *bound,
                      const sl__instruction *i)
{
    int count, output = i->u.take.output;
    const sl_model_port *port = &sl_model_outputs(bound->model, &count)[output];
    if (port->is_loss) {
        double value;
        float narrow;
        if (port->dtype == SL_F64) {
            memcpy(&value, i->u.take.from, sizeof value);
        } else {
            memcpy(&narrow, i->u.take.from, sizeof narrow);
            value = (double)narrow;
        }
        pipeline->losses[i->microbatch] = value;
        pipeline->has_losses = true;
    }
    if (!bound->merges[output])
        return SL_OK;
    return sl_merge_put(bound->merges[output], i->microbatch, i->u.take.from,
                        i->u.take.bytes);
}

static sl_status execute_one(sl_pipeline *pipeline, sl__bound *bound,
                             const sl__instruction *i, const sl_batch *batch,
                             uint64_t seed)
{
    sl_comm *comm = pipeline->comm;
    switch (i->kind) {
    case SL__DO_RUN: return run(pipeline, i, bound, seed);
    case SL__DO_FEED:
        return sl_batch_copy(batch, pipeline->argument_of[i->u.feed.argument],
                             i->microbatch, i->u.feed.to, i->u.feed.bytes);
    case SL__DO_COPY:
        memcpy(i->u.copy.to, i->u.copy.from, i->u.copy.bytes);
        return SL_OK;
    case SL__DO_SEND: return send(comm, i);
    case SL__DO_RECV: return post(comm, i);
    case SL__DO_WAIT: return wait(comm, i, pipeline->options.timeout_s);
    case SL__DO_TAKE: return take(pipeline, bound, i);
    }
    return SL_OK;
}

sl_status sl__fail_all(sl_comm *comm, sl_status status, const char *text)
{
    sl_comm_abort(comm, status, text);
    /* Another rank may have been first: then it is its sentence that counts. */
    sl_status heard = sl_comm_progress(comm);
    return heard ? heard : status;
}

/* Tells all ranks what went wrong, and where, unless that is how this rank came
 * to know of it. */
static sl_status tell(sl_pipeline *pipeline, const sl__instruction *i,
                      sl_status status)
{
    static const char *const doing[] = {
        [SL__DO_FEED] = "input for ",   [SL__DO_COPY] = "copy for ",
        [SL__DO_SEND] = "send after ",  [SL__DO_RECV] = "receive for ",
        [SL__DO_WAIT] = "wait around ", [SL__DO_TAKE] = "output of "};
    char why[500], text[700];
    snprintf(why, sizeof why, "%s", sl_error_text());
    sl_status heard = sl_comm_progress(pipeline->comm);
    if (heard)
        return heard;
    bool runs = i->kind == SL__DO_RUN;
    bool message = i->kind == SL__DO_SEND || i->kind == SL__DO_RECV ||
                   i->kind == SL__DO_WAIT;
    bool backward =
        message && i->u.message.tag / pipeline->microbatches % 2 == 1;
    snprintf(text, sizeof text, "%s%c of stage %d, microbatch %d: %s",
             runs ? "" : doing[i->kind],
             runs       ? "FIWB"[i->u.run.program]
             : backward ? 'B'
                        : 'F',
             i->stage, i->microbatch, why);
    return sl__fail_all(pipeline->comm, status, text);
}

sl_status sl__execute(sl_pipeline *pipeline, sl__bound *bound,
                      const sl__instructions *list, const sl_batch *batch,
                      uint64_t seed)
{
    bool drives = !sl_comm_hands_over(pipeline->comm);
    for (size_t k = 0; k < list->count; k++) {
        const sl__instruction *i = &list->data[k];
        if (pipeline->before)
            pipeline->before();
        sl_status status = execute_one(pipeline, bound, i, batch, seed);
        /* Between processes messages move when they are looked after. */
        if (!status && drives && i->kind == SL__DO_RUN)
            status = sl_comm_progress(pipeline->comm);
        if (status) {
            status = tell(pipeline, i, status);
            for (size_t m = 0; m < bound->mail_count; m++)
                sl_comm_cancel(pipeline->comm, &bound->mails[m].request);
            return status;
        }
    }
    return SL_OK;
}

/* SPDX-License-Identifier: MIT
 *
 * Steps on a device that works on by itself. What the host gives is copied
 * there before; then all ranks of the process enqueue their lists, which are
 * recorded as one graph the first time: rank 0 begins the recording, the
 * streams of the others join it, and it replays the graph for all. */
#include "pipeline/run/runtime.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/try.h"

#include <string.h>

/* ---------------------------------------------------- beside the device -- */

sl_status sl__make_device_side(sl_pipeline *pipeline, sl__binding *binding)
{
    sl__stream *stream = pipeline->stream;
    const sl__graph_ops *graphs = pipeline->backend->graphs;
    size_t train = binding->train.count, eval = binding->eval.count;
    void *memory;
    if (!graphs)
        return SL_OK;
    size_t times = (train > eval ? train : eval) + 1;
    SL__TRY(sl__device_allocate_host(
        stream, (int64_t)(times * sizeof *binding->times), &memory));
    binding->times = memory;
    if (!binding->feed_bytes)
        return SL_OK;
    SL__TRY(sl__device_allocate_host(stream, binding->feed_bytes, &memory));
    binding->feed_host = memory;
    SL__TRY(sl__device_allocate(stream, "the batch", binding->feed_bytes,
                                &binding->feed_device));
    pipeline->holding.now += binding->feed_bytes;
    if (pipeline->holding.now > pipeline->holding.most)
        pipeline->holding.most = pipeline->holding.now;
    return SL_OK;
}

void sl__free_device_side(const sl_pipeline *pipeline, sl__binding *binding)
{
    sl__stream *stream = pipeline->stream;
    const sl__backend *backend = pipeline->backend;
    for (int train = 0; train < 2; train++)
        sl__forget_recording(backend, &binding->recordings[train]);
    sl__device_release_host(stream->buffers, (void *)binding->times);
    if (binding->feed_device)
        stream->buffers->release(stream, binding->feed_device);
    sl__device_release_host(stream->buffers, binding->feed_host);
}

sl_status sl__write_feeds(const sl_pipeline *pipeline,
                          const sl__binding *binding,
                          const sl__instructions *list, const sl_batch *batch)
{
    for (size_t k = 0; k < list->count && binding->feed_device; k++) {
        const sl__instruction *i = &list->data[k];
        if (i->kind == SL__DO_FEED)
            SL__TRY(sl__batch_load(
                batch, pipeline->argument_of[i->u.feed.argument],
                i->action.microbatch, &sl__host,
                binding->feed_host + i->u.feed.at, i->u.feed.bytes));
    }
    return binding->feed_device
               ? sl__device_write(pipeline->stream, binding->feed_device,
                                  binding->feed_host,
                                  (size_t)binding->feed_bytes)
               : SL_OK;
}

/* Reading `k` of the device's clock, but no earlier than `least`: the two
 * clocks differ by microseconds. */
static double time_at(const sl_pipeline *pipeline, const sl__binding *binding,
                      size_t k, double least)
{
    const sl__graph_ops *graphs = pipeline->backend->graphs;
    double time = graphs->seconds(pipeline->stream, binding->times[k]);
    return time > least ? time : least;
}

/* The device reads its clock where the executor would have read ours. */
void sl__read_times(sl_pipeline *pipeline, sl__binding *binding,
                    const sl__instructions *list)
{
    const double tick_s = 1e-9;
    sl__stamp *stamps = binding->stamps;
    size_t k = 0;
    if (!binding->times)
        return;
    double now = time_at(pipeline, binding, 0, pipeline->data_s[1]);
    for (; k < list->count; k++) {
        const sl__instruction *i = &list->data[k];
        stamps[k].start.seconds = now;
        /* The clock may tick slowly, but nothing takes no time. */
        if (i->timed)
            now = time_at(pipeline, binding, k + 1, now + tick_s);
        stamps[k].done_s = now;
        for (; list->data[k].joined; k++)
            stamps[k + 1].start.seconds = now;
    }
    stamps[k].start.seconds = now;
    double end = sl__seconds();
    pipeline->end_s[0] = now;
    pipeline->end_s[1] = end > now ? end : now;
}

/* ------------------------------------------------------------ recording -- */

/* The same on all ranks. Kept outputs are read by the host as they appear. */
bool sl__can_record(const sl_pipeline *pipeline, const sl__binding *binding)
{
    bool can = pipeline->records && !pipeline->options.keep_outputs;
    for (int s = 0; s < pipeline->stages; s++)
        can = can && !binding->model->parts[s].is_callbacks;
    return can;
}

void sl__forget_recording(const sl__backend *backend, sl__recording *own)
{
    if (own->graph)
        backend->graphs->forget(own->graph);
    *own = (sl__recording){0};
}

/* Gives all ranks the marks of all: they are in one process. */
static sl_status share_marks(const sl__pipeline_info *at, sl__mark *own,
                             sl__mark **all)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group group = sl__all_ranks(at->comm, ranks);
    all[sl_comm_rank(at->comm)] = own;
    return sl_comm_allgather(at->comm, &group, SL__TAG_END, sizeof *all, all,
                             (size_t)group.count, at->timeout_s);
}

static sl_status meet(const sl__pipeline_info *at)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group group = sl__all_ranks(at->comm, ranks);
    return group.count == 1
               ? SL_OK
               : sl_comm_barrier(at->comm, &group, SL__TAG_END, at->timeout_s);
}

/* Between the begin and the end of the recording, on rank 0; on the others,
 * from when their stream joins it. `marks` has room for one of each rank. */
static sl_status record_all(const sl__pipeline_info *at,
                            sl_status (*enqueue)(void *context), void *context,
                            sl__mark **marks)
{
    sl__stream *stream = at->stream;
    const sl__buffer_ops *buffers = stream->buffers;
    int rank = sl_comm_rank(at->comm), size = sl_comm_size(at->comm);
    sl__mark *own = NULL;
    if (size == 1)
        return enqueue(context);
    if (rank == 0)
        SL__TRY(buffers->mark(stream, &own));
    SL__TRY(share_marks(at, own, marks));
    if (rank > 0)
        SL__TRY(buffers->after(stream, marks[0]));
    SL__TRY(enqueue(context));
    /* By now all have joined: the first mark is no longer needed. */
    SL__TRY(meet(at));
    buffers->unmark(own);
    SL__TRY(buffers->mark(stream, &own));
    SL__TRY(share_marks(at, own, marks));
    for (int r = 1; r < size && rank == 0; r++)
        SL__TRY(buffers->after(stream, marks[r]));
    SL__TRY(meet(at));
    buffers->unmark(own);
    return SL_OK;
}

static sl_status record(const sl__pipeline_info *at, sl__recording *own,
                        sl_status (*enqueue)(void *context), void *context)
{
    sl__mark **marks;
    const sl__graph_ops *graphs = at->backend->graphs;
    bool leads = sl_comm_rank(at->comm) == 0;
    SL__TRY(sl__alloc((size_t)sl_comm_size(at->comm), sizeof *marks, &marks));
    sl_status status = leads ? graphs->begin(at->stream) : SL_OK;
    bool begun = leads && !status;
    if (!status)
        status = record_all(at, enqueue, context, marks);
    if (begun) {
        /* Also after a failure, whose sentence is kept. */
        sl_string text = SL_STRING_INIT;
        if (status)
            sl_write_string(&text, sl_error_text(), strlen(sl_error_text()));
        sl_status ended = graphs->end(at->stream, &own->graph);
        if (status && text.data)
            sl_fail(status, "%s", text.data);
        status = status ? status : ended;
        sl_string_clear(&text);
    }
    free(marks);
    own->exists = !status;
    return status;
}

sl_status sl__run_recorded(const sl__pipeline_info *at, sl__recording *own,
                           sl_status (*enqueue)(void *context), void *context)
{
    const sl__device_ops *device = &at->backend->device;
    if (!at->records) {
        SL__TRY(enqueue(context));
        return device->finish(at->stream);
    }
    if (!own->exists)
        SL__TRY(record(at, own, enqueue, context));
    /* What each rank has written for this step is there when all meet. */
    SL__TRY(meet(at));
    if (own->graph) {
        SL__TRY(at->backend->graphs->replay(at->stream, own->graph));
        SL__TRY(device->finish(at->stream));
    }
    return meet(at);
}

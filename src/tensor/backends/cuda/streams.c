/* SPDX-License-Identifier: MIT
 *
 * Streams, memory and graphs of a GPU. */
#include "tensor/backends/cuda/gpu.h"

#include "base/memory.h"
#include "base/try.h"

#include <stdatomic.h>
#include <string.h>

/* Runs a statement with the stream's GPU current. */
#define ON_GPU(stream, call)                                                   \
    do {                                                                       \
        sl__gpu *gpu_ = sl__cuda_of(stream)->gpu;                              \
        SL__TRY(sl__gpu_enter(gpu_));                                          \
        sl_status status_ = (call);                                            \
        sl__gpu_leave(gpu_);                                                   \
        return status_;                                                        \
    } while (0)

static CUdeviceptr address(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static CUstream handle_of(const sl__stream *stream)
{
    return sl__cuda_of(stream)->handle;
}

/* -------------------------------------------------------------- streams -- */

/* Of what can run, the GPU takes what is urgent first: what others wait for. */
static sl_status create(CUstream *out, bool is_urgent)
{
    int least, most;
    SL__CUDA(cuCtxGetStreamPriorityRange_(&least, &most));
    SL__CUDA(cuStreamCreateWithPriority_(out, CU_STREAM_NON_BLOCKING,
                                         is_urgent ? most : least));
    return SL_OK;
}

static sl_status open_stream(sl__gpu *gpu, bool is_urgent, sl__stream **out)
{
    sl__cuda_stream *stream;
    SL__TRY(sl__alloc(1, sizeof *stream, &stream));
    stream->stream.buffers = &sl__cuda_buffers;
    stream->gpu = gpu;
    pthread_mutex_init(&stream->opening, NULL);
    sl_status status = sl__gpu_enter(gpu);
    if (!status) {
        status = create(&stream->handle, is_urgent);
        sl__gpu_leave(gpu);
    }
    if (status)
        free(stream);
    else
        *out = &stream->stream;
    return status;
}

sl_status sl__cuda_open_stream(sl__device *device, sl__stream **out)
{
    return open_stream(device->gpu, true, out);
}

void sl__cuda_drop_stream(sl__cuda_stream *own)
{
    for (int i = 0; i < SL__CUDA_SIDES; i++) {
        if (own->sides[i])
            sl__cuda_drop_stream(own->sides[i]);
    }
    if (sl__gpu_enter(own->gpu) == SL_OK) {
        sl__cuda.cuStreamSynchronize_(own->handle);
        sl__cuda.cuStreamDestroy_(own->handle);
        sl__gpu_leave(own->gpu);
    }
    free(own);
}

/* After a failure another rank may still record, with this stream in it. */
void sl__cuda_close_stream(sl__stream *stream)
{
    if (!stream)
        return;
    sl__cuda_await_recordings();
    sl__cuda_drop_stream(sl__cuda_of(stream));
}

/* A side stream, if it has been opened; else keeps `made` as that one. */
static sl__cuda_stream *find_side(sl__cuda_stream *own, int index,
                                  sl__cuda_stream *made)
{
    pthread_mutex_lock(&own->opening);
    if (!own->sides[index])
        own->sides[index] = made;
    sl__cuda_stream *found = own->sides[index];
    pthread_mutex_unlock(&own->opening);
    return found;
}

/* Threads of other ranks ask, too, and one that asks may hold the GPU's lock:
 * so none is opened while `opening` is held. */
static sl_status side(sl__stream *stream, int which, sl__stream **out)
{
    int index =
        which < 0 ? -1 - which
                  : SL__SIDE_KINDS + which % (SL__CUDA_SIDES - SL__SIDE_KINDS);
    sl__cuda_stream *own = sl__cuda_of(stream);
    sl__cuda_stream *found = find_side(own, index, NULL);
    if (!found) {
        sl__stream *made;
        SL__TRY(open_stream(own->gpu, which > SL__SIDE_GIVES_WAY, &made));
        found = find_side(own, index, sl__cuda_of(made));
        if (&found->stream != made)
            sl__cuda_drop_stream(sl__cuda_of(made));
    }
    *out = &found->stream;
    return SL_OK;
}

/* ---------------------------------------------------------------- marks -- */

static sl_status take_mark(sl__gpu *gpu, sl__mark **out)
{
    pthread_mutex_lock(&gpu->marks);
    sl__mark *found = gpu->unused;
    if (found)
        gpu->unused = found->next;
    pthread_mutex_unlock(&gpu->marks);
    if (!found) {
        SL__TRY(sl__alloc(1, sizeof *found, &found));
        CUresult result =
            sl__cuda.cuEventCreate_(&found->event, CU_EVENT_DISABLE_TIMING);
        if (result) {
            free(found);
            return sl__cuda_check(result, "cuEventCreate");
        }
        found->gpu = gpu;
    }
    *out = found;
    return SL_OK;
}

static void unmark(sl__mark *mark)
{
    if (!mark)
        return;
    sl__gpu *gpu = mark->gpu;
    pthread_mutex_lock(&gpu->marks);
    mark->next = gpu->unused;
    gpu->unused = mark;
    pthread_mutex_unlock(&gpu->marks);
}

static sl_status record_mark(sl__stream *stream, sl__mark **out)
{
    SL__TRY(take_mark(sl__cuda_of(stream)->gpu, out));
    sl_status status = sl__cuda_check(
        sl__cuda.cuEventRecord_((*out)->event, handle_of(stream)),
        "cuEventRecord");
    if (status) {
        unmark(*out);
        *out = NULL;
    }
    return status;
}

static sl_status mark(sl__stream *stream, sl__mark **out)
{
    ON_GPU(stream, record_mark(stream, out));
}

static sl_status after(sl__stream *stream, const sl__mark *mark)
{
    ON_GPU(stream, sl__cuda_check(sl__cuda.cuStreamWaitEvent_(handle_of(stream),
                                                              mark->event, 0),
                                  "cuStreamWaitEvent"));
}

/* --------------------------------------------------------------- memory -- */

static sl_status allocate_here(sl__stream *stream, int64_t bytes, void **out)
{
    CUdeviceptr memory;
    size_t size = (size_t)(bytes ? sl__aligned(bytes) : SL__ALIGNMENT);
    CUresult result = sl__cuda.cuMemAlloc_(&memory, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        size_t available = 0, all = 0;
        sl__cuda.cuMemGetInfo_(&available, &all);
        return sl_fail(SL_ENOMEM,
                       "out of memory: a pool of %lld bytes, and GPU %d has "
                       "%lld of %lld bytes left",
                       (long long)bytes, sl__cuda_of(stream)->gpu->number,
                       (long long)available, (long long)all);
    }
    SL__TRY(sl__cuda_check(result, "cuMemAlloc"));
    result = sl__cuda.cuMemsetD8Async_(memory, 0, size, handle_of(stream));
    /* Other streams may use it at once. */
    if (!result)
        result = sl__cuda.cuStreamSynchronize_(handle_of(stream));
    if (result)
        sl__cuda.cuMemFree_(memory);
    *out = (void *)(uintptr_t)memory;
    return sl__cuda_check(result, "cuMemsetD8Async");
}

static sl_status allocate(sl__stream *stream, int64_t bytes, void **out)
{
    ON_GPU(stream, allocate_here(stream, bytes, out));
}

static void release(sl__stream *stream, void *memory)
{
    sl__gpu *gpu = sl__cuda_of(stream)->gpu;
    if (!memory || sl__gpu_enter(gpu))
        return;
    sl__cuda.cuMemFree_(address(memory));
    sl__gpu_leave(gpu);
}

/* Before memory of this process: the GPU that pinned it. */
enum { HEADER = SL__ALIGNMENT };

static sl_status allocate_host_here(sl__gpu *gpu, int64_t bytes, void **out)
{
    void *memory;
    size_t size = (size_t)bytes + HEADER;
    SL__CUDA(cuMemHostAlloc_(
        &memory, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(memory, 0, size);
    *(sl__gpu **)memory = gpu;
    *out = (char *)memory + HEADER;
    return SL_OK;
}

static sl_status allocate_host(sl__stream *stream, int64_t bytes, void **out)
{
    ON_GPU(stream, allocate_host_here(gpu_, bytes, out));
}

static void release_host(void *memory)
{
    void *whole = (char *)memory - HEADER;
    sl__gpu *gpu = *(sl__gpu **)whole;
    if (sl__gpu_enter(gpu))
        return;
    sl__cuda.cuMemFreeHost_(whole);
    sl__gpu_leave(gpu);
}

static sl_status move(sl__stream *stream, void *to, const void *from,
                      size_t bytes)
{
    return bytes ? sl__cuda_check(sl__cuda.cuMemcpyAsync_(address(to),
                                                          address(from), bytes,
                                                          handle_of(stream)),
                                  "cuMemcpyAsync")
                 : SL_OK;
}

static sl_status move_now(sl__stream *stream, void *to, const void *from,
                          size_t bytes)
{
    SL__TRY(move(stream, to, from, bytes));
    return sl__cuda_check(sl__cuda.cuStreamSynchronize_(handle_of(stream)),
                          "cuStreamSynchronize");
}

static sl_status copy(sl__stream *stream, void *to, const void *from,
                      size_t bytes)
{
    ON_GPU(stream, move(stream, to, from, bytes));
}

static sl_status write_or_read(sl__stream *stream, void *to, const void *from,
                               size_t bytes)
{
    ON_GPU(stream, move_now(stream, to, from, bytes));
}

static sl_status clear(sl__stream *stream, void *memory, size_t bytes)
{
    if (!bytes)
        return SL_OK;
    ON_GPU(stream,
           sl__cuda_check(sl__cuda.cuMemsetD8Async_(address(memory), 0, bytes,
                                                    handle_of(stream)),
                          "cuMemsetD8Async"));
}

static sl_status add(sl__stream *stream, sl_dtype dtype, void *to,
                     const void *from, int64_t count)
{
    const map_params p = {.a = to,
                          .b = from,
                          .out = to,
                          .op = MAP_ADD,
                          .dtype = {dtype, dtype, dtype},
                          .count = count};
    return sl__cuda_map(sl__cuda_of(stream), &p);
}

static sl_status convert(sl__stream *stream, sl_dtype to_dtype, void *to,
                         sl_dtype from_dtype, const void *from, int64_t count)
{
    const map_params p = {.a = from,
                          .out = to,
                          .op = MAP_COPY,
                          .dtype = {from_dtype, 0, to_dtype},
                          .count = count};
    return sl__cuda_map(sl__cuda_of(stream), &p);
}

static sl_status square_sum(sl__stream *stream, sl_dtype dtype,
                            const void *from, int64_t count, void *to)
{
    const sl__update_args args = {.dtype = dtype,
                                  .gradient_dtype = dtype,
                                  .gradient = (void *)from,
                                  .count = count};
    double *each[] = {to};
    void *scratch;
    SL__TRY(allocate(stream, sl__cuda_squares_bytes(count), &scratch));
    sl_status status = sl__cuda_squares(stream, &args, each, 1, NULL, scratch);
    /* The sum may still be on its way. */
    if (!status)
        status = sl__backend_cuda.device.finish(stream);
    release(stream, scratch);
    return status;
}

const sl__buffer_ops sl__cuda_buffers = {
    .kind = "GPU",
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .write = write_or_read,
    .read = write_or_read,
    .copy = copy,
    .clear = clear,
    .discard = clear,
    .add = add,
    .convert = convert,
    .square_sum = square_sum,
    .mark = mark,
    .after = after,
    .unmark = unmark,
    .side = side,
};

/* --------------------------------------------------------------- graphs -- */

/* From here on, threads that enqueue on this GPU do so one at a time: the
 * recording is one structure. */
static sl_status begin_graph(sl__stream *stream)
{
    sl__gpu *gpu = sl__cuda_of(stream)->gpu;
    SL__TRY(sl__gpu_enter(gpu));
    sl__gpu_leave(gpu);
    SL__TRY(
        sl__cuda_check(sl__cuda.cuStreamBeginCapture_(
                           handle_of(stream), CU_STREAM_CAPTURE_MODE_RELAXED),
                       "cuStreamBeginCapture"));
    sl__cuda_count_recordings(1);
    return SL_OK;
}

static sl_status end_graph(sl__stream *stream, void **out_graph)
{
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    *out_graph = NULL;
    sl__cuda_count_recordings(-1);
    CUresult result = sl__cuda.cuStreamEndCapture_(handle_of(stream), &graph);
    if (!result)
        result = sl__cuda.cuGraphInstantiate_(&made, graph, 0);
    if (graph)
        sl__cuda.cuGraphDestroy_(graph);
    *out_graph = made;
    return sl__cuda_check(result, "cuGraphInstantiate");
}

static sl_status replay(sl__stream *stream, void *graph)
{
    ON_GPU(stream,
           sl__cuda_check(sl__cuda.cuGraphLaunch_(graph, handle_of(stream)),
                          "cuGraphLaunch"));
}

static void forget_graph(void *graph)
{
    if (graph)
        sl__cuda.cuGraphExecDestroy_(graph);
}

static double seconds(const sl__stream *stream, uint64_t stamp)
{
    return (double)stamp * 1e-9 +
           atomic_load(&sl__cuda_of(stream)->gpu->clock_offset);
}

const sl__graph_ops sl__cuda_graphs = {
    .begin = begin_graph,
    .end = end_graph,
    .replay = replay,
    .forget = forget_graph,
    .seconds = seconds,
};

/* SPDX-License-Identifier: MIT
 *
 * A driver without a GPU, for tests of what the host does: memory is this
 * process's, copies and stamps are done, kernels are only counted. Recording
 * has the rules of CUDA: streams join a recording by events, and must have been
 * waited for when it ends; what may not happen while one goes on ends the
 * process.
 *
 * FAKE_CUDA_BYTES: how much memory there is. FAKE_CUDA_REPORT: a file for a
 * line at exit: allocations, those after the first replay, launches, replays,
 * and allocations of pinned memory. */
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAMS_MAX = 4096, NAMES = 64 };

/* How far each stream of a recording has come, as something knows it. */
typedef struct known {
    int count;
    struct {
        CUstream stream;
        uint64_t at;
    } seen[64];
} known;

struct CUstream_st {
    struct CUgraph_st *recording;
    uint64_t at; /* of this stream, in the recording */
    known knows;
};

struct CUevent_st {
    struct CUgraph_st *recording;
    known knows;
    double seconds;
};

struct CUfunc_st {
    char name[NAMES];
};

typedef struct operation {
    enum { COPY, FILL, STAMP } kind;
    void *to;
    const void *from;
    size_t bytes;
    int value;
} operation;

struct CUgraph_st {
    operation *operations;
    size_t count, capacity;
    uint64_t launches;
    CUstream origin;
    CUstream joined[STREAMS_MAX];
    int joined_count;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st {
    int unused;
} context;
static _Thread_local CUcontext current;
static uint64_t allocations, late_allocations, launches, replays, pinned;
static size_t held;

static size_t capacity(void)
{
    const char *bytes = getenv("FAKE_CUDA_BYTES");
    return bytes ? (size_t)strtoull(bytes, NULL, 10) : (size_t)8 << 30;
}

static void die(const char *what)
{
    fprintf(stderr, "fake CUDA: %s\n", what);
    abort();
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need_context(void)
{
    if (current != &context)
        die("no context is current");
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAKE_CUDA_REPORT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file,
            "allocations %llu late %llu launches %llu replays %llu pinned "
            "%llu\n",
            (unsigned long long)allocations,
            (unsigned long long)late_allocations, (unsigned long long)launches,
            (unsigned long long)replays, (unsigned long long)pinned);
    fclose(file);
}

/* ------------------------------------------------------------- recording -- */

static void note(known *of, CUstream stream, uint64_t at)
{
    for (int i = 0; i < of->count; i++) {
        if (of->seen[i].stream == stream) {
            if (of->seen[i].at < at)
                of->seen[i].at = at;
            return;
        }
    }
    if (of->count == (int)(sizeof of->seen / sizeof *of->seen))
        die("too many streams know of each other");
    of->seen[of->count].stream = stream;
    of->seen[of->count++].at = at;
}

static void merge(known *to, const known *from)
{
    for (int i = 0; i < from->count; i++)
        note(to, from->seen[i].stream, from->seen[i].at);
}

/* A step of a stream that is recorded. */
static void advance(CUstream stream)
{
    stream->at++;
    note(&stream->knows, stream, stream->at);
}

static void perform(const operation *o)
{
    struct timespec t;
    switch (o->kind) {
    case COPY: memmove(o->to, o->from, o->bytes); break;
    case FILL: memset(o->to, o->value, o->bytes); break;
    case STAMP:
        clock_gettime(CLOCK_MONOTONIC, &t);
        *(uint64_t *)o->to =
            (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        break;
    }
}

/* Does an operation, or records it. */
static void enqueue(CUstream stream, const operation *o)
{
    struct CUgraph_st *graph = stream->recording;
    if (!graph) {
        perform(o);
        return;
    }
    advance(stream);
    if (graph->count == graph->capacity) {
        graph->capacity = graph->capacity ? 2 * graph->capacity : 64;
        graph->operations =
            realloc(graph->operations, graph->capacity * sizeof *o);
    }
    graph->operations[graph->count++] = *o;
}

static void join(CUstream stream, struct CUgraph_st *graph)
{
    if (stream->recording == graph)
        return;
    if (stream->recording)
        die("a stream joins a second recording");
    if (graph->joined_count == STREAMS_MAX)
        die("too many streams join a recording");
    stream->recording = graph;
    stream->at = 0;
    stream->knows.count = 0;
    graph->joined[graph->joined_count++] = stream;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    need_context();
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        die("other threads allocate while this is recorded");
    pthread_mutex_lock(&mutex);
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    graph->origin = stream;
    join(stream, graph);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    struct CUgraph_st *graph = stream->recording;
    *out = graph;
    if (!graph || graph->origin != stream)
        die("a recording that was not begun here is ended");
    for (int i = 0; i < graph->joined_count; i++) {
        CUstream other = graph->joined[i];
        uint64_t seen = 0;
        for (int k = 0; k < stream->knows.count; k++) {
            if (stream->knows.seen[k].stream == other)
                seen = stream->knows.seen[k].at;
        }
        if (seen < other->at)
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        other->recording = NULL;
    }
    if (result) {
        free(graph->operations);
        free(graph);
        *out = NULL;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    need_context();
    pthread_mutex_lock(&mutex);
    event->recording = stream->recording;
    event->knows = stream->knows;
    event->seconds = now();
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    need_context();
    pthread_mutex_lock(&mutex);
    if (event->recording) {
        join(stream, event->recording);
        merge(&stream->knows, &event->knows);
    } else if (stream->recording) {
        die("what is recorded waits for what is not");
    }
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

/* The fake's cuBLASLt records nothing. */
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    (void)graph, (void)nodes;
    *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    (void)node, (void)type;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph,
                            unsigned long long flags)
{
    (void)flags;
    struct CUgraph_st *copy = malloc(sizeof *copy);
    *copy = *graph;
    copy->operations = malloc((graph->count + 1) * sizeof(operation));
    if (graph->count)
        memcpy(copy->operations, graph->operations,
               graph->count * sizeof(operation));
    *out = (CUgraphExec)copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    free(graph->operations);
    free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    return cuGraphDestroy((CUgraph)graph);
}

CUresult cuGraphLaunch(CUgraphExec made, CUstream stream)
{
    struct CUgraph_st *graph = (struct CUgraph_st *)made;
    need_context();
    pthread_mutex_lock(&mutex);
    if (stream->recording)
        die("a graph is replayed while one is recorded");
    for (size_t i = 0; i < graph->count; i++)
        perform(&graph->operations[i]);
    launches += graph->launches;
    replays++;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ work -- */

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                          void **parameters, void **extra)
{
    CUstream stream = config->hStream;
    unsigned blocks = config->gridDimX * config->gridDimY * config->gridDimZ;
    unsigned threads =
        config->blockDimX * config->blockDimY * config->blockDimZ;
    (void)extra;
    need_context();
    if (!blocks || !threads || threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    if (strcmp(function->name, "stamp") == 0)
        enqueue(stream,
                &(operation){STAMP, **(void ***)parameters, NULL, 0, 0});
    else if (stream->recording)
        advance(stream);
    if (stream->recording)
        stream->recording->launches++;
    else
        launches++;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       CUstream stream)
{
    need_context();
    pthread_mutex_lock(&mutex);
    enqueue(stream,
            &(operation){COPY, (void *)to, (const void *)from, bytes, 0});
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                         CUstream stream)
{
    need_context();
    pthread_mutex_lock(&mutex);
    enqueue(stream, &(operation){FILL, (void *)to, NULL, bytes, value});
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    need_context();
    return stream->recording ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                             : CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- memory -- */

/* The size lies before the memory. */
enum { HEADER = 256 };

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    void *memory = NULL;
    need_context();
    pthread_mutex_lock(&mutex);
    bool fits = held + bytes <= capacity();
    held += fits ? bytes : 0;
    allocations++;
    late_allocations += replays > 0;
    pthread_mutex_unlock(&mutex);
    if (!fits || posix_memalign(&memory, HEADER, bytes + HEADER))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(memory, &bytes, sizeof bytes);
    *out = (CUdeviceptr)((char *)memory + HEADER);
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr memory)
{
    size_t bytes;
    need_context();
    if (!memory)
        return CUDA_SUCCESS;
    memcpy(&bytes, (char *)memory - HEADER, sizeof bytes);
    pthread_mutex_lock(&mutex);
    held -= bytes;
    pthread_mutex_unlock(&mutex);
    free((char *)memory - HEADER);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *available, size_t *all)
{
    need_context();
    *all = capacity();
    *available = *all - held;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    need_context();
    pthread_mutex_lock(&mutex);
    pinned++;
    pthread_mutex_unlock(&mutex);
    *out = calloc(1, bytes);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

/* --------------------------------------------------------------- objects -- */

CUresult cuCtxGetStreamPriorityRange(int *least, int *most)
{
    need_context();
    *least = 0;
    *most = -5;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    (void)flags;
    if (priority > 0 || priority < -5)
        return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    if (stream->recording)
        die("a stream is destroyed while it is recorded");
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    *ms = (float)(1e3 * (end->seconds - start->seconds));
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    *out = (CUmodule)(uintptr_t)image;
    return image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    (void)module;
    *out = calloc(1, sizeof **out);
    snprintf((*out)->name, NAMES, "%s", name);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- device -- */

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return getenv("FAKE_CUDA_NONE") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = 99000;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
    (void)result;
    *text = "a failure of the fake";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int number)
{
    *out = number;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *out, int size, CUdevice device)
{
    (void)device;
    snprintf(out, (size_t)size, "Fake GPU");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute what,
                              CUdevice device)
{
    (void)device;
    *out = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
           : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                  : 100;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = capacity();
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b)
{
    *can = a == b;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    (void)device;
    *out = &context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext given)
{
    current = given;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags)
{
    (void)other;
    (void)flags;
    return CUDA_SUCCESS;
}

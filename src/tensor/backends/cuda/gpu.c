/* SPDX-License-Identifier: MIT
 *
 * The GPUs of this machine, and the table of the `cuda` backend. */
#include "tensor/backends/cuda/gpu.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/try.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GPUS_MAX = 64 };
static sl__gpu *gpus[GPUS_MAX];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Of this thread: its current context, and how often it holds `recorder`. */
static _Thread_local CUcontext current;
static _Thread_local int held;

/* While a graph is recorded, which may span all GPUs, threads enqueue one at a
 * time: it is one structure. */
static pthread_mutex_t recorder;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int recordings;

static void make_recorder(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recorder, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

void sl__cuda_count_recordings(int more)
{
    pthread_once(&once, make_recorder);
    atomic_fetch_add(&recordings, more);
}

void sl__cuda_await_recordings(void)
{
    while (atomic_load(&recordings))
        usleep(100);
}

sl_status sl__gpu_enter(sl__gpu *gpu)
{
    sl_status status = SL_OK;
    if (current != gpu->context)
        status = sl__cuda_check(sl__cuda.cuCtxSetCurrent_(gpu->context),
                                "cuCtxSetCurrent");
    if (status)
        return status;
    current = gpu->context;
    if (held || atomic_load(&recordings)) {
        pthread_mutex_lock(&recorder);
        held++;
    }
    return SL_OK;
}

void sl__gpu_leave(sl__gpu *gpu)
{
    (void)gpu;
    if (held) {
        held--;
        pthread_mutex_unlock(&recorder);
    }
}

/* -------------------------------------------------------------- kernels -- */

/* The files of kernels, each a fat binary for several architectures. */
#define FILE_OF(name)                                                          \
    extern const char sl__cuda_file_##name[];                                  \
    __asm__(".pushsection .rodata\n"                                           \
            ".balign 64\n"                                                     \
            ".global sl__cuda_file_" #name "\n"                                \
            ".hidden sl__cuda_file_" #name "\n"                                \
            "sl__cuda_file_" #name ":\n"                                       \
            ".incbin \"" SLUICE_CUDA_KERNELS "/" #name ".fatbin\"\n"           \
            ".popsection\n");
FILE_OF(elements)
FILE_OF(sums)
FILE_OF(norms)
FILE_OF(losses)
FILE_OF(embeddings)
FILE_OF(attention)
FILE_OF(flash)
FILE_OF(products)
FILE_OF(updates)

static sl_status load_kernels(sl__gpu *gpu)
{
    static const struct {
        const char *name;
        const char *data;
    } kernels[] = {
#define KERNEL(name, file) {#name, sl__cuda_file_##file},
#include "tensor/backends/cuda/kernels.def"
#undef KERNEL
    };
    CUmodule module = NULL;
    for (int i = 0; i < SL__CUDA_KERNELS; i++) {
        /* Those of a file are adjacent. */
        if (i == 0 || kernels[i].data != kernels[i - 1].data)
            SL__CUDA(cuModuleLoadData_(&module, kernels[i].data));
        SL__CUDA(
            cuModuleGetFunction_(&gpu->functions[i], module, kernels[i].name));
    }
    return SL_OK;
}

/* -------------------------------------------------------------- opening -- */

/* Compares the clock of the GPU with ours: the least of a few tries is the
 * closest. */
static sl_status set_clock(sl__gpu *gpu)
{
    enum { TRIES = 8 };
    sl__device device = {gpu, true};
    sl__stream *stream;
    void *memory;
    double least = INFINITY;
    SL__TRY(sl__cuda_open_stream(&device, &stream));
    sl_status status =
        sl__device_allocate_host(stream, sizeof(uint64_t), &memory);
    volatile uint64_t *stamp = status ? NULL : memory;
    for (int i = 0; i < TRIES && !status; i++) {
        sl__event event = {.stamp = stamp};
        double before = sl__seconds();
        status = sl__backend_cuda.device.record(stream, &event);
        if (!status)
            status = sl__backend_cuda.device.finish(stream);
        double after = sl__seconds();
        if (after - before >= least)
            continue;
        least = after - before;
        atomic_store(&gpu->clock_offset,
                     (before + after) / 2 - (double)*stamp * 1e-9);
    }
    atomic_store(&gpu->clock_set, sl__seconds());
    if (!status)
        sl__device_release_host(stream->buffers, memory);
    sl__cuda_drop_stream(sl__cuda_of(stream));
    return status;
}

static sl_status ask(CUdevice device, CUdevice_attribute what, int *out)
{
    SL__CUDA(cuDeviceGetAttribute_(out, what, device));
    return SL_OK;
}

static sl_status fill(int number, sl__gpu *gpu)
{
    size_t bytes;
    gpu->number = number;
    SL__CUDA(cuDeviceGet_(&gpu->device, number));
    SL__CUDA(cuDeviceGetName_(gpu->name, sizeof gpu->name, gpu->device));
    SL__TRY(ask(gpu->device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                &gpu->major));
    SL__TRY(ask(gpu->device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                &gpu->minor));
    if (gpu->major < 8)
        return sl_fail(SL_ENOTFOUND,
                       "GPU %d (%s) has compute capability %d.%d, and Sluice "
                       "needs 8.0 or later",
                       number, gpu->name, gpu->major, gpu->minor);
    SL__TRY(ask(gpu->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                &gpu->processors));
    SL__CUDA(cuDeviceTotalMem_(&bytes, gpu->device));
    gpu->bytes = (int64_t)bytes;
    pthread_mutex_init(&gpu->lock, NULL);
    pthread_mutex_init(&gpu->marks, NULL);
    SL__CUDA(cuDevicePrimaryCtxRetain_(&gpu->context, gpu->device));
    SL__TRY(sl__gpu_enter(gpu));
    sl_status status = load_kernels(gpu);
    sl__gpu_leave(gpu);
    return status ? status : set_clock(gpu);
}

/* GPUs that can read each other's memory do. */
static void connect_peers(sl__gpu *gpu)
{
    for (int i = 0; i < GPUS_MAX; i++) {
        sl__gpu *other = gpus[i];
        int both[2] = {0, 0};
        if (!other || other == gpu)
            continue;
        sl__cuda.cuDeviceCanAccessPeer_(&both[0], gpu->device, other->device);
        sl__cuda.cuDeviceCanAccessPeer_(&both[1], other->device, gpu->device);
        if (both[0] && sl__gpu_enter(gpu) == SL_OK) {
            sl__cuda.cuCtxEnablePeerAccess_(other->context, 0);
            sl__gpu_leave(gpu);
        }
        if (both[1] && sl__gpu_enter(other) == SL_OK) {
            sl__cuda.cuCtxEnablePeerAccess_(gpu->context, 0);
            sl__gpu_leave(other);
        }
    }
}

static sl_status open_new(int number)
{
    sl__gpu *gpu;
    SL__TRY(sl__alloc(1, sizeof *gpu, &gpu));
    sl_status status = fill(number, gpu);
    if (status) {
        free(gpu);
        return status;
    }
    gpus[number] = gpu;
    connect_peers(gpu);
    return SL_OK;
}

sl_status sl__gpu_open(int number, sl__gpu **out)
{
    int count;
    SL__TRY(sl__cuda_load(&count));
    count = count < GPUS_MAX ? count : GPUS_MAX;
    number = number < 0 ? 0 : number % count;
    pthread_mutex_lock(&opening);
    sl_status status = gpus[number] ? SL_OK : open_new(number);
    *out = gpus[number];
    pthread_mutex_unlock(&opening);
    return status;
}

/* What can be said of a GPU without opening it, and its free memory if it can
 * be opened. */
static sl_status describe_gpu(int number, sl_device *out)
{
    CUdevice device;
    size_t all, available;
    sl__gpu *gpu;
    *out = (sl_device){0};
    SL__CUDA(cuDeviceGet_(&device, number));
    SL__CUDA(cuDeviceGetName_(out->name, sizeof out->name, device));
    SL__CUDA(cuDeviceTotalMem_(&all, device));
    out->bytes = (int64_t)all;
    SL__TRY(
        ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &out->major));
    SL__TRY(
        ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &out->minor));
    SL__TRY(ask(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                &out->processors));
    if (sl__gpu_open(number, &gpu) || sl__gpu_enter(gpu))
        return SL_OK;
    if (sl__cuda.cuMemGetInfo_(&available, &all) == CUDA_SUCCESS)
        out->free_bytes = (int64_t)available;
    sl__gpu_leave(gpu);
    return SL_OK;
}

sl_status sl__cuda_list(sl_device *out, int most, int *out_count)
{
    SL__TRY(sl__cuda_load(out_count));
    for (int i = 0; i < *out_count && i < most; i++)
        SL__TRY(describe_gpu(i, &out[i]));
    return SL_OK;
}

/* -------------------------------------------------------------- devices -- */

static sl_status open_device(int threads, int number, bool deterministic,
                             sl__device **out)
{
    sl__gpu *gpu;
    int count;
    (void)threads;
    SL__TRY(sl__cuda_load(&count));
    SL__TRY(sl__gpu_open(number, &gpu));
    SL__TRY(sl__alloc(1, sizeof **out, out));
    (*out)->gpu = gpu;
    (*out)->deterministic = deterministic;
    return SL_OK;
}

static void close_device(sl__device *device)
{
    free(device);
}

static sl_status begin(sl__stream *stream)
{
    return sl__gpu_enter(sl__cuda_of(stream)->gpu);
}

static sl_status end(sl__stream *stream)
{
    sl__gpu_leave(sl__cuda_of(stream)->gpu);
    return SL_OK;
}

static sl_status record(sl__stream *stream, sl__event *event)
{
    const stamp_params p = {(uint64_t *)event->stamp};
    event->seconds = sl__seconds();
    if (!event->stamp)
        return SL_OK;
    return sl__cuda_launch(sl__cuda_of(stream), SL__CUDA_stamp, 1, 1, 1, &p);
}

/* All work of a rank is on one stream, in order. */
static sl_status wait(sl__stream *stream, const sl__event *event)
{
    (void)stream;
    (void)event;
    return SL_OK;
}

/* The two clocks drift apart, so they are compared again now and then; not
 * while `set_clock` itself waits. */
static sl_status finish(sl__stream *stream)
{
    const double often_s = 20;
    sl__cuda_stream *own = sl__cuda_of(stream);
    sl__gpu *gpu = own->gpu;
    SL__TRY(sl__gpu_enter(gpu));
    CUresult result = sl__cuda.cuStreamSynchronize_(own->handle);
    sl__gpu_leave(gpu);
    double set = atomic_load(&gpu->clock_set), now = sl__seconds();
    if (!result && set > 0 && now - set > often_s &&
        atomic_compare_exchange_strong(&gpu->clock_set, &set, 0))
        SL__TRY(set_clock(gpu));
    return sl__cuda_check(result, "cuStreamSynchronize");
}

static void describe(int device, sl_dtype precision, char *out, size_t size)
{
    sl__gpu *gpu;
    if (sl__gpu_open(device, &gpu))
        snprintf(out, size, "no GPU");
    else
        snprintf(out, size, "%s, products by cuBLASLt%s", gpu->name,
                 precision == SL_F32 ? " without TF32" : "");
}

const sl__backend sl__backend_cuda = {
    .name = "cuda",
    .device = {.threads_max = 1,
               .open = open_device,
               .close = close_device,
               .open_stream = sl__cuda_open_stream,
               .close_stream = sl__cuda_close_stream,
               .begin = begin,
               .end = end,
               .record = record,
               .wait = wait,
               .finish = finish},
    .buffers = &sl__cuda_buffers,
    .kernels = {.prepare = sl__cuda_prepare,
                .forget = sl__cuda_forget,
                .describe = describe,
                .clip = sl__cuda_clip,
                .squares_bytes = sl__cuda_squares_bytes,
                .squares = sl__cuda_squares,
                .update = sl__cuda_update},
    .graphs = &sl__cuda_graphs,
    .list = sl__cuda_list,
};

/* SPDX-License-Identifier: MIT
 *
 * The `cuda` backend. CUDA's driver and libraries are loaded when a device is
 * opened, so the same program runs where there are none. Calls to the driver go
 * through `sl__cuda`, between sl__gpu_enter and sl__gpu_leave. */
#ifndef SL_CUDA_GPU_H
#define SL_CUDA_GPU_H

#include "tensor/backend.h"
#include "tensor/backends/cuda/kernels/params.h"

#include <cuda.h>
#include <cublasLt.h>
#include <pthread.h>

/* ---------------------------------------------------------- driver.c -- */

#define SL__WORDS_OF(name) #name
#define SL__WORDS(name)    SL__WORDS_OF(name)

/* The driver's functions, by the names of cuda.h. */
typedef struct sl__cuda_driver {
#define DRIVER(name) __typeof__(name) *name##_;
#include "tensor/backends/cuda/driver.def"
#undef DRIVER
    int version; /* 13000: CUDA 13.0 */
} sl__cuda_driver;
extern sl__cuda_driver sl__cuda;

/* Loads the driver. Fails with one sentence where there is none, where it is
 * too old, or where it sees no GPU. */
sl_status sl__cuda_load(int *out_gpus);

/* Where the toolkit puts its libraries, if the loader does not know them. */
#define SL__CUDA_FOLDER "/usr/local/cuda/lib64/"

/* Loads a library that is needed beside the driver: the first of `names`, which
 * ends with NULL, that can be; and finds its functions. */
typedef struct sl__cuda_name {
    const char *name;
    size_t at; /* where its address goes, in a struct of functions */
} sl__cuda_name;
sl_status sl__cuda_library(const char *const *names,
                           const sl__cuda_name *functions, size_t count,
                           void *out);

/* Fails with what the driver says of a result. */
sl_status sl__cuda_check(CUresult result, const char *what);
#define SL__CUDA(call) SL__TRY(sl__cuda_check(sl__cuda.call, #call))

/* ------------------------------------------------------------- gpu.c -- */

typedef enum sl__cuda_kernel {
#define KERNEL(name, file) SL__CUDA_##name,
#include "tensor/backends/cuda/kernels.def"
#undef KERNEL
    SL__CUDA_KERNELS,
} sl__cuda_kernel;

typedef struct sl__cublas sl__cublas;
typedef struct sl__cudnn sl__cudnn;

/* A GPU of this machine. It stays open until the process ends. */
typedef struct sl__gpu {
    int number;
    CUdevice device;
    CUcontext context;
    char name[80];
    int major, minor; /* compute capability */
    int processors;
    int64_t bytes;
    CUfunction functions[SL__CUDA_KERNELS];
    /* Added to its clock, gives seconds of ours; when that was found, 0: it is
     * being found. */
    _Atomic double clock_offset, clock_set;
    sl__cublas *cublas; /* opened when a product first asks */
    sl__cudnn *cudnn;
    bool no_cudnn;           /* it was asked for, and is not there */
    pthread_mutex_t lock;    /* guards the two above */
    struct sl__mark *unused; /* marks, for reuse */
    pthread_mutex_t marks;
} sl__gpu;

struct sl__device {
    sl__gpu *gpu;
    bool deterministic;
};

/* A moment on a stream that other streams can wait for. */
typedef struct sl__mark {
    CUevent event;
    sl__gpu *gpu;
    struct sl__mark *next;
} sl__mark;

enum { SL__CUDA_SIDES = 64 };

typedef struct sl__cuda_stream {
    sl__stream stream; /* first */
    sl__gpu *gpu;
    CUstream handle;
    pthread_mutex_t opening;
    struct sl__cuda_stream *sides[SL__CUDA_SIDES]; /* opened when asked for */
} sl__cuda_stream;

static inline sl__cuda_stream *sl__cuda_of(const sl__stream *stream)
{
    return (sl__cuda_stream *)stream;
}

/* Finds GPU `number`, modulo how many there are, and opens it. */
sl_status sl__gpu_open(int number, sl__gpu **out);

/* Around calls to the driver: makes the GPU's context current, and while a
 * graph is recorded keeps other threads out. */
sl_status sl__gpu_enter(sl__gpu *gpu);
void sl__gpu_leave(sl__gpu *gpu);

/* A graph begins to be recorded (1), or ends (-1); waits until none is. */
void sl__cuda_count_recordings(int more);
void sl__cuda_await_recordings(void);

/* Describes the GPUs of this machine. */
sl_status sl__cuda_list(sl_device *out, int most, int *out_count);

/* ---------------------------------------------------------- streams.c -- */

extern const sl__buffer_ops sl__cuda_buffers;
sl_status sl__cuda_open_stream(sl__device *device, sl__stream **out);
/* drop: of one that no recording has joined. */
void sl__cuda_close_stream(sl__stream *stream);
void sl__cuda_drop_stream(sl__cuda_stream *own);
extern const sl__graph_ops sl__cuda_graphs;

/* ----------------------------------------------------------- launch.c -- */

/* Enqueues a kernel whose one parameter is a struct. */
sl_status sl__cuda_launch(const sl__cuda_stream *stream, sl__cuda_kernel which,
                          int64_t blocks, int64_t rows, int threads,
                          const void *params);

/* Blocks of 256 threads for a loop over `count`, enough to fill the GPU. */
int64_t sl__cuda_blocks(const sl__cuda_stream *stream, int64_t count);

/* Makes the geometry of `count` tensors of one shape as short as it can be;
 * returns the new number of dimensions. */
int sl__cuda_collapse(int dims, int count, int64_t *shape,
                      int64_t (*stride)[CUDA_DIMS]);

/* Whether kernels that read eight elements at once can be used. */
bool sl__cuda_is_aligned(const void *memory);

/* Element by element over dense memory. */
sl_status sl__cuda_map(const sl__cuda_stream *stream, const map_params *given);

/* ----------------------------------------------------------- choose.c -- */

sl_status sl__cuda_prepare(sl__device *device, sl__packs *packs,
                           sl__kernel *kernel);
void sl__cuda_forget(sl__kernel *kernel);

/* The op of `map` kernels for an op of the graph; -1: none. */
int sl__cuda_map_op(sl__op op);

/* --------------------------------------------------------- products.c -- */

sl_status sl__cuda_prepare_product(sl__gpu *gpu, sl__packs *packs,
                                   sl__kernel *kernel);

/* -------------------------------------------------------- attention.c -- */

sl_status sl__cuda_prepare_attention(const sl__device *device,
                                     sl__kernel *kernel);

/* --------------------------------------------------------- updates.c -- */

sl_status sl__cuda_clip(sl__stream *stream, sl__update_block *block,
                        double clip);
sl_status sl__cuda_update(sl__stream *stream, const sl__update *how,
                          const sl__update_block *block,
                          const sl__update_args *args, int count);
int64_t sl__cuda_squares_bytes(int64_t count);
sl_status sl__cuda_squares(sl__stream *stream, const sl__update_args *args,
                           double *const *each, int count, double *all,
                           void *scratch);

#endif

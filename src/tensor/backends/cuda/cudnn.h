/* SPDX-License-Identifier: MIT
 *
 * Attention by cuDNN: graphs of its operations, which it fuses into one kernel
 * forward and a few backward. */
#ifndef SL_CUDA_CUDNN_H
#define SL_CUDA_CUDNN_H

#include "tensor/backends/cuda/gpu.h"

/* Where it was built without cuDNN, attention is computed by our own kernels. */
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define SL__HAS_CUDNN 1
#else
#define SL__HAS_CUDNN 0
typedef void *cudnnBackendDescriptor_t;
#endif

#if SL__HAS_CUDNN
typedef struct sl__cudnn_functions {
    __typeof__(cudnnCreate) *open;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnBackendCreateDescriptor) *create;
    __typeof__(cudnnBackendDestroyDescriptor) *destroy;
    __typeof__(cudnnBackendSetAttribute) *set;
    __typeof__(cudnnBackendGetAttribute) *get;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendExecute) *execute;
} sl__cudnn_functions;

typedef struct sl__cudnn_planned sl__cudnn_planned;

struct sl__cudnn {
    sl__cudnn_functions f;
    cudnnHandle_t handle;
    pthread_mutex_t lock;        /* the handle has one stream at a time */
    sl__cudnn_planned **planned; /* by geometry; they stay */
    size_t planned_count, capacity;
};
#endif

/* What a graph reads and writes, by number. */
enum {
    SL__CUDNN_Q = 1,
    SL__CUDNN_K,
    SL__CUDNN_V,
    SL__CUDNN_OUT,
    SL__CUDNN_STATS, /* log of the sum of exponentials, by row */
    SL__CUDNN_SCALE,
    SL__CUDNN_LOWEST,
    SL__CUDNN_DY,
    SL__CUDNN_DQ,
    SL__CUDNN_DK,
    SL__CUDNN_DV,
    SL__CUDNN_DQ_SUM, /* f32, zeroed */
    SL__CUDNN_ROWS,   /* dy . out */
    SL__CUDNN_ONE,
    SL__CUDNN_IDS,
};

/* A geometry: strides of batch and of position, by number. */
typedef struct sl__cudnn_shape {
    int64_t batch, heads, length, size;
    int64_t stride[SL__CUDNN_IDS][2];
} sl__cudnn_shape;

typedef struct sl__cudnn_plan {
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN does not take it */
    int64_t workspace;
} sl__cudnn_plan;

/* Loads cuDNN and opens it on a GPU, once; NULL where it is not there. */
void sl__cudnn_open(sl__gpu *gpu, sl__cudnn **out);

/* The plan of a geometry, made when it is first asked for. */
sl_status sl__cudnn_find(sl__gpu *gpu, sl__cudnn *own,
                         const sl__cudnn_shape *shape, bool backward,
                         const sl__cudnn_plan **out);

/* Enqueues it; pointers by number. */
sl_status sl__cudnn_run(sl__cudnn *own, const sl__cuda_stream *stream,
                        const sl__cudnn_plan *plan, double scale,
                        void *const pointers[SL__CUDNN_IDS], void *workspace);

#endif

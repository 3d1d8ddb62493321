/* SPDX-License-Identifier: MIT
 *
 * The interface of a backend, in three tables: a device with its streams and
 * events; operations on its memory (base/device.h); kernels. Nothing outside a
 * backend dereferences tensor memory, or assumes when it is written: work is
 * enqueued on streams, and an asynchronous device does it later.
 *
 * So a kernel cannot return a failure that depends on data. It records an id
 * out of range in the step block of its microbatch, which is read when the step
 * is over. Values that change from step to step are in that block too, so that
 * the same calls can be enqueued again. */
#ifndef SL_TENSOR_BACKEND_H
#define SL_TENSOR_BACKEND_H

#include "base/device.h"
#include "tensor/graph.h"

/* Pools. Message i of a microbatch is pool SL__POOL_MESSAGES + i. The slab has
 * what F saves, `handed` what I leaves for W. */
enum {
    SL__POOL_NONE = -1,
    SL__POOL_PARAMETERS,
    SL__POOL_GRADIENTS,
    SL__POOL_PACKED,
    SL__POOL_WORKSPACE,
    SL__POOL_SLAB,
    SL__POOL_HANDED,
    SL__POOL_MESSAGES,
};

/* An operand or result of a kernel call: where it lies, and its geometry. */
typedef struct sl__arg {
    int pool; /* SL__POOL_NONE: this result does not exist */
    sl_dtype dtype;
    int dims;
    int64_t offset; /* bytes from the start of the pool */
    int64_t shape[SL_DIMS_MAX];
    int64_t stride[SL_DIMS_MAX]; /* elements */
} sl__arg;

/* A value that a kernel cannot take: which kernel, the value, and its index. */
typedef struct sl__fault {
    int64_t kernel; /* its number; 0: no fault */
    int64_t value;
    int64_t place;
} sl__fault;

/* What changes from step to step for a microbatch, in device memory. */
typedef struct sl__step_block {
    uint64_t seed;
    double loss_scale;
    sl__fault fault; /* the first that occurred; of several at once, any */
} sl__step_block;

/* What changes from step to step for an optimizer, in device memory. */
typedef struct sl__update_block {
    double rate;
    int64_t step;   /* from 1 */
    double squares; /* the sum over all gradients */
    double scale;   /* clips gradients; NaN: skip the update */
} sl__update_block;

/* What all kernels of a run are given. */
typedef struct sl__run {
    sl__stream *stream;
    sl__step_block *block; /* of the microbatch */
    /* For a kernel that groups: the call runs this many microbatches, the i-th
     * with the pointers from p[i * group_stride] on. */
    int group;
    int group_stride;
} sl__run;

typedef struct sl__kernel sl__kernel;

/* Runs a kernel; `p` has a pointer per arg. */
typedef sl_status (*sl__kernel_fn)(const sl__kernel *kernel, void *const *p,
                                   const sl__run *run);

/* Only these first operands may be packed. */
enum { SL__PACKED_MAX = 3 };

struct sl__kernel {
    sl__kernel_fn run;
    int64_t number;      /* in its stage, from 1 */
    const sl__arg *args; /* operands, results, then scratch if any */
    int arg_count;
    int operand_count;
    const sl__node *node;
    sl__op activation; /* applied to the result; SL__OP_COUNT: none */
    bool adds;
    bool is_alone; /* no other node writes its result */
    int group_max; /* the most microbatches that one call runs */
    /* Set by `prepare`. */
    void *private;         /* the backend's, freed by forget */
    int64_t scratch_bytes; /* workspace for the duration of the call */
    bool groups;           /* can run several microbatches in one call */
    /* By operand: which packed weight it is, and where in that it begins, in
     * bytes; -1: none. */
    int packs[SL__PACKED_MAX];
    int64_t pack_offsets[SL__PACKED_MAX];
};

/* A weight in the layout that a kernel reads, packed again when parameters
 * change. */
typedef struct sl__pack {
    const sl_tensor *tensor; /* the parameter, or a view of it */
    sl__kernel kernel;       /* copies it to the packed memory */
    sl__arg args[2];
    int64_t bytes;
    bool is_cast; /* all of it, in order, as bf16: an update can write it */
} sl__pack;

typedef struct sl__packs {
    sl__pack **data;
    size_t count;
    size_t capacity;
} sl__packs;

/* A moment on a stream. */
typedef struct sl__event {
    double seconds; /* monotonic; known once the stream is finished */
    /* Where an asynchronous device notes the time on its own clock, in memory
     * of allocate_host; else NULL. sl__graph_ops converts the time. */
    volatile uint64_t *stamp;
} sl__event;

/* A device that a backend has opened. */
typedef struct sl__device sl__device;

typedef struct sl__device_ops {
    int threads_max;
    /* `number`: which one, modulo how many there are. */
    sl_status (*open)(int threads, int number, bool deterministic,
                      sl__device **out);
    void (*close)(sl__device *device);
    /* A stream serves every device that was opened with as many threads. One
     * thread at a time enqueues on a stream. */
    sl_status (*open_stream)(sl__device *device, sl__stream **out);
    void (*close_stream)(sl__stream *stream);
    /* A thread calls these around everything that it enqueues at once. */
    sl_status (*begin)(sl__stream *stream);
    sl_status (*end)(sl__stream *stream);
    /* record: notes when the work so far is done; wait: makes later work wait
     * for that. */
    sl_status (*record)(sl__stream *stream, sl__event *event);
    sl_status (*wait)(sl__stream *stream, const sl__event *event);
    /* Blocks until all work is done; then events have their times. */
    sl_status (*finish)(sl__stream *stream);
} sl__device_ops;

/* An optimizer's step on one parameter (update.c). Values that change from step
 * to step are in the block. */
typedef struct sl__update {
    sl_update_kind kind;
    double decay; /* of the parameter, times the rate: decoupled */
    double beta1, beta2, epsilon; /* of AdamW */
    double momentum;              /* of SGD */
} sl__update;

/* A parameter, its gradient and the optimizer's state: where they lie. */
typedef struct sl__update_args {
    sl_dtype dtype, gradient_dtype;
    void *value;
    void *gradient;
    void *first, *second; /* the state, in the gradient's dtype; or NULL */
    void *half; /* where the parameter is packed as bf16, and is to be again; or
                   NULL */
    int64_t count;
} sl__update_args;

typedef struct sl__kernel_ops {
    /* Chooses kernel->run for the geometry of its args, whose addresses are not
     * known yet; may ask for scratch, or a packed operand. */
    sl_status (*prepare)(sl__device *device, sl__packs *packs,
                         sl__kernel *kernel);
    void (*forget)(sl__kernel *kernel);
    /* What computes in this precision, in a few words. */
    void (*describe)(int device, sl_dtype precision, char *out, size_t size);
    /* Computes block->scale from block->squares, so that the norm is at most
     * `clip`, unless that is 0; NaN if the squares are not finite. */
    sl_status (*clip)(sl__stream *stream, sl__update_block *block, double clip);
    /* Sums the squares of `count` gradients: of each into *each[i], unless that
     * is NULL, and of those whose each[i] is not NULL into *all. The same bits
     * every time. `scratch` has squares_bytes of each of their counts; NULL:
     * none is needed. */
    int64_t (*squares_bytes)(int64_t count);
    sl_status (*squares)(sl__stream *stream, const sl__update_args *args,
                         double *const *each, int count, double *all,
                         void *scratch);
    /* An optimizer's step on `count` parameters, which also zeroes their
     * gradients. Does nothing if the scale is NaN. */
    sl_status (*update)(sl__stream *stream, const sl__update *how,
                        const sl__update_block *block,
                        const sl__update_args *args, int count);
} sl__kernel_ops;

/* What is enqueued between begin and end, on this stream and on those that wait
 * for its marks, is recorded instead of done; replay enqueues all of it.
 * Streams that took part must have been waited for before the end, which
 * outputs NULL if it fails. */
typedef struct sl__graph_ops {
    sl_status (*begin)(sl__stream *stream);
    sl_status (*end)(sl__stream *stream, void **out_graph);
    sl_status (*replay)(sl__stream *stream, void *graph);
    void (*forget)(void *graph);
    /* The time of a stamp. */
    double (*seconds)(const sl__stream *stream, uint64_t stamp);
} sl__graph_ops;

typedef struct sl__backend {
    const char *name;
    sl__device_ops device;
    const sl__buffer_ops *buffers;
    sl__kernel_ops kernels;
    const sl__graph_ops *graphs; /* of an asynchronous device; or NULL */
    /* Describes the devices of this machine; NULL: it has but the one. */
    sl_status (*list)(sl_device *out, int most, int *out_count);
} sl__backend;

/* Finds a backend by name; NULL is the default. (stage.c) */
sl_status sl__backend_find(const char *name, const sl__backend **out);

/* For tests: replaces the backends of these names; with count 0, none. */
void sl__backend_replace(const sl__backend *others, int count);

extern const sl__backend sl__backend_ref;
extern const sl__backend sl__backend_cpu;
extern const sl__backend sl__backend_cuda;

/* The plain kernel of an op for a dtype: the specification, and what other
 * backends fall back on. Never NULL for an op that has kernels. */
sl__kernel_fn sl__ref_kernel(sl__op op, sl_dtype dtype);

/* ------------------------------------------------------------- widen.c -- */

/* Whether a kernel reads or writes bf16. */
bool sl__has_half(const sl__kernel *kernel);

/* For tests: products round their biases as well, as those of `cuda` do. */
extern bool sl__widen_rounds_biases;

/* Prepares a kernel that does by one that works on f32, in scratch: the
 * specification of bf16. `prepare` chooses that one, and gives it no `private`.
 * The backend frees kernel->private. */
typedef sl_status (*sl__prepare_inner_fn)(sl__device *device,
                                          sl__kernel *inner);
sl_status sl__widen_prepare(sl__kernel *kernel, sl__prepare_inner_fn prepare,
                            sl__device *device);

/* ---------------------------------------------- backends on the CPU -- */

/* Streams on which work is done as soon as it is enqueued. (cpu.c, update.c) */
sl_status sl__cpu_begin_or_end(sl__stream *stream);
sl_status sl__cpu_record(sl__stream *stream, sl__event *event);
sl_status sl__cpu_wait(sl__stream *stream, const sl__event *event);
sl_status sl__cpu_finish(sl__stream *stream);
sl_status sl__cpu_clip(sl__stream *stream, sl__update_block *block,
                       double clip);
sl_status sl__cpu_squares(sl__stream *stream, const sl__update_args *args,
                          double *const *each, int count, double *all,
                          void *scratch);
sl_status sl__cpu_update(sl__stream *stream, const sl__update *how,
                         const sl__update_block *block,
                         const sl__update_args *args, int count);

/* The same arguments for `count` elements from `first` on. */
sl__update_args sl__update_part(const sl__update_args *args, int64_t first,
                                int64_t count);

/* Records a fault, unless there already is one. */
static inline void sl__note_fault(const sl__kernel *kernel,
                                  sl__step_block *block, int64_t value,
                                  int64_t place)
{
    if (block->fault.kernel == 0)
        block->fault = (sl__fault){kernel->number, value, place};
}

/* The dtype a kernel works in: that of its first result. */
sl_dtype sl__kernel_dtype(const sl__kernel *kernel);
bool sl__arg_is_dense(const sl__arg *arg);

static inline int64_t sl__arg_count(const sl__arg *arg)
{
    int64_t count = 1;
    for (int d = 0; d < arg->dims; d++)
        count *= arg->shape[d];
    return count;
}

static inline int64_t sl__last_size(const sl__arg *arg)
{
    return arg->shape[arg->dims - 1];
}

/* Element i of a dense integer tensor. */
static inline int64_t sl__integer(const sl__arg *arg, const void *data,
                                  int64_t i)
{
    return arg->dtype == SL_I32 ? ((const int32_t *)data)[i]
                                : ((const int64_t *)data)[i];
}

/* A product as (G, M, K) x (G, K, N) -> (G, M, N) with strides of each. */
typedef struct sl__matmul_sizes {
    int64_t batch, m, n, k;
    int64_t a[3], b[3], out[3];
} sl__matmul_sizes;
sl__matmul_sizes sl__matmul_geometry(const sl__kernel *kernel);

/* How many labels are not to be ignored. */
int64_t sl__count_labels(const sl__arg *labels, const void *data,
                         int64_t ignore);

/* Fails with a sentence that says which id or label it was, and which are
 * valid. */
sl_status sl__refuse_id(const sl__kernel *kernel, const sl__fault *fault);

#endif

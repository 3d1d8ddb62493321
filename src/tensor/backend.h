/* SPDX-License-Identifier: MIT
 *
 * The table behind which kernels live. Nothing outside a backend dereferences
 * tensor memory: memory is allocated, filled and copied through this table. */
#ifndef SL_TENSOR_BACKEND_H
#define SL_TENSOR_BACKEND_H

#include "tensor/graph.h"

/* Pools; message i of a microbatch is pool SL__POOL_MESSAGES + i. The slab is
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

/* Every piece of a pool starts at a multiple of this. */
enum { SL__ALIGNMENT = 64 };
int64_t sl__aligned(int64_t bytes);

/* An operand or result of a kernel call: where it lies, and its geometry. */
typedef struct sl__arg {
    int pool; /* SL__POOL_NONE: there is no such result */
    sl_dtype dtype;
    int dims;
    int64_t offset; /* bytes from the start of the pool */
    int64_t shape[SL_DIMS_MAX];
    int64_t stride[SL_DIMS_MAX]; /* elements */
} sl__arg;

/* What a run gives to all its kernels. */
typedef struct sl__run {
    void **states; /* what kernels keep per slot, by their state_index */
    uint64_t seed;
    double loss_scale;
    int threads;
    /* Of a kernel that groups: so many microbatches are run in one call, the
     * i-th with the pointers from p[i * group_stride] on. */
    int group;
    int group_stride;
} sl__run;

typedef struct sl__kernel sl__kernel;

/* Runs a kernel; `p` has a pointer per arg. */
typedef sl_status (*sl__kernel_fn)(const sl__kernel *kernel, void *const *p,
                                   const sl__run *run);

struct sl__kernel {
    sl__kernel_fn run;
    const sl__arg *args; /* operands, results, then scratch if any */
    int arg_count;
    int operand_count;
    const sl__node *node;
    sl__op activation; /* applied to the result; SL__OP_COUNT: none */
    bool adds;
    bool is_alone; /* no other node writes its result */
    int group_max; /* microbatches that it may be run for in one call */
    /* Set by prepare. */
    void *private;         /* the backend's, freed by forget */
    int64_t scratch_bytes; /* workspace for the duration of the call */
    bool groups;           /* takes several microbatches in one call */
    int packed_operand;    /* whose arg is a pack's; -1: none */
    int pack;
    int state_index; /* -1: keeps no state */
};

/* A weight in the layout a kernel likes, made anew when parameters change. */
typedef struct sl__pack {
    const sl_tensor *tensor; /* the parameter, or a view of it */
    sl__kernel kernel;       /* from there to the packed memory */
    sl__arg args[2];
    int64_t bytes;
} sl__pack;

typedef struct sl__packs {
    sl__pack **data;
    size_t count;
    size_t capacity;
} sl__packs;

/* What a backend puts back after a run. */
typedef struct sl__saved {
    int values[2];
} sl__saved;

typedef struct sl__backend {
    const char *name;
    int threads_max;
    sl_status (*open)(int threads, void **out_context);
    void (*close)(void *context);
    /* Chooses kernel->run for the geometry of its args, whose places are not
     * yet known; may ask for scratch, state, or a packed operand. */
    sl_status (*prepare)(void *context, sl__packs *packs, sl__kernel *kernel);
    void (*forget)(sl__kernel *kernel);
    /* State of a kernel for one slot, whose args lie at `p`. */
    sl_status (*bind)(void *context, const sl__kernel *kernel, void *const *p,
                      void **out_state);
    void (*unbind)(void *state);
    /* Memory. */
    sl_status (*allocate)(int64_t bytes, void **out); /* zeroed, aligned */
    void (*release)(void *memory);
    void (*copy_in)(void *to, const void *from, size_t bytes);
    void (*copy_out)(void *to, const void *from, size_t bytes);
    void (*clear)(void *memory, size_t bytes);
    /* The same for what is not needed for a while: gives memory back. */
    void (*discard)(void *memory, size_t bytes);
    /* value -= rate * gradient, gradient = 0. */
    void (*descend)(sl_dtype dtype, void *value, void *gradient, int64_t count,
                    double rate, int threads);
    /* A step of an optimizer; gradient = 0. */
    void (*update)(sl_dtype dtype, const sl_update *how, void *value,
                   void *gradient, void *first, void *second, int64_t count,
                   int threads);
    /* Around a run, on the thread that runs. */
    void (*begin)(int threads, sl__saved *out);
    void (*end)(const sl__saved *saved);
} sl__backend;

extern const sl__backend sl__backend_ref;
extern const sl__backend sl__backend_onednn;

/* The plain kernel of an op for a dtype: the specification, and what a backend
 * falls back on. Never NULL for an op that has kernels. */
sl__kernel_fn sl__ref_kernel(sl__op op, sl_dtype dtype);

/* Shared by backends on the CPU. */
sl_status sl__cpu_allocate(int64_t bytes, void **out);
void sl__cpu_release(void *memory);
void sl__cpu_copy(void *to, const void *from, size_t bytes);
void sl__cpu_clear(void *memory, size_t bytes);
void sl__cpu_discard(void *memory, size_t bytes);
void sl__cpu_descend(sl_dtype dtype, void *value, void *gradient, int64_t count,
                     double rate, int threads);

void sl__cpu_update(sl_dtype dtype, const sl_update *how, void *value,
                    void *gradient, void *first, void *second, int64_t count,
                    int threads);

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

/* The i-th of a dense integer tensor. */
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

/* Labels that are not to be ignored. */
int64_t sl__count_labels(const sl__arg *labels, const void *data,
                         int64_t ignore);

/* Fails with what an id or a label is and what it may be. */
sl_status sl__refuse_id(const sl__kernel *kernel, int64_t id, int64_t place);

#endif

/* SPDX-License-Identifier: MIT
 *
 * Tensor programs: a model as a graph, compiled into flat programs over a
 * memory plan that is known to the byte before anything runs.
 *
 *     sl_graph *graph;
 *     sl_graph_create(&graph);
 *     sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(16, 8),
 *                             SL_GRADIENT);
 *     sl_tensor *w = sl_parameter(graph, "fc.weight", SL_F32, SL_SHAPE(4, 8));
 *     sl_tensor *y = sl_relu(sl_linear(x, w, NULL, SL_OUT_IN));
 *     sl_output(graph, "y", y, SL_GRADIENT);
 *     sl_stage *stage = NULL;
 *     if (sl_stage_compile(graph, NULL, &stage))
 *         fprintf(stderr, "%s\n", sl_error_text());
 *     else
 *         printf("%lld bytes\n", (long long)sl_plan_bytes(stage, 1));
 *     sl_stage_destroy(stage);
 *     sl_graph_destroy(graph);
 *
 * Life cycle: a graph is built, then compiled as often as one likes, into
 * stages; a stage never changes; an `sl_memory` holds what one user of a stage
 * needs to run it: parameters, gradients, and a slot for every microbatch in
 * flight. Thread rule: one thread at a time per graph and per memory; a stage
 * is shared freely.
 *
 * A stage has four programs. F computes the outputs (and the loss); I the
 * gradients of the inputs, touching no parameter gradient; W everything else,
 * adding to the gradients of the parameters; B is I and W in one, in an order
 * that keeps less memory alive. For every microbatch, F comes first, then
 * either B, or I and later W. I then W gives the same bits as B.
 */
#ifndef SLUICE_TENSOR_H
#define SLUICE_TENSOR_H

#include "sluice/base.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- graphs -- */

typedef struct sl_graph sl_graph;

/* A value of a graph; it belongs to the graph. */
typedef struct sl_tensor sl_tensor;

enum { SL_DIMS_MAX = 6 };

/* A shape where a function takes `int dims, const int64_t *shape`. */
#define SL_SHAPE(...)                                                          \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                 \
        (const int64_t[])                                                      \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

/* Whether a gradient flows back through an input or an output. */
typedef enum sl_gradient { SL_NO_GRADIENT = 0, SL_GRADIENT = 1 } sl_gradient;

/* An empty graph. Destroying one destroys its tensors; NULL is fine. */
SL_API sl_status sl_graph_create(sl_graph **out);
SL_API void sl_graph_destroy(sl_graph *graph);

/* Functions that build return a tensor, or NULL if they refuse their arguments.
 * The error names the line, the op, the operands, what was expected and what
 * was found. An op with a NULL operand returns NULL, so a model needs no check
 * per line: the graph keeps the first error, and compiling it fails with
 * that. */
SL_API sl_status sl_graph_status(const sl_graph *graph);

/* Opens a scope: its name and a dot prefix the names of parameters made inside.
 * The ops inside form a module of that name; models are cut between modules. */
SL_API void sl_scope_enter(sl_graph *graph, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;
SL_API void sl_scope_leave(sl_graph *graph);

/* Marks this point between ops as a stage boundary for sl_model_cut. */
SL_API void sl_mark_cut(sl_graph *graph);

/* No cut divides the ops between these two calls, however many stages are asked
 * for. */
SL_API void sl_whole_enter(sl_graph *graph);
SL_API void sl_whole_leave(sl_graph *graph);

/* A tensor that the stage receives. Only floats carry a gradient. */
SL_API sl_tensor *sl_input(sl_graph *graph, const char *name, sl_dtype dtype,
                           int dims, const int64_t *shape,
                           sl_gradient gradient);

/* A trainable tensor, named by the open scopes and `name`. */
SL_API sl_tensor *sl_parameter(sl_graph *graph, const char *name,
                               sl_dtype dtype, int dims, const int64_t *shape);

/* A tensor that the stage holds and does not train: a table, a mask, a
 * constant. It is named like a parameter, and initialised with a copy of
 * `data`, or with zeros if that is NULL. */
SL_API sl_tensor *sl_buffer(sl_graph *graph, const char *name, sl_dtype dtype,
                            int dims, const int64_t *shape, const void *data);

/* A second name for a parameter (GPT-2's lm_head.weight); returns it. */
SL_API sl_tensor *sl_alias(sl_tensor *parameter, const char *name);

/* A tensor that the stage sends. With SL_GRADIENT its consumer sends a gradient
 * back. */
SL_API void sl_output(sl_graph *graph, const char *name, sl_tensor *tensor,
                      sl_gradient gradient);

/* The scalar that backward starts from; it is an output named "loss". */
SL_API void sl_loss(sl_graph *graph, sl_tensor *tensor);

SL_API const char *sl_tensor_name(const sl_tensor *tensor);
SL_API sl_dtype sl_tensor_dtype(const sl_tensor *tensor);
SL_API int sl_tensor_dims(const sl_tensor *tensor);
SL_API const int64_t *sl_tensor_shape(const sl_tensor *tensor);

/* Mixed precision, called once the graph is complete. With SL_BF16, activations
 * become bf16: whatever a parameter goes into, up to the losses. That halves
 * the memory of activations and messages; products take bf16 and sum in f32.
 * These stay f32: parameters and their gradients, losses, sums and means, the
 * statistics of norms and attentions, inputs and outputs without a gradient.
 * Inputs and outputs with a gradient become bf16. Tensors of another dtype, and
 * results of sl_cast, stay what they are. SL_F32 leaves the graph as it is. */
SL_API sl_status sl_graph_set_precision(sl_graph *graph, sl_dtype precision);

/* ------------------------------------------------------------------ ops -- */

/* The layout of a linear layer's weight: (out, in) as in PyTorch's Linear, or
 * (in, out) as in GPT-2's Conv1D. */
typedef enum sl_layout { SL_OUT_IN, SL_IN_OUT } sl_layout;

/* In place of a dimension: reduce over all of them. */
enum { SL_ALL = INT32_MIN };

/* Dimensions count from 0, or from the end with -1 for the last. The shapes of
 * add, sub and mul broadcast as in NumPy. */

/* a (.., M, K) times b (K, N), or times b (.., K, N) with the same leading
 * sizes. */
SL_API sl_tensor *sl_matmul(sl_tensor *a, sl_tensor *b);

/* x (.., in) times the weight, plus the bias (out) unless it is NULL. */
SL_API sl_tensor *sl_linear(sl_tensor *x, sl_tensor *weight, sl_tensor *bias,
                            sl_layout layout);

/* The second operand of mul may also be bool: a mask of zeros and ones. */
SL_API sl_tensor *sl_add(sl_tensor *a, sl_tensor *b);
SL_API sl_tensor *sl_sub(sl_tensor *a, sl_tensor *b);
SL_API sl_tensor *sl_mul(sl_tensor *a, sl_tensor *b);
SL_API sl_tensor *sl_scale(sl_tensor *x, double factor);
/* Converts between float dtypes. */
SL_API sl_tensor *sl_cast(sl_tensor *x, sl_dtype dtype);
SL_API sl_tensor *sl_relu(sl_tensor *x);
SL_API sl_tensor *sl_gelu_tanh(sl_tensor *x);
SL_API sl_tensor *sl_gelu_erf(sl_tensor *x);
SL_API sl_tensor *sl_silu(sl_tensor *x);

/* Normalise over the last dimension, whose size weight and bias have. */
SL_API sl_tensor *sl_layer_norm(sl_tensor *x, sl_tensor *weight,
                                sl_tensor *bias, double epsilon);
SL_API sl_tensor *sl_rms_norm(sl_tensor *x, sl_tensor *weight, double epsilon);
SL_API sl_tensor *sl_softmax(sl_tensor *x);

/* Picks rows of a table (rows, width) by i32 or i64 ids of any shape. A run
 * that meets an id outside the table fails with SL_EINVAL. */
SL_API sl_tensor *sl_embedding(sl_tensor *table, sl_tensor *ids);

/* x (.., T, C) plus the first T rows of a table (at least T, C). */
SL_API sl_tensor *sl_add_positions(sl_tensor *x, sl_tensor *table);

/* Multi-head attention with a causal mask: q, k and v are (B, T, C), heads
 * divide C, scores are scaled by 1/sqrt(C/heads). Backward needs these, the
 * output, and two numbers per head and row. */
SL_API sl_tensor *sl_causal_attention(sl_tensor *q, sl_tensor *k, sl_tensor *v,
                                      int heads);

/* Views, which cost no memory and no time. One size of a reshape may be -1. A
 * tensor whose strides do not allow the new shape is copied first. */
SL_API sl_tensor *sl_reshape(sl_tensor *x, int dims, const int64_t *shape);
SL_API sl_tensor *sl_transpose(sl_tensor *x, int dim_a, int dim_b);
SL_API sl_tensor *sl_slice(sl_tensor *x, int dim, int64_t start,
                           int64_t length);

/* Divides a dimension into `count` equal views; after an error all parts are
 * NULL. */
SL_API void sl_split(sl_tensor *x, int dim, int count, sl_tensor **parts);
SL_API sl_tensor *sl_concat(sl_tensor *const *parts, int count, int dim);

/* Reduce over one dimension, which is removed, or over SL_ALL to a scalar. */
SL_API sl_tensor *sl_sum(sl_tensor *x, int dim);
SL_API sl_tensor *sl_mean(sl_tensor *x, int dim);

/* The mean of (x - target)². */
SL_API sl_tensor *sl_mse(sl_tensor *x, sl_tensor *target);

/* The mean of -log softmax(logits)[label] over the rows of logits (.., V) whose
 * label (..) is not `ignore`; NaN if all are ignored. A run that meets any
 * other label outside of 0..V-1 fails with SL_EINVAL. */
SL_API sl_tensor *sl_cross_entropy(sl_tensor *logits, sl_tensor *labels,
                                   int64_t ignore);

/* Zeroes elements with probability `rate` and scales the others by 1 / (1 -
 * rate). Which elements are zeroed depends only on the seed of the run, the
 * position of the op in the graph and the position in the tensor. */
SL_API sl_tensor *sl_dropout(sl_tensor *x, double rate);

/* --------------------------------------------------------------- stages -- */

typedef struct sl_stage sl_stage;

/* The kinds of optimizers. */
typedef enum sl_update_kind {
    SL_UPDATE_ADAMW, /* state: means of gradients and of their squares */
    SL_UPDATE_SGD,   /* state: a momentum, unless that is 0 */
} sl_update_kind;

/* Which backward programs to compile. */
typedef enum sl_backward {
    SL_BACKWARD_ANY,   /* B, and I with W */
    SL_BACKWARD_WHOLE, /* B alone */
    SL_BACKWARD_SPLIT, /* I and W alone */
    SL_BACKWARD_NONE,  /* F alone, which then saves nothing */
} sl_backward;

typedef struct sl_stage_options {
    /* "cpu"; "cuda": GPUs; or "ref": plain C, the specification. */
    const char *backend;
    int threads; /* of each program; only `cpu` uses several */
    sl_backward backward;
    bool recompute; /* save the inputs only, and run F again in backward */
    int group;      /* the most microbatches that one sl_stage_run_group is
                       expected to run */
    /* Which GPU, from 0. SL_DEVICE_BY_RANK: each rank of a pipeline that of its
     * number, modulo how many there are. */
    int device;
    /* On GPUs: attention whose sums have one order, so that every run has the
     * same bits; slower than that of cuDNN. Everything else has one anyway. */
    bool deterministic;
} sl_stage_options;
#define SL_DEVICE_BY_RANK (-1)
#define SL_STAGE_OPTIONS_INIT                                                  \
    {                                                                          \
        "cpu", 1, SL_BACKWARD_ANY, false, 1, SL_DEVICE_BY_RANK, false          \
    }

/* A device of a backend. */
typedef struct sl_device {
    char name[80];
    int64_t bytes, free_bytes; /* of its memory; 0: not known */
    int processors;
    int major, minor; /* of a GPU: its compute capability */
} sl_device;

/* Describes the devices of a backend, at most `most` of them, and outputs how
 * many there are. Fails with the reason where the backend cannot be used. */
SL_API sl_status sl_devices(const char *backend, sl_device *out, int most,
                            int *out_count);

/* Writes what computes in this precision (SL_F32 or SL_BF16) on a device of
 * this machine, in a few words: "avx512, products by amx". NULL is the default
 * backend; `device` is as in sl_stage_options. */
SL_API sl_status sl_backend_describe(const char *backend, int device,
                                     sl_dtype precision, char *out,
                                     size_t size);

/* Compiles a graph; `options` may be NULL. The stage does not need the graph
 * afterwards. */
SL_API sl_status sl_stage_compile(const sl_graph *graph,
                                  const sl_stage_options *options,
                                  sl_stage **out);
SL_API void sl_stage_destroy(sl_stage *stage);

/* An input, output or parameter of a stage of callbacks. */
typedef struct sl_value {
    const char *name;
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    sl_gradient gradient; /* of an input or output */
} sl_value;

/* What a callback works on: pointers in the order of the described values, each
 * to contiguous memory. A gradient that does not flow is NULL. In backward,
 * inputs and outputs are as forward read and wrote them. */
typedef struct sl_call {
    /* Identifies the microbatch: forward saves under it what backward needs. A
     * stage that runs several sizes numbers the slots of each size from 0. */
    int slot;
    const void *const *inputs;
    void *const *outputs;
    const void *const *output_gradients;
    void *const *input_gradients;
    uint64_t seed;
    double loss_scale;
} sl_call;

/* A stage whose programs are callbacks. A callback that fails says why with
 * sl_fail. Its parameters stay where the caller keeps them; the library reads
 * and writes copies. */
typedef struct sl_callbacks {
    sl_status (*forward)(void *context, const sl_call *call);
    /* B; NULL if B is I and then W, or if there is no backward. */
    sl_status (*backward)(void *context, const sl_call *call);
    /* I and W: both or neither; without them the stage has B only. */
    sl_status (*backward_input)(void *context, const sl_call *call);
    sl_status (*backward_weight)(void *context, const sl_call *call);
    /* Copy a parameter or its gradient; may be NULL without parameters. */
    sl_status (*read)(void *context, int parameter, bool gradient, void *data,
                      size_t bytes);
    sl_status (*write)(void *context, int parameter, bool gradient,
                       const void *data, size_t bytes);
    /* Zeroes all gradients; may be NULL without parameters or backward. */
    void (*zero_gradients)(void *context);
} sl_callbacks;

typedef struct sl_stage_description {
    const sl_value *inputs;
    int input_count;
    const sl_value *outputs; /* one named "loss" is the loss, a single float */
    int output_count;
    const sl_value *parameters;
    int parameter_count;
    sl_callbacks callbacks;
    void *context; /* given to every callback */
} sl_stage_description;

/* Makes a stage of callbacks, which runs and has ports like a compiled one. The
 * description is copied; the context must outlive the stage. */
SL_API sl_status sl_stage_from_callbacks(
    const sl_stage_description *description, sl_stage **out);

typedef enum sl_program {
    SL_PROGRAM_F,
    SL_PROGRAM_I,
    SL_PROGRAM_W,
    SL_PROGRAM_B,
} sl_program;
#define SL_PROGRAM_COUNT 4

/* Every byte of tensor memory a stage will use. Everything in a pool starts at
 * a multiple of 64. */
typedef struct sl_plan {
    /* Once per memory. */
    int64_t parameter_bytes; /* including buffers */
    int64_t gradient_bytes;
    int64_t packed_bytes;    /* weights in the layout the kernels need */
    int64_t workspace_bytes; /* of the program that needs most */
    /* Per slot, that is per microbatch in flight. */
    int64_t slab_bytes;    /* what F saves for backward */
    int64_t handed_bytes;  /* what I computes for W, if it does not fit into the
                              part of the slab that I has finished with */
    int64_t message_bytes; /* inputs, outputs, and their gradients */
    int64_t control_bytes; /* seeds, scales and error reports: once per slot,
                              and once more */
    /* The part of these that stays allocated from F to backward: the slab, and
     * the inputs and outputs that backward reads. */
    int64_t saved_bytes;
    /* Details, for reports. */
    int64_t program_workspace_bytes[SL_PROGRAM_COUNT];
    int64_t scratch_bytes; /* the largest scratchpad of a kernel; part of the
                              workspace */
    int kernels[SL_PROGRAM_COUNT];
} sl_plan;

SL_API const sl_plan *sl_stage_plan(const sl_stage *stage);

/* All bytes of an `sl_memory` with this many slots. */
SL_API int64_t sl_plan_bytes(const sl_stage *stage, int slots);

/* Writes the programs as text, a line per kernel: op, operands and results,
 * each as its shape and pool+offset; `+>` adds to the result. */
SL_API sl_status sl_stage_write_text(const sl_stage *stage, sl_write_fn write,
                                     void *context);

/* The kinds of tensors that can be written to and read from a memory. */
typedef enum sl_port_kind {
    SL_PORT_PARAMETER,          /* by any of its names */
    SL_PORT_PARAMETER_GRADIENT, /* likewise */
    SL_PORT_INPUT,
    SL_PORT_INPUT_GRADIENT, /* written by I and B */
    SL_PORT_OUTPUT,
    SL_PORT_OUTPUT_GRADIENT, /* read by I, W and B */
    SL_PORT_BUFFER,
} sl_port_kind;

typedef struct sl_port {
    sl_port_kind kind;
    int index;
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    int64_t bytes;
    const char *name; /* the first, if it has several */
} sl_port;

/* Ports by name, or by index below the count of their kind. */
SL_API sl_status sl_stage_port(const sl_stage *stage, sl_port_kind kind,
                               const char *name, sl_port *out);
SL_API int sl_stage_port_count(const sl_stage *stage, sl_port_kind kind);
SL_API sl_status sl_stage_port_at(const sl_stage *stage, sl_port_kind kind,
                                  int index, sl_port *out);

/* -------------------------------------------------------------- running -- */

typedef struct sl_memory sl_memory;

/* Allocates every pool of the plan, for `slots` microbatches in flight. The
 * stage must outlive it. Parameters and gradients start as zeros. */
SL_API sl_status sl_memory_create(const sl_stage *stage, int slots,
                                  sl_memory **out);
SL_API void sl_memory_destroy(sl_memory *memory);

/* Like sl_memory_create, but shares the parameters and gradients of `owner`,
 * which must outlive it and whose stage must have the same parameters and
 * buffers: for a model that is compiled for several batch sizes. Packed
 * weights, workspace and slots are its own. One thread at a time may use either
 * memory, and zeroing the gradients of one zeroes those of both. */
SL_API sl_status sl_memory_create_shared(const sl_stage *stage, int slots,
                                         sl_memory *owner, sl_memory **out);

/* Copy in and out; `bytes` must be the port's, and the port must be one of this
 * stage or of one with the same names. `slot` only matters for inputs, outputs
 * and their gradients. After a parameter was written, the next run packs the
 * weights again. To read or write floats in another float dtype, set the port's
 * `dtype` and `bytes` to that. */
SL_API sl_status sl_memory_write(sl_memory *memory, const sl_port *port,
                                 int slot, const void *data, size_t bytes);
SL_API sl_status sl_memory_read(const sl_memory *memory, const sl_port *port,
                                int slot, void *data, size_t bytes);

/* A step of plain gradient descent: subtracts `rate` times the gradients from
 * the parameters, and zeroes the gradients. Refused for stages of callbacks,
 * which keep their parameters themselves. */
SL_API sl_status sl_memory_descend(sl_memory *memory, double rate);

/* Zeroes the gradients of all parameters, to begin a step. */
SL_API void sl_memory_zero_gradients(sl_memory *memory);

typedef struct sl_run_options {
    /* Of dropout: give every microbatch of every step its own. Stages cut from
     * one graph draw different numbers from the same seed; stages of separate
     * graphs may draw the same. Backward uses the seed that F was given. */
    uint64_t seed;
    double loss_scale; /* the gradient of the loss that backward starts from */
} sl_run_options;
#define SL_RUN_OPTIONS_INIT                                                    \
    {                                                                          \
        0, 1.0                                                                 \
    }

/* Runs a program on a slot; `options` may be NULL. Inputs must not change until
 * B or W is done. Refused with SL_EINVAL: backward before F, W before I, I or B
 * twice, F between I and W, a program that was not compiled, an id or a label
 * that is out of range. F may follow F, without a backward between them. */
SL_API sl_status sl_stage_run(const sl_stage *stage, sl_program program,
                              sl_memory *memory, int slot,
                              const sl_run_options *options);

/* Runs W on several slots, in their order, with options for each or NULL: the
 * same bits as one call for each. It is faster if the stage was compiled for
 * groups of that size: a gradient with few rows is then read and written once
 * for all slots. If sl_stage_run would refuse one of the slots, none is run. */
SL_API sl_status sl_stage_run_group(const sl_stage *stage, sl_memory *memory,
                                    const int *slots,
                                    const sl_run_options *options, int count);

/* Floating point operations of the matrix products and attentions of a program,
 * except what is only recomputed; a causal mask halves those of attention. */
SL_API double sl_stage_flops(const sl_stage *stage, sl_program program);

/* ---------------------------------------------------------- safetensors -- */

/* A safetensors file. Opening it verifies every length, offset, shape and
 * overlap. It stays open, and any thread may read tensors from it. */
typedef struct sl_safetensors sl_safetensors;

/* Reads `bytes` of a tensor that is being written, from its byte `first` on. */
typedef sl_status (*sl_read_part_fn)(void *context, size_t first, void *out,
                                     size_t bytes);

typedef struct sl_safetensor {
    const char *name;
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    const void *data; /* its bytes, not aligned; or NULL */
    size_t bytes;
    const sl_safetensors *file; /* the file with its bytes; or NULL */
    int64_t at;                 /* where they begin in the file */
    sl_read_part_fn read;       /* gives its bytes to a writer; or NULL */
    void *context;              /* of `read` */
} sl_safetensor;

/* SL_EIO if there is no such file, SL_EPARSE if its header is not valid. */
SL_API sl_status sl_safetensors_open(const char *path, sl_safetensors **out);

/* The same for a file in memory, which is borrowed. */
SL_API sl_status sl_safetensors_parse(const void *data, size_t bytes,
                                      sl_safetensors **out);
SL_API void sl_safetensors_close(sl_safetensors *file);

/* Tensors in the order of their bytes in the file; NULL past the last. */
SL_API size_t sl_safetensors_count(const sl_safetensors *file);
SL_API const sl_safetensor *sl_safetensors_at(const sl_safetensors *file,
                                              size_t index);

/* Copies a tensor's bytes to `out`. SL_EFAIL if its file has been truncated
 * since it was opened. */
SL_API sl_status sl_safetensor_read(const sl_safetensor *tensor, void *out);

/* Finds a tensor by name; NULL if there is none. */
SL_API const sl_safetensor *sl_safetensors_find(const sl_safetensors *file,
                                                const char *name);

/* An entry of `__metadata__`; NULL if there is none. */
SL_API const char *sl_safetensors_metadata(const sl_safetensors *file,
                                           const char *key);

/* Writes a file atomically: writes and syncs a temporary file in the same
 * folder, then renames it. Tensors of an opened file are copied from there.
 * `metadata` is NULL, or pairs of key and value ended by NULL. */
SL_API sl_status sl_safetensors_write(const char *path,
                                      const sl_safetensor *tensors,
                                      size_t count,
                                      const char *const *metadata);

/* ------------------------------------------------------- lines in errors -- */

/* An error names the line of the model that called the op: each of these
 * functions is also a macro, which reports its line once the call has
 * returned. */
SL_API sl_tensor *sl_located(sl_tensor *made, const char *file, int line);

#ifndef SL_BUILDING
#define SL_LOCATED(call) sl_located(call, __FILE__, __LINE__)
#define SL_LOCATED_VOID(call)                                                  \
    ((call), (void)sl_located(NULL, __FILE__, __LINE__))
#define sl_input(...)            SL_LOCATED((sl_input)(__VA_ARGS__))
#define sl_parameter(...)        SL_LOCATED((sl_parameter)(__VA_ARGS__))
#define sl_buffer(...)           SL_LOCATED((sl_buffer)(__VA_ARGS__))
#define sl_alias(...)            SL_LOCATED((sl_alias)(__VA_ARGS__))
#define sl_matmul(...)           SL_LOCATED((sl_matmul)(__VA_ARGS__))
#define sl_linear(...)           SL_LOCATED((sl_linear)(__VA_ARGS__))
#define sl_add(...)              SL_LOCATED((sl_add)(__VA_ARGS__))
#define sl_sub(...)              SL_LOCATED((sl_sub)(__VA_ARGS__))
#define sl_mul(...)              SL_LOCATED((sl_mul)(__VA_ARGS__))
#define sl_scale(...)            SL_LOCATED((sl_scale)(__VA_ARGS__))
#define sl_cast(...)             SL_LOCATED((sl_cast)(__VA_ARGS__))
#define sl_relu(...)             SL_LOCATED((sl_relu)(__VA_ARGS__))
#define sl_gelu_tanh(...)        SL_LOCATED((sl_gelu_tanh)(__VA_ARGS__))
#define sl_gelu_erf(...)         SL_LOCATED((sl_gelu_erf)(__VA_ARGS__))
#define sl_silu(...)             SL_LOCATED((sl_silu)(__VA_ARGS__))
#define sl_layer_norm(...)       SL_LOCATED((sl_layer_norm)(__VA_ARGS__))
#define sl_rms_norm(...)         SL_LOCATED((sl_rms_norm)(__VA_ARGS__))
#define sl_softmax(...)          SL_LOCATED((sl_softmax)(__VA_ARGS__))
#define sl_embedding(...)        SL_LOCATED((sl_embedding)(__VA_ARGS__))
#define sl_add_positions(...)    SL_LOCATED((sl_add_positions)(__VA_ARGS__))
#define sl_causal_attention(...) SL_LOCATED((sl_causal_attention)(__VA_ARGS__))
#define sl_reshape(...)          SL_LOCATED((sl_reshape)(__VA_ARGS__))
#define sl_transpose(...)        SL_LOCATED((sl_transpose)(__VA_ARGS__))
#define sl_slice(...)            SL_LOCATED((sl_slice)(__VA_ARGS__))
#define sl_concat(...)           SL_LOCATED((sl_concat)(__VA_ARGS__))
#define sl_sum(...)              SL_LOCATED((sl_sum)(__VA_ARGS__))
#define sl_mean(...)             SL_LOCATED((sl_mean)(__VA_ARGS__))
#define sl_mse(...)              SL_LOCATED((sl_mse)(__VA_ARGS__))
#define sl_cross_entropy(...)    SL_LOCATED((sl_cross_entropy)(__VA_ARGS__))
#define sl_dropout(...)          SL_LOCATED((sl_dropout)(__VA_ARGS__))
#define sl_output(...)           SL_LOCATED_VOID((sl_output)(__VA_ARGS__))
#define sl_loss(...)             SL_LOCATED_VOID((sl_loss)(__VA_ARGS__))
#define sl_split(...)            SL_LOCATED_VOID((sl_split)(__VA_ARGS__))
#define sl_scope_enter(...)      SL_LOCATED_VOID((sl_scope_enter)(__VA_ARGS__))
#define sl_scope_leave(...)      SL_LOCATED_VOID((sl_scope_leave)(__VA_ARGS__))
#define sl_mark_cut(...)         SL_LOCATED_VOID((sl_mark_cut)(__VA_ARGS__))
#define sl_whole_enter(...)      SL_LOCATED_VOID((sl_whole_enter)(__VA_ARGS__))
#define sl_whole_leave(...)      SL_LOCATED_VOID((sl_whole_leave)(__VA_ARGS__))
#endif

#ifdef __cplusplus
}
#endif
#endif

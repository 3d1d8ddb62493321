/* SPDX-License-Identifier: MIT
 *
 * Models in stages, and batches in microbatches.
 *
 *     sl_graph *graph;
 *     sl_graph_create(&graph);
 *     sl_tensor *h = sl_input(graph, "x", SL_F32, SL_SHAPE(16, 8),
 *                             SL_NO_GRADIENT);
 *     for (int i = 0; i < 6; i++) {
 *         sl_scope_enter(graph, "layers.%d", i);
 *         sl_tensor *w = sl_parameter(graph, "weight", SL_F32,
 *                                     SL_SHAPE(8, 8));
 *         h = sl_relu(sl_linear(h, w, NULL, SL_OUT_IN));
 *         sl_scope_leave(graph);
 *     }
 *     sl_loss(graph, sl_mean(h, SL_ALL));
 *     sl_cut_options options = SL_CUT_OPTIONS_INIT;
 *     options.by = SL_CUT_BY_COST;
 *     options.stages = 3;
 *     sl_model *model = NULL;
 *     if (sl_model_cut(graph, &options, &model))
 *         fprintf(stderr, "%s\n", sl_error_text());
 *     else
 *         printf("%d stages, balance %.2f\n", sl_model_stage_count(model),
 *                sl_model_balance(model));
 *     sl_model_destroy(model);
 *     sl_graph_destroy(graph);
 *
 * A model in stages (`sl_model`) is cut from one graph, or made of stages that
 * are added one by one. It knows which tensors cross from stage to stage, which
 * parameters are tied, and which stages use each input of the model. A batch
 * (`sl_batch`) is split into microbatches for these inputs; the outputs of the
 * microbatches are merged (`sl_merge`).
 *
 * Threads: only one thread may use a model while it is built. Afterwards it
 * never changes, and any number of threads may read it. A batch, a merge or
 * programs may be used by one thread at a time. */
#ifndef SLUICE_PIPELINE_H
#define SLUICE_PIPELINE_H

#include "sluice/comm.h"
#include "sluice/schedule.h"
#include "sluice/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- cutting -- */

typedef struct sl_model sl_model;

/* Where a graph is cut. A stage begins at every cut. */
typedef enum sl_cut_by {
    SL_CUT_AT_MARKS, /* where the model code says sl_mark_cut */
    SL_CUT_AT_NAMES, /* before or after modules, by name */
    SL_CUT_BY_COST,  /* `stages` of them, the costliest as cheap as possible */
} sl_cut_by;

typedef struct sl_cut_point {
    const char *module; /* "transformer.h.4" */
    bool after;         /* cut after it, else before it */
} sl_cut_point;

/* The cost of a module, as sl_measure_modules measures it. */
typedef struct sl_module_cost {
    const char *module;
    double cost;
} sl_module_cost;

/* How a tensor reaches a stage that is not the next one. The messages of a
 * schedule are between adjacent stages only. A message that skips stages adds
 * no wait that the messages between adjacent stages do not imply already: a
 * schedule without deadlock under the async reading stays without. For the
 * other readings, a checked schedule is safe only with SL_ROUTE_HOP. */
typedef enum sl_route {
    SL_ROUTE_DIRECT, /* from its producer to each of its consumers */
    SL_ROUTE_HOP,    /* through each stage between, which forwards it */
} sl_route;

/* Where the inputs of the whole model enter. */
typedef enum sl_feed {
    SL_FEED_USERS, /* at every stage that uses them */
    SL_FEED_FIRST, /* at the first stage, which sends them on */
} sl_feed;

typedef struct sl_cut_options {
    sl_cut_by by;
    const sl_cut_point *points; /* at names; in any order */
    int point_count;
    int stages; /* by cost */
    /* By cost: what each module costs, in any unit. Without these, costs are
     * estimated floating point operations of forward and backward. */
    const sl_module_cost *costs;
    int cost_count;
    /* By cost: a module may also be cut inside, between any two ops, where that
     * makes the costliest stage at least 3% cheaper. */
    bool inside;
    sl_route route;
    sl_feed feed;
    /* Cut where this model was cut, with its route and feed; its graph must
     * have the same ops, of any sizes. All options above are then ignored. */
    const sl_model *like;
} sl_cut_options;
#define SL_CUT_OPTIONS_INIT                                                    \
    {                                                                          \
        SL_CUT_AT_MARKS, NULL, 0, 0, NULL, 0, false, SL_ROUTE_DIRECT,          \
            SL_FEED_USERS, NULL                                                \
    }

/* Cuts a graph into stages; `options` may be NULL. The graph may be destroyed
 * afterwards. Fails with SL_EINVAL where a stage would have nothing to compute,
 * or where a cut is inside a region that must stay whole; with SL_ENOTFOUND
 * where no module has a given name.
 *
 * A cut by cost goes between members of numbered lists (`h.0`, `layers.3`), the
 * largest modules outside them that contain no such list, and matrix products
 * outside of modules. Of all cuts whose costliest stage costs the same, it is
 * the one with the fewest bytes between stages; of these, the most even one. */
SL_API sl_status sl_model_cut(const sl_graph *graph,
                              const sl_cut_options *options, sl_model **out);
SL_API void sl_model_destroy(sl_model *model);

/* Parses "h.4,after h.8": names separated by commas, each after the word
 * `before` or `after`; without one, before. One free() of the points also frees
 * their names. */
SL_API sl_status sl_cut_points_read(const char *text, sl_cut_point **out_points,
                                    int *out_count);

/* Measures the time of forward and backward of each module that a cut by cost
 * goes between: the best of several runs of the module alone, on zeros. One
 * free() of the costs also frees their names. `progress` may be NULL. */
SL_API sl_status
sl_measure_modules(const sl_graph *graph, const sl_stage_options *options,
                   void (*progress)(void *context, int done, int count),
                   void *context, sl_module_cost **out_costs, int *out_count);

/* ------------------------------------------------------- stages by hand -- */

/* Creates a model whose stages are added in order, and then linked. An input of
 * a stage receives the output of the same name from the nearest earlier stage
 * that has one; without such an output it is an input of the model. An output
 * that no later stage receives is an output of the model. */
SL_API sl_status sl_model_create(sl_model **out);

/* Adds an input to the graph of the next stage, with the dtype and shape of the
 * output of this name among the stages added so far. */
SL_API sl_tensor *sl_model_receive(const sl_model *model, sl_graph *graph,
                                   const char *name);

/* Adds a stage. An input whose dtype or shape differs from the output that it
 * receives is refused. On success the graph is owned by the model; the context
 * of callbacks stays the caller's and must outlive the model's stages. */
SL_API sl_status sl_model_add_graph(sl_model *model, sl_graph *graph);
SL_API sl_status sl_model_add_callbacks(
    sl_model *model, const sl_stage_description *description);

/* Finds which tensors cross between stages, and which parameters are tied:
 * those that share a name. No stage can be added afterwards. */
SL_API sl_status sl_model_link(sl_model *model);

/* ------------------------------------------------- what a model consists of */

typedef struct sl_stage_info {
    const sl_graph *graph;      /* NULL where the stage is callbacks */
    const char *const *modules; /* in order; NULL for stages added by hand */
    int module_count;
    int64_t parameters; /* elements of its parameters, tied ones included */
    int64_t parameter_bytes;
    double flops; /* of F and B, estimated; 0 for callbacks */
    double cost;  /* in the unit of sl_cut_options.costs, else flops */
} sl_stage_info;

SL_API int sl_model_stage_count(const sl_model *model);
/* NULL where there is no such stage. */
SL_API const sl_stage_info *sl_model_stage(const sl_model *model, int stage);

/* The mean cost of a stage divided by the largest: 1 is perfect balance. */
SL_API double sl_model_balance(const sl_model *model);

/* A tensor that one stage produces and others use. */
typedef struct sl_crossing {
    const char *name; /* of the producer's output and the consumers' inputs */
    int producer;
    const int *consumers; /* stages that use it, ascending */
    int consumer_count;
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    int64_t bytes;
    bool gradient; /* at least one consumer sends a gradient back */
} sl_crossing;

/* A message between two stages, once per microbatch: forward, and backward
 * where a gradient flows. A tensor that is sent directly has an edge to each
 * consumer, one that hops has a chain of edges. Each edge has its own output
 * gradient at the producer, which sums them. */
typedef struct sl_edge {
    int crossing; /* its place among the crossings */
    int from, to; /* stages */
    /* The name of the output of `from`, of the input of `to`, and of the
     * gradient of that input. */
    const char *name;
    /* The output gradient of `from` that receives it; NULL where no gradient
     * flows. */
    const char *gradient_name;
} sl_edge;

/* A parameter of which several stages have a copy. Its gradient is summed over
 * these stages. */
typedef struct sl_tie {
    const char *const *names; /* all of them */
    int name_count;
    const int *stages; /* ascending */
    int stage_count;
    /* The first name that each of these stages has for it. */
    const char *const *stage_names;
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    int64_t bytes; /* of one copy; norms and checkpoints use the first */
} sl_tie;

/* An input or an output of the whole model. The gradient of an input is the sum
 * over the stages that use it. */
typedef struct sl_model_port {
    const char *name;
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    sl_gradient gradient;
    bool is_loss;
    const int *stages; /* an input's users, ascending; an output's stage */
    int stage_count;
} sl_model_port;

SL_API const sl_crossing *sl_model_crossings(const sl_model *model, int *count);
/* Sorted by receiving stage, then by sending stage. */
SL_API const sl_edge *sl_model_edges(const sl_model *model, int *count);
SL_API const sl_tie *sl_model_ties(const sl_model *model, int *count);
SL_API const sl_model_port *sl_model_inputs(const sl_model *model, int *count);
SL_API const sl_model_port *sl_model_outputs(const sl_model *model, int *count);

/* Fails with the first name that is missing or superfluous unless the
 * parameters of all stages together have exactly these names. sl_model_cut
 * checks this itself. */
SL_API sl_status sl_model_check_parameters(const sl_model *model,
                                           const char *const *names, int count);

/* Compiles a stage; `options` may be NULL. For a stage of callbacks, only the
 * backend among the options matters. */
SL_API sl_status sl_model_compile(const sl_model *model, int stage,
                                  const sl_stage_options *options,
                                  sl_stage **out);

/* ------------------------------------------------- microbatches, splitting */

/* An array of the caller's, contiguous. */
typedef struct sl_array {
    sl_dtype dtype;
    int dims;
    int64_t shape[SL_DIMS_MAX];
    const void *data;
} sl_array;

/* How an argument is divided into microbatches. */
typedef enum sl_spread {
    SL_SPREAD_SPLIT,     /* along a dimension */
    SL_SPREAD_REPLICATE, /* every microbatch gets all of it */
    SL_SPREAD_GIVEN,     /* already split: an array per microbatch */
} sl_spread;

/* An argument of a step. SL_ARGUMENT_INIT: the next input, split along 0. */
typedef struct sl_argument {
    const char *name; /* an input of the model; NULL: the next one in order */
    sl_spread spread;
    int dim; /* along which it is or was split; negative: from the end */
    const sl_array *arrays; /* one; with SL_SPREAD_GIVEN one per microbatch */
    int array_count;
} sl_argument;
#define SL_ARGUMENT_INIT                                                       \
    {                                                                          \
        NULL, SL_SPREAD_SPLIT, 0, NULL, 1                                      \
    }

typedef struct sl_batch sl_batch;

/* How many rows microbatch `index` of `count` gets. Where the rows do not
 * divide evenly, the first microbatches get one more, as in
 * torch.tensor_split. */
SL_API int64_t sl_microbatch_rows(int64_t rows, int count, int index);

/* Splits arguments into microbatches and checks them against the inputs of a
 * model: each input must be given once, with its dtype and, except for the
 * split dimension, its shape. All that are split have the same number of rows,
 * at least one per microbatch. Arguments by position come before those by name.
 * The data of the arrays are borrowed. With NULL for `model`, arguments are not
 * checked against inputs. */
SL_API sl_status sl_batch_create(const sl_model *model,
                                 const sl_argument *arguments, int count,
                                 int microbatches, sl_batch **out);
SL_API void sl_batch_destroy(sl_batch *batch);
SL_API int sl_batch_microbatches(const sl_batch *batch);

/* The size of a microbatch's split dimension; 0 where nothing is split. */
SL_API int64_t sl_batch_rows(const sl_batch *batch, int microbatch);

/* The index of the argument for an input; -1 where there is none. */
SL_API int sl_batch_find(const sl_batch *batch, const char *input);

/* Describes an argument of one microbatch: dtype, shape, and data if it is
 * contiguous in the caller's array, as it always is when split along the
 * outermost dimension. Else data is NULL: use sl_batch_copy. */
SL_API sl_status sl_batch_part(const sl_batch *batch, int argument,
                               int microbatch, sl_array *out);
/* Copies it to `out`, which has exactly `bytes`. */
SL_API sl_status sl_batch_copy(const sl_batch *batch, int argument,
                               int microbatch, void *out, size_t bytes);

/* -------------------------------------------------- microbatches, merging */

typedef enum sl_merge_by {
    SL_MERGE_CONCAT, /* along a dimension: the inverse of splitting */
    SL_MERGE_SUM,
    SL_MERGE_MEAN, /* weighted by rows: where parts are means over their rows,
                      this is the mean over all rows of the batch */
    SL_MERGE_SAME, /* all are equal, bit for bit: inverse of replicating */
    SL_MERGE_LIST, /* not merged: each is kept */
} sl_merge_by;

typedef struct sl_merge_options {
    sl_merge_by by;
    int dim; /* of a concat; negative: from the end */
} sl_merge_options;
#define SL_MERGE_OPTIONS_INIT                                                  \
    {                                                                          \
        SL_MERGE_CONCAT, 0                                                     \
    }

typedef struct sl_merge sl_merge;

/* Creates a merge of one output over all microbatches. `parts` has the dtype
 * and shape of each, without data; `rows` are the weights of a mean, NULL for
 * equal weights; `options` may be NULL for a concat along dimension 0. */
SL_API sl_status sl_merge_create(const sl_merge_options *options,
                                 const sl_array *parts, const int64_t *rows,
                                 int microbatches, sl_merge **out);
SL_API void sl_merge_destroy(sl_merge *merge);

/* Memory to which a microbatch's output may be written directly, so that
 * sl_merge_put need not copy it; NULL where it would not be contiguous. */
SL_API void *sl_merge_place(const sl_merge *merge, int microbatch);

/* Adds a microbatch's output, of `bytes` in all. Microbatches may come in any
 * order. Data at sl_merge_place is not copied. */
SL_API sl_status sl_merge_put(sl_merge *merge, int microbatch, const void *data,
                              size_t bytes);

/* Discards what was put so far, after a step that failed. */
SL_API void sl_merge_restart(sl_merge *merge);

/* The merged output, once every microbatch was put. The merge owns the data,
 * which are valid until the next put: that begins the next step. A list has
 * only parts: sl_merge_part. */
SL_API sl_status sl_merge_finish(sl_merge *merge, sl_array *out);
SL_API sl_status sl_merge_part(const sl_merge *merge, int microbatch,
                               sl_array *out);

/* --------------------------------------------------- sizes of microbatches */

/* Builds a model for microbatches of `rows` rows. `like` is NULL the first
 * time; later it is a model for another number of rows, and the new one must be
 * cut like it. */
typedef sl_status (*sl_model_fn)(void *context, int64_t rows,
                                 const sl_model *like, sl_model **out);

/* The stages of a model, compiled once for each size of microbatch.
 * Microbatches of a batch in which nothing is split have 0 rows. */
typedef struct sl_programs sl_programs;

/* `options` may be NULL. Models are built, and stages compiled, when they are
 * first asked for. The programs own the models and stages that they return. */
SL_API sl_status sl_programs_create(sl_model_fn build, void *context,
                                    const sl_stage_options *options,
                                    sl_programs **out);
SL_API void sl_programs_destroy(sl_programs *programs);

/* The model for a number of rows, and a stage of it. Models for different
 * numbers of rows may differ only in shapes of inputs and outputs: stages,
 * parameters, buffers and their data, and names of inputs and outputs must be
 * the same. A rank asks only for the stages that it runs. */
SL_API sl_status sl_programs_model(sl_programs *programs, int64_t rows,
                                   const sl_model **out);
SL_API sl_status sl_programs_stage(sl_programs *programs, int64_t rows,
                                   int stage, const sl_stage **out);

/* How many numbers of rows there are models for. */
SL_API int sl_programs_count(const sl_programs *programs);

/* -------------------------------------------------------------- running -- */

/* One rank's part of a pipeline: the stages that the schedule places on the
 * rank. */
typedef struct sl_pipeline sl_pipeline;

/* How the loss of a batch is computed from those of its microbatches. */
typedef enum sl_loss_kind {
    SL_LOSS_MEAN, /* weighted by rows; gradients are scaled accordingly */
    SL_LOSS_SUM,
} sl_loss_kind;

/* The arguments of a custom function: a stage of this rank and, for F, I, W and
 * B, the slot of its microbatch. Read and write values with sl_memory_read and
 * sl_memory_write. Inputs and output gradients have arrived before the call;
 * what the function writes is sent after it. */
typedef struct sl_action_call {
    sl_action action;
    const sl_stage *stage;
    sl_memory *memory;
    sl_program program;
    int slot; /* -1 for UNSHARD, RESHARD and REDUCE_GRAD */
    sl_run_options options;
} sl_action_call;

/* A custom function, which runs in place of every action of a kind: compute,
 * UNSHARD, RESHARD or REDUCE_GRAD. A function for OVERLAP_F_B gets both halves,
 * forward first; without one, the halves run one after the other. */
typedef struct sl_action_function {
    sl_action_kind kind;
    sl_status (*call)(void *context, const sl_action_call *calls, int count);
    void *context;
} sl_action_function;

/* Runs what Sluice would run for a compute action without the custom
 * function. */
SL_API sl_status sl_action_call_run(const sl_action_call *call);

/* Work stealing: whether the threads of a rank that waits compute parts of
 * kernels for other ranks of the process, in this pipeline or another. Results
 * do not change by a bit. */
typedef enum sl_work_stealing {
    SL_STEAL_AUTO, /* where there is a core for every thread of every rank */
    SL_STEAL_NEVER,
    SL_STEAL_ALWAYS, /* with fewer cores this can be slower */
} sl_work_stealing;

/* How the outputs of the microbatches are merged into one. */
typedef struct sl_output_merge {
    const char *name;
    sl_merge_options how;
} sl_output_merge;

typedef struct sl_pipeline_options {
    /* Any sound schedule, compute-only or lowered; copied. It determines the
     * numbers of stages and microbatches, and the rank of each stage. Passes
     * add what it lacks: see sl_pipeline_schedule. */
    const sl_schedule *schedule;
    sl_stage_options stage; /* `backward` follows from the schedule */
    sl_loss_kind loss;
    bool keep_outputs; /* on the rank that computes them: sl_pipeline_output */
    /* With all ranks of the replica; else only the rank that computes the
     * losses has them. */
    bool share_losses;
    double timeout_s; /* the longest wait for anything */
    /* Data parallelism: how many pipelines run side by side, each on its own
     * data. The transport must have the schedule's ranks times replicas; ranks
     * of one pipeline are adjacent. Gradients are means over the replicas, with
     * SL_LOSS_SUM sums. Where the schedule has UNSHARD and RESHARD, a replica
     * keeps only its shard of each parameter and gradient, except between
     * UNSHARD and RESHARD. */
    int replicas;
    const sl_action_function *functions; /* custom ones */
    int function_count;
    sl_work_stealing work_stealing;
    /* How kept outputs are merged; those that are not listed are concatenated
     * along the dimension that the batch was split along. */
    const sl_output_merge *merges;
    int merge_count;
    /* How many sends of a rank may be pending, if the schedule is compute-only;
     * -1: any number. A pending send holds memory of its stage. */
    int send_budget;
    /* On GPUs, a step is recorded as a graph the first time, and replayed from
     * then on; with this it is enqueued anew each time (the same bits, where the
     * stage options are `deterministic`). So it is anyway with custom functions,
     * callbacks, kept outputs or replicas, and over MPI. */
    bool no_graph;
} sl_pipeline_options;
#define SL_PIPELINE_OPTIONS_INIT                                               \
    {                                                                          \
        NULL, SL_STAGE_OPTIONS_INIT, SL_LOSS_MEAN, false, false, 600, 1, NULL, \
            0, SL_STEAL_AUTO, NULL, 0, SL_SEND_BUDGET, false                   \
    }
#define SL_SEND_BUDGET 4

/* Every rank calls this with its end of the transport, which must outlive the
 * pipeline. Messages of the caller's own use tags from SL_COMM_OWN_TAG on.
 * Fails with SL_EUNSOUND where the schedule is not sound or would deadlock. A
 * model is built, and its stages compiled, in the first step that needs its
 * number of rows. */
SL_API sl_status sl_pipeline_create(sl_comm *comm, sl_model_fn build,
                                    void *context,
                                    const sl_pipeline_options *options,
                                    sl_pipeline **out);
SL_API void sl_pipeline_destroy(sl_pipeline *pipeline);

/* What a step runs, cell for cell: the schedule that was given, to which the
 * passes reduce-grad, send-recv, wait-send and send-budget have added the kinds
 * of cells that it lacked. An eval runs its forward cells. */
SL_API const sl_schedule *sl_pipeline_schedule(const sl_pipeline *pipeline);

/* Compiles the stages of this rank for batches of `rows` rows, and allocates
 * their memory, so that parameters can be written before the first step. Like a
 * failure in a step, a failure here ends the pipeline on all ranks. */
SL_API sl_status sl_pipeline_prepare(sl_pipeline *pipeline, int64_t rows);

/* Runs forward and backward over all microbatches, which adds to the gradients.
 * Every rank gives the same arguments, of the same shapes; the data of an input
 * that a rank does not use may be NULL. `seed` is for dropout. When a rank
 * fails, all fail with its sentence. */
SL_API sl_status sl_pipeline_step(sl_pipeline *pipeline,
                                  const sl_argument *arguments, int count,
                                  uint64_t seed);

/* Runs forward alone: computes losses and outputs, and does not change
 * gradients. Dropout stays on: to evaluate without it, build a model without
 * it. */
SL_API sl_status sl_pipeline_eval(sl_pipeline *pipeline,
                                  const sl_argument *arguments, int count);

/* The losses of the latest step or eval, by microbatch; NULL, and a count of 0,
 * on a rank that does not have them. */
SL_API const double *sl_pipeline_losses(const sl_pipeline *pipeline,
                                        int *count);
/* The loss of the batch of this replica, as sl_loss_kind says. */
SL_API sl_status sl_pipeline_loss(const sl_pipeline *pipeline, double *out);

/* An output of the latest step or eval, on the rank that computes it: merged as
 * the options say, else concatenated along the dimension that the batch was
 * split along; for a scalar, one number per microbatch. The pipeline owns the
 * data, which are valid until the next step. Fails with SL_EINVAL where the
 * options do not name the output and it cannot be concatenated: because
 * arguments were split along several dimensions, or because the output does not
 * have the rows of its microbatch along the split dimension. */
SL_API sl_status sl_pipeline_output(sl_pipeline *pipeline, const char *name,
                                    sl_array *out);
/* The part of one microbatch. A part of a concatenated output must be
 * contiguous. */
SL_API sl_status sl_pipeline_output_part(const sl_pipeline *pipeline,
                                         const char *name, int microbatch,
                                         sl_array *out);

/* The stages of this rank, and how many. */
SL_API const int *sl_pipeline_stages(const sl_pipeline *pipeline, int *count);

/* The whole model, for the rows of the latest batch; NULL before
 * sl_pipeline_prepare. */
SL_API const sl_model *sl_pipeline_model(const sl_pipeline *pipeline);

/* A stage of this rank with the memory that has its parameters and gradients.
 * Fails with SL_EINVAL before sl_pipeline_prepare or a step, with SL_ENOTFOUND
 * for a stage of another rank. */
SL_API sl_status sl_pipeline_stage(const sl_pipeline *pipeline, int stage,
                                   const sl_stage **out_stage,
                                   sl_memory **out_memory);

/* Plain gradient descent on all stages of this rank: sl_memory_descend. */
SL_API sl_status sl_pipeline_descend(sl_pipeline *pipeline, double rate);

/* Seconds of compute on this rank in the latest step or eval. They include the
 * short time that posting messages takes. */
SL_API double sl_pipeline_busy(const sl_pipeline *pipeline);

/* Sets the gradients of all stages of this rank to zero. */
SL_API void sl_pipeline_zero_gradients(sl_pipeline *pipeline);

/* Runs UNSHARD or RESHARD for all stages of this rank, between steps. All ranks
 * call it. Where replicas do not keep shards, it does nothing. */
SL_API sl_status sl_pipeline_unshard(sl_pipeline *pipeline);
SL_API sl_status sl_pipeline_reshard(sl_pipeline *pipeline);

/* Bytes of a rank, by pool: everything that grows with the model and the batch.
 * After sl_pipeline_prepare all are known and allocated, except for the
 * optimizer's; a batch of another shape adds to them. With shards, parameters,
 * gradients and packed weights are counted at the point of the schedule at
 * which most bytes of them are held. */
typedef struct sl_rank_bytes {
    int64_t parameters;
    int64_t gradients;
    int64_t optimizer;   /* states of sl_optimizer */
    int64_t packed;      /* weights in the layout of the backend */
    int64_t workspace;   /* of programs while they run */
    int64_t activations; /* what microbatches in flight keep for backward, and
                            what I keeps for W */
    int64_t messages;    /* inputs and outputs of stages, and their gradients */
    int64_t outputs;     /* kept for sl_pipeline_output */
    int64_t sums;        /* for summing gradients over ranks */
    int64_t planned;     /* all of the above */
    int64_t measured;    /* the most that was held at once: since creation, or
                            with shards in the latest step */
    int64_t held;        /* now */
} sl_rank_bytes;

/* A dry run of sl_pipeline_prepare for batches of `rows` rows: computes what it
 * would allocate on this rank, allocates none of it, and waits for no rank. */
SL_API sl_status sl_pipeline_plan(sl_pipeline *pipeline, int64_t rows,
                                  sl_rank_bytes *out);
SL_API void sl_pipeline_bytes(const sl_pipeline *pipeline, sl_rank_bytes *out);

/* Writes a table with a row per rank and a column per pool, in megabytes, or in
 * kilobytes where every rank has less than ten megabytes. */
SL_API sl_status sl_rank_bytes_write(const sl_rank_bytes *ranks, int count,
                                     sl_write_fn write, void *context);

typedef sl_status (*sl_rank_fn)(sl_comm *comm, void *context);

/* Runs `rank` on every rank: under mpirun once in this process, which is one
 * rank; else on `ranks` threads. Returns when all have ended, with the first
 * failure of any rank; no rank waits for one that has failed. Fails where
 * mpirun has started another number of ranks. 0 for `ranks` means as many as
 * mpirun has started, and one thread without mpirun. */
SL_API sl_status sl_run(int ranks, sl_rank_fn rank, void *context);

/* The same on threads, even under mpirun. */
SL_API sl_status sl_threads_run(int ranks, sl_rank_fn rank, void *context);

/* -------------------------------------------------------------- tracing -- */

typedef enum sl_event_kind {
    SL_EVENT_COMPUTE, /* F, I, W or B */
    SL_EVENT_STATE,   /* UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD */
    SL_EVENT_SEND,    /* from its post until its memory may be reused */
    SL_EVENT_RECV,    /* from its post until it has arrived */
    SL_EVENT_WAIT,    /* for a message, however short: before a compute for
                         what it receives, or at a WAIT_SEND */
    SL_EVENT_COPY,    /* of an argument, an output, or between stages here */
    SL_EVENT_PACK,    /* of weights into the layout of the backend */
    SL_EVENT_TIES,    /* tied gradients were summed */
    SL_EVENT_END,     /* until all ranks had reached the end */
    SL_EVENT_DATA,    /* a batch was read: sl_pipeline_note_data */
} sl_event_kind;
#define SL_EVENT_KINDS 10
/* "compute", "send", ... */
SL_API const char *sl_event_kind_text(sl_event_kind kind);

typedef struct sl_event {
    sl_event_kind kind;
    sl_action action; /* SEND_F, RECV_B, ... where it is about a message; idle
                         for SL_EVENT_TIES, SL_EVENT_END and SL_EVENT_DATA */
    int peer;         /* rank at the other end of the message; else -1 */
    int peer_stage;
    int edge;      /* of the message, in sl_model_edges; -1: a cell of stages
                         that send each other nothing */
    int64_t bytes; /* of the message; of compute, memory of its microbatch
                         that F or I takes, or B or W frees */
    /* Since the first compute of any rank. */
    double start_s;
    double end_s;
} sl_event;

/* What all ranks did in the latest step or eval. It is always recorded, at the
 * cost of reading the clock after every operation that takes longer than
 * reading it. Shorter operations, such as posting a small message, count
 * towards the one after them. */
typedef struct sl_trace sl_trace;

/* Records that reading the batch of the next step or eval took `seconds`, until
 * now. The trace of that step has it as an SL_EVENT_DATA. */
SL_API void sl_pipeline_note_data(sl_pipeline *pipeline, double seconds);

/* Gathers the trace on rank 0; the other ranks get NULL. All ranks call it,
 * after a step or eval. Times of other processes are converted to rank 0's
 * clock. */
SL_API sl_status sl_pipeline_trace(sl_pipeline *pipeline, sl_trace **out);
SL_API void sl_trace_destroy(sl_trace *trace);

SL_API int sl_trace_ranks(const sl_trace *trace);
SL_API const sl_event *sl_trace_events(const sl_trace *trace, int rank,
                                       size_t *count);

/* The cells that ran, as a schedule of one replica: those of
 * sl_pipeline_schedule, or its forward cells. An OVERLAP_F_B is its two
 * halves. */
SL_API const sl_schedule *sl_trace_plan(const sl_trace *trace);

typedef struct sl_rank_summary {
    double busy_s; /* of compute */
    double waited_s;
    double helped_s; /* of work stealing, while it waited */
    size_t sent;     /* messages */
    int64_t sent_bytes;
    sl_rank_bytes bytes;
} sl_rank_summary;
SL_API sl_rank_summary sl_trace_rank(const sl_trace *trace, int rank);

/* Planned times come from a simulation of the schedule with the mean measured
 * cost of each stage's programs, and messages that take no time. */
typedef struct sl_trace_summary {
    double planned_s; /* from the first compute of any rank to the last */
    double measured_s;
    double bubble_planned;
    double bubble_measured;
    double helped;         /* share of the ranks' time spent in work stealing */
    int64_t bytes_planned; /* of all ranks */
    int64_t bytes_measured;
} sl_trace_summary;
SL_API sl_status sl_trace_summarize(const sl_trace *trace,
                                    sl_trace_summary *out);

/* The simulation of sl_trace_plan that planned times come from, and its costs,
 * which the caller clears; `out_costs` may be NULL. */
SL_API sl_status sl_trace_simulate(const sl_trace *trace, sl_costs *out_costs,
                                   sl_simulation **out);

/* Writes the summaries of the run and of all ranks as tables. */
SL_API sl_status sl_trace_write_summary(const sl_trace *trace,
                                        sl_write_fn write, void *context);

#ifdef __cplusplus
}
#endif
#endif

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
 * A model in stages (`sl_model`) is cut out of one graph, or made of stages
 * that are added one after the other. It knows what crosses from stage to
 * stage, which parameters are tied, and which stages use each input of the
 * model. A batch (`sl_batch`) is split into microbatches for these inputs; the
 * outputs of the microbatches are merged (`sl_merge`).
 *
 * Thread rule: one thread at a time while a model is being made; afterwards it
 * never changes, and any number of threads may read it. One thread at a time
 * per batch, merge and programs.
 */
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
    SL_CUT_BY_COST,  /* into `stages`, the largest as small as possible */
} sl_cut_by;

typedef struct sl_cut_point {
    const char *module; /* "transformer.h.4" */
    bool after;         /* cut after it, else before it */
} sl_cut_point;

/* What a module costs, by measurement; see sl_measure_modules. */
typedef struct sl_module_cost {
    const char *module;
    double cost;
} sl_module_cost;

/* How a tensor reaches a stage that is not the next one. The messages of a
 * schedule go between neighbouring stages. A direct message past some stages
 * adds no wait that the messages between these do not imply: a schedule that is
 * free of deadlock under the async reading stays so. Under the other readings
 * the check of a schedule covers hops alone. */
typedef enum sl_route {
    SL_ROUTE_DIRECT, /* from its producer to each of its consumers */
    SL_ROUTE_HOP,    /* from stage to stage, forwarded by those between */
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
     * makes the largest stage at least 3% smaller. */
    bool inside;
    sl_route route;
    sl_feed feed;
    /* Cut where this model was cut, with its route and feed; it was made of a
     * graph of the same ops in other sizes. All of the above is then
     * ignored. */
    const sl_model *like;
} sl_cut_options;
#define SL_CUT_OPTIONS_INIT                                                    \
    {                                                                          \
        SL_CUT_AT_MARKS, NULL, 0, 0, NULL, 0, false, SL_ROUTE_DIRECT,          \
            SL_FEED_USERS, NULL                                                \
    }

/* Cuts a graph into stages; `options` may be NULL. The graph may be destroyed
 * afterwards. Refused with SL_EINVAL: a stage with nothing to compute, a cut
 * inside of what is to stay whole; with SL_ENOTFOUND: a name that no module
 * has.
 *
 * A cut by cost goes between members of numbered lists (`h.0`, `layers.3`), the
 * largest modules beside these that have no such list in them, and products of
 * matrices in no module. Of all cuts with the same largest stage it is the one
 * with the fewest bytes between stages; of these, the most even one. */
SL_API sl_status sl_model_cut(const sl_graph *graph,
                              const sl_cut_options *options, sl_model **out);
SL_API void sl_model_destroy(sl_model *model);

/* Reads "h.4,after h.8": names separated by commas, each with `before` or
 * `after` in front; without either, before. One free() of the points frees
 * their names too. */
SL_API sl_status sl_cut_points_read(const char *text, sl_cut_point **out_points,
                                    int *out_count);

/* Measures the time of forward and backward of each module that a cut by cost
 * goes between: the best of several runs of the module alone, on zeros. One
 * free() of the costs frees their names too. `progress` may be NULL. */
SL_API sl_status
sl_measure_modules(const sl_graph *graph, const sl_stage_options *options,
                   void (*progress)(void *context, int done, int count),
                   void *context, sl_module_cost **out_costs, int *out_count);

/* ------------------------------------------------------- stages by hand -- */

/* A model whose stages are added in order, and then linked. An input of a stage
 * receives the output of the same name of the nearest earlier stage that has
 * one. Where none has, it is an input of the model. An output that no later
 * stage receives is an output of the model. */
SL_API sl_status sl_model_create(sl_model **out);

/* An input for the graph of the next stage, with the dtype and shape of the
 * output of this name that the stages so far have. */
SL_API sl_tensor *sl_model_receive(const sl_model *model, sl_graph *graph,
                                   const char *name);

/* Adds a stage. An input whose dtype or shape differs from the output that it
 * receives is refused. On success the graph is owned by the model; the context
 * of callbacks stays the caller's and must outlive the model's stages. */
SL_API sl_status sl_model_add_graph(sl_model *model, sl_graph *graph);
SL_API sl_status sl_model_add_callbacks(
    sl_model *model, const sl_stage_description *description);

/* Finds what crosses between the stages, and which parameters are tied: those
 * that share a name. Nothing can be added afterwards. */
SL_API sl_status sl_model_link(sl_model *model);

/* ------------------------------------------------- what a model consists of */

typedef struct sl_stage_info {
    const sl_graph *graph;      /* NULL where the stage is callbacks */
    const char *const *modules; /* in order; NULL for stages added by hand */
    int module_count;
    int64_t parameters; /* elements of its parameters, tied ones included */
    int64_t parameter_bytes;
    double flops; /* of F and B, estimated; 0 for callbacks */
    double cost;  /* in the unit of the given costs, else flops */
} sl_stage_info;

SL_API int sl_model_stage_count(const sl_model *model);
/* NULL where there is no such stage. */
SL_API const sl_stage_info *sl_model_stage(const sl_model *model, int stage);

/* The mean cost of a stage over the largest: 1 is perfect balance. */
SL_API double sl_model_balance(const sl_model *model);

/* A tensor that is made in one stage and used in others. */
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
 * where a gradient flows. A tensor sent directly has an edge to each consumer,
 * one that hops has a chain of edges. Each edge has an output gradient of its
 * own at the producer, which sums them. */
typedef struct sl_edge {
    int crossing; /* its place among the crossings */
    int from, to; /* stages */
    /* Of the output of `from`, the input of `to`, and the input's gradient. */
    const char *name;
    /* The output gradient of `from` that receives it; NULL: none flows. */
    const char *gradient_name;
} sl_edge;

/* One parameter of the model that several stages have a copy of; its gradient
 * is summed over these. */
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
    int64_t bytes; /* of one copy; norms and checkpoints count the first one */
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

/* Checks that the parameters of all stages together have exactly these names;
 * refused with the first that is missing or too many. sl_model_cut does this by
 * itself. */
SL_API sl_status sl_model_check_parameters(const sl_model *model,
                                           const char *const *names, int count);

/* Compiles a stage; `options` may be NULL. Of callbacks only the backend
 * counts. */
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

/* How an argument becomes microbatches. */
typedef enum sl_spread {
    SL_SPREAD_SPLIT,     /* along a dimension */
    SL_SPREAD_REPLICATE, /* every microbatch gets the whole of it */
    SL_SPREAD_GIVEN,     /* it is split already: an array per microbatch */
} sl_spread;

/* An argument of a step. SL_ARGUMENT_INIT: the next input, split along 0. */
typedef struct sl_argument {
    const char *name; /* an input of the model; NULL: the next one in order */
    sl_spread spread;
    int dim; /* along which it is or was split; negative: from the end */
    const sl_array *arrays; /* one; of SL_SPREAD_GIVEN one per microbatch */
    int array_count;
} sl_argument;
#define SL_ARGUMENT_INIT                                                       \
    {                                                                          \
        NULL, SL_SPREAD_SPLIT, 0, NULL, 1                                      \
    }

typedef struct sl_batch sl_batch;

/* How many rows microbatch `index` of `count` gets. Where these do not divide
 * evenly the first ones get one more, as in torch.tensor_split. */
SL_API int64_t sl_microbatch_rows(int64_t rows, int count, int index);

/* Splits arguments into microbatches and checks them against the inputs of a
 * model: each input is given once, with its dtype and, but for the split
 * dimension, its shape. All have the same number of rows, at least one per
 * microbatch. Arguments by position come before those by name. The arrays' data
 * are borrowed. With NULL for `model` nothing is checked against inputs. */
SL_API sl_status sl_batch_create(const sl_model *model,
                                 const sl_argument *arguments, int count,
                                 int microbatches, sl_batch **out);
SL_API void sl_batch_destroy(sl_batch *batch);
SL_API int sl_batch_microbatches(const sl_batch *batch);

/* The size of a microbatch's split dimension; 0 where nothing is split. */
SL_API int64_t sl_batch_rows(const sl_batch *batch, int microbatch);

/* The place of an input among the arguments; -1 where there is none. */
SL_API int sl_batch_find(const sl_batch *batch, const char *input);

/* An argument of one microbatch: dtype, shape, and data where it is contiguous
 * in the caller's array, as it always is when split along the outermost
 * dimension. Else data is NULL: use sl_batch_copy. */
SL_API sl_status sl_batch_part(const sl_batch *batch, int argument,
                               int microbatch, sl_array *out);
/* Copies it to `out`, which has exactly `bytes`. */
SL_API sl_status sl_batch_copy(const sl_batch *batch, int argument,
                               int microbatch, void *out, size_t bytes);

/* -------------------------------------------------- microbatches, merging */

typedef enum sl_merge_by {
    SL_MERGE_CONCAT, /* along a dimension: the inverse of splitting */
    SL_MERGE_SUM,
    SL_MERGE_MEAN, /* weighted by rows: of parts that are means over their own
                      rows, it is the mean over the rows of the batch */
    SL_MERGE_SAME, /* all are equal, bit for bit: the inverse of replicating */
    SL_MERGE_LIST, /* each is kept by itself */
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

/* Room for one output of every microbatch. `parts` are their dtypes and shapes,
 * without data; `rows` are the weights of a mean, NULL for equal ones;
 * `options` may be NULL for a concat along dimension 0. */
SL_API sl_status sl_merge_create(const sl_merge_options *options,
                                 const sl_array *parts, const int64_t *rows,
                                 int microbatches, sl_merge **out);
SL_API void sl_merge_destroy(sl_merge *merge);

/* Where a microbatch's output may be written directly, to be put without a
 * copy; NULL where it will not be contiguous. */
SL_API void *sl_merge_place(const sl_merge *merge, int microbatch);

/* Takes a microbatch's output, in any order; one that is in its own place is
 * not copied. `bytes` is the size of all of it. */
SL_API sl_status sl_merge_put(sl_merge *merge, int microbatch, const void *data,
                              size_t bytes);

/* Forgets what was put so far, after a step that failed. */
SL_API void sl_merge_restart(sl_merge *merge);

/* The merged output, once every microbatch was put. The data are the merge's,
 * and good until the next put, which begins another round. A list has only
 * parts: sl_merge_part. */
SL_API sl_status sl_merge_finish(sl_merge *merge, sl_array *out);
SL_API sl_status sl_merge_part(const sl_merge *merge, int microbatch,
                               sl_array *out);

/* --------------------------------------------------- sizes of microbatches */

/* Builds a model for microbatches of this many rows. `like` is NULL the first
 * time, and later a model for other rows, to be cut alike. */
typedef sl_status (*sl_model_fn)(void *context, int64_t rows,
                                 const sl_model *like, sl_model **out);

/* The stages of a model, compiled once for each size of microbatch. The size of
 * microbatches where nothing is split is 0 rows, and no special case. */
typedef struct sl_programs sl_programs;

/* Nothing is built before it is asked for; `options` may be NULL. The programs
 * own the models and stages that they return. */
SL_API sl_status sl_programs_create(sl_model_fn build, void *context,
                                    const sl_stage_options *options,
                                    sl_programs **out);
SL_API void sl_programs_destroy(sl_programs *programs);

/* The model for a size, and a stage of it, made when first asked for. Models of
 * different sizes must be the same but for shapes of inputs and outputs:
 * stages, parameters, buffers and their data, names of inputs and outputs. A
 * rank asks only for the stages that it runs. */
SL_API sl_status sl_programs_model(sl_programs *programs, int64_t rows,
                                   const sl_model **out);
SL_API sl_status sl_programs_stage(sl_programs *programs, int64_t rows,
                                   int stage, const sl_stage **out);

/* The number of sizes that there are models for. */
SL_API int sl_programs_count(const sl_programs *programs);

/* -------------------------------------------------------------- running -- */

/* One rank's part of a pipeline: the stages that the schedule has on it. */
typedef struct sl_pipeline sl_pipeline;

/* What a batch's loss is of its microbatches'. */
typedef enum sl_loss_kind {
    SL_LOSS_MEAN, /* their mean, weighted by rows: gradients are scaled so */
    SL_LOSS_SUM,
} sl_loss_kind;

/* An action as a function of yours sees it: a stage of this rank and, of F, I,
 * W and B, the slot that its microbatch has. Values are read and written with
 * sl_memory_read and sl_memory_write; inputs and output gradients are there,
 * what the action leaves is sent afterwards. */
typedef struct sl_action_call {
    sl_action action;
    const sl_stage *stage;
    sl_memory *memory;
    sl_program program;
    int slot; /* -1 for UNSHARD, RESHARD and REDUCE_GRAD */
    sl_run_options options;
} sl_action_call;

/* What runs instead of a kind of action: of compute, UNSHARD, RESHARD or
 * REDUCE_GRAD. For OVERLAP_F_B it is given both halves, forward first; without
 * one the halves run one after the other. */
typedef struct sl_action_function {
    sl_action_kind kind;
    sl_status (*call)(void *context, const sl_action_call *calls, int count);
    void *context;
} sl_action_function;

/* What Sluice would do of one call of compute. */
SL_API sl_status sl_action_call_run(const sl_action_call *call);

/* Whether the threads of a rank that waits take part in what others of the
 * process compute, in this pipeline or another. Results are the same bit for
 * bit; time that a schedule leaves idle is not lost. */
typedef enum sl_work_stealing {
    SL_STEAL_AUTO, /* where there is a core for every thread of every rank */
    SL_STEAL_NEVER,
    SL_STEAL_ALWAYS, /* with fewer it may cost more than it brings */
} sl_work_stealing;

/* How an output is put together from those of the microbatches. */
typedef struct sl_output_merge {
    const char *name;
    sl_merge_options how;
} sl_output_merge;

typedef struct sl_pipeline_options {
    /* Any sound one, compute-only or lowered; copied. It says how many stages
     * and microbatches there are, and which rank has which. What it lacks the
     * ordinary passes add: sl_pipeline_schedule. */
    const sl_schedule *schedule;
    sl_stage_options stage; /* `backward` is the schedule's affair */
    sl_loss_kind loss;
    bool keep_outputs; /* for sl_pipeline_output, where they are computed */
    bool share_losses; /* with every rank of the replica, else with that of the
                          loss */
    double timeout_s;  /* that nothing may be waited for longer */
    /* Pipelines side by side, each on data of its own: ranks of the schedule
     * times replicas are the ranks of the transport, those of a pipeline next
     * to each other. Gradients are means over the replicas, or sums of
     * SL_LOSS_SUM. Where the schedule has UNSHARD and RESHARD, a replica keeps
     * its part of each parameter and gradient alone between these. */
    int replicas;
    const sl_action_function *functions; /* instead of what Sluice does */
    int function_count;
    sl_work_stealing work_stealing;
    /* Of outputs that are kept; the others are concatenated along the dimension
     * that the batch was split along. */
    const sl_output_merge *merges;
    int merge_count;
    /* How many sends of a rank may be pending, where the schedule has compute
     * alone; -1: any number. What is sent keeps its memory until then. */
    int send_budget;
} sl_pipeline_options;
#define SL_PIPELINE_OPTIONS_INIT                                               \
    {                                                                          \
        NULL, SL_STAGE_OPTIONS_INIT, SL_LOSS_MEAN, false, false, 600, 1, NULL, \
            0, SL_STEAL_AUTO, NULL, 0, SL_SEND_BUDGET                          \
    }
#define SL_SEND_BUDGET 4

/* Called by every rank, each with its end of the transport, which must outlive
 * the pipeline; messages of the caller's own take tags from
 * SL_COMM_OWN_TAG on. The transport has the
 * schedule's ranks, times replicas. Refused with
 * SL_EUNSOUND: a schedule that is not sound, or would deadlock. Models are
 * built and stages compiled when a step first needs their size. */
SL_API sl_status sl_pipeline_create(sl_comm *comm, sl_model_fn build,
                                    void *context,
                                    const sl_pipeline_options *options,
                                    sl_pipeline **out);
SL_API void sl_pipeline_destroy(sl_pipeline *pipeline);

/* What runs, cell for cell: the schedule that was given, and what the passes
 * reduce-grad, send-recv, wait-send and send-budget have added where it had
 * nothing of the kind. An eval runs its forward cells. */
SL_API const sl_schedule *sl_pipeline_schedule(const sl_pipeline *pipeline);

/* Makes sure that the stages of this rank are there for batches of so many rows
 * in all, so that their parameters can be written before the first step. A
 * failure here ends the pipeline on all ranks, as one in a step does. */
SL_API sl_status sl_pipeline_prepare(sl_pipeline *pipeline, int64_t rows);

/* One step, forward and backward over all microbatches: adds to the gradients.
 * Every rank gives the same arguments, in the same shapes; a rank that does not
 * use an input may leave its data NULL. `seed` is of dropout. When a rank
 * fails, all fail, with its sentence. */
SL_API sl_status sl_pipeline_step(sl_pipeline *pipeline,
                                  const sl_argument *arguments, int count,
                                  uint64_t seed);

/* Forward alone: losses and outputs, no gradients touched. Dropout, where the
 * model has any, is the model's affair: build one without for this. */
SL_API sl_status sl_pipeline_eval(sl_pipeline *pipeline,
                                  const sl_argument *arguments, int count);

/* The losses of the latest step or eval, by microbatch; NULL, and 0, on a rank
 * that does not have them. */
SL_API const double *sl_pipeline_losses(const sl_pipeline *pipeline,
                                        int *count);
/* The batch's, as SL_LOSS_MEAN or SL_LOSS_SUM has it: of this replica's. */
SL_API sl_status sl_pipeline_loss(const sl_pipeline *pipeline, double *out);

/* An output of the latest step or eval, on the rank that computes it: merged as
 * the options say, else concatenated along the dimension that the batch was
 * split along; scalars come as one number per microbatch. The data are the
 * pipeline's, until the next. Refused with SL_EINVAL where arguments were split
 * along several dimensions, or the output has other rows than its microbatch
 * along that one, and the options say nothing of it. */
SL_API sl_status sl_pipeline_output(sl_pipeline *pipeline, const char *name,
                                    sl_array *out);
/* That of one microbatch; of what was concatenated, where it lies in one
 * piece. */
SL_API sl_status sl_pipeline_output_part(const sl_pipeline *pipeline,
                                         const char *name, int microbatch,
                                         sl_array *out);

/* The stages of this rank, and how many. */
SL_API const int *sl_pipeline_stages(const sl_pipeline *pipeline, int *count);

/* The whole model, for the size of the latest batch; NULL before
 * sl_pipeline_prepare. */
SL_API const sl_model *sl_pipeline_model(const sl_pipeline *pipeline);

/* A stage of this rank with the memory that has its parameters and gradients;
 * after sl_pipeline_prepare or a step, before which it is SL_EINVAL. A stage of
 * another rank is SL_ENOTFOUND. */
SL_API sl_status sl_pipeline_stage(const sl_pipeline *pipeline, int stage,
                                   const sl_stage **out_stage,
                                   sl_memory **out_memory);

/* Plain gradient descent on all stages of this rank: sl_memory_descend. */
SL_API sl_status sl_pipeline_descend(sl_pipeline *pipeline, double rate);

/* Seconds that compute took on this rank in the latest step or eval, with what
 * little its messages took to post. */
SL_API double sl_pipeline_busy(const sl_pipeline *pipeline);

/* Makes the gradients of all stages of this rank 0. */
SL_API void sl_pipeline_zero_gradients(sl_pipeline *pipeline);

/* Parameters that are kept in parts over replicas: UNSHARD and RESHARD of all
 * stages of this rank, between steps. All ranks call it; without sharding
 * nothing happens. */
SL_API sl_status sl_pipeline_unshard(sl_pipeline *pipeline);
SL_API sl_status sl_pipeline_reshard(sl_pipeline *pipeline);

/* Bytes of a rank, by pool: everything that grows with the model and the batch.
 * All are known, and allocated, after sl_pipeline_prepare, but for what an
 * optimizer adds; a batch of another shape adds to them. Where parameters are
 * kept in parts, parameters, gradients and packed weights are those held at the
 * moment when the schedule has most of them whole. */
typedef struct sl_rank_bytes {
    int64_t parameters;
    int64_t gradients;
    int64_t optimizer;   /* states of sl_optimizer */
    int64_t packed;      /* weights as the backend likes them */
    int64_t workspace;   /* of programs while they run */
    int64_t activations; /* what microbatches in flight hold for backward, and
                            what I's have handed to W's */
    int64_t messages;    /* inputs and outputs of these, and their gradients */
    int64_t outputs;     /* that are kept for sl_pipeline_output */
    int64_t sums;        /* for summing gradients over ranks */
    int64_t planned;     /* all of the above */
    int64_t measured;    /* the most that was held at a time: since it was
                            created, and with parameters in parts in the latest
                            step */
    int64_t held;        /* now */
} sl_rank_bytes;

/* What sl_pipeline_prepare would take on this rank for batches of so many rows;
 * nothing is allocated for it, and nobody is waited for. */
SL_API sl_status sl_pipeline_plan(sl_pipeline *pipeline, int64_t rows,
                                  sl_rank_bytes *out);
SL_API void sl_pipeline_bytes(const sl_pipeline *pipeline, sl_rank_bytes *out);

/* As a table, a rank in each row, by pool, in megabytes, or kilobytes where all
 * have less than ten of the former. */
SL_API sl_status sl_rank_bytes_write(const sl_rank_bytes *ranks, int count,
                                     sl_write_fn write, void *context);

typedef sl_status (*sl_rank_fn)(sl_comm *comm, void *context);

/* Runs `rank` on every rank of what this process is: under mpirun as the one
 * rank that it is, else on a thread for each of `ranks`. Ends when all have,
 * with the first failure, wherever it was: the others then know of it, and none
 * waits for the rank that failed. Refused where mpirun has started another
 * number of ranks; 0 takes as many as there are, of threads one. */
SL_API sl_status sl_run(int ranks, sl_rank_fn rank, void *context);

/* The same on threads, whatever this process is. */
SL_API sl_status sl_threads_run(int ranks, sl_rank_fn rank, void *context);

/* -------------------------------------------------------------- tracing -- */

typedef enum sl_event_kind {
    SL_EVENT_COMPUTE, /* F, I, W or B */
    SL_EVENT_STATE,   /* UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD */
    SL_EVENT_SEND,    /* a message, from when it was posted to when it left */
    SL_EVENT_RECV,    /* likewise, to when it was there */
    SL_EVENT_WAIT,    /* the rank waited for one of these, if only briefly: in
                         a compute for what it receives, or at a WAIT_SEND */
    SL_EVENT_COPY,    /* an argument in, an output out, between own stages */
    SL_EVENT_PACK,    /* weights into the layout the backend likes */
    SL_EVENT_TIES,    /* tied gradients were summed */
    SL_EVENT_END,     /* until all ranks had come to the end */
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
    int edge;      /* what the message is: which of sl_model_edges; -1: a cell
                      of stages that have nothing to send each other */
    int64_t bytes; /* of the message; of compute: what F or I takes, or B or W
                      gives back, of the memory of its microbatch */
    /* Since the first compute of any rank. */
    double start_s;
    double end_s;
} sl_event;

/* What all ranks did in the latest step or eval. Recording it takes a
 * look at the clock where time passes, and is always on: what is too short to
 * look, as a small message, counts to what comes after it. */
typedef struct sl_trace sl_trace;

/* Says that reading the batch of the step or eval that comes next took so long,
 * until now: its trace then shows it. */
SL_API void sl_pipeline_note_data(sl_pipeline *pipeline, double seconds);

/* All ranks call it, after a step or eval. The trace is rank 0's; others get
 * NULL. Clocks of other processes are brought in line with rank 0's. */
SL_API sl_status sl_pipeline_trace(sl_pipeline *pipeline, sl_trace **out);
SL_API void sl_trace_destroy(sl_trace *trace);

SL_API int sl_trace_ranks(const sl_trace *trace);
SL_API const sl_event *sl_trace_events(const sl_trace *trace, int rank,
                                       size_t *count);

/* What ran, cell for cell, as a schedule of one replica: sl_pipeline_schedule, or
 * the forward cells of that; overlaps as their halves. */
SL_API const sl_schedule *sl_trace_plan(const sl_trace *trace);

typedef struct sl_rank_summary {
    double busy_s; /* of compute */
    double waited_s;
    double
        helped_s; /* took part in other ranks' compute, while it waited here or
                      for the end of the step */
    size_t sent;  /* messages */
    int64_t sent_bytes;
    sl_rank_bytes bytes;
} sl_rank_summary;
SL_API sl_rank_summary sl_trace_rank(const sl_trace *trace, int rank);

/* Planned is what a simulation makes of the schedule with the mean cost of each
 * stage's programs as measured, and messages that take no time. */
typedef struct sl_trace_summary {
    double planned_s; /* from the first compute of any rank to the last */
    double measured_s;
    double bubble_planned;
    double bubble_measured;
    double helped; /* share of the ranks' time in which they helped others */
    int64_t bytes_planned; /* of all ranks */
    int64_t bytes_measured;
} sl_trace_summary;
SL_API sl_status sl_trace_summarize(const sl_trace *trace,
                                    sl_trace_summary *out);

/* That simulation, of sl_trace_plan; and its costs, to be cleared, unless
 * `out_costs` is NULL. */
SL_API sl_status sl_trace_simulate(const sl_trace *trace, sl_costs *out_costs,
                                   sl_simulation **out);

/* Both as a table. */
SL_API sl_status sl_trace_write_summary(const sl_trace *trace,
                                        sl_write_fn write, void *context);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT
 *
 * Models to train: GPT-2 under the names of its Hugging Face state dict, and a
 * plain MLP.
 *
 *     sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
 *     config.layers = 2;
 *     sl_graph *graph;
 *     sl_graph_create(&graph);
 *     sl_gpt2_build(graph, &config, NULL, 1, 64);
 *     if (sl_graph_status(graph))
 *         fprintf(stderr, "%s\n", sl_error_text());
 *     sl_graph_destroy(graph);
 *
 * The functions build into a graph and refuse through it, as ops do. A whole
 * model comes from one call, or piece by piece, with marks or stages of your
 * own between the pieces. For a pipeline, sl_gpt2_model and sl_mlp_model cut
 * them, and sl_pipeline_init_parameters gives them their initial weights. */
#ifndef SLUICE_TRAIN_H
#define SLUICE_TRAIN_H

#include "sluice/pipeline.h"
#include "sluice/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- GPT-2 -- */

typedef enum sl_activation {
    SL_ACTIVATION_GELU_TANH, /* "gelu_new" */
    SL_ACTIVATION_GELU_ERF,  /* "gelu" */
    SL_ACTIVATION_RELU,
    SL_ACTIVATION_SILU,
} sl_activation;

typedef struct sl_gpt2_config {
    int layers;
    int heads;
    int width;
    int inner; /* width of the MLPs; 0: four times the width */
    int vocabulary;
    int positions; /* the longest sequence */
    double epsilon;
    sl_activation activation;
    bool tied; /* lm_head.weight is transformer.wte.weight */
    double embedding_dropout;
    double residual_dropout;
    double attention_dropout;
    bool has_tokens; /* of which the ids that begin and end a text are known */
    int first_token, last_token;
} sl_gpt2_config;
#define SL_GPT2_CONFIG_INIT                                                    \
    {                                                                          \
        12, 12, 768, 0, 50257, 1024, 1e-5, SL_ACTIVATION_GELU_TANH, true, 0.1, \
            0.1, 0.1, false, 0, 0                                              \
    }

/* Reads a config.json as Hugging Face writes it. Refuses one without a key that
 * is needed, or with a value that Sluice does not support. */
SL_API sl_status sl_gpt2_read_config(const char *json, size_t length,
                                     sl_gpt2_config *out);

/* Writes a config.json that Hugging Face reads. */
SL_API sl_status sl_gpt2_write_config(const sl_gpt2_config *config,
                                      sl_write_fn write, void *context);

typedef struct sl_gpt2_options {
    sl_dtype dtype; /* of the parameters */
    bool dropout;   /* with the config's rates; that of attention must be 0 */
} sl_gpt2_options;
#define SL_GPT2_OPTIONS_INIT                                                   \
    {                                                                          \
        SL_F32, false                                                          \
    }

/* The whole model on inputs `input_ids` and `labels` (batch, length) of i64:
 * outputs `logits` (batch, length, vocabulary) and the loss, their mean cross
 * entropy against the labels, where -100 is ignored. Labels are not shifted
 * here: the label at a position is the token that follows it. `options` may be
 * NULL. */
SL_API void sl_gpt2_build(sl_graph *graph, const sl_gpt2_config *config,
                          const sl_gpt2_options *options, int64_t batch,
                          int64_t length);

/* The model in pieces: embed takes ids (B, T) to h (B, T, width), layers keep
 * that shape, the head takes h to logits (B, T, vocabulary). Where the model is
 * tied and both ends are in one graph, pass the embedding's table from
 * `out_wte` (which may be NULL) to the head as `wte`. A `wte` of NULL makes a
 * parameter of its own, which is tied by its name. */
SL_API sl_tensor *sl_gpt2_embed(sl_graph *graph, const sl_gpt2_config *config,
                                const sl_gpt2_options *options, sl_tensor *ids,
                                sl_tensor **out_wte);
SL_API sl_tensor *sl_gpt2_layer(sl_graph *graph, const sl_gpt2_config *config,
                                const sl_gpt2_options *options, int index,
                                sl_tensor *h);
SL_API sl_tensor *sl_gpt2_head(sl_graph *graph, const sl_gpt2_config *config,
                               const sl_gpt2_options *options, sl_tensor *h,
                               sl_tensor *wte);

/* GPT-2 for a pipeline: the context of sl_gpt2_model, an sl_model_fn. The size
 * of a microbatch is its number of sequences. */
typedef struct sl_gpt2_model_spec {
    sl_gpt2_config config;
    sl_gpt2_options options;
    int64_t length; /* of the sequences */
    sl_cut_options cut;
} sl_gpt2_model_spec;
SL_API sl_status sl_gpt2_model(void *spec, int64_t rows, const sl_model *like,
                               sl_model **out);

/* ------------------------------------------------------------------ MLP -- */

typedef struct sl_mlp_config {
    int layers;
    int width; /* the hidden ones are four times as wide */
} sl_mlp_config;
#define SL_MLP_CONFIG_INIT                                                     \
    {                                                                          \
        16, 512                                                                \
    }

/* Layers of x + net2(relu(net1(x))) on inputs `x` and `target` (rows, width):
 * `output`, and the loss, its mean squared error. */
SL_API void sl_mlp_build(sl_graph *graph, const sl_mlp_config *config,
                         int64_t rows);
SL_API sl_tensor *sl_mlp_layer(sl_graph *graph, const sl_mlp_config *config,
                               int index, sl_tensor *x);

/* The MLP for a pipeline: the context of sl_mlp_model, an sl_model_fn. */
typedef struct sl_mlp_model_spec {
    sl_mlp_config config;
    sl_cut_options cut;
} sl_mlp_model_spec;
SL_API sl_status sl_mlp_model(void *spec, int64_t rows, const sl_model *like,
                              sl_model **out);

/* ------------------------------------------------------ initial weights -- */

/* The initial value of a parameter: mean + deviation * a standard normal
 * number. */
typedef struct sl_init {
    double mean;
    double deviation;
} sl_init;
typedef sl_init (*sl_init_fn)(const void *config, const sl_port *parameter);

/* As Hugging Face initialises GPT-2: deviations of 0.02, for projections into
 * the residual 0.02 / sqrt(2 * layers), norms 1, biases 0. */
SL_API sl_init sl_gpt2_init(const void *gpt2_config, const sl_port *parameter);

/* Deviations of sqrt(1 / inputs), biases 0. */
SL_API sl_init sl_mlp_init(const void *mlp_config, const sl_port *parameter);

/* Initialises every parameter of this rank's stages, after sl_pipeline_prepare.
 * A number depends only on the seed, the parameter's name and its place: the
 * initial model is the same on any layout. */
SL_API sl_status sl_pipeline_init_parameters(sl_pipeline *pipeline,
                                             sl_init_fn start,
                                             const void *config, uint64_t seed);

/* ----------------------------------------------------------- optimizers -- */

typedef struct sl_optimizer_options {
    sl_update_kind kind;
    double beta1, beta2, epsilon; /* of AdamW */
    double momentum;              /* of SGD */
    double decay;
    bool decay_all; /* tensors of one dimension too: biases and norms */
    double clip;    /* the norm of the whole gradient is at most this; 0: any */
} sl_optimizer_options;
#define SL_OPTIMIZER_OPTIONS_INIT                                              \
    {                                                                          \
        SL_UPDATE_ADAMW, 0.9, 0.95, 1e-8, 0.9, 0.1, false, 1                   \
    }

/* The optimizer of a rank's stages. */
typedef struct sl_optimizer sl_optimizer;

/* After sl_pipeline_prepare; the pipeline must outlive it. Stages of callbacks,
 * and parameters in parts, are refused. */
SL_API sl_status sl_optimizer_create(sl_pipeline *pipeline,
                                     const sl_optimizer_options *options,
                                     sl_optimizer **out);
SL_API void sl_optimizer_destroy(sl_optimizer *optimizer);

/* One step, of all ranks together, that uses the gradients up. `out_norm`,
 * unless NULL, is that of the whole model's gradient before it was clipped, a
 * tied parameter counted once. Fails with SL_EFAIL on all ranks, with the name
 * of a parameter, where it is not finite, and then nothing has changed. */
SL_API sl_status sl_optimizer_step(sl_optimizer *optimizer, double rate,
                                   double *out_norm);

/* Steps so far; a checkpoint sets them. */
SL_API int64_t sl_optimizer_steps(const sl_optimizer *optimizer);
SL_API void sl_optimizer_set_steps(sl_optimizer *optimizer, int64_t steps);

/* How fast to learn: up from 0 over `warmup` steps, then down to `last` times
 * the rate at step `steps`. */
typedef enum sl_rate_kind {
    SL_RATE_CONSTANT,
    SL_RATE_LINEAR,
    SL_RATE_COSINE
} sl_rate_kind;
typedef struct sl_rate {
    sl_rate_kind kind;
    double rate;
    double last; /* as a part of the rate */
    int64_t warmup;
    int64_t steps;
} sl_rate;

/* The rate of a step, from 1. */
SL_API double sl_rate_at(const sl_rate *rate, int64_t step);

/* ----------------------------------------------------------------- data -- */

/* The tokens of text files, or of files of token ids. */
typedef struct sl_tokens sl_tokens;

/* Opens a file or a folder. Files that end in `.bin` hold token ids: 16-bit
 * numbers as nanoGPT writes them, or what llm.c writes after its header of 256
 * numbers. All others are text, a token per byte. A folder is all of its files
 * in the order of their paths, without hidden ones; all are of one kind. What
 * is opened does not change: any thread may read. */
SL_API sl_status sl_tokens_open(const char *path, sl_tokens **out);
SL_API void sl_tokens_close(sl_tokens *tokens);

SL_API int64_t sl_tokens_count(const sl_tokens *tokens);
/* Whether it is text, whose tokens are bytes. */
SL_API bool sl_tokens_are_bytes(const sl_tokens *tokens);

/* Reads `count` tokens from `first` on. Refuses a file that has become shorter
 * since. */
SL_API sl_status sl_tokens_read(const sl_tokens *tokens, int64_t first,
                                int64_t count, int64_t *out);

/* Windows over a range of tokens, each `length` long and one more for the last
 * label, `stride` apart; shuffled in an order that depends on the seed alone,
 * another one every epoch, or one after the other. */
typedef struct sl_windows {
    const sl_tokens *tokens;
    int64_t first, count; /* the range */
    int64_t length;
    int64_t stride; /* 0: the length */
    int vocabulary; /* a token past it is refused */
    bool shuffled;
    uint64_t seed;
} sl_windows;

/* How many there are in an epoch; 0 where the range is too short. */
SL_API int64_t sl_windows_count(const sl_windows *windows);

/* Reads `rows` windows into ids and labels (rows, length), from window `number`
 * on; windows are numbered from 0 through all epochs. */
SL_API sl_status sl_windows_read(const sl_windows *windows, int64_t number,
                                 int64_t rows, int64_t *ids, int64_t *labels);

/* -------------------------------------------------------------- weights -- */

/* The tensors of a model in safetensors files. */
typedef struct sl_weights sl_weights;

/* Opens a file, or a folder as Hugging Face writes it: model.safetensors, or
 * the numbered files that model.safetensors.index.json lists. */
SL_API sl_status sl_weights_open(const char *path, sl_weights **out);
SL_API void sl_weights_close(sl_weights *weights);

/* By name, with or without the `transformer.` that some files leave out; NULL
 * where there is none. */
SL_API const sl_safetensor *sl_weights_find(const sl_weights *weights,
                                            const char *name);

/* Writes them into the parameters of this rank. One that is missing, or has
 * another dtype or shape, is refused by name, and then nothing has changed; a
 * file that cannot be read to its end is found out on the way. */
SL_API sl_status sl_weights_load(const sl_weights *weights,
                                 sl_pipeline *pipeline);

/* ---------------------------------------------------------- checkpoints -- */

/* Where a run stands. */
typedef struct sl_progress {
    int64_t step;      /* that are done */
    int64_t sequences; /* that were seen */
    uint64_t seed;
    double validation; /* loss; NaN: none yet */
} sl_progress;

/* The right to write to a folder of checkpoints, which one run has at a time: a
 * lock that goes with the process. */
typedef struct sl_claim sl_claim;

/* Makes the folder where it is not there. Refused with SL_EINVAL while another
 * run has it. Whoever resumes claims first, and then looks for a checkpoint. */
SL_API sl_status sl_claim_create(const char *folder, sl_claim **out);
SL_API void sl_claim_destroy(sl_claim *claim);

/* Writes `folder`/step-00000100: the model as Hugging Face lays it out, a file
 * per rank, the optimizer's state beside it, and where the run stands. The model
 * is written in `dtype`, SL_F32 or SL_BF16; beside one in bf16 the optimizer's
 * files have the f32 parameters, which a run that is resumed goes on with. All
 * ranks call it. It is there as a whole, and lasting, when this returns, or not
 * at all. */
SL_API sl_status sl_checkpoint_write(sl_pipeline *pipeline,
                                     const sl_optimizer *optimizer,
                                     const sl_gpt2_config *config,
                                     const sl_progress *progress,
                                     sl_dtype dtype, const char *folder);

/* Whether a checkpoint is as it was written, to the last byte: SL_EPARSE where
 * it is damaged. */
SL_API sl_status sl_checkpoint_check(const char *path, sl_progress *out);

/* The newest undamaged checkpoint of a folder, freed by the caller. Damaged
 * ones are reported, unless `report` is NULL. SL_ENOTFOUND where there is none.
 * One that could not be read now, or is of another version, fails: it may be
 * sound.
 */
SL_API sl_status sl_checkpoint_find(const char *folder,
                                    void (*report)(void *context,
                                                   const char *sentence),
                                    void *context, char **out);

/* Reads one into this rank's parameters and state, written by any number of
 * ranks under any schedule. `optimizer` may be NULL: parameters alone. */
SL_API sl_status sl_checkpoint_read(const char *path, sl_pipeline *pipeline,
                                    sl_optimizer *optimizer);

/* Removes all but the newest `keep`, and that with the least loss of
 * validation; also what was left of one that was never finished. */
SL_API sl_status sl_checkpoint_prune(const char *folder, int keep);

/* ------------------------------------------------------------- training -- */

/* What is reported of a step. */
typedef struct sl_train_metrics {
    int64_t step;
    double loss; /* of its batch */
    double norm; /* of the gradient, before it was clipped */
    double rate;
    double step_s; /* that the step took */
    double data_s; /* of these, to read its batch */
    double bubble; /* fraction of the step that ranks did not compute */
    double tokens_per_s;
    int64_t sequences; /* so far */
    int64_t bytes;     /* of tensor memory, of all ranks */
    double validation; /* loss; NaN unless measured after this step */
    bool saved;        /* a checkpoint of it is written next */
} sl_train_metrics;

typedef struct sl_train_options {
    sl_gpt2_config config;
    const sl_schedule *schedule;
    sl_cut_options cut; /* `stages` is the schedule's affair */
    sl_stage_options stage;
    sl_optimizer_options optimizer;
    sl_rate rate;
    sl_windows data;
    sl_windows validation; /* without tokens: none */
    int64_t batch;         /* sequences of a step */
    int64_t steps;
    uint64_t seed;
    int64_t validate_every;     /* steps; 0: never */
    int64_t validation_batches; /* at most */
    const char *folder;         /* of checkpoints; NULL: none */
    int64_t save_every;         /* steps; 0: at the end alone */
    int keep;                   /* checkpoints */
    sl_dtype save_dtype;        /* of the models in them: SL_F32 or SL_BF16 */
    const char *resume;         /* a checkpoint to continue from; or NULL */
    const char *init;           /* initial weights; or NULL */
    double timeout_s;
    sl_work_stealing
        work_stealing; /* work stealing: whether ranks that wait help others */
    /* The caller's claim of `folder`, on rank 0; NULL: sl_train makes one. */
    const sl_claim *claim;
    /* On rank 0, after every step, before its checkpoint is written. */
    void (*report)(void *context, const sl_train_metrics *metrics);
    /* On every rank, after every step: whether all are to stop there. */
    bool (*stop)(void *context);
    /* On rank 0, after `report`: the trace of the last step. NULL on every
     * rank, or on none. */
    void (*trace)(void *context, const sl_trace *trace);
    void *context;
} sl_train_options;

/* Trains GPT-2; all ranks call it. Ends after `steps`, or where `stop` says so,
 * with a checkpoint where there is a folder. The same seed sees the same data
 * in the same order on any layout. */
SL_API sl_status sl_train(sl_comm *comm, const sl_train_options *options);

/* The layout of a run, as the dry run finds it. */
typedef struct sl_train_layout {
    const sl_model *model; /* in stages, for the first microbatch's rows */
    int ranks;
    int microbatches;
    const int *rank_of;         /* by stage */
    const sl_rank_bytes *bytes; /* by rank; `planned` and its pools */
    const sl_schedule *lowered; /* what runs: sl_pipeline_schedule */
} sl_train_layout;

/* The dry run: calls `show` on rank 0 with the layout that sl_train would have
 * with these options, and the memory that it would allocate. All ranks call
 * it. */
SL_API sl_status sl_train_dry_run(sl_comm *comm,
                                  const sl_train_options *options,
                                  void (*show)(void *context,
                                               const sl_train_layout *layout));

/* ------------------------------------------------------------ inference -- */

/* A trained model on ranks. A microbatch is one sequence. */
typedef struct sl_inference_options {
    sl_gpt2_config config;
    const char *weights;         /* folder or file */
    const sl_schedule *schedule; /* of which only the forwards run */
    sl_stage_options stage;
    double timeout_s;
} sl_inference_options;

/* The mean loss over windows in their order, the first `most` of them (0: all),
 * on all ranks; `out_count`, unless NULL, is how many there were. */
SL_API sl_status sl_evaluate(sl_comm *comm, const sl_inference_options *options,
                             const sl_windows *windows, int64_t most,
                             double *out_loss, int64_t *out_count);

typedef struct sl_sampling {
    const int64_t *prompt;
    int64_t prompt_count;
    int64_t tokens;     /* to generate */
    double temperature; /* 0: always the likeliest token */
    int top_k;          /* sample from that many of the likeliest; 0: all */
    uint64_t seed;
    /* Called on rank 0 for each token of each sample, as it comes. */
    void (*emit)(void *context, int sample, int64_t token);
    void *context;
} sl_sampling;

/* Generates tokens after a prompt, one sample per microbatch of the schedule.
 * Where prompt and tokens are longer than the model's positions, the model sees
 * the latest. There is no key-value cache: every token computes the whole
 * sequence. */
SL_API sl_status sl_generate_tokens(sl_comm *comm,
                                    const sl_inference_options *options,
                                    const sl_sampling *sampling);

#ifdef __cplusplus
}
#endif
#endif

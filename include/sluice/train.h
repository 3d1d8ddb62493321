/* SPDX-License-Identifier: MIT
 *
 * Training: models, optimizers, data, checkpoints, the training loop, and
 * inference. Models are GPT-2, with the parameter names of its Hugging Face
 * state dict, and a plain MLP.
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
 * The functions that build models add to a graph, and report errors through it,
 * as ops do. Build a whole model with one call, or piece by piece, with marks
 * or stages of your own between the pieces. For a pipeline, sl_gpt2_model and
 * sl_mlp_model cut them into stages, and sl_pipeline_init_parameters sets
 * initial weights. To train GPT-2 with one call, see sl_train. */
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
    bool has_tokens;             /* whether the two below are known */
    int first_token, last_token; /* ids that begin and end a text */
} sl_gpt2_config;
#define SL_GPT2_CONFIG_INIT                                                    \
    {                                                                          \
        12, 12, 768, 0, 50257, 1024, 1e-5, SL_ACTIVATION_GELU_TANH, true, 0.1, \
            0.1, 0.1, false, 0, 0                                              \
    }

/* Reads a config.json as Hugging Face writes it. Fails if a required key is
 * missing, or Sluice does not support a value. */
SL_API sl_status sl_gpt2_read_config(const char *json, size_t length,
                                     sl_gpt2_config *out);

/* Writes a config.json that Hugging Face reads. */
SL_API sl_status sl_gpt2_write_config(const sl_gpt2_config *config,
                                      sl_write_fn write, void *context);

typedef struct sl_gpt2_options {
    sl_dtype dtype; /* of the parameters */
    bool dropout;   /* at the config's rates; that of attention must be 0 */
} sl_gpt2_options;
#define SL_GPT2_OPTIONS_INIT                                                   \
    {                                                                          \
        SL_F32, false                                                          \
    }

/* Builds the whole model. Its inputs are `input_ids` and `labels`, both i64 of
 * shape (batch, length). Its outputs are `logits` (batch, length, vocabulary)
 * and the loss, the mean cross entropy against the labels; labels of -100 are
 * ignored. Labels are not shifted here: the label at a position must be the
 * token that follows it. `options` may be NULL. */
SL_API void sl_gpt2_build(sl_graph *graph, const sl_gpt2_config *config,
                          const sl_gpt2_options *options, int64_t batch,
                          int64_t length);

/* The model in pieces: embed maps ids (B, T) to h (B, T, width), layers keep
 * that shape, and the head maps h to logits (B, T, vocabulary). If the model is
 * tied and both ends are in one graph, pass the embedding's table from
 * `out_wte` (which may be NULL) to the head as `wte`. If `wte` is NULL, the
 * head has a parameter of its own, which is tied by its name. */
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
    sl_dtype precision; /* as sl_graph_set_precision takes it */
} sl_gpt2_model_spec;
SL_API sl_status sl_gpt2_model(void *spec, int64_t rows, const sl_model *like,
                               sl_model **out);

/* ------------------------------------------------------------------ MLP -- */

typedef struct sl_mlp_config {
    int layers;
    int width; /* hidden layers are four times as wide */
} sl_mlp_config;
#define SL_MLP_CONFIG_INIT                                                     \
    {                                                                          \
        16, 512                                                                \
    }

/* Builds layers of x + net2(relu(net1(x))) on inputs `x` and `target` (rows,
 * width). Outputs are `output` and the loss, its mean squared error. */
SL_API void sl_mlp_build(sl_graph *graph, const sl_mlp_config *config,
                         int64_t rows);
SL_API sl_tensor *sl_mlp_layer(sl_graph *graph, const sl_mlp_config *config,
                               int index, sl_tensor *x);

/* The MLP for a pipeline: the context of sl_mlp_model, an sl_model_fn. */
typedef struct sl_mlp_model_spec {
    sl_mlp_config config;
    sl_cut_options cut;
    sl_dtype precision; /* as sl_graph_set_precision takes it */
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

/* Initialises as Hugging Face does GPT-2: deviations are 0.02, and for
 * projections into the residual stream 0.02 / sqrt(2 * layers); norms are 1 and
 * biases 0. */
SL_API sl_init sl_gpt2_init(const void *gpt2_config, const sl_port *parameter);

/* Deviations are sqrt(1 / inputs), and biases 0. */
SL_API sl_init sl_mlp_init(const void *mlp_config, const sl_port *parameter);

/* Initialises all parameters of this rank's stages; call it after
 * sl_pipeline_prepare. A value depends only on the seed, the parameter's name
 * and the element's index, so the initial model is the same on any layout. */
SL_API sl_status sl_pipeline_init_parameters(sl_pipeline *pipeline,
                                             sl_init_fn init,
                                             const void *config, uint64_t seed);

/* ----------------------------------------------------------- optimizers -- */

typedef struct sl_optimizer_options {
    sl_update_kind kind;
    double beta1, beta2, epsilon; /* of AdamW */
    double momentum;              /* of SGD */
    double decay;
    bool decay_all; /* also tensors of one dimension: biases and norms */
    double clip;    /* largest norm of the whole gradient; 0: no limit */
} sl_optimizer_options;
#define SL_OPTIMIZER_OPTIONS_INIT                                              \
    {                                                                          \
        SL_UPDATE_ADAMW, 0.9, 0.95, 1e-8, 0.9, 0.1, false, 1                   \
    }

/* The optimizer of a rank's stages. */
typedef struct sl_optimizer sl_optimizer;

/* Call it after sl_pipeline_prepare; the pipeline must outlive the optimizer.
 * Refuses stages of callbacks, and sharded parameters. */
SL_API sl_status sl_optimizer_create(sl_pipeline *pipeline,
                                     const sl_optimizer_options *options,
                                     sl_optimizer **out);
SL_API void sl_optimizer_destroy(sl_optimizer *optimizer);

/* Runs one optimizer step and zeroes the gradients; all ranks call it.
 * `out_norm`, unless NULL, is the norm of the whole model's gradient before
 * clipping, in which a tied parameter counts once. If the norm is not finite,
 * fails on all ranks with SL_EFAIL and the name of a parameter, and changes
 * nothing. */
SL_API sl_status sl_optimizer_step(sl_optimizer *optimizer, double rate,
                                   double *out_norm);

/* The number of steps so far; reading a checkpoint sets it. */
SL_API int64_t sl_optimizer_steps(const sl_optimizer *optimizer);
SL_API void sl_optimizer_set_steps(sl_optimizer *optimizer, int64_t steps);

/* The learning rate: it rises from 0 over `warmup` steps, then decays to `last`
 * times `rate` at step `steps`. */
typedef enum sl_rate_kind {
    SL_RATE_CONSTANT,
    SL_RATE_LINEAR,
    SL_RATE_COSINE
} sl_rate_kind;
typedef struct sl_rate {
    sl_rate_kind kind;
    double rate;
    double last; /* as a fraction of `rate` */
    int64_t warmup;
    int64_t steps;
} sl_rate;

/* The rate of a step; the first step is 1. */
SL_API double sl_rate_at(const sl_rate *rate, int64_t step);

/* ----------------------------------------------------------------- data -- */

/* The tokens of text files, or of files of token ids. */
typedef struct sl_tokens sl_tokens;

/* Opens a file or a folder. Files that end in `.bin` hold token ids: 16-bit
 * numbers as nanoGPT writes them, or the format of llm.c, with its header of
 * 256 numbers. All others are text, with one token per byte. A folder stands
 * for its files in the order of their paths, without hidden ones; all must be
 * of one kind. Any number of threads may read from it. */
SL_API sl_status sl_tokens_open(const char *path, sl_tokens **out);
SL_API void sl_tokens_close(sl_tokens *tokens);

SL_API int64_t sl_tokens_count(const sl_tokens *tokens);
/* Whether this is text, whose tokens are bytes. */
SL_API bool sl_tokens_are_bytes(const sl_tokens *tokens);

/* Reads `count` tokens from `first` on. Fails if a file has become shorter
 * since it was opened. */
SL_API sl_status sl_tokens_read(const sl_tokens *tokens, int64_t first,
                                int64_t count, int64_t *out);

/* Training sequences: windows of `length` tokens over a range, which start
 * `stride` tokens apart; each needs one token more, for its last label. They
 * are read in order or, if shuffled, in an order that depends only on the seed
 * and the epoch. */
typedef struct sl_windows {
    const sl_tokens *tokens;
    int64_t first, count; /* the range */
    int64_t length;
    int64_t stride; /* 0: the length */
    int vocabulary; /* tokens from this number on are refused */
    bool shuffled;
    uint64_t seed;
} sl_windows;

/* How many windows an epoch has; 0 if the range is too short. */
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

/* Finds a tensor by name, with or without the prefix `transformer.`, which some
 * files leave out; NULL if there is none. */
SL_API const sl_safetensor *sl_weights_find(const sl_weights *weights,
                                            const char *name);

/* Writes the tensors into the parameters of this rank. If one is missing, or
 * has another dtype or shape, the error names it, and nothing has changed. If a
 * file cannot be read to its end, some parameters may have been written. */
SL_API sl_status sl_weights_load(const sl_weights *weights,
                                 sl_pipeline *pipeline);

/* ---------------------------------------------------------- checkpoints -- */

/* The progress of a run. */
typedef struct sl_progress {
    int64_t step;      /* how many are done */
    int64_t sequences; /* how many were read */
    uint64_t seed;
    double validation; /* loss after `step`; NaN: not measured */
} sl_progress;

/* A lock on a folder of checkpoints, so that only one run at a time writes to
 * it. It is released when the process ends. */
typedef struct sl_claim sl_claim;

/* Creates the folder if it does not exist. Fails with SL_EINVAL while another
 * run holds the claim. To resume, claim the folder before looking for a
 * checkpoint. */
SL_API sl_status sl_claim_create(const char *folder, sl_claim **out);
SL_API void sl_claim_destroy(sl_claim *claim);

/* Writes the checkpoint `folder`/step-00000100: the model as Hugging Face lays
 * it out, with a file per rank, the optimizer's state, and the progress of the
 * run. The model is written in `dtype`, SL_F32 or SL_BF16; beside one in bf16
 * the optimizer's files have the f32 parameters, with which a resumed run
 * continues. All ranks call it. When this returns, the checkpoint is complete and
 * flushed to disk; if it fails, there is none. */
SL_API sl_status sl_checkpoint_write(sl_pipeline *pipeline,
                                     const sl_optimizer *optimizer,
                                     const sl_gpt2_config *config,
                                     const sl_progress *progress,
                                     sl_dtype dtype, const char *folder);

/* Checks that every byte of a checkpoint is as it was written; fails with
 * SL_EPARSE if it is damaged. */
SL_API sl_status sl_checkpoint_check(const char *path, sl_progress *out);

/* Finds the path of the newest undamaged checkpoint in a folder; the caller
 * frees it. Damaged checkpoints are reported, unless `report` is NULL. Fails
 * with SL_ENOTFOUND if there is none. Also fails at one that cannot be read
 * now, or has another version, since it may be undamaged. */
SL_API sl_status sl_checkpoint_find(const char *folder,
                                    void (*report)(void *context,
                                                   const char *sentence),
                                    void *context, char **out);

/* Reads a checkpoint, which any number of ranks may have written under any
 * schedule, into this rank's parameters and optimizer state. If `optimizer` is
 * NULL, reads parameters only. */
SL_API sl_status sl_checkpoint_read(const char *path, sl_pipeline *pipeline,
                                    sl_optimizer *optimizer);

/* Removes all checkpoints except the newest `keep` and the one with the lowest
 * validation loss; also removes what is left of unfinished ones. */
SL_API sl_status sl_checkpoint_prune(const char *folder, int keep);

/* ------------------------------------------------------------- training -- */

/* What is reported after a step. */
typedef struct sl_train_metrics {
    int64_t step;
    double loss; /* of its batch */
    double norm; /* of the gradient, before clipping */
    double rate;
    double step_s; /* the step's duration */
    double data_s; /* the part of it that reading the batch took */
    double bubble; /* fraction of the step in which ranks did not compute */
    double tokens_per_s;
    int64_t sequences; /* so far */
    int64_t bytes;     /* of tensor memory, of all ranks */
    double validation; /* loss; NaN unless measured after this step */
    bool saved;        /* whether a checkpoint is written next */
} sl_train_metrics;

typedef struct sl_train_options {
    sl_gpt2_config config;
    const sl_schedule *schedule;
    sl_cut_options cut; /* `stages` is ignored: the schedule has it */
    sl_stage_options stage;
    sl_dtype precision; /* as sl_graph_set_precision takes it */
    sl_optimizer_options optimizer;
    sl_rate rate;
    sl_windows data;
    sl_windows validation; /* without tokens: none */
    int64_t batch;         /* sequences of a step */
    int64_t steps;
    uint64_t seed;
    int64_t validate_every;     /* steps; 0: never */
    int64_t validation_batches; /* at most */
    const char *folder;         /* for checkpoints; NULL: none */
    int64_t save_every;         /* steps; 0: only at the end */
    int keep;                   /* checkpoints */
    sl_dtype save_dtype;        /* of the models in them: SL_F32 or SL_BF16 */
    const char *resume;         /* a checkpoint to continue from; or NULL */
    const char *init;           /* initial weights; or NULL */
    double timeout_s;
    sl_work_stealing work_stealing;
    bool no_graph; /* as sl_pipeline_options has it */
    /* The caller's claim of `folder`, on rank 0; NULL: sl_train makes one. */
    const sl_claim *claim;
    /* Called on rank 0 after every step, before its checkpoint is written. */
    void (*report)(void *context, const sl_train_metrics *metrics);
    /* Called on every rank after every step; true: the run ends there. */
    bool (*stop)(void *context);
    /* Called on rank 0 after `report`, with the trace of the last step. NULL
     * on all ranks, or on none. */
    void (*trace)(void *context, const sl_trace *trace);
    void *context;
} sl_train_options;

/* Trains GPT-2; all ranks call it. Ends after `steps`, or when `stop` returns
 * true, and writes a checkpoint if there is a folder. With the same seed, it
 * reads the same data in the same order on any layout. */
SL_API sl_status sl_train(sl_comm *comm, const sl_train_options *options);

/* The layout of a run, as a dry run computes it. */
typedef struct sl_train_layout {
    const sl_model *model; /* in stages, for the first microbatch's rows */
    int ranks;
    int microbatches;
    const int *rank_of;         /* by stage */
    const sl_rank_bytes *bytes; /* by rank; only planned bytes are set */
    const sl_schedule *lowered; /* what runs: sl_pipeline_schedule */
} sl_train_layout;

/* Dry run: calls `show` on rank 0 with the layout that sl_train would use with
 * these options, and the memory that it would allocate. All ranks call it. */
SL_API sl_status sl_train_dry_run(sl_comm *comm,
                                  const sl_train_options *options,
                                  void (*show)(void *context,
                                               const sl_train_layout *layout));

/* ------------------------------------------------------------ inference -- */

/* A trained model, and how to run it on ranks. A microbatch is one sequence. */
typedef struct sl_inference_options {
    sl_gpt2_config config;
    const char *weights;         /* folder or file */
    const sl_schedule *schedule; /* only its forwards run */
    sl_stage_options stage;
    sl_dtype precision; /* as sl_graph_set_precision takes it */
    double timeout_s;
} sl_inference_options;

/* Computes the mean loss over the first `most` windows (0: all), in their
 * order; all ranks call it and get the result. `out_count`, unless NULL, is the
 * number of windows. */
SL_API sl_status sl_evaluate(sl_comm *comm, const sl_inference_options *options,
                             const sl_windows *windows, int64_t most,
                             double *out_loss, int64_t *out_count);

typedef struct sl_sampling {
    const int64_t *prompt;
    int64_t prompt_count;
    int64_t tokens;     /* to generate */
    double temperature; /* 0: always the most likely token */
    int top_k;          /* sample from the most likely ones; 0: from all */
    uint64_t seed;
    /* Called on rank 0 for each token of each sample as it is generated. */
    void (*emit)(void *context, int sample, int64_t token);
    void *context;
} sl_sampling;

/* Generates tokens after a prompt, one sample per microbatch of the schedule;
 * all ranks call it. If prompt and tokens are longer than the model's
 * positions, the model is given the latest ones. There is no key-value cache:
 * every token computes the whole sequence. */
SL_API sl_status sl_generate_tokens(sl_comm *comm,
                                    const sl_inference_options *options,
                                    const sl_sampling *sampling);

#ifdef __cplusplus
}
#endif
#endif

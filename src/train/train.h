/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of the train layer. */
#ifndef SL_TRAIN_TRAIN_H
#define SL_TRAIN_TRAIN_H

#include "sluice/train.h"

#include "base/device.h"
#include "base/files.h"
#include "base/try.h"

/* -------------------------------------------------------- parameters.c -- */

/* A parameter of this rank, or its gradient. */
typedef struct sl__parameter {
    int stage;
    const sl_stage *program_stage;
    sl_memory *memory;
    sl_port port;
} sl__parameter;
typedef sl_status (*sl__parameter_fn)(void *context, const sl__parameter *own);

/* Fails, with its name, for a parameter of this rank that is not finite. */
sl_status sl__check_finite(const sl_pipeline *pipeline);

/* Whether all numbers are finite, as integers always are. */
bool sl__is_finite(sl_dtype dtype, const void *data, size_t bytes);

/* Calls a function for each of them, until it fails. */
sl_status sl__each_parameter(const sl_pipeline *pipeline, sl_port_kind kind,
                             sl__parameter_fn act, void *context);

/* The tie of a parameter of a stage, or NULL; and whether this is the first
 * stage of the tie, or the only one that has the parameter. */
const sl_tie *sl__find_tie(const sl_model *model, int stage, const char *name,
                           bool *out_first);

/* The name of a parameter in a checkpoint: for a tied one, the first name in
 * its first stage. */
const char *sl__tied_name(const sl_model *model, int stage, const char *name);

/* Why a config cannot be built, possibly written to `room`; NULL where it can.
 * (gpt2.c) */
enum { SL__REFUSAL_MAX = 96 };
const char *sl__gpt2_refusal(const sl_gpt2_config *config,
                             char room[SL__REFUSAL_MAX]);

/* ------------------------------------------------------------- agree.c -- */

/* Fails on all ranks if these options differ between any two. */
sl_status sl__train_agree(sl_comm *comm, const sl_train_options *options);

/* -------------------------------------------------------------- loop.c -- */

/* Refuses options that no run can have. */
sl_status sl__train_check(const sl_train_options *options);

/* Creates the pipeline of a run; `model` must outlive it. */
sl_status sl__train_pipeline(sl_comm *comm, const sl_train_options *options,
                             sl_gpt2_model_spec *model, sl_pipeline **out);

/* Makes all ranks fail with a failure of this one; `pipeline` may be NULL. */
sl_status sl__train_fail(sl_comm *comm, sl_pipeline *pipeline,
                         sl_status status);

/* --------------------------------------------------------- optimizer.c -- */

/* Bytes that an optimizer with these options allocates on this rank: states of
 * parameters, and the memory for a step. `rows` are those of a microbatch. */
sl_status sl__optimizer_plan(const sl_pipeline *pipeline,
                             const sl_optimizer_options *options, int64_t rows,
                             int64_t *out_bytes);

/* The states for the parameters of this rank, for checkpoints: `exp_avg` and
 * `exp_avg_sq` of AdamW, `momentum_buffer` of SGD with momentum. */
typedef struct sl__optimizer_state {
    const char *parameter; /* its name in a checkpoint */
    const char *kind;
    sl_port port;
    bool first; /* of a tied parameter, in its first stage */
    sl__stream *stream;
    void *data; /* in device memory */
} sl__optimizer_state;
int sl__optimizer_state_count(const sl_optimizer *optimizer);
const sl__optimizer_state *sl__optimizer_state_at(const sl_optimizer *optimizer,
                                                  int index);

/* ----------------------------------------------------------- windows.c -- */

/* Fails unless the range of the windows is valid and has at least one
 * window. */
sl_status sl__check_windows(const sl_windows *windows);

/* Fails where one of the first 16 million tokens of the data, called `what` in
 * the error, is not in the vocabulary. Later tokens are checked as they are
 * read. */
sl_status sl__check_vocabulary(const sl_windows *windows, const char *what);

/* The arguments `input_ids` and `labels` of a batch (rows, length). */
typedef struct sl__batch {
    int64_t *ids, *labels;
    sl_array arrays[2];
    sl_argument arguments[2];
} sl__batch;
sl_status sl__create_batch(int64_t rows, int64_t length, sl__batch *out);
void sl__clear_batch(sl__batch *batch);

/* --------------------------------------------------------- inference.c -- */

/* Reads weights from a file or folder into the parameters of this rank. */
sl_status sl__load_weights(const char *path, sl_pipeline *pipeline);

/* ----------------------------------------------------------- weights.c -- */

/* Names in the files of an optimizer, "exp_avg.h.0.ln_1.weight", and the prefix
 * of f32 parameters there. */
enum { SL__STATE_NAME_MAX = 512 };
#define SL__MASTER "master"

/* Writes the f32 parameters that the files of an optimizer have, if any, over
 * what the model's files had. */
sl_status sl__load_masters(const sl_weights *states, sl_pipeline *pipeline);

/* sl_weights_open for files whose names begin with `stem` in place of
 * `model`. */
sl_status sl__weights_open_as(const char *path, const char *stem,
                              sl_weights **out);

/* Finds a parameter of a stage by its name, or by another name of its tie. */
const sl_safetensor *sl__find_weight(const sl_weights *weights,
                                     const sl_model *model, int stage,
                                     const char *name);

/* Fails unless a tensor, which may be NULL, has the dtype and shape of a
 * port. */
sl_status sl__check_tensor(const sl_safetensor *found, const char *name,
                           const sl_port *port);

/* -------------------------------------------------------- checkpoint.c -- */

/* Refuses dtypes that models are not saved in. (checkpoint_write.c) */
sl_status sl__check_save_dtype(sl_dtype dtype);

/* Sets aside checkpoints that are newer than a step. All of them must be
 * damaged. */
sl_status sl__checkpoint_set_aside(const char *folder, int64_t step);

/* Reads the progress of a checkpoint, without checking its other files. */
sl_status sl__checkpoint_progress(const char *path, sl_progress *out);

/* ------------------------------------------------------------- files.c -- */

/* Bytes of a file, and their XXH64. */
sl_status sl__sum_file(const char *path, int64_t *out_bytes, uint64_t *out_sum);

/* The checksum of version 1 of checkpoints: over words in order, the last
 * padded with zeros. */
sl_status sl__sum_file_version_1(const char *path, int64_t *out_bytes,
                                 uint64_t *out_sum);

/* Removes a folder of files. Ignores one that does not exist, and a link. */
void sl__remove_folder(const char *path);

/* "folder/name", freed by the caller. */
sl_status sl__join_path(const char *folder, const char *name, char **out);

/* Writes a file in a folder; it is on disk when this returns. */
sl_status sl__write_in(const char *folder, const char *name, const char *text,
                       size_t length);

/* FNV-1a, a hash of 64 bits. It starts as SL__FNV_START. */
#define SL__FNV_START UINT64_C(0xcbf29ce484222325)
void sl__fnv_add(uint64_t *sum, const void *data, size_t bytes);

#endif

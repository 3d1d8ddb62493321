/* SPDX-License-Identifier: MIT
 *
 * What the files of training share. */
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

/* Refuses parameters of this rank with numbers that are not finite, by name. */
sl_status sl__check_finite(const sl_pipeline *pipeline);

/* Whether all numbers are finite; integers are. */
bool sl__is_finite(sl_dtype dtype, const void *data, size_t bytes);

/* Does something with all of them, until it fails. */
sl_status sl__each_parameter(const sl_pipeline *pipeline, sl_port_kind kind,
                             sl__parameter_fn act, void *context);

/* What a parameter of a stage is tied to, NULL where it is not; and whether
 * this is the first stage of those, or the only one. */
const sl_tie *sl__find_tie(const sl_model *model, int stage, const char *name,
                           bool *out_first);

/* The name that a parameter has in a checkpoint: of a tied one, the first that
 * its first stage has for it. */
const char *sl__tied_name(const sl_model *model, int stage, const char *name);

/* Why a config cannot be built, maybe in `room`; NULL where it can. (gpt2.c) */
enum { SL__REFUSAL_MAX = 96 };
const char *sl__gpt2_refusal(const sl_gpt2_config *config,
                             char room[SL__REFUSAL_MAX]);

/* ------------------------------------------------------------- agree.c -- */

/* Fails on all ranks where these options differ between any of them. */
sl_status sl__train_agree(sl_comm *comm, const sl_train_options *options);

/* -------------------------------------------------------------- loop.c -- */

/* Refuses options that no run can have. */
sl_status sl__train_check(const sl_train_options *options);

/* The pipeline of a run; `model` must outlive it. */
sl_status sl__train_pipeline(sl_comm *comm, const sl_train_options *options,
                             sl_gpt2_model_spec *model, sl_pipeline **out);

/* What fails on one rank ends all of them; `pipeline` may be NULL. */
sl_status sl__train_fail(sl_comm *comm, sl_pipeline *pipeline,
                         sl_status status);

/* --------------------------------------------------------- optimizer.c -- */

/* Bytes that an optimizer of these options keeps on this rank: states of its
 * parameters, and what it computes a step with. `rows` are a microbatch's. */
sl_status sl__optimizer_plan(const sl_pipeline *pipeline,
                             const sl_optimizer_options *options, int64_t rows,
                             int64_t *out_bytes);

/* What it keeps for the parameters of this rank, for checkpoints: `exp_avg` and
 * `exp_avg_sq` of AdamW, `momentum_buffer` of SGD, none without momentum. */
typedef struct sl__optimizer_state {
    const char *parameter; /* of a tied one, its name in a checkpoint */
    const char *kind;
    sl_port port;
    bool first; /* of the stages that it is tied over, this is the first */
    sl__stream *stream;
    void *data; /* of the device */
} sl__optimizer_state;
int sl__optimizer_state_count(const sl_optimizer *optimizer);
const sl__optimizer_state *sl__optimizer_state_at(const sl_optimizer *optimizer,
                                                  int index);

/* ----------------------------------------------------------- windows.c -- */

/* Whether windows can be read: theirs is a range, and has one. */
sl_status sl__check_windows(const sl_windows *windows);

/* Refuses data, called `what`, with a token past the vocabulary among its first
 * 16 million; later ones are refused as they are read. */
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

/* Names in the files of an optimizer, "exp_avg.h.0.ln_1.weight", and what
 * parameters in f32 are there. */
enum { SL__STATE_NAME_MAX = 512 };
#define SL__MASTER "master"

/* Writes the f32 parameters that are in the files of an optimizer, where there
 * are any, over what the model's files had. */
sl_status sl__load_masters(const sl_weights *states, sl_pipeline *pipeline);

/* sl_weights_open of files whose names begin with another word than `model`. */
sl_status sl__weights_open_as(const char *path, const char *stem,
                              sl_weights **out);

/* A parameter of a stage by its own name, or by another that it is tied to. */
const sl_safetensor *sl__find_weight(const sl_weights *weights,
                                     const sl_model *model, int stage,
                                     const char *name);

/* Whether a tensor, which may be NULL, is what a port takes. */
sl_status sl__check_tensor(const sl_safetensor *found, const char *name,
                           const sl_port *port);

/* -------------------------------------------------------- checkpoint.c -- */

/* Refuses dtypes that models are not saved in. (checkpoint_write.c) */
sl_status sl__check_save_dtype(sl_dtype dtype);

/* Puts checkpoints that are newer than a step aside, all of which must be
 * damaged. */
sl_status sl__checkpoint_set_aside(const char *folder, int64_t step);

/* Where a checkpoint stands, without looking at all of its files. */
sl_status sl__checkpoint_progress(const char *path, sl_progress *out);

/* ------------------------------------------------------------- files.c -- */

/* Bytes of a file, and their XXH64. */
sl_status sl__sum_file(const char *path, int64_t *out_bytes, uint64_t *out_sum);

/* The sum that checkpoints of version 1 have: of words, one after the other,
 * the last filled up with zeros. */
sl_status sl__sum_file_version_1(const char *path, int64_t *out_bytes,
                                 uint64_t *out_sum);

/* Removes a folder of files; one that is not there, or a link, is
 * left alone. */
void sl__remove_folder(const char *path);

/* "folder/name", freed by the caller. */
sl_status sl__join_path(const char *folder, const char *name, char **out);

/* Writes a file of a folder that is on the disk when this returns. */
sl_status sl__write_in(const char *folder, const char *name, const char *text,
                       size_t length);

/* FNV-1a, a sum of 64 bits: begins as SL__FNV_START. */
#define SL__FNV_START UINT64_C(0xcbf29ce484222325)
void sl__fnv_add(uint64_t *sum, const void *data, size_t bytes);

#endif

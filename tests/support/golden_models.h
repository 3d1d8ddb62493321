/* SPDX-License-Identifier: MIT
 *
 * The golden models, built from their files, which give every size. */
#ifndef SL_TEST_GOLDEN_MODELS_H
#define SL_TEST_GOLDEN_MODELS_H

#include "tensors.h"

/* Opens a golden, from the folder that SLUICE_GOLDENS names or the committed
 * one. */
sl_safetensors *golden_open(const char *model);

/* A tensor of a golden; fails the test where there is none. */
const sl_safetensor *golden_find(const sl_safetensors *file, const char *name);

/* An aligned copy; the caller frees. */
float *golden_floats(const sl_safetensor *tensor);

/* Built with SL_BF16, a model is f32 that was given that precision. */
typedef struct golden_model {
    const char *name;
    void (*build)(sl_graph *graph, const sl_safetensors *file, sl_dtype real);
} golden_model;

enum { GOLDEN_MODELS = 4 };
extern const golden_model golden_models[GOLDEN_MODELS]; /* the last is gpt2 */

/* From now on, models that this thread builds have this many rows; 0: the
 * file's. */
void golden_set_rows(int64_t rows);

/* A golden with this many rows, cut into stages of about the same cost as
 * `options` says. It is called from an sl_model_fn, so it does not fail the
 * test. */
sl_status golden_cut(int golden, const sl_safetensors *file, sl_dtype dtype,
                     int64_t rows, sl_cut_options *options, sl_model **out);

/* Loads parameters and inputs into slot 0; returns how many parameters the
 * golden has. */
int golden_load(const test_stage *stage, const sl_safetensors *file);

/* The name of a layer's bias that goldens of GPT-2 may lack. */
void golden_bias_name(int layer, char out[64]);

/* What such a golden lacks, by layer (3 C floats each); NULL if it lacks
 * nothing. The caller frees it. */
float *golden_missing_biases(const sl_safetensors *file);

/* golden_load, but with these biases, which may be NULL. */
int golden_load_whole(const test_stage *stage, const sl_safetensors *file,
                      const float *missing_biases);

#endif

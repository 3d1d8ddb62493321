/* SPDX-License-Identifier: MIT
 *
 * Pipelines compared with the uncut model. A subject is a golden model with a
 * batch; a trial runs it under a schedule, as one rank of any transport. */
#ifndef SL_TEST_TRIALS_H
#define SL_TEST_TRIALS_H

#include "golden_models.h"

#include <stdatomic.h>

/* A model, a batch for it, and what the uncut model computes from both. */
typedef struct subject {
    int golden; /* of golden_models */
    sl_dtype precision;
    const sl_safetensors *file;
    int64_t rows;
    sl_graph *graph;
    test_stage whole;
    sl_argument arguments[4];
    sl_array arrays[4];
    int count;
} subject;

void make_subject(int golden, sl_dtype precision, int64_t rows,
                  const sl_safetensors *file, subject *out);
void release_subject(subject *old);

/* How a subject is run. */
typedef struct trial {
    const subject *subject;
    const sl_schedule *schedule;
    int stages;
    sl_route route;
    sl_feed feed;
    sl_pipeline_options options;
    int steps;           /* whose gradients are summed */
    uint64_t *bits;      /* by rank: a hash of all gradients; or NULL */
    bool noise;          /* ranks are delayed at random */
    atomic_bool *helped; /* set to true if a rank helps another; or NULL */
    int most_sends;      /* the most that a rank may have pending; 0: any */
} trial;

/* Gathers the trace of the latest step, and checks it: compute as planned,
 * nothing received before it was sent or used before it was received, bytes as
 * planned, at most `most_sends` sends pending on a rank (0: any). All ranks
 * call it. (traced.c) */
sl_status trace_and_check(sl_comm *comm, sl_pipeline *pipeline, int most_sends);

/* A trial whose options, routes and backend depend on `way`. */
trial make_trial(const subject *s, const sl_schedule *schedule, unsigned way);

/* What each rank does: steps and evals, each compared; an sl_rank_fn whose
 * context is a trial. */
sl_status run_trial_rank(sl_comm *comm, void *trial);

#endif

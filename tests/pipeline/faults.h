/* SPDX-License-Identifier: MIT
 *
 * A pipeline of four stages of callbacks that fail, hang or die where a test
 * says, over every transport. */
#ifndef SL_TEST_FAULTS_H
#define SL_TEST_FAULTS_H

#include "tensors.h"

enum { STAGES = 4, MICROBATCHES = 4 };

/* What goes wrong. */
typedef struct fault {
    int stage;    /* -1: nothing */
    char program; /* F, B, I, W */
    int microbatch;
    bool hangs; /* longer than any timeout, but not forever */
    bool dies;  /* the process is killed */
} fault;

/* What each rank got. */
typedef struct found {
    sl_status status;
    char sentence[8192];
} found;

typedef struct job {
    const fault *asked;
    const sl_schedule *schedule;
    double timeout_s;
    int wrong_rank;  /* passes another shape; -1: none */
    int absent_rank; /* takes no step */
    /* Called with the transport before everything else; or NULL. */
    void (*tamper)(sl_comm *comm);
    const sl_action_function *functions;
    int function_count;
    found ranks[STAGES];
} job;

/* Builds the model; its context is a fault. */
sl_status build_faulty(void *fault, int64_t rows, const sl_model *like,
                       sl_model **out);

/* Steps once and notes what it found; an sl_rank_fn whose context is a job. */
sl_status run_faulty_rank(sl_comm *comm, void *job);

#endif

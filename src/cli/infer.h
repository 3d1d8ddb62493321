/* SPDX-License-Identifier: MIT
 *
 * What `sluice eval` and `sluice generate` share: a trained model on ranks. */
#ifndef SL_CLI_INFER_H
#define SL_CLI_INFER_H

#include "cli.h"

typedef struct infer_request {
    const char *model; /* folder */
    const char *schedule;
    const char *device;
    sl_sizes sizes; /* 0: not asked for */
    int samples;    /* microbatches where none are */
    int threads;
    cli_precision precision;
    double timeout_s;
    char found[4200]; /* where the model is, in the folder that was named */
    sl_gpt2_config config;
} infer_request;
#define INFER_REQUEST_INIT                                                     \
    {                                                                          \
        .schedule = "ForwardOnly", .samples = 1, .threads = 1,                 \
        .timeout_s = 600                                                       \
    }

/* infer.def has entries of a table of options, for a request with a `layout`;
 * INFER_MICROBATCHES is what a microbatch is called. */

/* What to do on each rank, with its context. */
typedef sl_status (*infer_fn)(sl_comm *comm,
                              const sl_inference_options *options,
                              void *context);

/* Opens the model, and runs `act` on threads, or as a rank of a job;
 * `out_first`: this process is the one that prints. */
int infer_run(const char *verb, const infer_request *asked, infer_fn act,
              void *context, bool *out_first);

/* Finds the model that is named, of a run its latest checkpoint, and reads its
 * config. */
int infer_find_model(const char *verb, infer_request *asked);

#endif

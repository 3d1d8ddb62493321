/* SPDX-License-Identifier: MIT
 *
 * What `sluice eval` and `sluice generate` share: a trained model on ranks. */
#ifndef SL_CLI_INFER_H
#define SL_CLI_INFER_H

#include "cli.h"

typedef struct infer_request {
    const char *model; /* folder */
    const char *schedule;
    sl_sizes sizes; /* 0: not asked for */
    int samples;    /* microbatches where none are */
    int threads;
    double timeout_s;
    char found[4200]; /* where the model is, in the folder that was named */
} infer_request;
#define INFER_REQUEST_INIT                                                     \
    {                                                                          \
        NULL, "ForwardOnly", {0, 0, 0}, 1, 1, 600, ""                          \
    }

enum { INFER_SCHEDULE = 300, INFER_TIMEOUT };

/* Options that both have, in this group of their help; `m` is what a
 * microbatch is called. */
#define INFER_OPTIONS(group, m)                                                \
    {NULL, 0, NULL, 0, "Layout:", group},                                      \
        {"schedule",                                                           \
         INFER_SCHEDULE,                                                       \
         "NAME|FILE.csv",                                                      \
         0,                                                                    \
         "Schedule, of which only the forwards run (ForwardOnly)",             \
         group},                                                               \
        {"ranks",                                                              \
         'p',                                                                  \
         "N",                                                                  \
         0,                                                                    \
         "Ranks (1; under mpirun, as many as it has started)",                 \
         group},                                                               \
        {"stages-per-rank", 'v', "N", 0, CLI_STAGES_HELP, group},              \
        {"microbatches", 'm', "N", 0, m, group},                               \
        {"threads", 't', "N", 0, "Threads of each rank (1)", group},           \
    {                                                                          \
        "timeout", INFER_TIMEOUT, "S", 0,                                      \
            "Seconds that a rank may wait for another (600)", group            \
    }
error_t infer_parse(int key, char *arg, infer_request *r);

/* What to do on each rank, with its context. */
typedef sl_status (*infer_fn)(sl_comm *comm,
                              const sl_inference_options *options,
                              void *context);

/* Opens the model, and runs `act` on threads, or as a rank of a job; `out_first`
 * tells whether this process is the one to speak. */
int infer_run(const char *verb, const infer_request *asked, infer_fn act,
              void *context, bool *out_first);

/* Where the model that is named is a run, takes its latest checkpoint. */
void infer_find_model(infer_request *asked);

/* The config of the model's folder. */
int infer_config(const char *verb, const char *model, sl_gpt2_config *out);

#endif
